/* fragment_shape.c - which tile, stages and split of k kernels/fragment.cu runs with: every candidate is asked what it costs. */
#include "cuda/fragment_shape.h"

#include <math.h>
#include <stdlib.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "cuda/turn.h"
#include "format/weight.h"

enum { MOST_STAGES = 6, MOST_PARTS = 16, LEAST_HEIGHT = 16, RESERVED_BYTES = 1024 };

/* What a wave of blocks loses at its beginning and end, beside what of its loads and of Y no product hides. These and the shares below
 * fit 48 runs of 5 to 300 us on an H200. */
static const double TILE_SECONDS = 1.25e-6;

/* Of the bound's rate, what the kernels reached there. Expanding waits for itself: a warp spreads weights between its products. */
static const double EFFICIENCY = 0.87, EXPAND_EFFICIENCY = 0.68;
/* Copies by a block that is alone on its multiprocessor reach so much of the rate of L2: 24 to 25 of 32 bytes a clock. */
static const double ALONE = 0.77;
/* The clock falls under long work: by so much at most. */
static const double HOT_SHARE = 0.1;
/* Of the shorter of memory's and the chip's time, what shows nevertheless where a block is alone on its multiprocessor: it loads,
 * multiplies and writes its tile. Of several, one loads or writes while the others multiply. */
static const double EXPOSED = 0.4;

/* ---- what the kernels can take */

/* Kept inputs of a row in the `window` inputs from `begin` on, at most; N:M patterns. */
static int64_t most_kept_between(const lac_weight *w, int64_t begin, int64_t window)
{
    const lac_geometry *g = &w->geometry;
    int64_t length = g->group_m * g->unit_k, most = g->slot_n * g->unit_k, kept = 0;
    for (int64_t at = begin; at < begin + window;) {
        int64_t end = (at / length + 1) * length;
        if (end > begin + window) end = begin + window;
        kept += end - at < most ? end - at : most;
        at = end;
    }
    return kept;
}

/* The same for every window that begins at a multiple of its length. */
static int64_t most_kept(const lac_weight *w, int64_t window)
{
    int64_t most = 0;
    for (int64_t i = 0; i < w->geometry.group_m * w->geometry.unit_k && i * window < w->geometry.k; ++i) {
        int64_t kept = most_kept_between(w, i * window, window);
        if (kept > most) most = kept;
    }
    return most;
}

/* Whether every output reads its own inputs out of all of them: V:N:4 selects all four of each four, whatever V is. */
static bool reads_all(const lac_weight *w)
{
    return w->pattern.family == LAC_FAMILY_ELEMENT ||
           (w->pattern.family == LAC_FAMILY_VNM && w->pattern.n <= 2 && w->geometry.group_m == LAC_VNM_SELECTED);
}

static bool takes(const lac_problem *problem, lac_fragment_kind kind)
{
    const lac_weight *w = problem->weight;
    bool has_sparse = lac_cuda_target_of(problem->device)->arch >= 80;
    bool element = w->pattern.family == LAC_FAMILY_ELEMENT, vnm = w->pattern.family == LAC_FAMILY_VNM;
    bool halves = element ? !w->geometry.is_free && most_kept(w, 4) <= 2 : vnm && w->pattern.n <= 2;
    bool tall = w->geometry.unit_n >= LEAST_HEIGHT, by_halves = has_sparse && halves && (reads_all(w) || tall);
    if (kind == LAC_FRAGMENT_SPARSE) return by_halves;
    if (kind == LAC_FRAGMENT_DENSE) return tall && !element && !(halves && has_sparse);
    return !w->geometry.is_free && !by_halves && (element || !tall) &&
           w->geometry.k > 0; /* a program that keeps nothing is none */
}

/* Rows of X that a tile of outputs reads at most. */
static int64_t rows_of(const lac_weight *w, const lac_fragment_shape *s)
{
    const lac_geometry *g = &w->geometry;
    if (s->shares_index) return lac_ceil_divide(g->k, 4) * 4;
    if (w->pattern.family == LAC_FAMILY_VNM) return g->groups * LAC_VNM_SELECTED;
    return g->selected * g->unit_k < g->k ? g->selected * g->unit_k : g->k;
}

uint64_t lac_fragment_turned_bytes(const lac_problem *problem, const lac_fragment_shape *shape)
{
    bool rows = problem->options.x_layout == LAC_LAYOUT_FEATURE_MAJOR && problem->m % 8 == 0;
    return shape->direct || rows ? 0 : lac_turn_bytes(problem, problem->weight->k_in);
}

