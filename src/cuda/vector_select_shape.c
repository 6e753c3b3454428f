/* vector_select_shape.c - the constants of kernels/vector_select.cu for a problem: rows of a unit, steps of a batch, how blocks
 * and warps share the work. vector_select.c asks for it. */
#include "core/arithmetic.h"
#include "core/dtype.h"
#include "cuda/runtime.h"
#include "cuda/vector_select_pack.h"
#include "format/weight.h"

enum { STEP = LAC_SELECT_STEP, MOST_GROUP_INPUTS = 256, BATCH_LOADS = 8, MOST_CHUNK = 56000, ROW_BYTES = 18, ALIGN = 128 };
enum { MOST_PACKED = 8, PACKED_BATCH = 4 };
/* Batches of a warp on their way when they go through shared memory: enough for the speed of memory. More make X wait behind them. */
enum { RING = 2, STREAMED_RING = 3 };
/* Streamed: inputs of a strip and of a chunk where nothing is lost by it, the most chunks in shared memory, bytes of strips on their way. */
enum { STRIP = 64, CHUNK = 512, MOST_X_RING = 8, STRIP_BYTES = 65536, MOST_STRIPS = 16, BARRIER_BYTES = 16 * MOST_X_RING };

/* As fitted on an H200: seconds; bytes a second; clocks of a multiprocessor for a step.
 * Fragments. Resident: X on its way into one block's shared memory, a block's start and end, a cluster of two. Streamed: what L2 gives to all blocks of
 * W and X, and how much more to 8 warps that bring it; a block's start and end, a cluster of two, the least that it takes, X on its way into one block. */
static const double STAGE_RATE = 55e9, BLOCK_SECONDS = 1.4e-6, SPLIT_SECONDS = 0.5e-6;
static const double STREAM_RATE = 6.0e12, MORE_WARPS = 1.1, STREAM_SECONDS = 1.6e-6, STREAM_SPLIT = 3.3e-6, STREAM_LEAST = 5e-6,
                    STREAM_X_RATE = 28e9;
/* Packed: X on its way into one block, in either way; a block's start and end, each chunk of X behind the first, what memory waits for it, of its time;
 * streamed a block's start and end, a cluster of two; spreading, products with 8 tokens, and how much slower they are beside a stream of X. */
static const double PACKED_X_RATE = 42e9, PACKED_SECONDS = 2e-6, PACKED_CHUNK = 1e-6, PACKED_WAIT = 0.08;
static const double PACKED_STREAM = 1.3e-6, PACKED_SPLIT = 1.1e-6, SPREAD_CLOCKS = 25.0, PRODUCT_CLOCKS = 4.8,
                    STREAM_SLOWER = 1.05;

/* Feature-major X of more than 8 tokens comes more slowly than that, whatever the way: so many bytes of it a second, beside all else. */
static const double FEATURE_X_RATE = 28e9;

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
    s->units = lac_ceil_divide(g->n, s->unit_rows);
    s->batch = PACKED_BATCH;
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
    s->units = lac_ceil_divide(g->n, s->unit_rows);
    s->batch = BATCH_LOADS / (s->unit_rows / 16 * (s->sparse ? 1 : 2));
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

/* Batches of a unit in a chunk of so many inputs; of free columns each chunk is taken to need the mean, and to fill its last batch by half. */
static double chunk_batches(const lac_weight *w, const lac_select_shape *s, int64_t inputs)
{
    const lac_geometry *g = &w->geometry;
    if (s->is_free) return (double)w->kept / (double)(g->n * g->k) * (double)inputs / (STEP * s->batch) + 0.5;
    int64_t groups = inputs / (g->group_m * g->unit_k);
    return (double)lac_ceil_divide(s->all_inputs || s->packed ? inputs : groups * g->group_n * g->unit_k,
                                   (int64_t)STEP * s->batch);
}

/* Streamed: inputs of a chunk, at most `most`. Batches are full, the last chunk too, the blocks of a cluster have as many, and it is short enough for
 * the first one to come soon. */
static int64_t choose_inputs(const lac_weight *w, const lac_select_shape *s, int64_t most)
{
    int64_t least = granule(w, s), best = least;
    double lowest = 0.0;
    if (s->is_free) least = lac_ceil_divide(STRIP, least) * least;
    for (int64_t inputs = least; inputs <= most; inputs += least) {
        double rounds = (double)lac_ceil_divide(lac_ceil_divide(w->geometry.k, inputs), s->split),
               size = (double)inputs / CHUNK;
        double cost = rounds * chunk_batches(w, s, inputs) * (1.0 + 0.03 * size + 0.06 / size);
        if (lowest > 0.0 && cost >= lowest) continue;
        lowest = cost;
        best = inputs;
    }
    return best;
}

static void count_chunks(const lac_weight *w, int64_t inputs, lac_select_shape *s)
{
    s->chunk_inputs = (int)inputs;
    s->chunks = (int)lac_ceil_divide(w->geometry.k, inputs);
    s->chunk_batches = s->is_free ? 0 : (int)chunk_batches(w, s, inputs);
}

