/* vector.cu - few tokens: Y = W X by streaming the weight once and gathering x from shared memory. Requested by cuda/vector.c.
 *
 * Preconditions: the weight is re-tiled as cuda/vector_tile.c describes; m == LAC_TOKENS; the grid has ceil(row blocks /
 * LAC_ROW_WARPS) x LAC_SPLIT blocks, of which LAC_SPLIT in a row have the same rows and form a cluster; with LAC_ROUNDS > 1 (one token)
 * it has fewer, and block b goes on with the rows of block b + gridDim.x.
 *
 * Thread to data: a lane is a stored row, a warp 32 of them, a step LAC_STEP_GROUPS groups of M inputs (or, of a large group,
 * one of LAC_GROUP_STEPS parts). All lanes of a warp work inside the same group: for M <= 32 their reads of x hit different
 * banks or the same word, so the gather has no bank conflicts, and nothing is exchanged between lanes.
 *
 * Shared memory:  x chunk  [word_count planes][LAC_CHUNK_INPUTS] words, or [LAC_CHUNK_INPUTS][word_count] with a shared index
 *                 then, in its place (behind it with several rounds), sums [round][warp][LAC_TOKENS][32 rows]
 * A word is one token in fp32 (LAC_X_WIDE) or two tokens in 16 bits.
 *
 * Bottleneck: device memory for 1 to 4 tokens; then reads of x from shared memory and issue slots. */
#include "shared_access.cuh"
#include "vector.cuh"

#if LAC_X_WIDE
constexpr int word_count = LAC_TOKENS;
#else
constexpr int word_count = (LAC_TOKENS + 1) / 2;
#endif
/* Words from one input to the next, and from one plane to the next. */
constexpr int input_stride = LAC_INDEX_SHARED ? (word_count <= 2 ? word_count : (word_count + 3) / 4 * 4) : 1;
constexpr int plane_stride = LAC_INDEX_SHARED ? 1 : LAC_CHUNK_INPUTS;
constexpr int step_words = LAC_STEP_GROUPS * LAC_GROUP_INPUTS * input_stride;

__device__ __forceinline__ float value_of(const step_data &d, int slot)
{
#if LAC_W_DTYPE == LAC_F32
    return __uint_as_float(d.values[slot]);
#else
    const u32 pair = d.values[slot / 2];
    return lac_widen<LAC_W_DTYPE>((u16)(slot & 1 ? pair >> 16 : pair));
#endif
}

/* sums += value * x[every token] of the input whose first word lies at `at` in shared memory. */
__device__ __forceinline__ void multiply(float (&sums)[LAC_TOKENS], float value, u32 at)
{
    u32 words[(word_count + 3) / 4 * 4];
#pragma unroll
    for (int i = 0; i < word_count; ++i) {
        if (input_stride >= 4) {
            if (i % 4) continue;
            const uint4 v = lac_shared_load_16(at + i * 4);
            words[i] = v.x, words[i + 1] = v.y, words[i + 2] = v.z, words[i + 3] = v.w;
        } else if (input_stride == 2) {
            if (i % 2) continue;
            const uint2 v = lac_shared_load_8(at + i * 4);
            words[i] = v.x, words[i + 1] = v.y;
        } else {
            words[i] = lac_shared_load(at + i * (plane_stride * 4));
        }
    }
#pragma unroll
    for (int t = 0; t < LAC_TOKENS; ++t) {
#if LAC_X_WIDE
        sums[t] = fmaf(value, __uint_as_float(words[t]), sums[t]);
#else
        const u32 pair = words[t / 2];
        sums[t] = fmaf(value, lac_widen<LAC_X_DTYPE>((u16)(t & 1 ? pair >> 16 : pair)), sums[t]);
#endif
    }
}

