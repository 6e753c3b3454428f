/* expand_shape.c - which tile, cluster and split of k kernels/expand.cu runs with, and which teams kernels/expand_ring.cu: every
 * candidate is asked what it costs. */
#include "cuda/expand_shape.h"

#include <math.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "cuda/kernels/expand_arguments.h"
#include "format/weight.h"

enum { MOST_STAGES = 12, MOST_PARTS = 8, BARRIER_BYTES = 1024, MOST_WORDS = 13 }; /* more would not fit into registers */

/* A tile's epilogue, which no copy hides, and the first stages of a block. */
static const double TILE_SECONDS = 2.5e-6, FILL_SECONDS = 3.0e-6;

/* Of the bound's rate, what the kernel reached on an H200, and a warp's instructions to spread a piece's share. */
static const double EFFICIENCY = 0.73, SPREAD_INSTRUCTIONS = 260;

/* The same for the ring: a tile's epilogue, the first parts of the ring; what a warp takes to bring a unit of 16 outputs x 64
 * inputs into it. */
static const double RING_TILE_SECONDS = 1.0e-6, RING_FILL_SECONDS = 5.0e-6, RING_EFFICIENCY = 0.87, UNIT_SECONDS = 1.4e-6;
enum { UNITS_A_STEP = 16, RING_CLUSTER = 2 }; /* as in expand_ring.cu */

/* ---- what the kernel can take */

/* The most that a row keeps of `length` inputs from a multiple of it on. */
static int most_kept(const lac_geometry *g, int64_t length)
{
    int64_t most = 0;
    for (int64_t begin = 0; begin < length * g->group_m; begin += length) {
        int64_t kept = 0;
        for (int64_t at = begin; at < begin + length;) {
            int64_t end = (at / g->group_m + 1) * g->group_m;
            if (end > begin + length) end = begin + length;
            kept += end - at < g->group_n ? end - at : g->group_n;
            at = end;
        }
        if (kept > most) most = kept;
    }
    return (int)most;
}

/* The same of a free distribution, by looking, once: rounded up, so that weights of about the same density share their programs. */
static int most_kept_free(const lac_weight *w)
{
    enum { ROUND = 4 };
    const uint32_t *column = w->part[LAC_PART_COLUMNS].data;
    int most = lac_weight_known(w, LAC_FACT_EXPAND_MOST);
    if (most >= 0) return most;
    most = 1;
    for (int64_t row = 0; row < w->geometry.row_groups; ++row) {
        uint32_t span = 0;
        int kept = 0;
        for (int64_t i = w->first_slot[row]; i < w->first_slot[row + 1]; ++i) {
            if (column[i] / LAC_EXPAND_SPAN != span) kept = 0;
            span = column[i] / LAC_EXPAND_SPAN;
            if (++kept > most) most = kept;
        }
    }
    most = (most + ROUND - 1) / ROUND * ROUND;
    lac_weight_note(w, LAC_FACT_EXPAND_MOST, most);
    return most;
}

/* How W lies in memory. Short runs are spread faster, and are taken where they need no more places than long ones. False: the
 * pattern is too dense. */
static bool lay_out(const lac_weight *w, lac_expand_shape *s)
{
    const lac_geometry *g = &w->geometry;
    if (g->is_free) {
        s->run = LAC_EXPAND_SPAN;
        s->per = most_kept_free(w);
        s->words = (s->per + 1) / 2 + 1;
        return s->words <= MOST_WORDS;
    }
    int places = LAC_EXPAND_SPAN + 1;
    for (int run = LAC_EXPAND_SPAN; run >= 8; run /= 2) {
        int per = most_kept(g, run);
        if (LAC_EXPAND_SPAN / run * per > places) continue;
        places = LAC_EXPAND_SPAN / run * per;
        s->run = run;
        s->per = per;
    }
    s->words = (places + 1) / 2 + 1;
    return s->words <= MOST_WORDS;
}

/* ---- what a shape asks of the GPU */

/* A team's steps follow each other as fast as their products or as W comes into the ring, whichever takes longer. */
static lac_cost ring_cost_of(const lac_problem *problem, const lac_expand_shape *s, double waves, double memory_bytes)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    double tiles = (double)s->token_tiles * (double)s->output_tiles, stages = tiles * (double)s->steps;
    double x_stage = s->tile_tokens * LAC_EXPAND_INPUTS * 2.0, w_stage = s->tile_outputs * LAC_EXPAND_INPUTS * 2.0;
    double blocks = (double)s->team * s->teams * s->cluster,
           products = 2.0 * s->tile_outputs * s->tile_tokens * LAC_EXPAND_INPUTS;
    double step = products / (rates->mma_f16 / rates->multiprocessors * RING_EFFICIENCY);
    double spread = UNITS_A_STEP * UNIT_SECONDS / (s->team * s->cluster * s->spreaders);
    double late = spread > step ? waves * (double)s->steps * (spread - step) : 0.0;
    lac_gpu_work work = {
        .memory_bytes = memory_bytes,
        .l2_bytes = stages * (x_stage / s->cluster + w_stage),
        .shared_bytes = 0.5 * stages * (s->tile_outputs / 64.0 * x_stage + w_stage) + stages * (x_stage + w_stage),
        .instructions = stages * 200,
        .mma_flops = stages * products,
        .blocks = tiles,
        .blocks_at_once = blocks,
        .fill_seconds = waves * RING_TILE_SECONDS + RING_FILL_SECONDS + late + lac_cuda_scatter_seconds(problem),
        .efficiency = RING_EFFICIENCY,
        .launches = 2};
    return lac_model_gpu_cost(rates, &work);
}

