/* stream.cu - fp16 and bf16 SpMM on the sparse tensor cores of sm_90a where W keeps at most two of every four inputs: nothing
 * is gathered, X and W stream through. tile_product.cuh has tiles, stages, products and epilogue.
 *
 *   warps 0-7   two warpgroups: the products of a stage (wgmma.sp), sums in registers, then the tile's epilogue
 *   warp 8      one thread fetches X by tensor copies, its share of the tokens for all blocks of the cluster, which have
 *               neighbouring outputs of the same tokens, and W by bulk copies
 *   full[stage]: 1 for the bytes of X and W.
 *
 * LAC_PACKED: W keeps at most two of every eight inputs, and comes as these two values alone. A lane finds in its word what each four of
 * the eight have of them, by a code of two bits, and the products take it out of registers:
 *
 *   W stage  | [64 outputs][warp][32 inputs][row g][half] 4 words of 2 values | places | codes: 16 bits a lane, 2 for each of its fours |
 *
 * LAC_X_COPIED: X is a copy in the workspace (turn.cu), feature-major, where the caller's X is not aligned.
 *
 * Preconditions: X and its rows aligned to 16 bytes. Bottleneck: shared memory, whose rows of X every
 * warpgroup reads at the tensor cores' full speed while the next ones are written; then L2. Few tokens: memory, and what a multiprocessor
 * takes in out of L2. */
#define LAC_SHARES_X 1
#define LAC_GATHERS 0
#ifndef LAC_X_COPIED
#define LAC_X_COPIED 0
#endif
#define LAC_TURNED (!LAC_X_TOKEN_MAJOR || LAC_X_COPIED)
#include "tile_product.cuh"
#include "stream_x.cuh"

static_assert(LAC_ROWS == 64 && LAC_BLOCKS == 1, "a stage is 64 rows, and a warpgroup has 64 outputs");

#if LAC_MEETS
/* A block has one tile. W of the first stages is on its way before X may be read; but where it is packed, and few bytes, X is waited
 * for first, and W would stand before it in memory's queue. */
__device__ __forceinline__ void lac_produce(const lac_gather_args &args, const lac_tensor_map *map, u32 bytes, u32 stages, u32 full, u32 empty)
{
    lac_item item;
    if (!lac_item_of(args, blockIdx.x / LAC_CLUSTER_BLOCKS, item)) return;
    const int count = item.end - item.begin, first = min(count, (int)LAC_STAGES);
    const int row = item.before * LAC_ROWS, token = item.token_tile * LAC_TILE_TOKENS;
    const u8 *weight = args.weight + (i64)item.begin * LAC_W_STAGE;
    for (int i = 0; i < first; i++) {
        lac_barrier_expect(full + 8 * i, bytes);
        if (!LAC_PACKED) lac_copy_bulk(stages + i * LAC_STAGE + LAC_X_STAGE, weight + (i64)i * LAC_W_STAGE, LAC_W_STAGE, full + 8 * i);
    }
    lac_wait_for_inputs();
    for (int i = 0; i < first; i++) {
        lac_stream_x(map, stages + i * LAC_STAGE, full + 8 * i, row + i * LAC_ROWS, token);
        if (LAC_PACKED) lac_copy_bulk(stages + i * LAC_STAGE + LAC_X_STAGE, weight + (i64)i * LAC_W_STAGE, LAC_W_STAGE, full + 8 * i);
    }
    u32 slot = 0, parity = 0;
    for (int i = LAC_STAGES; i < count; i++) {
        const u32 stage = stages + slot * LAC_STAGE, barrier = full + 8 * slot;
        lac_barrier_wait(empty + 8 * slot, parity);
        lac_barrier_expect(barrier, bytes);
        lac_copy_bulk(stage + LAC_X_STAGE, weight + (i64)i * LAC_W_STAGE, LAC_W_STAGE, barrier);
        lac_stream_x(map, stage, barrier, row + i * LAC_ROWS, token);
        if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
    }
}
#else
__device__ __forceinline__ void lac_produce(const lac_gather_args &args, const lac_tensor_map *map, u32 bytes, u32 stages, u32 full, u32 empty)
{
    u32 slot = 0, parity = 1;
    lac_wait_for_inputs();
    for (lac_walk now = lac_walk_begin(args); now.more; lac_walk_settle(args, now)) {
        const u32 stage = stages + slot * LAC_STAGE, barrier = full + 8 * slot;
        lac_barrier_wait(empty + 8 * slot, parity);
        lac_barrier_expect(barrier, bytes);
        lac_stream_x(map, stage, barrier, (now.stage - now.item.begin + now.item.before) * LAC_ROWS,
                     now.item.token_tile * LAC_TILE_TOKENS);
        lac_copy_bulk(stage + LAC_X_STAGE, args.weight + (i64)now.stage * LAC_W_STAGE, LAC_W_STAGE, barrier);
        if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
        now.stage++;
    }
}
#endif

