/* vector_select.cu - few tokens in 16 bits where rows share their inputs, keep two of four, or at most 8 of 32 of their own: the weight is
 * streamed once, as fragments or packed. Requested by cuda/vector_select.c.
 *
 * Preconditions: W and X have the same 16-bit dtype; sm_80 or later; weights cut by cuda/vector_select_tile.c.
 *
 * A unit of LAC_UNIT_ROWS rows, all of one row group, is a warp's. Its weights lie in memory as the lanes' fragments, in steps of 32
 * inputs; a batch of LAC_BATCH steps is loaded straight into registers, and two batches take turns, so that a warp always has one
 * or two on their way. An input of X is a row of 16 bytes in shared memory for every 8 tokens, wherever a step wants it: lane i
 * of ldmatrix.trans gives the address of the i-th input of a step, and what comes back are the fragments of X. So selecting
 * costs nothing, and no weight is ever decoded.
 *
 *     x chunk   [token tile of 8][LAC_CHUNK_INPUTS in eights, each of 8 rows of 16 bytes and 16 bytes of padding]
 *     ring      packed: [warp][LAC_RING] batches
 *     sums      [warp][token][LAC_UNIT_ROWS + 4], in the place of both
 *     batch     values [loads][lane][16 B], codes [words][lane] (packed: of two rows a word), places of the kept [words][lane], inputs
 *               [words][lane] (two steps a word; packed: four)
 *
 * Where each row keeps inputs of its own (LAC_PACKED), a step is two fours of each of four neighbouring 32 inputs: lane 4g + t has, of rows g, g+8,
 * g+16 and g+24, the weights of the t-th 32 inputs in four steps, packed, and spreads them in registers (vector_pack.cuh). The inputs of a step
 * are the same for the unit's 32 rows; weights that do not fit two of a four come in a batch of their own behind the others (w.more). Spreading
 * takes registers, so batches wait in shared memory: a warp has a ring of LAC_RING there. Each lane copies what it alone will read, so nobody
 * waits for anybody, and as soon as a batch is in registers, the next one is asked for in its place, that of the next chunk too.
 *
 * The padding lets token-major X, which each thread turns round in registers (8 tokens x 4 inputs), be stored without bank conflicts.
 *
 * Constants beside those of every kernel:
 * LAC_TOKENS         m
 * LAC_UNIT_ROWS      16 or 32
 * LAC_SPARSE         1: two of every four selected inputs stay in a row, by mma.sp
 * LAC_PACKED         kept weights of a row in 32 inputs, as many as there is room for, even; 0: rows share their inputs or keep two of four
 * LAC_ALL_INPUTS     1: a step is 32 inputs as they follow each other, there is no list of them
 * LAC_BATCH          steps of a batch
 * LAC_ROW_WARPS, LAC_K_WARPS, LAC_SPLIT as in vector.cuh: units side by side, warps and blocks of the same unit
 * LAC_CHUNK_INPUTS   inputs of X in shared memory at a time, a multiple of 32
 * LAC_CHUNK_BATCHES  batches of a unit in a chunk; 0: each has its own number, see begin
 * LAC_STAGE          eights of loads of X that a thread has on their way
 * LAC_RING           packed: batches of a warp in shared memory
 * LAC_EARLY          1: the kernel may start before the one before it on the stream has ended
 * LAC_HAS_COL_PERM
 *
 * Bottleneck: device memory; with many tokens shared memory, which gives 16 bytes of every selected input to a unit for 8 tokens. */
#include "async_copy.cuh"
#include "cluster.cuh"
#include "epilogue.cuh"
#include "matrix_load.cuh"
#include "mma.cuh"
#include "shared_access.cuh"
#include "stream_load.cuh"
#include "vector_pack.cuh"
#include "vector_select_arguments.h"

#define LAC_THREADS (LAC_ROW_WARPS * LAC_K_WARPS * 32)

