/* gather_block.cu - as gather.cu, for weights that keep or drop whole blocks of LAC_ROWS neighbouring inputs (bw64x64): a stage
 * of X is one box of it, so the copy engine brings it, from token-major X as well. tile_product.cuh has tiles, stages, products and
 * epilogue.
 *
 *   warps 0-7   two warpgroups: the products of a stage, sums in registers, then the tile's epilogue
 *   warp 8      one thread fetches X by tensor copies, row numbers known four stages ahead, and W by bulk copies
 *   full[stage]: 1 for the bytes of X and W.
 *
 * X feature-major comes in boxes of LAC_ROWS rows x 64 tokens, token-major in boxes of LAC_ROWS inputs x 256 tokens; what lies
 * outside is zero. Preconditions: X and its rows aligned to 16 bytes; the first row of each stage is a multiple of LAC_ROWS, the
 * others follow it; no cluster. Bottleneck: L2 to shared memory. */
#define LAC_SHARES_X 0
#define LAC_GATHERS 0
#define LAC_TURNED (!LAC_X_TOKEN_MAJOR)
#include "tile_product.cuh"

#define LAC_BOX_TOKENS (LAC_TURNED ? 64 : LAC_TILE_TOKENS < LAC_BOX_MOST ? LAC_TILE_TOKENS : LAC_BOX_MOST)

static_assert(LAC_CLUSTER == 1, "nothing is shared between blocks");

/* The first row of the walk's stage, and on to the next one. */
__device__ __forceinline__ int lac_row_ahead(const lac_gather_args &args, lac_walk &ahead)
{
    if (!ahead.more) return 0;
    const int row = args.index[ahead.stage * LAC_ROWS];
    ahead.stage++;
    lac_walk_settle(args, ahead);
    return row;
}

__device__ __forceinline__ void lac_produce(const lac_gather_args &args, const lac_tensor_map *x_map, u32 stages, u32 full, u32 empty)
{
    enum { AHEAD = 4 };
    lac_walk now = lac_walk_begin(args), ahead = now;
    int row[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++) row[i] = lac_row_ahead(args, ahead);
    lac_wait_for_inputs();
    u32 slot = 0, parity = 1;
    for (;;) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (!now.more) return;
            const u32 stage = stages + slot * LAC_STAGE, barrier = full + 8 * slot;
            const int token = now.item.token_tile * LAC_TILE_TOKENS;
            lac_barrier_wait(empty + 8 * slot, parity);
            lac_barrier_expect(barrier, LAC_X_STAGE + LAC_W_STAGE);
#pragma unroll
            for (int t = 0; t < LAC_TILE_TOKENS; t += LAC_BOX_TOKENS) {
                if (LAC_TURNED)
                    lac_copy_tensor(stage + t * (LAC_ROWS * 2), x_map, token + t, row[i], barrier, 1);
                else
                    lac_copy_tensor(stage + t * (LAC_ROWS * 2), x_map, row[i], token + t, barrier, 1);
            }
            lac_copy_bulk(stage + LAC_X_STAGE, args.weight + (i64)now.stage * LAC_W_STAGE, LAC_W_STAGE, barrier);
            row[i] = lac_row_ahead(args, ahead);
            if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
            now.stage++;
            lac_walk_settle(args, now);
        }
    }
}

extern "C" __global__ void __launch_bounds__(384, LAC_RESIDENT)
    lac_gather_block(const lac_gpu_call call, const lac_gather_args args, const __grid_constant__ lac_tensor_map x_map,
                     const __grid_constant__ lac_tensor_map y_map)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_STAGES];
    const u32 stages = lac_shared_address(memory), full = lac_shared_address(barriers), empty = full + 8 * LAC_STAGES;
    lac_barriers_begin(full, empty, 1);
    lac_let_next_begin();
    if (threadIdx.x >= 256) {
        lac_registers_fewer<LAC_PRODUCER_REGISTERS>();
        if (threadIdx.x == 256) lac_prefetch_map(&x_map);
        if (threadIdx.x == 256) lac_produce(args, &x_map, stages, full, empty);
    } else {
        lac_registers_more<LAC_CONSUMER_REGISTERS>();
        lac_wait_for_inputs(); /* the bias is one */
        lac_consume(call, args, stages, full, empty, &y_map);
    }
}
