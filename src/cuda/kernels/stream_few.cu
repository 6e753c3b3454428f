/* stream_few.cu - fp16 and bf16 SpMM on the sparse tensor cores of sm_90a where W keeps at most two of every four inputs, with few tokens:
 * the parts of a tile's k are the blocks of a cluster, each with one, and add up in the end. tile_product.cuh has tiles, products and
 * epilogue; stream.cu does the same with many tokens.
 *
 *   warps 0-7   two warpgroups: the products of a stage (wgmma.sp), sums in registers, then what the parts' sums add up to
 *   warp 8      one thread fetches X by tensor copies          warp 9   one thread fetches W by bulk copies
 *   stage: LAC_RUN steps of LAC_ROWS rows, for it takes longer to wait for one and to give it back than to multiply a step
 *     | X turned: [tokens / 64][step][row][128 bytes], straight: [step][token][128 bytes] | W [step], as in tile.cuh |
 *   full[stage]: X and W with their bytes; empty[stage]: 8 warps are done with it.
 *
 * W is the plan's own, and that of all stages is on its way before X may be read. LAC_PACKED and LAC_X_COPIED: as in stream.cu; packed
 * W is few bytes, and waits for X too: it would stand before it in memory's queue. LAC_PUSHES: the parts send each other their sums
 * (stream_meet.cuh), 1: into room of their own, 2: into a stage; else they read them out of each other's memory.
 *
 * Preconditions: X and its rows aligned to 16 bytes. Bottleneck: what a multiprocessor takes in, 64 bytes a clock, and memory. */
#define LAC_SHARES_X 1
#define LAC_GATHERS 0
#define LAC_TURNED (!LAC_X_TOKEN_MAJOR || LAC_X_COPIED)
#include "tile_product.cuh"
#include "stream_product.cuh"
#include "stream_x.cuh"
#ifndef LAC_PUSHES
#define LAC_PUSHES 0
#endif

#define LAC_RUN_X (LAC_RUN * LAC_X_STAGE)
#define LAC_RUN_STAGE ((LAC_RUN_X + LAC_RUN * LAC_W_STAGE + 1023) / 1024 * 1024)

/* Stages that so many steps are. */
__device__ __forceinline__ int lac_stages_of(int steps) { return (steps + LAC_RUN - 1) / LAC_RUN; }

#if LAC_PUSHES
#include "stream_meet.cuh"
#endif

/* A place among the stages. */
struct lac_turn {
    u32 slot, parity;
};

__device__ __forceinline__ void lac_turn_next(lac_turn &turn)
{
    if (++turn.slot == LAC_STAGES) turn.slot = 0, turn.parity ^= 1;
}

/* ---- what brings the steps of a part: one thread each */

__device__ __forceinline__ void lac_bring_w(const lac_gather_args &args, const lac_item &item, u32 stages, u32 full, u32 empty)
{
    const u8 *from = args.weight + (i64)item.begin * LAC_W_STAGE;
    lac_turn turn = {0, 1};
    if (LAC_PACKED) lac_wait_for_inputs();
    for (int step = item.begin; step < item.end; step += LAC_RUN, from += LAC_RUN * LAC_W_STAGE) {
        const u32 bytes = min(item.end - step, LAC_RUN) * LAC_W_STAGE, barrier = full + 8 * turn.slot;
        lac_barrier_wait(empty + 8 * turn.slot, turn.parity);
        lac_barrier_expect(barrier, bytes);
        lac_copy_bulk(stages + turn.slot * LAC_RUN_STAGE + LAC_RUN_X, from, bytes, barrier);
        lac_turn_next(turn);
    }
}

