/* vector_select_shape.c - the constants of kernels/vector_select.cu for a problem: rows of a unit, steps of a batch, how blocks
 * and warps share the work. vector_select.c asks for it. */
#include <stdlib.h>
#include <stdio.h>
#include "core/dtype.h"
#include "cuda/runtime.h"
#include "cuda/vector_select_tile.h"
#include "format/weight.h"

enum { STEP = LAC_SELECT_STEP, WARPS = 8, MOST_GROUP_INPUTS = 256, STRIP_BYTES = 8192 };

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

/* Of a row and the 32 inputs that a lane has of it in a step. */
static int lane_slots(const lac_select_shape *s) { return 32 / s->group_inputs * s->group_slots; }

int lac_select_step_inputs(const lac_select_shape *s) { return s->spread ? 128 : STEP; }
int lac_select_value_words(const lac_select_shape *s)
{
    if (s->spread) return s->batch * 2 * lane_slots(s);
    return s->batch * (s->unit_rows / 16) * (s->sparse ? 4 : 8);
}
int lac_select_place_words(const lac_select_shape *s)
{
    if (s->spread) return (int)divide_up(s->batch * 4 * lane_slots(s) * s->entry_bits, 32);
    return s->sparse ? s->batch * ((s->unit_rows / 16 + 1) / 2) : 0;
}
int lac_select_input_words(const lac_select_shape *s) { return s->all_inputs ? 0 : (s->batch + 1) / 2; }

/* Each row keeps N of 8, 16 or 32 inputs of its own, at most half of them. */
static bool choose_spread(const lac_weight *w, lac_select_shape *s)
{
    const lac_geometry *g = &w->geometry;
    int64_t inputs = g->group_m * g->unit_k, slots = g->slot_n * g->unit_k;
    if (g->is_free || (inputs != 8 && inputs != 16 && inputs != 32) || 2 * slots > inputs || token_tiles(s) > 8) return false;
    s->spread = s->all_inputs = true;
    s->sparse = false;
    s->group_inputs = (int)inputs;
    s->group_slots = (int)slots;
    s->entry_bits = inputs == 8 ? 3 : inputs == 16 ? 4 : 5;
    s->unit_rows = 32;
    s->units = divide_up(g->n, s->unit_rows);
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
        if (!((inputs == 4 && g->slot_n <= 2) || (inputs == 2 && g->slot_n == 1))) return choose_spread(w, s);
        s->sparse = s->all_inputs = true;
    }
    bool is_whole = s->all_inputs || g->row_groups == 1;
    /* Sums of a warp take a register for 32 of its products; longer units read X less often. */
    int most = token_tiles(s) > 8 || token_tiles(s) <= 4 ? 32 : 64;
    for (s->unit_rows = most; s->unit_rows >= 16; s->unit_rows /= 2)
        if (is_whole || g->unit_n % s->unit_rows == 0) break;
    if (s->unit_rows < 16) return choose_spread(w, s);
    while (is_whole && s->unit_rows > 16 && s->unit_rows / 2 >= g->n) s->unit_rows /= 2;
    s->units = divide_up(g->n, s->unit_rows);
    /* A group too long for a chunk may be cut; four inputs of V:N:M may not. */
    s->is_free = g->is_free || (w->pattern.family != LAC_FAMILY_VNM && !s->all_inputs && inputs > MOST_GROUP_INPUTS);
    return true;
}

/* Steps of a batch, blocks on a multiprocessor and loads of X on their way: sums, two batches and these share the registers. */
static void choose_registers(lac_select_shape *s)
{
    int sums = s->unit_rows / 16 * token_tiles(s), step = s->spread ? (lane_slots(s) + 1) / 2 : s->unit_rows / 16 * (s->sparse ? 1 : 2);
    s->blocks = sums <= (s->spread ? lane_slots(s) > 8 ? 0 : 4 : 8) ? 2 : 1;
    int most = s->blocks == 2 || sums > 16 || s->spread ? 4 : 8; /* loads of 16 bytes of a batch */
    s->batch = step >= most ? 1 : most / step;
    if (s->blocks == 2)
        s->stage = sums > 4 || s->spread ? 2 : 3;
    else
        s->stage = s->unit_rows == 32 && token_tiles(s) <= 8 && !s->spread ? 4 : 2;
}

/* Inputs that a chunk must be a multiple of, for a group not to be cut. */
static int64_t granule(const lac_weight *w, const lac_select_shape *s)
{
    const lac_geometry *g = &w->geometry;
    if (s->all_inputs) return lac_select_step_inputs(s) * s->batch;
    return s->is_free ? 8 : common_multiple(8, g->group_m * g->unit_k);
}

/* Inputs that a unit selects in a chunk, when all chunks have as many. */
static int64_t chunk_slots(const lac_weight *w, const lac_select_shape *s)
{
    const lac_geometry *g = &w->geometry;
    if (s->all_inputs) return s->chunk_inputs;
    return s->chunk_inputs / (g->group_m * g->unit_k) * g->group_n * g->unit_k;
}

