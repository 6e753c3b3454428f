/* pick.cu - fp16 and bf16 SpMM by wgmma for short vectors of outputs (8 to 32 that share their inputs): whole windows of X in
 * shared memory, each vector picks its inputs on the way to registers, and two vectors share what both picked.
 *
 * Y[LAC_TOKENS tokens][LAC_TILE_VECTORS vectors of LAC_WIDTH outputs] is a tile; blocks run over tiles (times parts of k) until
 * none is left. One thread brings windows of X by tensor copies through LAC_STAGES stages, another W in chunks (one window of a
 * pair of vectors) through a ring of LAC_RING. Two warpgroups multiply: with 128 tokens each has 64 of them and both read the
 * same W; with 64 tokens each has a set of vectors of its own.
 *
 *   X stage  | tokens 0-63: 256 rows x 128 bytes, swizzled | tokens 64-127 |     input i of a window is row i % 32 * 8 + i / 32
 *   W chunk  | [set][four loads][16 slots] 4 x u16: where the inputs lie | [set][product] matrices of LAC_WIDTH outputs x 16 slots |
 *
 * Thread to data: 64 tokens are M of wgmma, a vector's outputs N; warp w of a warpgroup has tokens 16 w to 16 w + 15. The fragments
 * of 16 picked inputs come by ldmatrix, transposed: each row address is free, lanes 0-15 and 16-31 give those of slots 0-7 and
 * 8-15, at the first and the last eight tokens. Rows of different eighths of a window lie in different banks, and with N:M of
 * which 32 is a multiple every vector has as many inputs in each eighth: no eight rows ever collide.
 *
 * A load is 16 slots: the first LAC_COMMON loads of a pair hold inputs of both vectors and make two products, the others one, the
 * vectors in turn. The loads of all pairs of a window are one pipeline: LAC_PENDING are in the tensor cores, the fragments of the
 * next LAC_AHEAD are on their way from shared memory, places of rows are read four loads before that. Sums stay in the
 * accumulators over all of k.
 *
 * Preconditions: X feature-major, aligned as the tensor copies want it. Slots without an input have weights of zero and read some
 * row of the window. Constants: LAC_WIDTH (8, 16, 24, 32), LAC_TOKENS (64, 128), LAC_STEPS (of 16 slots, a vector's in a window),
 * LAC_COMMON (at most LAC_STEPS), LAC_PAIRS (of vectors, of a warpgroup), LAC_STAGES, LAC_RING, LAC_PARTS (1: k is not split), and
 * those of epilogue.cuh. Bottleneck: shared memory (picked fragments, W once for each 64 tokens, the copies), beside it L2. */
#define LAC_OPERAND LAC_X_DTYPE
#include "async_copy.cuh"
#include "cursor.cuh"
#include "epilogue.cuh"
#include "gather_copy.cuh"
#include "matrix_load.cuh"
#include "pick_arguments.h"
#include "pipeline.cuh"
#include "quad.cuh"
#include "shared_access.cuh"
#include "tensor_copy.cuh"
#include "wgmma.cuh"

#define LAC_EIGHTH 32              /* inputs of a window */
#define LAC_BOX (8 * LAC_EIGHTH * 128) /* 64 tokens of a window */
#define LAC_X_STAGE (LAC_TOKENS / 64 * LAC_BOX)
#define LAC_SETS (LAC_TOKENS == 64 ? 2 : 1)
#define LAC_LOADS ((2 * LAC_STEPS - LAC_COMMON + 1) / 2 * 2) /* of a pair in a window; of an odd number the last is none */
#define LAC_TURN (LAC_PAIRS * LAC_LOADS)                     /* loads of a warpgroup in a window */
#define LAC_MATRIX (LAC_WIDTH * 32)
#define LAC_SET_INDEX ((LAC_LOADS + 3) / 4 * 128)
#define LAC_INDEX (LAC_SETS * LAC_SET_INDEX)
#define LAC_W_CHUNK (LAC_INDEX + LAC_SETS * 2 * LAC_STEPS * LAC_MATRIX)
#define LAC_VECTORS (2 * LAC_PAIRS) /* of a warpgroup */
#define LAC_TILE_VECTORS (LAC_SETS * LAC_VECTORS)
#define LAC_TILE_WIDTH (LAC_TILE_VECTORS * LAC_WIDTH)
#define LAC_EIGHTS (LAC_WIDTH / 8) /* of outputs */
#define LAC_SUMS (LAC_WIDTH / 2)

