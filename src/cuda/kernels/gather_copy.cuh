/* gather_copy.cuh - copies of 16 bytes into shared memory that report to a barrier, what makes them seen by the tensor cores,
 * and 8x8 matrices turned round between lanes. sm_90a. Used by tile.cuh, slide.cu, pick.cu and choose.cu. */
#ifndef LAC_CUDA_KERNELS_GATHER_COPY_CUH
#define LAC_CUDA_KERNELS_GATHER_COPY_CUH

#include "numbers.cuh"

/* 16 bytes; zeros where `none`, and then nothing is read. */
__device__ __forceinline__ void lac_copy_chunk(u32 to, const void *from, bool none)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\ncp.async.cg.shared.global.L2::256B [%0], [%1], 16, p;\n}\n" ::"r"(to),
                 "l"(from), "r"((int)none)
                 : "memory");
}

/* Arrives at the barrier when this thread's copies so far have landed. */
__device__ __forceinline__ void lac_barrier_arrive_copies(u32 barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

/* What ordinary copies have written is seen by the tensor cores. */
__device__ __forceinline__ void lac_async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Turns an 8x8 matrix of 16-bit elements round: lane 4r + q brings elements 2q and 2q + 1 of row r, and gets those of column r. */
__device__ __forceinline__ u32 lac_transpose_8x8(u32 pair)
{
    u32 result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
    return result;
}

#endif
