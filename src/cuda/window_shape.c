/* window_shape.c - which windows, steps, tile and split of k kernels/window.cu runs with: every candidate is asked what it
 * costs. */
#include "cuda/window_shape.h"

#include <math.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "format/weight.h"

enum { MOST_WIDTH = 32, MOST_PARTS = 16, MOST_STEPS = 16, LEAST_ROWS = 8, LEAST_WINDOW = 32 };
_Static_assert(LAC_WINDOW_MOST == LEAST_WINDOW << (LAC_FACT_WINDOW_LAST - LAC_FACT_WINDOW_MOST), "a fact for every window");
/* wgmma: the steps of a window are one straight line of code. */
enum {
    WGMMA_TOKENS = 64,
    WGMMA_OUTPUTS = 256 /* of a warpgroup */,
    WGMMA_TURN = 64 /* steps */,
    WGMMA_STAGES = 3,
    MOST_RING = 12
};
enum { CHUNK_BYTES = 17408 }; /* of W that are copied together, at most where a step is not larger */
/* mma.sync has fewer outputs, for it holds fragments of W too. */
enum { MMA_TOKENS = 128, MMA_OUTPUTS = 64, MMA_WINDOW = 128, MMA_STAGES = 6 };
/* Half pairs lose bits of elements far below the largest of their window, and each sum of the tensor cores is truncated. From
 * 256 products on a chain of fp32 FMAs is worse; with fewer, 2^-21 of sum |x||w| is promised, which holds where lo is scaled by
 * 2^11 and has sums of its own (docs/kernels/fast.md). */
enum { ENOUGH_PRODUCTS = 256, LOW_SHIFT = 11 };

/* ---- how many inputs a row group keeps in a window */

/* N:M: what the pattern allows in the inputs from `begin` to `end`. */
static int64_t most_kept_between(const lac_geometry *g, int64_t begin, int64_t end)
{
    int64_t length = g->group_m * g->unit_k, most = g->group_n * g->unit_k, kept = 0;
    for (int64_t group = begin / length; group * length < end; ++group) {
        int64_t from = group * length < begin ? begin : group * length;
        int64_t to = (group + 1) * length > end ? end : (group + 1) * length;
        kept += to - from < most ? to - from : most;
    }
    return kept;
}

static int64_t most_kept_by_pattern(const lac_geometry *g, int64_t window)
{
    int64_t most = 0;
    for (int64_t begin = 0; begin < g->k; begin += window) {
        int64_t end = begin + window < g->k ? begin + window : g->k;
        int64_t kept = most_kept_between(g, begin, end);
        most = kept > most ? kept : most;
        if (window % (g->group_m * g->unit_k) == 0) break; /* every full window has the same */
    }
    return most;
}

/* The number of the fact that holds it. */
static lac_weight_fact fact_of(int window)
{
    lac_weight_fact fact = LAC_FACT_WINDOW_MOST;
    for (; window > LEAST_WINDOW; window /= 2) ++fact;
    return fact;
}

/* Free: what the fullest window of any row group holds, counted once. -1 without memory. */
static int64_t most_kept_in_fact(const lac_weight *w, int window)
{
    const lac_geometry *g = &w->geometry;
    int known = lac_weight_known(w, fact_of(window));
    if (known >= 0) return known;
    uint32_t *units = lac_allocate((uint64_t)g->selected * sizeof *units);
    if (!units) return -1;
    int64_t most = 0;
    for (int64_t group = 0; group < g->row_groups; ++group) {
        int64_t count = lac_weight_units(w, group, units), kept = 0, current = -1;
        for (int64_t i = 0; i < count; ++i)
            for (int64_t j = 0; j < lac_geometry_inputs(g, units[i]); ++j) {
                int64_t at = (units[i] * g->unit_k + j) / window;
                kept = at == current ? kept + 1 : 1;
                current = at;
                most = kept > most ? kept : most;
            }
    }
    lac_release(units);
    lac_weight_note(w, fact_of(window), (int)most);
    return most;
}

