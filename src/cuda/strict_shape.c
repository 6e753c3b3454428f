/* strict_shape.c - evaluates the model over every tile of strict.cu, both paths, step lengths and splits, and keeps the best.
 * Nothing here looks at a weight's contents, so that `lacuna compile` comes to the same choice without one. */
#include "cuda/strict_shape.h"

#include <math.h>

#include "core/dtype.h"
#include "cuda/runtime.h"
#include "format/weight.h"

/* Tiles of a warp and how many warps of them make a block. A thread's sums decide how many threads a multiprocessor holds. */
typedef struct tile {
    int lanes_n, thread_n, thread_m, warps_n, warps_m;
} tile;

static const tile TILES[] = {
    /* vectors of 32 outputs: 256 x 128, 128 x 128, 64 x 128, 128 x 64, 128 x 32 outputs x tokens */
    {4, 8, 16, 8, 1},
    {4, 8, 16, 4, 1},
    {4, 8, 8, 8, 2},
    {4, 8, 8, 4, 2},
    {4, 8, 8, 2, 2},
    {4, 8, 4, 4, 2},
    {4, 8, 4, 4, 1},
    /* of 16 */
    {2, 8, 8, 8, 1},
    {2, 8, 8, 4, 1},
    {2, 8, 4, 8, 1},
    /* of 8 */
    {1, 8, 8, 8, 1},
    {1, 8, 4, 8, 1},
    /* of 4 */
    {1, 4, 8, 16, 1},
    {1, 4, 4, 16, 1},
};

enum { MOST_ROWS = 128, MOST_SLOTS = 32, MOST_STAGES = 5, MOST_SLICES = 4, GROUP_M = 16 };

static int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t round_up(int64_t a, int64_t b) { return ceil_divide(a, b) * b; }

bool lac_strict_transposes(const lac_problem *problem)
{
    return problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR || problem->options.x_dtype != LAC_DTYPE_F32;
}

int64_t lac_strict_pitch(const lac_problem *problem) { return round_up(problem->m, 32); }

lac_strict_facts lac_strict_facts_of(const lac_problem *problem, bool dense)
{
    const lac_weight *w = problem->weight;
    const lac_geometry *g = &w->geometry;
    if (dense)
        return (lac_strict_facts){
            .rows = g->n, .vector = g->n, .k = w->k_in, .group_k = 4, .group_n = 4, .density = 1.0, .in_order = 1};
    lac_strict_facts f = {.rows = g->n,
                          .vector = g->unit_n,
                          .k = g->k,
                          .group_k = g->group_m * g->unit_k,
                          .group_n = g->group_n * g->unit_k,
                          .in_order = w->part[LAC_PART_COL_PERM].data == NULL};
    f.density = g->is_free ? w->pattern.density : (double)f.group_n / (double)f.group_k;
    return f;
}

int64_t lac_strict_vectors(const lac_strict_facts *f, int warp_n)
{
    if (!f->rows) return 0;
    int64_t whole = f->rows / f->vector, rest = f->rows % f->vector;
    return whole * ceil_divide(f->vector, warp_n) + ceil_divide(rest, warp_n);
}

int lac_strict_unroll(const lac_strict_shape *s)
{
    int share = s->slots / s->slices, most = s->thread_n * s->thread_m > 64 ? 12 : 16;
    for (int u = most; u > 4; u -= 4)
        if (share % u == 0) return u;
    return 4;
}

/* ---- one candidate */

/* Columns that a step advances by, when each vector has `slots` slots for them. */
static double step_columns(const lac_strict_facts *f, int slots)
{
    if (f->group_n && f->group_n <= slots) return (double)(slots / f->group_n * f->group_k);
    /* Vectors fill their slots at different columns: the first one that is full ends the step. */
    return slots / f->density / (1.0 + 1.2 * sqrt((1.0 - f->density) / slots));
}

