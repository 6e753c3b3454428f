/* pick_shape.c - which tile, steps, stages and split of k kernels/pick.cu runs with: every candidate is asked what it costs.
 * How many inputs the vectors of a pair share is counted on the weight, once. */
#include "cuda/pick_shape.h"

#include <math.h>
#include <string.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "cuda/turn.h"
#include "format/weight.h"

enum { MOST_PARTS = 8, LEAST_HEIGHT = 5, MOST_WIDTH = 32, MOST_STAGES = 4, MOST_RING = 12, LEAST_RING = 3, ENOUGH_RING = 4 };
/* Sums of a thread, and loads of a window: one straight line of code. */
enum { MOST_SUMS = 160, MOST_TURN = 96 };
/* Bytes of W that there should be room for beside more than two windows of X: with less the ring runs empty. */
enum { ENOUGH_W = 90000, BARRIER_ROOM = 1024 };

/* Where fewer inputs are kept, two vectors seldom share any, and with fewer tokens it would not pay: nothing is counted then. */
static const double LEAST_DENSITY = 0.375;
enum { LEAST_TOKENS = 64 };
/* The first window of a tile and its epilogue, beside what of memory's time no product hides. These and the shares below fit 35 runs of
 * 6 to 140 us on an H200. */
static const double TILE_SECONDS = 0.5e-6, EXPOSED = 0.3;
/* The rate of L2 is that of cp.async; the copy engine is faster. */
static const double COPY_ENGINE = 0.78;
/* Of the bound's rate, what the kernel reached on an H200, and of that, what it does where both warpgroups read the same chunks. */
static const double EFFICIENCY = 1.1, SAME_CHUNKS = 0.9;
/* The same where vectors have 16 outputs, and 8. */
static const double NARROW = 0.87, NARROWER = 0.58;
/* The clock falls under long work: by so much at most. */
static const double HOT_SHARE = 0.1;

uint64_t lac_pick_turned_bytes(const lac_problem *problem)
{
    return lac_turn_bytes(problem, lac_ceil_divide(problem->weight->k_in, LAC_PICK_EIGHTH) * LAC_PICK_EIGHTH);
}

/* ---- how many inputs vectors keep in a window, and share */

bool lac_pick_fits(int steps, int common, int a, int b, int both)
{
    int shared = common * LAC_PICK_SLOTS, own = (steps - common) * LAC_PICK_SLOTS, used = both < shared ? both : shared;
    int more_a = a - used > own ? a - used - own : 0, more_b = b - used > own ? b - used - own : 0;
    return used + more_a + more_b <= shared;
}

/* What was counted: inputs of the fullest window, and with which number of shared steps every pair fits `steps`. */
typedef struct census {
    int most, steps;
    bool fits[LAC_PICK_MOST_STEPS + 1];
} census;

/* bits[words]: the columns of X that a row group reads, whole windows of them. */
static void mark_inputs(const lac_weight *w, int64_t group, uint32_t *units, uint64_t *bits, int64_t words)
{
    const lac_geometry *g = &w->geometry;
    const uint32_t *col_perm = w->part[LAC_PART_COL_PERM].data;
    memset(bits, 0, (size_t)words * sizeof *bits);
    if (group >= g->row_groups) return;
    int64_t count = lac_weight_units(w, group, units);
    for (int64_t i = 0; i < count; ++i) {
        int64_t begin = units[i] * g->unit_k, end = g->unit_k > 1 ? begin + lac_geometry_inputs(g, units[i]) : begin + 1;
        for (int64_t j = begin; j < end; ++j) {
            int64_t column = col_perm ? col_perm[j] : j;
            bits[column / 64] |= (uint64_t)1 << column % 64;
        }
    }
}

static int count_bits(const uint64_t *a, const uint64_t *b)
{
    int count = 0;
    for (int i = 0; i < LAC_PICK_WINDOW / 64; ++i) count += __builtin_popcountll(a[i] & b[i]);
    return count;
}

