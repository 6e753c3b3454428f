/* window.cu - fp32 SpMM on tensor cores: whole windows of X in shared memory, each vector of W selects its inputs on the way
 * to registers.
 *
 * Y[128 tokens][2 * LAC_VECTORS vectors of LAC_WIDTH outputs] is a tile; blocks run over tiles (times parts of k) until none
 * is left. One producer thread streams windows of X (window_tile.cuh) and of W by bulk copies through LAC_STAGES stages; two
 * warpgroups compute, each all 128 tokens of its LAC_VECTORS vectors.
 *
 * Thread to data: lane = 4 g + q of warp w of a warpgroup has rows g and g + 8 of two 64-token products u; row g + 8 h of
 * product u is token 64 u + 16 w + 2 g + h (two planes) or 32 w + 4 g + 2 u + h (one plane). For 16 selected inputs it loads
 * 8 bytes of inputs 2q, 2q+1, 2q+8, 2q+9, which are its A fragments: {hi, lo} of two tokens, or hi of four.
 *
 * A unit is the product u of a vector over a window, or over part of it: at most 32 slots, sums from zero. While a unit is in the tensor
 * cores, the unit before it is added to fp32 registers in the ordinary way, times the factor of the token and the window
 * (the tensor cores' own accumulator truncates), the next one's fragments are put together, and those of the one after that
 * are on their way from shared memory.
 *
 * A stage of W: [vector][step][q][4] u16, where the four inputs lie (in 32-byte units, swizzle included), padded to 128
 * bytes; then [vector][step][plane] matrices of LAC_WIDTH outputs x 16 inputs in core matrices of 8 x 16 bytes.
 *
 * Products: with two planes x w = xhi whi + xhi wlo + xlo whi; with one, xhi whi. Where X or W is not finite, the cross
 * products are kept apart and dropped where the main one is not finite.
 *
 * Constants: LAC_WINDOW inputs, LAC_STEPS steps of 16 slots a window, LAC_WIDTH (8, 16, 24, 32), LAC_VECTORS (even),
 * LAC_STAGES, LAC_PLANES, LAC_ZERO_ROWS, LAC_PARTS (1: k is not split), and those of
 * epilogue.cuh. Bottleneck: shared memory (gathered X, W once per 64 tokens, the copies). */
#define LAC_OPERAND 2
#include "epilogue.cuh"
#include "pipeline.cuh"
#include "wgmma.cuh"
#include "window_tile.cuh"

#define LAC_TILE_WIDTH (2 * LAC_VECTORS * LAC_WIDTH)
#define LAC_MATRICES (2 * LAC_VECTORS * LAC_STEPS)
#define LAC_INDEX ((LAC_MATRICES * 32 + 127) / 128 * 128)
#define LAC_MATRIX (LAC_WIDTH * 32)
#define LAC_W_TILE (LAC_INDEX + LAC_MATRICES * LAC_PLANES * LAC_MATRIX)
#define LAC_STAGE ((LAC_X_STAGE + LAC_W_TILE + 127) / 128 * 128)
#define LAC_SUMS (LAC_WIDTH / 2)
#define LAC_GROUP 8 /* output tiles that are walked together, so that L2 keeps them */

/* A vector's steps in a window are cut into chains of at most LAC_CHAIN, for want of registers. */
#define LAC_CHAIN (LAC_STEPS < 2 ? LAC_STEPS : 2)
#define LAC_CHAINS ((LAC_STEPS + LAC_CHAIN - 1) / LAC_CHAIN)
#define LAC_UNITS (2 * LAC_VECTORS * LAC_CHAINS)
/* A gather brings both planes of one unit, or the one plane of both products of a chain. */
#define LAC_GATHERS (LAC_PLANES == 2 ? LAC_UNITS : LAC_UNITS / 2)

/* The first step of chain `chain` (counted over all vectors) and how many it has. */
__device__ __forceinline__ constexpr int lac_chain_first(int chain)
{
    return chain / LAC_CHAINS * LAC_STEPS + chain % LAC_CHAINS * LAC_CHAIN;
}
__device__ __forceinline__ constexpr int lac_chain_steps(int chain)
{
    return chain % LAC_CHAINS < LAC_CHAINS - 1 ? LAC_CHAIN : LAC_STEPS - (LAC_CHAINS - 1) * LAC_CHAIN;
}

struct lac_fragments {
    u32 side[LAC_CHAIN][2][4];
};
struct lac_raw {
    u32 word[LAC_CHAIN][4][2];
};
struct lac_places {
    u32 pair[LAC_CHAIN][2];
};

