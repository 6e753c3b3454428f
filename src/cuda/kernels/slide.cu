/* slide.cu - fp16 and bf16 SpMM for short vectors of outputs (8 to 32 that share their inputs): X slides through shared memory
 * and each vector selects its inputs on the way to registers.
 *
 * Y[LAC_TOKENS tokens][eight vectors of LAC_WIDTH outputs] is a tile; blocks run over tiles (times parts of k) until
 * none is left. One producer thread brings X by tensor copies in chunks of 64 inputs into a ring of LAC_RING chunks. A warp
 * multiplies one vector by all tokens of the tile; it copies its weights for itself, by cp.async LAC_DEPTH steps ahead.
 *
 *   warps 0-7   products by mma.sync: A 16 tokens x 16 selected inputs, B 16 inputs x 8 outputs, sums in registers
 *   warp 8      one thread fetches X; warps 9-11 are there because registers are shared out by four warps
 *   full[chunk]  its bytes;  empty[chunk]  the warps that compute
 *
 * The ring, and a chunk in it (boxes of 64 tokens, 128-byte swizzle: piece p of row r, eight tokens, lies at p ^ (r & 7)):
 *
 *     | chunk i | chunk i+1 | ... | chunk i + RING - 1 |       | tokens 0-63: 64 rows x 128 bytes | tokens 64-127 | ...
 *
 * A step is 16 slots of a vector. Its inputs may lie in any chunk of the ring: which ones stand together was chosen when the
 * weight was cut (slide_tile.c), so that eight rows of one ldmatrix lie in different banks. An entry of the index has in bits
 * 0-17 the place of the row in the ring, in bytes, counted from the tile's first chunk and with the swizzle. LAC_BATCH steps are
 * a batch, and in its first entries bits 18-24 say how many chunks more than before must have come before it, bits 25-31 how many
 * are not needed any more after it.
 *
 * Thread to data: lanes 0-7 say where slots 0-7 lie at the first eight of 16 tokens, 8-15 at the last eight; 16-31 the same of
 * slots 8-15. Fragments of X are loaded LAC_AHEAD blocks of 16 tokens ahead, across steps.
 *
 * Preconditions: X feature-major, aligned as the tensor copies want it; weight and index readable LAC_DEPTH steps past their end.
 * Constants: LAC_WIDTH (8, 16, 24, 32), LAC_TOKENS (64, 128, 256), LAC_RING, LAC_DEPTH (even), LAC_BATCH (divides it), LAC_PARTS
 * (1: k is not split), and those of epilogue.cuh. Bottleneck: shared memory (gathered X, copies), beside it mma.sync. */
#include "epilogue.cuh"
#include "gather_copy.cuh"
#include "matrix_load.cuh"
#include "mma.cuh"
#include "pipeline.cuh"
#include "quad.cuh"
#include "shared_access.cuh"
#include "slide_arguments.h"
#include "tensor_copy.cuh"

#define LAC_CHUNK 64                                        /* inputs */
#define LAC_BOX (LAC_CHUNK * 128)                           /* 64 tokens of a chunk */
#define LAC_CHUNK_BYTES (LAC_TOKENS / 64 * LAC_BOX)
#define LAC_RING_BYTES (LAC_RING * LAC_CHUNK_BYTES)
#define LAC_BLOCKS (LAC_TOKENS / 16)
#define LAC_EIGHTS (LAC_WIDTH / 8)                          /* of outputs */
#define LAC_WORDS (2 * LAC_EIGHTS)                          /* of a step's weights in a lane */
#define LAC_STEP_BYTES (LAC_WIDTH * 32)
#define LAC_AHEAD 3
#define LAC_ALL 0xffffffffu

typedef float lac_sums[LAC_BLOCKS][LAC_EIGHTS][4];

struct lac_item { /* what a block does next: a tile, a part of k */
    int token_tile, output_tile, part, begin, end; /* chunks */
};

