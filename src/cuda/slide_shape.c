/* slide_shape.c - which tile, ring and split of k kernels/slide.cu runs with: every candidate is asked what it
 * costs. */
#include "cuda/slide_shape.h"

#include <math.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "cuda/turn.h"
#include "format/weight.h"

enum { MOST_RING = 64, MOST_PARTS = 8, LEAST_HEIGHT = 5, STATIC_BYTES = 2048, LEAST_AHEAD = 3, MOST_AHEAD = 8 };

/* Tensor cores by mma.sync, of the rate of wgmma. */
static const double MMA_SHARE = 0.66;
/* A tile's epilogue and the first step of its streams; the first chunks of a block. */
static const double TILE_SECONDS = 2.0e-6, FILL_SECONDS = 3.0e-6;
/* The rate of L2 is that of cp.async; the copy engine, which fetches X, is faster. */
static const double COPY_ENGINE = 0.75;
/* Of the rate of shared memory, which bounds it, with a share of the other levels beside it: what it reached on an H200. */
static const double EFFICIENCY = 1.0;

/* Inputs that a row group reads at most. */
static int64_t inputs_of(const lac_weight *w)
{
    const lac_geometry *g = &w->geometry;
    int64_t most = g->selected * g->unit_k;
    return most < g->k ? most : g->k;
}

/* How much longer the gathered reads take for rows that meet in a bank: what a simulation of slide_tile.c gave for windows of
 * N of 32, by the inputs that a horizon holds. */
static double conflicts(const lac_slide_shape *s, double density)
{
    double choice = density * s->horizon * LAC_SLIDE_CHUNK;
    return 1.0 + 2.0 / sqrt(choice < 8.0 ? 8.0 : choice);
}

static lac_cost cost_of(const lac_problem *problem, const lac_slide_shape *s)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    const lac_plan_options *o = &problem->options;
    double k_in = (double)problem->weight->k_in, inputs = (double)inputs_of(problem->weight);
    double vectors = (double)s->output_tiles * LAC_SLIDE_WARPS, tiles = (double)s->token_tiles * (double)s->output_tiles;
    double steps = vectors * ceil(inputs / LAC_SLIDE_SLOTS), blocks = steps * (double)s->token_tiles * s->tokens / 16.0;
    double x_copies = tiles * (double)s->chunks * (double)lac_slide_chunk_bytes(s);
    double w_copies = steps * (double)s->token_tiles * (double)(lac_slide_step_bytes(s) + 64);
    double x_bytes = (double)problem->m * k_in * 2.0, w_bytes = steps * (double)lac_slide_step_bytes(s);
    double y_bytes = (double)problem->m * (double)problem->weight->n_out * (double)lac_dtype_size(o->y_dtype);
    double partial = s->parts > 1 ? vectors * s->width * (double)s->token_tiles * s->tokens * s->parts * 4.0 : 0.0;
    bool turns = o->x_layout == LAC_LAYOUT_TOKEN_MAJOR || problem->m % 8;
    double turned = turns ? 2.0 * (double)lac_turn_bytes(problem, problem->weight->k_in) : 0.0;
    double waves = ceil(tiles * s->parts / rates->multiprocessors);
    lac_gpu_work work = {.memory_bytes = x_bytes + w_bytes + y_bytes * (o->has_residual ? 2 : 1) + 2 * partial,
                         .l2_bytes = COPY_ENGINE * x_copies + w_copies,
                         .shared_bytes = blocks * 512.0 * conflicts(s, inputs / fmax(k_in, 1.0)) + x_copies + 2.0 * w_copies,
                         .instructions = blocks * (s->width / 8 + 4) + steps * (double)s->token_tiles * 60.0,
                         .mma_flops = blocks * 16.0 * 16.0 * s->width * 2.0 / MMA_SHARE,
                         .blocks = tiles * s->parts,
                         .blocks_at_once = rates->multiprocessors,
                         .fill_seconds =
                             turned / rates->memory + waves * TILE_SECONDS + FILL_SECONDS + lac_cuda_scatter_seconds(problem),
                         .efficiency = EFFICIENCY,
                         .launches = 1 + turns + (s->parts > 1)};
    return lac_model_gpu_cost(rates, &work);
}