struct lac_item { /* what a block does next: a tile, a part of k */
    int token_tile, output_tile, part, begin, end;
};

__device__ __forceinline__ lac_item lac_item_of(const lac_window_args &args, int index)
{
    lac_item item;
    item.part = index % LAC_PARTS;
    index /= LAC_PARTS;
    const int band = index / (LAC_GROUP * args.token_tiles), first = band * LAC_GROUP;
    const int wide = args.output_tiles - first < LAC_GROUP ? args.output_tiles - first : LAC_GROUP;
    index -= band * LAC_GROUP * args.token_tiles;
    item.token_tile = index / wide;
    item.output_tile = first + index % wide;
    item.begin = (int)((i64)args.windows * item.part / LAC_PARTS);
    item.end = (int)((i64)args.windows * (item.part + 1) / LAC_PARTS);
    return item;
}

__device__ __forceinline__ u32 lac_pick(u32 a, u32 b, u32 selector)
{
    u32 result;
    asm volatile("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(selector));
    return result;
}

/* Where the inputs of this lane lie, for every step of a chain. */
__device__ __forceinline__ void lac_locate(lac_places &places, u32 index, int chain)
{
    index += lac_chain_first(chain) * 32;
#pragma unroll
    for (int s = 0; s < lac_chain_steps(chain); s++)
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                     : "=r"(places.pair[s][0]), "=r"(places.pair[s][1])
                     : "r"(index + s * 32));
}

/* Starts the loads of a gather. rows: the stage's rows of X, where this lane's tokens begin when xored with `lane`. */
__device__ __forceinline__ void lac_fetch(lac_raw &raw, const lac_places &places, u32 rows, u32 lane, int chain)
{
#pragma unroll
    for (int s = 0; s < lac_chain_steps(chain); s++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u32 pair = places.pair[s][i >> 1];
            const u32 address = rows + (((i & 1 ? pair >> 11 : pair << 5) & 0x1fffe0u) ^ lane);
            asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                         : "=r"(raw.word[s][i][0]), "=r"(raw.word[s][i][1])
                         : "r"(address));
        }
}

/* Puts pairs of inputs side by side: fragment i is row g + 8 (i & 1), inputs 2q and 2q+1, 8 further where i >= 2. */
__device__ __forceinline__ void lac_arrange(lac_fragments &f, const lac_raw &raw, int chain)
{
#pragma unroll
    for (int s = 0; s < lac_chain_steps(chain); s++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int a = i & 2, h = i & 1;
#if LAC_PLANES == 2 /* word h: {hi, lo} of token h */
            f.side[s][0][i] = lac_pick(raw.word[s][a][h], raw.word[s][a + 1][h], 0x5410);
            f.side[s][1][i] = lac_pick(raw.word[s][a][h], raw.word[s][a + 1][h], 0x7632);
#else /* word u: tokens 2u and 2u + 1 */
            f.side[s][0][i] = lac_pick(raw.word[s][a][0], raw.word[s][a + 1][0], h ? 0x7632 : 0x5410);
            f.side[s][1][i] = lac_pick(raw.word[s][a][1], raw.word[s][a + 1][1], h ? 0x7632 : 0x5410);
#endif
        }
}

/* sum = products of a unit; in each step the small cross products first, while they are not yet lost beside the main ones. */
__device__ __forceinline__ void lac_products(float (&sum)[LAC_SUMS], const lac_fragments &f, int u, u64 matrix, int chain)
{
    matrix += lac_chain_first(chain) * (LAC_PLANES * LAC_MATRIX >> 4);
#pragma unroll
    for (int s = 0; s < lac_chain_steps(chain); s++, matrix += LAC_PLANES * LAC_MATRIX >> 4) {
#if LAC_PLANES == 2
        lac_wgmma<LAC_WIDTH>::run(sum, f.side[s][1], matrix, s == 0);
        lac_wgmma<LAC_WIDTH>::run(sum, f.side[s][0], matrix + (LAC_MATRIX >> 4), 0);
        lac_wgmma<LAC_WIDTH>::run(sum, f.side[s][0], matrix, 0);
#else
        lac_wgmma<LAC_WIDTH>::run(sum, f.side[s][u], matrix, s == 0);
#endif
    }
}

__device__ __forceinline__ void lac_promote(float (&total)[LAC_SUMS], const float (&sum)[LAC_SUMS], const float (&factor)[2])
{
#pragma unroll
    for (int i = 0; i < LAC_SUMS; i++) total[i] = __fmaf_rn(sum[i], factor[i >> 1 & 1], total[i]);
}

