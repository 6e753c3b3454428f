/* vector_mma.cu - few tokens in 16 bits on tensor cores: the weight is streamed once, and each lane spreads its own kept
 * weights into dense fragments. Requested by cuda/vector.c, where the gather of vector.cu would be bound by shared memory.
 *
 * Preconditions: those of vector.cu; W and X have the same 16-bit dtype; sm_80 or later; index packed or bitmask.
 *
 * Thread to data: the order of k inside an mma is free as long as both operands agree. Of a step of 4 units (a unit is
 * LAC_UNIT_GROUPS groups, padded to unit_inputs, a multiple of 4) lane 4g+t takes unit t of the rows g, g+8, g+16 and g+24,
 * whole: in mma j its four places of k are inputs 4j to 4j+3 of its unit. So a lane needs nobody's weights but its own: it
 * stores its kept halves at their places in a strip of shared memory of its own (bank = lane, no conflicts, no barrier),
 * loads the strip back as words, which are the fragments, and clears it.
 *
 *     strip of a warp   [2 rows][unit_inputs / 2 words][32 lanes]
 *     x chunk           [step][mma j][8 tokens a tile][lane, turned][8 bytes]: the fragments of X as they are loaded
 *     sums              [warp][LAC_TOKENS][32 rows], in the place of x
 *
 * Bottleneck: device memory; then shared memory, which carries unit_inputs / 2 words and 2 to 3 stores of a kept weight. */
#include "mma.cuh"
#include "shared_access.cuh"
#include "vector.cuh"

constexpr int group_inputs = LAC_UNIT_GROUPS * LAC_GROUP_INPUTS; /* of a unit, without padding */
constexpr int unit_inputs = (group_inputs + 3) / 4 * 4;
constexpr int unit_slots = LAC_UNIT_GROUPS * LAC_GROUP_SLOTS;
constexpr int unit_mmas = unit_inputs / 4;
constexpr int token_tiles = (LAC_TOKENS + 7) / 8;
constexpr int strip_bytes = unit_inputs / 2 * 128; /* of one row of a warp */
constexpr int step_words = unit_mmas * token_tiles * 64;
/* Fewer stores clear what was stored or the whole strip. */
constexpr bool clear_words = unit_slots >= unit_inputs / 2;
static_assert(LAC_SLOTS == 4 * unit_slots, "a lane has one unit of four rows");

/* Rotates the lanes of a fragment of X, so that those who store it (runs of columns of one token) and those who load it (a
 * lane each) both go to different banks. */
__device__ __forceinline__ int turn_of(int step, int j) { return (j + (step & 1) + (step >> 1 & 1) * 4 + (step >> 2 & 1) * 2 & 7) * 4; }

/* The word where inputs 4j to 4j+3 of unit t of a step lie for a token. */
__device__ __forceinline__ int x_place(int step, int j, int token, int t)
{
    return step * step_words + (j * token_tiles + token / 8) * 64 + ((token % 8 * 4 + t) ^ turn_of(step, j)) * 2;
}

/* Where the halves of row `r` of the lane's four go in its strip. */
__device__ __forceinline__ void find_places(const step_data &d, int r, u32 strip, u32 (&places)[unit_slots])
{
#if LAC_INDEX_KIND == 2
#pragma unroll
    for (int g = 0; g < LAC_UNIT_GROUPS; ++g) {
        u32 left = index_field(d, (r * LAC_UNIT_GROUPS + g) * LAC_GROUP_INPUTS, LAC_GROUP_INPUTS, 0);
#pragma unroll
        for (int s = 0; s < LAC_GROUP_SLOTS; ++s) {
            const u32 input = 31 - __clz(left);
            left ^= 1u << input;
            const u32 at = LAC_GROUP_INPUTS % 2 ? input + g * LAC_GROUP_INPUTS : input;
            places[g * LAC_GROUP_SLOTS + s] = strip + ((at >> 1) << 7) + ((at & 1) << 1) + (LAC_GROUP_INPUTS % 2 ? 0 : g * LAC_GROUP_INPUTS * 64);
        }
    }
#else
#pragma unroll
    for (int s = 0; s < unit_slots; ++s) {
        const int first = (r * unit_slots + s) * entry_bits, base = s / LAC_GROUP_SLOTS * LAC_GROUP_INPUTS;
        if (LAC_GROUP_INPUTS % 2) {
            const u32 at = index_field(d, first, entry_bits, 0) + base;
            places[s] = strip + ((at >> 1) << 7) + ((at & 1) << 1);
        } else {
            places[s] = (index_field(d, first, 1, 1) | index_field(d, first + 1, entry_bits - 1, 7)) + strip + base * 64;
        }
    }
#endif
}

/* `x` is the chunk's. */
__device__ __forceinline__ void multiply_step(float (&sums)[2][token_tiles][4], const step_data &d, const u32 *x, int step, u32 strip,
                                              int lane)
{
    uint2 b[unit_mmas][token_tiles];
#pragma unroll
    for (int j = 0; j < unit_mmas; ++j)
#pragma unroll
        for (int n = 0; n < token_tiles; ++n) b[j][n] = *(const uint2 *)(x + x_place(step, j, n * 8 + lane / 4, lane % 4));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        u32 places[2][unit_slots];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            find_places(d, 2 * half + r, strip + r * strip_bytes, places[r]);
#pragma unroll
            for (int s = 0; s < unit_slots; ++s) {
                const int slot = (2 * half + r) * unit_slots + s;
                const u32 pair = d.values[slot / 2];
                lac_shared_store_half(places[r][s], (u16)(slot & 1 ? pair >> 16 : pair));
            }
        }
