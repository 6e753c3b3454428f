/* vector_shape.c - the constants of kernels/vector.cu and kernels/vector_mma.cu for a problem: how the pattern comes down to
 * groups, how many kept weights make a step, how blocks and warps share the work. vector.c asks for it. */
#include "core/arithmetic.h"
#include "core/dtype.h"
#include "cuda/runtime.h"
#include "cuda/vector_tile.h"
#include "format/weight.h"

/* Groups of more inputs are cut like free columns: a group must fit shared memory for every number of tokens. */
enum { MOST_GROUP_INPUTS = 1024, MOST_BITMASK_INPUTS = 32, MOST_UNIT_INPUTS = 64 };
/* Shared memory of a block for x, when two blocks are to live on a multiprocessor of an H200. */
enum { GATHER_X_BYTES = 96 * 1024, MMA_X_BYTES = 64 * 1024 };
/* One token: how many blocks a multiprocessor holds at the most, and of how many warps. */
enum { MOST_BLOCKS = 3, FEW_WARPS = 16, MANY_WARPS = 24, MOST_K_WARPS = 16, MOST_SPLIT = 4 };
/* What a cluster costs over blocks without one, and what a multiprocessor gets through, as measured on an H200. */
static const double CLUSTER_SECONDS = 1e-6, BYTES_PER_SECOND = 45e9;
/* Two blocks of 8 warps that go round against one of 16, each with as many row blocks (0.97 at 16384 x 4096 on an H200). */
static const double TWO_SHARE = 0.92;

static int divide_up(int64_t a, int64_t b) { return (int)lac_ceil_divide(a, b); }

static int bits_for(int values)
{
    int bits = 0;
    while (1 << bits < values) ++bits;
    return bits;
}

/* From the family to N of M inputs, or to columns. */
static void lower_pattern(const lac_weight *w, lac_vector_shape *s)
{
    const lac_geometry *g = &w->geometry;
    bool rows_share = g->unit_n % LAC_VECTOR_ROWS == 0 || g->row_groups == 1;
    s->shared_index = !s->mma && w->pattern.family != LAC_FAMILY_VNM && rows_share;
    int64_t slots = g->slot_n * g->unit_k, inputs = g->group_m * g->unit_k;
    s->group_steps = s->step_groups = 1;
    if (g->is_free || inputs > MOST_GROUP_INPUTS) {
        s->index = LAC_VECTOR_INDEX_COLUMNS;
        s->entry_bits = 16;
        s->group_inputs = 1;
        return;
    }
    s->group_slots = (int)slots;
    s->group_inputs = (int)inputs;
    s->entry_bits = bits_for(s->group_inputs);
    if (slots == inputs)
        s->index = LAC_VECTOR_INDEX_NONE;
    else if (inputs <= MOST_BITMASK_INPUTS && s->entry_bits * slots > inputs)
        s->index = LAC_VECTOR_INDEX_BITMASK;
    else
        s->index = LAC_VECTOR_INDEX_PACKED;
    if (s->index == LAC_VECTOR_INDEX_NONE) s->shared_index = false;
}

/* Numbers of inputs instead of a mask, where they take a twentieth more bytes at the most: they are found with fewer instructions.
 * fp32 has few to begin with, and 24 warps hide them. */
static void prefer_numbers(lac_vector_shape *s)
{
    int values = 8 * s->value_bytes * s->group_slots, numbers = values + s->entry_bits * s->group_slots;
    bool near = 20 * numbers <= 21 * (values + s->group_inputs);
    if (s->index == LAC_VECTOR_INDEX_BITMASK && s->value_bytes < 4 && near) s->index = LAC_VECTOR_INDEX_PACKED;
}

static int index_words(const lac_vector_shape *s, int slots)
{
    if (s->index == LAC_VECTOR_INDEX_NONE) return 0;
    int bits = s->index == LAC_VECTOR_INDEX_BITMASK ? slots / s->group_slots * s->group_inputs : slots * s->entry_bits;
    return divide_up(bits, 32);
}

static int bytes_of_step(const lac_vector_shape *s, int slots)
{
    return divide_up(slots * s->value_bytes, 16) * 512 + (s->shared_index ? 0 : index_words(s, slots) * 128);
}

/* Whether there are too few row blocks for every multiprocessor to have two of them, nearly. */
static bool has_few_rows(const lac_weight *w, const lac_cuda_target *target)
{
    return 2 * divide_up(w->geometry.n, LAC_VECTOR_ROWS) < 3 * target->multiprocessors;
}