typedef float lac_sums[LAC_VECTORS][LAC_SUMS];

/* The fragments in registers: as many as divide the loads of a window, so that each window begins with the first. */
constexpr int lac_fragment_count(int most) { return LAC_TURN % most == 0 ? most : lac_fragment_count(most - 1); }
constexpr int lac_least(int a, int b) { return a < b ? a : b; }
enum { LAC_FRAGMENTS = lac_fragment_count(8), LAC_PENDING = lac_least(3, LAC_FRAGMENTS / 2), LAC_AHEAD = LAC_FRAGMENTS - LAC_PENDING };

/* ---- what a block does next: a tile, a part of k */

struct lac_item {
    int token_tile, output_tile, part, begin, end; /* windows */
};

__device__ __forceinline__ int lac_item_count(const lac_pick_args &args) { return args.output_tiles * args.token_tiles * LAC_PARTS; }

__device__ __forceinline__ lac_item lac_item_of(const lac_pick_args &args, int index)
{
    lac_item item;
    item.part = index % LAC_PARTS;
    index /= LAC_PARTS;
    const int first = index / (args.band * args.token_tiles) * args.band, wide = min(args.output_tiles - first, args.band);
    index -= first * args.token_tiles;
    item.token_tile = index / wide;
    item.output_tile = first + index % wide;
    item.begin = (int)((i64)args.windows * item.part / LAC_PARTS);
    item.end = (int)((i64)args.windows * (item.part + 1) / LAC_PARTS);
    return item;
}

/* ---- shared memory */

/* Behind stages and ring: barriers, then the places of the tile's outputs. */
#define LAC_BARRIERS (LAC_STAGES * LAC_X_STAGE + LAC_RING * LAC_W_CHUNK)
#define LAC_NOTES (LAC_BARRIERS + 16 * (LAC_STAGES + LAC_RING))

struct lac_shared { /* shared addresses */
    u32 x;
    __device__ __forceinline__ u32 x_full(u32 slot) const { return x + LAC_BARRIERS + 8 * slot; }
    __device__ __forceinline__ u32 x_empty(u32 slot) const { return x + LAC_BARRIERS + 8 * (LAC_STAGES + slot); }
    __device__ __forceinline__ u32 w_full(u32 slot) const { return x + LAC_BARRIERS + 8 * (2 * LAC_STAGES + slot); }
    __device__ __forceinline__ u32 w_empty(u32 slot) const { return x + LAC_BARRIERS + 8 * (2 * LAC_STAGES + LAC_RING + slot); }
    __device__ __forceinline__ u32 stage(u32 slot) const { return x + slot * LAC_X_STAGE; }
    __device__ __forceinline__ u32 chunk(u32 slot) const { return x + LAC_STAGES * LAC_X_STAGE + slot * LAC_W_CHUNK; }
};

/* ---- products */

/* What a warpgroup needs to find its data. */
struct lac_view {
    u32 lane;            /* its piece of a row of X, in bytes                       */
    u32 box;             /* its tokens' box, from the beginning of a stage          */
    u32 index, matrices; /* places and matrices, from the beginning of a chunk of W */
};

__device__ __forceinline__ lac_view lac_view_of(int group)
{
    const int thread = threadIdx.x, set = LAC_SETS == 2 ? group : 0;
    lac_view view;
    view.lane = ((thread >> 5 & 3) * 2 + (thread >> 3 & 1)) * 16;
    view.box = LAC_SETS == 2 ? 0 : group * LAC_BOX;
    view.index = set * LAC_SET_INDEX + ((thread >> 4 & 1) * 8 + (thread & 7)) * 8;
    view.matrices = LAC_INDEX + set * (2 * LAC_STEPS * LAC_MATRIX);
    return view;
}

/* What a warpgroup keeps from window to window. */
struct lac_reader {
    lac_cursor<LAC_STAGES> x; /* the window that is multiplied               */
    lac_cursor<LAC_RING> w;   /* the chunk that is multiplied                */
    uint2 places, next_places; /* of the four loads that are fetched, and next */
};

