/* tile_product.cuh - the warpgroups that multiply the stages of tiles (tile.cuh) and hand their sums over: to Y (tile_write.cuh), to
 * the blocks that they meet, or to lac_tile_reduce. sm_90a; fp16 and bf16. */
#ifndef LAC_CUDA_KERNELS_TILE_PRODUCT_CUH
#define LAC_CUDA_KERNELS_TILE_PRODUCT_CUH

#include "tile_write.cuh"

/* The copy engine reads a matrix's description when it is first used: it had better come before. */
__device__ __forceinline__ void lac_ask_for_map(const lac_gather_args &args, const lac_tensor_map *map)
{
#if LAC_STORES_Y
    if (args.stores_y && (threadIdx.x & 127) == 0) lac_prefetch_map(map);
#endif
}

/* The products of a stage, put into the tensor cores. `group` is this warpgroup's number. */
__device__ __forceinline__ void lac_stage_products(float (&sum)[LAC_BLOCKS][LAC_SUMS], u32 stage, int group)
{
    const u32 outputs = LAC_SPLITS_OUTPUTS ? group * LAC_BLOCKS * 64 : 0, tokens = LAC_SPLITS_OUTPUTS || LAC_IN_TURNS ? 0 : group * LAC_N;
    const u64 b = LAC_TURNED ? lac_operand(stage + tokens / 64 * LAC_X_BLOCK, LAC_X_BLOCK, 1024, 1)
                             : lac_operand(stage + tokens * LAC_ROWS * 2, 16, LAC_ROWS * 16, LAC_SWIZZLE(LAC_ROWS * 2));
    const u64 a = lac_operand(stage + LAC_X_STAGE + outputs * LAC_W_ROW, 16, LAC_W_ROW * 8, LAC_SWIZZLE(LAC_W_ROW));
#if LAC_SPARSE
    const u32 thread = threadIdx.x & 127, word = LAC_ROWS == 64 ? thread : thread / 4 * 2 + (thread & 1);
    u32 places[LAC_BLOCKS];
#pragma unroll
    for (int i = 0; i < LAC_BLOCKS; i++)
        asm volatile("ld.shared.u32 %0, [%1];"
                     : "=r"(places[i])
                     : "r"(stage + LAC_X_STAGE + LAC_TILE_OUTPUTS * LAC_W_ROW + (outputs + i * 64) * (LAC_ROWS / 8) + word * 4));
    lac_wgmma_fence();
#pragma unroll
    for (int i = 0; i < LAC_BLOCKS; i++) {
        const u64 block = a + i * (64 * LAC_W_ROW >> 4);
        lac_wgmma_sparse<LAC_N, LAC_TURNED, 0>::run(sum[i], block, b, places[i]);
        if (LAC_ROWS == 64)
            lac_wgmma_sparse<LAC_N, LAC_TURNED, 1>::run(sum[i], block + (32 >> 4), b + 2 * LAC_X_STEP, places[i]);
    }
#else
    lac_wgmma_fence();
#pragma unroll
    for (int k = 0; k < LAC_ROWS / 16; k++)
#pragma unroll
        for (int i = 0; i < LAC_BLOCKS; i++)
            lac_wgmma_tile<LAC_N, LAC_TURNED>::run(sum[i], a + i * (64 * LAC_W_ROW >> 4) + k * (32 >> 4), b + k * LAC_X_STEP);
#endif
    lac_wgmma_commit();
}

/* Gives a stage back to the producers of every block that writes into it. */
__device__ __forceinline__ void lac_stage_release(u32 empty, u32 slot)
{
    const u32 lane = threadIdx.x & 31;
    if (LAC_CLUSTER > 1 && LAC_EACH_ARRIVES) {
        for (u32 rank = 0; rank < LAC_CLUSTER; rank++) lac_barrier_arrive_at(empty + 8 * slot, rank);
    } else if (LAC_CLUSTER > 1) {
        if (lane < LAC_CLUSTER) lac_barrier_arrive_at(empty + 8 * slot, lane);
    } else if (lane == 0 || LAC_EACH_ARRIVES) {
        lac_barrier_arrive(empty + 8 * slot);
    }
}