/* This lane's two tokens of product u, counted from the tile's first. */
__device__ __forceinline__ int lac_token(int u)
{
    const int warp = threadIdx.x >> 5 & 3, g = threadIdx.x >> 2 & 7;
    return LAC_PLANES == 2 ? 64 * u + 16 * warp + 2 * g : 32 * warp + 4 * g + 2 * u;
}

__device__ __forceinline__ void lac_factors(float (&factor)[2][2], u32 stage)
{
#pragma unroll
    for (int u = 0; u < 2; u++)
        asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
                     : "=f"(factor[u][0]), "=f"(factor[u][1])
                     : "r"(stage + lac_token(u) * 4));
}

/* What a warpgroup needs to find its data in a stage. */
struct lac_view {
    u32 lane, index, matrices; /* the last two from the stage's first byte */
};

__device__ __forceinline__ u32 lac_stage_of(u32 stages, u32 stage) { return stages + stage * LAC_STAGE; }

/* The chain of a gather, and its rows of X: the upper half of the tokens where it is for product 1 alone. */
__device__ __forceinline__ constexpr int lac_gather_chain(int gather) { return LAC_PLANES == 2 ? gather / 2 : gather; }
__device__ __forceinline__ constexpr u32 lac_gather_rows(int gather)
{
    return LAC_X_HEADER + (LAC_PLANES == 2 && gather & 1 ? LAC_X_ROW / 2 : 0);
}

/* Adds the windows of an item to `total`, overlapped as the head of this file says. */
__device__ __forceinline__ void lac_consume(float (&total)[LAC_VECTORS][2][LAC_SUMS], const lac_view &view, int windows,
                                            u32 stages, u32 full, u32 empty, u32 &stage, u32 &parity)
{
    enum { SHARE = LAC_UNITS / LAC_GATHERS }; /* units a gather */
    float sum[2][LAC_SUMS], factor[2][2];
    lac_fragments fragments[2];
    lac_raw raw;
    lac_places places;
    u32 base = lac_stage_of(stages, stage);
    lac_barrier_wait(full + 8 * stage, parity);
    lac_locate(places, base + view.index, 0);
    lac_fetch(raw, places, base + lac_gather_rows(0), view.lane, 0);
    lac_arrange(fragments[0], raw, 0);
    lac_locate(places, base + view.index, lac_gather_chain(1));
    lac_fetch(raw, places, base + lac_gather_rows(1), view.lane, lac_gather_chain(1));
    lac_locate(places, base + view.index, lac_gather_chain(2));
    for (int window = 0; window < windows; window++) {
        const u32 now = base, empty_now = empty + 8 * stage;
        const u64 matrix = lac_wgmma_descriptor(now + view.matrices);
        const bool more = window + 1 < windows;
        lac_factors(factor, now);
        if (++stage == LAC_STAGES) stage = 0, parity ^= 1;
        base = lac_stage_of(stages, stage);
#pragma unroll
        for (int j = 0; j < LAC_UNITS; j++) {
            lac_wgmma_fence();
            lac_products(sum[j & 1], fragments[j / SHARE & 1], j & 1, matrix, j / 2);
            lac_wgmma_commit();
            lac_wgmma_wait<1>();
            if (j > 0) {
                lac_wgmma_results(sum[j - 1 & 1]);
                lac_promote(total[(j - 1) / (2 * LAC_CHAINS)][j - 1 & 1], sum[j - 1 & 1], factor[j - 1 & 1]);
            }
            if (j % SHARE == 0) {
                /* Gather j / SHARE is in use, the next is in `raw`, the one after it is fetched, its places are known. */
                const int next = j / SHARE + 1, fetched = next + 1, located = fetched + 1;
                const int chain = lac_gather_chain(located % LAC_GATHERS);
                lac_arrange(fragments[next & 1], raw, lac_gather_chain(next % LAC_GATHERS));
                if (fetched < LAC_GATHERS || more)
                    lac_fetch(raw, places, (fetched < LAC_GATHERS ? now : base) + lac_gather_rows(fetched), view.lane,
                              lac_gather_chain(fetched % LAC_GATHERS));
                if (located == LAC_GATHERS && more) lac_barrier_wait(full + 8 * stage, parity);
                if ((located < LAC_GATHERS || more) && chain != lac_gather_chain(fetched % LAC_GATHERS))
                    lac_locate(places, (located < LAC_GATHERS ? now : base) + view.index, chain);
            }
        }
        lac_wgmma_wait<0>();
        lac_wgmma_results(sum[1]);
        lac_promote(total[LAC_VECTORS - 1][1], sum[1], factor[1]);
        if ((threadIdx.x & 31) == 0) lac_barrier_arrive(empty_now);
    }
}

