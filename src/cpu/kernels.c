/* kernels.c - the CPU's table of kernels and what the planner asks of them. core/registry.c lists it. */
#include "cpu/kernels.h"

#include "core/dtype.h"
#include "cpu/backend.h"
#include "cpu/broadcast.h"
#include "cpu/dense.h"
#include "cpu/expand.h"
#include "cpu/panel.h"
#include "cpu/stream.h"
#include "format/weight.h"
#include "model/cpu.h"

/* The plain kernel takes everything: arithmetic in IEEE fp32 serves every precision. */
static bool gather_applies(const lac_problem *problem)
{
    (void)problem;
    return true;
}

/* ---- what each would cost */

/* What all kernels do alike. */
static lac_cpu_work common_work(const lac_problem *problem)
{
    const lac_weight *weight = problem->weight;
    const lac_plan_options *options = &problem->options;
    double m = (double)problem->m, n = (double)weight->geometry.n, k = (double)weight->geometry.k;
    double c_bytes = options->has_residual ? m * n * (double)lac_dtype_size(options->c_dtype) : 0.0;
    return (lac_cpu_work){.threads = problem->options.threads,
                          .packed = m * k,
                          .stored = m * n,
                          .bytes = m * k * (double)lac_dtype_size(options->x_dtype) +
                                   m * n * (double)lac_dtype_size(options->y_dtype) + c_bytes};
}

static double rounded_up(int64_t count, int64_t step) { return (double)((count + step - 1) / step * step); }

static lac_cost gather_cost(const lac_problem *problem)
{
    lac_cpu_work work = common_work(problem);
    double panels = rounded_up(problem->m, LAC_CPU_PANEL_TOKENS) / LAC_CPU_PANEL_TOKENS;
    uint64_t weight_bytes = 0;
    for (int part = 0; part < LAC_PART_COUNT; ++part) weight_bytes += problem->weight->part[part].bytes;
    work.threads = lac_cpu_threads(problem);
    work.tile = lac_cpu_tile_tokens(problem->m);
    work.products = rounded_up(problem->m, work.tile) * (double)problem->weight->kept;
    work.decoded = panels * (double)problem->weight->kept;
    work.bytes += panels * (double)weight_bytes;
    return lac_model_cpu_cost(&problem->device->info, &work);
}

/* Loads a vector FMA in dataflow "broadcast": 9 for 12 on AVX2, 15 for 24 on AVX-512. */
static const double BROADCAST_LOADS = 0.75;

static lac_cost broadcast_cost(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_weight *w = problem->weight;
    lac_cpu_work work = common_work(problem);
    double padding = rounded_up(w->geometry.unit_n, unit->lanes) / (double)w->geometry.unit_n;
    work.lanes = unit->lanes;
    work.loads = BROADCAST_LOADS;
    work.products = (double)problem->m * (double)w->kept * padding;
    work.bytes += (double)w->part[LAC_PART_VALUES].bytes * padding;
    return lac_model_cpu_vector_cost(&problem->device->info, &work);
}

static lac_cost stream_cost(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_weight *w = problem->weight;
    lac_cpu_work work = common_work(problem);
    int vectors = lac_cpu_stream_tile_vectors(problem), rows = lac_cpu_stream_rows(w);
    double padding = rows == 1 ? 1.0 : rounded_up(w->geometry.unit_n, rows) / (double)w->geometry.unit_n;
    work.lanes = unit->lanes;
    work.loads = rows == 1 ? (double)(vectors + 2) / vectors : (double)(vectors + rows + 1) / (vectors * rows);
    work.products = rounded_up(problem->m, (int64_t)vectors * unit->lanes) * (double)w->kept * padding;
    work.bytes += (double)w->kept * (sizeof(float) + sizeof(uint16_t) / (double)rows);
    return lac_model_cpu_vector_cost(&problem->device->info, &work);
}

static lac_cost expand_cost(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_weight *w = problem->weight;
    lac_cpu_work work = common_work(problem);
    double columns = (double)w->geometry.n * (double)w->geometry.k; /* every one is looked at */
    work.lanes = unit->lanes;
    work.loads = 1.0;
    work.products = columns * (4.0 + (double)problem->m); /* spreading a vector of weights takes as long as 4 FMAs */
    work.bytes += (double)w->part[LAC_PART_VALUES].bytes + columns / 8;
    return lac_model_cpu_vector_cost(&problem->device->info, &work);
}

