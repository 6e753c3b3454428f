/* chain.cuh - kernels one behind the other on a stream, the next one's beginning under the last one's end (sm_90 and later). A
 * launch that says `early` starts when every block of the kernel before it has said so or is gone; older GPUs know nothing of it.
 * Used by every kernel that is launched so. */
#ifndef LAC_CUDA_KERNELS_CHAIN_CUH
#define LAC_CUDA_KERNELS_CHAIN_CUH

#include "numbers.cuh"

/* Before anything is read that a kernel may have written, and so before anything is written: what is the plan's own, the weight,
 * need not wait. Every block must, or the kernel after this one would not know that the one before it has ended. */
__device__ __forceinline__ void lac_wait_for_inputs()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Lets the next one begin: it waits for the end of this one by itself, and finds room where blocks of this one are gone. */
__device__ __forceinline__ void lac_let_next_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#endif
