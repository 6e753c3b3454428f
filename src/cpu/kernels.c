/* kernels.c - the CPU's table of kernels and what the planner asks of them. core/registry.c lists it. */
#include "cpu/kernels.h"

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "cpu/backend.h"
#include "cpu/broadcast.h"
#include "cpu/dense.h"
#include "cpu/expand.h"
#include "cpu/panel.h"
#include "cpu/permute.h"
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

/* In loads' worth of time, fitted: an element of X from rows of tokens, of X that lies as it is wanted, of Y, and what an
 * element of Y takes more when outputs are shuffled: one by one, or by a unit of 16 lanes, which scatters them. */
static const double PACK_TOKEN = 2.0, PACK_FEATURE = 2.0, FINISH = 2.0, FINISH_SHUFFLED = 4.0, FINISH_SCATTERED = 1.5;
/* Of the rates of a core, that the inner loops reach, fitted on decode.csv (docs/model.md): broadcast waits for inputs that were pushed out of the
 * first-level cache, unless it reads them one after another, as dense does. */
static const double REACH_BROADCAST = 0.59, REACH_DENSE = 0.71, REACH_STREAM = 0.69, REACH_OTHERS = 0.9;
/* What a tile takes beside its slots, in loads: the call, the epilogue's. */
static const double BROADCAST_TILE = 60.0;
/* What a slot of broadcast takes beside its operands: half a load for the column, one and a half to ask for weights. */
static const double BROADCAST_SLOT = 2.0;
/* What a strip of stream takes in each block beside its slots and sums, in loads: its numbers, loops, a wrong guess at their end. */
static const double STREAM_STRIP = 20.0;
/* The plain kernel, in the same: a product by the tokens of its tile, looking up a column, decoding a weight, storing. */
static const double PLAIN_PRODUCT_1 = 2.5, PLAIN_PRODUCT_4 = 1.8, PLAIN_PRODUCT_16 = 0.9;
static const double PLAIN_GATHER = 2.8, PLAIN_DECODE = 11.0, PLAIN_STORE = 22.0;

static double at_least_one(double value) { return value > 1.0 ? value : 1.0; }

/* What all kernels do alike. Y counts twice: a line is read before it is written. */
static lac_cpu_work common_work(const lac_problem *problem, int lanes)
{
    const lac_geometry *g = &problem->weight->geometry;
    const lac_plan_options *o = &problem->options;
    double x = (double)problem->m * (double)g->k, y = (double)problem->m * (double)g->n;
    double pack = o->x_layout == LAC_LAYOUT_FEATURE_MAJOR && problem->m > 1 ? PACK_FEATURE : PACK_TOKEN;
    return (lac_cpu_work){.threads = o->threads,
                          .lanes = lanes,
                          .reach = REACH_OTHERS,
                          .bytes = x * (double)lac_dtype_size(o->x_dtype) + 2.0 * y * (double)lac_dtype_size(o->y_dtype) +
                                   (o->has_residual ? y * (double)lac_dtype_size(o->c_dtype) : 0.0),
                          .packing = x * (problem->m == 1 ? PACK_FEATURE : pack) + y * FINISH};
}

/* Outputs that were shuffled go to their places; those of a dense weight are in order. */
static double shuffling(const lac_problem *problem)
{
    const lac_weight *w = problem->weight;
    const lac_cpu_unit *unit = problem->kernel->config;
    if (!w->part[LAC_PART_ROW_PERM].data) return 0.0;
    return (double)problem->m * (double)w->geometry.n * (unit->lanes == 16 ? FINISH_SCATTERED : FINISH_SHUFFLED);
}

/* Adds a weight of so many bytes, read from memory once for each panel of tokens (once at all where threads share out the
 * tokens), and again from the second-level cache as often as there are tiles beyond those. */
static void add_weight(const lac_problem *problem, lac_cpu_work *work, double bytes, double readings, int caches)
{
    bool by_tokens = lac_cpu_shares_tokens(problem, (uint64_t)bytes, (int64_t)readings, caches);
    double panels = by_tokens ? 1.0 : (double)lac_ceil_divide(problem->m, LAC_CPU_PANEL_TOKENS);
    double l2 = problem->device->info.l2_bytes ? (double)problem->device->info.l2_bytes : 1 << 20;
    work->bytes += bytes * panels;
    if (readings <= panels) return;
    *(by_tokens && bytes > l2 ? &work->l3_bytes : &work->l2_bytes) += bytes * (readings - panels);
}

/* FMAs of which only `sums` are independent of each other. */
static double waiting(double fmas, double sums)
{
    return fmas * at_least_one((double)LAC_CPU_FMAS_UNDER_WAY / at_least_one(sums));
}