__device__ __forceinline__ bool lac_item_of(const lac_slide_args &args, int index, lac_item &item)
{
    if (index >= args.output_tiles * args.token_tiles * LAC_PARTS) return false;
    item.part = index % LAC_PARTS;
    index /= LAC_PARTS;
    const int first = index / (args.band * args.token_tiles) * args.band, wide = min(args.output_tiles - first, args.band);
    index -= first * args.token_tiles;
    item.token_tile = index / wide;
    item.output_tile = first + index % wide;
    item.begin = (int)((i64)args.chunks * item.part / LAC_PARTS);
    item.end = (int)((i64)args.chunks * (item.part + 1) / LAC_PARTS);
    return true;
}

/* A chunk of a tile: its number, its place in the ring, and the parity of the round. */
struct lac_place {
    int number;
    u32 slot, parity;
};
__device__ __forceinline__ void lac_place_next(lac_place &place)
{
    place.number++;
    if (++place.slot == LAC_RING) place.slot = 0, place.parity ^= 1;
}

/* ---- products */

/* A lane's weights of a step, and where its row lies. */
struct lac_step {
    u32 entry, w[LAC_WORDS];
};

/* A warp's place for a step on its way: each lane copies what it will use itself. */
#define LAC_STEP_PLACE (LAC_STEP_BYTES + 128)

/* Where a stream goes on, for this lane. */
struct lac_source {
    const u8 *weight;
    const u32 *index;
};

/* Starts the copies of the next step to place `slot`. They may go beyond the stream: what lies there is never used. */
template <int slot> __device__ __forceinline__ void lac_step_fetch(lac_source &from, u32 steps)
{
    const u32 lane = threadIdx.x & 31, to = steps + lane * (LAC_WORDS < 4 ? 8 : 16);
#pragma unroll
    for (int i = 0; i + 512 <= LAC_STEP_BYTES; i += 512) lac_copy_16<slot * LAC_STEP_PLACE>(to + i, from.weight + i);
#if LAC_WORDS % 4 == 2
    enum { AT = LAC_STEP_BYTES - 256 };
    const u32 less = LAC_WORDS < 4 ? 0 : lane * 8;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to + (slot * LAC_STEP_PLACE + AT) - less), "l"(from.weight + AT - less)
                 : "memory");
#endif
    lac_copy_4<slot * LAC_STEP_PLACE + LAC_STEP_BYTES>(steps + lane * 4, from.index);
    lac_copy_commit();
    from.weight += LAC_STEP_BYTES;
    from.index += 16;
}

template <int slot> __device__ __forceinline__ void lac_step_load(lac_step &step, u32 steps)
{
    const u32 lane = threadIdx.x & 31, from = steps + slot * LAC_STEP_PLACE;
    step.entry = lac_shared_load(from + LAC_STEP_BYTES + lane * 4);
#pragma unroll
    for (int i = 0; i + 4 <= LAC_WORDS; i += 4) {
        const uint4 four = lac_shared_load_16(from + i * 128 + lane * 16);
        step.w[i] = four.x, step.w[i + 1] = four.y, step.w[i + 2] = four.z, step.w[i + 3] = four.w;
    }
#if LAC_WORDS % 4 == 2
    const uint2 two = lac_shared_load_8(from + LAC_STEP_BYTES - 256 + lane * 8);
    step.w[LAC_WORDS - 2] = two.x, step.w[LAC_WORDS - 1] = two.y;
#endif
}

/* What a warp knows of the ring. */
struct lac_ring {
    u32 chunks, full, empty; /* shared addresses                               */
    u32 steps;               /* shared address of this warp's steps on their way */
    u32 origin, lane;        /* bytes: the tile's first chunk; this lane's piece of a row */
    lac_place ready, freed;  /* the next chunk to wait for, and to give back */
};

__device__ __forceinline__ void lac_ring_wait(lac_ring &ring, u32 count)
{
#pragma unroll 1
    for (; count; count--) {
        lac_barrier_wait(ring.full + 8 * ring.ready.slot, ring.ready.parity);
        lac_place_next(ring.ready);
    }
    __syncwarp();
}