#if LAC_PAIRED
/* A stage of which this warpgroup's outputs read nothing: it must have come before it goes back, or phases would be mixed up. */
__device__ __forceinline__ void lac_stage_skip(u32 full, u32 empty, u32 &slot, u32 &parity)
{
    lac_barrier_wait(full + 8 * slot, parity);
    lac_stage_release(empty, slot);
    if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
}
#endif

__device__ __forceinline__ i64 lac_partial_at(const lac_gather_args &args, const lac_item &item, int part)
{
    const i64 tile = (i64)item.output_tile * args.token_tiles + item.token_tile;
    return (tile * LAC_PARTS + part) * (LAC_BLOCKS * LAC_SUMS * 256) + threadIdx.x;
}

#if LAC_MEETS
/* The parts of a tile are added up in their order, by all their blocks, each a share of the tokens. All threads of the cluster meet
 * here, and nobody needs the stages any more; nobody leaves before the others have arrived, which is the caller's to see to. */
__device__ __forceinline__ void lac_tile_meet(const lac_gpu_call &call, const lac_gather_args &args, const lac_item &item,
                                              const lac_outputs &outputs, float (&sum)[LAC_SUMS], u32 stages)
{
    /* A share is as many tokens for each part or, where these do not divide them, the least that can be written at once. */
    enum { LEAST = LAC_Y_TOKEN_MAJOR ? 8 : 16, SHARE = LAC_SUMS % LAC_PARTS ? LEAST : LAC_SUMS / LAC_PARTS };
    static_assert(LAC_BLOCKS == 1 && LAC_SUMS % SHARE == 0 && SHARE % LEAST == 0, "a share is 16 tokens at least, or 32");
    const u32 mine = stages + threadIdx.x * 16;
#pragma unroll
    for (int i = 0; i < LAC_SUMS; i += 4)
        lac_shared_store_16(mine + i * 1024, make_uint4(__float_as_uint(sum[i]), __float_as_uint(sum[i + 1]),
                                                                      __float_as_uint(sum[i + 2]), __float_as_uint(sum[i + 3])));
    lac_cluster_sync();
#pragma unroll 1
    for (int first = item.part * SHARE; first < LAC_SUMS; first += LAC_PARTS * SHARE) {
        float share[SHARE];
#pragma unroll
        for (int i = 0; i < SHARE; i++) share[i] = 0.0f;
#pragma unroll
        for (int part = 0; part < LAC_PARTS; part++)
#pragma unroll
            for (int i = 0; i < SHARE; i += 4) {
                const float4 v = lac_cluster_read(mine + (first + i) * 1024, part);
                share[i] += v.x, share[i + 1] += v.y, share[i + 2] += v.z, share[i + 3] += v.w;
            }
        if (first + LAC_PARTS * SHARE >= LAC_SUMS) lac_cluster_arrive(); /* and the others may leave while this is written */
        const int token = item.token_tile * LAC_TILE_TOKENS + (LAC_SPLITS_OUTPUTS ? 0 : (threadIdx.x >> 7) * LAC_N) + first * 2;
        lac_block_write(call, share, lac_places_of(args, item, 0), outputs.place[0], outputs.bias[0], token);
    }
}
#endif