/* True when every window of every vector has exactly its steps' slots, so that none is padded. */
static bool is_exact(const lac_window_shape *s, const lac_geometry *g)
{
    if (g->k % s->window) return false;
    if (s->variant.dense) return true;
    return !g->is_free && s->window % (g->group_m * g->unit_k) == 0 &&
           most_kept_by_pattern(g, s->window) == (int64_t)s->steps * LAC_WINDOW_SLOTS;
}

/* The fewest products that an output is made of. Row groups of a free weight that keep nothing do not count: 0 is exact. */
static int64_t fewest_products(const lac_weight *w)
{
    const lac_geometry *g = &w->geometry;
    int64_t fewest = INT64_MAX;
    for (int64_t group = 0; group < g->row_groups; ++group) {
        int64_t slots = lac_weight_slots(w, group), cut = g->units * g->unit_k - g->k; /* of a partial last unit */
        if (slots > 0 && slots * g->unit_k - cut < fewest) fewest = slots * g->unit_k - cut;
        if (!w->first_slot) break; /* all alike */
    }
    return fewest;
}

/* ---- what a shape asks of the GPU */

static double block_count(const lac_window_shape *s) { return (double)(s->token_tiles * s->output_tiles) * s->parts; }

/* What comes before and after the product itself: X is split, and the parts of k are added. */
static double other_seconds(const lac_problem *problem, const lac_window_shape *s, double rate)
{
    double x_bytes = (double)problem->m * (double)problem->weight->k_in * (double)lac_dtype_size(problem->options.x_dtype);
    double x_tiles = (double)s->token_tiles * (double)s->windows * (double)lac_window_x_tile(s);
    double tiles = (double)s->token_tiles * (double)s->output_tiles;
    double partial = s->parts > 1 ? 2 * tiles * s->parts * s->tokens * lac_window_tile_width(s) * 4.0 : 0.0;
    /* One plane of feature-major X is stored as it is loaded; else a block waits until it has the largest of each token. */
    bool streams = s->variant.planes == 1 && problem->options.x_layout == LAC_LAYOUT_FEATURE_MAJOR;
    return ((x_bytes + x_tiles) / (streams ? 0.9 : 0.75) + partial / 0.75) / rate + 2e-6;
}

/* How much longer eight gathered rows take than eight that lie in different banks. A class of rows has an eighth of a window's
 * slots in the mean; how far the fullest of the eight lies above that depends on how many classes a group of N:M is spread
 * over: with one it has exactly its share. */
static double conflicts(const lac_geometry *g, const lac_window_shape *s)
{
    if (s->variant.dense || s->unit > 1) return 1.0;
    double length = g->is_free ? s->window : (double)(g->group_m * g->unit_k);
    double classes = fmin(LAC_WINDOW_RESIDUES, LAC_WINDOW_RESIDUES * length / s->window);
    double mean = s->steps * LAC_WINDOW_SLOTS / (double)LAC_WINDOW_RESIDUES, density = mean * LAC_WINDOW_RESIDUES / s->window;
    if (classes <= 1.0) return 1.0;
    return 1.0 + 1.42 * sqrt(mean * fmax(0.0, 1.0 - density) * (1.0 - 1.0 / classes)) / mean;
}

/* Where lo is scaled, the loop by wgmma waits for its products, whose small ones have sums of their own: so much longer than the other
 * loop's products alone would take, by three problems of nmSPARSE's file in fp32 (bench/results/h200_nmsparse_f32.csv). */
static double waits_for_products(const lac_gpu_rates *rates, const lac_window_shape *s, double flops)
{
    static const double longer = 1.86;
    if (!s->low_shift || s->variant.mma) return 0.0;
    return longer * flops / rates->mma_f16 * fmax(1.0, rates->multiprocessors / block_count(s));
}