/* As many groups in a step as bring the fewest bytes a kept weight, of at most `limit` slots; ties go to more. */
static void choose_gather_step(lac_vector_shape *s, bool short_steps)
{
    int load = 16 / s->value_bytes, limit = short_steps ? 2 * load : 4 * load;
    if (s->index == LAC_VECTOR_INDEX_COLUMNS || s->index == LAC_VECTOR_INDEX_NONE) {
        /* No groups, or none that matter: steps of a few whole loads. */
        s->slots = s->group_slots = s->index == LAC_VECTOR_INDEX_NONE ? limit : 2 * load;
        if (s->index == LAC_VECTOR_INDEX_NONE) s->group_inputs = s->slots;
        return;
    }
    if (s->group_slots > limit && s->index == LAC_VECTOR_INDEX_PACKED) {
        s->group_steps = divide_up(s->group_slots, limit);
        s->slots = divide_up(s->group_slots, s->group_steps);
        return;
    }
    s->step_groups = 1;
    for (int groups = 2; groups * s->group_slots <= limit; ++groups) {
        int now = bytes_of_step(s, groups * s->group_slots), best = bytes_of_step(s, s->step_groups * s->group_slots);
        if (now * s->step_groups <= best * groups) s->step_groups = groups;
    }
    s->slots = s->step_groups * s->group_slots;
}

/* 2 of 4 inputs, or 1 of 2 twice, go to the sparse mma as they are. */
static bool choose_direct(lac_vector_shape *s)
{
    if (s->index == LAC_VECTOR_INDEX_NONE || s->group_inputs != 2 * s->group_slots || s->group_inputs > 4) return false;
    s->direct = true;
    s->index = LAC_VECTOR_INDEX_PACKED;
    s->group_slots = 2;
    s->group_inputs = 4;
    s->entry_bits = 2;
    s->unit_groups = 8;
    s->slots = 64;
    return true;
}

/* False where spreading costs more than it brings: many inputs for few kept ones, or a lane's share too large. */
static bool choose_mma_step(lac_vector_shape *s)
{
    if (choose_direct(s)) return true;
    bool indexed = s->index == LAC_VECTOR_INDEX_PACKED || s->index == LAC_VECTOR_INDEX_BITMASK;
    if (!indexed || s->group_inputs > MOST_UNIT_INPUTS || s->group_slots > 16) return false;
    s->index = LAC_VECTOR_INDEX_PACKED; /* more bytes than a bitmask, perhaps, but fewer instructions, which count here */
    s->unit_groups = (int)lac_larger(1, lac_smaller(32 / s->group_inputs, 8 / s->group_slots));
    s->slots = 4 * s->unit_groups * s->group_slots;
    return true;
}

static int step_inputs(const lac_vector_shape *s) { return (s->mma ? 4 * s->unit_groups : s->step_groups) * s->group_inputs; }

/* Inputs of a unit of the mma kernels, padding and all. */
static int unit_inputs(const lac_vector_shape *s) { return divide_up(s->unit_groups * s->group_inputs, 8) * 8; }

/* Bytes of x that an input takes in shared memory. */
static int x_bytes_of_input(const lac_vector_shape *s)
{
    if (s->mma) return s->tokens * 2;
    int words = s->wide ? s->tokens : divide_up(s->tokens, 2);
    if (s->shared_index && words > 2) words = divide_up(words, 4) * 4;
    return words * 4;
}

static int x_bytes_of_step(const lac_vector_shape *s)
{
    return (s->mma ? 4 * unit_inputs(s) : step_inputs(s)) * x_bytes_of_input(s);
}

/* How many warps of a block go along n and along k, and how many blocks a multiprocessor holds. As measured on an H200: the
 * more tokens, the more rows should share a copy of x; one full wave is better than one and a half. */
static void choose_warps(const lac_weight *w, const lac_cuda_target *target, lac_vector_shape *s)
{
    int row_blocks = divide_up(w->geometry.n, LAC_VECTOR_ROWS), multiprocessors = target->multiprocessors;
    bool fits_one_wave = divide_up(row_blocks, 4) <= multiprocessors;
    s->blocks = 2;
    if (s->mma) {
        bool spreads_many = !s->direct && s->slots > 32; /* wants the registers of two blocks */
        s->row_warps = fits_one_wave && !spreads_many && (s->direct || s->tokens > 8) ? 4 : 2;
        s->k_warps = 4;
        if (!s->direct && !spreads_many && s->tokens > 8) s->k_warps = 12 / s->row_warps;
        if (s->row_warps * s->k_warps > 8 || spreads_many) s->blocks = 1;
    } else if (s->tokens <= 2) {
        s->row_warps = 1;
        s->k_warps = has_few_rows(w, target) ? 16 : 8;
        if (has_few_rows(w, target)) s->blocks = 1;
    } else {
        s->row_warps = 2;
        s->k_warps = s->tokens <= 8 ? 8 : 4;
        s->blocks = 1;
    }
    while (s->row_warps > 1 && s->row_warps > row_blocks) s->row_warps /= 2;
}

