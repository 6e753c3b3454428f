/* window_common.cuh - what window.cu and window_mma.cu share: how a problem is cut into items, how a warp finds its rows of X,
 * and how sums become Y. window.cu's head explains the words and the constants. */
#ifndef LAC_CUDA_KERNELS_WINDOW_COMMON_CUH
#define LAC_CUDA_KERNELS_WINDOW_COMMON_CUH

#include "epilogue.cuh"
#include "matrix_load.cuh"
#include "window_tile.cuh"

#define LAC_TILE_WIDTH (2 * LAC_VECTORS * LAC_WIDTH)
#define LAC_TURN (LAC_VECTORS * LAC_STEPS) /* steps of a warpgroup in a window */
#define LAC_CHUNKS (LAC_TURN / LAC_CHUNK)
#define LAC_GROUP_INDEX ((LAC_CHUNK + LAC_PLACES - 1) / LAC_PLACES * LAC_PLACES * 32)
#define LAC_INDEX ((2 * LAC_GROUP_INDEX + 127) / 128 * 128)
#define LAC_MATRIX (LAC_WIDTH * 32)
#define LAC_W_CHUNK (LAC_INDEX + 2 * LAC_CHUNK * LAC_PLANES * LAC_MATRIX)
#define LAC_W_TILE (LAC_CHUNKS * LAC_W_CHUNK)
#define LAC_SUMS (LAC_WIDTH / 2)
#define LAC_COLUMNS_AT_ONCE 8 /* output tiles that are walked together, so that L2 keeps them */

/* A vector's steps in a window are cut into chains: short ones, for the tensor cores' sums are not exact. */
#define LAC_MOST_CHAIN (LAC_PLANES == 2 ? 2 : 4)
#define LAC_CHAINS ((LAC_STEPS + LAC_MOST_CHAIN - 1) / LAC_MOST_CHAIN)
#define LAC_SHORT_CHAIN (LAC_STEPS / LAC_CHAINS)
#define LAC_LONG_CHAINS (LAC_STEPS % LAC_CHAINS) /* the first ones have a step more */

/* Chain of step `step` (counted over all vectors of a window, as chains are), and the first step of a chain. */
__device__ __forceinline__ constexpr int lac_chain_of(int step)
{
    const int in = step % LAC_STEPS, cut = LAC_LONG_CHAINS * (LAC_SHORT_CHAIN + 1);
    return step / LAC_STEPS * LAC_CHAINS +
           (in < cut ? in / (LAC_SHORT_CHAIN + 1) : LAC_LONG_CHAINS + (in - cut) / LAC_SHORT_CHAIN);
}
__device__ __forceinline__ constexpr bool lac_chain_begins(int step)
{
    return step % LAC_STEPS == 0 || lac_chain_of(step) != lac_chain_of(step - 1);
}
__device__ __forceinline__ constexpr bool lac_chain_ends(int step)
{
    return step % LAC_STEPS == LAC_STEPS - 1 || lac_chain_of(step) != lac_chain_of(step + 1);
}

struct lac_item { /* what a block does next: a tile, a part of k */
    int token_tile, output_tile, part, begin, end;
};

/* Number `index` of the items. */
__device__ __forceinline__ lac_item lac_item_of(const lac_window_args &args, int index)
{
    const int rows = args.token_tiles;
    lac_item item;
    item.part = index % LAC_PARTS;
    index /= LAC_PARTS;
    const int band = index / (LAC_COLUMNS_AT_ONCE * rows), first = band * LAC_COLUMNS_AT_ONCE;
    const int wide = args.output_tiles - first < LAC_COLUMNS_AT_ONCE ? args.output_tiles - first : LAC_COLUMNS_AT_ONCE;
    index -= band * LAC_COLUMNS_AT_ONCE * rows;
    item.token_tile = index / wide;
    item.output_tile = first + index % wide;
    item.begin = (int)((i64)args.windows * item.part / LAC_PARTS);
    item.end = (int)((i64)args.windows * (item.part + 1) / LAC_PARTS);
    return item;
}