/* ---- candidates */

static bool complete(const lac_problem *problem, lac_slide_shape *s)
{
    const lac_geometry *g = &problem->weight->geometry;
    s->pieces = (int)lac_ceil_divide(g->unit_n, s->width);
    s->rows = (int)lac_ceil_divide(g->unit_n, s->pieces);
    s->vectors = g->row_groups * s->pieces;
    s->chunks = lac_ceil_divide(problem->weight->k_in, LAC_SLIDE_CHUNK);
    s->token_tiles = lac_ceil_divide(problem->m, s->tokens);
    s->output_tiles = lac_ceil_divide(s->vectors, LAC_SLIDE_WARPS);
    int64_t room = (lac_cuda_target_of(problem->device)->shared_per_block - STATIC_BYTES - lac_slide_depth_bytes(s)) /
                   lac_slide_chunk_bytes(s);
    s->ring = room < MOST_RING ? (int)room : MOST_RING;
    if (s->ring < 3) return false;
    /* The fewer inputs a vector takes, the sooner a chunk is done with, and the more of them must be on their way. */
    double density = (double)inputs_of(problem->weight) / (double)problem->weight->k_in;
    int ahead = (int)(MOST_AHEAD * (1.0 - density));
    ahead = ahead < LEAST_AHEAD ? LEAST_AHEAD : ahead;
    s->horizon = s->ring - ahead < s->ring / 3 ? s->ring / 3 : s->ring - ahead;
    /* A batch reads about two chunks. */
    double inputs = density * (2.5 * LAC_SLIDE_CHUNK);
    s->batch = inputs >= 4 * LAC_SLIDE_SLOTS ? 4 : inputs >= 2 * LAC_SLIDE_SLOTS ? 2 : 1;
    int64_t steps =
        lac_ceil_divide(inputs_of(problem->weight), LAC_SLIDE_SLOTS) + (2 * (s->chunks / s->horizon) + 4 * s->parts) * s->batch;
    s->most_steps = s->output_tiles * LAC_SLIDE_WARPS * steps;
    return lac_turn_fits(problem) && lac_tiles_fit_int(s->token_tiles, s->tokens) &&
           lac_tiles_fit_int(steps, LAC_SLIDE_SLOTS) && /* slots of a vector, which slide_tile.c numbers */
           s->token_tiles * s->output_tiles < INT32_MAX / MOST_PARTS &&
           s->output_tiles * LAC_SLIDE_WARPS * s->width < INT32_MAX / MOST_PARTS && s->most_steps < INT32_MAX;
}

static void consider(const lac_problem *problem, lac_slide_shape shape, bool *found, lac_slide_shape *best, lac_cost *cost)
{
    for (shape.parts = 1; shape.parts <= MOST_PARTS; ++shape.parts) {
        if (!complete(problem, &shape) || (shape.parts > 1 && shape.parts > shape.chunks)) return;
        lac_cost now = cost_of(problem, &shape);
        if (*found && now.seconds >= cost->seconds) continue;
        *best = shape;
        *cost = now;
        *found = true;
    }
}

bool lac_slide_shape_make(const lac_problem *problem, lac_slide_shape *out, lac_cost *cost)
{
    /* Outputs of a vector and tokens of a tile. Sums take width * tokens / 32 registers, at most 128. */
    static const struct {
        int width, tokens;
    } tiles[] = {{32, 128}, {32, 64}, {24, 128}, {24, 64}, {16, 256}, {16, 128}, {16, 64}, {8, 256}, {8, 128}, {8, 64}};
    const lac_geometry *g = &problem->weight->geometry;
    if (problem->m == 0 || g->n == 0 || problem->weight->k_in == 0 || problem->weight->pattern.family == LAC_FAMILY_ELEMENT ||
        g->unit_n < LEAST_HEIGHT)
        return false;
    bool found = false;
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; ++i) {
        if (tiles[i].width - 8 >= g->unit_n && tiles[i].width > 8) continue; /* a shorter one does */
        consider(problem, (lac_slide_shape){.width = tiles[i].width, .tokens = tiles[i].tokens}, &found, out, cost);
    }
    return found;
}
