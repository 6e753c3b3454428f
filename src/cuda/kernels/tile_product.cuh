/* tile_product.cuh - what gather.cu and stream.cu have in common: tiles of Y, stages of shared memory, the warpgroups that
 * multiply, and the epilogue. sm_90a; fp16 and bf16.
 *
 * A tile is LAC_TILE_OUTPUTS outputs that read the same rows of X, x LAC_TILE_TOKENS tokens. Blocks run over tiles (times
 * parts of k) until none is left; the blocks of a cluster have neighbouring tokens of the same outputs, or (LAC_SHARES_X)
 * neighbouring outputs of the same tokens.
 *
 *   stage: X, swizzled | W [outputs][LAC_W_ROW], swizzled | sparse: places, a word for each thread and 64 outputs
 *     X turned (feature-major): [tokens / 64][LAC_ROWS][128 bytes]; straight (token-major): [tokens][2 * LAC_ROWS]
 *   full[stage] tells that it has come, empty[stage] that 8 warps of each block of the cluster are done with it.
 *
 * Thread to data: lane 4g + q of warp w of a warpgroup has sums [4j + 2h + e] of output 16w + 8h + g (of 64) and token
 * 8j + 2q + e. A warpgroup has LAC_BLOCKS blocks of 64 outputs x LAC_N tokens.
 *
 * Constants: LAC_ROWS of X a stage (32, 64), LAC_TILE_OUTPUTS (64, 128, 256), LAC_TILE_TOKENS, LAC_N (64, 128, 192, 256), LAC_STAGES, LAC_RESIDENT (blocks of a multiprocessor: 1, 2), LAC_CLUSTER (1, 2, 4),
 * LAC_PAIRED (two row groups of up to 64 outputs each have a tile together: the rows of X that only the first reads come first, then
 * those that both read, then those that only the second reads; each warpgroup multiplies its own), LAC_STORES_Y (Y leaves by the copy engine, gather_store.cuh) and LAC_STAGING_PIECES,
 * LAC_FEW (gather.cu alone: few tokens, see there), LAC_SHARES_X, LAC_GATHERS (X comes by cp.async), LAC_TURNED, LAC_SPARSE (W keeps two of four rows: wgmma.sp), LAC_PARTS (1: k is not split), LAC_MEETS (1: the
 * parts of a tile are blocks of one cluster, which add up through its shared memory), and those of
 * epilogue.cuh. */
#ifndef LAC_CUDA_KERNELS_TILE_PRODUCT_CUH
#define LAC_CUDA_KERNELS_TILE_PRODUCT_CUH

#define LAC_OPERAND LAC_X_DTYPE
#include "chain.cuh"
#include "cluster.cuh"
#include "epilogue.cuh"
#include "gather_arguments.h"
#include "gather_copy.cuh"
#include "gather_store.cuh"
#include "pipeline.cuh"
#include "shared_access.cuh"
#include "wgmma.cuh"
#include "wgmma_tile.cuh"

#define LAC_X_BLOCK (LAC_ROWS * 128)
#define LAC_X_STAGE (LAC_TILE_TOKENS / 64 * LAC_X_BLOCK)
#define LAC_X_STEP ((LAC_TURNED ? 2048 : 32) >> 4) /* 16 rows further */
#define LAC_W_ROW (LAC_ROWS * (LAC_SPARSE ? 1 : 2))
#define LAC_PLACES (LAC_SPARSE ? LAC_TILE_OUTPUTS * LAC_ROWS / 8 : 0)
/* The swizzle that rows of so many bytes have, by its number in an operand. */
#define LAC_SWIZZLE(bytes) ((bytes) == 128 ? 1 : (bytes) == 64 ? 2 : 3)
#define LAC_W_STAGE (LAC_TILE_OUTPUTS * LAC_W_ROW + LAC_PLACES)
#define LAC_STAGE ((LAC_X_STAGE + LAC_W_STAGE + 1023) / 1024 * 1024)

/* The two warpgroups share the outputs where there are two blocks of 64, else the tokens. */
#define LAC_SPLITS_OUTPUTS (LAC_TILE_OUTPUTS >= 128)
#define LAC_BLOCKS (LAC_SPLITS_OUTPUTS ? LAC_TILE_OUTPUTS / 128 : 1)
#define LAC_SUMS (LAC_N / 2)

#ifndef LAC_FEW /* only gather.cu knows tiles for few tokens */
#define LAC_FEW 0
#endif
/* Where there is neither a second block of outputs nor one of tokens, the warpgroups have the stages in turns: the first those in even
 * slots, the second those in odd ones. Each then has all sums of its own stages, and both finish half of the tokens. */
#define LAC_IN_TURNS (LAC_FEW && !LAC_SPLITS_OUTPUTS && LAC_TILE_TOKENS == LAC_N)
#if LAC_FEW
static_assert(!LAC_IN_TURNS || (LAC_STAGES % 2 == 0 && LAC_N == 64 && LAC_PARTS == 1), "a slot is always the same warpgroup's");
#endif

