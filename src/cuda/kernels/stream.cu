/* stream.cu - fp16 and bf16 SpMM on the sparse tensor cores of sm_90a where W keeps at most two of every four inputs: nothing
 * is gathered, X and W stream through. tile_product.cuh has tiles, stages, products and epilogue.
 *
 *   warps 0-7   two warpgroups: the products of a stage (wgmma.sp), sums in registers, then the tile's epilogue
 *   warp 8      one thread fetches X by tensor copies, its share of the tokens for all blocks of the cluster, which have
 *               neighbouring outputs of the same tokens, and W by bulk copies
 *   full[stage]: 1 for the bytes of X and W.
 *
 * LAC_PACKED: W keeps at most two of every eight inputs, and comes as these two values alone. A lane finds in its word what each four of
 * the eight have of them, by a code of two bits, and the products take it out of registers:
 *
 *   W stage  | [64 outputs][warp][32 inputs][row g][half] 4 words of 2 values | places | codes: 16 bits a lane, 2 for each of its fours |
 *
 * LAC_X_COPIED: X is a copy in the workspace (turn.cu), feature-major, where the caller's X is not aligned.
 *
 * Few tokens, whose k is cut into parts that meet: stream_few.cu.
 *
 * Preconditions: X and its rows aligned to 16 bytes. Bottleneck: shared memory, whose rows of X every
 * warpgroup reads at the tensor cores' full speed while the next ones are written; then L2. */
#define LAC_SHARES_X 1
#define LAC_GATHERS 0
#define LAC_TURNED (!LAC_X_TOKEN_MAJOR || LAC_X_COPIED)
#include "tile_product.cuh"
#include "stream_product.cuh"
#include "stream_x.cuh"

__device__ __forceinline__ void lac_produce(const lac_gather_args &args, const lac_tensor_map *map, u32 bytes, u32 stages, u32 full, u32 empty)
{
    u32 slot = 0, parity = 1;
    lac_wait_for_inputs();
    for (lac_walk now = lac_walk_begin(args); now.more; lac_walk_settle(args, now)) {
        const u32 stage = stages + slot * LAC_STAGE, barrier = full + 8 * slot;
        lac_barrier_wait(empty + 8 * slot, parity);
        lac_barrier_expect(barrier, bytes);
        lac_stream_x(map, stage, barrier, (now.stage - now.item.begin + now.item.before) * LAC_ROWS,
                     now.item.token_tile * LAC_TILE_TOKENS);
        lac_copy_bulk(stage + LAC_X_STAGE, args.weight + (i64)now.stage * LAC_W_STAGE, LAC_W_STAGE, barrier);
        if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
        now.stage++;
    }
}

struct lac_ring {
    u32 slot, parity; /* of the stage that is multiplied next        */
    u32 before;       /* the slot of the products that run ...       */
    bool held;        /* ... and whether it has yet to be given back */
};

/* Puts the products of the next stage into the tensor cores and waits for those of the stage before it, which have `old`. */
__device__ __forceinline__ void lac_step(float (&sum)[1][LAC_SUMS], lac_ring &ring, u32 stages, u32 full, u32 empty, lac_kept &now, lac_kept &old)
{
    lac_barrier_wait(full + 8 * ring.slot, ring.parity);
    const u32 stage = stages + ring.slot * LAC_STAGE;
    const u64 x = lac_operand_x(stage, LAC_X_BLOCK);
    lac_keep(now, stage + LAC_X_STAGE);
    const u64 w = lac_operand_w(stage + LAC_X_STAGE);
    lac_wgmma_fence();
    lac_products(sum[0], now, x, w);
    lac_wgmma_commit();
    lac_wgmma_wait<1>();
    lac_kept_end(old);
    if (ring.held) lac_stage_release(empty, ring.before);
    ring.before = ring.slot;
    ring.held = true;
    if (++ring.slot == LAC_STAGES) ring.slot = 0, ring.parity ^= 1;
}

__device__ __forceinline__ void lac_multiply(const lac_gpu_call &call, const lac_gather_args &args, u32 stages, u32 full, u32 empty,
                                             const lac_tensor_map *y_map)
{
    lac_ring ring = {0, 0, 0, false};
    lac_item item, next;
    lac_kept even = {0}, odd = {0};
    int index = blockIdx.x / LAC_CLUSTER_BLOCKS;
    for (bool more = lac_item_of(args, index, item); more; item = next) {
        const lac_outputs outputs = lac_outputs_of(call, args, item);
        float sum[1][LAC_SUMS];
#pragma unroll
        for (int i = 0; i < LAC_SUMS; i++) sum[0][i] = 0.0f;
        lac_wgmma_results(sum[0]); /* keeps the zeroes here, before the first product */
        for (int stage = item.begin; stage < item.end; stage += 2) {
            lac_step(sum, ring, stages, full, empty, even, odd);
            if (stage + 1 < item.end) lac_step(sum, ring, stages, full, empty, odd, even);
        }
        lac_wgmma_wait<0>();
        lac_kept_end(even);
        lac_kept_end(odd);
        if (ring.held) lac_stage_release(empty, ring.before);
        ring.held = false;
        lac_wgmma_results(sum[0]);
        index += gridDim.x / LAC_CLUSTER_BLOCKS;
        more = lac_item_of(args, index, next); /* on its way while this tile is written */
#if LAC_PARTS > 1
        const i64 at = lac_partial_at(args, item, item.part);
#pragma unroll
        for (int i = 0; i < LAC_SUMS; i++) args.partial[at + i * 256] = sum[0][i];
#elif LAC_STORES_Y
        if (args.stores_y)
            lac_tile_store(call, item, outputs, sum, stages + LAC_STAGES * LAC_STAGE + (threadIdx.x >> 7) * (LAC_STAGING_PIECES * LAC_PIECE),
                           y_map);
        else
            lac_tile_write(call, args, item, outputs, sum);
#else
        lac_tile_write(call, args, item, outputs, sum);
#endif
    }
#if LAC_STORES_Y
    if ((threadIdx.x & 127) == 0) lac_store_wait_read<0>(); /* the block's memory is given up with its last thread */
#endif
}

extern "C" __global__ void __launch_bounds__(384, LAC_RESIDENT)
    lac_stream(const lac_gpu_call call, const lac_gather_args args, const __grid_constant__ lac_tensor_map map,
               const __grid_constant__ lac_tensor_map y_map)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_STAGES];
    const u32 stages = lac_shared_address(memory), full = lac_shared_address(barriers), empty = full + 8 * LAC_STAGES;
    if (threadIdx.x == 256) lac_prefetch_map(&map);
    lac_barriers_begin(full, empty, 1);
    lac_let_next_begin();
    if (threadIdx.x >= 256) {
        lac_registers_fewer<LAC_PRODUCER_REGISTERS>();
        if (threadIdx.x == 256) lac_produce(args, &map, lac_stream_x_bytes(call.m) + LAC_W_STAGE, stages, full, empty);
        __syncwarp();
    } else {
        lac_registers_more<LAC_CONSUMER_REGISTERS>();
        lac_wait_for_inputs(); /* the bias is one */
        lac_multiply(call, args, stages, full, empty, &y_map);
    }
    __syncwarp();
    if (LAC_CLUSTER > 1) lac_cluster_sync(); /* nobody leaves while a neighbour may still write or arrive here */
}