#if LAC_IN_TURNS
/* Sums of even and of odd slots: each warpgroup adds the other's to its own for half of the tokens, and writes these. `room` is 16 KB. */
__device__ __forceinline__ void lac_tile_join(const lac_gpu_call &call, const lac_gather_args &args, const lac_item &item,
                                              const lac_outputs &outputs, float (&sum)[LAC_SUMS], u32 room)
{
    enum { HALF = LAC_SUMS / 2 };
    const u32 group = threadIdx.x >> 7, at = (threadIdx.x & 127) * 16;
    const u32 mine = room + group * 8192 + at, other = room + (1 - group) * 8192 + at;
    float half[HALF];
    asm volatile("bar.sync 3, 256;" ::: "memory"); /* the last tile's have been read */
#pragma unroll
    for (int i = 0; i < HALF; i += 4) {
        float give[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            give[j] = group ? sum[i + j] : sum[HALF + i + j];
            half[i + j] = group ? sum[HALF + i + j] : sum[i + j];
        }
        lac_shared_store_16(mine + i * 512,
                            make_uint4(__float_as_uint(give[0]), __float_as_uint(give[1]), __float_as_uint(give[2]), __float_as_uint(give[3])));
    }
    asm volatile("bar.sync 3, 256;" ::: "memory");
#pragma unroll
    for (int i = 0; i < HALF; i += 4) {
        const uint4 v = lac_shared_load_16(other + i * 512);
        half[i] += __uint_as_float(v.x), half[i + 1] += __uint_as_float(v.y);
        half[i + 2] += __uint_as_float(v.z), half[i + 3] += __uint_as_float(v.w);
    }
    lac_block_write(call, half, lac_places_of(args, item, 0), outputs.place[0], outputs.bias[0], item.token_tile * LAC_TILE_TOKENS + group * 32);
}
#endif

#if LAC_EARLY
#include "tile_early.cuh"
#else
/* What the two warpgroups of consumers do. `y_map` is Y for the copy engine where LAC_STORES_Y is set. */
__device__ __forceinline__ void lac_consume(const lac_gpu_call &call, const lac_gather_args &args, u32 stages, u32 full, u32 empty,
                                            const lac_tensor_map *y_map = nullptr)
{
    u32 slot = 0, parity = 0;
    lac_item item, next;
    lac_ask_for_map(args, y_map);
    int index = blockIdx.x / LAC_CLUSTER_BLOCKS;
    bool more = lac_item_of(args, index, item);
    lac_outputs outputs, next_outputs;
    if (more) outputs = lac_outputs_of(call, args, item);
    for (; more; item = next, outputs = next_outputs) {
        float sum[LAC_BLOCKS][LAC_SUMS];
#pragma unroll
        for (int b = 0; b < LAC_BLOCKS; b++) {
#pragma unroll
            for (int i = 0; i < LAC_SUMS; i++) sum[b][i] = 0.0f;
            lac_wgmma_results(sum[b]); /* keeps the zeroes here, before the first product */
        }
#if LAC_PAIRED
        const int begin = threadIdx.x < 128 ? item.begin : item.second_begin, end = threadIdx.x < 128 ? item.first_end : item.end;
        for (int stage = item.begin; stage < begin; stage++) lac_stage_skip(full, empty, slot, parity);
#else
        const int begin = item.begin, end = item.end;
#endif
        for (int stage = begin; stage < end; stage++) {
            if (LAC_IN_TURNS && (slot & 1) != threadIdx.x >> 7) { /* nor is it waited for: slots go round in pairs */
                if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
                continue;
            }
            lac_barrier_wait(full + 8 * slot, parity);
            if (LAC_GATHERS) lac_async_fence(); /* the copy engine's writes need none */
            lac_stage_products(sum, stages + slot * LAC_STAGE, threadIdx.x >> 7);
            /* The stage goes back as soon as it can; the other warpgroup keeps the tensor cores busy meanwhile. And sparse products
             * take their places out of a register, which the next stage's must not replace under them. */
            lac_wgmma_wait<0>();
            if (!(LAC_BY_LAST && args.stores_y && stage + 1 == end)) lac_stage_release(empty, slot);
            if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
        }
#pragma unroll
        for (int b = 0; b < LAC_BLOCKS; b++) lac_wgmma_results(sum[b]);
#if LAC_PAIRED
        for (int stage = end; stage < item.end; stage++) lac_stage_skip(full, empty, slot, parity);
#endif
        index += gridDim.x / LAC_CLUSTER_BLOCKS;
        more = lac_item_of(args, index, next); /* on its way while this tile is written, and what the next one asks for */
        if (more) next_outputs = lac_outputs_of(call, args, next);
#if LAC_MEETS
        asm volatile("bar.sync 3, 256;" ::: "memory"); /* both warpgroups have read the last stage */
        lac_tile_meet(call, args, item, outputs, sum[0], stages);
#elif LAC_IN_TURNS
        lac_tile_join(call, args, item, outputs, sum[0], stages + LAC_STAGES * LAC_STAGE);
#elif LAC_PARTS > 1
        const i64 at = lac_partial_at(args, item, item.part);
#pragma unroll
        for (int b = 0; b < LAC_BLOCKS; b++)
#pragma unroll
            for (int i = 0; i < LAC_SUMS; i++) args.partial[at + (b * LAC_SUMS + i) * 256] = sum[b][i];
#elif LAC_BY_LAST
        if (args.stores_y && begin < end) {
            const u32 held = (slot ? slot : LAC_STAGES) - 1;       /* the tile's last stage, given back when Y has left through it */
            asm volatile("bar.sync 3, 256;" ::: "memory"); /* both warpgroups have read it */
            lac_tile_store(call, item, outputs, sum, stages + held * LAC_STAGE + (threadIdx.x >> 7) * (LAC_PIECES * LAC_PIECE), y_map);
            if ((threadIdx.x & 127) == 0) lac_store_wait_read<0>();
            lac_warpgroup_sync();
            lac_stage_release(empty, held);
        } else {
            lac_tile_write(call, args, item, outputs, sum);
        }
#elif LAC_STORES_Y
        if (args.stores_y) {
            lac_tile_store(call, item, outputs, sum, stages + LAC_STAGES * LAC_STAGE + (threadIdx.x >> 7) * (LAC_STAGING_PIECES * LAC_PIECE),
                           y_map);
        } else {
            lac_tile_write(call, args, item, outputs, sum);
        }
#else
        lac_tile_write(call, args, item, outputs, sum);
#endif
    }
#if LAC_STORES_Y
    if ((threadIdx.x & 127) == 0) lac_store_wait_read<0>(); /* the block's memory is given up with its last thread */
#endif
}
#endif