static lac_cost cost_of(const lac_problem *problem, const lac_expand_shape *s)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    const lac_plan_options *o = &problem->options;
    double tiles = (double)s->token_tiles * (double)s->output_tiles, stages = tiles * (double)s->steps;
    double x_stage = s->tile_tokens * LAC_EXPAND_INPUTS * 2.0, w_stage = s->tile_outputs * LAC_EXPAND_INPUTS * 2.0;
    double packed = (double)lac_expand_pieces(s) * lac_expand_piece(s);
    double x_bytes = (double)problem->m * (double)problem->weight->k_in * 2.0;
    double w_bytes = (double)s->output_tiles * (double)s->steps * packed;
    double y_bytes = (double)problem->m * (double)problem->weight->n_out * (double)lac_dtype_size(o->y_dtype);
    double partial = s->parts > 1 ? tiles * s->parts * s->tile_outputs * s->tile_tokens * 4.0 : 0.0;
    /* Each warpgroup reads W's rows once for each product and X's rows once for each 64 outputs; the tensor cores' reads go
     * on beside the writes about half of the time. */
    double read = 0.5 * stages * (s->tile_outputs / 64.0 * x_stage + (double)s->tile_tokens / s->width * w_stage);
    double clusters = s->team ? (double)s->team * s->teams : floor((double)rates->multiprocessors / s->cluster);
    double waves = ceil(tiles * s->parts / s->cluster / clusters);
    if (s->team) return ring_cost_of(problem, s, waves, x_bytes + w_bytes + y_bytes * (o->has_residual ? 2 : 1));
    lac_gpu_work work = {.memory_bytes = x_bytes + w_bytes + y_bytes * (o->has_residual ? 2 : 1) + 2 * partial,
                         .l2_bytes = stages * (x_stage + packed / s->cluster),
                         .shared_bytes = read + stages * (x_stage + w_stage * (s->cluster > 1 ? 1.5 : 1.0)),
                         .instructions = stages * (lac_expand_pieces(s) * 4 * SPREAD_INSTRUCTIONS / s->cluster + 200),
                         .mma_flops = stages * 2.0 * s->tile_outputs * s->tile_tokens * LAC_EXPAND_INPUTS,
                         .blocks = tiles * s->parts,
                         .blocks_at_once = clusters * s->cluster,
                         .fill_seconds = waves * TILE_SECONDS + FILL_SECONDS + lac_cuda_scatter_seconds(problem),
                         .efficiency = EFFICIENCY,
                         .launches = 1 + (s->parts > 1)};
    return lac_model_gpu_cost(rates, &work);
}

/* ---- candidates */

static bool complete(const lac_problem *problem, lac_expand_shape *s)
{
    s->output_tiles = lac_ceil_divide(problem->weight->geometry.n, s->tile_outputs);
    s->token_tiles = lac_ceil_divide(lac_ceil_divide(problem->m, s->tile_tokens), s->cluster) * s->cluster;
    int64_t room = (lac_cuda_target_of(problem->device)->shared_per_block - BARRIER_BYTES) / (unsigned)lac_expand_stage(s);
    s->stages = room < MOST_STAGES ? (int)room : MOST_STAGES;
    bool has_room = s->cluster <= lac_cuda_target_of(problem->device)->multiprocessors; /* each block has one */
    return has_room && s->stages >= 2 && lac_tiles_fit_int(s->token_tiles, s->tile_tokens) &&
           lac_tiles_fit_int(s->output_tiles, s->tile_outputs) && s->token_tiles * s->output_tiles < INT32_MAX / MOST_PARTS &&
           s->output_tiles * s->steps < INT32_MAX / MOST_PARTS;
}

static void consider(const lac_problem *problem, lac_expand_shape shape, bool *found, lac_expand_shape *best, lac_cost *cost)
{
    int64_t most = shape.steps < MOST_PARTS ? shape.steps : MOST_PARTS;
    if (!complete(problem, &shape)) return;
    for (int parts = 1; parts == 1 || parts <= most; ++parts) {
        shape.parts = parts;
        lac_cost now = cost_of(problem, &shape);
        if (*found && now.seconds >= cost->seconds) continue;
        *best = shape;
        *cost = now;
        *found = true;
    }
}

