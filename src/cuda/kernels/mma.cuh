/* mma.cuh - mma.sync on 16-bit operands with fp32 sums; sm_80 and later, dense fp16 from sm_75 on. */
#ifndef LAC_CUDA_KERNELS_MMA_CUH
#define LAC_CUDA_KERNELS_MMA_CUH

#include "numbers.cuh"

/* d += a * b for a tile of 16 x 16 times 16 x 8. With g = lane / 4 and t = lane % 4:
 * a[0]: row g, k 2t and 2t+1; a[1]: row g+8; a[2]: row g, k 2t+8 and 2t+9; a[3]: row g+8 of these
 * b[0]: k 2t and 2t+1, column g; b[1]: k 2t+8 and 2t+9
 * d[0], d[1]: row g, columns 2t and 2t+1; d[2], d[3]: row g+8 */
template <int dtype>
__device__ __forceinline__ void lac_mma_16x8x16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1)
{
#if __CUDA_ARCH__ >= 800
    if (dtype == LAC_BF16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a0), "r"(a1), "r"(b0));
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a2), "r"(a3), "r"(b1));
#endif
}

/* Positions that ascend may be told so, which later GPUs are faster with; PTX has the word since CUDA 12.5. */
#if __CUDACC_VER_MAJOR__ > 12 || (__CUDACC_VER_MAJOR__ == 12 && __CUDACC_VER_MINOR__ >= 5)
#define LAC_MMA_SPARSE "mma.sp::ordered_metadata"
#else
#define LAC_MMA_SPARSE "mma.sp"
#endif

/* d += a * b for a tile of 16 x 32 with 2 kept of every 4 along k, times 32 x 8. Fragments as above, twice as long in k:
 * a[0]: row g, the 2 kept of k 4t to 4t+3; a[1]: row g+8; a[2]: row g, of k 4t+16 to 4t+19; a[3]: row g+8
 * b[i]: k 8i+2t and 8i+2t+1, column g
 * meta, from the lanes with t = 2 * selector and 2 * selector + 1: 2 bits a kept weight, which of the 4 it is, ascending. The first of
 * these lanes has k 0 to 15, the second k 16 to 31, each row g in the low half and row g+8 in the high one. */
template <int dtype, int selector>
__device__ __forceinline__ void lac_mma_sparse_16x8x32(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, const u32 (&b)[4], u32 meta)
{
#if __CUDA_ARCH__ >= 800
    if (dtype == LAC_BF16)
        asm volatile(LAC_MMA_SPARSE ".sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, "
                     "{%0, %1, %2, %3}, %12, %13;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(meta), "n"(selector));
    else
        asm volatile(LAC_MMA_SPARSE ".sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, "
                     "{%0, %1, %2, %3}, %12, %13;"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                     : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(meta), "n"(selector));
#endif
}

#endif
