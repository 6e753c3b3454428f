/* tile_write.cuh - the sums of a tile (tile.cuh) become Y: epilogue, and stores of 16 bytes or by the copy engine. Used by
 * tile_product.cuh. */
#ifndef LAC_CUDA_KERNELS_TILE_WRITE_CUH
#define LAC_CUDA_KERNELS_TILE_WRITE_CUH

#include "quad.cuh"
#include "tile.cuh"

/* This thread's outputs of a tile, asked for before the first product so that nobody waits for them after the last. */
struct lac_outputs {
    int place[LAC_BLOCKS][2]; /* in Y; -1: nowhere */
    int first[LAC_BLOCKS];    /* of the block's first output that this warp has */
    float bias[LAC_BLOCKS][2];
};

/* The places of this warp's 16 outputs of block b. */
__device__ __forceinline__ const int *lac_places_of(const lac_gather_args &args, const lac_item &item, int b)
{
    return args.output + item.output_tile * LAC_TILE_OUTPUTS +
           ((LAC_SPLITS_OUTPUTS ? threadIdx.x >> 7 : 0) * LAC_BLOCKS + b) * 64 + (threadIdx.x >> 5 & 3) * 16;
}

__device__ __forceinline__ lac_outputs lac_outputs_of(const lac_gpu_call &call, const lac_gather_args &args, const lac_item &item)
{
    lac_outputs outputs;
#pragma unroll
    for (int b = 0; b < LAC_BLOCKS; b++) {
        outputs.first[b] = lac_places_of(args, item, b)[0];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int place = lac_places_of(args, item, b)[(threadIdx.x >> 2 & 7) + 8 * h];
            outputs.place[b][h] = place;
            outputs.bias[b][h] = place < 0 ? 0.0f : lac_bias(call, place);
        }
    }
    return outputs;
}

#if LAC_Y_DTYPE != LAC_F32
/* Whether this warp's part of a block of Y, `tokens` wide, can be stored 16 bytes at a time, as far as it exists. */
__device__ __forceinline__ bool lac_block_in_chunks(const lac_gpu_call &call, const int *output, int token, int tokens)
{
    const bool aligned = ((u64)call.y | (u64)call.ldy * 2) % 16 == 0;
#if LAC_Y_TOKEN_MAJOR
    return aligned && output[0] >= 0 && output[0] % 8 == 0 && output[15] == output[0] + 15;
#else
    return aligned && (call.m % 8 == 0 || token + tokens <= call.m);
#endif
}

template <int sums>
__device__ __forceinline__ void lac_block_write_chunks(const lac_gpu_call &call, const float (&sum)[sums], const int *output,
                                                       const int (&place)[2], int token)
{
    const int q = threadIdx.x & 3;
#if LAC_Y_TOKEN_MAJOR
    u16 *y = (u16 *)call.y + (i64)(token + (q >> 1) * 8 + (threadIdx.x >> 2 & 7)) * call.ldy + output[0] + 8 * (q & 1);
#else
    u16 *y[2];
#pragma unroll
    for (int h = 0; h < 2; h++) y[h] = (u16 *)call.y + (i64)max(place[h], 0) * call.ldy + token + q * 8;
#endif
#pragma unroll
    for (int i = 0; i < sums / 8; i++) {
        u32 word[4];
#pragma unroll
        for (int b = 0; b < 4; b++) {
#if LAC_Y_TOKEN_MAJOR /* blocks of 8 tokens 2i and 2i + 1, both halves of the outputs */
            const int at = (2 * i + (b >> 1)) * 4 + (b & 1) * 2;
            word[b] = lac_transpose_8x8(lac_pack(sum[at], sum[at + 1]));
#else /* four blocks of 8 tokens, one half of the outputs */
            const int at = (i >> 1) * 16 + b * 4 + (i & 1) * 2;
            word[b] = lac_pack(sum[at], sum[at + 1]);
#endif
        }
        lac_quad_transpose(word);
        const uint4 chunk = make_uint4(word[0], word[1], word[2], word[3]);
#if LAC_Y_TOKEN_MAJOR
        if (token + i * 16 + (q >> 1) * 8 + (int)(threadIdx.x >> 2 & 7) < call.m) *(uint4 *)(y + (i64)(i * 16) * call.ldy) = chunk;
#else
        if (place[i & 1] >= 0 && token + (i >> 1) * 32 + q * 8 < call.m) *(uint4 *)(y[i & 1] + (i >> 1) * 32) = chunk;
#endif
    }
}
#endif

