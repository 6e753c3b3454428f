/* window.cu - fp32 SpMM on tensor cores: whole windows of X in shared memory, each vector of W selects its inputs on the way
 * to registers.
 *
 * Y[128 tokens][2 * LAC_VECTORS vectors of LAC_WIDTH outputs] is a tile; blocks run over tiles (times parts of k) until none
 * is left. One producer thread streams windows of X (window_tile.cuh) and of W by bulk copies through LAC_STAGES stages; two
 * warpgroups compute, each all 128 tokens of its LAC_VECTORS vectors. A cluster of LAC_CLUSTER blocks has neighbouring output
 * tiles of the same tokens: each fetches a share of the window of X for all.
 *
 * Thread to data: warp w of a warpgroup has tokens 64 u + 16 w to 64 u + 16 w + 15 of two 64-token products u. The fragments
 * of 16 selected inputs come by ldmatrix, transposed: each of the 16 row addresses is free, and lanes 0-15 and 16-31 give those
 * of inputs 0-7 and 8-15, at the first and the last eight tokens.
 *
 * A unit is the product u of a vector over a window, or over part of it: at most LAC_CHAIN * 16 slots, sums from zero. While
 * a unit is in the tensor cores, the unit before it is added to fp32 registers in the ordinary way, times the factor of the
 * token and the window (the tensor cores' own accumulator truncates), and the fragments of the next one are loaded.
 *
 * A stage of W: [vector][step][16] u16, where the inputs lie (in 16-byte units, swizzle included), padded to 128 bytes; then
 * [vector][step][plane] matrices of LAC_WIDTH outputs x 16 inputs in core matrices of 8 x 16 bytes.
 *
 * Products: with two planes x w = xhi whi + xhi wlo + xlo whi; with one, xhi whi. Where X or W is not finite, the cross
 * products are kept apart and dropped where the main one is not finite.
 *
 * Constants: LAC_WINDOW inputs, LAC_STEPS steps of 16 slots a window, LAC_WIDTH (8, 16, 24, 32), LAC_VECTORS, LAC_STAGES,
 * LAC_PLANES, LAC_ZERO_ROWS, LAC_CLUSTER (1 or 2), LAC_PARTS (1: k is not split), and those of epilogue.cuh.
 * Bottleneck: shared memory (gathered X, W once per 64 tokens, the copies). */
#define LAC_OPERAND 2
#include "cluster.cuh"
#include "pipeline.cuh"
#include "wgmma.cuh"
#include "window_common.cuh"

/* sum = products of a unit; in each step the small cross products first, while they are not yet lost beside the main ones. */
__device__ __forceinline__ void lac_products(float (&sum)[LAC_SUMS], const lac_fragments &f, u64 matrix, int chain)
{
    matrix += lac_chain_first(chain) * (LAC_PLANES * LAC_MATRIX >> 4);
#pragma unroll
    for (int s = 0; s < lac_chain_steps(chain); s++, matrix += LAC_PLANES * LAC_MATRIX >> 4) {
#if LAC_PLANES == 2
        lac_wgmma<LAC_WIDTH>::run(sum, f.plane[s][1], matrix, s == 0);
        lac_wgmma<LAC_WIDTH>::run(sum, f.plane[s][0], matrix + (LAC_MATRIX >> 4), 0);
        lac_wgmma<LAC_WIDTH>::run(sum, f.plane[s][0], matrix, 0);
#else
        lac_wgmma<LAC_WIDTH>::run(sum, f.plane[s][0], matrix, s == 0);
#endif
    }
}

__device__ __forceinline__ u32 lac_stage_of(u32 stages, u32 stage) { return stages + stage * LAC_STAGE; }

/* This warp has read its last of a stage: says so to every block that copies into it. */
__device__ __forceinline__ void lac_release(u32 barrier)
{
    __syncwarp();
    if ((threadIdx.x & 31) < LAC_CLUSTER) {
#if LAC_CLUSTER > 1
        lac_barrier_arrive_at(barrier, threadIdx.x & 31);
#else
        lac_barrier_arrive(barrier);
#endif
    }
}