/* `x_bytes` a step. Turned boxes are a stage's rows long, whether the part has them or not. */
__device__ __forceinline__ void lac_bring_x(const lac_item &item, const lac_tensor_map *map, u32 x_bytes, u32 stages, u32 full, u32 empty)
{
    const int token = item.token_tile * LAC_TILE_TOKENS;
    int row = item.before * LAC_ROWS;
    lac_turn turn = {0, 1};
    lac_wait_for_inputs();
    for (int step = item.begin; step < item.end; step += LAC_RUN, row += LAC_RUN * LAC_ROWS) {
        const int steps = min(item.end - step, LAC_RUN);
        const u32 stage = stages + turn.slot * LAC_RUN_STAGE, barrier = full + 8 * turn.slot;
        lac_barrier_wait(empty + 8 * turn.slot, turn.parity);
        lac_barrier_expect(barrier, LAC_TURNED ? LAC_RUN_X : steps * x_bytes);
        if (LAC_TURNED) {
#pragma unroll
            for (int box = 0; box < LAC_TILE_TOKENS; box += 64)
                lac_copy_tensor(stage + box / 64 * (LAC_RUN * LAC_X_BLOCK), map, token + box, row, barrier, 1);
        } else {
#pragma unroll
            for (int i = 0; i < LAC_RUN; i++)
                if (i < steps) lac_stream_x(map, stage + i * LAC_X_STAGE, barrier, row + i * LAC_ROWS, token);
        }
        lac_turn_next(turn);
    }
}

/* ---- what multiplies them */

struct lac_ring {
    lac_turn next;
    u32 before; /* the slot of the products that run ...       */
    bool held;  /* ... and whether it has yet to be given back */
#if LAC_PUSHES == 2
    int until; /* so many more are given back until the others may send their sums to the last of them */
#endif
};

#if LAC_PUSHES == 2
/* This warp is done with the stage that the others send their sums to. */
__device__ __forceinline__ void lac_tell_the_others(u32 ready, int part)
{
    const int lane = (int)(threadIdx.x & 31);
#pragma unroll
    for (int rank = 0; rank < LAC_PARTS; rank++)
        if (rank != part && (LAC_EACH_ARRIVES || lane == rank)) lac_barrier_arrive_at(ready, rank);
}
#endif

/* Puts the products of the next stage, so many steps, into the tensor cores and waits for those of the stage before it, which have `old`. */
__device__ __forceinline__ void lac_stage_multiply(float (&sum)[LAC_SUMS], lac_ring &ring, int steps, u32 stages, u32 full, u32 empty,
                                                   u32 ready, int part, lac_kept (&now)[LAC_RUN], const lac_kept (&old)[LAC_RUN])
{
    enum { STEP = LAC_TURNED ? LAC_X_BLOCK : LAC_X_STAGE, BLOCK = LAC_RUN * LAC_X_BLOCK };
    const u32 x = stages + ring.next.slot * LAC_RUN_STAGE, w = x + LAC_RUN_X;
    lac_barrier_wait(full + 8 * ring.next.slot, ring.next.parity);
    if (steps >= LAC_RUN) {
#pragma unroll
        for (int i = 0; i < LAC_RUN; i++) lac_keep(now[i], w + i * LAC_W_STAGE);
        lac_wgmma_fence();
#pragma unroll
        for (int i = 0; i < LAC_RUN; i++) lac_products(sum, now[i], lac_operand_x(x + i * STEP, BLOCK), lac_operand_w(w + i * LAC_W_STAGE));
        lac_wgmma_commit();
        lac_wgmma_wait<1>();
    } else { /* the part's last */
        lac_wgmma_wait<0>();
#pragma unroll 1
        for (int i = 0; i < steps; i++) {
            lac_keep(now[0], w + i * LAC_W_STAGE);
            lac_wgmma_fence();
            lac_products(sum, now[0], lac_operand_x(x + i * STEP, BLOCK), lac_operand_w(w + i * LAC_W_STAGE));
            lac_wgmma_commit();
            lac_wgmma_wait<0>();
        }
    }
#pragma unroll
    for (int i = 0; i < LAC_RUN; i++) lac_kept_end(old[i]);
    if (ring.held) {
        lac_stage_release(empty, ring.before);
#if LAC_PUSHES == 2
        if (--ring.until == 0) lac_tell_the_others(ready, part);
#endif
    }
    ring.before = ring.next.slot;
    ring.held = true;
    lac_turn_next(ring.next);
}