/* This warp has read its last of a buffer: says so to the thread that copies into it. */
__device__ __forceinline__ void lac_release(u32 barrier)
{
#if !LAC_EACH_ARRIVES
    __syncwarp();
    if ((threadIdx.x & 31) != 0) return;
#endif
    lac_barrier_arrive(barrier);
}

/* The first of the four loads after those of `load`: fours begin anew with each pair. */
__device__ __forceinline__ constexpr int lac_next_four(int load)
{
    const int in = load % LAC_LOADS, next = in - in % 4 + 4;
    return load - in + (next < LAC_LOADS ? next : LAC_LOADS);
}

/* Reads the places of the four loads from `load` on, when their chunk is there. `now` is the load that is multiplied; loads of the
 * next window count on. */
__device__ __forceinline__ void lac_locate(lac_reader &reader, const lac_shared &shared, const lac_view &view, int now, int load)
{
    const lac_cursor<LAC_RING> w = reader.w.after(load / LAC_LOADS - now / LAC_LOADS);
    if (load % LAC_LOADS == 0) lac_barrier_wait(shared.w_full(w.slot), w.parity);
    reader.next_places = lac_shared_load_8(shared.chunk(w.slot) + view.index + load % LAC_LOADS * 32);
}

/* The last of an odd number. */
__device__ __forceinline__ constexpr bool lac_is_none(int load) { return load % LAC_LOADS >= 2 * LAC_STEPS - LAC_COMMON; }

/* Starts load `load`, and that of the places of the next four (`more`: also when these are in a later window). */
__device__ __forceinline__ void lac_fetch(u32 (&fragment)[4], lac_reader &reader, const lac_shared &shared, const lac_view &view,
                                          int now, int load, bool more)
{
    const lac_cursor<LAC_STAGES> x = reader.x.after(load / LAC_TURN);
    if (load % LAC_TURN == 0) lac_barrier_wait(shared.x_full(x.slot), x.parity);
    if (load % LAC_LOADS % 4 == 0) {
        const int next = lac_next_four(load);
        reader.places = reader.next_places;
        if (next % LAC_TURN != 0 || more) lac_locate(reader, shared, view, now, next);
    }
    const u32 two = load % LAC_LOADS % 4 < 2 ? reader.places.x : reader.places.y;
    const u32 place = load % LAC_LOADS % 2 ? two >> 16 : two & 0xffffu;
    if (!lac_is_none(load)) lac_load_turned<0>(fragment, shared.stage(x.slot) + view.box + (place ^ view.lane));
}

/* The products of a load. */
__device__ __forceinline__ void lac_products(lac_sums &sum, const u32 (&fragment)[4], u64 matrices, int load)
{
    const int pair = load / LAC_LOADS, within = load % LAC_LOADS;
    if (within < LAC_COMMON) {
        lac_wgmma<LAC_WIDTH>::run(sum[2 * pair], fragment, matrices + 2 * within * (LAC_MATRIX >> 4), 0);
        lac_wgmma<LAC_WIDTH>::run(sum[2 * pair + 1], fragment, matrices + (2 * within + 1) * (LAC_MATRIX >> 4), 0);
    } else if (!lac_is_none(load)) {
        lac_wgmma<LAC_WIDTH>::run(sum[2 * pair + (within - LAC_COMMON) % 2], fragment, matrices + (within + LAC_COMMON) * (LAC_MATRIX >> 4), 0);
    }
}

/* A load has left the tensor cores while load `now` is in them: a chunk is given back after its last. */
__device__ __forceinline__ void lac_give_back(const lac_reader &reader, const lac_shared &shared, int now, int load)
{
    if (load % LAC_LOADS == LAC_LOADS - 1) lac_release(shared.w_empty(reader.w.before(now / LAC_LOADS - load / LAC_LOADS)));
}

