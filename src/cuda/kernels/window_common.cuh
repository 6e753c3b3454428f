/* window_common.cuh - what window.cu and window_mma.cu share: how a problem is cut into items, how a warp finds its rows of X,
 * and how sums become Y. window.cu's head explains the words and the constants. */
#ifndef LAC_CUDA_KERNELS_WINDOW_COMMON_CUH
#define LAC_CUDA_KERNELS_WINDOW_COMMON_CUH

#include "epilogue.cuh"
#include "matrix_load.cuh"
#include "window_tile.cuh"

#define LAC_TILE_WIDTH (2 * LAC_VECTORS * LAC_WIDTH)
#define LAC_MATRICES (2 * LAC_VECTORS * LAC_STEPS)
#define LAC_INDEX ((LAC_MATRICES * 32 + 127) / 128 * 128)
#define LAC_MATRIX (LAC_WIDTH * 32)
#define LAC_W_TILE (LAC_INDEX + LAC_MATRICES * LAC_PLANES * LAC_MATRIX)
#define LAC_STAGE ((LAC_X_STAGE + LAC_W_TILE + 127) / 128 * 128)
#define LAC_SUMS (LAC_WIDTH / 2)
#define LAC_GROUP (8 / LAC_CLUSTER) /* output tiles, by the cluster, that are walked together, so that L2 keeps them */

/* A vector's steps in a window are cut into chains of at most LAC_CHAIN, for want of registers. */
#define LAC_MOST_CHAIN (LAC_PLANES == 2 ? 2 : 4)
#define LAC_CHAIN (LAC_STEPS < LAC_MOST_CHAIN ? LAC_STEPS : LAC_MOST_CHAIN)
#define LAC_CHAINS ((LAC_STEPS + LAC_CHAIN - 1) / LAC_CHAIN)
#define LAC_UNITS (2 * LAC_VECTORS * LAC_CHAINS)

/* The first step of chain `chain` (counted over all vectors) and how many it has. */
__device__ __forceinline__ constexpr int lac_chain_first(int chain)
{
    return chain / LAC_CHAINS * LAC_STEPS + chain % LAC_CHAINS * LAC_CHAIN;
}
__device__ __forceinline__ constexpr int lac_chain_steps(int chain)
{
    return chain % LAC_CHAINS < LAC_CHAINS - 1 ? LAC_CHAIN : LAC_STEPS - (LAC_CHAINS - 1) * LAC_CHAIN;
}

struct lac_fragments { /* A of a unit */
    u32 plane[LAC_CHAIN][LAC_PLANES][4];
};
struct lac_rows { /* where this lane's row lies, for each step of a chain */
    u32 address[LAC_CHAIN];
};

struct lac_item { /* what a block does next: a tile, a part of k */
    int token_tile, output_tile, part, begin, end;
};

/* Number `index` of the tiles that a cluster does together; output_tile may lie past the last one in the last of them. */
__device__ __forceinline__ lac_item lac_item_of(const lac_window_args &args, int index)
{
    const int columns = (args.output_tiles + LAC_CLUSTER - 1) / LAC_CLUSTER;
    lac_item item;
    item.part = index % LAC_PARTS;
    index /= LAC_PARTS;
    const int band = index / (LAC_GROUP * args.token_tiles), first = band * LAC_GROUP;
    const int wide = columns - first < LAC_GROUP ? columns - first : LAC_GROUP;
    index -= band * LAC_GROUP * args.token_tiles;
    item.token_tile = index / wide;
    item.output_tile = (first + index % wide) * LAC_CLUSTER + (int)(blockIdx.x % LAC_CLUSTER);
    item.begin = (int)((i64)args.windows * item.part / LAC_PARTS);
    item.end = (int)((i64)args.windows * (item.part + 1) / LAC_PARTS);
    return item;
}

__device__ __forceinline__ int lac_item_count(const lac_window_args &args)
{
    return (args.output_tiles + LAC_CLUSTER - 1) / LAC_CLUSTER * args.token_tiles * LAC_PARTS;
}