__device__ __forceinline__ int lac_item_count(const lac_window_args &args)
{
    return args.token_tiles * args.output_tiles * LAC_PARTS;
}

/* Clears the rows behind a stage's window, by all threads of the block. */
__device__ __forceinline__ void lac_zero_rows(u8 *stage, int threads)
{
#if LAC_ZERO_ROWS > 0
    for (int i = threadIdx.x; i < LAC_ZERO_ROWS * LAC_X_ROW / 4; i += threads) ((u32 *)(stage + LAC_X_TILE))[i] = 0;
#endif
}

/* What a warpgroup needs to find its data. */
struct lac_view {
    u32 lane;            /* its piece of a row of X, in bytes                    */
    u32 index, matrices; /* places and matrices, from the beginning of a chunk of W */
};

/* Lanes 0-7 give inputs 0-7 at the first eight of the warp's tokens, 8-15 at the last eight; 16-31 the same of inputs 8-15.
 * group: which half of the tile's vectors. */
__device__ __forceinline__ lac_view lac_view_of(int group)
{
    const int thread = threadIdx.x;
    lac_view view;
    view.lane = ((thread >> 5 & 3) * 2 + (thread >> 3 & 1)) * 16;
    view.index = group * LAC_GROUP_INDEX + ((thread >> 4 & 1) * 8 + (thread & 7)) * (2 * LAC_PLACES);
    view.matrices = LAC_INDEX + group * LAC_CHUNK * LAC_PLANES * LAC_MATRIX;
    return view;
}

/* Where this lane's row lies in a stage of X, by its place. */
__device__ __forceinline__ u32 lac_row_address(const lac_view &view, u32 stage, u32 place)
{
    return stage + LAC_X_HEADER + (place * 16 ^ view.lane);
}

/* The place of this lane's row in step `step` of a chunk. */
__device__ __forceinline__ u32 lac_place(const lac_view &view, u32 chunk, int step)
{
    u32 place;
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(place) : "r"(chunk + view.index + step / LAC_PLACES * (LAC_PLACES * 32) + step % LAC_PLACES * 2));
    return place;
}

__device__ __forceinline__ void lac_promote(float (&total)[LAC_SUMS], const float (&sum)[LAC_SUMS], const float (&factor)[2])
{
#pragma unroll
    for (int i = 0; i < LAC_SUMS; i++) total[i] = __fmaf_rn(sum[i], factor[i >> 1 & 1], total[i]);
}

/* Main and cross products that were kept apart, together again: these are dropped where the main one is not finite. Where lo is
 * scaled, so are they, and the products of two lo are worth adding. */
__device__ __forceinline__ void lac_join(float (&main)[LAC_SUMS], const float (&cross)[LAC_SUMS], const float (&tiny)[LAC_SUMS])
{
    const float scale = 1.0f / (1 << LAC_LOW_SHIFT);
#pragma unroll
    for (int i = 0; i < LAC_SUMS; i++) {
        const bool finite = (__float_as_uint(main[i]) & 0x7f800000u) != 0x7f800000u;
        const float small = LAC_LOW_SHIFT ? __fmaf_rn(tiny[i], scale, cross[i]) : cross[i];
        main[i] = finite ? __fmaf_rn(small, scale, main[i]) : main[i];
    }
}

/* This lane's token of row g + 8 h of band u, counted from the tile's first: split.cu makes neighbours of them. */
__device__ __forceinline__ int lac_token(int u, int h)
{
    return 64 * u + (threadIdx.x >> 5 & 3) * 16 + (threadIdx.x >> 2 & 7) * 2 + h;
}

/* Those of a stage of X for this lane's tokens. volatile where a stage is given back by an arrival (wgmma): they may be used long after
 * it, and the assembler would move the loads there too. Behind mma.sync a barrier of the whole block stands in their way. */