/* Row groups that a block's vectors come from. */
static double block_groups(const lac_strict_facts *f, const lac_strict_shape *s)
{
    double per_group = (double)ceil_divide(f->vector, lac_strict_warp_n(s));
    return fmax(1.0, s->warps_n / per_group);
}

/* Rows that a stage of the packed path needs: what the block's groups use together, with room for the unlucky step. */
static int packed_rows(const lac_strict_facts *f, const lac_strict_shape *s, double columns, double *used)
{
    double groups = block_groups(f, s), share = 1.0 - pow(1.0 - f->density, groups);
    *used = groups > 1.0 ? columns * share : columns * f->density;
    double most = ceil(groups) * s->slots;
    if (groups <= 1.0) return s->slots;
    double wanted = *used + 2.5 * sqrt(columns * share * (1.0 - share)) + 2.0;
    return (int)round_up((int64_t)fmin(fmin(wanted, most), columns), 4);
}

/* As many blocks on a multiprocessor as registers allow, as many stages as shared memory allows; false: not even two. */
static bool fit(const lac_cuda_target *target, lac_strict_shape *s)
{
    int most_threads = s->thread_n * s->thread_m > 64 ? 256 : 512, threads = lac_strict_threads(s);
    unsigned stage = lac_strict_stage_bytes(s);
    unsigned sums = s->slices * s->split > 1 ? (unsigned)(s->slices * lac_strict_block_n(s) * lac_strict_block_m(s)) * 4 : 0;
    if (threads > most_threads) return false;
    for (s->blocks_at_once = most_threads / threads; s->blocks_at_once; --s->blocks_at_once) {
        unsigned all = (target->shared_per_block + 1024) / (unsigned)s->blocks_at_once - 1024;
        unsigned stages = all / stage;
        s->stages = stages < MOST_STAGES ? (int)stages : MOST_STAGES;
        if ((s->stages >= 3 || (s->stages == 2 && s->blocks_at_once == 1)) && (unsigned)s->stages * stage >= sums) return true;
    }
    return false;
}

/* Shared-memory turns of 128 bytes, and instructions, that one slot takes of one warp. */
static double slot_turns(const lac_strict_shape *s)
{
    return s->thread_m / 4 * (s->lanes_n == 1 ? 4.0 : 2.0) + s->thread_n / 4 * (s->lanes_n == 4 ? 2.0 : 1.0) + 0.25;
}

static double slot_instructions(const lac_strict_shape *s)
{
    return s->thread_n * s->thread_m + s->thread_m / 4 + s->thread_n / 4 + 1.5;
}

/* Few warps with few sums each cannot hide the latency of shared memory and barriers behind their products; measured. */
static double latency(const lac_strict_shape *s, double blocks_each)
{
    double resident = fmin(fmax(blocks_each, 1.0), s->blocks_at_once);
    double products = resident * (lac_strict_threads(s) / 32) * (s->thread_n * s->thread_m / 64.0);
    return products >= 16.0  ? 1.0
           : products >= 8.0 ? 1.0 + 0.12 * (16.0 / products - 1.0)
                             : 1.12 + 0.4 * (8.0 / products - 1.0);
}