/* One token: every multiprocessor gets the same number of blocks, all of them at once, or as near to that as can be. What
 * counts is the one with the most: shares of a row block make it less where there are few, and cost a cluster. */
static bool choose_blocks(const lac_weight *w, const lac_cuda_target *target, lac_vector_shape *s)
{
    int64_t tiles = divide_up(w->geometry.n, LAC_VECTOR_ROWS);
    double bytes = (double)w->kept / (double)w->geometry.n * LAC_VECTOR_ROWS * (s->value_bytes + s->entry_bits / 8.0),
           least = 0;
    bool found = false;
    s->row_warps = 1;
    for (int split = 1; split <= (target->arch >= 90 ? MOST_SPLIT : 1); split *= 2) {
        int64_t x_bytes = lac_ceil_divide(w->geometry.k, split) * x_bytes_of_input(s);
        int64_t blocks = divide_up(tiles * split, target->multiprocessors),
                fit = target->shared_per_block / lac_larger(x_bytes, 1);
        if (blocks > lac_smaller(MOST_BLOCKS, fit)) continue;
        double seconds = bytes * (double)blocks / split / BYTES_PER_SECOND + (split > 1 ? CLUSTER_SECONDS : 0.0);
        if (found && seconds >= least) continue;
        found = true;
        least = seconds;
        s->split = split;
        /* Four blocks of a cluster find room more easily where a multiprocessor holds two. */
        s->blocks = (int)lac_larger(blocks, split >= 4 ? 2 : 1);
    }
    if (found) return true;
    /* More than fit at once: they go round. */
    double one = (double)divide_up(tiles, target->multiprocessors);
    double two = 2.0 * (double)divide_up(tiles, 2 * (int64_t)target->multiprocessors) * TWO_SHARE;
    s->split = 1;
    s->blocks = two < one || s->index == LAC_VECTOR_INDEX_COLUMNS ? 2 : 1; /* columns cannot: waves of two */
    return false;
}

/* Steps of a few more loads and more of them under way, where there are registers for it. */
static void choose_k_warps(const lac_weight *w, lac_vector_shape *s)
{
    bool narrow = s->value_bytes < 4, light = !s->shared_index && !narrow && 4 * s->group_slots <= s->group_inputs;
    int warps = !s->shared_index && (s->blocks > 2 || !narrow) ? MANY_WARPS : FEW_WARPS;
    int most = light && s->blocks == 2 ? MOST_K_WARPS : (int)lac_smaller(divide_up(warps, s->blocks), MOST_K_WARPS);
    int64_t steps = s->steps ? s->steps : divide_up(w->geometry.selected, s->slots);
    s->k_warps = (int)lac_smaller(most, lac_larger(lac_ceil_divide(steps, s->split), 1));
    s->depth = (narrow ? s->blocks < 3 : s->blocks == 1) ? 3 : 2;
}

/* Blocks along k, until nearly every multiprocessor has its own; fewer warps where there are fewer steps. */
static void choose_split(const lac_weight *w, const lac_cuda_target *target, lac_vector_shape *s)
{
    int tiles = divide_up(divide_up(w->geometry.n, LAC_VECTOR_ROWS), s->row_warps);
    int wanted = s->blocks * target->multiprocessors * 3 / 4;
    int64_t steps = s->steps ? s->steps : divide_up(w->geometry.selected, s->slots);
    s->split = 1;
    int most = (int)lac_smaller(8, (int64_t)s->blocks * target->multiprocessors); /* blocks of a cluster run at once */
    while (target->arch >= 90 && 2 * s->split <= most && tiles * s->split < wanted && steps >= 2 * s->split * s->k_warps)
        s->split *= 2;
    while (s->k_warps > 1 && s->k_warps * s->split > steps) s->k_warps /= 2;
}

/* More row blocks than fit at once: a block takes several, one behind the other, and its loads never pause between them. The sums
 * of each wait beside x for the end; without room for them the blocks come in waves. */
static void choose_rounds(const lac_weight *w, const lac_cuda_target *target, lac_vector_shape *s, int64_t x_bytes,
                          int64_t sums)
{
    int64_t tiles = divide_up(divide_up(w->geometry.n, LAC_VECTOR_ROWS), s->row_warps);
    int64_t at_once = lac_larger(1, (int64_t)s->blocks * target->multiprocessors / s->split);
    int64_t rounds = lac_ceil_divide(tiles, at_once);
    bool goes_round = !s->mma && s->tokens == 1 && s->index != LAC_VECTOR_INDEX_COLUMNS && s->chunks <= s->split;
    if (!goes_round || x_bytes + rounds * sums > target->shared_per_block) rounds = 1;
    s->rounds = (int)rounds;
    s->grid = (rounds > 1 ? at_once : tiles) * s->split;
}

