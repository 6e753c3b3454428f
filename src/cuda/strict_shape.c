/* strict_shape.c - evaluates the model over every tile of strict.cu, both paths, step lengths and splits, and keeps the best.
 * Nothing here looks at a weight's contents, so that `lacuna compile` comes to the same choice without one. */
#include "cuda/strict_shape.h"

#include <math.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "cuda/runtime.h"
#include "format/weight.h"

/* Tiles of a warp and how many warps of them make a block. A thread's sums decide how many threads a multiprocessor holds. */
typedef struct tile {
    int lanes_n, thread_n, thread_m, warps_n, warps_m, rowwise;
} tile;

static const tile TILES[] = {
    /* vectors of 32 outputs: 256 x 128, 128 x 128, 64 x 128, 64 x 64, 128 x 64, 128 x 32 outputs x tokens */
    {4, 8, 16, 8, 1, 0},
    {4, 8, 16, 4, 1, 0},
    {4, 8, 8, 8, 2, 0},
    {4, 8, 8, 4, 2, 0},
    {4, 8, 8, 2, 2, 0},
    {4, 8, 8, 2, 1, 0},
    {4, 8, 4, 4, 2, 0},
    {4, 8, 4, 4, 1, 0},
    /* of 16 */
    {2, 8, 8, 8, 1, 0},
    {2, 8, 8, 4, 1, 0},
    {2, 8, 4, 8, 1, 0},
    /* of 8 */
    {1, 8, 8, 8, 1, 0},
    {1, 8, 4, 8, 1, 0},
    /* of 4 */
    {1, 4, 8, 16, 1, 0},
    {1, 4, 4, 16, 1, 0},
    /* rows that share nothing: 128 x 256, 64 x 128 */
    {1, 8, 8, 16, 1, 1},
    {1, 8, 4, 8, 1, 1},
};

enum {
    SHORTEST_VECTOR = LAC_STRICT_JOINED,
    MOST_ROWS = 128,
    MOST_SLOTS = LAC_STRICT_MOST_SLOTS,
    MOST_SLICES = 4,
    GROUP_M = 16
};

bool lac_strict_transposes(const lac_problem *problem)
{
    return problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR || problem->options.x_dtype != LAC_DTYPE_F32 || problem->m % 4;
}

int64_t lac_strict_pitch(const lac_problem *problem) { return lac_round_up(problem->m, 32); }

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
                          .in_order = w->part[LAC_PART_COL_PERM].data == NULL,
                          .joinable = w->pattern.family != LAC_FAMILY_VNM};
    f.density = g->is_free ? w->pattern.density : (double)f.group_n / (double)f.group_k;
    return f;
}

lac_strict_facts lac_strict_facts_for(const lac_strict_facts *facts, const lac_strict_shape *shape)
{
    lac_strict_facts f = *facts;
    const int list_n = lac_strict_list_n(shape);
    if (facts->vector >= SHORTEST_VECTOR || shape->rowwise || !facts->joinable) return f;
    f.joined = list_n;
    f.vector = list_n;
    f.group_k = f.group_n = 0;
    f.density = 1.0 - pow(1.0 - facts->density, (double)list_n / (double)facts->vector);
    return f;
}

int64_t lac_strict_vectors(const lac_strict_facts *f, int list_n)
{
    if (!f->rows) return 0;
    int64_t whole = f->rows / f->vector, rest = f->rows % f->vector;
    return whole * lac_ceil_divide(f->vector, list_n) + lac_ceil_divide(rest, list_n);
}

int lac_strict_unroll(const lac_strict_shape *s)
{
    if (s->uneven) return 4;
    int share = s->slots / s->slices, most = s->every ? 8 : s->thread_n * s->thread_m > 64 ? 12 : 16;
    for (int u = most; u > 4; u -= 4)
        if (share % u == 0) return u;
    return 4;
}

/* ---- one candidate */

/* Blocks of two warps, eight of them on a multiprocessor, took up to 18% longer than the model says on an H200. Two slices of 12 slots,
 * with k split by two, were faster than what was picked before (docs/kernels/fp32.md). */
