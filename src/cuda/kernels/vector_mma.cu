/* vector_mma.cu - few tokens in 16 bits on tensor cores: the weight is streamed once. Requested by cuda/vector.c, where the
 * gather of vector.cu would be bound by shared memory and issue slots.
 *
 * Preconditions: those of vector.cu; W and X have the same 16-bit dtype; sm_80 or later; index packed or bitmask.
 *
 * Two ways from kept weights to the fragments of an mma:
 *
 * LAC_DIRECT, for 2 of 4 inputs (and 1 of 4, 1 of 2): the stream holds the fragments of the sparse mma as they are, and its
 * metadata as the index. A step is 128 inputs.
 *
 * Otherwise each lane spreads its own kept weights into dense fragments. The order of k inside an mma is free as long as both
 * operands agree. Of a step of 4 units (a unit is LAC_UNIT_GROUPS groups, padded to unit_inputs, a multiple of 8) lane 4g+t
 * takes unit t of the rows g, g+8, g+16 and g+24, whole: in mma j its four places of k are inputs 4j to 4j+3 of its unit. So a
 * lane needs nobody's weights but its own: it stores its kept halves at their places in a strip of shared memory of its own
 * (bank = lane, no conflicts, no barrier), loads the strip back as words, which are the fragments, and clears it.
 *
 *     strip of a warp   [2 rows][unit_inputs / 2 words][32 lanes]; none when direct
 *     x chunk           [LAC_TOKENS][places], in runs of 16 bytes that are swizzled (x_place), a run of padding a token
 *     sums              [warp][LAC_TOKENS][32 rows], in the place of x
 *
 * X is copied in four parts, of which the first is waited for before the first product.
 *
 * Bottleneck: device memory; of spreading, shared memory, which carries unit_inputs / 2 words and 2 to 3 stores of a kept
 * weight. */
#include "mma.cuh"
#include "shared_access.cuh"
#include "vector.cuh"

constexpr int token_tiles = (LAC_TOKENS + 7) / 8;
#if LAC_DIRECT
constexpr int strip_bytes = 0;
constexpr int step_places = 128, step_columns = 128;
#else
constexpr int group_inputs = LAC_UNIT_GROUPS * LAC_GROUP_INPUTS; /* of a unit, without padding */
constexpr int unit_inputs = (group_inputs + 7) / 8 * 8;
constexpr int unit_slots = LAC_UNIT_GROUPS * LAC_GROUP_SLOTS;
constexpr int unit_mmas = unit_inputs / 4;
constexpr int strip_bytes = unit_inputs / 2 * 128; /* of one row of a warp */
constexpr int step_places = 4 * unit_inputs, step_columns = 4 * group_inputs;
/* Fewer stores clear what was stored or the whole strip; the places of what was stored take registers. */
constexpr bool clear_words = unit_slots >= unit_inputs / 2 || token_tiles > 1;
constexpr bool keeps_x = unit_mmas * token_tiles <= 8;
static_assert(LAC_SLOTS == 4 * unit_slots, "a lane has one unit of four rows");
#endif
constexpr int token_bytes = LAC_CHUNK_STEPS * step_places * 2 + 16;
/* Each warp does steps in pairs; X comes in four parts of so many pairs. */
constexpr int pairs = (LAC_CHUNK_STEPS + 2 * LAC_K_WARPS - 1) / (2 * LAC_K_WARPS);
constexpr int part_pairs = (pairs + 3) / 4;
constexpr int part_runs = part_pairs * 2 * LAC_K_WARPS * step_places / 8;

/* Where run `run` of 8 places of a token lies, in bytes. Rows of tokens are apart by an odd number of runs, and the turn of
 * every other eight runs keeps the lanes of a quad apart: loads of 16 bytes a lane have no bank conflicts. */
__device__ __forceinline__ int x_place(int token, int run) { return token * token_bytes + (run ^ (run >> 2 & 2)) * 16; }

#if !LAC_DIRECT
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
#endif

#if !LAC_DIRECT
/* Of the lane's unit of every token 16 bytes: X for mmas 2j and 2j+1. */
__device__ __forceinline__ void load_fragments(uint4 (&b)[token_tiles], u32 x, const int (&token)[token_tiles], int step, int j, int lane)
{
#pragma unroll
    for (int n = 0; n < token_tiles; ++n)
        b[n] = lac_shared_load_16(x + x_place(token[n], (step * 4 + lane % 4) * (unit_inputs / 8) + j));
}
#endif

/* `x` is the chunk's, in shared memory. */
__device__ __forceinline__ void multiply_step(float (&sums)[2][token_tiles][4], const step_data &d, u32 x, int step, u32 strip,
                                              int lane)
{
    int token[token_tiles]; /* of this lane in B; past the last one any will do */
#pragma unroll
    for (int n = 0; n < token_tiles; ++n) token[n] = n * 8 + lane / 4 < LAC_TOKENS ? n * 8 + lane / 4 : LAC_TOKENS - 1;
#if LAC_DIRECT
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        u32 b[token_tiles][4];
#pragma unroll
        for (int n = 0; n < token_tiles; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) b[n][i] = lac_shared_load(x + x_place(token[n], step * 16 + k * 4 + i) + lane % 4 * 4);
        const u32 *a = d.values + 8 * k;
#pragma unroll
        for (int n = 0; n < token_tiles; ++n) {
            lac_mma_sparse_16x8x32<LAC_W_DTYPE, 0>(sums[0][n], a[0], a[1], a[2], a[3], b[n], d.index[k]);
            lac_mma_sparse_16x8x32<LAC_W_DTYPE, 1>(sums[1][n], a[4], a[5], a[6], a[7], b[n], d.index[k]);
        }
    }