/* `x` is where the step's first group lies in shared memory. */
__device__ __forceinline__ void multiply_step(float (&sums)[2][LAC_TOKENS], const step_data &d, u32 x)
{
    constexpr int input_bytes = input_stride * 4;
    /* Groups of 2^i inputs begin at multiples of their size: a bit can be set where a number would have to be added. */
    constexpr bool whole_groups = LAC_TOKENS == 1 && LAC_INDEX_KIND == 1 && (LAC_GROUP_INPUTS & (LAC_GROUP_INPUTS - 1)) == 0 && LAC_GROUP_INPUTS <= 256;
#if LAC_INDEX_KIND == 2
    u32 left[LAC_STEP_GROUPS];
#pragma unroll
    for (int g = 0; g < LAC_STEP_GROUPS; ++g) left[g] = index_field(d, g * LAC_GROUP_INPUTS, LAC_GROUP_INPUTS, 0);
#pragma unroll
    for (int slot = 0; slot < LAC_GROUP_SLOTS; ++slot) {
#pragma unroll
        for (int g = 0; g < LAC_STEP_GROUPS; ++g) {
            /* Kept inputs are stored from the last to the first: the highest bit is one instruction away. */
            const u32 input = 31 - __clz(left[g]);
            left[g] ^= 1u << input;
            multiply(sums[g & 1], value_of(d, g * LAC_GROUP_SLOTS + slot),
                     x + input * input_bytes + g * (LAC_GROUP_INPUTS * input_bytes));
        }
    }
#else
#pragma unroll
    for (int slot = 0; slot < LAC_SLOTS; ++slot) {
        const int group = LAC_INDEX_KIND == 3 ? 0 : slot / LAC_GROUP_SLOTS;
        u32 at; /* of the input, were its group the first of the step */
        if (LAC_INDEX_KIND == 0)
            at = x + slot % LAC_GROUP_SLOTS * input_bytes;
        else if (input_bytes == 4 && whole_groups)
            at = x | index_field(d, slot * entry_bits, entry_bits, 2);
        else if (input_bytes == 4 && entry_bits <= 30)
            at = x + index_field(d, slot * entry_bits, entry_bits, 2);
        else
            at = x + index_field(d, slot * entry_bits, entry_bits, 0) * input_bytes;
        multiply(sums[slot & 1], value_of(d, slot), at + group * (LAC_GROUP_INPUTS * input_bytes));
    }
#endif
}

/* The word of shared memory for plane `plane` of stored column `column`. */
__device__ __forceinline__ u32 x_word(const lac_gpu_call &call, const lac_vector_weight &w, int plane, int column)
{
#if LAC_X_WIDE
    return __float_as_uint(lac_widen<LAC_X_DTYPE>(x_at(call, w, plane, column)));
#else
    const u32 low = x_at(call, w, 2 * plane, column);
    const u32 high = 2 * plane + 1 < LAC_TOKENS ? x_at(call, w, 2 * plane + 1, column) : 0;
    return low | high << 16;
#endif
}

/* The columns of one run of 16 bytes of X, the words of a plane. */
constexpr int run = 16 / (int)sizeof(x_element);

/* Whether runs of columns lie together, in X and in shared memory: one token does in either layout, where `ldx` says so. */
#define LAC_X_RUNS (!LAC_HAS_COL_PERM && (LAC_TOKENS == 1 || (LAC_X_TOKEN_MAJOR && !LAC_INDEX_SHARED)))

