/* tile_early.cuh - tile_product.cuh's warpgroups and tile_write.cuh's stores for LAC_EARLY: the next tile's first stages are multiplied
 * while a tile is stored. Dense tiles of 256 tokens a product, gathered; sm_90a. Included by tile_product.cuh. */
#ifndef LAC_CUDA_KERNELS_TILE_EARLY_CUH
#define LAC_CUDA_KERNELS_TILE_EARLY_CUH

__device__ __forceinline__ int lac_first_token(const lac_item &item)
{
    return item.token_tile * LAC_TILE_TOKENS + (LAC_SPLITS_OUTPUTS ? 0 : (threadIdx.x >> 7) * LAC_N);
}

/* A piece of 64 outputs x 64 tokens as it is in Y: pairs of tokens. */
__device__ __forceinline__ void lac_piece_pack(const lac_gpu_call &call, const lac_item &item, const lac_outputs &outputs,
                                               const float (&sum)[LAC_BLOCKS][LAC_SUMS], int piece, u32 (&word)[16])
{
    enum { PARTS = LAC_N / 64 };
    const int b = piece / PARTS, part = piece % PARTS;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int h = i & 1, at = part * 32 + (i >> 1) * 4 + h * 2,
                  t = lac_first_token(item) + part * 64 + (i >> 1) * 8 + 2 * (int)(threadIdx.x & 3);
        float pair[2] = {sum[b][at], sum[b][at + 1]};
#pragma unroll
        for (int e = 0; e < 2; e++)
#if LAC_HAS_RESIDUAL
            if (outputs.place[b][h] >= 0 && t + e < call.m)
#endif
                pair[e] = lac_finish(call, t + e, outputs.place[b][h], pair[e], outputs.bias[b][h]);
        word[i] = lac_pack(pair[0], pair[1]);
    }
}

/* A packed piece to Y through shared memory: the parts of `staging` in turns. */
__device__ __forceinline__ void lac_piece_store(const lac_item &item, const lac_outputs &outputs, int piece, const u32 (&word)[16], u32 staging,
                                                const lac_tensor_map *map)
{
    enum { PARTS = LAC_N / 64 };
    const u32 room = staging + piece % LAC_STAGING_PIECES * LAC_PIECE;
    const bool leads = (threadIdx.x & 127) == 0;
    if (piece == 0) { /* the last tile's are read by now */
        if (leads) lac_store_wait_read<0>();
        lac_warpgroup_sync();
    } else if (piece >= LAC_STAGING_PIECES) {
        if (leads) lac_store_wait_read<LAC_STAGING_PIECES - 1>();
        lac_warpgroup_sync();
    }
    lac_stage_piece(room, word);
    lac_async_fence();
    lac_warpgroup_sync();
    if (leads && outputs.first[piece / PARTS] >= 0)
        lac_store_piece(room, map, outputs.first[piece / PARTS], lac_first_token(item) + piece % PARTS * 64);
    if (leads) lac_store_commit();
}

/* A warpgroup's part of a tile to Y, a piece at a time. */
__device__ __forceinline__ void lac_tile_store(const lac_gpu_call &call, const lac_item &item, const lac_outputs &outputs,
                                               float (&sum)[LAC_BLOCKS][LAC_SUMS], u32 staging, const lac_tensor_map *map)
{
#pragma unroll
    for (int piece = 0; piece < LAC_PIECES; piece++) {
        u32 word[16];
        lac_piece_pack(call, item, outputs, sum, piece, word);
        lac_piece_store(item, outputs, piece, word, staging, map);
    }
}

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
        early = LAC_EARLY;
        u32 word[LAC_PIECES][16], at = slot, phase = parity;
#pragma unroll
        for (int piece = 0; piece < LAC_PIECES; piece++) {
            lac_piece_pack(call, item, outputs, sum, piece, word[piece]);
            if (piece < LAC_PIECES_BEFORE) lac_piece_store(item, outputs, piece, word[piece], staging, y_map);
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
        for (int piece = LAC_PIECES_BEFORE; piece < LAC_PIECES; piece++) lac_piece_store(item, outputs, piece, word[piece], staging, y_map);
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
