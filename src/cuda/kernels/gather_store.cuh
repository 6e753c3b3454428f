/* gather_store.cuh - a tile's way to Y by the tensor copy engine: each warpgroup puts 64 outputs x 64 tokens at a time into
 * shared memory and goes on while the engine stores them. sm_90a. Included by tile_product.cuh where LAC_STORES_Y is set;
 * choose.cu takes its stores of matrices alone.
 *
 * Preconditions: Y is of 16-bit elements, it and its rows are aligned to 16 bytes, and 64 outputs of a tile are neighbours in Y
 * unless they lie beyond its last one. What lies outside Y is not stored, but for the rest of 16 bytes in which a row ends: rows have a
 * multiple of 8 elements, or another way out (lac_cuda_boxes_suit_stores).
 *
 *   staging, for each warpgroup: LAC_STAGING_PIECES (1 to 3) parts of [64 outputs or tokens][128 bytes], 128-byte swizzle: chunk c of row r at
 *   r * 128 + (c ^ (r & 7)) * 16. One is written while the engine reads the others. */
#ifndef LAC_CUDA_KERNELS_GATHER_STORE_CUH
#define LAC_CUDA_KERNELS_GATHER_STORE_CUH

#include "numbers.cuh"
#include "tensor_copy.cuh"

#define LAC_PIECE 8192

/* Four 8x8 matrices to the rows whose addresses the lanes 8i to 8i + 7 bring for matrix i; with `turned`, their columns. */
template <bool turned> __device__ __forceinline__ void lac_store_matrices(u32 address, const u32 (&word)[4])
{
    if (turned)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(word[0]),
                     "r"(word[1]), "r"(word[2]), "r"(word[3])
                     : "memory");
    else
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(word[0]), "r"(word[1]),
                     "r"(word[2]), "r"(word[3])
                     : "memory");
}

/* Waits for the 128 threads of this warpgroup. */
__device__ __forceinline__ void lac_warpgroup_sync()
{
    asm volatile("bar.sync %0, 128;" ::"r"(1 + (threadIdx.x >> 7)) : "memory");
}

/* This warp's 16 outputs x 64 tokens of a piece; `word` of the pair of tokens 8j + 2q of output half h is word[2j + h]. */
__device__ __forceinline__ void lac_stage_piece(u32 piece, const u32 (&word)[16])
{
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3, r = lane & 7, h = lane >> 3 & 1, next = lane >> 4;
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        const u32 four[4] = {word[2 * j], word[2 * j + 1], word[2 * j + 2], word[2 * j + 3]};
#if LAC_Y_TOKEN_MAJOR
        lac_store_matrices<true>(piece + ((j + next) * 8 + r) * 128 + ((2 * warp + h) ^ r) * 16, four);
#else
        lac_store_matrices<false>(piece + (16 * warp + 8 * h + r) * 128 + ((j + next) ^ r) * 16, four);
#endif
    }
}

/* Starts the store of a piece to 64 outputs from `output` on and 64 tokens from `token` on; one thread. */
__device__ __forceinline__ void lac_store_piece(u32 piece, const lac_tensor_map *map, int output, int token)
{
#if LAC_Y_TOKEN_MAJOR
    lac_store_tensor(piece, map, output, token);
#else
    lac_store_tensor(piece, map, token, output);
#endif
}

#endif