constexpr int token_tiles = (LAC_TOKENS + 7) / 8, row_tiles = LAC_UNIT_ROWS / 16;
constexpr int tile_bytes = LAC_CHUNK_INPUTS / 8 * 144; /* of 8 tokens of a chunk */
constexpr int value_words = LAC_PACKED ? LAC_BATCH * LAC_PACKED / 2 : LAC_BATCH * row_tiles * (LAC_SPARSE ? 4 : 8);
constexpr int code_words = LAC_PACKED ? LAC_BATCH / 2 : 0;
constexpr int place_words = LAC_SPARSE ? LAC_BATCH * ((row_tiles + 1) / 2) : 0;
constexpr int tiles_at_once = token_tiles < 4 ? token_tiles : 4; /* whose fragments of X a lane has */
constexpr int input_words = LAC_ALL_INPUTS ? 0 : LAC_PACKED ? LAC_BATCH / 4 : (LAC_BATCH + 1) / 2;
constexpr int batch_bytes = (value_words + code_words + place_words + input_words) * 128;
constexpr int ring_at = (token_tiles * tile_bytes + 127) / 128 * 128; /* in shared memory */
constexpr int sum_stride = LAC_UNIT_ROWS + 4; /* lanes of a fragment of sums are then in different banks */

/* What a batch brings to a lane. */
struct batch_data {
    u32 values[value_words];
    u32 codes[code_words > 0 ? code_words : 1];
    u32 places[place_words > 0 ? place_words : 1];
    u32 inputs[input_words > 0 ? input_words : 1];
};

/* `words` words a lane: [sixteens][lane][16 B], then what is left by eights and fours. */
template <int words, int size> __device__ __forceinline__ void load_words(u32 (&to)[size], const u8 *from, int lane)
{
#pragma unroll
    for (int i = 0; i < words / 4; ++i) {
        const uint4 v = lac_stream_16(from + i * 512 + lane * 16);
        to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
    }
    if (words % 4 >= 2) {
        const uint2 v = lac_stream_8(from + words / 4 * 512 + lane * 8);
        to[words / 4 * 4] = v.x, to[words / 4 * 4 + 1] = v.y;
    }
    if (words % 2) to[words - 1] = lac_stream_4(from + words / 2 * 256 + lane * 4);
}

__device__ __forceinline__ void load_batch(batch_data &d, const lac_select_weight &w, i64 batch, int lane)
{
    const u8 *at = w.batches + batch * batch_bytes;
    load_words<value_words>(d.values, at, lane);
    if (code_words) load_words<code_words>(d.codes, at + value_words * 128, lane);
    if (place_words) load_words<place_words>(d.places, at + (value_words + code_words) * 128, lane);
    if (input_words) load_words<input_words>(d.inputs, at + (value_words + code_words + place_words) * 128, lane);
}

#if LAC_PACKED
/* ---- the ring */

constexpr int codes_at = value_words * 128, places_at = codes_at + code_words * 128, inputs_at = places_at + place_words * 128;

/* A lane's words of a batch, `words` of them from byte `offset` on, in the order of load_words. The addresses are those of the lane's first
 * sixteen bytes. */
template <int words, int offset> __device__ __forceinline__ void copy_words(u32 to, const u8 *from, int lane)
{
#pragma unroll
    for (int i = 0; i < words / 4; ++i) lac_stream_copy_16(to + offset + i * 512, from + offset + i * 512);
    if (words % 4 >= 2) lac_stream_copy_8(to - lane * 8 + offset + words / 4 * 512, from - lane * 8 + offset + words / 4 * 512);
    if (words % 2) lac_stream_copy_4(to - lane * 12 + offset + words / 2 * 256, from - lane * 12 + offset + words / 2 * 256);
}

template <int words, int offset, int size> __device__ __forceinline__ void read_words(u32 (&to)[size], u32 from, int lane)
{
#pragma unroll
    for (int i = 0; i < words / 4; ++i) {
        const uint4 v = lac_shared_load_16(from + offset + i * 512);
        to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
    }
    if (words % 4 >= 2) {
        const uint2 v = lac_shared_load_8(from - lane * 8 + offset + words / 4 * 512);
        to[words / 4 * 4] = v.x, to[words / 4 * 4 + 1] = v.y;
    }
    if (words % 2) to[words - 1] = lac_shared_load(from - lane * 12 + offset + words / 2 * 256);
}

/* A lane's part of a batch: on its way to shared memory; from there to registers. */
__device__ __forceinline__ void copy_batch(u32 to, const u8 *from, int lane)
{
    copy_words<value_words, 0>(to, from, lane);
    copy_words<code_words, codes_at>(to, from, lane);
    copy_words<place_words, places_at>(to, from, lane);
    copy_words<input_words, inputs_at>(to, from, lane);
}