/* The block's shared memory, of which chunks of X take `x`; false when there is not so much. It is more than half of what there is: were there room
 * for a second block, those of the next kernel, which starts early, would crowd onto some multiprocessors. */
static bool count_shared(int64_t x, unsigned room, lac_select_shape *s)
{
    int64_t warps = s->row_warps * s->k_warps, sums = warps * s->tokens * (s->unit_rows + 4) * 4;
    int64_t bytes = lac_ceil_divide(x, ALIGN) * ALIGN + warps * s->ring * s->batch_bytes;
    if (s->x_warps) bytes += (int64_t)s->x_warps * s->x_strips * STRIP * 16 * token_tiles(s) + BARRIER_BYTES;
    if (bytes < sums) bytes = sums;
    if (s->early && bytes < room / 2 + ALIGN) bytes = room / 2 + ALIGN;
    s->shared_bytes = (unsigned)bytes;
    return bytes <= room;
}

/* Resident: as few chunks as shared memory allows, and of equal size. */
static bool choose_resident(const lac_weight *w, unsigned room, lac_select_shape *s)
{
    int64_t ring = (int64_t)s->row_warps * s->k_warps * s->ring * s->batch_bytes, left = (int64_t)room - ring - ALIGN;
    int64_t least = granule(w, s), row = ROW_BYTES * token_tiles(s), most = left / row / least * least;
    if (most > MOST_CHUNK) most = MOST_CHUNK / least * least;
    if (most < least) return false;
    int64_t share = lac_ceil_divide(w->geometry.k, s->split), parts = lac_ceil_divide(share, most);
    count_chunks(w, lac_ceil_divide(lac_ceil_divide(share, parts), least) * least, s);
    s->x_ring = 1;
    return count_shared(s->chunk_inputs * row, room, s);
}

/* Streamed: strips that are on their way, then a chunk that is read and others that come. */
static bool choose_streamed(const lac_weight *w, bool turned, unsigned room, lac_select_shape *s)
{
    int64_t ring = (int64_t)s->row_warps * s->k_warps * s->ring * s->batch_bytes, row = ROW_BYTES * token_tiles(s);
    int64_t strip = (int64_t)s->x_warps * STRIP * 16 * token_tiles(s), least = granule(w, s);
    int64_t left = (int64_t)room - ring - BARRIER_BYTES - ALIGN, chunk = lac_ceil_divide(CHUNK, least) * least;
    int64_t strips = turned ? STRIP_BYTES / strip : 0;
    if (strips > MOST_STRIPS) strips = MOST_STRIPS;
    while (strips > 1 && left - strips * strip < 2 * chunk * row) --strips;
    if (turned && strips < 1) strips = 1;
    left -= strips * strip;
    int64_t most = left / 2 / row / least * least;
    if (most > MOST_CHUNK) most = MOST_CHUNK / least * least;
    if (left <= 0 || most < least) return false;
    s->x_strips = (int)strips;
    count_chunks(w, choose_inputs(w, s, most), s);
    int64_t x_ring = left / (s->chunk_inputs * row), own = lac_ceil_divide(s->chunks, s->split);
    if (x_ring > own) x_ring = own;
    s->x_ring = (int)(x_ring > MOST_X_RING ? MOST_X_RING : x_ring);
    return count_shared(s->x_ring * s->chunk_inputs * row, room, s);
}

double lac_select_batches(const lac_weight *w, const lac_select_shape *s)
{
    return (double)s->units * s->chunks * chunk_batches(w, s, s->chunk_inputs);
}

/* What all multiprocessors have to do, before anything else. */
typedef struct share {
    double waves, memory, bytes; /* waves of blocks; seconds; of W */
    double x, x_all;             /* bytes of X of a block, of all blocks */
} share;

static double fragments_seconds(const lac_select_shape *s, const share *h)
{
    if (!s->x_warps)
        return h->memory + (s->split > 1 ? SPLIT_SECONDS : 0.0) +
               h->waves * (h->x * (8.0 * token_tiles(s) / s->tokens) / STAGE_RATE + BLOCK_SECONDS);
    double l2 = (h->bytes + h->x_all) / (STREAM_RATE * (s->x_warps > 4 ? MORE_WARPS : 1.0)),
           seconds = h->memory > l2 ? h->memory : l2;
    if (h->waves * h->x / STREAM_X_RATE > seconds) seconds = h->waves * h->x / STREAM_X_RATE;
    seconds += h->waves * (STREAM_SECONDS + (s->split > 1 ? STREAM_SPLIT : 0.0));
    return seconds > STREAM_LEAST ? seconds : STREAM_LEAST;
}