#else
    /* Fragments of X serve both halves of the rows where registers allow it. */
    uint4 b[keeps_x ? unit_mmas / 2 : 1][token_tiles];
#pragma unroll
    for (int j = 0; keeps_x && j < unit_mmas / 2; ++j) load_fragments(b[j], x, token, step, j, lane);
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
            if (!keeps_x && j % 2 == 0) load_fragments(b[0], x, token, step, j / 2, lane);
            const u32 at = strip + j * 256;
            const u32 a0 = lac_shared_load(at), a2 = lac_shared_load(at + 128);
            const u32 a1 = lac_shared_load(at + strip_bytes), a3 = lac_shared_load(at + strip_bytes + 128);
#pragma unroll
            for (int n = 0; n < token_tiles; ++n) {
                const uint4 &v = b[keeps_x ? j / 2 : 0][n];
                lac_mma_16x8x16<LAC_W_DTYPE>(sums[half][n], a0, a1, a2, a3, j & 1 ? v.z : v.x, j & 1 ? v.w : v.y);
            }
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
#endif
}

/* The column of place `place` of the chunk; -1 where a unit is padded. */
__device__ __forceinline__ int column_of(int place)
{
#if LAC_DIRECT
    return place;
#else
    const int input = place % unit_inputs;
    return input < group_inputs ? place / unit_inputs * group_inputs + input : -1;
#endif
}

/* Part `part` of the chunk's columns of every token: copies that go on after it returns where X is aligned, else done. */
__device__ __forceinline__ void stage_x(const lac_gpu_call &call, const lac_vector_weight &w, u8 *x, int first, int part)
{
    constexpr int runs = LAC_CHUNK_STEPS * step_places / 8;
    const int begin = part * part_runs, count = begin + part_runs < runs ? part_runs : runs - begin;
#if LAC_X_TOKEN_MAJOR && !LAC_HAS_COL_PERM
    const bool aligned = step_places == step_columns && ((u64)call.x & 15) == 0 && call.ldx % 8 == 0 && w.cols % 8 == 0;
#else
    const bool aligned = false;
#endif
    for (int i = threadIdx.x; i < count * LAC_TOKENS; i += LAC_THREADS) {
#if LAC_X_TOKEN_MAJOR
        const int token = i / count, run = begin + i % count;
#else
        const int token = i % LAC_TOKENS, run = begin + i / LAC_TOKENS;
#endif
        uint4 *to = (uint4 *)(x + x_place(token, run));
        if (aligned && first + run * 8 < w.cols) {
            lac_copy_16<0>(lac_shared_address(to), (const u16 *)call.x + token * call.ldx + first + run * 8);
            continue;
        }
        u32 e[8];
#pragma unroll
        for (int c = 0; c < 8; ++c) {
            const int column = column_of(run * 8 + c);
            e[c] = column < 0 ? 0 : x_at(call, w, token, first + column);
        }
        *to = make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16);
    }
    lac_copy_commit();
}

__device__ __forceinline__ void wait_for_part(int part)
{
    if (part == 0)
        lac_copy_wait<3>();
    else if (part == 1)
        lac_copy_wait<2>();
    else if (part == 2)
        lac_copy_wait<1>();
    else
        lac_copy_wait<0>();
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(LAC_THREADS, LAC_BLOCKS)
    lac_vector_mma(const __grid_constant__ lac_gpu_call call, const __grid_constant__ lac_vector_weight w)
{
    extern __shared__ __align__(1024) u32 memory[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k_warp = warp % LAC_K_WARPS;
    const i64 row_block = (i64)(blockIdx.x / LAC_SPLIT) * LAC_ROW_WARPS + warp / LAC_K_WARPS;
    const u32 strip = lac_shared_address(memory) + warp * (2 * strip_bytes) + lane * 4;
    u8 *x = (u8 *)memory + LAC_THREADS / 32 * (2 * strip_bytes);
    const u32 x_address = lac_shared_address(x);
    float sums[2][token_tiles][4] = {};
#pragma unroll
    for (int i = 0; i < strip_bytes / 64; ++i) lac_shared_store(strip + i * 128, 0);
    lac_let_next_begin();

    for (int chunk = split_rank(); chunk < w.chunks; chunk += LAC_SPLIT) {
        i64 first, end;
        chunk_tiles(w, row_block, chunk, first, end);
        /* The first weights are on their way while x is brought, and before what is to make x has ended. */
        step_data even, odd;
        if (first + k_warp < end) load_step(even, w, first + k_warp, lane);
        if (first + k_warp + LAC_K_WARPS < end) load_step(odd, w, first + k_warp + LAC_K_WARPS, lane);
        if (chunk >= LAC_SPLIT)
            __syncthreads();
        else
            lac_wait_for_inputs();
        for (int part = 0; part < 4; ++part) stage_x(call, w, x, chunk * (LAC_CHUNK_STEPS * step_columns), part);
        for (int pair = 0; pair < pairs; ++pair) {
            if (pair % part_pairs == 0) wait_for_part(pair / part_pairs);
            const int step = pair * (2 * LAC_K_WARPS) + k_warp;
            const i64 tile = first + step;
            if (tile < end) multiply_step(sums, even, x_address, step, strip, lane);
            if (tile + 2 * LAC_K_WARPS < end) load_step(even, w, tile + 2 * LAC_K_WARPS, lane);
            if (tile + LAC_K_WARPS < end) multiply_step(sums, odd, x_address, step + LAC_K_WARPS, strip, lane);
            if (tile + 3 * LAC_K_WARPS < end) load_step(odd, w, tile + 3 * LAC_K_WARPS, lane);
        }
        lac_copy_wait<0>();
    }

    if (w.chunks <= split_rank()) lac_wait_for_inputs();
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
