/* choose.cu - token-major X against long row groups (about 128 outputs that read the same inputs): boxes of X come into shared memory as
 * they are, and a warpgroup chooses its row group's inputs on the way to registers, as the A of wgmma; W is B. Nothing is turned round
 * before. sm_90a; fp16 and bf16; token-major Y.
 *
 * A vector is up to 128 outputs of a row group. A quad is four vectors, for which two blocks of a cluster work on the same 128 tokens:
 * each warpgroup has a vector. A stage has LAC_BOXES boxes of X, 64 inputs of which some vector of the quad reads some, and the
 * 32 slots (two steps of 16) in which each vector finds its own of them. Each block brings half of the tokens of a box, for both.
 *
 *   stage: X [LAC_BOXES][128 tokens][128 bytes], 128-byte swizzle | W of each step and vector, core matrices [16][2][8 outputs][16 bytes]
 *          | slots of each step and vector, for each lane q of four: where in X its inputs 2q, 2q + 1, 2q + 8, 2q + 9 stand (bytes, the
 *          token's row and swizzle apart), and how two of them make a word of A (what __byte_perm takes: a slot without an input is zero)
 *   full[stage] tells that it has come, empty[stage] that 8 warps of both blocks are done with it.
 *
 * Thread to data: lane 4g + q of warp w of a warpgroup has sums [b][4j + 2h + e] of token 64b + 16w + 8h + g and output 8j + 2q + e.
 * Of 32 lanes that load an element each, those of a q differ in eight banks, whatever their input; the host deals slots out so that
 * the four inputs of a load seldom share banks. Bottleneck: the chain of a step, whose inputs are chosen while the products of one other
 * run; a stage takes 0.6 us. By count shared memory's port would take 0.52 of them at 25% and the tensor cores 0.28.
 *
 * Constants: LAC_BOXES (1, 2), LAC_STAGES, and those of epilogue.cuh. */
#define LAC_OPERAND LAC_X_DTYPE
#include "chain.cuh"
#include "choose_arguments.h"
#include "cluster.cuh"
#include "epilogue.cuh"
#include "gather_copy.cuh"
#include "gather_store.cuh"
#include "pipeline.cuh"
#include "quad.cuh"
#include "shared_access.cuh"
#include "wgmma.cuh"

#define LAC_TOKENS 128
#define LAC_OUTPUTS 128
#define LAC_CLUSTER 2
#define LAC_BOX (LAC_TOKENS * 128)
#define LAC_MATRIX 4096 /* W of a step and vector     */
#define LAC_PLACES 64   /* slots of a step and vector */
#define LAC_IMAGE (4 * (LAC_MATRIX + LAC_PLACES))
#define LAC_STAGE ((LAC_BOXES * LAC_BOX + LAC_IMAGE + 1023) / 1024 * 1024)

struct lac_item {
    int token, quad, begin, end; /* the first token, and stages */
};

__device__ __forceinline__ bool lac_item_of(const lac_choose_args &args, int index, lac_item &item)
{
    if (index >= args.quads * args.token_tiles) return false;
    int first = 0, wide = args.quads;
    if (args.band < wide) {
        first = index / (args.band * args.token_tiles) * args.band, wide = min(wide - first, args.band);
        index -= first * args.token_tiles;
    }
    const int across = index / wide;
    item.token = across * LAC_TOKENS;
    item.quad = first + index - across * wide;
    item.begin = args.range[item.quad];
    item.end = args.range[item.quad + 1];
    return true;
}

/* The first inputs of a stage's boxes. */
struct lac_boxes {
    int first[LAC_BOXES];
};

__device__ __forceinline__ lac_boxes lac_boxes_of(const lac_choose_args &args, int stage)
{
    lac_boxes boxes;
#pragma unroll
    for (int i = 0; i < LAC_BOXES; i++) boxes.first[i] = args.boxes[stage * LAC_BOXES + i];
    return boxes;
}