static lac_cost gather_cost(const lac_problem *problem)
{
    lac_cpu_work work = common_work(problem, 1);
    double kept = (double)problem->weight->kept, panels = (double)lac_ceil_divide(problem->m, LAC_CPU_PANEL_TOKENS);
    double weight_bytes = 0.0;
    for (int part = 0; part < LAC_PART_COUNT; ++part) weight_bytes += (double)problem->weight->part[part].bytes;
    int tile = lac_cpu_tile_tokens(problem->m);
    double product = tile == 1 ? PLAIN_PRODUCT_1 : tile == 4 ? PLAIN_PRODUCT_4 : PLAIN_PRODUCT_16;
    double products = (double)lac_round_up(problem->m, tile) * kept;
    work.threads = lac_cpu_threads(problem);
    work.fmas = products;
    work.loads = products * product + products / tile * PLAIN_GATHER + panels * kept * PLAIN_DECODE;
    work.packing += (double)problem->m * (double)problem->weight->geometry.n * (PLAIN_STORE - FINISH);
    add_weight(problem, &work, weight_bytes, panels, 0);
    return lac_model_cpu_cost(&problem->device->info, &work);
}

/* Tokens in a tile of broadcast: the smallest that makes as few tiles as the largest does. */
static int broadcast_tile(const lac_cpu_unit *unit, int64_t m)
{
    const int *tiles = unit->broadcast_tiles;
    double count = (double)lac_ceil_divide(m, tiles[0]);
    int best = tiles[0];
    for (int i = 0; tiles[i]; ++i)
        if (tiles[i] * count >= (double)m) best = tiles[i];
    return best;
}

/* `weights` of W in groups of `unit_n` outputs, the padding to whole vectors not counted. A slot of the inner loop loads a
 * few vectors of weights and one broadcast for each token. `moved` is what packing takes beside X and Y. */
static lac_cost broadcast_like_cost(const lac_problem *problem, double weights, int64_t unit_n, double moved, double reach)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    lac_cpu_work work = common_work(problem, unit->lanes);
    int tile = broadcast_tile(unit, problem->m);
    double vectors = (double)lac_ceil_divide(unit_n, unit->lanes);
    if (vectors > unit->broadcast_vectors) vectors = unit->broadcast_vectors;
    double padding = (double)lac_round_up(unit_n, unit->lanes) / (double)unit_n;
    double widening = problem->weight->dtype == LAC_DTYPE_F32 ? 1.0 : 2.0; /* a 16-bit weight is loaded, then converted */
    double fmas = (double)problem->m * weights * padding / unit->lanes;    /* tiles of two widths leave next to none over */
    double slots = fmas / (tile * vectors);
    double bytes = weights * padding * (double)lac_dtype_size(problem->weight->dtype) + 4.0 * weights / (double)unit_n;
    double tiles = (double)lac_ceil_divide(problem->m, tile),
           panels = (double)lac_ceil_divide(unit_n, (int64_t)vectors * unit->lanes);
    work.reach = reach;
    work.fmas = waiting(fmas, tile * vectors);
    work.loads = slots * (tile + vectors * widening + BROADCAST_SLOT);
    work.packing += moved + tiles * panels * (double)lac_ceil_divide(problem->weight->geometry.n, unit_n) * BROADCAST_TILE;
    add_weight(problem, &work, bytes, tiles, LAC_CPU_BROADCAST_CACHES);
    return lac_model_cpu_cost(&problem->device->info, &work);
}

static lac_cost broadcast_cost(const lac_problem *problem)
{
    return broadcast_like_cost(problem, (double)problem->weight->kept, problem->weight->geometry.unit_n, shuffling(problem),
                               REACH_BROADCAST);
}

static lac_cost dense_cost(const lac_problem *problem)
{
    const lac_geometry *g = &problem->weight->geometry;
    return broadcast_like_cost(problem, (double)g->n * (double)g->k, g->n > 0 ? g->n : 1, 0.0, REACH_DENSE);
}

/* A slot that all rows of a strip share loads a vector of each tile's tokens, a broadcast for each row and a quarter of a
 * column; one with a column for each of two rows loads the vectors twice. */
static lac_cost stream_cost(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_weight *w = problem->weight;
    const lac_geometry *g = &w->geometry;
    lac_cpu_work work = common_work(problem, unit->lanes);
    int vectors = lac_cpu_stream_tile_vectors(problem), rows = lac_cpu_stream_rows(w);
    double tiles = (double)lac_ceil_divide(problem->m, (int64_t)vectors * unit->lanes);
    double padding = rows == 2 ? 1.0 : (double)lac_round_up(g->unit_n, rows) / (double)g->unit_n;
    double weights = (double)w->kept * padding;
    double shared = lac_cpu_stream_shared(problem);
    double fmas = (double)lac_round_up(problem->m, unit->lanes) * weights / unit->lanes;
    double slots = fmas / (rows * vectors);
    double strip_blocks =
        (double)lac_ceil_divide(g->n, rows) * tiles * (double)lac_ceil_divide(g->k, lac_cpu_stream_block_columns(problem));
    work.reach = REACH_STREAM;
    work.fmas = waiting(fmas, (double)rows * vectors);
    work.loads = slots * (shared * (vectors + rows + 0.25) + (1.0 - shared) * (rows * vectors + rows + 0.5)) +
                 strip_blocks * (2.0 * rows * vectors + STREAM_STRIP);
    work.packing += shuffling(problem);
    double columns = shared / rows + (1.0 - shared); /* for each weight */
    add_weight(problem, &work, weights * (sizeof(float) + columns * sizeof(uint16_t)), tiles, LAC_CPU_STREAM_CACHES);
    return lac_model_cpu_cost(&problem->device->info, &work);
}