/* Adds the windows of an item to `sum`, overlapped as the head of this file says. */
__device__ __forceinline__ void lac_consume(lac_sums &sum, const lac_view &view, int windows, const lac_shared &shared, lac_reader &reader)
{
    u32 fragment[LAC_FRAGMENTS][4];
    lac_locate(reader, shared, view, 0, 0);
#pragma unroll
    for (int load = 0; load < LAC_AHEAD; load++) lac_fetch(fragment[load], reader, shared, view, 0, load, windows > 1);
    for (int left = windows; left > 0; left--) {
#pragma unroll
        for (int load = 0; load < LAC_TURN; load++) {
            const int ahead = load + LAC_AHEAD;
            lac_wgmma_fence();
            lac_products(sum, fragment[load % LAC_FRAGMENTS], lac_wgmma_descriptor(shared.chunk(reader.w.slot) + view.matrices), load);
            lac_wgmma_commit();
            if (load == LAC_TURN - 1) lac_release(shared.x_empty(reader.x.slot));
            lac_wgmma_wait<LAC_PENDING>();
            if (ahead < LAC_TURN || left > 1)
                lac_fetch(fragment[ahead % LAC_FRAGMENTS], reader, shared, view, load, ahead, left > (ahead < LAC_TURN ? 1 : 2));
            if (load >= LAC_PENDING)
                lac_give_back(reader, shared, load, load - LAC_PENDING);
            else if (left < windows)
                lac_give_back(reader, shared, load + LAC_TURN, load + LAC_TURN - LAC_PENDING);
            if (load % LAC_LOADS == LAC_LOADS - 1) reader.w.next();
        }
        reader.x.next();
    }
    lac_wgmma_wait<0>();
#pragma unroll
    for (int load = LAC_TURN - LAC_PENDING; load < LAC_TURN; load++) lac_give_back(reader, shared, LAC_TURN, load);
#pragma unroll
    for (int v = 0; v < LAC_VECTORS; v++) lac_wgmma_results(sum[v]);
}

/* ---- from sums to Y */

#if LAC_Y_DTYPE != LAC_F32
/* Whether this warp's 16 tokens of a vector can be stored 16 bytes at a time. */
__device__ __forceinline__ bool lac_vector_is_whole(const lac_gpu_call &call, const int *output, int token)
{
    const bool aligned = ((u64)call.y | (u64)call.ldy * 2) % 16 == 0 && token + 16 <= call.m && LAC_EIGHTS % 2 == 0;
#if LAC_Y_TOKEN_MAJOR
    return aligned && !LAC_HAS_ROW_PERM && output[0] % 8 == 0 && output[LAC_WIDTH - 1] >= 0;
#else
    return aligned && output[LAC_WIDTH - 1] >= 0;
#endif
}

__device__ __forceinline__ void lac_vector_write_chunks(const lac_gpu_call &call, const float (&sum)[LAC_SUMS], const int *output, int token)
{
    const int g = threadIdx.x >> 2 & 7, q = threadIdx.x & 3;
#pragma unroll
    for (int j = 0; j + 2 <= LAC_EIGHTS; j += 2) { /* 16 outputs x 16 tokens: a word for each 8 x 8 */
        u32 word[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
#if LAC_Y_TOKEN_MAJOR
            const float *s = sum + (j + (i & 1)) * 4 + (i >> 1) * 2;
            word[i] = lac_pack(s[0], s[1]);
#else
            const float *s = sum + (j + (i >> 1)) * 4 + (i & 1) * 2;
            word[i] = lac_transpose_8x8(lac_pack(s[0], s[1]));
#endif
        }
        lac_quad_transpose(word);
#if LAC_Y_TOKEN_MAJOR
        u16 *y = (u16 *)call.y + (i64)(token + g + (q >> 1) * 8) * call.ldy + output[0] + (j + (q & 1)) * 8;
#else
        u16 *y = (u16 *)call.y + (i64)output[(j + (q >> 1)) * 8 + g] * call.ldy + token + (q & 1) * 8;
#endif
        *(uint4 *)y = make_uint4(word[0], word[1], word[2], word[3]);
    }
}
#endif