static lac_cost cost_of(const lac_problem *problem, const lac_window_shape *s)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    const lac_plan_options *o = &problem->options;
    const double planes = s->variant.planes, products = planes == 2 ? 3 : 1, chain = planes == 2 ? 2 : 4;
    double stages = block_count(s) / s->parts * (double)s->windows;
    double steps = stages * 2 * lac_window_turn(s) * (s->tokens / 64); /* of 64 tokens */
    double x_loaded = stages * (double)lac_window_x_tile(s), w_loaded = stages * (double)lac_window_w_tile(s);
    double x_tiles = (double)s->token_tiles * (double)s->windows * (double)lac_window_x_tile(s);
    double w_tiles = (double)s->output_tiles * (double)s->windows * (double)lac_window_w_tile(s);
    double y_bytes = (double)problem->m * (double)problem->weight->n_out * (double)lac_dtype_size(o->y_dtype);
    double sums = s->width / 2.0 / (s->steps < chain ? s->steps : chain);
    double gathered = LAC_WINDOW_SLOTS * 64 * 2 * planes * conflicts(&problem->weight->geometry, s) + 2 * 128;
    /* wgmma reads W once for 64 tokens; mma.sync by every warp, but once for both of its products. */
    double weights = (double)lac_window_matrix_bytes(s) * (s->variant.mma ? 2 * planes : products);
    /* The tensor cores take as long for 16 outputs as for 24 (A from registers). */
    double flops =
        steps * products * 2 * 64 * LAC_WINDOW_SLOTS * (s->width < 24 ? 1.5 : 1.0) * s->width * (s->variant.mma ? 1.65 : 1.0);
    lac_gpu_work work = {.memory_bytes = x_tiles + w_tiles + y_bytes * (o->has_residual ? 2 : 1),
                         .l2_bytes = x_loaded + w_loaded,
                         .shared_bytes = x_loaded + w_loaded + steps * (gathered + weights),
                         .instructions =
                             steps * 4 * (12 + 2 * planes + products * (s->variant.mma ? s->width / 8.0 : 3) + sums),
                         .mma_flops = flops * (s->low_shift && s->variant.mma ? 2.0 : 1.0),
                         .blocks = block_count(s),
                         .blocks_at_once = rates->multiprocessors,
                         .fill_seconds = other_seconds(problem, s, rates->memory) + lac_cuda_scatter_seconds(problem) +
                                         waits_for_products(rates, s, flops),
                         /* Bulk copies pull more from L2 than the cp.async by which its rate was measured. */
                         .efficiency = s->variant.mma ? 0.6 : 1.13,
                         .launches = s->parts > 1 ? 3 : 2};
    return lac_model_gpu_cost(rates, &work);
}

/* ---- candidates */

/* The split of k that the model likes best: more parts where tiles alone do not fill the GPU. */
static void choose_parts(const lac_problem *problem, lac_window_shape *s, lac_cost *cost)
{
    int most = s->windows < MOST_PARTS ? (int)s->windows : MOST_PARTS;
    lac_window_shape tried = *s;
    for (int parts = 1; parts <= most; ++parts) {
        tried.parts = parts;
        lac_cost now = cost_of(problem, &tried);
        if (parts > 1 && now.seconds >= cost->seconds) continue;
        *s = tried;
        *cost = now;
    }
}

/* The steps that the fullest window of any vector takes; 0 when they are too many, or memory is short. */
static int steps_of(const lac_problem *problem, const lac_window_shape *s)
{
    const lac_geometry *g = &problem->weight->geometry;
    int64_t kept = s->variant.dense ? s->window
                   : g->is_free     ? most_kept_in_fact(problem->weight, s->window)
                                    : most_kept_by_pattern(g, s->window);
    int64_t steps = kept > 0 ? lac_ceil_divide(kept, LAC_WINDOW_SLOTS) : 1;
    return kept < 0 || steps > MOST_STEPS ? 0 : (int)steps;
}

