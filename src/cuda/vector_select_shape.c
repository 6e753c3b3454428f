/* vector_select_shape.c - the constants of kernels/vector_select.cu for a problem: rows of a unit, steps of a batch, how blocks
 * and warps share the work. vector_select.c asks for it. */
#include "core/dtype.h"
#include "cuda/runtime.h"
#include "cuda/vector_select_pack.h"
#include "format/weight.h"

enum {
    STEP = LAC_SELECT_STEP,
    WARPS = 8,
    MANY_WARPS = 16,
    MANY_TOKENS = 32,
    MOST_GROUP_INPUTS = 256,
    BATCH_LOADS = 8,
    MOST_CHUNK = 56000,
    ROW_BYTES = 18
};
enum { MOST_PACKED = 8, PACKED_BATCH = 4 };
/* Batches of a warp on their way when they go through shared memory: enough for the speed of memory. More make X wait behind them. */
enum { RING = 2, RING_ALIGN = 128 };

/* As fitted on an H200: X on its way into one block's shared memory, bytes a second; a block's start and end; each doubling of a
 * cluster. */
static const double STAGE_RATE = 55e9, BLOCK_SECONDS = 0.6e-6, SPLIT_SECONDS = 0.3e-6;

static int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

static int token_tiles(const lac_select_shape *s) { return (s->tokens + 7) / 8; }

int lac_select_value_words(const lac_select_shape *s)
{
    return s->packed ? s->batch * s->packed / 2 : s->batch * (s->unit_rows / 16) * (s->sparse ? 4 : 8);
}
int lac_select_code_words(const lac_select_shape *s) { return s->packed ? s->batch / 2 : 0; }
int lac_select_place_words(const lac_select_shape *s) { return s->sparse ? s->batch * ((s->unit_rows / 16 + 1) / 2) : 0; }
int lac_select_input_words(const lac_select_shape *s)
{
    return s->all_inputs ? 0 : s->packed ? s->batch / 4 : (s->batch + 1) / 2;
}

/* Rows keep inputs of their own, few enough of every 32 for mma.sp to take them after some dealing. */
static bool choose_packed(const lac_geometry *g, lac_select_shape *s)
{
    if (STEP % g->group_m || g->group_n * (STEP / g->group_m) > MOST_PACKED) return false;
    s->packed = (int)((g->group_n * (STEP / g->group_m) + 1) / 2 * 2);
    s->sparse = true;
    s->unit_rows = LAC_PACK_ROWS;
    s->units = divide_up(g->n, s->unit_rows);
    s->batch = PACKED_BATCH;
    s->ring = RING;
    s->stage = 4;
    return true;
}

/* Rows keep two of four (or fewer); or rows share their inputs. */
static bool choose_unit(const lac_weight *w, lac_select_shape *s)
{
    const lac_geometry *g = &w->geometry;
    int64_t inputs = g->group_m * g->unit_k;
    if (w->pattern.family == LAC_FAMILY_VNM) {
        s->sparse = w->pattern.n <= 2;
    } else if (!g->is_free && g->unit_n == 1 && g->unit_k == 1 && g->n > 1) {
        if (choose_packed(g, s)) return true;
        if (!((inputs == 4 && g->slot_n <= 2) || (inputs == 2 && g->slot_n == 1))) return false;
        s->sparse = s->all_inputs = true;
    }
    bool is_whole = s->all_inputs || g->row_groups == 1;
    for (s->unit_rows = 32; s->unit_rows >= 16; s->unit_rows /= 2)
        if (is_whole || g->unit_n % s->unit_rows == 0) break;
    if (s->unit_rows < 16) return false;
    if (is_whole && g->n <= 16) s->unit_rows = 16;
    s->units = divide_up(g->n, s->unit_rows);
    s->batch = BATCH_LOADS / (s->unit_rows / 16 * (s->sparse ? 1 : 2));
    s->stage = 4;
    /* A group too long for a chunk may be cut; four inputs of V:N:M may not. */
    s->is_free = g->is_free || (w->pattern.family != LAC_FAMILY_VNM && !s->all_inputs && inputs > MOST_GROUP_INPUTS);
    return true;
}

/* Inputs that a chunk must be a multiple of, for a group not to be cut. */
static int64_t granule(const lac_weight *w, const lac_select_shape *s)
{
    const lac_geometry *g = &w->geometry;
    if (s->all_inputs || s->packed) return STEP * s->batch;
    return s->is_free ? 8 : common_multiple(8, g->group_m * g->unit_k);
}

/* Inputs that a unit selects in a chunk, when all chunks have as many. */
static int64_t chunk_slots(const lac_weight *w, const lac_select_shape *s)
{
    const lac_geometry *g = &w->geometry;
    if (s->all_inputs || s->packed) return s->chunk_inputs;
    return s->chunk_inputs / (g->group_m * g->unit_k) * g->group_n * g->unit_k;
}

