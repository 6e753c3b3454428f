/* expand_few.cu - up to 128 tokens in 16 bits, element-wise patterns that keep at most 8 of 32 inputs: the weight is streamed once,
 * compressed, and spread in registers to operand A of wgmma; all tokens are one product. Requested by cuda/expand_few.c.
 *
 * Preconditions: sm_90a; W and X have the same 16-bit dtype, X is token-major; weight cut by cuda/expand_few_tile.c.
 *
 * Two kernels, the second one's beginning under the first one's end. lac_few_turn writes X anew in the order in which its inputs are multiplied.
 * lac_expand_few multiplies:
 *
 *   LAC_GROUPS warpgroups   each has 64 of the block's 128 rows; two share a stage, and with four groups two pairs take turns. They wait for a
 *                           stage, spread their weights, multiply. A thread of each pair asks for X and W by bulk copies
 *
 *   stage        X [step of 16 inputs][8 tokens][2][token][16 bytes], W [warp][LAC_LANE_WORDS of a lane]
 *   shared       the table of expand_few_spread.cuh, then LAC_STAGES stages; sums [pair][token][128 + 4] in their place
 *
 * A stage is 128 inputs. A lane of A's fragment has inputs 2t, 2t+1, 2t+8 and 2t+9 of each step of 16, which would be any number of a row's
 * kept weights. But the order of inputs is free if X has the same one: lane 4g + t gets inputs 32 t to 32 t + 31 of rows g and g + 8, whole
 * groups with a known number of weights. Step s takes four of each lane's, so that a token's 16 bytes of a step are pairs of inputs 32 apart:
 *
 *   16 bytes (s, h)   inputs 4s + 2h, +1, then 32 further, 64 and 96
 *
 * and a thread that loads 16 bytes four times, 32 inputs apart, has, word by word, four of these.
 *
 * Blocks of a cluster have the same rows and neighbouring parts of k; their sums are added in a fixed order through shared memory.
 *
 * Constants beside those of every kernel:
 * LAC_TOKENS   m
 * LAC_N        tokens of a product: 16, 32, 48, 64, 96 or 128, m or more
 * LAC_WORDS    words of two kept weights of a row in 32 inputs, 1 to 4
 * LAC_GROUPS   2 or 4
 * LAC_STAGES, LAC_SPLIT (blocks of a cluster)
 *
 * Bottleneck: the integer pipes, which spread; then device memory; with 128 tokens shared memory and the tensor cores. */
#define LAC_OPERAND LAC_X_DTYPE
#include "chain.cuh"
#include "cluster.cuh"
#include "epilogue.cuh"
#include "expand_few_arguments.h"
#include "expand_few_spread.cuh"
#include "pipeline.cuh"
#include "wgmma.cuh"

#define LAC_LANE_WORDS (2 * LAC_WORDS + 2) /* values of rows g and g + 8, then their masks */
#define LAC_X_STAGE (LAC_N * 256)
#define LAC_W_STAGE (8 * LAC_LANE_WORDS * 128)
#define LAC_STAGE_BYTES (LAC_X_STAGE + LAC_W_STAGE)
#define LAC_PAIRS (LAC_GROUPS / 2)
#define LAC_THREADS (LAC_GROUPS * 128)
#define LAC_SUMS 132                       /* floats from token to token: lanes of a fragment of sums are in different banks */

static_assert(LAC_N >= LAC_TOKENS, "all tokens are in a product");

/* ---- X in the order of the products */