/* A vector's sums of this warp's 16 tokens from `token` on. */
__device__ __forceinline__ void lac_vector_write(const lac_gpu_call &call, const int *output, int token, float (&sum)[LAC_SUMS])
{
    const int g = threadIdx.x >> 2 & 7, q = threadIdx.x & 3;
#pragma unroll
    for (int i = 0; i < LAC_SUMS; i++) { /* eight i / 4, token g + 8 (i / 2 % 2), output 2 q + i % 2 */
        const int place = output[i / 4 * 8 + 2 * q + i % 2], t = token + i / 2 % 2 * 8 + g;
        if (!LAC_HAS_BIAS && !LAC_HAS_RESIDUAL)
            sum[i] = lac_finish(call, t, place, sum[i], 0.0f);
        else if (place >= 0 && t < call.m)
            sum[i] = lac_finish(call, t, place, sum[i], lac_bias(call, place));
    }
#if LAC_Y_DTYPE != LAC_F32
    if (lac_vector_is_whole(call, output, token)) {
        lac_vector_write_chunks(call, sum, output, token);
        return;
    }
#endif
#pragma unroll
    for (int i = 0; i < LAC_SUMS; i++) {
        const int place = output[i / 4 * 8 + 2 * q + i % 2], t = token + i / 2 % 2 * 8 + g;
        if (place >= 0 && t < call.m) lac_store(call, t, place, sum[i]);
    }
}

/* A thread's part of vector `v` of its warpgroup to Y. `output`: the places of the tile's outputs. */
__device__ __forceinline__ void lac_part_write(const lac_gpu_call &call, int token_tile, const int *output, int v, float (&sum)[LAC_SUMS])
{
    const int group = threadIdx.x >> 7, warp = threadIdx.x >> 5 & 3;
    const int token = token_tile * LAC_TOKENS + (LAC_SETS == 2 ? 0 : group * 64) + warp * 16;
    lac_vector_write(call, output + ((LAC_SETS == 2 ? group * LAC_VECTORS : 0) + v) * LAC_WIDTH, token, sum);
}

__device__ __forceinline__ float *lac_partial_of(const lac_pick_args &args, int token_tile, int output_tile, int part)
{
    const i64 tile = (i64)token_tile * args.output_tiles + output_tile;
    return args.partial + (tile * LAC_PARTS + part) * (LAC_VECTORS * LAC_SUMS * 256) + threadIdx.x;
}

/* ---- the kinds of threads */

/* Windows of X, for as long as the block has tiles. */
__device__ __forceinline__ void lac_produce_x(const lac_pick_args &args, const lac_tensor_map *map, const lac_shared &shared)
{
    lac_cursor<LAC_STAGES> at = {0, 1};
    for (int index = blockIdx.x; index < lac_item_count(args); index += gridDim.x) {
        const lac_item item = lac_item_of(args, index);
        for (int window = item.begin; window < item.end; window++, at.next()) {
            lac_barrier_wait(shared.x_empty(at.slot), at.parity);
            lac_barrier_expect(shared.x_full(at.slot), LAC_X_STAGE);
#pragma unroll
            for (int box = 0; box < LAC_TOKENS / 64; box++)
                lac_copy_tensor_3d(shared.stage(at.slot) + box * LAC_BOX, map, item.token_tile * LAC_TOKENS + box * 64, window * 8, 0,
                                   shared.x_full(at.slot));
        }
    }
}

/* The same for the chunks of W. */
__device__ __forceinline__ void lac_produce_w(const lac_pick_args &args, const lac_shared &shared)
{
    lac_cursor<LAC_RING> at = {0, 1};
    for (int index = blockIdx.x; index < lac_item_count(args); index += gridDim.x) {
        const lac_item item = lac_item_of(args, index);
        const u8 *from = args.weight + ((i64)item.output_tile * args.windows + item.begin) * (LAC_PAIRS * LAC_W_CHUNK);
        for (int chunk = 0; chunk < (item.end - item.begin) * LAC_PAIRS; chunk++, from += LAC_W_CHUNK, at.next()) {
            lac_barrier_wait(shared.w_empty(at.slot), at.parity);
            lac_barrier_expect(shared.w_full(at.slot), LAC_W_CHUNK);
            lac_copy_bulk(shared.chunk(at.slot), from, LAC_W_CHUNK, shared.w_full(at.slot));
        }
    }
}

/* The two warpgroups wait for each other. */
__device__ __forceinline__ void lac_computers() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