/* ---- products. PTX forbids touching a register that a running product reads: two sets of them take turns. */

/* What products take out of registers. */
struct lac_kept {
    u32 places;
#if LAC_PACKED
    u32 a[8]; /* two products' */
#endif
};

struct lac_ring {
    u32 slot, parity; /* of the stage that is multiplied next        */
    u32 before;       /* the slot of the products that run ...       */
    bool held;        /* ... and whether it has yet to be given back */
};

/* Nobody else has the registers until here. */
__device__ __forceinline__ void lac_kept_end(const lac_kept &kept)
{
    asm volatile("" ::"r"(kept.places) : "memory");
#if LAC_PACKED
#pragma unroll
    for (int i = 0; i < 8; i++) asm volatile("" ::"r"(kept.a[i]) : "memory");
#endif
}

#if LAC_PACKED
/* Four bytes of eight, by the selector's nibbles. */
__device__ __forceinline__ u32 lac_permute(u32 low, u32 high, u32 selector)
{
    u32 result;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
    return result;
}

/* The values of this lane's fours of inputs out of the words of their eights. Of a four that keeps two the word, else none of it, or half,
 * which goes where its place can stand: by the code, 0 nothing, 1 all, 2 its half, 3 its half moved. The first four's half is the low
 * one, the second's the high one. */
__device__ __forceinline__ void lac_unpack(u32 (&a)[8], u32 weight, u32 codes)
{
    const u32 lane = threadIdx.x & 31, odd = lane & 1;
    const u32 low = odd ? 0x32441044u : 0x44101044u, high = odd ? 0x44323244u : 0x10443244u; /* selectors, by code */
    const uint4 first = lac_shared_load_16(weight + (lane >> 1) * 16), second = lac_shared_load_16(weight + 256 + (lane >> 1) * 16);
    const u32 word[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
        const u32 two = (codes >> i & 0x0303u) * 0x11u + 0x4040u, take = lac_permute(low, high, two);
        a[i] = lac_permute(word[i], 0, take);
        a[i + 1] = lac_permute(word[i + 1], 0, take >> 16);
    }
}
#endif

/* Puts the products of the next stage into the tensor cores and waits for those of the stage before it, which have `old`. */
__device__ __forceinline__ void lac_step(float (&sum)[1][LAC_SUMS], lac_ring &ring, u32 stages, u32 full, u32 empty, lac_kept &now, lac_kept &old)
{
    lac_barrier_wait(full + 8 * ring.slot, ring.parity);
    const u32 stage = stages + ring.slot * LAC_STAGE, group = threadIdx.x >> 7;
    const u32 outputs = LAC_SPLITS_OUTPUTS ? group * 64 : 0, tokens = LAC_SPLITS_OUTPUTS ? 0 : group * LAC_N;
    const u64 b = LAC_TURNED ? lac_operand(stage + tokens / 64 * LAC_X_BLOCK + tokens % 64 * 2, LAC_X_BLOCK, 1024, 1)
                             : lac_operand(stage + tokens * 128, 16, 1024, 1);
    const u32 at = stage + LAC_X_STAGE + LAC_TILE_OUTPUTS * LAC_W_ROW + outputs * 8 + (threadIdx.x & 127) * 4;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(now.places) : "r"(at));
#if LAC_PACKED
    const u32 codes = lac_shared_load_half(stage + LAC_X_STAGE + LAC_TILE_OUTPUTS * (LAC_W_ROW + 8) + outputs * 4 + (threadIdx.x & 127) * 2);
    lac_unpack(now.a, stage + LAC_X_STAGE + outputs * LAC_W_ROW + (threadIdx.x >> 5 & 3) * 512, codes);
    lac_wgmma_fence();
    lac_wgmma_held<LAC_N, LAC_TURNED, 0>::run(sum[0], now.a, b, now.places);
    lac_wgmma_held<LAC_N, LAC_TURNED, 1>::run(sum[0], now.a + 4, b + 2 * LAC_X_STEP, now.places);