__device__ __forceinline__ void lac_ring_free(lac_ring &ring, u32 count)
{
#pragma unroll 1
    for (; count; count--) {
        if ((threadIdx.x & 31) == 0) lac_barrier_arrive(ring.empty + 8 * ring.freed.slot);
        lac_place_next(ring.freed);
    }
    __syncwarp();
}

/* Where this lane's row of a step lies at the warp's first tokens. */
__device__ __forceinline__ u32 lac_row_of(const lac_ring &ring, u32 entry)
{
    const u32 at = (entry & 0x3ffffu) + ring.origin;
    return ring.chunks + (min(at, at - LAC_RING_BYTES) ^ ring.lane); /* round the ring's end */
}

template <int block> __device__ __forceinline__ void lac_fragment_load(u32 (&fragment)[4], u32 row)
{
    lac_load_turned<block / 4 * LAC_BOX>(fragment, row ^ (block % 4 * 32));
}

/* The products of a step, block by block, with the rows of the next step's first blocks loaded in between. `waits`: a batch begins
 * with the next step, if there is one (`more`). */
template <int block, bool waits>
__device__ __forceinline__ void lac_blocks(lac_sums &sum, u32 (&fragment)[4][4], const lac_step &now, u32 row, lac_ring &ring,
                                           const lac_step &after, bool more, u32 &next)
{
    if (block + LAC_AHEAD == LAC_BLOCKS) {
        next = lac_row_of(ring, after.entry);
        if (waits) {
            if (more)
                lac_ring_wait(ring, after.entry >> 18 & 0x7fu);
            else
                next = row;
        }
    }
    lac_fragment_load<(block + LAC_AHEAD) % LAC_BLOCKS>(fragment[(block + LAC_AHEAD) % 4],
                                                        block + LAC_AHEAD < LAC_BLOCKS ? row : next);
    const u32(&f)[4] = fragment[block % 4];
#pragma unroll
    for (int j = 0; j < LAC_EIGHTS; j++)
        lac_mma_16x8x16<LAC_X_DTYPE>(sum[block][j], f[0], f[1], f[2], f[3], now.w[2 * j], now.w[2 * j + 1]);
    if constexpr (block + 1 < LAC_BLOCKS) lac_blocks<block + 1, waits>(sum, fragment, now, row, ring, after, more, next);
}

/* Steps `slot` to the last of LAC_DEPTH, unless the stream ends: `left` steps of it are to be done. A batch's control stands in
 * its first step. */
template <int slot>
__device__ __forceinline__ void lac_some_steps(lac_sums &sum, u32 (&fragment)[4][4], lac_step (&step)[2], u32 &row, u32 &give,
                                               lac_ring &ring, lac_source &from, int &left)
{
    enum { LAST = (slot + 1) % LAC_BATCH == 0 };
    u32 next;
    if (slot % LAC_BATCH == 0) give = step[slot % 2].entry >> 25;
    lac_step_fetch<slot>(from, ring.steps);
    lac_copy_wait<LAC_DEPTH - 1>();
    lac_step_load<(slot + 1) % LAC_DEPTH>(step[(slot + 1) % 2], ring.steps);
    left--;
    lac_blocks<0, LAST>(sum, fragment, step[slot % 2], row, ring, step[(slot + 1) % 2], left > 0, next);
    row = next;
    if (LAST) {
        if (give) lac_ring_free(ring, give);
        if (left == 0) return;
    }
    if constexpr (slot + 1 < LAC_DEPTH) lac_some_steps<slot + 1>(sum, fragment, step, row, give, ring, from, left);
}

template <int slot> __device__ __forceinline__ void lac_first_fetch(lac_source &from, u32 steps)
{
    lac_step_fetch<slot>(from, steps);
    if constexpr (slot + 1 < LAC_DEPTH) lac_first_fetch<slot + 1>(from, steps);
}