/* What one thread of a block does: stages, one after the other. */
__device__ __forceinline__ void lac_produce(const lac_choose_args &args, const lac_tensor_map *map, u32 stages, u32 full, u32 empty)
{
    const u32 rank = lac_cluster_rank();
    u32 slot = 0, parity = 1;
    int index = blockIdx.x / LAC_CLUSTER;
    lac_item item, next_item;
    for (bool more = lac_item_of(args, index, item); more; item = next_item) {
        index += gridDim.x / LAC_CLUSTER;
        more = lac_item_of(args, index, next_item); /* on its way while this one is brought */
        if (item.begin == item.end) continue;
        lac_boxes boxes = lac_boxes_of(args, item.begin);
        for (int stage = item.begin; stage < item.end; stage++) {
            const lac_boxes next = lac_boxes_of(args, min(stage + 1, item.end - 1)); /* on their way while this stage is waited for */
            const u32 at = stages + slot * LAC_STAGE, barrier = full + 8 * slot;
            u32 bytes = LAC_IMAGE;
#pragma unroll
            for (int i = 0; i < LAC_BOXES; i++) bytes += boxes.first[i] < 0 ? 0 : LAC_BOX;
            lac_barrier_wait(empty + 8 * slot, parity);
            lac_barrier_expect(barrier, bytes);
#pragma unroll
            for (int i = 0; i < LAC_BOXES; i++)
                if (boxes.first[i] >= 0)
                    lac_copy_tensor(at + i * LAC_BOX + rank * (LAC_BOX / LAC_CLUSTER), map, boxes.first[i],
                                    item.token + (int)rank * (LAC_TOKENS / LAC_CLUSTER), barrier, (1 << LAC_CLUSTER) - 1);
            lac_copy_bulk(at + LAC_BOXES * LAC_BOX, args.images + ((i64)stage * LAC_CLUSTER + rank) * LAC_IMAGE, LAC_IMAGE, barrier);
            boxes = next;
            if (++slot == LAC_STAGES) slot = 0, parity ^= 1;
        }
    }
}

/* A of one step: the inputs of this vector for this thread's four tokens. */
__device__ __forceinline__ void lac_choose_inputs(u32 (&a)[2][4], u32 x, u32 places)
{
    const u32 g = threadIdx.x >> 2 & 7, warp = threadIdx.x >> 5 & 3;
    const uint4 mine = lac_shared_load_16(places + (threadIdx.x & 3) * 16);
    const u32 row = x + (warp * 16 + g) * 128, swizzle = g << 4;
    const u32 at[4] = {row + ((mine.x & 0xffff) ^ swizzle), row + ((mine.x >> 16) ^ swizzle), row + ((mine.y & 0xffff) ^ swizzle),
                       row + ((mine.y >> 16) ^ swizzle)};
    const u32 join[2] = {mine.z & 0xffff, mine.z >> 16};
#pragma unroll
    for (int b = 0; b < 2; b++) {
        u32 element[2][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) element[h][i] = lac_shared_load_half(at[i] + b * 8192 + h * 1024);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int h = i & 1, pair = i >> 1;
            a[b][i] = __byte_perm(element[h][2 * pair], element[h][2 * pair + 1], join[pair]);
            asm volatile("" : "+r"(a[b][i])::"memory"); /* before the products that are under way are waited for */
        }
    }
}

__device__ __forceinline__ void lac_stage_release(u32 barrier)
{
    const u32 lane = threadIdx.x & 31;
    if (LAC_EACH_ARRIVES) {
        for (u32 rank = 0; rank < LAC_CLUSTER; rank++) lac_barrier_arrive_at(barrier, rank);
    } else if (lane < LAC_CLUSTER) {
        lac_barrier_arrive_at(barrier, lane);
    }
}

/* The place of the first of each 64 outputs of this warpgroup's vector, where they are neighbours; else -1. */
struct lac_pieces {
    int first[2];
};

