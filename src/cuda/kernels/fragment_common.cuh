/* fragment_common.cuh - the sizes of a stage, what a block does, and how its sums become Y; for fragment.cu, whose head has the
 * words and the constants. */
#ifndef LAC_CUDA_KERNELS_FRAGMENT_COMMON_CUH
#define LAC_CUDA_KERNELS_FRAGMENT_COMMON_CUH

#include "epilogue.cuh"
#include "fragment_arguments.h"

#define LAC_THREADS (LAC_WARPS_OUTPUTS * LAC_WARPS_TOKENS * 32)
#define LAC_TILE_OUTPUTS (LAC_WARPS_OUTPUTS * LAC_WARP_OUTPUTS)
#define LAC_TILE_TOKENS (LAC_WARPS_TOKENS * LAC_WARP_TOKENS)
#define LAC_HIGH (LAC_WARP_OUTPUTS / 16)  /* products of a warp along the outputs ... */
#define LAC_WIDE (LAC_WARP_TOKENS / 8)    /* ... and along the tokens                 */
#define LAC_STEP (LAC_KIND == 1 ? 32 : 16) /* rows of X in a product                  */
#define LAC_STEPS (LAC_ROWS / LAC_STEP)
#define LAC_BANDS (LAC_TILE_OUTPUTS / 16) /* of 16 outputs, in a tile */

#define LAC_X_STAGE (LAC_ROWS * LAC_TILE_TOKENS * 2)
#define LAC_X_LINE ((LAC_DIRECT ? LAC_ROWS : LAC_TILE_TOKENS) * 2) /* a row's tokens, or a token's inputs */
#define LAC_KEPT_WORDS ((LAC_KEPT + 1) / 2)
#define LAC_EIGHT (LAC_KEPT_WORDS * 128 + LAC_ROWS) /* 8 outputs of an expanding stage */
#define LAC_W_STAGE                                                                                                            \
    (LAC_KIND == 2 ? 2 * LAC_BANDS * LAC_EIGHT : LAC_STEPS * LAC_BANDS * 512 + (LAC_KIND == 1 ? LAC_BANDS * 128 : 0))
#define LAC_STAGE (LAC_X_STAGE + LAC_W_STAGE)
#define LAC_SPREAD (LAC_STEPS * LAC_BANDS * 512)
#define LAC_NUMBERS (LAC_STAGES * LAC_STAGE) /* where the numbers of rows begin */
#define LAC_SPREAD_AT (LAC_NUMBERS + 2 * LAC_STAGES * LAC_ROWS * 4)

#define LAC_SLAB_ROW (LAC_WARP_TOKENS + 8) /* floats: neighbouring outputs 8 banks apart */

/* ---- tiles */

struct lac_item {
    int token_tile, output_tile, begin, end; /* stages */
};

/* Bands of outputs, in each all tokens, in each all parts. */
__device__ __forceinline__ lac_item lac_item_of(const lac_fragment_args &args, int index)
{
    lac_item item;
    const int part = index % LAC_PARTS;
    index /= LAC_PARTS;
    const int first = index / (args.band * args.token_tiles) * args.band;
    const int wide = min(args.band, args.output_tiles - first);
    index -= first * args.token_tiles;
    item.token_tile = index / wide;
    item.output_tile = first + index % wide;
#if LAC_EVEN
    const int begin = item.output_tile * args.tile_stages, count = args.tile_stages;
#else
    const int begin = args.range[2 * item.output_tile], count = args.range[2 * item.output_tile + 1] - begin;
#endif
    item.begin = begin + (int)((i64)count * part / LAC_PARTS);
    item.end = begin + (int)((i64)count * (part + 1) / LAC_PARTS);
    return item;
}

/* ---- from sums to Y */

__device__ __forceinline__ void lac_store_eight(void *to, const float (&v)[8])
{
#if LAC_Y_DTYPE == LAC_F32
    ((float4 *)to)[0] = make_float4(v[0], v[1], v[2], v[3]);
    ((float4 *)to)[1] = make_float4(v[4], v[5], v[6], v[7]);
#else
    u32 word[4];
#pragma unroll
    for (int i = 0; i < 4; i++) word[i] = lac_narrow<LAC_Y_DTYPE>(v[2 * i]) | (u32)lac_narrow<LAC_Y_DTYPE>(v[2 * i + 1]) << 16;
    *(uint4 *)to = make_uint4(word[0], word[1], word[2], word[3]);
#endif
}

