/* tile_early.cuh - tile_product.cuh's warpgroups for LAC_EARLY: the next tile's first stages are multiplied while a tile is stored.
 * Dense tiles of 256 tokens a product, gathered or through a ring; sm_90a. Included by tile_product.cuh. */
#ifndef LAC_CUDA_KERNELS_TILE_EARLY_CUH
#define LAC_CUDA_KERNELS_TILE_EARLY_CUH

/* lac_stage_products, the first of a tile where `adds` is 0. */
__device__ __forceinline__ void lac_stage_products_from(float (&sum)[LAC_BLOCKS][LAC_SUMS], u32 stage, int group, int adds)
{
    const u32 outputs = LAC_SPLITS_OUTPUTS ? group * LAC_BLOCKS * 64 : 0, tokens = LAC_SPLITS_OUTPUTS ? 0 : group * LAC_N;
    const u64 b = lac_operand(stage + tokens / 64 * LAC_X_BLOCK, LAC_X_BLOCK, 1024, 1);
    const u64 a = lac_operand(stage + LAC_X_STAGE + outputs * LAC_W_ROW, 16, LAC_W_ROW * 8, LAC_SWIZZLE(LAC_W_ROW));
    lac_wgmma_fence();
#pragma unroll
    for (int k = 0; k < LAC_ROWS / 16; k++)
        lac_wgmma_tile<LAC_N, LAC_TURNED>::from(sum[0], a + k * (32 >> 4), b + k * LAC_X_STEP, k ? 1 : adds);
    lac_wgmma_commit();
}

static_assert(!LAC_SPARSE && LAC_N == 256 && LAC_BLOCKS == 1 && LAC_PARTS == 1 && !LAC_PAIRED && LAC_STORES_Y && LAC_EARLY < LAC_STAGES,
              "whole dense tiles, stored by the engine");

enum { LAC_PIECES_BEFORE = LAC_PIECES / 2 }; /* are stored first: packed, three quarters of a tile would not fit into the registers */

/* What the two warpgroups of consumers do: half of a tile is stored, the rest is packed, and while that is stored the next tile's first
 * products run. The first product of a tile does not add, so that no sum is cleared while products run. */
__device__ __forceinline__ void lac_consume(const lac_gpu_call &call, const lac_gather_args &args, u32 stages, u32 full, u32 empty,
                                            const lac_tensor_map *y_map)
{
    const u32 group = threadIdx.x >> 7, staging = stages + LAC_STAGES * LAC_STAGE + group * (LAC_STAGING_PIECES * LAC_PIECE);
    u32 slot = 0, parity = 0;
    lac_item item, next;
    lac_ask_for_map(args, y_map);
    int index = blockIdx.x / LAC_CLUSTER_BLOCKS, early = 0; /* stages of the tile whose products are in its sums already */
    bool more = lac_item_of(args, index, item);
    lac_outputs outputs, next_outputs;
    if (more) outputs = lac_outputs_of(call, args, item);
    float sum[LAC_BLOCKS][LAC_SUMS];
    for (; more; item = next, outputs = next_outputs) {
        if (item.begin == item.end) {
#pragma unroll
            for (int b = 0; b < LAC_BLOCKS; b++)
#pragma unroll
                for (int i = 0; i < LAC_SUMS; i++) sum[b][i] = 0.0f;
        }
        for (int stage = item.begin + early; stage < item.end; stage++) {
            lac_barrier_wait(full + 8 * slot, parity);
            if (LAC_GATHERS) lac_async_fence(); /* the copy engine's writes need none */
            lac_stage_products_from(sum, stages + slot * LAC_STAGE, group, stage != item.begin);
            lac_wgmma_wait<0>();
            lac_stage_release(empty, slot);
            if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
        }
#pragma unroll
        for (int b = 0; b < LAC_BLOCKS; b++) lac_wgmma_results(sum[b]);
        index += gridDim.x / LAC_CLUSTER_BLOCKS;
        more = lac_item_of(args, index, next); /* on its way while this tile is written, and what the next one asks for */
        if (more) next_outputs = lac_outputs_of(call, args, next);
        early = 0;
        if (!args.stores_y) {
            lac_tile_write(call, args, item, outputs, sum);
            continue;
        }
        if (!more || next.end - next.begin < LAC_EARLY) {
            lac_tile_store(call, item, outputs, sum, staging, y_map);
            continue;
        }
        const int token = lac_first_token(item);
        early = LAC_EARLY;
        u32 word[LAC_PIECES][16], at = slot, phase = parity;
#pragma unroll
        for (int piece = 0; piece < LAC_PIECES; piece++) {
            lac_piece_pack(call, outputs, sum, token, piece, word[piece]);
            if (piece < LAC_PIECES_BEFORE) lac_piece_store(outputs, token, piece, word[piece], staging, y_map);
#pragma unroll
            for (int i = 0; i < 16; i++) asm volatile("" : "+r"(word[piece][i])::"memory"); /* the sums are read before they are replaced */
        }
#pragma unroll
        for (int i = 0; i < LAC_EARLY; i++) {
            lac_barrier_wait(full + 8 * at, phase);
            if (LAC_GATHERS) lac_async_fence();
            lac_stage_products_from(sum, stages + at * LAC_STAGE, group, i);
            if (++at == LAC_STAGES) at = 0, phase ^= 1;
        }
#pragma unroll
        for (int piece = LAC_PIECES_BEFORE; piece < LAC_PIECES; piece++) lac_piece_store(outputs, token, piece, word[piece], staging, y_map);
        lac_wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < LAC_EARLY; i++) {
            lac_stage_release(empty, slot);
            if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
        }
    }
    if ((threadIdx.x & 127) == 0) lac_store_wait_read<0>(); /* the block's memory is given up with its last thread */
}

#endif