#if LAC_PLANES == 2
/* The same where something is not finite: main and cross products apart, one unit after the other. */
__device__ __forceinline__ void lac_consume_odd(float (&total)[LAC_VECTORS][2][LAC_SUMS], const lac_view &view, int windows,
                                                u32 stages, u32 full, u32 empty, u32 &stage, u32 &parity)
{
    for (int window = 0; window < windows; window++) {
        const u32 now = lac_stage_of(stages, stage);
        float factor[2][2];
        lac_barrier_wait(full + 8 * stage, parity);
        lac_factors(factor, now);
#pragma unroll
        for (int j = 0; j < LAC_UNITS; j++) {
            const int chain = j / 2;
            float main[LAC_SUMS], cross[LAC_SUMS];
            lac_places places;
            lac_raw raw;
            lac_fragments f;
            lac_locate(places, now + view.index, chain);
            lac_fetch(raw, places, now + lac_gather_rows(j), view.lane, chain);
            lac_arrange(f, raw, chain);
            u64 b = lac_wgmma_descriptor(now + view.matrices + lac_chain_first(chain) * LAC_PLANES * LAC_MATRIX);
            lac_wgmma_fence();
#pragma unroll
            for (int s = 0; s < lac_chain_steps(chain); s++, b += LAC_PLANES * LAC_MATRIX >> 4) {
                lac_wgmma<LAC_WIDTH>::run(main, f.side[s][0], b, s == 0);
                lac_wgmma<LAC_WIDTH>::run(cross, f.side[s][1], b, s == 0);
                lac_wgmma<LAC_WIDTH>::run(cross, f.side[s][0], b + (LAC_MATRIX >> 4), 0);
            }
            lac_wgmma_commit();
            lac_wgmma_wait<0>();
            lac_wgmma_results(main);
            lac_wgmma_results(cross);
#pragma unroll
            for (int i = 0; i < LAC_SUMS; i++) {
                const bool finite = (__float_as_uint(main[i]) & 0x7f800000u) != 0x7f800000u;
                main[i] = finite ? main[i] + cross[i] : main[i];
            }
            lac_promote(total[j / (2 * LAC_CHAINS)][j & 1], main, factor[j & 1]);
        }
        __syncwarp();
        if ((threadIdx.x & 31) == 0) lac_barrier_arrive(empty + 8 * stage);
        if (++stage == LAC_STAGES) stage = 0, parity ^= 1;
    }
}
#endif

/* Two tokens of outputs place[0] and place[1] (-1: none), whose sums are sum[output][token]. */
__device__ __forceinline__ void lac_write(const lac_gpu_call &call, int token, const int (&place)[2], const float (&sum)[2][2],
                                          bool aligned)
{
    float value[2][2];
#pragma unroll
    for (int e = 0; e < 2; e++) {
        if (place[e] < 0) continue;
        const float bias = lac_bias(call, place[e]);
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (token + h < call.m) value[e][h] = lac_finish(call, token + h, place[e], sum[e][h], bias);
    }
#if LAC_Y_DTYPE == LAC_F32
    if (aligned && token + 2 <= call.m) {
#if LAC_Y_TOKEN_MAJOR
        if (place[0] >= 0 && place[1] == place[0] + 1 && (place[0] & 1) == 0) {
#pragma unroll
            for (int h = 0; h < 2; h++)
                *(float2 *)((float *)call.y + lac_at(call.ldy, token + h, place[0])) = make_float2(value[0][h], value[1][h]);
            return;
        }
#else
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (place[e] >= 0)
                *(float2 *)((float *)call.y + lac_at(call.ldy, token, place[e])) = make_float2(value[e][0], value[e][1]);
        return;
#endif
    }
#endif
#pragma unroll
    for (int e = 0; e < 2; e++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (place[e] >= 0 && token + h < call.m) lac_store(call, token + h, place[e], value[e][h]);
}

/* A thread's part of a tile to Y. */
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
            for (int u = 0; u < 2; u++) {
                const int token = token_tile * LAC_TOKENS + lac_token(u);
                const float *t = total[v][u] + i;
                const float sum[2][2] = {{t[0] * factor[0], t[2] * factor[0]}, {t[1] * factor[1], t[3] * factor[1]}};
                if (token < call.m) lac_write(call, token, place, sum, aligned);
            }
        }
}