/* Whether 64 outputs of a tile are neighbours in Y, which the copy engine then stores. */
static bool stores(const lac_problem *problem)
{
    return problem->options.y_dtype != LAC_DTYPE_F32 && !problem->weight->part[LAC_PART_ROW_PERM].data;
}

/* Teams of every size that the GPU has room for. */
static void ring_consider(const lac_problem *problem, lac_expand_shape shape, bool *found, lac_expand_shape *best,
                          lac_cost *cost)
{
    const lac_cuda_target *target = lac_cuda_target_of(problem->device);
    int64_t tokens = lac_ceil_divide(problem->m, shape.tile_tokens), pairs = lac_ceil_divide(problem->weight->geometry.n, 256);
    int most = target->multiprocessors / RING_CLUSTER;
    shape.output_tiles = pairs * RING_CLUSTER;
    shape.staging = stores(problem) ? 2 : 0;
    int64_t room = (int64_t)target->shared_per_block - BARRIER_BYTES - lac_expand_staging(shape.staging);
    shape.stages = (int)(room / lac_expand_stage(&shape));
    if (shape.stages >= LAC_RING_SLOTS) shape.stages = LAC_RING_SLOTS - 1;
    if (shape.stages < 2 || shape.steps == 0 || !lac_tiles_fit_int(shape.output_tiles, shape.tile_outputs) ||
        tokens > INT32_MAX / MOST_PARTS / shape.output_tiles || shape.output_tiles * shape.steps >= INT32_MAX / UNITS_A_STEP)
        return;
    for (int team = 1; team <= most && team <= tokens; ++team) {
        int64_t items = pairs * lac_ceil_divide(tokens, team);
        shape.team = team;
        shape.teams = items < most / team ? (int)items : most / team;
        shape.token_tiles = lac_ceil_divide(tokens, team) * team;
        if (!lac_tiles_fit_int(shape.token_tiles, shape.tile_tokens)) continue;
        lac_cost now = cost_of(problem, &shape);
        if (*found && now.seconds > cost->seconds) continue; /* of equals the larger team, which spreads less */
        *best = shape;
        *cost = now;
        *found = true;
    }
}

static bool ring_shape_make(const lac_problem *problem, lac_expand_shape shape, lac_expand_shape *out, lac_cost *cost)
{
    static const struct {
        int tokens, spreaders;
    } tiles[] = {{256, 3}, {128, 7}};
    bool found = false;
    shape.tile_outputs = 128;
    shape.cluster = RING_CLUSTER;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; ++i) {
        if (tiles[i].tokens > 128 && problem->options.has_residual)
            continue; /* C's elements beside all sums would not fit into registers */
        shape.tile_tokens = shape.width = tiles[i].tokens;
        shape.spreaders = tiles[i].spreaders;
        ring_consider(problem, shape, &found, out, cost);
    }
    return found;
}

bool lac_expand_shape_make(const lac_problem *problem, bool ring, lac_expand_shape *out, lac_cost *cost)
{
    /* Outputs x tokens of a tile, and tokens of one product. Both warpgroups have all tokens, or half of them each where there
     * are only 64 outputs. Blocks of a cluster share the pieces of a tile, of which 128 outputs have two. */
    static const struct {
        int outputs, tokens, width;
    } tiles[] = {{128, 256, 256}, {64, 512, 256}, {128, 128, 128}, {64, 256, 128}, {128, 64, 64}, {64, 128, 64}};
    const lac_weight *w = problem->weight;
    const lac_geometry *g = &w->geometry;
    lac_expand_shape shape = {.parts = 1, .steps = lac_ceil_divide(g->k, LAC_EXPAND_INPUTS)};
    if (problem->m == 0 || g->n == 0 || w->pattern.family != LAC_FAMILY_ELEMENT || w->part[LAC_PART_COL_PERM].data ||
        !lay_out(w, &shape))
        return false;
    if (ring) return ring_shape_make(problem, shape, out, cost);
    bool found = false;
    /* What an epilogue takes beside the sums of 256 tokens would not fit into registers. */
    bool heavy = problem->options.has_residual || problem->options.activation > LAC_ACTIVATION_RELU;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; ++i)
        for (int cluster = tiles[i].width > 128 && heavy ? 0 : tiles[i].outputs / LAC_EXPAND_OUTPUTS; cluster >= 1; --cluster) {
            shape.tile_outputs = tiles[i].outputs;
            shape.tile_tokens = tiles[i].tokens;
            shape.width = tiles[i].width;
            shape.cluster = cluster;
            consider(problem, shape, &found, out, cost);
        }
    return found;
}