/* 8 inputs of a token from `input` on, one by one; zeros outside. */
__device__ __forceinline__ uint4 lac_piece_by_hand(const lac_gpu_call &call, int token, int input)
{
    const u16 *from = (const u16 *)call.x + (i64)token * call.ldx + input;
    u32 word[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (token < LAC_TOKENS && input + i < call.k) word[i >> 1] |= (u32)from[i] << 16 * (i & 1);
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* A thread has a token and 8 neighbouring inputs of each 32. Eight neighbouring lanes have neighbouring tokens, whose pieces are neighbours too. */
extern "C" __global__ void __launch_bounds__(128) lac_few_turn(const __grid_constant__ lac_gpu_call call, const __grid_constant__ lac_few_weight w)
{
    lac_let_next_begin();
    const int task = (int)(blockIdx.x * 128 + threadIdx.x), chunk = task / (LAC_N * 4), of_chunk = task % (LAC_N * 4);
    const int token = of_chunk >> 5 << 3 | (of_chunk & 7), eight = of_chunk >> 3 & 3, input = chunk * 128 + eight * 8;
    const bool plain = ((u64)call.x & 15) == 0 && call.ldx % 8 == 0 && call.k % 8 == 0;
    lac_wait_for_inputs();
    if (chunk >= w.chunks) return;
    uint4 p[4];
#pragma unroll
    for (int t = 0; t < 4; t++) {
        p[t] = make_uint4(0, 0, 0, 0);
        if (!plain)
            p[t] = lac_piece_by_hand(call, token, input + 32 * t);
        else if (token < LAC_TOKENS && input + 32 * t < call.k)
            p[t] = *(const uint4 *)((const u16 *)call.x + (i64)token * call.ldx + input + 32 * t);
    }
    u8 *to = (u8 *)call.workspace + (i64)chunk * LAC_X_STAGE + eight * (2 * LAC_N * 32) + (token >> 3) * 256 + (token & 7) * 16;
    *(uint4 *)to = make_uint4(p[0].x, p[1].x, p[2].x, p[3].x);
    *(uint4 *)(to + 128) = make_uint4(p[0].y, p[1].y, p[2].y, p[3].y);
    *(uint4 *)(to + LAC_N * 32) = make_uint4(p[0].z, p[1].z, p[2].z, p[3].z);
    *(uint4 *)(to + LAC_N * 32 + 128) = make_uint4(p[0].w, p[1].w, p[2].w, p[3].w);
}

/* ---- stages */

struct lac_ring_cursor {
    u32 slot, parity;
};

__device__ __forceinline__ void lac_cursor_next(lac_ring_cursor &c, u32 by)
{
    c.slot += by;
    if (c.slot >= LAC_STAGES) c.slot -= LAC_STAGES, c.parity ^= 1;
}

/* Where a block's chunks come from. */
struct lac_source {
    const u8 *weights, *x;
    int count;
};

/* Asks for chunk `i` of both. */
__device__ __forceinline__ void lac_ask(const lac_source &source, int i, u32 slot, u32 stages, u32 full)
{
    const u32 stage = stages + slot * LAC_STAGE_BYTES, barrier = full + 8 * slot;
    lac_barrier_expect(barrier, LAC_STAGE_BYTES);
    lac_copy_bulk(stage + LAC_X_STAGE, source.weights + (i64)i * LAC_W_STAGE, LAC_W_STAGE, barrier);
    lac_copy_bulk(stage, source.x + (i64)i * LAC_X_STAGE, LAC_X_STAGE, barrier);
}

/* For the first chunks W, which need not wait for the kernel before, and X, which must. */
__device__ __forceinline__ void lac_ask_for_first_weights(const lac_source &source, u32 stages, u32 full)
{
    for (int i = 0; i < LAC_STAGES && i < source.count; i++) {
        lac_barrier_expect(full + 8 * i, LAC_STAGE_BYTES);
        lac_copy_bulk(stages + i * LAC_STAGE_BYTES + LAC_X_STAGE, source.weights + (i64)i * LAC_W_STAGE, LAC_W_STAGE, full + 8 * i);
    }
}

__device__ __forceinline__ void lac_ask_for_first_inputs(const lac_source &source, u32 stages, u32 full)
{
    for (int i = 0; i < LAC_STAGES && i < source.count; i++)
        lac_copy_bulk(stages + i * LAC_STAGE_BYTES, source.x + (i64)i * LAC_X_STAGE, LAC_X_STAGE, full + 8 * i);
}

/* ---- products */

/* A lane's words of a stage: rows g and g + 8. */
__device__ __forceinline__ void lac_read_weights(u32 (&v)[2][4], u32 (&mask)[2], u32 part, u32 lane)
{
    u32 word[LAC_LANE_WORDS];
#pragma unroll
    for (int i = 0; i < LAC_LANE_WORDS / 4; i++) {
        const uint4 w = lac_shared_load_16(part + i * 512 + lane * 16);
        word[4 * i] = w.x, word[4 * i + 1] = w.y, word[4 * i + 2] = w.z, word[4 * i + 3] = w.w;
    }
    if (LAC_LANE_WORDS % 4) {
        const uint2 w = lac_shared_load_8(part + LAC_LANE_WORDS / 4 * 512 + lane * 8);
        word[LAC_LANE_WORDS - 2] = w.x, word[LAC_LANE_WORDS - 1] = w.y;
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int i = 0; i < 4; i++) v[r][i] = i < LAC_WORDS ? word[r * LAC_WORDS + i] : 0;
        mask[r] = word[2 * LAC_WORDS + r];
    }
}

/* The table's entries of one byte of the masks of both rows. */
template <int byte> __device__ __forceinline__ void lac_read_entries(uint4 (&entry)[2], const u32 (&mask)[2], u32 table)
{
#pragma unroll
    for (int r = 0; r < 2; r++) entry[r] = lac_shared_load_16(lac_table_entry<byte>(mask[r], table));
}

/* Two steps: the inputs of byte `byte` of the masks. `a` belongs to the tensor cores until the turn after the next one. */
template <int byte>
__device__ __forceinline__ void lac_byte_multiply(float (&sums)[LAC_N / 2], u32 (&a)[2][4], const u32 (&queue)[2][4], const uint4 (&entry)[2], u64 x)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        u32 out[4];
        lac_spread_byte<byte & 1>(out, queue[r], entry[r]);
#pragma unroll
        for (int s = 0; s < 2; s++) a[s][r] = out[2 * s], a[s][2 + r] = out[2 * s + 1];
    }
    /* Everything is spread before the first product begins: the compiler may not do it in between. */
