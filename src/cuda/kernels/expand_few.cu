/* expand_few.cu - up to 128 tokens in 16 bits, element-wise patterns that keep at most 8 of 32 inputs: the weight is streamed once,
 * compressed, and spread in registers to operand A of wgmma; all tokens are one product. Requested by cuda/expand_few.c.
 *
 * Preconditions: sm_90a; W and X have the same 16-bit dtype, X is token-major; weight cut by cuda/expand_few_tile.c.
 *
 *   warps 0-7    two warpgroups, 64 rows each: wait for a stage, spread their weights, multiply; then sums and epilogue
 *   the others   bring X: 4 x 16 bytes into registers, turned round, out to shared memory; one thread asks for W by bulk copies
 *
 *   stage        X [step of 16 inputs][8 tokens][2][token][16 bytes], W [warp][LAC_LANE_WORDS of a lane]
 *   shared       the table of expand_few_spread.cuh, then LAC_STAGES stages; sums [token][128 + 4] in their place
 *
 * A stage is 128 inputs. A lane of A's fragment has inputs 2t, 2t+1, 2t+8 and 2t+9 of each step of 16, which would be any number of a row's
 * kept weights. But the order of inputs is free if X has the same one: lane 4g + t gets inputs 32 t to 32 t + 31 of rows g and g + 8, whole
 * groups with a known number of weights. Step s takes four of each lane's, so that a token's 16 bytes of a step are pairs of inputs 32 apart:
 *
 *   16 bytes (s, h)   inputs 4s + 2h, +1, then 32 further, 64 and 96
 *
 * and four threads' worth of loads 32 inputs apart are, word by word, four of these.
 *
 * Blocks of a cluster have the same rows and neighbouring parts of k; their sums are added in the order of k through shared memory.
 *
 * Constants beside those of every kernel:
 * LAC_TOKENS   m
 * LAC_N        tokens of a product: 16, 32, 64 or 128, m or more
 * LAC_WORDS    words of two kept weights of a row in 32 inputs, 1 to 4
 * LAC_STAGES, LAC_SPLIT (blocks of a cluster)
 *
 * Bottleneck: device memory; then the integer pipes, which spread; with 128 tokens the tensor cores. */
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
#define LAC_BRINGERS 128 /* threads */
#define LAC_UNITS (LAC_N > 64 ? LAC_N / 64 : 1) /* of X in a stage, 64 tokens each: what all bringers carry at a time */
#define LAC_TASKS ((LAC_N * 4 / LAC_UNITS + LAC_BRINGERS - 1) / LAC_BRINGERS)
#define LAC_SUMS 132 /* floats from token to token: lanes of a fragment of sums are in different banks */

static_assert(LAC_N >= LAC_TOKENS, "all tokens are in a product");

/* ---- X */

/* What a thread has of a unit: of each task's token 8 inputs, four times. */
struct lac_share {
    uint4 piece[LAC_TASKS][4];
};

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

/* Eight neighbouring lanes have neighbouring tokens, so that they store to different banks. */
__device__ __forceinline__ int lac_task_token(int task) { return task >> 5 << 3 | (task & 7); }
__device__ __forceinline__ int lac_task_eight(int task) { return task >> 3 & 3; }

__device__ __forceinline__ void lac_share_load(lac_share &share, const lac_gpu_call &call, int first, int unit, bool plain)
{
#pragma unroll
    for (int i = 0; i < LAC_TASKS; i++) {
        const int task = (int)threadIdx.x - 256 + i * LAC_BRINGERS, token = unit % LAC_UNITS * 64 + lac_task_token(task);
        const int input = (first + unit / LAC_UNITS) * 128 + lac_task_eight(task) * 8;
        if (plain) {
            const u16 *from = (const u16 *)call.x + (i64)token * call.ldx + input;
#pragma unroll
            for (int t = 0; t < 4; t++) {
                share.piece[i][t] = make_uint4(0, 0, 0, 0);
                if (token < LAC_TOKENS && input + 32 * t < call.k) {
                    uint4 &v = share.piece[i][t];
                    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from + 32 * t));
                }
            }
        } else {
#pragma unroll
            for (int t = 0; t < 4; t++) share.piece[i][t] = lac_piece_by_hand(call, token, input + 32 * t);
        }
    }
}

__device__ __forceinline__ void lac_share_store(const lac_share &share, u32 stage, int unit)
{
#pragma unroll
    for (int i = 0; i < LAC_TASKS; i++) {
        const int task = (int)threadIdx.x - 256 + i * LAC_BRINGERS, token = unit % LAC_UNITS * 64 + lac_task_token(task);
        if (LAC_N * 4 < LAC_BRINGERS && token >= LAC_N) continue;
        const u32 to = stage + lac_task_eight(task) * (2 * LAC_N * 32) + (token >> 3) * 256 + (token & 7) * 16;
        const uint4 *p = share.piece[i];
        lac_shared_store_16(to, make_uint4(p[0].x, p[1].x, p[2].x, p[3].x));
        lac_shared_store_16(to + 128, make_uint4(p[0].y, p[1].y, p[2].y, p[3].y));
        lac_shared_store_16(to + LAC_N * 32, make_uint4(p[0].z, p[1].z, p[2].z, p[3].z));
        lac_shared_store_16(to + LAC_N * 32 + 128, make_uint4(p[0].w, p[1].w, p[2].w, p[3].w));
    }
}