static bool is_too_small(const lac_strict_shape *s)
{
    return s->lanes_n == 4 && s->warps_n * s->warps_m == 2 && !(s->slices == 2 && s->slots == 24 && s->split == 2);
}

/* Whether vectors fill their slots at different columns: no number of whole groups fits a step. */
static bool is_uneven(const lac_strict_facts *f, int slots) { return !f->group_n || f->group_n > slots; }

/* Columns that a step advances by, when each vector has `slots` slots for them; when uneven, so many that a vector has rarely
 * more than it has slots for: density * columns and two and a half deviations. */
static double step_columns(const lac_strict_facts *f, int slots)
{
    if (!is_uneven(f, slots)) return (double)(slots / f->group_n * f->group_k);
    double d = f->density, b = 2.5 * sqrt(d * (1.0 - d)), root = (sqrt(b * b + 4.0 * d * slots) - b) / (2.0 * d);
    return fmax(root * root, 1.0);
}

/* Slots that a vector runs through in a step. */
static double step_slots(const lac_strict_facts *f, const lac_strict_shape *s, double columns)
{
    if (!s->uneven || s->rowwise) return s->slots;
    /* Half a group of 4 a slice stays empty, and the vector with the most makes the others wait a little. */
    return fmin(columns * f->density * 1.06 + 1.5 * s->slices, s->slots);
}

/* Row groups that a block's vectors come from. */
static double block_groups(const lac_strict_facts *f, const lac_strict_shape *s)
{
    double per_group = (double)lac_ceil_divide(f->vector, lac_strict_list_n(s));
    return fmax(1.0, lac_strict_lists(s) / per_group);
}

/* Rows that a stage of the packed path needs: what the block's groups use together, with room for the unlucky step. */
static int packed_rows(const lac_strict_facts *f, const lac_strict_shape *s, double columns, double *used)
{
    double groups = block_groups(f, s), share = 1.0 - pow(1.0 - f->density, groups);
    *used = groups > 1.0 ? columns * share : columns * f->density;
    double most = ceil(groups) * s->slots;
    if (groups <= 1.0) return s->slots; /* a single vector: it stops at its last slot */
    double wanted = *used + 2.5 * sqrt(columns * share * (1.0 - share)) + 2.0;
    return (int)lac_round_up((int64_t)fmin(fmin(wanted, most), columns), 4);
}

/* As many blocks on a multiprocessor as registers allow, as many stages as shared memory allows; false: not even two. */
static bool fit(const lac_cuda_target *target, lac_strict_shape *s)
{
    int most_threads = s->thread_n * s->thread_m > 64 ? 256 : 512, threads = lac_strict_threads(s);
    unsigned stage = lac_strict_stage_bytes(s);
    unsigned sums = s->slices * s->split > 1 ? (unsigned)(s->slices * lac_strict_block_n(s) * lac_strict_block_m(s)) * 4 : 0;
    /* strict.cu takes a quarter of a thread's sums through the stages at a time, at the least: where k is short, they may have no room for it. */
    unsigned quarter = (unsigned)(s->thread_n * s->thread_m * threads);
    if (sums < quarter) sums = quarter;
    if (threads > most_threads) return false;
    for (s->blocks_at_once = most_threads / threads; s->blocks_at_once; --s->blocks_at_once) {
        unsigned all = (target->shared_per_block + 1024) / (unsigned)s->blocks_at_once - 1024;
        unsigned stages = all / stage;
        s->stages = stages < LAC_STRICT_MOST_STAGES ? (int)stages : LAC_STRICT_MOST_STAGES;
        if ((s->stages >= 3 || (s->stages == 2 && s->blocks_at_once == 1)) && (unsigned)s->stages * stage >= sums) return true;
    }
    return false;
}

/* Shared-memory turns of 128 bytes, and instructions, that one slot takes of one warp. */
static double slot_turns(const lac_strict_shape *s)
{
    if (s->rowwise) return s->thread_n * (s->thread_m / 4 * 4.0 + 0.5);
    return s->thread_m / 4 * (s->lanes_n == 1 ? 4.0 : 2.0) + s->thread_n / 4 * (s->lanes_n > 1 ? 2.0 : 1.0) + 0.25;
}