/* The sums of a part, its last stages still held: nobody waits for them. `ready` is where the others wait until they may send theirs. */
__device__ __forceinline__ void lac_part_multiply(float (&sum)[LAC_SUMS], const lac_item &item, u32 stages, u32 full, u32 empty, u32 ready)
{
    lac_ring ring = {};
    lac_kept even[LAC_RUN] = {}, odd[LAC_RUN] = {};
#pragma unroll
    for (int i = 0; i < LAC_SUMS; i++) sum[i] = 0.0f;
    lac_wgmma_results(sum); /* keeps the zeroes here, before the first product */
#if LAC_PUSHES == 2
    ring.until = lac_stages_of(item.end - item.begin) - LAC_STAGES + 1;
    if (ring.until <= 0) lac_tell_the_others(ready, item.part); /* a stage that this part does not use */
#endif
    for (int left = item.end - item.begin; left > 0; left -= 2 * LAC_RUN) {
        lac_stage_multiply(sum, ring, left, stages, full, empty, ready, item.part, even, odd);
        if (left > LAC_RUN) lac_stage_multiply(sum, ring, left - LAC_RUN, stages, full, empty, ready, item.part, odd, even);
    }
    lac_wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < LAC_RUN; i++) lac_kept_end(even[i]), lac_kept_end(odd[i]);
    lac_wgmma_results(sum);
}

extern "C" __global__ void __launch_bounds__(384, LAC_RESIDENT)
    lac_stream_few(const lac_gpu_call call, const lac_gather_args args, const __grid_constant__ lac_tensor_map map)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_STAGES + 1 + (LAC_PUSHES == 2)];
    const u32 stages = lac_shared_address(memory), full = lac_shared_address(barriers), empty = full + 8 * LAC_STAGES;
    const u32 arrived = empty + 8 * LAC_STAGES, ready = arrived + 8; /* the others' sums; theirs may be sent */
    lac_item item;
    lac_item_of(args, blockIdx.x / LAC_CLUSTER_BLOCKS, item); /* a block for each part: there always is one */
    if (threadIdx.x == 256) lac_prefetch_map(&map);
    if (LAC_PUSHES && threadIdx.x == 0) lac_barrier_init(arrived, 1);
    if (LAC_PUSHES == 2 && threadIdx.x == 0) lac_barrier_init(ready, (LAC_PARTS - 1) * 8 * LAC_ARRIVALS);
    lac_barriers_begin(full, empty, 2);
#if LAC_PUSHES
    if (threadIdx.x == 0) lac_barrier_expect(arrived, LAC_MEET_ROOM);
    __syncwarp();
    lac_cluster_arrive();
#endif
    lac_let_next_begin();
    if (threadIdx.x >= 256) {
        lac_registers_fewer<LAC_PRODUCER_REGISTERS>();
        if (threadIdx.x == 256) lac_bring_x(item, &map, lac_stream_x_bytes(call.m), stages, full, empty);
        if (threadIdx.x == 288) lac_bring_w(args, item, stages, full, empty);
        __syncwarp();
        if (!LAC_PUSHES) lac_cluster_sync(), lac_cluster_arrive(); /* as in lac_tile_meet */
    } else {
        lac_registers_more<LAC_CONSUMER_REGISTERS>();
        lac_wait_for_inputs(); /* the bias is one */
        if (LAC_PUSHES == 2) lac_cluster_wait(); /* everybody's barriers are up */
        float sum[LAC_SUMS];
        const lac_outputs outputs = lac_outputs_of(call, args, item);
        lac_part_multiply(sum, item, stages, full, empty, ready);
#if LAC_PUSHES
        if (LAC_PUSHES == 1) lac_cluster_wait();
        lac_stream_meet(call, args, item, outputs, sum, stages, ready, arrived);
#else
        asm volatile("bar.sync 1, 256;" ::: "memory"); /* both warpgroups have read the last stage */
        lac_tile_meet(call, args, item, outputs, sum, stages);
#endif
    }
    __syncwarp();
    if (!LAC_PUSHES) lac_cluster_wait();
}
