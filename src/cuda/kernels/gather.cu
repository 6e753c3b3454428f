/* gather.cu - fp16 and bf16 SpMM on the tensor cores of sm_90a: the selected rows of X are gathered on the way to shared
 * memory, then multiplied densely (wgmma) or, inside V:2:M, 2:4-sparsely (wgmma.sp). tile_product.cuh has tiles, stages,
 * products and epilogue.
 *
 *   warps 0-7   two warpgroups: the products of a stage, sums in registers, then the tile's epilogue
 *   warps 8-11  gather X row by row with cp.async, row numbers known four stages ahead; one thread fetches W by bulk copies,
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

/* How this warp's rows of a stage come: all lanes' tokens exist; some may not; X's rows are not aligned to 16 bytes. */
enum { LAC_WHOLE, LAC_PARTIAL, LAC_SLOWLY };

/* One step: a row, or as many as the lanes have room for. `rows` of lane i is row i's number. Lanes write neighbouring chunks; the
 * swizzle is in what they read. */
template <int how>
__device__ __forceinline__ void lac_gather_step(const lac_gather_args &args, u32 x_stage, int rows, int i, int token_begin, int m)
{
    enum { LANES = LAC_TILE_TOKENS / 8 < 32 ? LAC_TILE_TOKENS / 8 : 32, /* a row's, in one pass */
           PASSES = LAC_TILE_TOKENS / 256 > 1 ? LAC_TILE_TOKENS / 256 : 1 };
    const int warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31, chunk = lane % LANES, r = i + lane / LANES;
    const int row = __shfl_sync(0xffffffffu, rows, r), token = token_begin + (chunk ^ (r & 7)) * 8, last = (m - 1) & ~7;
    const u32 to = x_stage + chunk / 8 * LAC_X_BLOCK + warp * LAC_WARP_ROWS * 128 + (chunk & 7) * 16 + r * 128;
    const u16 *from = (const u16 *)args.x + (i64)max(row, 0) * args.ldx;
#pragma unroll
    for (int pass = 0; pass < PASSES; pass++) {
        const int t = token + pass * 256;
        if (how == LAC_WHOLE)
            lac_copy_chunk(to + pass * 4 * LAC_X_BLOCK, from + t, row < 0);
        else if (how == LAC_PARTIAL)
            lac_copy_chunk(to + pass * 4 * LAC_X_BLOCK, from + min(t, last), row < 0 || t >= m);
        else
            lac_copy_slowly(to + pass * 4 * LAC_X_BLOCK, from + t, row < 0 ? 0 : m - t);
    }
}

/* This warp's rows of a stage; tells `full` when they are there. */
__device__ __forceinline__ void lac_gather_rows(const lac_gather_args &args, u32 x_stage, int rows, int token_begin, int m, int how,
                                                u32 full)
{
    enum { STEP = LAC_TILE_TOKENS < 256 ? 256 / LAC_TILE_TOKENS : 1 };
    if (how == LAC_WHOLE) {
#pragma unroll
        for (int i = 0; i < LAC_WARP_ROWS; i += STEP) lac_gather_step<LAC_WHOLE>(args, x_stage, rows, i, token_begin, m);
    } else if (how == LAC_PARTIAL) {
#pragma unroll 4
        for (int i = 0; i < LAC_WARP_ROWS; i += STEP) lac_gather_step<LAC_PARTIAL>(args, x_stage, rows, i, token_begin, m);
    } else {
#pragma unroll 1
        for (int i = 0; i < LAC_WARP_ROWS; i += STEP) lac_gather_step<LAC_SLOWLY>(args, x_stage, rows, i, token_begin, m);
        lac_async_fence();
        lac_barrier_arrive(full);
        return;
    }
    lac_barrier_arrive_copies(full);
}

/* W and X of a stage into a slot that is empty, or will be. */
__device__ __forceinline__ void lac_produce_stage(const lac_gpu_call &call, const lac_gather_args &args, const lac_walk &now, int rows,
                                                  bool aligned, u32 stage, u32 full, u32 empty, u32 parity)
{
    lac_barrier_wait(empty, parity);
    if ((threadIdx.x & 127) == 0) {
        const u32 share = LAC_W_STAGE / LAC_CLUSTER, at = LAC_CLUSTER > 1 ? lac_cluster_rank() * share : 0;
        const u8 *from = args.weight + (i64)now.stage * LAC_W_STAGE + at;
        lac_barrier_expect(full, LAC_W_STAGE);
        if (LAC_CLUSTER > 1)
            lac_copy_bulk_all(stage + LAC_X_STAGE + at, from, share, full, (u16)((1u << LAC_CLUSTER) - 1));
        else
            lac_copy_bulk(stage + LAC_X_STAGE, from, LAC_W_STAGE, full);
    }
    const int token = now.item.token_tile * LAC_TILE_TOKENS;
    const int how = !aligned ? LAC_SLOWLY : token + LAC_TILE_TOKENS <= call.m ? LAC_WHOLE : LAC_PARTIAL;
    lac_gather_rows(args, stage, rows, token, call.m, how, full);
}

__device__ __forceinline__ void lac_produce(const lac_gpu_call &call, const lac_gather_args &args, u32 stages, u32 full, u32 empty)
{
    enum { AHEAD = 4 }; /* each stage's row numbers in a register of their own: a move would wait for its load */
    const bool aligned = ((u64)args.x | (u64)args.ldx * 2) % 16 == 0;
    lac_walk now = lac_walk_begin(args), ahead = now;
    int rows[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) rows[i] = lac_rows_ahead(args, ahead);
    u32 slot = 0, parity = 1;
    for (;;) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (!now.more) return;
            lac_produce_stage(call, args, now, rows[i], aligned, stages + slot * LAC_STAGE, full + 8 * slot, empty + 8 * slot, parity);
            rows[i] = lac_rows_ahead(args, ahead);
            if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
            now.stage++;
            lac_walk_settle(args, now);
        }
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    lac_gather(const lac_gpu_call call, const lac_gather_args args, const __grid_constant__ lac_tensor_map y_map)
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
        lac_consume(call, args, stages, full, empty, &y_map);
    }
    if (LAC_CLUSTER > 1) lac_cluster_sync(); /* nobody leaves while a neighbour may still write or arrive here */
}