/* Whether X may come as it is: two steps of an expanding kernel's X are loaded at once, and registers are scarce. */
static bool is_direct(const lac_problem *problem, const lac_fragment_shape *s)
{
    return problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR && s->shares_index &&
           !problem->weight->part[LAC_PART_COL_PERM].data && (s->kind == LAC_FRAGMENT_SPARSE || s->warp_tokens <= 32);
}

/* ---- what a shape asks of the GPU */

/* What the tensor cores do by mma and mma.sp, of the rate that the model knows: on an H200 572 and 825 of 949 TFLOP/s (of
 * dense products); there and later that rate is wgmma's or its successor's. */
static double mma_share(int arch, bool sparse)
{
    if (arch >= 100 && arch < 120) return sparse ? 0.5 : 0.25;
    if (arch == 90) return sparse ? 0.87 : 0.60;
    return sparse ? 1.6 : 1.0;
}

static lac_cost cost_of(const lac_problem *problem, const lac_fragment_shape *s)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    const lac_plan_options *o = &problem->options;
    int outputs = lac_fragment_outputs(s), tokens = lac_fragment_tokens(s), steps = s->rows / 16;
    double tiles = (double)s->token_tiles * (double)s->output_tiles, stages = tiles * (double)s->most_stages;
    double x_bytes = (double)problem->m * (double)problem->weight->k_in * 2.0;
    double w_bytes = (double)s->output_tiles * (double)s->most_stages * lac_fragment_w_stage(s);
    double y_bytes = (double)problem->m * (double)problem->weight->n_out * (double)lac_dtype_size(o->y_dtype);
    double partial = s->parts > 1 ? tiles * s->parts * outputs * tokens * 4.0 : 0.0;
    double turned = 2.0 * (double)lac_fragment_turned_bytes(problem, s);
    double copied = lac_fragment_x_stage(s) + lac_fragment_w_stage(s);
    double products = (double)steps * (outputs / 16.0) * (tokens / 8.0) * (s->kind == LAC_FRAGMENT_SPARSE ? 0.5 : 1.0);
    /* Every warp reads its rows of W and its tokens of X. */
    double fragments = s->kind == LAC_FRAGMENT_SPARSE ? 1.125 : 2.0;
    double read = s->rows * (fragments * outputs * s->warps_tokens + 2.0 * tokens * s->warps_outputs);
    /* Spreading 8 outputs: kept words, mask, zeros and stores go through shared memory; some eight instructions a kept weight. */
    double eights = s->kind == LAC_FRAGMENT_EXPAND ? outputs / 8.0 : 0.0;
    double spread_bytes = eights * 128.0 * (1.5 * s->kept + s->rows / 8.0 + 2.0);
    double spread_instructions = eights * (8.0 * s->kept + s->rows / 8.0 + 12.0);
    double moved = copied / 512.0 * 5.0 + read / 512.0;
    int arch = lac_cuda_target_of(problem->device)->arch;
    double at_once = (double)rates->multiprocessors * s->blocks;
    double waves = ceil(tiles * s->parts / at_once);
    double flops = stages * 2.0 * outputs * tokens * s->rows / mma_share(arch, s->kind == LAC_FRAGMENT_SPARSE);
    double efficiency = s->kind == LAC_FRAGMENT_EXPAND ? EXPAND_EFFICIENCY : EFFICIENCY;
    efficiency /= 1.0 + HOT_SHARE * lac_model_gpu_heat(flops / rates->mma_f16 / efficiency);
    double partial_seconds = lac_model_gpu_parts(rates, partial, tiles * (s->warp_outputs / 16));
    lac_gpu_work work = {.memory_bytes = x_bytes + w_bytes + y_bytes * (o->has_residual ? 2 : 1),
                         .l2_bytes = stages * copied / (s->blocks == 1 ? ALONE : 1.0),
                         .shared_bytes = stages * (copied + read + spread_bytes),
                         .instructions = stages * (products + moved + spread_instructions + 64.0),
                         .mma_flops = flops,
                         .blocks = tiles * s->parts,
                         .blocks_at_once = at_once,
                         .fill_seconds = turned / rates->memory + partial_seconds + waves * TILE_SECONDS +
                                         lac_cuda_scatter_seconds(problem),
                         .exposed = EXPOSED * 2.0 / (s->blocks + 1.0),
                         .efficiency = efficiency,
                         .launches = 1 + (turned > 0.0) + (s->parts > 1),
                         .early = arch >= 90};
    return lac_model_gpu_cost(rates, &work);
}

/* ---- candidates */