/* Clears the rows behind a stage's window, by all threads of the block. */
__device__ __forceinline__ void lac_zero_rows(u8 *stage, int threads)
{
#if LAC_ZERO_ROWS > 0
    for (int i = threadIdx.x; i < LAC_ZERO_ROWS * LAC_X_ROW / 4; i += threads) ((u32 *)(stage + LAC_X_TILE))[i] = 0;
#endif
}

/* What a warpgroup needs to find its data in a stage. */
struct lac_view {
    u32 lane;            /* its piece of a row, in bytes                        */
    u32 index, matrices; /* places and matrices of W, from the stage's beginning */
};

/* Lanes 0-7 give inputs 0-7 at the first eight of the warp's tokens, 8-15 at the last eight; 16-31 the same of inputs 8-15.
 * group: which half of the tile's vectors. */
__device__ __forceinline__ lac_view lac_view_of(int group)
{
    const int thread = threadIdx.x;
    lac_view view;
    view.lane = ((thread >> 5 & 3) * 2 + (thread >> 3 & 1)) * 16;
    view.index = LAC_X_STAGE + group * LAC_VECTORS * LAC_STEPS * 32 + ((thread >> 4 & 1) * 8 + (thread & 7)) * 2;
    view.matrices = LAC_X_STAGE + LAC_INDEX + group * LAC_VECTORS * LAC_STEPS * LAC_PLANES * LAC_MATRIX;
    return view;
}

/* Where this lane's row of a step lies. */
__device__ __forceinline__ u32 lac_row_address(const lac_view &view, u32 stage, int step)
{
    u32 place;
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(place) : "r"(stage + view.index + step * 32));
    return stage + LAC_X_HEADER + (place * 16 ^ view.lane);
}

/* The same for every step of a chain. */
__device__ __forceinline__ void lac_locate(lac_rows &rows, const lac_view &view, u32 stage, int chain)
{
#pragma unroll
    for (int s = 0; s < lac_chain_steps(chain); s++)
        rows.address[s] = lac_row_address(view, stage, lac_chain_first(chain) + s);
}

/* Starts the loads of a unit's fragments. */
template <int u> __device__ __forceinline__ void lac_fetch(lac_fragments &f, const lac_rows &rows, int chain)
{
#pragma unroll
    for (int s = 0; s < lac_chain_steps(chain); s++) {
        lac_load_turned<u * 128>(f.plane[s][0], rows.address[s]);
#if LAC_PLANES == 2
        lac_load_turned<u * 128 + LAC_X_PLANE>(f.plane[s][1], rows.address[s]);
#endif
    }
}

__device__ __forceinline__ void lac_promote(float (&total)[LAC_SUMS], const float (&sum)[LAC_SUMS], const float (&factor)[2])
{
#pragma unroll
    for (int i = 0; i < LAC_SUMS; i++) total[i] = __fmaf_rn(sum[i], factor[i >> 1 & 1], total[i]);
}

/* This lane's token of row g + 8 h of product u, counted from the tile's first. */
__device__ __forceinline__ int lac_token(int u, int h)
{
    return 64 * u + (threadIdx.x >> 5 & 3) * 16 + 8 * h + (threadIdx.x >> 2 & 7);
}

__device__ __forceinline__ void lac_factors(float (&factor)[2][2], u32 stage)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(factor[i >> 1][i & 1]) : "r"(stage + lac_token(i >> 1, i & 1) * 4));
}

/* Whether X has an infinity or a NaN in this tile of tokens. The same for every thread of the block. */
__device__ __forceinline__ bool lac_tile_odd(const lac_window_args &args, int token_tile)
{
    u32 odd = args.weight_odd;
    for (int i = threadIdx.x & 31; i < 2 * args.windows; i += 32) odd |= args.odd[(i64)token_tile * 2 * args.windows + i];
    return __any_sync(0xffffffffu, odd);
}

