/* choose_shape.c - which shape kernels/choose.cu has for a problem, and what it costs. */
#include "cuda/choose_shape.h"

#include <math.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "cuda/choose_tile.h"
#include "cuda/turn.h"

enum {
    LEAST_HEIGHT = 65 /* of a row group: shorter ones leave half of a vector empty */,
    STATIC_BYTES = 1024,
    MOST_STAGES = 8
};

/* Of what shared memory's port can do, what a stage's work reaches; of the tensor cores, what products of 128 outputs do. */
static const double EFFICIENCY = 0.96, MMA_SHARE = 0.9;
/* Turns that a load of 32 elements takes in the mean, over the banks that it meets. */
static const double TURNS = 1.2;
/* A stage takes so long at least: its two steps wait for their inputs, then for the products of the step before. */
static const double STAGE_SECONDS = 0.6e-6;
/* A tile's beginning and end that nothing hides, and the first stage of all. */
static const double TILE_SECONDS = 2.2e-6, FILL_SECONDS = 1.5e-6;

/* Bytes that a stage of a block moves through shared memory's port: X and W that come, W that each product of 64 tokens reads again, and
 * the loads of X, of which each takes a turn of 128 bytes or more. */
static double port_bytes(const lac_choose_shape *s)
{
    double products = LAC_CHOOSE_STEPS * 2.0 * (LAC_CHOOSE_TOKENS / 64.0), loads = products * 4.0 * 8.0;
    return s->boxes * (double)LAC_CHOOSE_BOX_BYTES + LAC_CHOOSE_IMAGE_BYTES + products * LAC_CHOOSE_MATRIX_BYTES +
           loads * TURNS * 128.0;
}

static lac_cost cost_of(const lac_problem *problem, const lac_choose_shape *s)
{
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    const lac_plan_options *o = &problem->options;
    double tiles = (double)s->quads * LAC_CHOOSE_BLOCKS * (double)s->token_tiles, stages = tiles * s->usual_stages;
    double x_bytes = (double)problem->m * (double)problem->weight->k_in * 2.0;
    double w_bytes = (double)s->quads * s->usual_stages * LAC_CHOOSE_BLOCKS * LAC_CHOOSE_IMAGE_BYTES;
    double y_bytes = (double)problem->m * (double)problem->weight->n_out * (double)lac_dtype_size(o->y_dtype);
    double at_once = rates->multiprocessors / LAC_CHOOSE_BLOCKS * LAC_CHOOSE_BLOCKS, waves = ceil(tiles / at_once);
    lac_gpu_work work = {
        .memory_bytes = x_bytes + w_bytes + y_bytes * (o->has_residual ? 2 : 1),
        .l2_bytes = stages * (s->boxes * (double)LAC_CHOOSE_BOX_BYTES / LAC_CHOOSE_BLOCKS + LAC_CHOOSE_IMAGE_BYTES),
        .shared_bytes = stages * port_bytes(s),
        .instructions = stages * LAC_CHOOSE_STEPS * 8.0 * 70.0,
        .mma_flops = stages * LAC_CHOOSE_STAGE_SLOTS * 2.0 * (2.0 * LAC_CHOOSE_OUTPUTS) * LAC_CHOOSE_TOKENS / MMA_SHARE,
        .blocks = tiles,
        .blocks_at_once = at_once,
        .fill_seconds = waves * TILE_SECONDS + FILL_SECONDS + lac_cuda_scatter_seconds(problem),
        .chain_seconds = waves * s->usual_stages * STAGE_SECONDS,
        .efficiency = EFFICIENCY,
        .launches = 1,
        .early = 1};
    return lac_model_gpu_cost(rates, &work);
}

/* Stages of a quad in the mean; below 0 without memory. */
static double stages_of(const lac_weight *w, const lac_choose_shape *s)
{
    enum { PARTS = 16 };
    lac_weight_fact fact = s->boxes == 1 ? LAC_FACT_CHOOSE_ONE : LAC_FACT_CHOOSE_TWO;
    int known = lac_weight_known(w, fact);
    if (known < 0) {
        double counted = lac_choose_count_stages(w, s);
        if (counted < 0.0 || counted > INT32_MAX / (2 * PARTS)) return -1.0;
        known = (int)lrint(counted * PARTS);
        lac_weight_note(w, fact, known);
    }
    return (double)known / PARTS;
}

static bool complete(const lac_problem *problem, lac_choose_shape *s)
{
    const lac_geometry *g = &problem->weight->geometry;
    int64_t room = lac_cuda_target_of(problem->device)->shared_per_block - STATIC_BYTES - (int64_t)lac_choose_shared(s);
    s->stages = (int)lac_smaller(room / lac_choose_stage_bytes(s), MOST_STAGES);
    s->pieces = (int)lac_ceil_divide(g->unit_n, LAC_CHOOSE_OUTPUTS);
    s->vectors = g->row_groups * s->pieces;
    s->quads = lac_ceil_divide(s->vectors, LAC_CHOOSE_VECTORS);
    s->token_tiles = lac_ceil_divide(problem->m, LAC_CHOOSE_TOKENS);
    if (s->stages < 2 || s->quads * s->token_tiles >= INT32_MAX / LAC_CHOOSE_BLOCKS ||
        s->vectors >= INT32_MAX / LAC_CHOOSE_OUTPUTS - LAC_CHOOSE_VECTORS)
        return false;
    s->usual_stages = stages_of(problem->weight, s);
    return s->usual_stages >= 0.0 && s->usual_stages * (double)s->quads < INT32_MAX / LAC_CHOOSE_MOST_BOXES;
}

bool lac_choose_shape_make(const lac_problem *problem, lac_choose_shape *out, lac_cost *cost)
{
    const lac_weight *w = problem->weight;
    const lac_plan_options *o = &problem->options;
    lac_family family = w->pattern.family;
    if (o->x_layout != LAC_LAYOUT_TOKEN_MAJOR || o->y_layout != LAC_LAYOUT_TOKEN_MAJOR || problem->m == 0 ||
        w->geometry.n == 0 || w->k_in == 0 || w->k_in > INT32_MAX - LAC_CHOOSE_BOX ||
        problem->m > INT32_MAX - LAC_CHOOSE_TOKENS || !lac_turn_fits(problem) || w->geometry.unit_n < LEAST_HEIGHT ||
        lac_cuda_target_of(problem->device)->multiprocessors < LAC_CHOOSE_BLOCKS) /* no room for a cluster */
        return false;
    if (family != LAC_FAMILY_VECTOR && family != LAC_FAMILY_BLOCK && family != LAC_FAMILY_SHUFFLED) return false;
    bool found = false;
    for (int boxes = 1; boxes <= LAC_CHOOSE_MOST_BOXES; ++boxes) {
        lac_choose_shape shape = {.boxes = boxes};
        if (!complete(problem, &shape)) continue;
        lac_cost now = cost_of(problem, &shape);
        if (found && now.seconds >= cost->seconds) continue;
        *out = shape;
        *cost = now;
        found = true;
    }
    return found;
}
