/* matrix_load.cuh - ldmatrix: 8x8 matrices of halves from shared memory as fragments of mma and wgmma; sm_75 and later. */
#ifndef LAC_CUDA_KERNELS_MATRIX_LOAD_CUH
#define LAC_CUDA_KERNELS_MATRIX_LOAD_CUH

#include "numbers.cuh"

/* Four matrices, transposed: lane i says where row i % 8 of matrix i / 8 lies (16 bytes); lane 4g + q gets of matrix j the
 * elements g of rows 2q and 2q + 1 in f[j]. `offset` is added to every address. */
template <int offset> __device__ __forceinline__ void lac_load_turned(u32 (&f)[4], u32 address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(address), "n"(offset));
}

/* The same, not transposed: lane 4g + q gets of matrix j the elements 2q and 2q + 1 of row g. */
template <int offset> __device__ __forceinline__ void lac_load_straight(u32 (&f)[4], u32 address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4 + %5];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(address), "n"(offset));
}

/* Two matrices; lanes 0-15 give their rows. */
template <int offset> __device__ __forceinline__ void lac_load_straight_two(u32 (&f)[2], u32 address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2 + %3];"
                 : "=r"(f[0]), "=r"(f[1])
                 : "r"(address), "n"(offset));
}

#endif