#ifdef LAC_STAGES_BY_BARRIER
#define LAC_LOAD_FACTOR "ld.shared.f32 %0, [%1];"
#else
#define LAC_LOAD_FACTOR "ld.volatile.shared.f32 %0, [%1];"
#endif
__device__ __forceinline__ void lac_factors(float (&factor)[LAC_BANDS][2], u32 stage)
{
#pragma unroll
    for (int i = 0; i < 2 * LAC_BANDS; i++)
        asm volatile(LAC_LOAD_FACTOR : "=f"(factor[i >> 1][i & 1]) : "r"(stage + lac_token(i >> 1, i & 1) * 4));
}

/* Gathers in each lane what split.cu noted of a tile of tokens (window_arguments.h). */
__device__ __forceinline__ void lac_gather_odd(u32 &odd, const lac_window_args &args, int token_tile)
{
    const int count = LAC_BANDS * args.windows;
    const u32 *from = args.odd + (i64)token_tile * count;
#pragma unroll 4
    for (int i = threadIdx.x & 31; i < count; i += 32) odd |= from[i];
}

/* One output (place, -1: none) of two neighbouring tokens, feature-major. */
__device__ __forceinline__ void lac_write_tokens(const lac_gpu_call &call, int token, int place, const float (&sum)[2],
                                                 bool aligned)
{
    if (place < 0 || token >= call.m) return;
    const float bias = lac_bias(call, place), first = lac_finish(call, token, place, sum[0], bias);
    const bool both = token + 1 < call.m;
    const float second = both ? lac_finish(call, token + 1, place, sum[1], bias) : 0.0f;
#if LAC_Y_DTYPE == LAC_F32
    if (aligned && both) {
        *(float2 *)((float *)call.y + lac_at(call.ldy, token, place)) = make_float2(first, second);
        return;
    }
#endif
    lac_store(call, token, place, first);
    if (both) lac_store(call, token + 1, place, second);
}

/* `count` outputs of a token, token-major. */
template <int count>
__device__ __forceinline__ void lac_write_outputs(const lac_gpu_call &call, int token, const int (&place)[count],
                                                  const float (&sum)[count], bool aligned)
{
    float value[count];
    bool together = aligned && count == 4 && place[0] >= 0 && (place[0] & 3) == 0;
    if (token >= call.m) return;
#pragma unroll
    for (int e = 0; e < count; e++) {
        if (place[e] >= 0) value[e] = lac_finish(call, token, place[e], sum[e], lac_bias(call, place[e]));
        together = together && place[e] == place[0] + e;
    }
#if LAC_Y_DTYPE == LAC_F32
    if (together) {
        *(float4 *)((float *)call.y + lac_at(call.ldy, token, place[0])) =
            make_float4(value[0], value[1], value[count - 2], value[count - 1]);
        return;
    }
#endif
#pragma unroll
    for (int e = 0; e < count; e++)
        if (place[e] >= 0) lac_store(call, token, place[e], value[e]);
}

/* `count` outputs of this thread, 4 of two neighbouring groups of eight or 2 of one, for all its tokens. */
template <int count>
__device__ __forceinline__ void lac_write_columns(const lac_gpu_call &call, int token_tile, const int *output,
                                                  const float *factor, const float (&total)[LAC_BANDS][LAC_SUMS], int first)
{
    const int q = threadIdx.x & 3;
#if LAC_Y_TOKEN_MAJOR
    const bool aligned = ((u64)call.y & 15) == 0 && (call.ldy & 3) == 0;
#else
    const bool aligned = ((u64)call.y & 7) == 0 && (call.ldy & 1) == 0;
#endif
    int place[count];
    float scale[count];
#pragma unroll
    for (int e = 0; e < count; e++) {
        place[e] = output[2 * first + e / 2 * 8 + 2 * q + e % 2];
        scale[e] = factor[2 * first + e / 2 * 8 + 2 * q + e % 2];
    }
#pragma unroll
    for (int u = 0; u < LAC_BANDS; u++) {
        const int token = token_tile * LAC_TOKENS + lac_token(u, 0);
        const float *t = total[u] + first;
#if LAC_Y_TOKEN_MAJOR
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum[count];
#pragma unroll
            for (int e = 0; e < count; e++) sum[e] = t[e / 2 * 4 + 2 * h + e % 2] * scale[e];
            lac_write_outputs<count>(call, token + h, place, sum, aligned);
        }
#else
#pragma unroll
        for (int e = 0; e < count; e++) {
            const float sum[2] = {t[e / 2 * 4 + e % 2] * scale[e], t[e / 2 * 4 + 2 + e % 2] * scale[e]};
            lac_write_tokens(call, token, place[e], sum, aligned);
        }
#endif
    }
}