/* A warp's 16 outputs x LAC_WARP_TOKENS to Y, through shared memory of its own: a thread then has eight neighbours of Y.
 * Lanes i and i + 16 bring the place of output i, -1: nowhere. */
__device__ __forceinline__ void lac_slab_finish(const lac_gpu_call &call, int places, int token_begin, float *slab,
                                                const float (&sum)[LAC_WIDE][4])
{
    const int lane = threadIdx.x & 31;
    const bool aligned = ((u64)call.y | (u64)call.ldy * sizeof(lac_element<LAC_Y_DTYPE>::type)) % 16 == 0;
#pragma unroll
    for (int j = 0; j < LAC_WIDE; j++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            *(float2 *)(slab + (lane / 4 + 8 * h) * LAC_SLAB_ROW + j * 8 + lane % 4 * 2) = make_float2(sum[j][2 * h], sum[j][2 * h + 1]);
    __syncwarp();
#pragma unroll
    for (int pass = 0; pass < LAC_WARP_TOKENS / 16; pass++) {
        const int i = pass * 32 + lane;
        float v[8];
#if LAC_Y_TOKEN_MAJOR
        const int token = token_begin + i / 2, row = i % 2 * 8;
        const float *from = slab + row * LAC_SLAB_ROW + i / 2;
        int place[8];
#pragma unroll
        for (int e = 0; e < 8; e++) place[e] = __shfl_sync(0xffffffffu, places, row + e);
        if (token >= call.m) continue;
        if (!LAC_HAS_ROW_PERM && aligned && place[0] % 8 == 0 && place[7] >= 0) {
#pragma unroll
            for (int e = 0; e < 8; e++) v[e] = lac_finish(call, token, place[e], from[e * LAC_SLAB_ROW], lac_bias(call, place[e]));
            lac_store_eight((lac_element<LAC_Y_DTYPE>::type *)call.y + lac_at(call.ldy, token, place[0]), v);
        } else {
#pragma unroll
            for (int e = 0; e < 8; e++)
                if (place[e] >= 0)
                    lac_store(call, token, place[e], lac_finish(call, token, place[e], from[e * LAC_SLAB_ROW], lac_bias(call, place[e])));
        }
#else
        const int row = i / LAC_WIDE, token = token_begin + i % LAC_WIDE * 8, place = __shfl_sync(0xffffffffu, places, row);
        const float *from = slab + row * LAC_SLAB_ROW + i % LAC_WIDE * 8;
        if (place < 0) continue;
        const float bias = lac_bias(call, place);
        if (aligned && token + 8 <= call.m) {
#pragma unroll
            for (int e = 0; e < 8; e++) v[e] = lac_finish(call, token + e, place, from[e], bias);
            lac_store_eight((lac_element<LAC_Y_DTYPE>::type *)call.y + lac_at(call.ldy, token, place), v);
        } else {
#pragma unroll 1
            for (int e = 0; e < 8 && token + e < call.m; e++)
                lac_store(call, token + e, place, lac_finish(call, token + e, place, from[e], bias));
        }
#endif
    }
    __syncwarp();
}

/* The place of this lane's output of this warp's slab i. */
__device__ __forceinline__ int lac_place_of(const lac_fragment_args &args, int output_tile, int i)
{
    return args.output[(i64)output_tile * LAC_TILE_OUTPUTS + (threadIdx.x >> 5) / LAC_WARPS_TOKENS * LAC_WARP_OUTPUTS + i * 16 +
                       (threadIdx.x & 15)];
}

/* Where the sums of a warp's slab i of a part lie: [tile][part][slab][sum][thread]. */
__device__ __forceinline__ i64 lac_partial_at(const lac_fragment_args &args, int output_tile, int token_tile, int part, int i)
{
    const i64 tile = (i64)output_tile * args.token_tiles + token_tile;
    return ((tile * LAC_PARTS + part) * LAC_HIGH + i) * (LAC_WIDE * 4 * LAC_THREADS) + threadIdx.x;
}

/* One of this warp's slabs. */
__device__ __forceinline__ void lac_write(const lac_gpu_call &call, int token_tile, int places, float *slabs,
                                          const float (&sum)[LAC_WIDE][4])
{
    const int warp = threadIdx.x >> 5;
    lac_slab_finish(call, places, token_tile * LAC_TILE_TOKENS + warp % LAC_WARPS_TOKENS * LAC_WARP_TOKENS,
                    slabs + warp * (16 * LAC_SLAB_ROW), sum);
}

#endif