static void count_pair(const uint64_t *a, const uint64_t *b, int64_t windows, census *c)
{
    for (int64_t i = 0; i < windows; ++i, a += LAC_PICK_WINDOW / 64, b += LAC_PICK_WINDOW / 64) {
        int of_a = count_bits(a, a), of_b = count_bits(b, b), both = count_bits(a, b);
        c->most = of_a > c->most ? of_a : c->most;
        c->most = of_b > c->most ? of_b : c->most;
        for (int common = 0; common <= c->steps; ++common) c->fits[common] &= lac_pick_fits(c->steps, common, of_a, of_b, both);
    }
}

/* Goes over all pairs of vectors; false without memory. */
static bool count_all(const lac_weight *w, const lac_pick_shape *s, census *c)
{
    int64_t words = s->windows * (LAC_PICK_WINDOW / 64), of[2] = {-1, -1};
    uint32_t *units = lac_allocate((uint64_t)w->geometry.selected * sizeof *units);
    uint64_t *bits = lac_allocate(2 * (uint64_t)words * sizeof *bits);
    for (int i = 0; i <= LAC_PICK_MOST_STEPS; ++i) c->fits[i] = i <= c->steps;
    for (int64_t vector = 0; units && bits && vector < s->vectors; vector += 2) {
        bool counted = of[0] == vector / s->pieces && of[1] == (vector + 1) / s->pieces;
        for (int i = 0; i < 2; ++i) {
            if (of[i] == (vector + i) / s->pieces) continue;
            of[i] = (vector + i) / s->pieces;
            mark_inputs(w, of[i], units, bits + i * words, words);
        }
        if (!counted) count_pair(bits, bits + words, s->windows, c);
    }
    bool done = units && bits;
    lac_release(units);
    lac_release(bits);
    return done;
}

/* N:M: what the pattern allows in the fullest window. */
static int64_t most_by_pattern(const lac_geometry *g)
{
    int64_t length = g->group_m * g->unit_k, kept = g->group_n * g->unit_k, most = 0;
    for (int64_t begin = 0; begin < g->k; begin += LAC_PICK_WINDOW) {
        int64_t end = begin + LAC_PICK_WINDOW < g->k ? begin + LAC_PICK_WINDOW : g->k, sum = 0;
        for (int64_t group = begin / length; group * length < end; ++group) {
            int64_t from = group * length < begin ? begin : group * length;
            int64_t to = (group + 1) * length > end ? end : (group + 1) * length;
            sum += to - from < kept ? to - from : kept;
        }
        most = sum > most ? sum : most;
        if (LAC_PICK_WINDOW % length == 0) break; /* every full window has the same */
    }
    return most;
}

/* Inputs of the fullest window; -1 without memory. */
static int64_t fullest_window(const lac_weight *w, const lac_pick_shape *s)
{
    if (!w->geometry.is_free && !w->part[LAC_PART_COL_PERM].data && w->pattern.family != LAC_FAMILY_VNM)
        return most_by_pattern(&w->geometry);
    int known = lac_weight_known(w, LAC_FACT_PICK_MOST);
    if (known >= 0) return known;
    census c = {0};
    if (!count_all(w, s, &c)) return -1;
    lac_weight_note(w, LAC_FACT_PICK_MOST, c.most);
    return c.most;
}

/* The most steps that the vectors of every pair can share; -1 without memory. */
static int shared_steps(const lac_weight *w, const lac_pick_shape *s)
{
    int known = lac_weight_known(w, LAC_FACT_PICK_COMMON);
    if (known >= 0) return known;
    census c = {.steps = s->steps};
    if (!count_all(w, s, &c)) return -1;
    int most = 0;
    for (int i = 1; i <= s->steps; ++i)
        if (c.fits[i]) most = i;
    lac_weight_note(w, LAC_FACT_PICK_COMMON, most);
    return most;
}

