/* vector_select_stream.cuh - X for vector_select.cu: chunk after chunk into a ring of LAC_X_RING in shared memory, by warps that do nothing else, while the
 * others multiply. Two barriers a place of the ring say that a chunk is there and that it has been read.
 *
 * Token-major X has to be turned round. It comes in strips of 64 inputs, as it lies in memory, LAC_X_STRIPS of a warp on their way; ldmatrix turns
 * 8 tokens x 8 inputs, and the warp stores them as rows. A warp reads only what it copied itself, so warps do not wait for each other. */
#ifndef LAC_CUDA_KERNELS_VECTOR_SELECT_STREAM_CUH
#define LAC_CUDA_KERNELS_VECTOR_SELECT_STREAM_CUH

#include "pipeline.cuh"
#include "vector_select_input.cuh"
#include "vector_select_product.cuh"

/* ---- barriers */

__device__ __forceinline__ void wait_for_phase(u32 barrier, u32 parity)
{
#if __CUDA_ARCH__ >= 900
    lac_barrier_wait(barrier, parity);
#else
    u32 done;
    do
        asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}\n"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    while (!done);
#endif
}

__device__ __forceinline__ void arrive(u32 barrier, int lane)
{
    __syncwarp();
    if (LAC_EACH_ARRIVES || lane == 0) {
        u64 state;
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(barrier) : "memory");
    }
}

/* The barriers of the block's j-th chunk: that it is there, that it has been read. */
__device__ __forceinline__ u32 full_barrier(u32 x, int j) { return x + barriers_at + j % LAC_X_RING * 16; }
__device__ __forceinline__ u32 free_barrier(u32 x, int j) { return x + barriers_at + j % LAC_X_RING * 16 + 8; }
__device__ __forceinline__ u32 slot_of(u32 x, int j) { return x + j % LAC_X_RING * slot_bytes; }
__device__ __forceinline__ void wait_until_free(u32 x, int j)
{
    if (j >= LAC_X_RING) wait_for_phase(free_barrier(x, j), (j / LAC_X_RING - 1) & 1);
}

__device__ __forceinline__ void make_barriers(u32 x)
{
    if (threadIdx.x == 0)
        for (int i = 0; i < LAC_X_RING; ++i) {
            lac_barrier_init(full_barrier(x, i), LAC_X_WARPS * LAC_ARRIVALS);
            lac_barrier_init(free_barrier(x, i), workers * LAC_ARRIVALS);
        }
    __syncthreads();
}

/* Of a warp's first batches those behind LAC_RING_FIRST are asked for after X: it would come behind them, and the products with it. */
__device__ __forceinline__ void say_asked()
{
    if (LAC_PACKED && LAC_RING_FIRST < LAC_RING) asm volatile("bar.arrive 1, %0;" ::"n"(LAC_THREADS) : "memory");
}
__device__ __forceinline__ void wait_until_asked() { asm volatile("bar.sync 1, %0;" ::"n"(LAC_THREADS) : "memory"); }

/* ---- chunks */

#if LAC_X_TOKEN_MAJOR
/* A warp's strips: 64 inputs of all tokens, as they lie in memory, sixteen bytes at a time. Which of eight places of a token's line a sixteen has
 * depends on the token, so that the same sixteen of eight tokens is in different banks. */
struct strip_cursor {
    int chunk, strip; /* of the chunk */
};

__device__ __forceinline__ void ask_for_strip(strip_cursor &c, const lac_gpu_call &call, const lac_select_weight &w, u32 raw, int warp, int lane)
{
    if (c.chunk < w.chunks) {
        const int column = c.chunk * LAC_CHUNK_INPUTS + c.strip * strip_inputs + lane % 8 * 8;
        const bool outside = column >= w.cols;
        const u16 *from = (const u16 *)call.x + (outside ? 0 : column);
#pragma unroll
        for (int i = 0; i < 2 * token_tiles; ++i) {
            const int token = i * 4 + lane / 8;
            const bool none = outside || token >= LAC_TOKENS;
            lac_copy_16_if(raw + token * 128 + ((lane ^ token) & 7) * 16, none ? from : from + token * call.ldx, none, true);
        }
        c.strip += LAC_X_WARPS;
        if (c.strip >= chunk_strips) c.strip = warp, c.chunk += LAC_SPLIT;
    }
    lac_copy_commit();
}

/* Turned round on its way to the chunk: 8 tokens x 8 inputs at a time. */
__device__ __forceinline__ void turn_strip(u32 to, u32 raw, int strip, int lane)
{
#pragma unroll
    for (int n = 0; n < token_tiles; ++n)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            u32 f[4];
            lac_load_turned<0>(f, raw + n * 1024 + lane % 8 * 128 + ((half * 4 + lane / 8) ^ lane % 8) * 16);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int eight = strip * 8 + half * 4 + i;
                if (LAC_CHUNK_INPUTS % strip_inputs == 0 || eight < LAC_CHUNK_INPUTS / 8)
                    lac_shared_store(to + n * tile_bytes + eight * 144 + lane * 4, f[i]);
            }
        }
}