/* A block of 64 outputs x 2 * sums tokens (at least 32) from `token` on; this warp's 16 outputs go to the places output[16], of which
 * this thread's sums have place[2]. */
template <int sums>
__device__ __forceinline__ void lac_block_write(const lac_gpu_call &call, float (&sum)[sums], const int *output,
                                                const int (&place)[2], const float (&bias)[2], int token)
{
    const int q = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < sums; i++) {
        const int h = i >> 1 & 1, t = token + (i >> 2) * 8 + 2 * q + (i & 1);
#if LAC_HAS_RESIDUAL
        if (place[h] >= 0 && t < call.m)
#endif
            sum[i] = lac_finish(call, t, place[h], sum[i], bias[h]);
    }
#if LAC_Y_DTYPE != LAC_F32 && !(LAC_Y_TOKEN_MAJOR && LAC_HAS_ROW_PERM)
    if (lac_block_in_chunks(call, output, token, 2 * sums)) {
        lac_block_write_chunks(call, sum, output, place, token);
        return;
    }
#endif
#pragma unroll
    for (int i = 0; i < sums; i++) {
        const int h = i >> 1 & 1, t = token + (i >> 2) * 8 + 2 * q + (i & 1);
        if (place[h] >= 0 && t < call.m) lac_store(call, t, place[h], sum[i]);
    }
}

/* The first token of this warpgroup's part of a tile. */
__device__ __forceinline__ int lac_first_token(const lac_item &item)
{
    return item.token_tile * LAC_TILE_TOKENS + (LAC_SPLITS_OUTPUTS ? 0 : (threadIdx.x >> 7) * LAC_N);
}

#if LAC_STORES_Y
/* A piece of 64 outputs x 64 tokens, of a part of a tile that begins with `token`, as it is in Y: pairs of tokens. */
__device__ __forceinline__ void lac_piece_pack(const lac_gpu_call &call, const lac_outputs &outputs,
                                               const float (&sum)[LAC_BLOCKS][LAC_SUMS], int token, int piece, u32 (&word)[16])
{
    enum { PARTS = LAC_N / 64 };
    const int b = piece / PARTS, part = piece % PARTS, q = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const int h = i & 1, at = part * 32 + (i >> 1) * 4 + h * 2, t = token + part * 64 + (i >> 1) * 8 + 2 * q;
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

/* A packed piece to Y through shared memory: the LAC_ROOMS parts of `staging` in turns. */
__device__ __forceinline__ void lac_piece_store(const lac_outputs &outputs, int token, int piece, const u32 (&word)[16], u32 staging,
                                                const lac_tensor_map *map)
{
    enum { PARTS = LAC_N / 64 };
    const u32 room = staging + piece % LAC_ROOMS * LAC_PIECE;
    const bool leads = (threadIdx.x & 127) == 0;
    if (piece == 0 && !LAC_BY_LAST) { /* the last tile's are read by now */
        if (leads) lac_store_wait_read<0>();
        lac_warpgroup_sync();
    } else if (piece >= LAC_ROOMS) {
        if (leads) lac_store_wait_read<LAC_ROOMS - 1>();
        lac_warpgroup_sync();
    }
    lac_stage_piece(room, word);
    lac_async_fence();
    lac_warpgroup_sync();
    if (leads && outputs.first[piece / PARTS] >= 0)
        lac_store_piece(room, map, outputs.first[piece / PARTS], token + piece % PARTS * 64);
    if (leads) lac_store_commit();
}

/* A warpgroup's part of a tile to Y, a piece at a time. */
__device__ __forceinline__ void lac_tile_store(const lac_gpu_call &call, const lac_item &item, const lac_outputs &outputs,
                                               float (&sum)[LAC_BLOCKS][LAC_SUMS], u32 staging, const lac_tensor_map *map)
{
    const int token = lac_first_token(item);
#pragma unroll
    for (int piece = 0; piece < LAC_PIECES; piece++) {
        u32 word[16];
        lac_piece_pack(call, outputs, sum, token, piece, word);
        lac_piece_store(outputs, token, piece, word, staging, map);
    }
}
#endif

/* A warpgroup's part of a tile to Y. */
__device__ __forceinline__ void lac_tile_write(const lac_gpu_call &call, const lac_gather_args &args, const lac_item &item,
                                               const lac_outputs &outputs, float (&sum)[LAC_BLOCKS][LAC_SUMS])
{
    const int token = lac_first_token(item);
#pragma unroll
    for (int b = 0; b < LAC_BLOCKS; b++)
        lac_block_write(call, sum[b], lac_places_of(args, item, b), outputs.place[b], outputs.bias[b], token);
}

#endif