/* Fills in steps and common. */
static bool count_steps(const lac_problem *problem, lac_pick_shape *s)
{
    int64_t most = fullest_window(problem->weight, s);
    if (most < 0) return false;
    s->steps = most > 0 ? (int)lac_ceil_divide(most, LAC_PICK_SLOTS) : 1;
    s->common = s->pieces % 2 ? 0 : s->steps;
    if (s->common || problem->m < LEAST_TOKENS || (double)most < LEAST_DENSITY * LAC_PICK_WINDOW) return true;
    s->common = shared_steps(problem->weight, s);
    return s->common >= 0;
}

/* ---- what a shape costs */

/* How much longer eight picked rows take than eight that lie in different banks: where a group of N:M is spread over classes, the
 * fullest class has more than its share. */
static double conflicts(const lac_weight *w, const lac_pick_shape *s)
{
    const lac_geometry *g = &w->geometry;
    double length = g->is_free || w->part[LAC_PART_COL_PERM].data ? LAC_PICK_WINDOW : (double)(g->group_m * g->unit_k);
    double classes = fmin(LAC_PICK_CLASSES, length / LAC_PICK_EIGHTH), mean = s->steps * 2.0;
    double density = mean / LAC_PICK_EIGHTH, shared = s->common < s->steps ? 0.06 * s->common / s->steps : 0.0;
    if (classes <= 1.0) return 1.0 + shared;
    /* Inputs of a block are neighbours, and so of one class; both vectors of a pair that share them read each once. */
    double together = fmin(LAC_PICK_EIGHTH, (double)g->unit_k) / mean / s->pieces;
    return shared + fmax(together, 1.0 + 1.42 * sqrt(mean * fmax(0.0, 1.0 - density) * (1.0 - 1.0 / classes)) / mean);
}

static lac_cost cost_of(const lac_problem *problem, const lac_pick_shape *s)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    const lac_plan_options *o = &problem->options;
    double tiles = (double)s->token_tiles * (double)s->output_tiles, stages = tiles * (double)s->windows;
    double pairs = stages * s->pairs * 2; /* windows of a pair, of 64 tokens */
    double x_copies = stages * (double)lac_pick_x_stage(s), w_copies = stages * s->pairs * (double)lac_pick_chunk_bytes(s);
    double fragments = (double)(2 * s->steps - s->common) * LAC_PICK_SLOTS * 64 * 2;
    double x_bytes = (double)problem->m * (double)problem->weight->k_in * 2.0;
    double w_bytes = (double)s->output_tiles * (double)s->windows * s->pairs * (double)lac_pick_chunk_bytes(s);
    double y_bytes = (double)problem->m * (double)problem->weight->n_out * (double)lac_dtype_size(o->y_dtype);
    double partial = s->parts > 1 ? tiles * s->parts * s->tokens * lac_pick_tile_vectors(s) * s->width * 4.0 : 0.0;
    bool turns = o->x_layout == LAC_LAYOUT_TOKEN_MAJOR || problem->m % 8 || problem->weight->k_in % LAC_PICK_EIGHTH;
    double turned = turns ? 2.0 * (double)lac_pick_turned_bytes(problem) : 0.0;
    double waves = ceil(tiles * s->parts / rates->multiprocessors);
    double shared =
        x_copies + w_copies +
        pairs * (fragments * (conflicts(problem->weight, s) + 1.0 / 16.0) + 2.0 * s->steps * (double)lac_pick_matrix_bytes(s));
    double efficiency = EFFICIENCY * (lac_pick_sets(s) == 1 ? SAME_CHUNKS : 1.0) *
                        (s->width < 16   ? NARROWER
                         : s->width < 24 ? NARROW
                                         : 1.0);
    efficiency /= 1.0 + HOT_SHARE * lac_model_gpu_heat(shared / rates->shared / efficiency);
    lac_gpu_work work = {.memory_bytes = x_bytes + w_bytes + y_bytes * (o->has_residual ? 2 : 1),
                         .l2_bytes = COPY_ENGINE * (x_copies + w_copies),
                         .shared_bytes = shared,
                         .instructions = pairs * 4 * (lac_pick_loads(s) * 13.0 + 2.0 * s->steps * 4.0),
                         /* The tensor cores take as long for 8 or 16 outputs as for 24 (A from registers). */
                         .mma_flops = pairs * 2.0 * s->steps * 2 * 64 * LAC_PICK_SLOTS * fmax(24.0, s->width),
                         .blocks = tiles * s->parts,
                         .blocks_at_once = rates->multiprocessors,
                         .fill_seconds = turned / rates->memory + lac_model_gpu_parts(rates, partial, tiles) +
                                         waves * TILE_SECONDS + lac_cuda_scatter_seconds(problem),
                         .exposed = EXPOSED,
                         .efficiency = efficiency,
                         .launches = 1 + turns + (s->parts > 1)};
    return lac_model_gpu_cost(rates, &work);
}