/* Starts the copies of a stream's first steps. */
__device__ __forceinline__ lac_source lac_stream_fetch(const lac_slide_args &args, const lac_ring &ring, int begin)
{
    const int lane = threadIdx.x & 31;
    lac_source from;
    begin = max(begin, 0); /* when there is none, something is read that nobody uses */
    from.weight = args.weight + (i64)begin * LAC_STEP_BYTES + lane * (LAC_WORDS < 4 ? 8 : 16);
    from.index = args.index + (i64)begin * 16 + (lane >> 4) * 8 + (lane & 7);
    lac_first_fetch<0>(from, ring.steps);
    return from;
}

/* Adds `left` steps, a multiple of LAC_BATCH, whose first ones are on their way, to `sum`. */
__device__ __forceinline__ void lac_stream(lac_sums &sum, lac_ring &ring, lac_source &from, int left)
{
    lac_step step[2];
    u32 fragment[4][4], give;
    if (left == 0) return;
    lac_copy_wait<LAC_DEPTH - 1>();
    lac_step_load<0>(step[0], ring.steps);
    lac_ring_wait(ring, step[0].entry >> 18 & 0x7fu);
    u32 row = lac_row_of(ring, step[0].entry);
    lac_fragment_load<0>(fragment[0], row);
    lac_fragment_load<1>(fragment[1], row);
    lac_fragment_load<2>(fragment[2], row);
#pragma unroll 1
    while (left > 0) lac_some_steps<0>(sum, fragment, step, row, give, ring, from, left);
}

/* ---- epilogue */

#if LAC_Y_DTYPE != LAC_F32
/* Whether this warp's part of a tile can be stored 16 bytes at a time. */
__device__ __forceinline__ bool lac_part_is_whole(const lac_gpu_call &call, const int *output, int token)
{
    const bool aligned = ((u64)call.y | (u64)call.ldy * 2) % 16 == 0 && token + LAC_TOKENS <= call.m;
#if LAC_Y_TOKEN_MAJOR
    return !LAC_HAS_ROW_PERM && LAC_EIGHTS % 4 == 0 && aligned && output[0] >= 0 && output[0] % 8 == 0 && output[LAC_WIDTH - 1] == output[0] + LAC_WIDTH - 1;
#else
    return aligned && output[LAC_WIDTH - 1] >= 0;
#endif
}