#pragma unroll
    for (int s = 0; s < 2; s++) asm volatile("" : "+r"(a[s][0]), "+r"(a[s][1]), "+r"(a[s][2]), "+r"(a[s][3])::"memory");
    lac_wgmma_fence();
#pragma unroll
    for (int s = 0; s < 2; s++) lac_wgmma<LAC_N>::run(sums, a[s], x + (u64)((2 * byte + s) * (LAC_N * 32 >> 4)), 0);
    lac_wgmma_commit();
    lac_wgmma_wait<1>();
}

/* All stages of this pair of groups: every LAC_PAIRS-th. What a turn needs out of shared memory is asked for in the turn before: the table's entries, and
 * the next stage's words. A stage is given back when the next one's first products have begun, and the pair's first thread then asks for what
 * comes in its place. */
__device__ __forceinline__ void lac_multiply(float (&sums)[LAC_N / 2], const lac_source &source, u32 table, u32 stages, u32 full, u32 empty)
{
    const u32 lane = threadIdx.x & 31, part = LAC_X_STAGE + (threadIdx.x >> 5 & 7) * (LAC_LANE_WORDS * 128);
    /* A shuffle tells the compiler that all lanes have the same: descriptors of stages are then uniform, and products follow each other at once. */
    const int pair = LAC_PAIRS > 1 ? __shfl_sync(0xffffffffu, (int)threadIdx.x / 256, 0) : 0;
    u32 a[2][2][4], v[2][4], mask[2], next_v[2][4], next_mask[2] = {0, 0};
    uint4 entry[2][2];
    lac_ring_cursor c = {(u32)pair, 0}, before = c;
    if (pair < source.count) {
        lac_barrier_wait(full + 8 * c.slot, c.parity);
        lac_read_weights(v, mask, stages + c.slot * LAC_STAGE_BYTES + part, lane);
        lac_read_entries<0>(entry[0], mask, table);
    }
    for (int i = pair; i < source.count; i += LAC_PAIRS) {
        const u64 x = lac_wgmma_descriptor(stages + c.slot * LAC_STAGE_BYTES);
        const bool more = i + LAC_PAIRS < source.count;
        lac_ring_cursor next = c;
        lac_cursor_next(next, LAC_PAIRS);
        u32 round[2][4];
        lac_read_entries<3>(entry[1], mask, table);
        lac_byte_multiply<0>(sums, a[0], v, entry[0], x);
        if (i > pair && lane == 0) lac_barrier_arrive(empty + 8 * before.slot);
        lac_read_entries<1>(entry[0], mask, table);
#pragma unroll
        for (int r = 0; r < 2; r++) lac_move_round(round[r], v[r], (u32)__popc(mask[r] & 0xffffu));
        lac_byte_multiply<3>(sums, a[1], v, entry[1], x);
        lac_read_entries<2>(entry[1], mask, table);
        /* Before waiting for the next stage: with few stages it may be this one that is waited for. */
        if (i > pair && threadIdx.x % 256 == 0 && i - LAC_PAIRS + LAC_STAGES < source.count) {
            lac_barrier_wait(empty + 8 * before.slot, before.parity);
            lac_ask(source, i - LAC_PAIRS + LAC_STAGES, before.slot, stages, full);
        }
        __syncwarp();
        if (more) {
            lac_barrier_wait(full + 8 * next.slot, next.parity);
            lac_read_weights(next_v, next_mask, stages + next.slot * LAC_STAGE_BYTES + part, lane);
        }
        lac_byte_multiply<1>(sums, a[0], round, entry[0], x);
        lac_read_entries<0>(entry[0], next_mask, table);
        lac_byte_multiply<2>(sums, a[1], round, entry[1], x);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            mask[r] = next_mask[r];
#pragma unroll
            for (int j = 0; j < 4; j++) v[r][j] = next_v[r][j];
        }
        before = c;
        c = next;
    }
    lac_wgmma_wait<0>();
    lac_wgmma_results(sums);
}