__device__ __forceinline__ float *lac_partial_of(const lac_window_args &args, int token_tile, int output_tile, int part)
{
    const i64 tile = (i64)token_tile * args.output_tiles + output_tile;
    return args.partial + (tile * LAC_PARTS + part) * (LAC_TOKENS * LAC_TILE_WIDTH) + threadIdx.x;
}

/* Streams windows into the stages, for as long as the block has tiles. */
__device__ __forceinline__ void lac_produce(const lac_window_args &args, u32 stages, u32 full, u32 empty)
{
    const int items = args.token_tiles * args.output_tiles * LAC_PARTS;
    u32 stage = 0, parity = 1;
    for (int index = blockIdx.x; index < items; index += gridDim.x) {
        const lac_item item = lac_item_of(args, index);
        const u8 *x = args.tiles + ((i64)item.token_tile * args.windows + item.begin) * LAC_X_TILE;
        const u8 *w = args.weight + ((i64)item.output_tile * args.windows + item.begin) * LAC_W_TILE;
        for (int window = item.begin; window < item.end; window++, x += LAC_X_TILE, w += LAC_W_TILE) {
            lac_barrier_wait(empty + 8 * stage, parity);
            lac_barrier_expect(full + 8 * stage, LAC_X_TILE + LAC_W_TILE);
            lac_copy_bulk(stages + stage * LAC_STAGE, x, LAC_X_TILE, full + 8 * stage);
            lac_copy_bulk(stages + stage * LAC_STAGE + LAC_X_STAGE, w, LAC_W_TILE, full + 8 * stage);
            if (++stage == LAC_STAGES) stage = 0, parity ^= 1;
        }
    }
}

/* Whether X has an infinity or a NaN in this tile of tokens. The same for every thread of the block. */
__device__ __forceinline__ bool lac_tile_odd(const lac_window_args &args, int token_tile)
{
    u32 odd = args.weight_odd;
    for (int i = threadIdx.x & 31; i < 2 * args.windows; i += 32) odd |= args.odd[(i64)token_tile * 2 * args.windows + i];
    return __any_sync(0xffffffffu, odd);
}

extern "C" __global__ void __launch_bounds__(384, 1) lac_window(lac_gpu_call call, lac_window_args args)
{
    extern __shared__ __align__(128) u8 shared[];
    const u32 stages = lac_shared_address(shared), full = stages + LAC_STAGES * LAC_STAGE, empty = full + 8 * LAC_STAGES;
    const int thread = threadIdx.x;
#if LAC_ZERO_ROWS > 0
    for (int i = thread; i < LAC_STAGES * LAC_X_ROW; i += 384) /* LAC_X_ROW words a stage */
        *(u32 *)(shared + i / LAC_X_ROW * LAC_STAGE + LAC_X_TILE + i % LAC_X_ROW * 4) = 0;
#endif
    if (thread == 0) {
        for (int i = 0; i < LAC_STAGES; i++) {
            lac_barrier_init(full + 8 * i, 1);
            lac_barrier_init(empty + 8 * i, 8); /* the warps that compute */
        }
        lac_barrier_init_fence();
    }
    __syncthreads();

    if (thread >= 256) {
        lac_registers_fewer<24>();
        if (thread == 256) lac_produce(args, stages, full, empty);
    } else {
        lac_registers_more<240>();
        const int items = args.token_tiles * args.output_tiles * LAC_PARTS;
        const int group = __shfl_sync(0xffffffffu, thread >> 7, 0), warp = thread >> 5 & 3, g = thread >> 2 & 7;
        lac_view view;
        view.lane = warp * 64 + g * 8;
        view.index = LAC_X_STAGE + group * LAC_VECTORS * LAC_STEPS * 32 + (thread & 3) * 8;
        view.matrices = LAC_X_STAGE + LAC_INDEX + group * LAC_VECTORS * LAC_STEPS * LAC_PLANES * LAC_MATRIX;
        u32 stage = 0, parity = 0;
        for (int index = blockIdx.x; index < items; index += gridDim.x) {
            const lac_item item = lac_item_of(args, index);
            float total[LAC_VECTORS][2][LAC_SUMS];
#pragma unroll
            for (int v = 0; v < LAC_VECTORS; v++)
#pragma unroll
                for (int u = 0; u < 2; u++)
#pragma unroll
                    for (int i = 0; i < LAC_SUMS; i++) total[v][u][i] = 0.0f;
#if LAC_PLANES == 2
            if (lac_tile_odd(args, item.token_tile))
                lac_consume_odd(total, view, item.end - item.begin, stages, full, empty, stage, parity);
            else
#endif
                lac_consume(total, view, item.end - item.begin, stages, full, empty, stage, parity);
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
    }
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