static double slot_instructions(const lac_strict_shape *s)
{
    if (s->rowwise) return s->thread_n * (s->thread_m + s->thread_m / 4 + 1.5);
    return s->thread_n * s->thread_m + s->thread_m / 4 + s->thread_n / 4 + (s->every ? 0.25 : 1.5);
}

/* Time of a block's work when `resident` blocks share a multiprocessor, against full issue slots: few warps cannot hide the
 * latency of shared memory and barriers behind their products, and 128 sums a thread leave room for 8 warps only. Measured on
 * an H200 over 32 problems. */
static double pace(const lac_strict_shape *s, double resident)
{
    double warps = resident * (lac_strict_threads(s) / 32);
    if (s->thread_n * s->thread_m > 64) return warps >= 8.0 ? 1.055 : warps >= 4.0 ? 1.055 + 0.025 * (8.0 - warps) : 1.5;
    /* The fewer warps meet at a barrier, the less they wait there. */
    double full = s->thread_n * s->thread_m == 64 && lac_strict_threads(s) > 128 ? 1.0 : 0.98;
    return warps >= 16.0 ? full : warps >= 8.0 ? full + 0.008 * (16.0 - warps) : full + 0.064 + 0.025 * (8.0 - warps);
}

/* Of full issue slots, what the busiest multiprocessor reaches over all its blocks; the last of them may be alone. */
static double efficiency(const lac_strict_shape *s, double blocks_each)
{
    double all = fmax(ceil(blocks_each), 1.0), at_once = s->blocks_at_once, rounds = floor(all / at_once);
    double rest = all - rounds * at_once;
    return all / (rounds * at_once * pace(s, at_once) + (rest > 0.0 ? rest * pace(s, rest) : 0.0));
}

static lac_cost candidate_cost(const lac_problem *problem, const lac_strict_facts *f, const lac_strict_shape *s, double columns,
                               double rows)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    const lac_plan_options *o = &problem->options;
    const double m = (double)problem->m, block_m = lac_strict_block_m(s), warps = lac_strict_threads(s) / 32;
    const double tiles_m = ceil(m / block_m),
                 blocks_n = ceil((double)lac_strict_vectors(f, lac_strict_list_n(s)) / lac_strict_lists(s));
    const double steps = ceil((double)f->k / columns), record = lac_strict_record_bytes(s), parts = s->slices * s->split;
    const double row_bytes = fmin(block_m, m) * 4.0, copies = rows * block_m * 4.0 / 16.0 / 32.0;
    const double slots = step_slots(f, s, columns);
    /* A packed row's column is asked of another lane; where several rows share a warp, that takes longer. */
    const double copying = s->packed ? 3.5 + 2.8 * (fmax(1.0, 128.0 / block_m) - 1.0) : 2.2;
    double step =
        slots * s->warps_n * s->warps_m * slot_instructions(s) + copies * copying + record / 512.0 * 1.5 + warps * 30.0;
    double x_bytes = m * (double)problem->weight->k_in * 4.0,
           y_bytes = m * (double)f->rows * (double)lac_dtype_size(o->y_dtype);
    double sums = tiles_m * block_m * blocks_n * lac_strict_block_n(s);
    /* Blocks that begin and end while no other block on their multiprocessor multiplies, beside the first. */
    double uncovered = s->blocks_at_once > 1 ? 0.0 : ceil(tiles_m * blocks_n * s->split / rates->multiprocessors) - 1.0;
    /* The blocks of a cluster wait for each other at its end, in each wave of them. */
    double waited = s->split > 1 ? tiles_m * blocks_n * s->split / (rates->multiprocessors * s->blocks_at_once) : 0.0;
    lac_gpu_work work = {
        .memory_bytes = x_bytes * (lac_strict_transposes(problem) ? 3.0 : 1.0) + y_bytes * (o->has_residual ? 2.0 : 1.0) +
                        blocks_n * steps * record * ceil(tiles_m / GROUP_M),
        .l2_bytes = tiles_m * blocks_n * steps * (rows * row_bytes + record),
        .shared_bytes = tiles_m * blocks_n *
                            (steps * (128.0 * slots * s->warps_n * s->warps_m * slot_turns(s) + rows * row_bytes + record)) +
                        (parts > 1.0 ? 8.0 * sums * parts : 0.0),
        .instructions = tiles_m * blocks_n * steps * step + sums / 32.0 * (3.0 + (parts > 1.0 ? parts : 0.0)),
        .blocks = tiles_m * blocks_n * s->split,
        /* Two blocks on a multiprocessor run at half the speed each, so a wave is one block everywhere. */
        .blocks_at_once = rates->multiprocessors,
        .fill_seconds =
            6e-6 + (parts > 1.0 ? 0.4e-6 * parts : 0.0) + 4e-6 * uncovered + 2e-6 * waited + lac_cuda_scatter_seconds(problem),
        .launches = lac_strict_transposes(problem) ? 2 : 1};
    work.efficiency = efficiency(s, work.blocks / rates->multiprocessors);
    lac_cost cost = lac_model_gpu_cost(rates, &work);
    if (s->stages < 4) cost.seconds *= s->stages == 2 ? 1.03 : 1.005;
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
    if (is_too_small(&s)) return;
    const lac_strict_facts facts = lac_strict_facts_for(best->facts, &s), *f = &facts;
    s.uneven = is_uneven(f, s.slots);
    double columns = step_columns(f, s.slots), used = columns;
    s.every = s.every && !s.uneven && fmin(columns, (double)f->k) >= s.slots; /* else slot i need not be row i */
    /* 512 threads of 64 sums have no registers left: not for a loop around the unrolled slots, nor for counting uneven ones. */
    if (s.thread_n * s.thread_m == 64 && !s.rowwise && !s.every &&
        (s.uneven ? s.lanes_n == 4 : lac_strict_unroll(&s) != s.slots / s.slices))
        return;
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