/* ---- sums */

__device__ __forceinline__ u32 lac_rank() { return LAC_SPLIT > 1 ? lac_cluster_rank() : 0; }

__device__ __forceinline__ void lac_meet()
{
    if (LAC_SPLIT > 1)
        lac_cluster_sync();
    else
        __syncthreads();
}

/* Four sums that block `rank` of the cluster has at `at`. */
__device__ __forceinline__ float4 lac_sums_of(u32 at, u32 rank)
{
    if (LAC_SPLIT > 1) return lac_cluster_read(at, rank);
    const uint4 v = lac_shared_load_16(at);
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}

/* partial[pair][token][row] of every block of the cluster -> Y, in a fixed order. The blocks share the outputs between them. */
__device__ __forceinline__ void lac_reduce(const lac_gpu_call &call, const lac_few_weight &w, u32 partial)
{
    const int tile = (int)blockIdx.x / LAC_SPLIT;
    for (int i = (int)threadIdx.x + (int)lac_rank() * LAC_THREADS; i < 32 * LAC_TOKENS; i += LAC_THREADS * LAC_SPLIT) {
#if LAC_Y_TOKEN_MAJOR
        const int token = i / 32, four = i % 32;
#else
        const int token = i % LAC_TOKENS, four = i / LAC_TOKENS;
#endif
        const u32 at = partial + (u32)(token * LAC_SUMS + four * 4) * 4;
        float sum[4] = {};
#pragma unroll
        for (int r = 0; r < LAC_SPLIT * LAC_PAIRS; r++) {
            const float4 v = lac_sums_of(at + r % LAC_PAIRS * (LAC_N * LAC_SUMS * 4), r / LAC_PAIRS);
            sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = tile * 128 + four * 4 + e;
            if (row >= w.rows) break;
#if LAC_HAS_ROW_PERM
            const int output = (int)w.row_perm[row];
#else
            const int output = row;
#endif
            lac_store(call, token, output, lac_finish(call, token, output, sum[e], lac_bias(call, output)));
        }
    }
}

__device__ __forceinline__ void lac_sums_store(const float (&sums)[LAC_N / 2], u32 partial)
{
    const u32 lane = threadIdx.x & 31, row = (threadIdx.x >> 5 & 7) * 16 + (lane >> 2), first = threadIdx.x / 256 * LAC_N;
#pragma unroll
    for (int j = 0; j < LAC_N / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const u32 token = first + j * 8 + (lane & 3) * 2 + (e & 1);
            lac_shared_store(partial + (token * LAC_SUMS + row + (e >> 1) * 8) * 4, __float_as_uint(sums[4 * j + e]));
        }
}

extern "C" __global__ void __launch_bounds__(LAC_THREADS, 1)
    lac_expand_few(const __grid_constant__ lac_gpu_call call, const __grid_constant__ lac_few_weight w)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_STAGES];
    const u32 table = lac_shared_address(memory), stages = table + LAC_TABLE, full = lac_shared_address(barriers), empty = full + 8 * LAC_STAGES;
    const int rank = (int)lac_rank(), first = (int)((i64)w.chunks * rank / LAC_SPLIT), end = (int)((i64)w.chunks * (rank + 1) / LAC_SPLIT);
    const lac_source source = {w.parts + ((i64)(blockIdx.x / LAC_SPLIT) * w.chunks + first) * LAC_W_STAGE,
                               (const u8 *)call.workspace + (i64)first * LAC_X_STAGE, end - first};
    lac_let_next_begin();
    if (threadIdx.x == 0) {
        for (int i = 0; i < LAC_STAGES; i++) lac_barrier_init(full + 8 * i, 1), lac_barrier_init(empty + 8 * i, 8);
        lac_barrier_init_fence();
        lac_ask_for_first_weights(source, stages, full);
    }
    lac_table_make(table, threadIdx.x, LAC_THREADS);
    lac_wait_for_inputs();
    if (threadIdx.x == 0) lac_ask_for_first_inputs(source, stages, full);
    __syncthreads();
    float sums[LAC_N / 2] = {};
    lac_multiply(sums, source, table + (threadIdx.x & 7) * 16, stages, full, empty);
    __syncthreads(); /* nobody reads the stages any more */
    lac_sums_store(sums, stages);
    lac_meet();
    lac_reduce(call, w, stages);
    if (LAC_SPLIT > 1) lac_meet(); /* no block leaves while another reads its sums */
}