/* A vector of columns takes its bits, its values, a table's entry to spread them by, and a vector of each token. */
static lac_cost expand_cost(const lac_problem *problem)
{
    const lac_cpu_unit *unit = problem->kernel->config;
    const lac_weight *w = problem->weight;
    lac_cpu_work work = common_work(problem, unit->lanes);
    double columns = (double)w->geometry.n * (double)w->geometry.k, m = (double)problem->m; /* every one is looked at */
    double vectors = (double)w->geometry.n * (double)lac_ceil_divide(w->geometry.k, unit->lanes);
    double x_bytes = m * (double)w->geometry.k * sizeof(float);
    uint64_t l1 = problem->device->info.l1_bytes ? problem->device->info.l1_bytes : 32768;
    work.fmas = waiting(vectors * m, m <= 4.0 ? 2.0 * m : m);
    work.loads = vectors * (3.0 + m);
    if (x_bytes > (double)l1) work.l2_bytes = (double)w->geometry.n * x_bytes;
    add_weight(problem, &work, (double)w->kept * (double)lac_dtype_size(w->dtype) + columns / 8.0, 1.0, 0);
    return lac_model_cpu_cost(&problem->device->info, &work);
}

/* ---- the table */

#define ALL_FAMILIES                                                                                                           \
    (1u << LAC_FAMILY_ELEMENT | 1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_VNM |                      \
     1u << LAC_FAMILY_SHUFFLED)
#define N_OF_M_FAMILIES (1u << LAC_FAMILY_ELEMENT | 1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_VNM)
#define ALL_DTYPES      (1u << LAC_DTYPE_F32 | 1u << LAC_DTYPE_F16 | 1u << LAC_DTYPE_BF16)

#define INFO(kernel_name, kernel_families, kernel_is_dense, kernel_summary)                                                    \
    {                                                                                                                          \
        .size = sizeof(lac_kernel_info), .name = kernel_name, .device = LAC_DEVICE_KIND_CPU, .is_dense = kernel_is_dense,      \
        .summary = kernel_summary, .families = kernel_families, .weight_dtypes = ALL_DTYPES, .x_dtypes = ALL_DTYPES,           \
        .y_dtypes = ALL_DTYPES                                                                                                 \
    }

/* Broadcast wants as many outputs with the same inputs as fill half a vector: of single weights, which have one, a scalar unit alone. */
#define SHARED_FAMILIES (1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_SHUFFLED)

/* Every dataflow on one vector unit. */
#define UNIT_KERNELS(unit, broadcast_families)                                                                                 \
    {.info = INFO("cpu_" #unit "_f32_broadcast", broadcast_families, 0,                                                        \
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
        {.info = INFO("cpu_" #unit "_f32_permute", N_OF_M_FAMILIES, 0,                                                         \
                      "1 to 8 tokens, rows along the vector; N:M groups of x in registers, picked by index"),                  \
         .config = &lac_cpu_unit_##unit,                                                                                       \
         .applies = lac_cpu_permute_applies,                                                                                   \
         .cost = lac_cpu_permute_cost,                                                                                         \
         .workspace = lac_cpu_permute_workspace,                                                                               \
         .prepare = lac_cpu_permute_prepare,                                                                                   \
         .execute = lac_cpu_permute_execute,                                                                                   \
         .release = lac_cpu_permute_release},                                                                                  \
    {                                                                                                                          \
        .info = INFO("cpu_" #unit "_f32_dense", ALL_FAMILIES, 1, "W with its zeros, through broadcast"),                       \
        .config = &lac_cpu_unit_##unit, .applies = lac_cpu_dense_applies, .cost = dense_cost,                                  \
        .workspace = lac_cpu_dense_workspace, .prepare = lac_cpu_dense_prepare, .execute = lac_cpu_dense_execute,              \
        .release = lac_cpu_dense_release                                                                                       \
    }

const lac_kernel lac_cpu_kernels[] = {
    {.info = INFO("cpu_scalar_f32_gather", ALL_FAMILIES, 0,
                  "8 rows decoded for a panel of 256 tokens; each gathers packed activations, tile by tile"),
     .applies = gather_applies,
     .cost = gather_cost,
     .workspace = lac_cpu_gather_workspace,
     .execute = lac_cpu_gather_execute},
    UNIT_KERNELS(scalar, SHARED_FAMILIES | 1u << LAC_FAMILY_ELEMENT),
#if defined(__x86_64__)
    UNIT_KERNELS(avx2, SHARED_FAMILIES),
    UNIT_KERNELS(avx512, SHARED_FAMILIES),
#elif defined(__aarch64__)
    UNIT_KERNELS(neon, SHARED_FAMILIES),
#endif
};
const size_t lac_cpu_kernel_count = sizeof lac_cpu_kernels / sizeof *lac_cpu_kernels;
