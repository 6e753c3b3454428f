/* kernels.c - the CPU's table of kernels and what the planner asks of them. core/registry.c lists it. */
#include "cpu/kernels.h"

#include "core/dtype.h"
#include "cpu/backend.h"
#include "cpu/broadcast.h"
#include "cpu/panel.h"
#include "format/weight.h"
#include "model/cpu.h"

/* The plain kernels take everything: arithmetic in IEEE fp32 serves every precision. */
static bool applies(const lac_problem *problem)
{
    (void)problem;
    return true;
}

/* What both kernels do alike. */
static lac_cpu_work common_work(const lac_problem *problem)
{
    const lac_weight *weight = problem->weight;
    const lac_plan_options *options = &problem->options;
    double m = (double)problem->m, n = (double)weight->geometry.n, k = (double)weight->geometry.k;
    double c_bytes = options->has_residual ? m * n * (double)lac_dtype_size(options->c_dtype) : 0.0;
    return (lac_cpu_work){.threads = lac_cpu_threads(problem),
                          .tile = lac_cpu_tile_tokens(problem->m),
                          .packed = m * k,
                          .stored = m * n,
                          .bytes = m * k * (double)lac_dtype_size(options->x_dtype) +
                                   m * n * (double)lac_dtype_size(options->y_dtype) + c_bytes};
}

static double padded_tokens(const lac_problem *problem)
{
    int64_t tile = lac_cpu_tile_tokens(problem->m);
    return (double)((problem->m + tile - 1) / tile * tile);
}

static double panels(const lac_problem *problem)
{
    return (double)((problem->m + LAC_CPU_PANEL_TOKENS - 1) / LAC_CPU_PANEL_TOKENS);
}

static lac_cost gather_cost(const lac_problem *problem)
{
    lac_cpu_work work = common_work(problem);
    uint64_t weight_bytes = 0;
    for (int part = 0; part < LAC_PART_COUNT; ++part) weight_bytes += problem->weight->part[part].bytes;
    work.products = padded_tokens(problem) * (double)problem->weight->kept;
    work.gathered = work.products;
    work.decoded = panels(problem) * (double)problem->weight->kept;
    work.bytes += panels(problem) * (double)weight_bytes;
    return lac_model_cpu_cost(&problem->device->info, &work);
}

static lac_cost dense_cost(const lac_problem *problem)
{
    const lac_geometry *g = &problem->weight->geometry;
    lac_cpu_work work = common_work(problem);
    double weights = (double)g->n * (double)g->k;
    work.products = padded_tokens(problem) * weights;
    work.bytes += panels(problem) * weights * sizeof(float);
    return lac_model_cpu_cost(&problem->device->info, &work);
}

static lac_cost broadcast_cost(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_weight *w = problem->weight;
    lac_cpu_work work = common_work(problem);
    double rows = (double)((w->geometry.unit_n + unit->lanes - 1) / unit->lanes * unit->lanes) / (double)w->geometry.unit_n;
    work.threads = problem->options.threads;
    work.lanes = unit->lanes;
    work.products = (double)problem->m * (double)w->kept * rows;
    work.bytes += (double)w->part[LAC_PART_VALUES].bytes * rows;
    return lac_model_cpu_vector_cost(&problem->device->info, &work);
}

#define ALL_FAMILIES                                                                                                           \
    (1u << LAC_FAMILY_ELEMENT | 1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_VNM |                      \
     1u << LAC_FAMILY_SHUFFLED)
#define ALL_DTYPES (1u << LAC_DTYPE_F32 | 1u << LAC_DTYPE_F16 | 1u << LAC_DTYPE_BF16)

/* The dataflow "broadcast" on one vector unit. */
#define BROADCAST(unit)                                                                                                        \
    {                                                                                                                          \
        .info = {.size = sizeof(lac_kernel_info),                                                                              \
                 .name = "cpu_" #unit "_f32_broadcast",                                                                        \
                 .device = LAC_DEVICE_KIND_CPU,                                                                                \
                 .summary = "outputs along the vector, inputs broadcast; W in panels of two vectors of outputs",               \
                 .families = ALL_FAMILIES & ~(1u << LAC_FAMILY_VNM),                                                           \
                 .weight_dtypes = ALL_DTYPES,                                                                                  \
                 .x_dtypes = ALL_DTYPES,                                                                                       \
                 .y_dtypes = ALL_DTYPES},                                                                                      \
        .config = &lac_cpu_unit_##unit, .applies = lac_cpu_broadcast_applies, .cost = broadcast_cost,                          \
        .workspace = lac_cpu_broadcast_workspace, .prepare = lac_cpu_broadcast_prepare, .execute = lac_cpu_broadcast_execute,  \
        .release = lac_cpu_broadcast_release                                                                                   \
    }

const lac_kernel lac_cpu_kernels[] = {
    {.info = {.size = sizeof(lac_kernel_info),
              .name = "cpu_scalar_f32_gather",
              .device = LAC_DEVICE_KIND_CPU,
              .summary = "8 rows decoded for a panel of 256 tokens; each gathers packed activations, tile by tile",
              .families = ALL_FAMILIES,
              .weight_dtypes = ALL_DTYPES,
              .x_dtypes = ALL_DTYPES,
              .y_dtypes = ALL_DTYPES},
     .applies = applies,
     .cost = gather_cost,
     .workspace = lac_cpu_gather_workspace,
     .execute = lac_cpu_gather_execute},
    {.info = {.size = sizeof(lac_kernel_info),
              .name = "cpu_scalar_f32_dense",
              .device = LAC_DEVICE_KIND_CPU,
              .is_dense = 1,
              .summary = "W expanded to fp32 when prepared; row by row over packed activations",
              .families = ALL_FAMILIES,
              .weight_dtypes = ALL_DTYPES,
              .x_dtypes = ALL_DTYPES,
              .y_dtypes = ALL_DTYPES},
     .applies = applies,
     .cost = dense_cost,
     .workspace = lac_cpu_dense_workspace,
     .prepare = lac_cpu_dense_prepare,
     .execute = lac_cpu_dense_execute,
     .release = lac_cpu_dense_release},
    BROADCAST(scalar),
#if defined(__x86_64__)
    BROADCAST(avx2),
    BROADCAST(avx512),
#elif defined(__aarch64__)
    BROADCAST(neon),
#endif
};
const size_t lac_cpu_kernel_count = sizeof lac_cpu_kernels / sizeof *lac_cpu_kernels;
