/* vector_select_product.cuh - a batch of vector_select.cu times a chunk of X in shared memory. */
#ifndef LAC_CUDA_KERNELS_VECTOR_SELECT_PRODUCT_CUH
#define LAC_CUDA_KERNELS_VECTOR_SELECT_PRODUCT_CUH

#include "matrix_load.cuh"
#include "mma.cuh"
#include "vector_pack.cuh"
#include "vector_select_batch.cuh"

constexpr int tiles_at_once = token_tiles < 4 ? token_tiles : 4; /* whose fragments of X a lane has */

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

#endif