/* Chunks of x: as few as shared memory allows, a multiple of the split, and of equal size. */
static bool choose_chunks(const lac_weight *w, const lac_cuda_target *target, lac_vector_shape *s)
{
    int warps = s->row_warps * s->k_warps, strips = 0;
    if (s->mma && !s->direct) strips = warps * unit_inputs(s) * 128;
    int64_t room = (int64_t)target->shared_per_block - strips - 16 * LAC_VECTOR_MOST_TOKENS;
    int64_t budget = s->mma ? MMA_X_BYTES : GATHER_X_BYTES;
    if (budget > room) budget = room;
    int64_t x_bytes;
    if (s->index == LAC_VECTOR_INDEX_COLUMNS) {
        int64_t fit = budget / x_bytes_of_input(s);
        if (fit > 65536) fit = 65536;
        if (fit < 1) return false;
        s->chunks = divide_up(divide_up(w->geometry.k, s->split), fit) * s->split;
        s->chunk_inputs = divide_up(w->geometry.k, s->chunks);
        x_bytes = (int64_t)s->chunk_inputs * x_bytes_of_input(s);
    } else {
        int64_t fit = budget / x_bytes_of_step(s) * s->group_steps;
        if (fit < 1) return false;
        int64_t share = divide_up(s->steps, s->split);
        int64_t chunks = divide_up(share, fit);
        s->chunk_steps = divide_up(divide_up(share, chunks), s->group_steps) * s->group_steps;
        s->chunks = divide_up(s->steps, s->chunk_steps);
        s->chunk_inputs = s->chunk_steps / s->group_steps * step_inputs(s);
        x_bytes = (int64_t)s->chunk_steps / s->group_steps * x_bytes_of_step(s) + (s->mma ? 16 * s->tokens : 0);
    }
    int64_t sums = (int64_t)warps * s->tokens * LAC_VECTOR_ROWS * 4;
    choose_rounds(w, target, s, x_bytes, sums);
    s->x_bytes = x_bytes;
    x_bytes = s->rounds > 1 ? x_bytes + s->rounds * sums : lac_larger(x_bytes, sums);
    s->shared_bytes = (unsigned)(x_bytes + strips);
    /* No more blocks on a multiprocessor than they are meant to be, whatever registers they take: the next kernel's, which start
     * early, would else crowd on some of them. */
    if (!s->mma && s->tokens == 1)
        s->shared_bytes = (unsigned)lac_larger(s->shared_bytes, target->shared_per_block / (s->blocks + 1) + 1);
    return s->shared_bytes <= target->shared_per_block;
}

bool lac_vector_shape_make(const lac_problem *problem, bool mma, lac_vector_shape *out)
{
    const lac_weight *w = problem->weight;
    const lac_plan_options *o = &problem->options;
    const lac_cuda_target *target = lac_cuda_target_of(problem->device);
    if (problem->m < 1 || problem->m > LAC_VECTOR_MOST_TOKENS || w->geometry.n < 1 || w->geometry.k < 1) return false;
    if (w->kept < 1) return false;
    lac_vector_shape s = {.mma = mma, .tokens = (int)problem->m, .value_bytes = (int)lac_dtype_size(w->dtype), .depth = 2};
    bool narrow = o->x_dtype == LAC_DTYPE_F16 || o->x_dtype == LAC_DTYPE_BF16;
    s.wide = !narrow || s.tokens <= 2;
    lower_pattern(w, &s);
    if (mma) {
        /* For one token the gather is as fast, and takes any dtype. */
        if (s.tokens < 2 || target->arch < 80 || !narrow || o->x_dtype != w->dtype || !choose_mma_step(&s)) return false;
    } else {
        /* Short steps where many tokens want the registers, and where a row block is shared by many warps. */
        bool one = s.tokens == 1, at_once = one && choose_blocks(w, target, &s);
        if (one && s.blocks < 3) prefer_numbers(&s);
        choose_gather_step(&s, one ? at_once && s.blocks == 1 : s.tokens > 8 || has_few_rows(w, target));
    }
    s.value_loads = divide_up(s.slots * s.value_bytes, 16);
    s.index_words = index_words(&s, s.slots);
    s.step_bytes = bytes_of_step(&s, s.slots);
    if (s.index != LAC_VECTOR_INDEX_COLUMNS) {
        int64_t groups = divide_up(w->geometry.k, s.group_inputs);
        s.steps = mma ? divide_up(groups, 4 * s.unit_groups) : (int64_t)divide_up(groups, s.step_groups) * s.group_steps;
    }
    if (!mma && s.tokens == 1) {
        choose_k_warps(w, &s);
    } else {
        choose_warps(w, target, &s);
        choose_split(w, target, &s);
    }
    if (!choose_chunks(w, target, &s) || !lac_tiles_fit_int(s.chunks, s.chunk_inputs)) return false;
    *out = s;
    return true;
}