__device__ __forceinline__ void bring_x_turned(const lac_gpu_call &call, const lac_select_weight &w, u32 x, int rank, int warp, int lane)
{
    const u32 raw = x + strips_at + warp * (LAC_X_STRIPS * strip_bytes);
    strip_cursor next = {warp < chunk_strips ? rank : w.chunks, warp};
#pragma unroll 1
    for (int i = 0; i < LAC_X_STRIPS; ++i) ask_for_strip(next, call, w, raw + i * strip_bytes, warp, lane);
    say_asked();
    int slot = 0, j = 0;
    for (int chunk = rank; chunk < w.chunks; chunk += LAC_SPLIT, ++j) {
        wait_until_free(x, j);
#pragma unroll 1
        for (int strip = warp; strip < chunk_strips; strip += LAC_X_WARPS) {
            lac_copy_wait<LAC_X_STRIPS - 1>();
            __syncwarp();
            turn_strip(slot_of(x, j), raw + slot * strip_bytes, strip, lane);
            __syncwarp();
            ask_for_strip(next, call, w, raw + slot * strip_bytes, warp, lane);
            slot = slot + 1 < LAC_X_STRIPS ? slot + 1 : 0;
        }
        arrive(full_barrier(x, j), lane);
    }
}
#else
/* Rows of X lie as the chunk wants them. */
__device__ __forceinline__ void bring_x_rows(const lac_gpu_call &call, const lac_select_weight &w, u32 x, int rank, int warp, int lane)
{
    say_asked();
    constexpr int ahead = LAC_X_RING - 1 < 2 ? LAC_X_RING - 1 : 2; /* chunks on their way beside the one that is waited for */
    int j = 0;
    for (int chunk = rank; chunk < w.chunks; chunk += LAC_SPLIT, ++j) {
        wait_until_free(x, j);
        const int first = chunk * LAC_CHUNK_INPUTS;
        for (int i = warp * 32 + lane; i < LAC_CHUNK_INPUTS * token_tiles; i += LAC_X_WARPS * 32) {
            const int tile = i % token_tiles, input = i / token_tiles;
            const bool none = first + input >= w.cols;
            lac_copy_16_if(row_address(slot_of(x, j), tile, input),
                           (const u16 *)call.x + (i64)(none ? 0 : first + input) * call.ldx + tile * 8, none, true);
        }
        lac_copy_commit();
        lac_copy_wait<ahead>();
        if (j >= ahead) arrive(full_barrier(x, j - ahead), lane);
    }
    lac_copy_wait<0>();
    for (int i = j < ahead ? 0 : j - ahead; i < j; ++i) arrive(full_barrier(x, i), lane);
}
#endif

/* Any X, element by element. */
__device__ __forceinline__ void bring_x_slowly(const lac_gpu_call &call, const lac_select_weight &w, u32 x, int rank, int warp, int lane)
{
    say_asked();
    int j = 0;
    for (int chunk = rank; chunk < w.chunks; chunk += LAC_SPLIT, ++j) {
        wait_until_free(x, j);
        for (int i = warp * 32 + lane; i < LAC_CHUNK_INPUTS * token_tiles; i += LAC_X_WARPS * 32) {
            const int tile = i / LAC_CHUNK_INPUTS, input = i % LAC_CHUNK_INPUTS;
            u32 e[8];
#pragma unroll
            for (int token = 0; token < 8; ++token) e[token] = x_at(call, w, tile * 8 + token, chunk * LAC_CHUNK_INPUTS + input);
            lac_shared_store_16(row_address(slot_of(x, j), tile, input),
                                make_uint4(e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16));
        }
        arrive(full_barrier(x, j), lane);
    }
}

/* All chunks of the block, one after the other, `warp` of those that do this. */
__device__ __forceinline__ void bring_x(const lac_gpu_call &call, const lac_select_weight &w, u32 x, int rank, int warp, int lane)
{
    const bool plain = !LAC_HAS_COL_PERM && ((u64)call.x & 15) == 0 && call.ldx % 8 == 0;
    wait_for_x();
#if LAC_X_TOKEN_MAJOR
    if (plain && w.cols % 8 == 0)
        bring_x_turned(call, w, x, rank, warp, lane);
#else
    if (plain && LAC_TOKENS % 8 == 0)
        bring_x_rows(call, w, x, rank, warp, lane);
#endif
    else
        bring_x_slowly(call, w, x, rank, warp, lane);
}

/* ---- a warp's batches */

/* Of the batches of a unit in the block's chunks, one behind the other, a warp has every LAC_K_WARPS-th. */
struct batch_cursor {
    int chunk, batch; /* of the chunk                    */
    int count;        /* batches of the chunk            */
    i64 first;        /* the chunk's first, of all       */
};