__device__ __forceinline__ void lac_part_write_chunks(const lac_gpu_call &call, const lac_sums &sum, const int *output, int token)
{
    const int g = threadIdx.x >> 2 & 7, q = threadIdx.x & 3;
#if LAC_Y_TOKEN_MAJOR /* a token's 32 outputs: four words of a lane, 16 bytes of each of four lanes */
    u16 *y = (u16 *)call.y + (i64)(token + g) * call.ldy + output[0] + 8 * q;
#pragma unroll
    for (int b = 0; b < LAC_BLOCKS; b++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j + 4 <= LAC_EIGHTS; j += 4) {
                u32 word[4];
#pragma unroll
                for (int i = 0; i < 4; i++) word[i] = lac_pack(sum[b][j + i][2 * h], sum[b][j + i][2 * h + 1]);
                lac_quad_transpose(word);
                *(uint4 *)(y + (i64)(b * 16 + h * 8) * call.ldy + j * 8) = make_uint4(word[0], word[1], word[2], word[3]);
            }
#else /* an output's 32 tokens */
#pragma unroll
    for (int j = 0; j < LAC_EIGHTS; j++) {
        u16 *y = (u16 *)call.y + (i64)output[j * 8 + g] * call.ldy + token + 8 * q;
#pragma unroll
        for (int b = 0; b < LAC_BLOCKS; b += 2) {
            u32 word[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                word[i] = lac_transpose_8x8(lac_pack(sum[b + (i >> 1)][j][2 * (i & 1)], sum[b + (i >> 1)][j][2 * (i & 1) + 1]));
            lac_quad_transpose(word);
            *(uint4 *)(y + b * 16) = make_uint4(word[0], word[1], word[2], word[3]);
        }
    }
#endif
}
#endif

/* This warp's tokens from `token` on, and its outputs, to Y. */
__device__ __forceinline__ void lac_part_write(const lac_gpu_call &call, const int *output, int token, lac_sums &sum)
{
    const int g = threadIdx.x >> 2 & 7, q = threadIdx.x & 3;
#pragma unroll
    for (int j = 0; j < LAC_EIGHTS; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int place = output[j * 8 + 2 * q + e];
            const float bias = place < 0 ? 0.0f : lac_bias(call, place);
#pragma unroll
            for (int b = 0; b < LAC_BLOCKS; b++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int t = token + b * 16 + h * 8 + g;
                    if (!LAC_HAS_RESIDUAL || (place >= 0 && t < call.m))
                        sum[b][j][2 * h + e] = lac_finish(call, t, place, sum[b][j][2 * h + e], bias);
                }
        }
#if LAC_Y_DTYPE != LAC_F32
    if (lac_part_is_whole(call, output, token)) {
        lac_part_write_chunks(call, sum, output, token);
        return;
    }
#endif
#pragma unroll
    for (int j = 0; j < LAC_EIGHTS; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int place = output[j * 8 + 2 * q + e];
#pragma unroll
            for (int b = 0; b < LAC_BLOCKS; b++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int t = token + b * 16 + h * 8 + g;
                    if (place >= 0 && t < call.m) lac_store(call, t, place, sum[b][j][2 * h + e]);
                }
        }
}

/* ---- the two kinds of warps */

__device__ __forceinline__ i64 lac_partial_at(const lac_slide_args &args, const lac_item &item, int part)
{
    const i64 tile = (i64)item.output_tile * args.token_tiles + item.token_tile;
    return (tile * LAC_PARTS + part) * (LAC_BLOCKS * LAC_EIGHTS * 4 * 256) + threadIdx.x;
}

__device__ __forceinline__ void lac_tile_write(const lac_gpu_call &call, const lac_slide_args &args, const lac_item &item, lac_sums &sum)
{
    const int vector = item.output_tile * 8 + (threadIdx.x >> 5);
    lac_part_write(call, args.output + (i64)vector * LAC_WIDTH, item.token_tile * LAC_TOKENS, sum);
}

/* The steps of a warp's stream. */
struct lac_steps {
    int begin, end; /* -1: there is no such item */
};

__device__ __forceinline__ lac_steps lac_steps_of(const lac_slide_args &args, int index, int warp)
{
    lac_steps steps = {-1, -1};
    lac_item item;
    if (!lac_item_of(args, index, item)) return steps;
    const int stream = (item.output_tile * 8 + warp) * LAC_PARTS + item.part;
    steps.begin = args.first[stream];
    steps.end = args.first[stream + 1];
    return steps;
}

__device__ __forceinline__ void lac_consume(const lac_gpu_call &call, const lac_slide_args &args, u32 chunks, u32 full, u32 empty)
{
    const int warp = __shfl_sync(LAC_ALL, (int)threadIdx.x >> 5, 0);
    lac_ring ring = {chunks, full, empty, chunks + LAC_RING_BYTES + warp * (LAC_DEPTH * LAC_STEP_PLACE), 0, 0, {0, 0, 0}, {0, 0, 0}};
    ring.lane = (threadIdx.x >> 3 & 1) * 16;
    int index = blockIdx.x;
    lac_steps steps = lac_steps_of(args, index, warp);
    lac_source from = lac_stream_fetch(args, ring, steps.begin);
    while (steps.begin >= 0) {
        lac_sums sum;
#pragma unroll
        for (int b = 0; b < LAC_BLOCKS; b++)
#pragma unroll
            for (int j = 0; j < LAC_EIGHTS; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) sum[b][j][i] = 0.0f;
        const int left = steps.end - steps.begin;
        steps = lac_steps_of(args, index + gridDim.x, warp);
        lac_stream(sum, ring, from, left);
        asm volatile("" : "+r"(index)); /* the item is worked out again: registers are short in between */
        lac_item item;
        lac_item_of(args, index, item);
        while (ring.freed.number < item.end - item.begin) { /* chunks in which this vector has nothing more */
            if (ring.ready.number == ring.freed.number) lac_ring_wait(ring, 1);
            lac_ring_free(ring, 1);
        }
        ring.ready = ring.freed;
        ring.ready.number = ring.freed.number = 0;
        ring.origin = ring.freed.slot * LAC_CHUNK_BYTES;
        /* The copies past the stream's end may still be under way, to the places that the next stream's come to: which of two
         * lands last is not said. */
        lac_copy_wait<0>();
        from = lac_stream_fetch(args, ring, steps.begin); /* on their way while this tile is written */
        index += gridDim.x;
#if LAC_PARTS > 1
        const i64 at = lac_partial_at(args, item, item.part);
#pragma unroll
        for (int b = 0; b < LAC_BLOCKS; b++)
#pragma unroll
            for (int j = 0; j < LAC_EIGHTS; j++)
#pragma unroll
                for (int i = 0; i < 4; i++) args.partial[at + ((b * LAC_EIGHTS + j) * 4 + i) * 256] = sum[b][j][i];
#else
        lac_tile_write(call, args, item, sum);
#endif
    }
}

/* X of all the block's tiles, one chunk after the other. */
__device__ __forceinline__ void lac_produce(const lac_slide_args &args, const lac_tensor_map *map, u32 chunks, u32 full, u32 empty)
{
    lac_place place = {0, 0, 1};
    lac_item item;
    for (int index = blockIdx.x; lac_item_of(args, index, item); index += gridDim.x)
        for (int chunk = item.begin; chunk < item.end; chunk++) {
            const u32 barrier = full + 8 * place.slot, to = chunks + place.slot * LAC_CHUNK_BYTES;
            lac_barrier_wait(empty + 8 * place.slot, place.parity);
            lac_barrier_expect(barrier, LAC_CHUNK_BYTES);
#pragma unroll
            for (int box = 0; box < LAC_TOKENS / 64; box++)
                lac_copy_tensor(to + box * LAC_BOX, map, item.token_tile * LAC_TOKENS + box * 64, chunk * LAC_CHUNK, barrier, 1);
            lac_place_next(place);
        }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    lac_slide(const lac_gpu_call call, const lac_slide_args args, const __grid_constant__ lac_tensor_map map)
{
    extern __shared__ __align__(1024) u8 memory[];
    __shared__ __align__(8) u64 barriers[2 * LAC_RING];
    const u32 chunks = lac_shared_address(memory), full = lac_shared_address(barriers), empty = full + 8 * LAC_RING;
    if (threadIdx.x == 0) {
        for (int i = 0; i < LAC_RING; i++) {
            lac_barrier_init(full + 8 * i, 1);
            lac_barrier_init(empty + 8 * i, 8);
        }
        lac_barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x >= 256) {
        lac_registers_fewer<40>();
        if (threadIdx.x == 256) lac_produce(args, &map, chunks, full, empty);
    } else {
        lac_registers_more<232>();
        lac_consume(call, args, chunks, full, empty);
    }
}

#if LAC_PARTS > 1
/* Adds the parts of a tile in their order. A block a tile, threads as the warps that compute above. */
extern "C" __global__ void __launch_bounds__(256) lac_slide_reduce(const lac_gpu_call call, const lac_slide_args args)
{
    lac_item item;
    item.output_tile = blockIdx.x / args.token_tiles;
    item.token_tile = blockIdx.x % args.token_tiles;
    lac_sums sum;
#pragma unroll
    for (int b = 0; b < LAC_BLOCKS; b++)
#pragma unroll
        for (int j = 0; j < LAC_EIGHTS; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                sum[b][j][i] = 0.0f;
                for (int part = 0; part < LAC_PARTS; part++)
                    sum[b][j][i] += args.partial[lac_partial_at(args, item, part) + ((b * LAC_EIGHTS + j) * 4 + i) * 256];
            }
    lac_tile_write(call, args, item, sum);
}
#endif