#else
    const u64 a = lac_operand(stage + LAC_X_STAGE + outputs * LAC_W_ROW, 16, LAC_W_ROW * 8, LAC_SWIZZLE(LAC_W_ROW));
    lac_wgmma_fence();
    lac_wgmma_sparse<LAC_N, LAC_TURNED, 0>::run(sum[0], a, b, now.places);
    lac_wgmma_sparse<LAC_N, LAC_TURNED, 1>::run(sum[0], a + (32 >> 4), b + 2 * LAC_X_STEP, now.places);
#endif
    lac_wgmma_commit();
    lac_wgmma_wait<1>();
    lac_kept_end(old);
    if (ring.held) lac_stage_release(empty, ring.before);
    ring.before = ring.slot;
    ring.held = true;
    if (++ring.slot == LAC_STAGES) ring.slot = 0, ring.parity ^= 1;
}

__device__ __forceinline__ void lac_multiply(const lac_gpu_call &call, const lac_gather_args &args, u32 stages, u32 full, u32 empty,
                                             const lac_tensor_map *y_map)
{
    lac_ring ring = {0, 0, 0, false};
    lac_item item, next;
    lac_kept even = {0}, odd = {0};
    int index = blockIdx.x / LAC_CLUSTER_BLOCKS;
    for (bool more = lac_item_of(args, index, item); more; item = next) {
        const lac_outputs outputs = lac_outputs_of(call, args, item);
        float sum[1][LAC_SUMS];
#pragma unroll
        for (int i = 0; i < LAC_SUMS; i++) sum[0][i] = 0.0f;
        lac_wgmma_results(sum[0]); /* keeps the zeroes here, before the first product */
        for (int stage = item.begin; stage < item.end; stage += 2) {
            lac_step(sum, ring, stages, full, empty, even, odd);
            if (stage + 1 < item.end) lac_step(sum, ring, stages, full, empty, odd, even);
        }
        lac_wgmma_wait<0>();
        lac_kept_end(even);
        lac_kept_end(odd);
        if (ring.held) lac_stage_release(empty, ring.before);
        ring.held = false;
        lac_wgmma_results(sum[0]);
        index += gridDim.x / LAC_CLUSTER_BLOCKS;
        more = lac_item_of(args, index, next); /* on its way while this tile is written */
#if LAC_MEETS
        asm volatile("bar.sync 1, 256;" ::: "memory"); /* both warpgroups have read the last stage */
        lac_tile_meet(call, args, item, outputs, sum[0], stages);
#elif LAC_PARTS > 1
        const i64 at = lac_partial_at(args, item, item.part);
#pragma unroll
        for (int i = 0; i < LAC_SUMS; i++) args.partial[at + i * 256] = sum[0][i];
#elif LAC_STORES_Y
        if (args.stores_y)
            lac_tile_store(call, item, outputs, sum, stages + LAC_STAGES * LAC_STAGE + (threadIdx.x >> 7) * (LAC_STAGING_PIECES * LAC_PIECE),
                           y_map);
        else
            lac_tile_write(call, args, item, outputs, sum);
#else
        lac_tile_write(call, args, item, outputs, sum);
#endif
    }
#if LAC_STORES_Y
    if ((threadIdx.x & 127) == 0) lac_store_wait_read<0>(); /* the block's memory is given up with its last thread */
#endif
}

extern "C" __global__ void __launch_bounds__(384, LAC_RESIDENT)
    lac_stream(const lac_gpu_call call, const lac_gather_args args, const __grid_constant__ lac_tensor_map map,
               const __grid_constant__ lac_tensor_map y_map)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_STAGES];
    const u32 stages = lac_shared_address(memory), full = lac_shared_address(barriers), empty = full + 8 * LAC_STAGES;
    if (threadIdx.x == 256) lac_prefetch_map(&map);
    lac_barriers_begin(full, empty, 1);
    lac_let_next_begin();
    if (threadIdx.x >= 256) {
        lac_registers_fewer<LAC_PRODUCER_REGISTERS>();
        if (threadIdx.x == 256) lac_produce(args, &map, lac_stream_x_bytes(call.m) + LAC_W_STAGE, stages, full, empty);
        __syncwarp();
        if (LAC_MEETS) lac_cluster_sync(), lac_cluster_arrive(); /* as in lac_tile_meet */
    } else {
        lac_registers_more<LAC_CONSUMER_REGISTERS>();
        lac_wait_for_inputs(); /* the bias is one */
        lac_multiply(call, args, stages, full, empty, &y_map);
    }
    __syncwarp();
#if LAC_MEETS
    lac_cluster_wait();
#else
    if (LAC_CLUSTER > 1) lac_cluster_sync(); /* nobody leaves while a neighbour may still write or arrive here */
#endif
}