/* Whether no tile of a longer vector divides these as well; rows on their own only where vectors are shorter than all tiles, and
 * beside them the tile of the shortest vector, which joins rows. */
static bool suits(const tile *t, int64_t vector)
{
    int warp_n = t->lanes_n * t->thread_n;
    if (vector < SHORTEST_VECTOR) return t->rowwise || warp_n == SHORTEST_VECTOR;
    return !t->rowwise && (warp_n == 32 || vector % (2 * warp_n) != 0);
}

bool lac_strict_choose(const lac_problem *problem, const lac_strict_facts *facts, lac_strict_shape *shape, lac_cost *cost)
{
    search best = {.problem = problem, .facts = facts};
    /* Clusters of more than two blocks leave multiprocessors without one. */
    const lac_cuda_target *target = lac_cuda_target_of(problem->device);
    const int most_split = target->arch >= 90 && target->multiprocessors >= 2 ? 2 : 1;
    for (size_t i = 0; i < sizeof TILES / sizeof *TILES; ++i) {
        const tile *t = &TILES[i];
        if (!suits(t, facts->vector)) continue;
        for (int slices = 1; slices <= (t->rowwise ? 1 : MOST_SLICES); slices *= 2)
            for (int split = 1; split <= most_split; split *= 2)
                for (int slots = 4 * slices; slots <= MOST_SLOTS; slots += 4 * slices)
                    for (int packed = facts->in_order ? 0 : 1; packed <= (facts->density < 1.0 || !facts->in_order); ++packed)
                        consider(&best, (lac_strict_shape){.lanes_n = t->lanes_n,
                                                           .thread_n = t->thread_n,
                                                           .thread_m = t->thread_m,
                                                           .warps_n = t->warps_n,
                                                           .warps_m = t->warps_m,
                                                           .rowwise = t->rowwise,
                                                           .packed = packed,
                                                           .every = !packed && !t->rowwise && facts->density == 1.0,
                                                           .slots = slots,
                                                           .slices = slices,
                                                           .split = split});
    }
    if (!best.found) return false;
    if (shape) *shape = best.shape;
    if (cost) *cost = best.cost;
    return true;
}