__device__ __forceinline__ void read_batch(batch_data &d, u32 from, int lane)
{
    read_words<value_words, 0>(d.values, from, lane);
    read_words<code_words, codes_at>(d.codes, from, lane);
    read_words<place_words, places_at>(d.places, from, lane);
    read_words<input_words, inputs_at>(d.inputs, from, lane);
}

/* What a warp asks for next: its batches of a chunk, then those of its block's next chunk. */
struct batch_cursor {
    const u8 *at;    /* the lane's first sixteen bytes of it                        */
    int chunk, left; /* batches of the chunk from there on, those of other warps too */
};

__device__ __forceinline__ void open_chunk(batch_cursor &c, const lac_select_weight &w, i64 unit, int k_warp, int lane)
{
    c.at = w.batches + ((unit * w.chunks + c.chunk) * LAC_CHUNK_BATCHES + k_warp) * batch_bytes + lane * 16;
    c.left = LAC_CHUNK_BATCHES - k_warp;
}

/* Asks for the next batch, if there is one. In any case a group of copies is closed, so that groups can be counted. */
__device__ __forceinline__ void ask_for_batch(batch_cursor &c, const lac_select_weight &w, i64 unit, u32 slot, int k_warp, int lane)
{
    while (c.left <= 0 && c.chunk < w.chunks) {
        c.chunk += LAC_SPLIT;
        if (c.chunk < w.chunks) open_chunk(c, w, unit, k_warp, lane);
    }
    if (c.chunk < w.chunks) copy_batch(slot, c.at, lane);
    lac_copy_commit();
    c.at += LAC_K_WARPS * batch_bytes, c.left -= LAC_K_WARPS;
}
#endif

/* ---- products */

/* Rows of tile `r` times the inputs of a step (of its `half`, when dense). */
__device__ __forceinline__ void multiply_tile(float (&sums)[4], const batch_data &d, int s, int r, int half, const u32 (&b)[4])
{
#if LAC_SPARSE
    const u32 *a = d.values + (s * row_tiles + r) * 4, places = d.places[s * ((row_tiles + 1) / 2) + r / 2];
    if (r % 2)
        lac_mma_sparse_16x8x32<LAC_W_DTYPE, 1>(sums, a[0], a[1], a[2], a[3], b, places);
    else
        lac_mma_sparse_16x8x32<LAC_W_DTYPE, 0>(sums, a[0], a[1], a[2], a[3], b, places);
#else
    const u32 *a = d.values + ((s * row_tiles + r) * 2 + half) * 4;
    lac_mma_16x8x16<LAC_W_DTYPE>(sums, a[0], a[1], a[2], a[3], b[2 * half], b[2 * half + 1]);
#endif
}

#if LAC_PACKED
/* `step`: the number of the batch's first step within the chunk; a multiple of four. */
__device__ __forceinline__ void multiply_batch(float (&sums)[row_tiles][token_tiles][4], const batch_data &d, u32 x, int step, int lane)
{
#pragma unroll
    for (int s = 0; s < LAC_BATCH; s += 4) {
        u32 a[4][8];
#pragma unroll
        for (int r = 0; r < 4; ++r)
            lac_spread<LAC_PACKED / 2>(a[r], d.values + (s + r) * (LAC_PACKED / 2), d.codes[s / 2 + r / 2] >> r % 2 * 16);
        const u32 inputs = x + (step + s + lane / 4 % 4) * (4 * 144);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const u32 at = inputs + (d.inputs[s / 4] >> 8 * i & 0xffu) * 16;
#pragma unroll
            for (int n = 0; n < token_tiles; ++n) {
                u32 b[4];
                lac_load_turned<0>(b, at + n * tile_bytes);
                lac_mma_sparse_16x8x32<LAC_W_DTYPE, 0>(sums[0][n], a[0][2 * i], a[1][2 * i], a[0][2 * i + 1], a[1][2 * i + 1], b, d.places[s + i]);
                lac_mma_sparse_16x8x32<LAC_W_DTYPE, 1>(sums[1][n], a[2][2 * i], a[3][2 * i], a[2][2 * i + 1], a[3][2 * i + 1], b, d.places[s + i]);
            }
        }
    }
}
#else
/* `step`: the number of the batch's first step within the chunk. */
__device__ __forceinline__ void multiply_batch(float (&sums)[row_tiles][token_tiles][4], const batch_data &d, u32 x, int step, int lane)
{
#pragma unroll
    for (int s = 0; s < LAC_BATCH; ++s) {
        u32 at;
        if (LAC_ALL_INPUTS)
            at = x + (step + s) * (4 * 144) + (lane + lane / 8) * 16;
        else
            at = x + (s % 2 ? d.inputs[s / 2] >> 16 : d.inputs[s / 2] & 0xffffu) * 16;
#pragma unroll
        for (int first = 0; first < token_tiles; first += tiles_at_once) {
            u32 b[tiles_at_once][4];
#pragma unroll
            for (int n = 0; n < tiles_at_once; ++n)
                if (first + n < token_tiles) lac_load_turned<0>(b[n], at + (first + n) * tile_bytes);
            /* Products that add to the same sums are far apart. */
#pragma unroll
            for (int half = 0; half < (LAC_SPARSE ? 1 : 2); ++half)
#pragma unroll
                for (int n = 0; n < tiles_at_once; ++n)
#pragma unroll
                    for (int r = 0; r < row_tiles; ++r)
                        if (first + n < token_tiles) multiply_tile(sums[r][first + n], d, s, r, half, b[n]);
        }
    }
}