static bool complete(const lac_problem *problem, lac_fragment_shape *s)
{
    const lac_cuda_target *target = lac_cuda_target_of(problem->device);
    s->tiles_a_group = lac_ceil_divide(s->height, lac_fragment_outputs(s));
    s->output_tiles = s->groups * s->tiles_a_group;
    s->token_tiles = lac_ceil_divide(problem->m, lac_fragment_tokens(s));
    s->stages = s->kind == LAC_FRAGMENT_EXPAND ? 3 : 2;
    if (lac_fragment_shared(s) > target->shared_per_block) return false;
    /* What a block may have, a multiprocessor has and little more. */
    while (s->blocks > 1 && (lac_fragment_shared(s) + RESERVED_BYTES) * (unsigned)s->blocks > target->shared_per_block)
        --s->blocks;
    unsigned share = target->shared_per_block / (unsigned)s->blocks - (s->blocks > 1 ? RESERVED_BYTES : 0);
    while (s->stages < MOST_STAGES) {
        ++s->stages;
        if (lac_fragment_shared(s) <= share) continue;
        --s->stages;
        break;
    }
    return lac_turn_fits(problem) && lac_tiles_fit_int(s->token_tiles, lac_fragment_tokens(s)) &&
           s->token_tiles * s->output_tiles < INT32_MAX / MOST_PARTS && s->output_tiles * s->most_stages < INT32_MAX / s->rows;
}

static void consider(const lac_problem *problem, lac_fragment_shape shape, bool *found, lac_fragment_shape *best,
                     lac_cost *cost)
{
    int64_t most = shape.most_stages < MOST_PARTS ? shape.most_stages : MOST_PARTS;
    if (!complete(problem, &shape)) return;
    for (int parts = 1; parts == 1 || parts <= most; parts = parts < 4 ? parts + 1 : parts + 2) {
        shape.parts = parts;
        lac_cost now = cost_of(problem, &shape);
        if (*found && now.seconds >= cost->seconds) continue;
        *best = shape;
        *cost = now;
        *found = true;
    }
}

/* Warps along outputs and tokens, what each has of both, and how many blocks' registers a multiprocessor holds. */
typedef struct tile {
    int warps_outputs, warps_tokens, outputs, tokens, blocks;
} tile;

static const tile tiles[] = {
    {2, 4, 64, 64, 1}, {4, 2, 64, 64, 1}, {2, 2, 64, 64, 2}, {1, 4, 64, 64, 2}, {1, 4, 64, 32, 3}, {1, 4, 32, 64, 3},
    {1, 4, 32, 32, 4}, {1, 4, 16, 64, 4}, {1, 4, 16, 32, 4}, {2, 2, 64, 32, 3}, {2, 2, 32, 32, 4}, {2, 2, 16, 32, 4},
    {4, 1, 32, 32, 4}, {4, 1, 16, 32, 4}, {4, 1, 32, 16, 4}, {4, 1, 16, 16, 4}, {2, 2, 16, 16, 4}, {4, 2, 32, 32, 2},
    {4, 2, 64, 32, 1}, {8, 1, 32, 32, 2}, {8, 1, 16, 32, 2}, {1, 8, 64, 32, 1}, {2, 4, 32, 32, 2}, {2, 4, 64, 32, 1},
    {8, 1, 32, 16, 2}, {8, 1, 16, 16, 2},
};

bool lac_fragment_shape_make(const lac_problem *problem, lac_fragment_kind kind, lac_fragment_shape *out, lac_cost *cost)
{
    const lac_weight *w = problem->weight;
    const lac_geometry *g = &w->geometry;
    if (problem->m == 0 || g->n == 0 || !takes(problem, kind)) return false;
    bool found = false;
    lac_fragment_shape shape = {.kind = kind, .parts = 1};
    shape.shares_index = kind == LAC_FRAGMENT_EXPAND || (kind == LAC_FRAGMENT_SPARSE && reads_all(w));
    shape.height = shape.shares_index ? g->n : g->unit_n;
    shape.groups = shape.shares_index ? 1 : g->row_groups;
    int least = kind == LAC_FRAGMENT_DENSE ? 32 : 64, most = kind == LAC_FRAGMENT_EXPAND ? 128 : 64;
    for (shape.rows = least; shape.rows <= most; shape.rows *= 2) {
        shape.kept = kind == LAC_FRAGMENT_EXPAND ? (int)most_kept(w, shape.rows / 4) : 0;
        shape.most_stages = lac_ceil_divide(rows_of(w, &shape), shape.rows);
        for (size_t i = 0; i < sizeof tiles / sizeof *tiles; ++i) {
            shape.warps_outputs = tiles[i].warps_outputs;
            shape.warps_tokens = tiles[i].warps_tokens;
            shape.warp_outputs = tiles[i].outputs;
            shape.warp_tokens = tiles[i].tokens;
            shape.blocks = tiles[i].blocks;
            shape.direct = is_direct(problem, &shape);
            if (!lac_fragment_threads_fit(&shape)) continue;
            consider(problem, shape, &found, out, cost);
        }
    }
    return found;
}
