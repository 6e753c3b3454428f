/* stream.cu - fp16 and bf16 SpMM on the sparse tensor cores of sm_90a where W keeps at most two of every four inputs: nothing
 * is gathered, X and W stream through. tile_product.cuh has tiles, stages, products and epilogue.
 *
 *   warps 0-7   two warpgroups: the products of a stage (wgmma.sp), sums in registers, then the tile's epilogue
 *   warp 8      one thread fetches X by tensor copies, its share of the tokens for all blocks of the cluster, which have
 *               neighbouring outputs of the same tokens, and W by bulk copies
 *   full[stage]: 1 for the bytes of X and W.
 *
 * X feature-major comes in boxes of LAC_ROWS rows x 64 tokens, token-major in boxes of LAC_ROWS inputs x a share of the tokens; what lies
 * outside is zero. Preconditions: X and its rows aligned to 16 bytes. Bottleneck: shared memory, whose rows of X every
 * warpgroup reads at the tensor cores' full speed while the next ones are written; then L2. */
#define LAC_SHARES_X 1
#define LAC_GATHERS 0
#define LAC_TURNED (!LAC_X_TOKEN_MAJOR)
#include "tile_product.cuh"
#include "tensor_copy.cuh"

#define LAC_SHARE (LAC_TILE_TOKENS / LAC_CLUSTER) /* tokens that a block fetches for its cluster */

__device__ __forceinline__ void lac_stream_x(const lac_tensor_map *map, u32 stage, u32 barrier, int row, int token)
{
    const int mine = LAC_CLUSTER > 1 ? (int)lac_cluster_rank() * LAC_SHARE : 0;
    const u32 mask = (1u << LAC_CLUSTER) - 1, to = stage + mine * (LAC_ROWS * 2);
#if LAC_TURNED
#pragma unroll
    for (int block = 0; block < LAC_SHARE; block += 64)
        lac_copy_tensor(to + block * (LAC_ROWS * 2), map, token + mine + block, row, barrier, mask);
#else
    lac_copy_tensor(to, map, row, token + mine, barrier, mask);
#endif
}

__device__ __forceinline__ void lac_produce(const lac_gather_args &args, const lac_tensor_map *map, u32 stages, u32 full, u32 empty)
{
    u32 slot = 0, parity = 1;
    for (lac_walk now = lac_walk_begin(args); now.more; lac_walk_settle(args, now)) {
        const u32 stage = stages + slot * LAC_STAGE, barrier = full + 8 * slot;
        lac_barrier_wait(empty + 8 * slot, parity);
        lac_barrier_expect(barrier, LAC_X_STAGE + LAC_W_STAGE);
        lac_stream_x(map, stage, barrier, (now.stage - args.range[2 * now.item.output_tile]) * LAC_ROWS,
                     now.item.token_tile * LAC_TILE_TOKENS);
        lac_copy_bulk(stage + LAC_X_STAGE, args.weight + (i64)now.stage * LAC_W_STAGE, LAC_W_STAGE, barrier);
        if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
        now.stage++;
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    lac_stream(const lac_gpu_call call, const lac_gather_args args, const __grid_constant__ lac_tensor_map map)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_STAGES];
    const u32 stages = lac_shared_address(memory), full = lac_shared_address(barriers), empty = full + 8 * LAC_STAGES;
    lac_barriers_begin(full, empty, 1);
    if (threadIdx.x >= 256) {
        lac_registers_fewer<56>();
        if (threadIdx.x == 256) lac_produce(args, &map, stages, full, empty);
    } else {
        lac_registers_more<224>();
        lac_consume(call, args, stages, full, empty);
    }
    __syncwarp();
    if (LAC_CLUSTER > 1) lac_cluster_sync(); /* nobody leaves while a neighbour may still write or arrive here */
}