#endif

/* ---- X into shared memory */

/* X[token][stored column `column`]; zero past the last of either. */
__device__ __forceinline__ u32 x_at(const lac_gpu_call &call, const lac_select_weight &w, int token, int column)
{
    if (column >= w.cols || token >= LAC_TOKENS) return 0;
#if LAC_HAS_COL_PERM
    const i64 input = w.col_perm[column];
#else
    const i64 input = column;
#endif
#if LAC_X_TOKEN_MAJOR
    return ((const u16 *)call.x)[(i64)token * call.ldx + input];
#else
    return ((const u16 *)call.x)[input * call.ldx + token];
#endif
}

__device__ __forceinline__ u32 row_address(u32 x, int tile, int input) { return x + tile * tile_bytes + (input + input / 8) * 16; }

/* Eight tokens x four inputs, token by token in `t`, turned round. */
__device__ __forceinline__ void store_turned(u32 to, const uint2 (&t)[8])
{
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        u32 row[4];
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
            const uint2 &one = t[2 * pair], &two = t[2 * pair + 1];
            row[pair] = __byte_perm(i < 2 ? one.x : one.y, i < 2 ? two.x : two.y, i % 2 ? 0x7632 : 0x5410);
        }
        lac_shared_store_16(to + i * 16, make_uint4(row[0], row[1], row[2], row[3]));
    }
}

/* Volatile, so that all of a thread's loads are on their way before the first one is waited for. */
__device__ __forceinline__ uint2 lac_load_8(const void *from)
{
    uint2 v;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
    return v;
}

/* The columns of the chunk that begins at `first`, all tokens. */
__device__ __forceinline__ void stage_x(const lac_gpu_call &call, const lac_select_weight &w, u32 x, int first)
{
    const bool plain = !LAC_HAS_COL_PERM && ((u64)call.x & 15) == 0 && call.ldx % 8 == 0;
#if LAC_X_TOKEN_MAJOR
    if (plain && w.cols % 4 == 0) {
        constexpr int fours = LAC_CHUNK_INPUTS / 4, tasks = fours * token_tiles;
        for (int i = threadIdx.x; i < tasks; i += LAC_THREADS * LAC_STAGE) {
            uint2 t[LAC_STAGE][8];
#pragma unroll
            for (int u = 0; u < LAC_STAGE; ++u) {
                const int task = i + u * LAC_THREADS, tile = task / fours, column = first + task % fours * 4;
                const u16 *from = (const u16 *)call.x + (i64)(tile * 8) * call.ldx + column;
#pragma unroll
                for (int token = 0; token < 8; ++token) {
                    t[u][token] = make_uint2(0, 0);
                    if (column < w.cols && tile * 8 + token < LAC_TOKENS) t[u][token] = lac_load_8(from + token * call.ldx);
                }
            }
#pragma unroll
            for (int u = 0; u < LAC_STAGE; ++u) {
                const int task = i + u * LAC_THREADS;
                if (task < tasks) store_turned(row_address(x, task / fours, task % fours * 4), t[u]);
            }
        }
        return;
    }
#else
    if (plain && LAC_TOKENS % 8 == 0) {
        for (int i = threadIdx.x; i < LAC_CHUNK_INPUTS * token_tiles; i += LAC_THREADS) {
            const int tile = i % token_tiles, input = i / token_tiles;
            const u32 to = row_address(x, tile, input);
            if (first + input < w.cols)
                lac_copy_16<0>(to, (const u16 *)call.x + (i64)(first + input) * call.ldx + tile * 8);
            else
                lac_shared_store_16(to, make_uint4(0, 0, 0, 0));
        }
        lac_copy_commit();
        lac_copy_wait<0>();
        return;
    }
#endif
    for (int i = threadIdx.x; i < LAC_CHUNK_INPUTS * token_tiles; i += LAC_THREADS) {
        const int tile = i / LAC_CHUNK_INPUTS, input = i % LAC_CHUNK_INPUTS;
        u32 e[8];
#pragma unroll
        for (int token = 0; token < 8; ++token) e[token] = x_at(call, w, tile * 8 + token, first + input);
        lac_shared_store_16(row_address(x, tile, input),
                            make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16));
    }
}