#ifndef LAC_TOKEN_TEAMS /* only expand_ring.cu's: all outputs for the tokens of a team of blocks, then for those of the next */
#define LAC_TOKEN_TEAMS 0
#endif
#ifndef LAC_MEETS /* only stream.cu's parts do, and gather.cu's with few tokens */
#define LAC_MEETS 0
#endif
/* Blocks of a launched cluster. */
#define LAC_CLUSTER_BLOCKS (LAC_MEETS ? LAC_PARTS : LAC_CLUSTER)
static_assert(!LAC_MEETS || LAC_CLUSTER == 1, "a cluster's blocks have neighbouring tiles, or parts of one");

/* Registers of a thread that brings stages and of one that multiplies: 384 threads have 168 each to share or, two blocks on a
 * multiprocessor, 80; with few tokens 128. Tiles of three times a power of two tokens have more addresses and fewer sums. */
#ifndef LAC_TEAMS /* only gather.cu's producers are several teams */
#define LAC_TEAMS 1
#endif
#define LAC_PRODUCER_REGISTERS (LAC_RESIDENT > 1 ? 48 : LAC_FEW ? 72 : LAC_N == 192 ? 120 : LAC_TEAMS > 1 ? 72 : 56)
#define LAC_CONSUMER_REGISTERS (LAC_RESIDENT > 1 ? 96 : LAC_FEW ? 152 : LAC_N == 192 ? 192 : LAC_TEAMS > 1 ? 216 : 224)

/* Y leaves in so many pieces a warpgroup; staging has room for one, two or three. */
#define LAC_PIECES (LAC_BLOCKS * LAC_N / 64)

static_assert(LAC_IN_TURNS || LAC_TILE_TOKENS == (LAC_SPLITS_OUTPUTS ? 1 : 2) * LAC_N, "a warpgroup has all tokens, or half of them");

struct lac_item { /* what a block does next: a tile, some of its stages */
    int output_tile, token_tile, part, begin, end;
#if LAC_PAIRED
    int first_end, second_begin; /* where the first 64 outputs' stages end and the second's begin */
#endif
};

__device__ __forceinline__ bool lac_item_of(const lac_gather_args &args, int index, lac_item &item)
{
    enum { WIDE = LAC_SHARES_X ? LAC_CLUSTER : 1, LONG = LAC_SHARES_X ? 1 : LAC_CLUSTER }; /* tiles of a cluster */
    const int groups = args.token_tiles / LONG, tiles = args.output_tiles / WIDE;
    if (index >= groups * tiles * (LAC_MEETS ? 1 : LAC_PARTS)) return false;
#if LAC_MEETS
    const int rank = 0;
    item.part = (int)lac_cluster_rank();
#else
    const int rank = LAC_CLUSTER > 1 ? (int)lac_cluster_rank() : 0;
    item.part = index % LAC_PARTS;
    index /= LAC_PARTS;
#endif
#if LAC_TOKEN_TEAMS
    const int row = index / args.band, group = row / tiles;
    item.token_tile = group * args.band + index - row * args.band;
    item.output_tile = (row - group * tiles) * WIDE + rank;
#else
    int first = 0, wide = tiles;
    if (args.band < tiles) { /* divisions are slow */
        first = index / (args.band * groups) * args.band, wide = min(tiles - first, args.band);
        index -= first * groups;
    }
    const int across = index / wide;
    item.token_tile = across * LONG + (LAC_SHARES_X ? 0 : rank);
    item.output_tile = (first + index - across * wide) * WIDE + (LAC_SHARES_X ? rank : 0);
#endif
    /* A load here would be waited for at once. */
    const int even = args.stages_a_tile, begin = even ? item.output_tile * even : args.range[2 * item.output_tile];
    const int count = even ? even : args.range[2 * item.output_tile + 1] - begin;
    item.begin = begin + (int)((i64)count * item.part / LAC_PARTS);
    item.end = begin + (int)((i64)count * (item.part + 1) / LAC_PARTS);
#if LAC_PAIRED
    const int *own = args.range + 2 * (args.output_tiles + item.output_tile);
    item.first_end = max(item.begin, min(item.end, own[0]));
    item.second_begin = max(item.begin, min(item.end, own[1]));
#endif
    return true;
}

/* Stages one after the other, over the block's items. */
struct lac_walk {
    lac_item item;
    int index, stage;
    bool more;
};

__device__ __forceinline__ void lac_walk_settle(const lac_gather_args &args, lac_walk &walk)
{
    while (walk.more && walk.stage >= walk.item.end) {
        walk.index += gridDim.x / LAC_CLUSTER_BLOCKS;
        walk.more = lac_item_of(args, walk.index, walk.item);
        walk.stage = walk.item.begin;
    }
}

__device__ __forceinline__ lac_walk lac_walk_begin(const lac_gather_args &args)
{
    lac_walk walk;
    walk.index = blockIdx.x / LAC_CLUSTER_BLOCKS;
    walk.more = lac_item_of(args, walk.index, walk.item);
    if (walk.more) walk.stage = walk.item.begin;
    lac_walk_settle(args, walk);
    return walk;
}