#if LAC_X_RUNS
__device__ __forceinline__ void load_run(const lac_gpu_call &call, int plane, i64 column, u32 (&words)[run])
{
#if LAC_X_WIDE
    const uint4 v = *(const uint4 *)((const x_element *)call.x + plane * call.ldx + column);
    const u32 from[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < run; ++j) {
#if LAC_X_DTYPE == LAC_F32
        words[j] = from[j];
#else
        words[j] = __float_as_uint(lac_widen<LAC_X_DTYPE>((u16)(j & 1 ? from[j / 2] >> 16 : from[j / 2])));
#endif
    }
#else
    const uint4 v = *(const uint4 *)((const x_element *)call.x + 2 * plane * call.ldx + column);
    uint4 u = {0, 0, 0, 0};
    if (2 * plane + 1 < LAC_TOKENS) u = *(const uint4 *)((const x_element *)call.x + (2 * plane + 1) * call.ldx + column);
    const u32 low[4] = {v.x, v.y, v.z, v.w}, high[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
    for (int j = 0; j < run; ++j) words[j] = __byte_perm(low[j / 2], high[j / 2], j & 1 ? 0x7632 : 0x5410);
#endif
}
#endif

/* Columns [first, first + LAC_CHUNK_INPUTS) of every token into shared memory. */
__device__ __forceinline__ void stage_x(const lac_gpu_call &call, const lac_vector_weight &w, u32 *x, int first)
{
    int done = 0; /* columns that came in runs */
#if LAC_X_RUNS
    const bool aligned = (((u64)call.x + first * sizeof(x_element)) & 15) == 0 && (LAC_TOKENS == 1 || call.ldx % run == 0);
    if (LAC_CHUNK_INPUTS % 4 == 0 && aligned && (LAC_X_TOKEN_MAJOR || call.ldx == 1)) {
        const int left = w.cols - first, runs = (left < LAC_CHUNK_INPUTS ? left : LAC_CHUNK_INPUTS) / run;
        const int begin = first_piece(runs);
        done = runs * run;
#pragma unroll
        for (int plane = 0; plane < word_count; ++plane) {
#pragma unroll 4
            for (int i = threadIdx.x; i < runs; i += LAC_THREADS) {
                const int piece = i + begin < runs ? i + begin : i + begin - runs;
                u32 words[run];
                load_run(call, plane, first + piece * run, words);
                uint4 *to = (uint4 *)(x + plane * plane_stride + piece * run);
                to[0] = make_uint4(words[0], words[1], words[2], words[3]);
                if (run == 8) to[1] = make_uint4(words[run - 4], words[run - 3], words[run - 2], words[run - 1]);
            }
        }
    }
#endif
#if LAC_INDEX_SHARED
#if LAC_TOKENS == 1
#pragma unroll 4
#endif
    for (int column = done + threadIdx.x; column < LAC_CHUNK_INPUTS; column += LAC_THREADS) {
#pragma unroll
        for (int plane = 0; plane < word_count; ++plane) x[column * input_stride + plane] = x_word(call, w, plane, first + column);
    }
#else
    const int rest = LAC_CHUNK_INPUTS - done;
#pragma unroll (LAC_X_RUNS && LAC_TOKENS == 1 ? 2 : 8)
    for (int i = threadIdx.x; i < rest * word_count; i += LAC_THREADS) {
#if LAC_X_TOKEN_MAJOR
        const int plane = i / rest, column = done + i % rest;
#else
        const int plane = i % word_count, column = done + i / word_count;
#endif
        x[plane * plane_stride + column] = x_word(call, w, plane, first + column);
    }
#endif
}

/* Where the first group of step `step` of the chunk lies. */
__device__ __forceinline__ u32 step_x(u32 x, int step)
{
    return LAC_INDEX_KIND == 3 ? x : x + step / LAC_GROUP_STEPS * (step_words * 4);
}

#if LAC_TOKENS == 1
/* Where a warp stands in its stream: its steps of a chunk of a row block one behind the other, then those of its next row block. */
struct walk {
    i64 first; /* tile of the row block and chunk */
    int step, round;
};

/* Whether the walk has come to its end. `steps` are those of the chunk, the same in every round. */
__device__ __forceinline__ bool ended(const walk &at, int steps) { return LAC_ROUNDS > 1 ? at.round < 0 : at.step >= steps; }

/* One step on, and where that leaves the row block, to the next one; -1 when there is none. */
__device__ __forceinline__ void advance(walk &at, const lac_vector_weight &w, int steps)
{
    at.step += LAC_K_WARPS;
    if (LAC_ROUNDS == 1 || at.step < steps) return;
    const int row_block = (int)first_row_block(++at.round) + threadIdx.x / 32 / LAC_K_WARPS;
    at.step = threadIdx.x / 32 % LAC_K_WARPS;
    at.first += (i64)(gridDim.x / LAC_SPLIT) * LAC_ROW_WARPS * w.steps;
    if (at.round == LAC_ROUNDS || row_block * 32 >= w.rows) at.round = -1;
}
#endif

/* The sums of a row block to where reduce_and_store looks for them; they begin anew. */
__device__ __forceinline__ void put_sums(float (&sums)[2][LAC_TOKENS], float *partial, int round)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int t = 0; t < LAC_TOKENS; ++t) {
        partial[((round * (LAC_THREADS / 32) + warp) * LAC_TOKENS + t) * 32 + lane] = sums[0][t] + sums[1][t];
        sums[0][t] = sums[1][t] = 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(LAC_THREADS, LAC_BLOCKS)
    lac_vector(const __grid_constant__ lac_gpu_call call, const __grid_constant__ lac_vector_weight w)
{
    extern __shared__ __align__(1024) u32 memory[];
    const u32 x = lac_shared_address(memory);
    /* With several rounds x is needed to the end, and every warp's part of every round must be there. */
    float *partial = (float *)(memory + (LAC_ROUNDS > 1 ? LAC_CHUNK_INPUTS : 0));
    float sums[2][LAC_TOKENS] = {};
    lac_let_next_begin();
    if (LAC_ROUNDS > 1)
        for (int round = 0; round < LAC_ROUNDS; ++round) put_sums(sums, partial, round);

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int chunk = split_rank(); chunk < w.chunks; chunk += LAC_SPLIT) {
        i64 first, end;
        chunk_tiles(w, first_row_block(0) + warp / LAC_K_WARPS, chunk, first, end);
        /* The first weights are on their way while x is brought, and before what is to make x has ended. */
#if LAC_TOKENS == 1
        const int steps = (int)(end - first);
        walk at = {first, warp % LAC_K_WARPS, warp % LAC_K_WARPS < steps ? 0 : -1}, ahead = at;
        step_data ring[LAC_DEPTH];
#pragma unroll
        for (int i = 0; i < LAC_DEPTH; ++i) {
            if (ended(ahead, steps)) continue;
            load_step(ring[i], w, ahead.first + ahead.step, lane);
            advance(ahead, w, steps);
        }
#else
        step_data even, odd;
        i64 tile = first + warp % LAC_K_WARPS;
        if (tile < end) load_step(even, w, tile, lane);
        if (tile + LAC_K_WARPS < end) load_step(odd, w, tile + LAC_K_WARPS, lane);
#endif
        if (chunk >= LAC_SPLIT)
            __syncthreads();
        else
            lac_wait_for_inputs();
        stage_x(call, w, memory, chunk * LAC_CHUNK_INPUTS);
        __syncthreads();
#if LAC_TOKENS == 1
        while (!ended(at, steps)) {
#pragma unroll
            for (int i = 0; i < LAC_DEPTH; ++i) {
                if (ended(at, steps)) break;
                multiply_step(sums, ring[i], step_x(x, at.step));
                if (!ended(ahead, steps)) {
                    load_step(ring[i], w, ahead.first + ahead.step, lane);
                    advance(ahead, w, steps);
                }
                const int round = at.round;
                advance(at, w, steps);
                if (LAC_ROUNDS > 1 && at.round != round) put_sums(sums, partial, round);
            }
        }
#else /* two steps by name: with 2 to 6 tokens the ring above took up to 16% longer */
        for (; tile < end; tile += 2 * LAC_K_WARPS) {
            multiply_step(sums, even, step_x(x, (int)(tile - first)));
            if (tile + 2 * LAC_K_WARPS < end) load_step(even, w, tile + 2 * LAC_K_WARPS, lane);
            if (tile + LAC_K_WARPS >= end) break;
            multiply_step(sums, odd, step_x(x, (int)(tile - first) + LAC_K_WARPS));
            if (tile + 3 * LAC_K_WARPS < end) load_step(odd, w, tile + 3 * LAC_K_WARPS, lane);
        }
#endif
    }

    if (w.chunks <= split_rank()) lac_wait_for_inputs();
    if (LAC_ROUNDS == 1) {
        __syncthreads();
        put_sums(sums, partial, 0);
    }
    reduce_and_store(call, w, partial);
}