/* ---- sums */

__device__ __forceinline__ int split_rank()
{
#if LAC_SPLIT > 1
    return (int)lac_cluster_rank();
#else
    return 0;
#endif
}

__device__ __forceinline__ void meet()
{
#if LAC_SPLIT > 1
    lac_cluster_sync();
#else
    __syncthreads();
#endif
}

/* Four sums that block `rank` of the cluster has at `at`. */
__device__ __forceinline__ float4 sums_of(const float *at, int rank)
{
#if LAC_SPLIT > 1
    return lac_cluster_read(lac_shared_address(at), rank);
#else
    return *(const float4 *)at;
#endif
}

/* partial[warp][token][row] of every block of the cluster -> Y: first the warps, then the blocks, in the order of k. */
__device__ __forceinline__ void reduce_and_store(const lac_gpu_call &call, const lac_select_weight &w, const float *partial)
{
    constexpr int fours = LAC_ROW_WARPS * LAC_UNIT_ROWS / 4; /* of rows */
    /* The blocks of a cluster share the outputs between them. */
    for (int i = threadIdx.x + split_rank() * LAC_THREADS; i < fours * LAC_TOKENS; i += LAC_THREADS * LAC_SPLIT) {
#if LAC_Y_TOKEN_MAJOR
        const int token = i / fours, four = i % fours;
#else
        const int token = i % LAC_TOKENS, four = i / LAC_TOKENS;
#endif
        constexpr int unit_fours = LAC_UNIT_ROWS / 4;
        const float *at = partial + (four / unit_fours * LAC_K_WARPS * LAC_TOKENS + token) * sum_stride + four % unit_fours * 4;
        float sum[4] = {};
#pragma unroll
        for (int r = 0; r < LAC_SPLIT; ++r)
#pragma unroll
            for (int j = 0; j < LAC_K_WARPS; ++j) {
                const float4 v = sums_of(at + j * (LAC_TOKENS * sum_stride), r);
                sum[0] += v.x, sum[1] += v.y, sum[2] += v.z, sum[3] += v.w;
            }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int row = ((int)(blockIdx.x / LAC_SPLIT) * fours + four) * 4 + e;
            if (row >= w.rows) break;
#if LAC_HAS_ROW_PERM
            const int output = (int)w.row_perm[row];
#else
            const int output = row;
#endif
            lac_store(call, token, output, lac_finish(call, token, output, sum[e], lac_bias(call, output)));
        }
    }
}