static lac_cost dense_cost(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_geometry *g = &problem->weight->geometry;
    lac_cpu_work work = common_work(problem);
    double weights = rounded_up(g->n, unit->lanes) * (double)g->k;
    work.lanes = unit->lanes;
    work.loads = BROADCAST_LOADS;
    work.products = (double)problem->m * weights;
    work.bytes += weights * (double)lac_dtype_size(problem->weight->dtype);
    return lac_model_cpu_vector_cost(&problem->device->info, &work);
}

/* ---- the table */

#define ALL_FAMILIES                                                                                                           \
    (1u << LAC_FAMILY_ELEMENT | 1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_VNM |                      \
     1u << LAC_FAMILY_SHUFFLED)
#define ALL_DTYPES (1u << LAC_DTYPE_F32 | 1u << LAC_DTYPE_F16 | 1u << LAC_DTYPE_BF16)

#define INFO(kernel_name, kernel_families, kernel_is_dense, kernel_summary)                                                    \
    {                                                                                                                          \
        .size = sizeof(lac_kernel_info), .name = kernel_name, .device = LAC_DEVICE_KIND_CPU, .is_dense = kernel_is_dense,      \
        .summary = kernel_summary, .families = kernel_families, .weight_dtypes = ALL_DTYPES, .x_dtypes = ALL_DTYPES,           \
        .y_dtypes = ALL_DTYPES                                                                                                 \
    }

/* Every dataflow on one vector unit. */
#define UNIT_KERNELS(unit)                                                                                                     \
    {.info = INFO("cpu_" #unit "_f32_broadcast", ALL_FAMILIES & ~(1u << LAC_FAMILY_VNM), 0,                                    \
                  "outputs along the vector, inputs broadcast; W in panels of two vectors of outputs"),                        \
     .config = &lac_cpu_unit_##unit,                                                                                           \
     .applies = lac_cpu_broadcast_applies,                                                                                     \
     .cost = broadcast_cost,                                                                                                   \
     .workspace = lac_cpu_broadcast_workspace,                                                                                 \
     .prepare = lac_cpu_broadcast_prepare,                                                                                     \
     .execute = lac_cpu_broadcast_execute,                                                                                     \
     .release = lac_cpu_broadcast_release},                                                                                    \
        {.info = INFO("cpu_" #unit "_f32_stream", ALL_FAMILIES, 0,                                                             \
                      "tokens along the vector, weights broadcast; W in blocks of columns that fit the first cache"),          \
         .config = &lac_cpu_unit_##unit,                                                                                       \
         .applies = lac_cpu_stream_applies,                                                                                    \
         .cost = stream_cost,                                                                                                  \
         .workspace = lac_cpu_stream_workspace,                                                                                \
         .prepare = lac_cpu_stream_prepare,                                                                                    \
         .execute = lac_cpu_stream_execute,                                                                                    \
         .release = lac_cpu_stream_release},                                                                                   \
        {.info = INFO("cpu_" #unit "_f32_expand", ALL_FAMILIES, 0,                                                             \
                      "1 to 8 tokens, columns along the vector; rows of W as a bitmask and a run of values"),                  \
         .config = &lac_cpu_unit_##unit,                                                                                       \
         .applies = lac_cpu_expand_applies,                                                                                    \
         .cost = expand_cost,                                                                                                  \
         .workspace = lac_cpu_expand_workspace,                                                                                \
         .prepare = lac_cpu_expand_prepare,                                                                                    \
         .execute = lac_cpu_expand_execute,                                                                                    \
         .release = lac_cpu_expand_release},                                                                                   \
    {                                                                                                                          \
        .info = INFO("cpu_" #unit "_f32_dense", ALL_FAMILIES, 1, "W with its zeros, through broadcast"),                       \
        .config = &lac_cpu_unit_##unit, .applies = lac_cpu_dense_applies, .cost = dense_cost,                                  \
        .workspace = lac_cpu_broadcast_workspace, .prepare = lac_cpu_dense_prepare, .execute = lac_cpu_dense_execute,          \
        .release = lac_cpu_dense_release                                                                                       \
    }

const lac_kernel lac_cpu_kernels[] = {
    {.info = INFO("cpu_scalar_f32_gather", ALL_FAMILIES, 0,
                  "8 rows decoded for a panel of 256 tokens; each gathers packed activations, tile by tile"),
     .applies = gather_applies,
     .cost = gather_cost,
     .workspace = lac_cpu_gather_workspace,
     .execute = lac_cpu_gather_execute},
    UNIT_KERNELS(scalar),
#if defined(__x86_64__)
    UNIT_KERNELS(avx2),
    UNIT_KERNELS(avx512),
#elif defined(__aarch64__)
    UNIT_KERNELS(neon),
#endif
};
const size_t lac_cpu_kernel_count = sizeof lac_cpu_kernels / sizeof *lac_cpu_kernels;