/* ---- stages */

struct lac_ring_cursor {
    u32 slot, parity;
};

__device__ __forceinline__ void lac_cursor_next(lac_ring_cursor &c)
{
    if (++c.slot == LAC_STAGES) c.slot = 0, c.parity ^= 1;
}

__device__ __forceinline__ void lac_ask_for_weights(const u8 *from, u32 stage, u32 barrier)
{
    lac_barrier_expect(barrier, LAC_W_STAGE);
    lac_copy_bulk(stage + LAC_X_STAGE, from, LAC_W_STAGE, barrier);
}

/* `share` has X of unit `unit` of the block's; the next but one comes in its place. */
__device__ __forceinline__ void lac_unit_put(lac_share &share, const lac_gpu_call &call, const u8 *weights, int first, int unit, int units, bool plain,
                                             u32 stages, u32 full, u32 empty, lac_ring_cursor &c)
{
    const u32 stage = stages + c.slot * LAC_STAGE_BYTES;
    if (unit >= LAC_STAGES * LAC_UNITS && unit % LAC_UNITS == 0) {
        lac_barrier_wait(empty + 8 * c.slot, c.parity ^ 1);
        if (threadIdx.x == 256) lac_ask_for_weights(weights + (i64)(first + unit / LAC_UNITS) * LAC_W_STAGE, stage, full + 8 * c.slot);
    }
    lac_share_store(share, stage, unit);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if ((threadIdx.x & 31) == 0) lac_barrier_arrive(full + 8 * c.slot);
    if (unit + 2 < units) lac_share_load(share, call, first, unit + 2, plain);
    if ((unit + 1) % LAC_UNITS == 0) lac_cursor_next(c);
}

__device__ __forceinline__ void lac_bring(const lac_gpu_call &call, const u8 *weights, int first, int count, u32 stages, u32 full, u32 empty)
{
    if (threadIdx.x == 256)
        for (int i = 0; i < LAC_STAGES && i < count; i++)
            lac_ask_for_weights(weights + (i64)(first + i) * LAC_W_STAGE, stages + i * LAC_STAGE_BYTES, full + 8 * i);
    lac_wait_for_inputs();
    const bool plain = ((u64)call.x & 15) == 0 && call.ldx % 8 == 0 && call.k % 8 == 0;
    const int units = count * LAC_UNITS;
    lac_ring_cursor c = {0, 0};
    lac_share even, odd;
    if (units > 0) lac_share_load(even, call, first, 0, plain);
    if (units > 1) lac_share_load(odd, call, first, 1, plain);
    for (int unit = 0; unit < units; unit += 2) {
        lac_unit_put(even, call, weights, first, unit, units, plain, stages, full, empty, c);
        if (unit + 1 < units) lac_unit_put(odd, call, weights, first, unit + 1, units, plain, stages, full, empty, c);
    }
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

/* The next stage: its weights spread to `a`, its products begun, and the stage before it given back. `a` belongs to the tensor cores until the
 * stage after the next one's turn. */
__device__ __forceinline__ void lac_stage_multiply(float (&sums)[LAC_N / 2], u32 (&a)[8][4], u32 table, u32 stages, u32 full, u32 empty,
                                                   lac_ring_cursor &c, u32 &before)
{
    const u32 lane = threadIdx.x & 31, stage = stages + c.slot * LAC_STAGE_BYTES;
    lac_barrier_wait(full + 8 * c.slot, c.parity);
    u32 v[2][4], mask[2];
    lac_read_weights(v, mask, stage + LAC_X_STAGE + (threadIdx.x >> 5) * (LAC_LANE_WORDS * 128), lane);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        u32 out[16];
        lac_spread_32(out, v[r], mask[r], table);
#pragma unroll
        for (int s = 0; s < 8; s++) a[s][r] = out[2 * s], a[s][2 + r] = out[2 * s + 1];
    }
    /* Everything is spread before the first product begins: the compiler may not do it in between. */
#pragma unroll
    for (int s = 0; s < 8; s++) asm volatile("" : "+r"(a[s][0]), "+r"(a[s][1]), "+r"(a[s][2]), "+r"(a[s][3])::"memory");
    const u64 x = lac_wgmma_descriptor(stage);
    lac_wgmma_fence();
#pragma unroll
    for (int s = 0; s < 8; s++) lac_wgmma<LAC_N>::run(sums, a[s], x + (u64)(s * (LAC_N * 32 >> 4)), 0);
    lac_wgmma_commit();
    lac_wgmma_wait<1>();
    if (before != LAC_STAGES && lane == 0) lac_barrier_arrive(empty + 8 * before);
    before = c.slot;
    lac_cursor_next(c);
}