/* ---- candidates */

/* Shared memory: as many windows of X as leave enough for W. */
static bool share_out(lac_pick_shape *s, int64_t room)
{
    room -= BARRIER_ROOM + lac_pick_tile_vectors(s) * s->width * 4;
    for (s->stages = MOST_STAGES; s->stages >= 2; --s->stages) {
        int64_t left = room - s->stages * lac_pick_x_stage(s), chunk = lac_pick_chunk_bytes(s),
                ring = left > 0 ? left / chunk : 0;
        s->ring = ring < MOST_RING ? (int)ring : MOST_RING;
        if (s->stages == 2 ? s->ring >= LEAST_RING : s->ring >= ENOUGH_RING && s->ring * chunk >= ENOUGH_W) return true;
    }
    return false;
}

static bool complete(const lac_problem *problem, lac_pick_shape *s)
{
    if (s->pairs * lac_pick_loads(s) > MOST_TURN) return false;
    s->token_tiles = lac_ceil_divide(problem->m, s->tokens);
    s->output_tiles = lac_ceil_divide(s->vectors, lac_pick_tile_vectors(s));
    if (!lac_turn_fits(problem) || !lac_tiles_fit_int(s->token_tiles, s->tokens) ||
        !lac_tiles_fit_int(s->windows, 2 * s->steps * LAC_PICK_SLOTS) || /* slots of a pair, which pick_tile.c numbers */
        s->token_tiles * s->output_tiles >= INT32_MAX / MOST_PARTS)
        return false;
    return share_out(s, lac_cuda_target_of(problem->device)->shared_per_block);
}

static void consider(const lac_problem *problem, lac_pick_shape shape, bool *found, lac_pick_shape *best, lac_cost *cost)
{
    if (!complete(problem, &shape)) return;
    for (shape.parts = 1; shape.parts <= MOST_PARTS && shape.parts <= shape.windows; ++shape.parts) {
        lac_cost now = cost_of(problem, &shape);
        if (*found && now.seconds >= cost->seconds) continue;
        *best = shape;
        *cost = now;
        *found = true;
    }
}

bool lac_pick_shape_make(const lac_problem *problem, lac_pick_shape *out, lac_cost *cost)
{
    const lac_geometry *g = &problem->weight->geometry;
    if (problem->m == 0 || g->n == 0 || problem->weight->k_in == 0 || problem->weight->pattern.family == LAC_FAMILY_ELEMENT ||
        g->unit_n < LEAST_HEIGHT)
        return false;
    lac_pick_shape s = {.pieces = (int)lac_ceil_divide(g->unit_n, MOST_WIDTH)};
    s.rows = (int)lac_ceil_divide(g->unit_n, s.pieces);
    s.width = (int)lac_ceil_divide(s.rows, 8) * 8;
    s.vectors = g->row_groups * s.pieces;
    s.windows = lac_ceil_divide(problem->weight->k_in, LAC_PICK_WINDOW);
    if (!count_steps(problem, &s)) return false;
    bool found = false;
    for (s.tokens = 64; s.tokens <= 128; s.tokens *= 2)
        for (s.pairs = 1; s.pairs * s.width <= MOST_SUMS; ++s.pairs) consider(problem, s, &found, out, cost);
    return found;
}