/* Barriers in place, and everybody of the cluster knows. `copies` arrivals fill a stage beside the announced bytes. */
__device__ __forceinline__ void lac_barriers_begin(u32 full, u32 empty, u32 copies)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < LAC_STAGES; i++) {
            lac_barrier_init(full + 8 * i, copies);
            lac_barrier_init(empty + 8 * i, (LAC_IN_TURNS ? 4 : 8) * LAC_ARRIVALS * LAC_CLUSTER);
        }
        lac_barrier_init_fence();
    }
    if (LAC_CLUSTER > 1) lac_cluster_sync(); /* parts that meet do so at the end alone */
    __syncthreads();
}

#if LAC_PARTS > 1 && !LAC_MEETS
/* Adds the parts of a tile in their order. A block a tile, threads as the consumers above. */
extern "C" __global__ void __launch_bounds__(256) lac_tile_reduce(const lac_gpu_call call, const lac_gather_args args)
{
    lac_item item;
    item.output_tile = blockIdx.x / args.token_tiles;
    item.token_tile = blockIdx.x % args.token_tiles;
    float sum[LAC_BLOCKS][LAC_SUMS];
#pragma unroll
    for (int b = 0; b < LAC_BLOCKS; b++)
#pragma unroll
        for (int i = 0; i < LAC_SUMS; i++) {
            sum[b][i] = 0.0f;
#pragma unroll
            for (int part = 0; part < LAC_PARTS; part++)
                sum[b][i] += args.partial[lac_partial_at(args, item, part) + (b * LAC_SUMS + i) * 256];
        }
    lac_tile_write(call, args, item, lac_outputs_of(call, args, item), sum);
}
#endif

#endif