/* Outputs place[0] and place[1] (-1: none) of a token. */
__device__ __forceinline__ void lac_write(const lac_gpu_call &call, int token, const int (&place)[2], const float (&sum)[2],
                                          bool aligned)
{
    float value[2];
#pragma unroll
    for (int e = 0; e < 2; e++)
        if (place[e] >= 0) value[e] = lac_finish(call, token, place[e], sum[e], lac_bias(call, place[e]));
#if LAC_Y_DTYPE == LAC_F32 && LAC_Y_TOKEN_MAJOR
    if (aligned && place[0] >= 0 && place[1] == place[0] + 1 && (place[0] & 1) == 0) {
        *(float2 *)((float *)call.y + lac_at(call.ldy, token, place[0])) = make_float2(value[0], value[1]);
        return;
    }
#endif
#pragma unroll
    for (int e = 0; e < 2; e++)
        if (place[e] >= 0) lac_store(call, token, place[e], value[e]);
}

/* A thread's part of a tile to Y: 32 bytes of a row at a time in either layout. */
__device__ __forceinline__ void lac_tile_write(const lac_gpu_call &call, const lac_window_args &args, int token_tile,
                                               int output_tile, const float (&total)[LAC_VECTORS][2][LAC_SUMS])
{
    const int group = threadIdx.x >> 7, q = threadIdx.x & 3;
    const bool aligned = ((u64)call.y & 7) == 0 && (call.ldy & 1) == 0;
    const i64 first = (i64)output_tile * LAC_TILE_WIDTH + group * LAC_VECTORS * LAC_WIDTH + 2 * q;
#pragma unroll
    for (int v = 0; v < LAC_VECTORS; v++)
#pragma unroll
        for (int i = 0; i < LAC_SUMS; i += 4) {
            const i64 o = first + v * LAC_WIDTH + i * 2;
            const int place[2] = {args.output[o], args.output[o + 1]};
            const float factor[2] = {args.factor[o], args.factor[o + 1]};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int token = token_tile * LAC_TOKENS + lac_token(j >> 1, j & 1);
                const float *t = total[v][j >> 1] + i + 2 * (j & 1);
                const float sum[2] = {t[0] * factor[0], t[1] * factor[1]};
                if (token < call.m) lac_write(call, token, place, sum, aligned);
            }
        }
}

__device__ __forceinline__ float *lac_partial_of(const lac_window_args &args, int token_tile, int output_tile, int part)
{
    const i64 tile = (i64)token_tile * args.output_tiles + output_tile;
    return args.partial + (tile * LAC_PARTS + part) * (LAC_TOKENS * LAC_TILE_WIDTH) + threadIdx.x;
}

/* The end of an item: to Y, or to its place among the parts of k. */
__device__ __forceinline__ void lac_tile_finish(const lac_gpu_call &call, const lac_window_args &args, const lac_item &item,
                                                const float (&total)[LAC_VECTORS][2][LAC_SUMS])
{
    if (LAC_CLUSTER > 1 && item.output_tile >= args.output_tiles) return;
#if LAC_PARTS > 1
    float *to = lac_partial_of(args, item.token_tile, item.output_tile, item.part);
#pragma unroll
    for (int v = 0; v < LAC_VECTORS; v++)
#pragma unroll
        for (int u = 0; u < 2; u++)
#pragma unroll
            for (int i = 0; i < LAC_SUMS; i++) to[((v * 2 + u) * LAC_SUMS + i) * 256] = total[v][u][i];
#else
    lac_tile_write(call, args, item.token_tile, item.output_tile, total);
#endif
}

#if LAC_PARTS > 1
/* The parts of k, added in their order. A block a tile. */
extern "C" __global__ void __launch_bounds__(256) lac_window_reduce(lac_gpu_call call, lac_window_args args)
{
    const int token_tile = blockIdx.x / args.output_tiles, output_tile = blockIdx.x % args.output_tiles;
    const float *from = lac_partial_of(args, token_tile, output_tile, 0);
    float total[LAC_VECTORS][2][LAC_SUMS];
#pragma unroll
    for (int v = 0; v < LAC_VECTORS; v++)
#pragma unroll
        for (int u = 0; u < 2; u++)
#pragma unroll
            for (int i = 0; i < LAC_SUMS; i++) {
                float sum = 0.0f;
                for (int part = 0; part < LAC_PARTS; part++)
                    sum += from[part * (LAC_TOKENS * LAC_TILE_WIDTH) + ((v * 2 + u) * LAC_SUMS + i) * 256];
                total[v][u][i] = sum;
            }
    lac_tile_write(call, args, token_tile, output_tile, total);
}
#endif

#endif
