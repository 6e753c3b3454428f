/* vector_select_resident.cuh - vector_select.cu where X comes before the products: all warps of a block bring a chunk as large as shared memory
 * holds, the block's whole share if it fits, then all multiply. For small weights and few tokens, which are over before a stream of X is under way. */
#ifndef LAC_CUDA_KERNELS_VECTOR_SELECT_RESIDENT_CUH
#define LAC_CUDA_KERNELS_VECTOR_SELECT_RESIDENT_CUH

#include "vector_select_input.cuh"
#include "vector_select_product.cuh"

constexpr int loads_at_once = 4; /* eights of loads of X that a thread has on their way */

#if LAC_PACKED
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

/* ---- X into shared memory */

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
        for (int i = threadIdx.x; i < tasks; i += LAC_THREADS * loads_at_once) {
            uint2 t[loads_at_once][8];
#pragma unroll
            for (int u = 0; u < loads_at_once; ++u) {
                const int task = i + u * LAC_THREADS, tile = task / fours, column = first + task % fours * 4;
                const u16 *from = (const u16 *)call.x + (i64)(tile * 8) * call.ldx + column;
#pragma unroll
                for (int token = 0; token < 8; ++token) {
                    t[u][token] = make_uint2(0, 0);
                    if (column < w.cols && tile * 8 + token < LAC_TOKENS) t[u][token] = lac_load_8(from + token * call.ldx);
                }
            }
#pragma unroll
            for (int u = 0; u < loads_at_once; ++u) {
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

/* ---- products */

/* The warp's part of the block's products. */
__device__ __forceinline__ void multiply_resident(float (&sums)[row_tiles][token_tiles][4], const lac_gpu_call &call, const lac_select_weight &w, u32 x,
                                                  i64 unit, int warp, int lane)
{
    const int k_warp = warp % LAC_K_WARPS;
    const bool idle = unit * LAC_UNIT_ROWS >= w.rows;
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
}

#endif