static lac_cost candidate_cost(const lac_problem *problem, const lac_strict_facts *f, const lac_strict_shape *s, double columns,
                               double rows)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    const lac_plan_options *o = &problem->options;
    const double m = (double)problem->m, block_m = lac_strict_block_m(s), warps = lac_strict_threads(s) / 32;
    const double tiles_m = ceil(m / block_m), blocks_n = ceil((double)lac_strict_vectors(f, lac_strict_warp_n(s)) / s->warps_n);
    const double steps = ceil((double)f->k / columns), record = lac_strict_record_bytes(s), parts = s->slices * s->split;
    const double row_bytes = fmin(block_m, m) * 4.0, copies = rows * block_m * 4.0 / 16.0 / 32.0;
    double step = s->slots * s->warps_n * s->warps_m * slot_instructions(s) + copies * (s->packed ? 3.5 : 2.2) +
                  record / 512.0 * 1.5 + warps * 30.0;
    double x_bytes = m * (double)problem->weight->k_in * 4.0,
           y_bytes = m * (double)f->rows * (double)lac_dtype_size(o->y_dtype);
    double sums = tiles_m * block_m * blocks_n * lac_strict_block_n(s);
    lac_gpu_work work = {
        .memory_bytes = x_bytes * (lac_strict_transposes(problem) ? 3.0 : 1.0) + y_bytes * (o->has_residual ? 2.0 : 1.0) +
                        blocks_n * steps * record * ceil(tiles_m / GROUP_M),
        .l2_bytes = tiles_m * blocks_n * steps * (rows * row_bytes + record),
        .shared_bytes = tiles_m * blocks_n *
                            (steps * (128.0 * s->slots * s->warps_n * s->warps_m * slot_turns(s) + rows * row_bytes + record)) +
                        (parts > 1.0 ? 8.0 * sums * parts : 0.0),
        .instructions = tiles_m * blocks_n * steps * step + sums / 32.0 * (3.0 + (parts > 1.0 ? parts : 0.0)),
        .blocks = tiles_m * blocks_n * s->split,
        /* Two blocks on a multiprocessor run at half the speed each, so a wave is one block everywhere. Clusters of more than
         * two blocks leave some multiprocessors without one. */
        .blocks_at_once = rates->multiprocessors * (s->split > 2 ? 0.9 : 1.0),
        .fill_seconds = 2e-6 + (s->split > 1 ? 1e-6 : 0.0),
        .launches = lac_strict_transposes(problem) ? 2 : 1};
    lac_cost cost = lac_model_gpu_cost(rates, &work);
    cost.seconds *= latency(s, work.blocks / rates->multiprocessors) * (s->stages == 2 ? 1.01 : 1.0);
    return cost;
}

/* ---- all of them */

typedef struct search {
    const lac_problem *problem;
    const lac_strict_facts *facts;
    lac_strict_shape shape;
    lac_cost cost;
    bool found;
} search;

static void consider(search *best, lac_strict_shape s)
{
    const lac_strict_facts *f = best->facts;
    double columns = step_columns(f, s.slots), used = columns;
    if (s.packed) {
        s.rows = packed_rows(f, &s, columns, &used);
    } else {
        s.rows = (int)fmin(floor(columns), (double)f->k);
        columns = used = s.rows;
    }
    if (s.rows < 1 || s.rows > MOST_ROWS || !fit(lac_cuda_target_of(best->problem->device), &s)) return;
    lac_cost cost = candidate_cost(best->problem, f, &s, columns, used);
    if (best->found && cost.seconds >= best->cost.seconds) return;
    best->found = true;
    best->shape = s;
    best->cost = cost;
}

bool lac_strict_choose(const lac_problem *problem, const lac_strict_facts *facts, lac_strict_shape *shape, lac_cost *cost)
{
    search best = {.problem = problem, .facts = facts};
    const int most_split = lac_cuda_target_of(problem->device)->arch >= 90 ? 4 : 1;
    for (size_t i = 0; i < sizeof TILES / sizeof *TILES; ++i) {
        const tile *t = &TILES[i];
        for (int slices = 1; slices <= MOST_SLICES; slices *= 2)
            for (int split = 1; split <= most_split; split *= 2)
                for (int slots = 4 * slices; slots <= MOST_SLOTS; slots += 4 * slices)
                    for (int packed = facts->in_order ? 0 : 1; packed <= (facts->density < 1.0 || !facts->in_order); ++packed)
                        consider(&best, (lac_strict_shape){.lanes_n = t->lanes_n,
                                                           .thread_n = t->thread_n,
                                                           .thread_m = t->thread_m,
                                                           .warps_n = t->warps_n,
                                                           .warps_m = t->warps_m,
                                                           .packed = packed,
                                                           .slots = slots,
                                                           .slices = slices,
                                                           .split = split});
    }
    if (!best.found) return false;
    if (shape) *shape = best.shape;
    if (cost) *cost = best.cost;
    return true;
}