__device__ __forceinline__ int lac_vector_of(const lac_item &item)
{
    return item.quad * 4 + (int)lac_cluster_rank() * 2 + (int)(threadIdx.x >> 7);
}

__device__ __forceinline__ lac_pieces lac_pieces_of(const lac_choose_args &args, const lac_item &item)
{
    lac_pieces pieces;
#pragma unroll
    for (int half = 0; half < 2; half++) pieces.first[half] = args.piece[lac_vector_of(item) * 2 + half];
    return pieces;
}

/* A warpgroup's sums to Y, 64 tokens x 64 outputs at a time. */
__device__ __forceinline__ void lac_write(const lac_gpu_call &call, const lac_choose_args &args, const lac_item &item,
                                          const lac_pieces &pieces, float (&sum)[2][64], u32 staging, const lac_tensor_map *map)
{
    const int q = threadIdx.x & 3, row = (threadIdx.x >> 5 & 3) * 16 + (threadIdx.x >> 2 & 7);
    const int *places = args.output + lac_vector_of(item) * LAC_OUTPUTS + 2 * q;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int first = pieces.first[half];
        int place[8][2];
        float bias[8][2];
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int e = 0; e < 2; e++) { /* neighbours need not be asked for, unless Y ends among them */
                const int neighbour = first + j * 8 + 2 * q + e;
                place[j][e] = first < 0 ? places[half * 64 + j * 8 + e] : neighbour < call.n ? neighbour : -1;
                bias[j][e] = place[j][e] < 0 ? 0.0f : lac_bias(call, place[j][e]);
            }
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const int token = item.token + b * 64;
#pragma unroll
            for (int i = 0; i < 32; i++) {
                const int j = i >> 2, h = i >> 1 & 1, e = i & 1, t = token + row + 8 * h;
                float &v = sum[b][half * 32 + i];
#if LAC_HAS_RESIDUAL
                if (place[j][e] >= 0 && t < call.m)
#endif
                    v = lac_finish(call, t, place[j][e], v, bias[j][e]);
            }
#if LAC_Y_DTYPE != LAC_F32
            if (args.stores_y && first >= 0) { /* the whole warpgroup's */
                const u32 lane = threadIdx.x & 31, r = (threadIdx.x >> 5 & 3) * 16 + (lane & 15);
                const bool leads = (threadIdx.x & 127) == 0;
                if (leads) lac_store_wait_read<0>();
                lac_warpgroup_sync();
#pragma unroll
                for (int j = 0; j < 8; j += 2) {
                    const float *s = &sum[b][half * 32 + j * 4];
                    const u32 word[4] = {lac_pack(s[0], s[1]), lac_pack(s[2], s[3]), lac_pack(s[4], s[5]), lac_pack(s[6], s[7])};
                    lac_store_matrices<false>(staging + r * 128 + ((j + (lane >> 4)) ^ (r & 7)) * 16, word);
                }
                lac_async_fence();
                lac_warpgroup_sync();
                if (leads) {
                    lac_store_tensor(staging, map, first, token);
                    lac_store_commit();
                }
                continue;
            }
#endif
#pragma unroll
            for (int i = 0; i < 32; i++) {
                const int j = i >> 2, h = i >> 1 & 1, e = i & 1, t = token + row + 8 * h;
                if (place[j][e] >= 0 && t < call.m) lac_store(call, t, place[j][e], sum[b][half * 32 + i]);
            }
        }
    }
}