/* ---- sums */

__device__ __forceinline__ u32 lac_rank() { return LAC_SPLIT > 1 ? lac_cluster_rank() : 0; }

__device__ __forceinline__ void lac_meet()
{
    if (LAC_SPLIT > 1) lac_cluster_sync();
}

/* partial[token][row] of every block of the cluster -> Y, in the order of k. The blocks share the outputs between them. */
__device__ __forceinline__ void lac_reduce(const lac_gpu_call &call, const lac_few_weight &w, u32 partial)
{
    const int tile = (int)blockIdx.x / LAC_SPLIT;
    for (int i = (int)threadIdx.x + (int)lac_rank() * 256; i < 32 * LAC_TOKENS; i += 256 * LAC_SPLIT) {
#if LAC_Y_TOKEN_MAJOR
        const int token = i / 32, four = i % 32;
#else
        const int token = i % LAC_TOKENS, four = i / LAC_TOKENS;
#endif
        const u32 at = partial + (u32)(token * LAC_SUMS + four * 4) * 4;
        float sum[4] = {};
#pragma unroll
        for (int r = 0; r < LAC_SPLIT; r++) {
            float4 v;
            if (LAC_SPLIT > 1)
                v = lac_cluster_read(at, r);
            else {
                const uint4 u = lac_shared_load_16(at);
                v = make_float4(__uint_as_float(u.x), __uint_as_float(u.y), __uint_as_float(u.z), __uint_as_float(u.w));
            }
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

__device__ __forceinline__ void lac_multiply(const lac_gpu_call &call, const lac_few_weight &w, int count, u32 table, u32 stages, u32 full, u32 empty)
{
    float sums[LAC_N / 2] = {};
    u32 even[8][4], odd[8][4], before = LAC_STAGES;
    lac_ring_cursor c = {0, 0};
    const u32 lane = threadIdx.x & 31, mine = table + (lane & 7) * 16;
    for (int i = 1; i < count; i += 2) {
        lac_stage_multiply(sums, even, mine, stages, full, empty, c, before);
        lac_stage_multiply(sums, odd, mine, stages, full, empty, c, before);
    }
    if (count % 2) lac_stage_multiply(sums, even, mine, stages, full, empty, c, before);
    lac_wgmma_wait<0>();
    lac_wgmma_results(sums);
    lac_wait_for_inputs(); /* nothing is left to wait for; but what a kernel before wrote may be read from here on: bias and C */
    asm volatile("bar.sync 1, 256;" ::: "memory"); /* nobody reads the stages any more */
    const u32 row = (threadIdx.x >> 5) * 16 + (lane >> 2);
#pragma unroll
    for (int j = 0; j < LAC_N / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const u32 token = j * 8 + (lane & 3) * 2 + (e & 1);
            lac_shared_store(stages + (token * LAC_SUMS + row + (e >> 1) * 8) * 4, __float_as_uint(sums[4 * j + e]));
        }
    asm volatile("bar.sync 1, 256;" ::: "memory");
    lac_meet();
    lac_reduce(call, w, stages);
    lac_meet(); /* no block leaves while another reads its sums */
}

extern "C" __global__ void __launch_bounds__(256 + LAC_BRINGERS, 1)
    lac_expand_few(const __grid_constant__ lac_gpu_call call, const __grid_constant__ lac_few_weight w)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_STAGES];
    const u32 table = lac_shared_address(memory), stages = table + LAC_TABLE, full = lac_shared_address(barriers), empty = full + 8 * LAC_STAGES;
    const int rank = (int)lac_rank(), first = (int)((i64)w.chunks * rank / LAC_SPLIT), end = (int)((i64)w.chunks * (rank + 1) / LAC_SPLIT);
    const u8 *weights = w.parts + (i64)(blockIdx.x / LAC_SPLIT) * w.chunks * LAC_W_STAGE;
    lac_let_next_begin();
    if (threadIdx.x == 0) {
        for (int i = 0; i < LAC_STAGES; i++) lac_barrier_init(full + 8 * i, LAC_UNITS * LAC_BRINGERS / 32 + 1), lac_barrier_init(empty + 8 * i, 8);
        lac_barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x >= 256) {
        if (LAC_N > 64) lac_registers_fewer<120>();
        lac_bring(call, weights, first, end - first, stages, full, empty);
        __syncwarp();
        lac_meet();
        lac_meet();
    } else {
        if (LAC_N > 64) lac_registers_more<192>();
        lac_table_make(table, threadIdx.x, 256);
        asm volatile("bar.sync 1, 256;" ::: "memory");
        lac_multiply(call, w, end - first, table, stages, full, empty);
    }
}