/* Adds the windows of an item to `total`, overlapped as the head of this file says. */
__device__ __forceinline__ void lac_consume(float (&total)[LAC_VECTORS][2][LAC_SUMS], const lac_view &view, int windows,
                                            u32 stages, u32 full, u32 empty, u32 &stage, u32 &parity)
{
    float sum[2][LAC_SUMS], factor[2][2];
    lac_fragments fragments[2];
    lac_rows rows[2];
    u32 base = lac_stage_of(stages, stage);
    lac_barrier_wait(full + 8 * stage, parity);
    lac_locate(rows[0], view, base, 0);
    lac_fetch<0>(fragments[0], rows[0], 0);
    for (int window = 0; window < windows; window++) {
        const u32 now = base, empty_now = empty + 8 * stage;
        const u64 matrix = lac_wgmma_descriptor(now + view.matrices);
        const bool more = window + 1 < windows;
        lac_factors(factor, now);
        if (++stage == LAC_STAGES) stage = 0, parity ^= 1;
        base = lac_stage_of(stages, stage);
#pragma unroll
        for (int j = 0; j < LAC_UNITS; j++) {
            const int chain = j / 2, next = (chain + 1) % (LAC_UNITS / 2);
            const bool last = chain + 1 == LAC_UNITS / 2;
            lac_wgmma_fence();
            lac_products(sum[j & 1], fragments[j & 1], matrix, chain);
            lac_wgmma_commit();
            if (j % 2 == 0) { /* where the next chain's rows lie, while this one goes on */
                if (last && more) lac_barrier_wait(full + 8 * stage, parity);
                if (!last || more) lac_locate(rows[chain + 1 & 1], view, last ? base : now, next);
            }
            lac_wgmma_wait<1>();
            if (j % 2 == 0)
                lac_fetch<1>(fragments[1], rows[chain & 1], chain);
            else if (!last || more)
                lac_fetch<0>(fragments[0], rows[chain + 1 & 1], next);
            if (j > 0) {
                lac_wgmma_results(sum[j - 1 & 1]);
                lac_promote(total[(j - 1) / (2 * LAC_CHAINS)][j - 1 & 1], sum[j - 1 & 1], factor[j - 1 & 1]);
            }
        }
        lac_wgmma_wait<0>();
        lac_wgmma_results(sum[1]);
        lac_promote(total[LAC_VECTORS - 1][1], sum[1], factor[1]);
        lac_release(empty_now);
        if (LAC_UNITS / 2 & 1) rows[0] = rows[1];
    }
}

#if LAC_PLANES == 2
/* The same where something is not finite: main and cross products apart, one unit after the other. */
template <int u>
__device__ __forceinline__ void lac_unit_odd(float (&total)[LAC_SUMS], const lac_view &view, u32 stage, int chain,
                                             const float (&factor)[2])
{
    float main[LAC_SUMS], cross[LAC_SUMS];
    u64 b = lac_wgmma_descriptor(stage + view.matrices + lac_chain_first(chain) * LAC_PLANES * LAC_MATRIX);
#pragma unroll
    for (int s = 0; s < lac_chain_steps(chain); s++, b += LAC_PLANES * LAC_MATRIX >> 4) { /* few registers are left */
        const u32 row = lac_row_address(view, stage, lac_chain_first(chain) + s);
        u32 high[4], low[4];
        lac_load_turned<u * 128>(high, row);
        lac_load_turned<u * 128 + LAC_X_PLANE>(low, row);
        lac_wgmma_fence();
        lac_wgmma<LAC_WIDTH>::run(main, high, b, s == 0);
        lac_wgmma<LAC_WIDTH>::run(cross, low, b, s == 0);
        lac_wgmma<LAC_WIDTH>::run(cross, high, b + (LAC_MATRIX >> 4), 0);
        lac_wgmma_commit();
        lac_wgmma_wait<0>();
    }
    lac_wgmma_results(main);
    lac_wgmma_results(cross);
#pragma unroll
    for (int i = 0; i < LAC_SUMS; i++) {
        const bool finite = (__float_as_uint(main[i]) & 0x7f800000u) != 0x7f800000u;
        main[i] = finite ? main[i] + cross[i] : main[i];
    }
    lac_promote(total, main, factor);
}

/* `vectors`: how many of the warpgroup's vectors are not padding. The others are skipped, which also keeps the compiler from
 * mixing the chains for more registers than there are. */
