/* chunk.cuh - 16 bytes of neighbours in a matrix whose rows may begin anywhere and end too soon. Used by turn.cu and reorder.cu. */
#ifndef LAC_CUDA_KERNELS_CHUNK_CUH
#define LAC_CUDA_KERNELS_CHUNK_CUH

#include "numbers.cuh"

/* Whether rows of `ld` elements from `data` on are aligned to 16 bytes. */
template <class element> __device__ __forceinline__ bool lac_is_aligned(const element *data, i64 ld)
{
    return ((u64)data | (u64)ld * sizeof(element)) % 16 == 0;
}

/* The first `count` neighbours (below 0: none) in the low elements, zeros beyond. */
template <class element> __device__ __forceinline__ uint4 lac_read_chunk(const element *from, int count, bool aligned)
{
    enum { MOST = 16 / sizeof(element), A_WORD = 4 / sizeof(element) };
    if (aligned && count >= MOST) return *(const uint4 *)from;
    u32 word[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (i < count) word[i / A_WORD] |= (u32)from[i] << 16 * (i % A_WORD);
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* Of the chunk's elements the first `count`; whatever is behind them stays. */
template <class element> __device__ __forceinline__ void lac_write_chunk(element *to, uint4 chunk, int count, bool aligned)
{
    enum { MOST = 16 / sizeof(element), A_WORD = 4 / sizeof(element) };
    if (aligned && count >= MOST) {
        *(uint4 *)to = chunk;
        return;
    }
    const u32 word[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
#pragma unroll
    for (int i = 0; i < MOST; i++)
        if (i < count) to[i] = (element)(word[i / A_WORD] >> 16 * (i % A_WORD));
}

#endif