__device__ __forceinline__ void open_chunk(batch_cursor &c, const lac_select_weight &w, i64 unit)
{
#if LAC_CHUNK_BATCHES
    c.count = LAC_CHUNK_BATCHES;
    c.first = (unit * w.chunks + c.chunk) * LAC_CHUNK_BATCHES;
#else
    const u32 *begin = w.begin + unit * w.chunks + c.chunk;
    c.first = begin[0], c.count = (int)(begin[1] - begin[0]);
#endif
}

/* Behind the last one its chunk is w.chunks or more. */
__device__ __forceinline__ void settle(batch_cursor &c, const lac_select_weight &w, i64 unit)
{
    while (c.chunk < w.chunks && c.batch >= c.count) {
        c.batch -= c.count;
        c.chunk += LAC_SPLIT;
        if (c.chunk < w.chunks) open_chunk(c, w, unit);
    }
}

__device__ __forceinline__ void go_on(batch_cursor &c, const lac_select_weight &w, i64 unit)
{
    c.batch += LAC_K_WARPS;
    settle(c, w, unit);
}

#if LAC_PACKED
/* Asks for the next batch, if there is one. In any case a group of copies is closed, so that groups can be counted. */
__device__ __forceinline__ void ask_for_batch(batch_cursor &c, const lac_select_weight &w, i64 unit, u32 slot, int lane)
{
    if (c.chunk < w.chunks) {
        copy_batch(slot, w.batches + (c.first + c.batch) * batch_bytes + lane * 16, lane);
        go_on(c, w, unit);
    }
    lac_copy_commit();
}
#endif

__device__ __forceinline__ void multiply_streamed(float (&sums)[row_tiles][token_tiles][4], const lac_select_weight &w, u32 x, i64 unit, int warp, int lane)
{
    const int k_warp = warp % LAC_K_WARPS, rank = split_rank();
    const bool idle = unit * LAC_UNIT_ROWS >= w.rows;
    batch_cursor next = {idle ? w.chunks : rank, k_warp, 0, 0};
    if (next.chunk < w.chunks) open_chunk(next, w, unit);
    settle(next, w, unit);
    batch_cursor now = next;
    /* The first weights are on their way while x is brought, and before what is to make x has ended. */
#if LAC_PACKED
    const u32 ring = x + ring_at + warp * (LAC_RING * batch_bytes) + lane * 16;
    int slot = 0;
    batch_data d;
#pragma unroll 1
    for (int i = 0; i < LAC_RING; ++i) {
        if (i == LAC_RING_FIRST) wait_until_asked();
        ask_for_batch(next, w, unit, ring + i * batch_bytes, lane);
    }
#else
    batch_data even, odd;
    bool is_odd = false;
    if (next.chunk < w.chunks) load_batch(even, w, next.first + next.batch, lane), go_on(next, w, unit);
    if (next.chunk < w.chunks) load_batch(odd, w, next.first + next.batch, lane), go_on(next, w, unit);
#endif
    int j = 0;
#pragma unroll 1
    for (int chunk = rank; chunk < w.chunks; chunk += LAC_SPLIT, ++j) {
        wait_for_phase(full_barrier(x, j), j / LAC_X_RING & 1);
        const u32 here = slot_of(x, j);
#if LAC_PACKED
#pragma unroll 1
        for (; now.chunk == chunk; go_on(now, w, unit)) {
            lac_copy_wait<LAC_RING - 1>();
            read_batch(d, ring + slot * batch_bytes, lane);
            ask_for_batch(next, w, unit, ring + slot * batch_bytes, lane);
            slot = slot + 1 < LAC_RING ? slot + 1 : 0;
            multiply_batch(sums, d, here, now.batch * LAC_BATCH, lane);
        }
        if (w.more && !idle) {
            const u32 *begin = w.more_begin + unit * w.chunks + chunk;
            for (u32 i = begin[0] + k_warp; i < begin[1]; i += LAC_K_WARPS) {
                load_batch(d, w, w.batch_count + i, lane);
                multiply_batch(sums, d, here, (int)w.more[i] * LAC_BATCH, lane);
            }
        }
#else
#pragma unroll 1
        for (; now.chunk == chunk; go_on(now, w, unit), is_odd = !is_odd) {
            if (is_odd) {
                multiply_batch(sums, odd, here, now.batch * LAC_BATCH, lane);
                if (next.chunk < w.chunks) load_batch(odd, w, next.first + next.batch, lane), go_on(next, w, unit);
            } else {
                multiply_batch(sums, even, here, now.batch * LAC_BATCH, lane);
                if (next.chunk < w.chunks) load_batch(even, w, next.first + next.batch, lane), go_on(next, w, unit);
            }
        }
#endif
        arrive(free_barrier(x, j), lane);
    }
}

#endif