/* What a warpgroup of consumers does. Products of a step run while the next step's inputs are chosen. */
__device__ __forceinline__ void lac_consume(const lac_gpu_call &call, const lac_choose_args &args, u32 stages, u32 full, u32 empty,
                                            const lac_tensor_map *map)
{
    const u32 group = threadIdx.x >> 7, staging = stages + LAC_STAGES * LAC_STAGE + group * LAC_PIECE;
    u32 loaded = 0, parity = 0, multiplied = 0, released = 0; /* slots: of the next stage that is read, multiplied, given back */
    int index = blockIdx.x / LAC_CLUSTER;
    lac_item item, next;
    for (bool more = lac_item_of(args, index, item); more; item = next) {
        const lac_pieces pieces = lac_pieces_of(args, item);
        float sum[2][64];
        u32 a[2][2][4];
#pragma unroll
        for (int b = 0; b < 2; b++)
#pragma unroll
            for (int i = 0; i < 64; i++) sum[b][i] = 0.0f;
        auto choose = [&](int step) {
            const u32 at = stages + loaded * LAC_STAGE;
            if (step == 0) lac_barrier_wait(full + 8 * loaded, parity);
            lac_choose_inputs(a[step], at, at + LAC_BOXES * LAC_BOX + 4 * LAC_MATRIX + (step * 2 + group) * LAC_PLACES);
            if (step == 1 && ++loaded == LAC_STAGES) loaded = 0, parity ^= 1;
        };
        auto multiply = [&](int step) {
            const u64 w = lac_wgmma_descriptor(stages + multiplied * LAC_STAGE + LAC_BOXES * LAC_BOX + (step * 2 + group) * LAC_MATRIX);
            lac_wgmma_fence();
#pragma unroll
            for (int b = 0; b < 2; b++) lac_wgmma<128>::run(sum[b], a[step][b], w, 0);
            lac_wgmma_commit();
            if (step == 1 && ++multiplied == LAC_STAGES) multiplied = 0;
        };
        auto results = [&]() {
#pragma unroll
            for (int b = 0; b < 2; b++) lac_wgmma_results(sum[b]);
        };
        results(); /* keeps the zeroes here, before the first product */
        auto release = [&]() {
            lac_stage_release(empty + 8 * released);
            if (++released == LAC_STAGES) released = 0;
        };
        if (item.begin < item.end) {
            choose(0);
            multiply(0);
            choose(1);
            for (int stage = item.begin + 1; stage < item.end; stage++) {
                multiply(1);
                lac_wgmma_wait<1>();
                results();
                choose(0);
                multiply(0);
                lac_wgmma_wait<1>();
                results();
                release();
                choose(1);
            }
            multiply(1);
            lac_wgmma_wait<0>();
            results();
            release();
        }
        index += gridDim.x / LAC_CLUSTER;
        more = lac_item_of(args, index, next); /* on its way while this one is written */
        lac_write(call, args, item, pieces, sum, staging, map);
    }
    if ((threadIdx.x & 127) == 0) lac_store_wait_read<0>(); /* the block's memory is given up with its last thread */
}

extern "C" __global__ void __launch_bounds__(384, 1)
    lac_choose(const lac_gpu_call call, const lac_choose_args args, const __grid_constant__ lac_tensor_map map,
               const __grid_constant__ lac_tensor_map y_map)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_STAGES];
    const u32 stages = lac_shared_address(memory), full = lac_shared_address(barriers), empty = full + 8 * LAC_STAGES;
    if (threadIdx.x == 0) {
        for (int i = 0; i < LAC_STAGES; i++) {
            lac_barrier_init(full + 8 * i, 1);
            lac_barrier_init(empty + 8 * i, 8 * LAC_ARRIVALS * LAC_CLUSTER);
        }
        lac_barrier_init_fence();
    }
    if (threadIdx.x == 256) lac_prefetch_map(&map);
    lac_cluster_sync();
    lac_let_next_begin();
    lac_wait_for_inputs();
    if (threadIdx.x >= 256) {
        lac_registers_fewer<40>();
        if (threadIdx.x == 256) lac_produce(args, &map, stages, full, empty);
        __syncwarp();
    } else {
        lac_registers_more<232>();
        lac_consume(call, args, stages, full, empty, &y_map);
    }
    __syncwarp();
    lac_cluster_sync(); /* nobody leaves while a neighbour may still write or arrive here */
}