/* Chunks of X: as few as shared memory allows, and of equal size. */
static bool choose_chunks(const lac_weight *w, unsigned room, lac_select_shape *s)
{
    int64_t ring = (int64_t)WARPS * s->ring * s->batch_bytes, left = ring ? (int64_t)room - ring - RING_ALIGN : (int64_t)room;
    int64_t least = granule(w, s), row = ROW_BYTES * token_tiles(s), most = left / row / least * least;
    if (most > MOST_CHUNK) most = MOST_CHUNK / least * least;
    if (most < least) return false;
    int64_t share = divide_up(w->geometry.k, s->split), parts = divide_up(share, most);
    s->chunk_inputs = (int)(divide_up(divide_up(share, parts), least) * least);
    s->chunks = (int)divide_up(w->geometry.k, s->chunk_inputs);
    s->chunk_batches = s->is_free ? 0 : (int)divide_up(divide_up(chunk_slots(w, s), STEP), s->batch);
    int64_t sums = (int64_t)WARPS * s->tokens * (s->unit_rows + 4) * 4, x = s->chunk_inputs * row;
    if (ring) x = divide_up(x, RING_ALIGN) * RING_ALIGN + ring;
    s->shared_bytes = (unsigned)(x > sums ? x : sums);
    return s->shared_bytes <= room;
}

double lac_select_batches(const lac_weight *w, const lac_select_shape *s)
{
    if (s->chunk_batches) return (double)s->units * s->chunks * s->chunk_batches;
    return (double)w->kept / s->unit_rows / STEP / s->batch + 0.5 * (double)s->units * s->chunks;
}

double lac_select_stage_seconds(const lac_weight *w, const lac_select_shape *s)
{
    return (double)w->geometry.k / s->split * token_tiles(s) * 16.0 / STAGE_RATE;
}

/* What one way to share the work out takes, beside the launch. */
static double seconds_of(const lac_weight *w, const lac_cuda_target *target, const lac_gpu_rates *rates,
                         const lac_select_shape *s)
{
    double blocks = (double)divide_up(s->units, s->row_warps) * s->split, at_once = target->multiprocessors;
    int64_t places =
        s->split > 2 ? target->multiprocessors * 9 / 10 : target->multiprocessors; /* for larger clusters not all */
    double waves = (double)divide_up((int64_t)blocks, places), seconds = 0.0;
    double bytes = lac_select_batches(w, s) * s->batch_bytes, memory = bytes / rates->memory;
    double own =
        waves * bytes / blocks * at_once / (1.2 * rates->memory); /* a block alone draws a little more than its share */
    for (int split = s->split; split > 1; split /= 2) seconds += SPLIT_SECONDS;
    return seconds + (own > memory ? own : memory) + waves * (lac_select_stage_seconds(w, s) + BLOCK_SECONDS);
}

/* The fastest way to share the work out; false when no chunk of X fits into shared memory. */
static bool share_out(const lac_weight *w, const lac_cuda_target *target, const lac_gpu_rates *rates, lac_select_shape s,
                      lac_select_shape *out)
{
    double best = 0.0;
    for (s.split = 1; s.split <= (target->arch >= 90 ? 8 : 1); s.split *= 2)
        for (s.row_warps = 1; s.row_warps <= WARPS / 2; s.row_warps *= 2) {
            s.k_warps = WARPS / s.row_warps;
            if (!choose_chunks(w, target->shared_per_block, &s)) continue;
            double seconds = seconds_of(w, target, rates, &s);
            if (best > 0.0 && seconds >= best) continue;
            best = seconds;
            *out = s;
        }
    return best > 0.0;
}

bool lac_select_shape_make(const lac_problem *problem, lac_select_shape *out)
{
    const lac_weight *w = problem->weight;
    const lac_plan_options *o = &problem->options;
    const lac_cuda_target *target = lac_cuda_target_of(problem->device);
    bool narrow = o->x_dtype == LAC_DTYPE_F16 || o->x_dtype == LAC_DTYPE_BF16;
    /* For one token the gather is as fast, and takes any dtype. */
    if (problem->m < 2 || problem->m > LAC_SELECT_MOST_TOKENS || w->geometry.n < 1 || w->geometry.k < 1 || w->kept < 1)
        return false;
    if (target->arch < 80 || !narrow || o->x_dtype != w->dtype) return false;
    lac_select_shape s = {.tokens = (int)problem->m, .early = target->arch >= 90};
    if (!choose_unit(w, &s)) return false;
    s.batch_bytes =
        (lac_select_value_words(&s) + lac_select_code_words(&s) + lac_select_place_words(&s) + lac_select_input_words(&s)) *
        128;
    return share_out(w, target, lac_cuda_rates_of(problem->device), s, out);
}