/* Starts the copy of the places of a tile's outputs, when nobody reads those of the tile before. */
__device__ __forceinline__ void lac_copy_notes(const lac_pick_args &args, int output_tile, u32 to)
{
    lac_computers();
    for (int at = threadIdx.x * 16; at < LAC_TILE_WIDTH * 4; at += 256 * 16)
        lac_copy_16<0>(to + at, (const u8 *)(args.output + (i64)output_tile * LAC_TILE_WIDTH) + at);
    lac_copy_commit();
}

/* Two warpgroups: the block's tiles, one after the other. */
__device__ __forceinline__ void lac_compute(const lac_gpu_call &call, const lac_pick_args &args, const lac_shared &shared, const u8 *memory)
{
    const lac_view view = lac_view_of(__shfl_sync(0xffffffffu, threadIdx.x >> 7, 0));
    lac_reader reader = {};
    for (int index = blockIdx.x; index < lac_item_count(args); index += gridDim.x) {
        const lac_item item = lac_item_of(args, index);
        lac_copy_notes(args, item.output_tile, shared.x + LAC_NOTES);
        lac_sums sum;
#pragma unroll
        for (int v = 0; v < LAC_VECTORS; v++)
#pragma unroll
            for (int i = 0; i < LAC_SUMS; i++) sum[v][i] = 0.0f;
        lac_consume(sum, view, item.end - item.begin, shared, reader);
        lac_copy_wait<0>();
        lac_computers();
#if LAC_PARTS > 1
        float *to = lac_partial_of(args, item.token_tile, item.output_tile, item.part);
#pragma unroll
        for (int v = 0; v < LAC_VECTORS; v++)
#pragma unroll
            for (int i = 0; i < LAC_SUMS; i++) to[(v * LAC_SUMS + i) * 256] = sum[v][i];
#else
#pragma unroll
        for (int v = 0; v < LAC_VECTORS; v++) lac_part_write(call, item.token_tile, (const int *)(memory + LAC_NOTES), v, sum[v]);
#endif
    }
}

extern "C" __global__ void __launch_bounds__(384, 1)
    lac_pick(const lac_gpu_call call, const lac_pick_args args, const __grid_constant__ lac_tensor_map map)
{
    extern __shared__ __align__(1024) u8 memory[];
    const lac_shared shared = {lac_shared_address(memory)};
    if (threadIdx.x == 0) {
        for (int i = 0; i < LAC_STAGES; i++) {
            lac_barrier_init(shared.x_full(i), 1);
            lac_barrier_init(shared.x_empty(i), 8 * LAC_ARRIVALS);
        }
        for (int i = 0; i < LAC_RING; i++) {
            lac_barrier_init(shared.w_full(i), 1);
            lac_barrier_init(shared.w_empty(i), 8 * LAC_ARRIVALS);
        }
        lac_barrier_init_fence();
    }
    __syncthreads();
    if (threadIdx.x >= 256) {
        lac_registers_fewer<40>();
        if (threadIdx.x == 256) lac_produce_x(args, &map, shared);
        if (threadIdx.x == 288) lac_produce_w(args, shared);
    } else {
        lac_registers_more<232>();
        lac_compute(call, args, shared, memory);
    }
}

#if LAC_PARTS > 1
/* Adds the parts of a tile in their order. A block a tile, threads as the warpgroups that compute above. */
extern "C" __global__ void __launch_bounds__(256) lac_pick_reduce(const lac_gpu_call call, const lac_pick_args args)
{
    const int token_tile = blockIdx.x / args.output_tiles, output_tile = blockIdx.x % args.output_tiles;
    const float *from = lac_partial_of(args, token_tile, output_tile, 0);
#pragma unroll 1
    for (int v = 0; v < LAC_VECTORS; v++) {
        float sum[LAC_SUMS];
#pragma unroll
        for (int i = 0; i < LAC_SUMS; i++) {
            sum[i] = 0.0f;
            for (int part = 0; part < LAC_PARTS; part++) sum[i] += from[((part * LAC_VECTORS + v) * LAC_SUMS + i) * 256];
        }
        lac_part_write(call, token_tile, args.output + (i64)output_tile * LAC_TILE_WIDTH, v, sum);
    }
}
#endif
