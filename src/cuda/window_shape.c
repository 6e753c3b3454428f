/* window_shape.c - which windows, steps, tile and split of k kernels/window.cu runs with: every candidate is asked what it
 * costs. */
#include "cuda/window_shape.h"

#include "core/dtype.h"
#include "core/memory.h"
#include "format/weight.h"

enum { MOST_WIDTH = 32, MOST_STAGES = 6, MOST_STEPS = 16, MOST_PARTS = 16, MOST_WINDOW = 128, LEAST_ROWS = 8 };
/* Outputs of a warpgroup: its sums must fit the registers. mma.sync has fewer, for it holds fragments of W too. */
enum { MOST_OUTPUTS_WGMMA = 128, MOST_OUTPUTS_MMA = 64 };

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

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

/* Free: what the fullest window of any row group holds. -1 without memory. */
static int64_t most_kept_in_fact(const lac_weight *w, int64_t window)
{
    const lac_geometry *g = &w->geometry;
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

/* ---- what a shape asks of the GPU */

/* Blocks of the grid: a cluster is never cut, its last output tile may be idle. */
static double block_count(const lac_window_shape *s)
{
    return (double)(s->token_tiles * ceil_div(s->output_tiles, s->cluster) * s->cluster) * s->parts;
}

/* What comes before and after the product itself: X is split, and the parts of k are added. */
static double other_seconds(const lac_problem *problem, const lac_window_shape *s, double rate)
{
    double x_bytes = (double)problem->m * (double)problem->weight->k_in * (double)lac_dtype_size(problem->options.x_dtype);
    double x_tiles = (double)s->token_tiles * (double)s->windows * (double)lac_window_x_tile(s);
    double tiles = (double)s->token_tiles * (double)s->output_tiles;
    double partial = s->parts > 1 ? 2 * tiles * s->parts * LAC_WINDOW_TOKENS * lac_window_tile_width(s) * 4.0 : 0.0;
    return (x_bytes + x_tiles + partial) / (0.75 * rate) + 2e-6;
}

static lac_cost cost_of(const lac_problem *problem, const lac_window_shape *s)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    const lac_plan_options *o = &problem->options;
    const double planes = s->variant.planes, products = planes == 2 ? 3 : 1, chain = planes == 2 ? 2 : 4;
    double stages = block_count(s) / s->parts * (double)s->windows;
    double steps = stages * 2 * s->vectors * s->steps * 2; /* of 64 tokens */
    double x_loaded = stages * (double)lac_window_x_tile(s), w_loaded = stages * (double)lac_window_w_tile(s);
    double x_tiles = (double)s->token_tiles * (double)s->windows * (double)lac_window_x_tile(s);
    double w_tiles = (double)s->output_tiles * (double)s->windows * (double)lac_window_w_tile(s);
    double y_bytes = (double)problem->m * (double)problem->weight->n_out * (double)lac_dtype_size(o->y_dtype);
    double sums = s->width / 2.0 / (s->steps < chain ? s->steps : chain);
    /* Eight gathered rows take longer than eight that lie in different banks. */
    double gathered = LAC_WINDOW_SLOTS * 64 * 2 * planes * (s->variant.dense ? 1.0 : 1.4) + 4 * 32;
    /* wgmma reads W once for 64 tokens; mma.sync by every warp, but once for both of its products. */
    double weights = (double)lac_window_matrix_bytes(s) * (s->variant.mma ? 2 * planes : products);
    lac_gpu_work work = {.memory_bytes = x_tiles + w_tiles + y_bytes * (o->has_residual ? 2 : 1),
                         .l2_bytes = x_loaded / s->cluster + w_loaded,
                         .shared_bytes = x_loaded + w_loaded + steps * (gathered + weights),
                         .instructions =
                             steps * 4 * (12 + 2 * planes + products * (s->variant.mma ? s->width / 8.0 : 3) + sums),
                         /* The tensor cores take as long for 16 outputs as for 24 (A from registers). */
                         .mma_flops = steps * products * 2 * 64 * LAC_WINDOW_SLOTS * (s->width < 24 ? 1.5 : 1.0) * s->width *
                                      (s->variant.mma ? 1.65 : 1.0),
                         .blocks = block_count(s),
                         .blocks_at_once = rates->multiprocessors,
                         .fill_seconds = other_seconds(problem, s, rates->memory),
                         .efficiency = s->variant.mma ? 0.6
                                       : planes == 2  ? 1.0
                                                      : 0.9,
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
    int64_t steps = kept > 0 ? ceil_div(kept, LAC_WINDOW_SLOTS) : 1;
    return kept < 0 || steps > MOST_STEPS ? 0 : (int)steps;
}

/* Fills in what follows from window, steps and vectors; false when it does not fit the GPU. */
static bool complete(const lac_problem *problem, lac_window_shape *s)
{
    const lac_geometry *g = &problem->weight->geometry;
    s->zero_rows = is_exact(s, g) ? 0 : LAC_WINDOW_RESIDUES;
    s->windows = g->k > 0 ? ceil_div(g->k, s->window) : 1;
    s->output_tiles = ceil_div(s->vector_count, 2 * s->vectors);
    s->token_tiles = ceil_div(problem->m, LAC_WINDOW_TOKENS);
    int64_t room = lac_cuda_target_of(problem->device)->shared_per_block / (lac_window_stage(s) + 16);
    s->stages = room < MOST_STAGES ? (int)room : MOST_STAGES;
    s->cluster = 1;
    return s->stages >= 2 && s->token_tiles * s->output_tiles < INT32_MAX / MOST_PARTS &&
           s->token_tiles * s->windows < INT32_MAX / 2;
}

bool lac_window_shape_make(const lac_problem *problem, const lac_window_variant *variant, lac_window_shape *out, lac_cost *cost)
{
    const lac_geometry *g = &problem->weight->geometry;
    lac_window_shape s = {.variant = *variant, .parts = 1};
    if (problem->m == 0 || g->n == 0) return false;
    int64_t height = variant->dense ? MOST_WIDTH : g->unit_n;
    if (height < LEAST_ROWS) return false;
    s.pieces = (int)ceil_div(height, MOST_WIDTH);
    s.rows = (int)ceil_div(height, s.pieces);
    s.width = (int)ceil_div(s.rows, 8) * 8;
    s.vector_count = variant->dense ? ceil_div(g->n, MOST_WIDTH) : g->row_groups * s.pieces;
    bool found = false;
    int most = (variant->mma ? MOST_OUTPUTS_MMA : MOST_OUTPUTS_WGMMA) / s.width;
    for (s.window = variant->mma ? 32 : 64; s.window <= MOST_WINDOW; s.window *= 2) {
        s.steps = steps_of(problem, &s);
        for (s.vectors = most; s.steps && s.vectors >= 1 && 2 * s.vectors >= most; --s.vectors) {
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