/* Returns when the kernel before this one on the stream has ended: until then X may not be read, nor Y be written. */
__device__ __forceinline__ void wait_for_x()
{
#if LAC_EARLY && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

extern "C" __global__ void __launch_bounds__(LAC_THREADS, 1)
    lac_vector_select(const __grid_constant__ lac_gpu_call call, const __grid_constant__ lac_select_weight w)
{
    extern __shared__ __align__(1024) u8 memory[];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, k_warp = warp % LAC_K_WARPS;
    const u32 x = lac_shared_address(memory);
    const i64 unit = (i64)(blockIdx.x / LAC_SPLIT) * LAC_ROW_WARPS + warp / LAC_K_WARPS;
    const bool idle = unit * LAC_UNIT_ROWS >= w.rows;
    float sums[row_tiles][token_tiles][4] = {};
#if LAC_EARLY && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;"); /* the next kernel, if it waits as this one does, may come while this one ends */
#endif

    /* The first weights are on their way while x is brought, and before what is to make x has ended. */
#if LAC_PACKED
    const u32 ring = x + ring_at + warp * (LAC_RING * batch_bytes) + lane * 16;
    int slot = 0;
    batch_cursor next = {w.batches, idle ? w.chunks : split_rank(), 0};
    if (next.chunk < w.chunks) open_chunk(next, w, unit, k_warp, lane);
#pragma unroll 1
    for (int i = 0; i < LAC_RING; ++i) ask_for_batch(next, w, unit, ring + i * batch_bytes, k_warp, lane);
#endif
    for (int chunk = split_rank(); chunk < w.chunks; chunk += LAC_SPLIT) {
#if LAC_PACKED
        const int count = idle ? 0 : LAC_CHUNK_BATCHES;
#else
        i64 first = (unit * w.chunks + chunk) * LAC_CHUNK_BATCHES;
        int count = idle ? 0 : LAC_CHUNK_BATCHES;
#if !LAC_CHUNK_BATCHES
        if (!idle) first = w.begin[unit * w.chunks + chunk], count = (int)(w.begin[unit * w.chunks + chunk + 1] - first);
#endif
        batch_data even, odd;
        if (k_warp < count) load_batch(even, w, first + k_warp, lane);
        if (k_warp + LAC_K_WARPS < count) load_batch(odd, w, first + k_warp + LAC_K_WARPS, lane);
#endif
        if (chunk >= LAC_SPLIT)
            __syncthreads();
        else
            wait_for_x();
        stage_x(call, w, x, chunk * LAC_CHUNK_INPUTS);
        __syncthreads();
#if LAC_PACKED
        batch_data d;
#pragma unroll 1
        for (int batch = k_warp; batch < count; batch += LAC_K_WARPS) {
            lac_copy_wait<LAC_RING - 1>();
            read_batch(d, ring + slot * batch_bytes, lane);
            ask_for_batch(next, w, unit, ring + slot * batch_bytes, k_warp, lane);
            slot = slot + 1 < LAC_RING ? slot + 1 : 0;
            multiply_batch(sums, d, x, batch * LAC_BATCH, lane);
        }
        if (w.more && !idle) {
            const u32 *begin = w.more_begin + unit * w.chunks + chunk;
            for (u32 i = begin[0] + k_warp; i < begin[1]; i += LAC_K_WARPS) {
                load_batch(d, w, w.batch_count + i, lane);
                multiply_batch(sums, d, x, (int)w.more[i] * LAC_BATCH, lane);
            }
        }
#else
        for (int batch = k_warp; batch < count; batch += 2 * LAC_K_WARPS) {
            multiply_batch(sums, even, x, batch * LAC_BATCH, lane);
            if (batch + 2 * LAC_K_WARPS < count) load_batch(even, w, first + batch + 2 * LAC_K_WARPS, lane);
            if (batch + LAC_K_WARPS >= count) break;
            multiply_batch(sums, odd, x, (batch + LAC_K_WARPS) * LAC_BATCH, lane);
            if (batch + 3 * LAC_K_WARPS < count) load_batch(odd, w, first + batch + 3 * LAC_K_WARPS, lane);
        }
#endif
    }

    if (w.chunks <= split_rank()) wait_for_x();
    __syncthreads();
    float *partial = (float *)memory;
#pragma unroll
    for (int r = 0; r < row_tiles; ++r)
#pragma unroll
        for (int n = 0; n < token_tiles; ++n)
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int row = r * 16 + c / 2 * 8 + lane / 4, token = n * 8 + lane % 4 * 2 + c % 2;
                if (token < LAC_TOKENS) partial[(warp * LAC_TOKENS + token) * sum_stride + row] = sums[r][n][c];
            }
    meet();
    reduce_and_store(call, w, partial);
    if (LAC_SPLIT > 1) meet(); /* no block leaves while another reads its sums */
}