__device__ __forceinline__ void lac_consume_odd(float (&total)[LAC_VECTORS][2][LAC_SUMS], const lac_view &view, int windows,
                                                int vectors, u32 stages, u32 full, u32 empty, u32 &stage, u32 &parity)
{
    for (int window = 0; window < windows; window++) {
        const u32 now = lac_stage_of(stages, stage);
        float factor[2][2];
        lac_barrier_wait(full + 8 * stage, parity);
        lac_factors(factor, now);
#pragma unroll
        for (int chain = 0; chain < LAC_UNITS / 2; chain++) {
            if (chain / LAC_CHAINS < vectors) lac_unit_odd<0>(total[chain / LAC_CHAINS][0], view, now, chain, factor[0]);
            if (chain / LAC_CHAINS < vectors) lac_unit_odd<1>(total[chain / LAC_CHAINS][1], view, now, chain, factor[1]);
        }
        lac_release(empty + 8 * stage);
        if (++stage == LAC_STAGES) stage = 0, parity ^= 1;
    }
}
#endif

/* Streams windows into the stages, for as long as the block has tiles. Its share of X goes to the whole cluster. */
__device__ __forceinline__ void lac_produce(const lac_window_args &args, u32 stages, u32 full, u32 empty)
{
    const int items = lac_item_count(args), rank = blockIdx.x % LAC_CLUSTER;
    enum { CUT = LAC_X_HEADER + LAC_WINDOW / 2 * LAC_X_ROW }; /* between the shares of a cluster of two */
    u32 stage = 0, parity = 1;
    for (int index = blockIdx.x / LAC_CLUSTER; index < items; index += gridDim.x / LAC_CLUSTER) {
        const lac_item item = lac_item_of(args, index);
        const int output_tile = item.output_tile < args.output_tiles ? item.output_tile : args.output_tiles - 1;
        const u8 *x = args.tiles + ((i64)item.token_tile * args.windows + item.begin) * LAC_X_TILE;
        const u8 *w = args.weight + ((i64)output_tile * args.windows + item.begin) * LAC_W_TILE;
        for (int window = item.begin; window < item.end; window++, x += LAC_X_TILE, w += LAC_W_TILE) {
            const u32 to = lac_stage_of(stages, stage), barrier = full + 8 * stage;
            lac_barrier_wait(empty + 8 * stage, parity);
            lac_barrier_expect(barrier, LAC_X_TILE + LAC_W_TILE);
#if LAC_CLUSTER == 2
            lac_copy_bulk_all(to + rank * CUT, x + rank * CUT, rank ? LAC_X_TILE - CUT : CUT, barrier, 3);
#else
            lac_copy_bulk(to, x, LAC_X_TILE, barrier);
#endif
            lac_copy_bulk(to + LAC_X_STAGE, w, LAC_W_TILE, barrier);
            if (++stage == LAC_STAGES) stage = 0, parity ^= 1;
        }
    }
}

/* Waits for all threads of the cluster. */
__device__ __forceinline__ void lac_everybody()
{
    __syncwarp(); /* the barrier of a cluster takes whole warps */
#if LAC_CLUSTER > 1
    lac_cluster_sync();
#else
    __syncthreads();
#endif
}

extern "C" __global__ void __launch_bounds__(384, 1) lac_window(lac_gpu_call call, lac_window_args args)
{
    extern __shared__ __align__(128) u8 shared[];
    const u32 stages = lac_shared_address(shared), full = stages + LAC_STAGES * LAC_STAGE, empty = full + 8 * LAC_STAGES;
    const int thread = threadIdx.x;
    for (int i = 0; i < LAC_STAGES; i++) lac_zero_rows(shared + i * LAC_STAGE, 384);
    if (thread == 0) {
        for (int i = 0; i < LAC_STAGES; i++) {
            lac_barrier_init(full + 8 * i, 1);
            lac_barrier_init(empty + 8 * i, 8 * LAC_CLUSTER); /* the warps that compute */
        }
        lac_barrier_init_fence();
    }
    lac_everybody();

    if (thread >= 256) {
        lac_registers_fewer<40>();
        if (thread == 256) lac_produce(args, stages, full, empty);
    } else {
        lac_registers_more<232>();
        const int items = lac_item_count(args);
        const int group = __shfl_sync(0xffffffffu, thread >> 7, 0);
        const lac_view view = lac_view_of(group);
        u32 stage = 0, parity = 0;
        for (int index = blockIdx.x / LAC_CLUSTER; index < items; index += gridDim.x / LAC_CLUSTER) {
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
                lac_consume_odd(total, view, item.end - item.begin,
                                args.vectors - (item.output_tile * 2 + group) * LAC_VECTORS, stages, full, empty, stage, parity);
            else
#endif
                lac_consume(total, view, item.end - item.begin, stages, full, empty, stage, parity);
            lac_tile_finish(call, args, item, total);
        }
    }
    if (LAC_CLUSTER > 1) lac_everybody(); /* nobody leaves while others may still write to it */
}