/* Chunks of X: as few as shared memory allows, and of equal size. */
static bool choose_chunks(const lac_weight *w, unsigned room, lac_select_shape *s)
{
    int64_t strips = s->spread ? (int64_t)s->row_warps * s->k_warps * STRIP_BYTES : 0;
    int64_t least = granule(w, s), row = 18 * token_tiles(s), most = (room - strips) / row / least * least;
    if (most > 56000) most = 56000 / least * least;
    if (most < least) return false;
    int64_t share = divide_up(w->geometry.k, s->split), parts = divide_up(share, most);
    s->chunk_inputs = (int)(divide_up(divide_up(share, parts), least) * least);
    s->chunks = (int)divide_up(w->geometry.k, s->chunk_inputs);
    s->chunk_batches = s->is_free ? 0 : (int)divide_up(divide_up(chunk_slots(w, s), lac_select_step_inputs(s)), s->batch);
    int64_t sums = (int64_t)s->row_warps * s->k_warps * s->tokens * (s->unit_rows + 4) * 4, x = s->chunk_inputs * row;
    s->shared_bytes = (unsigned)(x + strips > sums ? x + strips : sums);
    return s->shared_bytes <= room;
}

static double seconds_of(const lac_weight *w, const lac_cuda_target *target, const lac_gpu_rates *rates, const lac_select_shape *s)
{
    double tiles = (double)divide_up(s->units, s->row_warps), blocks = tiles * s->split;
    double batches = s->chunk_batches ? (double)s->units * s->chunks * s->chunk_batches
                                      : (double)w->kept / s->unit_rows / STEP / s->batch + 0.5 * (double)s->units * s->chunks;
    double bytes = batches * s->batch_bytes, x = tiles * (double)w->geometry.k * token_tiles(s) * 16.0;
    double at_once = (double)target->multiprocessors * s->blocks, waves = (double)divide_up((int64_t)blocks, (int64_t)at_once);
    double sums = (double)s->units * s->unit_rows * s->tokens * 4.0 * (s->split > 1 ? s->split * s->k_warps : 0.3 * s->k_warps);
    double own = waves * bytes / blocks * at_once / (1.3 * rates->memory), memory = bytes / rates->memory;
    return (own > memory ? own : memory) + 0.7 * x / rates->l2 + sums / rates->l2 + waves * 0.5e-6;
}

bool lac_select_shape_make(const lac_problem *problem, lac_select_shape *out)
{
    const lac_weight *w = problem->weight;
    const lac_plan_options *o = &problem->options;
    const lac_cuda_target *target = lac_cuda_target_of(problem->device);
    bool narrow = o->x_dtype == LAC_DTYPE_F16 || o->x_dtype == LAC_DTYPE_BF16;
    if (problem->m < 1 || problem->m > LAC_SELECT_MOST_TOKENS || w->geometry.n < 1 || w->geometry.k < 1 || w->kept < 1) return false;
    if (target->arch < 80 || !narrow || o->x_dtype != w->dtype) return false;
    lac_select_shape s = {.tokens = (int)problem->m};
    if (!choose_unit(w, &s)) return false;
    const char *force = getenv("LAC_SELECT");
    int f_rows = 0, f_batch = 0, f_rw = 0, f_kw = 0, f_split = 0, f_blocks = 0, f_early = -1, f_pre = -1, f_stage = 0;
    if (force) sscanf(force, "%d,%d,%d,%d,%d,%d,%d,%d,%d", &f_rows, &f_batch, &f_rw, &f_kw, &f_split, &f_blocks, &f_early, &f_pre, &f_stage);
    if (f_rows) s.unit_rows = f_rows, s.units = divide_up(w->geometry.n, f_rows);
    choose_registers(&s);
    if (f_batch) s.batch = f_batch;
    if (f_blocks) s.blocks = f_blocks;
    if (f_stage) s.stage = f_stage;
    s.batch_bytes = (lac_select_value_words(&s) + lac_select_place_words(&s) + lac_select_input_words(&s)) * 128;
    s.early = f_early >= 0 ? f_early : target->arch >= 90;
    s.prefetch = (f_pre >= 0 ? f_pre : 16) * 1024 / s.batch_bytes;
    unsigned room = s.blocks == 2 ? target->shared_per_block / 2 - 1024 : target->shared_per_block;
    double best = 0.0;
    for (s.split = 1; s.split <= (target->arch >= 90 ? 8 : 1); s.split *= 2)
        for (s.row_warps = 1; s.row_warps <= 16; s.row_warps *= 2) {
            lac_select_shape now = s;
            now.k_warps = WARPS / now.row_warps;
            if (now.k_warps < 1) now.k_warps = 1;
            if (f_rw && (f_rw != now.row_warps || f_split != now.split)) continue;
            if (!f_rw && now.row_warps > 8) continue;
            if (f_rw) now.k_warps = f_kw;
            if (!choose_chunks(w, room, &now)) continue;
            double seconds = seconds_of(w, target, lac_cuda_rates_of(problem->device), &now);
            if (best > 0.0 && seconds >= best) continue;
            best = seconds;
            *out = now;
        }
    return best > 0.0;
}