static double packed_seconds(const lac_select_shape *s, const share *h, double step_seconds, double steps)
{
    double spread = steps * (SPREAD_CLOCKS + PRODUCT_CLOCKS * token_tiles(s)) * step_seconds, seconds = h->memory;
    if (s->x_warps) spread *= STREAM_SLOWER;
    if (spread > seconds) seconds = spread;
    seconds +=
        h->waves * h->x * (8.0 * token_tiles(s) / s->tokens) / PACKED_X_RATE; /* tokens that are not there are turned too */
    if (s->x_warps) {
        seconds += h->waves * (PACKED_STREAM + (s->split > 1 ? PACKED_SPLIT : 0.0));
        return seconds > STREAM_LEAST ? seconds : STREAM_LEAST;
    }
    double chunks = (double)lac_ceil_divide(s->chunks, s->split) - 1.0;
    return seconds + h->waves * (PACKED_SECONDS + chunks * PACKED_CHUNK) + PACKED_WAIT * h->memory;
}

/* What one way to share the work out takes, beside the launch. */
static double seconds_of(const lac_weight *w, const lac_cuda_target *target, const lac_gpu_rates *rates,
                         const lac_select_shape *s)
{
    double tiles = (double)lac_ceil_divide(s->units, s->row_warps), blocks = tiles * s->split,
           at_once = target->multiprocessors;
    double batches = lac_select_batches(w, s), x = (double)w->geometry.k * s->tokens * 2.0;
    share h = {.waves = (double)lac_ceil_divide((int64_t)blocks, target->multiprocessors),
               .bytes = batches * s->batch_bytes,
               .x = x / s->split,
               .x_all = x * tiles};
    /* A block alone draws a little more than its share. */
    double own = h.waves * h.bytes / blocks * at_once / (1.05 * rates->memory);
    h.memory = h.bytes / rates->memory;
    if (own > h.memory) h.memory = own;
    if (!s->packed) return fragments_seconds(s, &h);
    return packed_seconds(s, &h, 4.0 * at_once / rates->issue, h.waves * batches * s->batch / blocks);
}

/* Warps of a unit beside those that bring X: at least 8 of a block; 12 where that is what comes next, or where fragments have few tokens and a unit's
 * warps make one stream of memory. */
static int streamed_k_warps(const lac_select_shape *s)
{
    int warps = s->row_warps == 3 || s->row_warps > 4 || (s->row_warps == 2 && !s->packed && token_tiles(s) == 1) ? 12 : 8;
    return warps / s->row_warps;
}

/* The fastest way to share the work out; false when no chunk of X fits into shared memory. Clusters of four and more are not looked at: too few of them
 * fit, 11008 x 4096 took up to twice as long in them. */
static bool share_out(const lac_weight *w, const lac_problem *problem, lac_select_shape s, lac_select_shape *out)
{
    enum { WARPS = 8, MOST_ROW_WARPS = 6 };
    const lac_cuda_target *target = lac_cuda_target_of(problem->device);
    const lac_gpu_rates *rates = lac_cuda_rates_of(problem->device);
    bool turned = problem->options.x_layout == LAC_LAYOUT_TOKEN_MAJOR;
    double best = 0.0;
    for (int streamed = 0; streamed < 2; ++streamed)
        for (s.row_warps = 1; s.row_warps <= MOST_ROW_WARPS; ++s.row_warps)
            for (s.split = 1; s.split <= (target->arch >= 90 ? 2 : 1); ++s.split) {
                /* Rows of feature-major X of 16 tokens and more are no faster streamed: 34.9 us for 27.7 (2:4, 8192 x 8192). */
                if (streamed && !turned && token_tiles(&s) > 1 && s.tokens % 8 == 0) continue;
                if (s.row_warps == 5 || (!streamed && WARPS % s.row_warps)) continue; /* 8 or 12 warps */
                s.k_warps = streamed ? streamed_k_warps(&s) : WARPS / s.row_warps;
                s.ring = !s.packed ? 0 : streamed && token_tiles(&s) < 3 ? STREAMED_RING : RING;
                s.ring_first = !s.packed ? 0 : token_tiles(&s) < 2 ? 2 : 1;
                s.x_warps = !streamed ? 0 : !s.packed && token_tiles(&s) == 2 && s.row_warps * s.k_warps == WARPS ? 8 : 4;
                s.x_strips = 0;
                if (!(streamed ? choose_streamed(w, turned, target->shared_per_block, &s)
                               : choose_resident(w, target->shared_per_block, &s)))
                    continue;
                double seconds = seconds_of(w, target, rates, &s);
                if (!turned && token_tiles(&s) > 1) seconds += (double)w->geometry.k * s.tokens * 2.0 / FEATURE_X_RATE;
                if (best > 0.0 && seconds >= best) continue;
                best = seconds;
                *out = s;
                out->seconds = seconds;
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
    if (!share_out(w, problem, s, out)) return false;
    return lac_tiles_fit_int(out->chunks, out->chunk_inputs) &&
           lac_tiles_fit_int(lac_ceil_divide(out->units, out->row_warps), (int64_t)out->row_warps * out->unit_rows);
}