/* A thread's part of a tile to Y: 64 bytes of a row at a time in either layout. output and factor are those of the tile. */
__device__ __forceinline__ void lac_tile_write(const lac_gpu_call &call, int token_tile, const int *output, const float *factor,
                                               const float (&total)[LAC_VECTORS][LAC_BANDS][LAC_SUMS])
{
    const int begin = (threadIdx.x >> 7) * LAC_VECTORS * LAC_WIDTH;
#pragma unroll
    for (int v = 0; v < LAC_VECTORS; v++) {
        const int *places = output + begin + v * LAC_WIDTH;
        const float *scales = factor + begin + v * LAC_WIDTH;
#pragma unroll
        for (int i = 0; i + 8 <= LAC_SUMS; i += 8) lac_write_columns<4>(call, token_tile, places, scales, total[v], i);
        if (LAC_SUMS % 8) lac_write_columns<2>(call, token_tile, places, scales, total[v], LAC_SUMS - 4);
    }
}

__device__ __forceinline__ float *lac_partial_of(const lac_window_args &args, int token_tile, int output_tile, int part)
{
    const i64 tile = (i64)token_tile * args.output_tiles + output_tile;
    return args.partial + (tile * LAC_PARTS + part) * (LAC_TOKENS * LAC_TILE_WIDTH) + threadIdx.x;
}

/* The end of an item: to Y, or to its place among the parts of k. output and factor are those of the tile. */
__device__ __forceinline__ void lac_tile_finish(const lac_gpu_call &call, const lac_window_args &args, const lac_item &item,
                                                const int *output, const float *factor,
                                                const float (&total)[LAC_VECTORS][LAC_BANDS][LAC_SUMS])
{
#if LAC_PARTS > 1
    float *to = lac_partial_of(args, item.token_tile, item.output_tile, item.part);
#pragma unroll
    for (int v = 0; v < LAC_VECTORS; v++)
#pragma unroll
        for (int u = 0; u < LAC_BANDS; u++)
#pragma unroll
            for (int i = 0; i < LAC_SUMS; i++) to[((v * LAC_BANDS + u) * LAC_SUMS + i) * 256] = total[v][u][i];
#else
    lac_tile_write(call, item.token_tile, output, factor, total);
#endif
}

#if LAC_PARTS > 1
/* The parts of k, added in their order. A block a tile. */
extern "C" __global__ void __launch_bounds__(256) lac_window_reduce(lac_gpu_call call, lac_window_args args)
{
    const int token_tile = blockIdx.x / args.output_tiles, output_tile = blockIdx.x % args.output_tiles;
    const float *from = lac_partial_of(args, token_tile, output_tile, 0);
    float total[LAC_VECTORS][LAC_BANDS][LAC_SUMS];
#pragma unroll
    for (int v = 0; v < LAC_VECTORS; v++)
#pragma unroll
        for (int u = 0; u < LAC_BANDS; u++)
#pragma unroll
            for (int i = 0; i < LAC_SUMS; i++) {
                float sum = 0.0f;
                for (int part = 0; part < LAC_PARTS; part++)
                    sum += from[part * (LAC_TOKENS * LAC_TILE_WIDTH) + ((v * LAC_BANDS + u) * LAC_SUMS + i) * 256];
                total[v][u][i] = sum;
            }
    lac_tile_write(call, token_tile, args.output + (i64)output_tile * LAC_TILE_WIDTH,
                   args.factor + (i64)output_tile * LAC_TILE_WIDTH, total);
}
#endif

#endif