#pragma unroll
        for (int j = 0; j < unit_mmas; ++j) {
            const u32 at = strip + j * 256;
            const u32 a0 = lac_shared_load(at), a2 = lac_shared_load(at + 128);
            const u32 a1 = lac_shared_load(at + strip_bytes), a3 = lac_shared_load(at + strip_bytes + 128);
#pragma unroll
            for (int n = 0; n < token_tiles; ++n) lac_mma_16x8x16<LAC_W_DTYPE>(sums[half][n], a0, a1, a2, a3, b[j][n].x, b[j][n].y);
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            if (clear_words) {
#pragma unroll
                for (int i = 0; i < unit_inputs / 2; ++i) lac_shared_store(strip + r * strip_bytes + i * 128, 0);
            } else {
#pragma unroll
                for (int s = 0; s < unit_slots; ++s) lac_shared_store_half(places[r][s], 0);
            }
        }
    }
}

/* Columns [column, column + 4) of a token's unit, zeros past the unit and past the last column. */
__device__ __forceinline__ uint2 x_quad(const lac_gpu_call &call, const lac_vector_weight &w, int token, int column, int left)
{
    u32 e[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) e[c] = c < left ? x_at(call, w, token, column + c) : 0;
    return make_uint2(e[0] | e[1] << 16, e[2] | e[3] << 16);
}

/* The chunk's columns of every token, in the order of fragments. What tokens past the last hold is never stored. */
__device__ __forceinline__ void stage_x(const lac_gpu_call &call, const lac_vector_weight &w, u32 *x, int first)
{
#if LAC_X_TOKEN_MAJOR && !LAC_HAS_COL_PERM
    if (group_inputs % 8 == 0 && ((u64)call.x & 15) == 0 && call.ldx % 8 == 0 && w.cols % 8 == 0) {
        /* 16 bytes a load, and neighbours side by side. */
        constexpr int pieces = LAC_CHUNK_INPUTS / 8, total = pieces * LAC_TOKENS;
        const int begin = first_piece(total);
#pragma unroll 4
        for (int i = threadIdx.x; i < total; i += LAC_THREADS) {
            const int piece = i + begin < total ? i + begin : i + begin - total;
            const int token = piece / pieces, column = piece % pieces * 8;
            uint4 v = {0, 0, 0, 0};
            if (first + column < w.cols) v = *(const uint4 *)((const u16 *)call.x + token * call.ldx + first + column);
            const int unit = column / group_inputs, j = column % group_inputs / 4;
            *(uint2 *)(x + x_place(unit / 4, j, token, unit % 4)) = make_uint2(v.x, v.y);
            *(uint2 *)(x + x_place(unit / 4, j + 1, token, unit % 4)) = make_uint2(v.z, v.w);
        }
        return;
    }
#endif
    for (int i = threadIdx.x; i < LAC_CHUNK_STEPS * 4 * LAC_TOKENS; i += LAC_THREADS) {
        const int token = i % LAC_TOKENS, unit = i / LAC_TOKENS;
        const int column = first + unit * group_inputs;
#pragma unroll
        for (int j = 0; j < unit_mmas; ++j)
            *(uint2 *)(x + x_place(unit / 4, j, token, unit % 4)) = x_quad(call, w, token, column + 4 * j, group_inputs - 4 * j);
    }
}

extern "C" __global__ void __launch_bounds__(LAC_THREADS, LAC_BLOCKS)
    lac_vector_mma(const __grid_constant__ lac_gpu_call call, const __grid_constant__ lac_vector_weight w)
{
    extern __shared__ __align__(1024) u32 memory[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k_warp = warp % LAC_K_WARPS;
    const i64 row_block = (i64)(blockIdx.x / LAC_SPLIT) * LAC_ROW_WARPS + warp / LAC_K_WARPS;
    const u32 strip = lac_shared_address(memory) + warp * (2 * strip_bytes) + lane * 4;
    u32 *x = memory + LAC_THREADS / 32 * (2 * strip_bytes) / 4;
    float sums[2][token_tiles][4] = {};
#pragma unroll
    for (int i = 0; i < unit_inputs; ++i) lac_shared_store(strip + i * 128, 0);

    for (int chunk = split_rank(); chunk < w.chunks; chunk += LAC_SPLIT) {
        i64 first, end;
        chunk_tiles(w, row_block, chunk, first, end);
        /* The first weights are on their way while x is brought. */
        step_data even, odd;
        i64 tile = first + k_warp;
        if (tile < end) load_step(even, w, tile, lane);
        if (tile + LAC_K_WARPS < end) load_step(odd, w, tile + LAC_K_WARPS, lane);
        if (chunk >= LAC_SPLIT) __syncthreads();
        stage_x(call, w, x, chunk * LAC_CHUNK_INPUTS);
        __syncthreads();
        for (; tile < end; tile += 2 * LAC_K_WARPS) {
            multiply_step(sums, even, x, (int)(tile - first), strip, lane);
            if (tile + 2 * LAC_K_WARPS < end) load_step(even, w, tile + 2 * LAC_K_WARPS, lane);
            if (tile + LAC_K_WARPS >= end) break;
            multiply_step(sums, odd, x, (int)(tile - first) + LAC_K_WARPS, strip, lane);
            if (tile + 3 * LAC_K_WARPS < end) load_step(odd, w, tile + 3 * LAC_K_WARPS, lane);
        }
    }

    __syncthreads();
    float *partial = (float *)x;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < token_tiles; ++n)
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int row = half * 16 + c / 2 * 8 + lane / 4, token = n * 8 + lane % 4 * 2 + c % 2;
                if (token < LAC_TOKENS) partial[(warp * LAC_TOKENS + token) * 32 + row] = sums[half][n][c];
            }
    reduce_and_store(call, w, partial);
}
