/* gather.cu - fp16 and bf16 SpMM on the tensor cores of sm_90a: the selected rows of X are gathered on the way to shared
 * memory, then multiplied densely (wgmma) or, inside V:2:M, 2:4-sparsely (wgmma.sp). tile_product.cuh has tiles, stages,
 * products and epilogue.
 *
 *   warps 0-7   two warpgroups: the products of a stage, sums in registers, then the tile's epilogue
 *   warps 8-11  gather X row by row with cp.async, row numbers known two stages ahead; one thread fetches W by bulk copies,
 *               its share of it for all blocks of the cluster, whose outputs are the same
 *   full[stage]: 128 threads' cp.async, 1 for W and W's bytes.
 *
 * X is feature-major here, whatever the caller's is, and m a multiple of 8 where its rows are aligned to 16 bytes: both by a
 * copy in the workspace where need be (turn.cu). Bottleneck: L2 to shared memory,
 * 2 * (LAC_TILE_TOKENS + w * LAC_TILE_OUTPUTS / LAC_CLUSTER) bytes for each row, w = 1, or 0.56 when sparse. */
#define LAC_SHARES_X 0
#define LAC_GATHERS 1
#define LAC_TURNED 1
#include "tile_product.cuh"

#define LAC_WARP_ROWS (LAC_ROWS / 4)

/* Row numbers of this lane for the walk's stage, and on to the next one. */
__device__ __forceinline__ int lac_rows_ahead(const lac_gather_args &args, lac_walk &ahead)
{
    if (!ahead.more) return -1;
    const int row = args.index[ahead.stage * LAC_ROWS + (threadIdx.x >> 5 & 3) * LAC_WARP_ROWS + (threadIdx.x & (LAC_WARP_ROWS - 1))];
    ahead.stage++;
    lac_walk_settle(args, ahead);
    return row;
}

/* One row's chunk, `count` of its elements, where X's rows are not aligned to 16 bytes. */
__device__ __forceinline__ void lac_copy_slowly(u32 to, const u16 *from, int count)
{
    u32 word[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (i < count) word[i >> 1] |= (u32)from[i] << 16 * (i & 1);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(word[0]), "r"(word[1]), "r"(word[2]), "r"(word[3])
                 : "memory");
}

/* This warp's rows of a stage. `rows` of lane i is row i's number. */
template <bool aligned>
__device__ __forceinline__ void lac_gather_rows(const lac_gather_args &args, u32 x_stage, int rows, int token_begin, int m)
{
    enum { LANES = LAC_TILE_TOKENS / 8 < 32 ? LAC_TILE_TOKENS / 8 : 32, /* a row's, in one step */
           PASSES = LAC_TILE_TOKENS / 256 > 1 ? LAC_TILE_TOKENS / 256 : 1 };
    const int warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31, chunk = lane % LANES, half = lane / LANES;
    const u32 base = x_stage + chunk / 8 * LAC_X_BLOCK + warp * LAC_WARP_ROWS * 128;
    const int token = token_begin + chunk * 8, last = (m - 1) & ~7;
#pragma unroll
    for (int i = 0; i < LAC_WARP_ROWS; i += 32 / LANES) {
        const int r = i + half, row = __shfl_sync(0xffffffffu, rows, r);
        const u32 to = base + r * 128 + (((u32)chunk & 7) ^ ((u32)r & 7)) * 16;
        const u16 *from = (const u16 *)args.x + (i64)max(row, 0) * args.ldx;
#pragma unroll
        for (int pass = 0; pass < PASSES; pass++) {
            const int t = token + pass * 256;
            if (aligned)
                lac_copy_chunk(to + pass * 4 * LAC_X_BLOCK, from + min(t, last), row < 0 || t >= m);
            else
                lac_copy_slowly(to + pass * 4 * LAC_X_BLOCK, from + t, row < 0 ? 0 : m - t);
        }
    }
}

__device__ __forceinline__ void lac_produce(const lac_gpu_call &call, const lac_gather_args &args, u32 stages, u32 full, u32 empty)
{
    const bool aligned = ((u64)args.x | (u64)args.ldx * 2) % 16 == 0;
    lac_walk now = lac_walk_begin(args), ahead = now;
    int next = lac_rows_ahead(args, ahead), later = lac_rows_ahead(args, ahead);
    u32 slot = 0, parity = 1;
    while (now.more) {
        const u32 stage = stages + slot * LAC_STAGE, barrier = full + 8 * slot;
        const int rows = next;
        next = later;
        later = lac_rows_ahead(args, ahead);
        lac_barrier_wait(empty + 8 * slot, parity);
        if ((threadIdx.x & 127) == 0) {
            const u32 share = LAC_W_STAGE / LAC_CLUSTER, at = LAC_CLUSTER > 1 ? lac_cluster_rank() * share : 0;
            const u8 *from = args.weight + (i64)now.stage * LAC_W_STAGE + at;
            lac_barrier_expect(barrier, LAC_W_STAGE);
            if (LAC_CLUSTER > 1)
                lac_copy_bulk_all(stage + LAC_X_STAGE + at, from, share, barrier, (u16)((1u << LAC_CLUSTER) - 1));
            else
                lac_copy_bulk(stage + LAC_X_STAGE, from, LAC_W_STAGE, barrier);
        }
        const int token = now.item.token_tile * LAC_TILE_TOKENS;
        if (aligned) {
            lac_gather_rows<true>(args, stage, rows, token, call.m);
            lac_barrier_arrive_copies(barrier);
        } else {
            lac_gather_rows<false>(args, stage, rows, token, call.m);
            lac_async_fence();
            lac_barrier_arrive(barrier);
        }
        if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
        now.stage++;
        lac_walk_settle(args, now);
    }
}

extern "C" __global__ void __launch_bounds__(384, 1) lac_gather(const lac_gpu_call call, const lac_gather_args args)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_STAGES];
    const u32 stages = lac_shared_address(memory), full = lac_shared_address(barriers), empty = full + 8 * LAC_STAGES;
    lac_barriers_begin(full, empty, 128 + 1);
    if (threadIdx.x >= 256) {
        lac_registers_fewer<56>();
        lac_produce(call, args, stages, full, empty);
    } else {
        lac_registers_more<224>();
        lac_consume(call, args, stages, full, empty);
    }
    if (LAC_CLUSTER > 1) lac_cluster_sync(); /* nobody leaves while a neighbour may still write or arrive here */
}
