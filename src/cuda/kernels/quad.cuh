/* quad.cuh - sums that lie in registers as fragments, put together for stores of 16 bytes. sm_90a. Used by slide.cu, pick.cu, choose.cu
 * and tile_write.cuh. */
#ifndef LAC_CUDA_KERNELS_QUAD_CUH
#define LAC_CUDA_KERNELS_QUAD_CUH

#include "numbers.cuh"

/* Lane q of four gets the four words that the lanes have as number q, in their order. */
__device__ __forceinline__ void lac_quad_transpose(u32 (&word)[4])
{
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
        const bool upper = threadIdx.x & step;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int low = step == 1 ? 2 * i : i, high = low + step;
            const u32 got = __shfl_xor_sync(0xffffffffu, upper ? word[low] : word[high], step);
            word[low] = upper ? got : word[low];
            word[high] = upper ? word[high] : got;
        }
    }
}

/* Two sums as 16-bit elements of Y. */
__device__ __forceinline__ u32 lac_pack(float low, float high)
{
    u32 result;
#if LAC_Y_DTYPE == LAC_BF16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
#endif
    return result;
}

#endif