/* Shared memory of wgmma's blocks: two windows of X or three, the rest for W. A warpgroup reads up to ten steps ahead. */
static bool share_out(lac_window_shape *s, int64_t room)
{
    int turn = lac_window_turn(s);
    if (turn > WGMMA_TURN) return false;
    room -= lac_window_tile_width(s) * 8;
    for (s->chunk = turn; s->chunk > 1; --s->chunk)
        if (turn % s->chunk == 0 && lac_window_w_chunk(s) <= CHUNK_BYTES) break;
    int64_t x = lac_window_x_stage(s) + 16, w = lac_window_w_chunk(s) + 16, least = lac_ceil_divide(10, s->chunk) + 2;
    for (s->stages = WGMMA_STAGES; s->stages >= 2; --s->stages) {
        int64_t left = room - s->stages * x, ring = left > 0 ? left / w : 0;
        s->ring = ring < MOST_RING ? (int)ring : MOST_RING;
        if (s->ring >= least && (s->stages == 2 || left > room / 3)) return true;
    }
    return false;
}

/* Fills in what follows from window, steps and vectors; false when it does not fit the GPU. */
static bool complete(const lac_problem *problem, lac_window_shape *s)
{
    const lac_geometry *g = &problem->weight->geometry;
    int64_t room = lac_cuda_target_of(problem->device)->shared_per_block;
    s->unit = !s->variant.dense && s->window % g->unit_k == 0 ? (int)g->unit_k : 0;
    s->zero_rows = is_exact(s, g) ? 0 : LAC_WINDOW_RESIDUES;
    s->windows = g->k > 0 ? lac_ceil_divide(g->k, s->window) : 1;
    s->output_tiles = lac_ceil_divide(s->vector_count, 2 * s->vectors);
    s->token_tiles = lac_ceil_divide(problem->m, s->tokens);
    if (s->token_tiles * s->output_tiles >= INT32_MAX / MOST_PARTS || s->token_tiles * s->windows >= INT32_MAX / 2 ||
        !lac_tiles_fit_int(s->token_tiles, s->tokens))
        return false;
    if (!s->variant.mma) return share_out(s, room);
    s->chunk = lac_window_turn(s);
    int64_t stages = room / (lac_window_x_stage(s) + lac_window_w_chunk(s) + 32);
    s->ring = s->stages = stages < MMA_STAGES ? (int)stages : MMA_STAGES;
    return s->stages >= 2;
}

bool lac_window_shape_make(const lac_problem *problem, const lac_window_variant *variant, lac_window_shape *out, lac_cost *cost)
{
    const lac_geometry *g = &problem->weight->geometry;
    lac_window_shape s = {.variant = *variant, .parts = 1};
    if (problem->m == 0 || g->n == 0) return false;
    int64_t height = variant->dense ? MOST_WIDTH : g->unit_n;
    if (height < LEAST_ROWS) return false;
    s.tokens = variant->mma ? MMA_TOKENS : WGMMA_TOKENS;
    s.pieces = (int)lac_ceil_divide(height, MOST_WIDTH);
    s.rows = (int)lac_ceil_divide(height, s.pieces);
    s.width = (int)lac_ceil_divide(s.rows, 8) * 8;
    s.vector_count = variant->dense ? lac_ceil_divide(g->n, MOST_WIDTH) : g->row_groups * s.pieces;
    s.low_shift = variant->planes == 2 && fewest_products(problem->weight) < ENOUGH_PRODUCTS ? LOW_SHIFT : 0;
    bool found = false;
    int most = (variant->mma ? MMA_OUTPUTS : WGMMA_OUTPUTS) / s.width;
    for (s.window = variant->mma ? LEAST_WINDOW : 64; s.window <= (variant->mma ? MMA_WINDOW : LAC_WINDOW_MOST);
         s.window *= 2) {
        s.steps = steps_of(problem, &s);
        for (s.vectors = most; s.steps && s.vectors >= 1; s.vectors = s.vectors > most / 2 ? s.vectors - 1 : s.vectors / 2) {
            lac_window_shape tried = s;
            lac_cost now;
            if (!complete(problem, &tried)) continue;
            choose_parts(problem, &tried, &now);
            if (found && now.seconds >= cost->seconds) continue;
            *out = tried;
            *cost = now;
            found = true;
        }
    }
    return found;
}