/* ---- epilogue */

/* Lane q of four gets the four words that the lanes have as number q, in their order. */
__device__ __forceinline__ void lac_quad_transpose(u32 (&word)[4])
{
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
        const bool upper = threadIdx.x & step;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int low = step == 1 ? 2 * i : i, high = low + step;
            const u32 got = __shfl_xor_sync(0xffffffffu, upper ? word[low] : word[high], step);
            word[low] = upper ? got : word[low];
            word[high] = upper ? word[high] : got;
        }
    }
}

__device__ __forceinline__ u32 lac_pack(float low, float high)
{
    u32 result;
#if LAC_Y_DTYPE == LAC_BF16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
#endif
    return result;
}

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

#if LAC_STORES_Y
/* A warpgroup's part of a tile to Y, a piece of 64 x 64 at a time through shared memory: the parts of `staging` in turns. */
__device__ __forceinline__ void lac_tile_store(const lac_gpu_call &call, const lac_item &item, const lac_outputs &outputs,
                                               float (&sum)[LAC_BLOCKS][LAC_SUMS], u32 staging, const lac_tensor_map *map)
{
    const int token = item.token_tile * LAC_TILE_TOKENS + (LAC_SPLITS_OUTPUTS ? 0 : (threadIdx.x >> 7) * LAC_N), q = threadIdx.x & 3;
    const bool leads = (threadIdx.x & 127) == 0;
    enum { PARTS = LAC_N / 64 };
#pragma unroll
    for (int piece = 0; piece < LAC_PIECES; piece++) {
        const int b = piece / PARTS, part = piece % PARTS;
        const u32 room = staging + piece % LAC_STAGING_PIECES * LAC_PIECE;
        u32 word[16];
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
        if (piece == 0) { /* the last tile's are read by now */
            if (leads) lac_store_wait_read<0>();
            lac_warpgroup_sync();
        } else if (piece >= LAC_STAGING_PIECES) {
            if (leads) lac_store_wait_read<LAC_STAGING_PIECES - 1>();
            lac_warpgroup_sync();
        }
        lac_stage_piece(room, word);
        lac_async_fence();
        lac_warpgroup_sync();
        if (leads && outputs.first[b] >= 0) lac_store_piece(room, map, outputs.first[b], token + part * 64);
        if (leads) lac_store_commit();
    }
}
#endif

/* A warpgroup's part of a tile to Y. */
__device__ __forceinline__ void lac_tile_write(const lac_gpu_call &call, const lac_gather_args &args, const lac_item &item,
                                               const lac_outputs &outputs, float (&sum)[LAC_BLOCKS][LAC_SUMS])
{
    const int token = item.token_tile * LAC_TILE_TOKENS + (LAC_SPLITS_OUTPUTS ? 0 : (threadIdx.x >> 7) * LAC_N);
#pragma unroll
    for (int b = 0; b < LAC_BLOCKS; b++)
        lac_block_write(call, sum[b], lac_places_of(args, item, b), outputs.place[b], outputs.bias[b], token);
}

/* ---- consumers */

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
 * here, and nobody needs the stages any more; that nobody leaves while he is read from is the caller's to see to. */
__device__ __forceinline__ void lac_tile_meet(const lac_gpu_call &call, const lac_gather_args &args, const lac_item &item,
                                              const lac_outputs &outputs, float (&sum)[LAC_SUMS], u32 stages)
{
    enum { SHARE = LAC_SUMS / LAC_PARTS };
    static_assert(LAC_BLOCKS == 1 && SHARE % 16 == 0, "a share is 32 tokens at least");
    const u32 mine = stages + threadIdx.x * 16;
#pragma unroll
    for (int i = 0; i < LAC_SUMS; i += 4)
        lac_shared_store_16(mine + i * 1024, make_uint4(__float_as_uint(sum[i]), __float_as_uint(sum[i + 1]), __float_as_uint(sum[i + 2]),
                                                        __float_as_uint(sum[i + 3])));
    lac_cluster_sync();
    float share[SHARE];
#pragma unroll
    for (int i = 0; i < SHARE; i++) share[i] = 0.0f;
#pragma unroll
    for (int part = 0; part < LAC_PARTS; part++)
#pragma unroll
        for (int i = 0; i < SHARE; i += 4) {
            const float4 v = lac_cluster_read(mine + (item.part * SHARE + i) * 1024, part);
            share[i] += v.x, share[i + 1] += v.y, share[i + 2] += v.z, share[i + 3] += v.w;
        }
    const int token = item.token_tile * LAC_TILE_TOKENS + (LAC_SPLITS_OUTPUTS ? 0 : (threadIdx.x >> 7) * LAC_N) + item.part * (2 * SHARE);
    lac_block_write(call, share, lac_places_of(args, item, 0), outputs.place[0], outputs.bias[0], token);
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
            lac_stage_release(empty, slot);
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
    if (LAC_CLUSTER_BLOCKS > 1) lac_cluster_sync();
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
