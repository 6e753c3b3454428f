/* pipeline.cuh - barriers in shared memory and bulk copies into it (sm_90 and later), by name. Used by window.cu. */
#ifndef LAC_CUDA_KERNELS_PIPELINE_CUH
#define LAC_CUDA_KERNELS_PIPELINE_CUH

#include "numbers.cuh"

__device__ __forceinline__ u32 lac_shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

/* A barrier that completes a phase when `arrivals` threads have arrived and all announced bytes have landed. */
__device__ __forceinline__ void lac_barrier_init(u32 barrier, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* Makes initialised barriers visible to the copy engine. */
__device__ __forceinline__ void lac_barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void lac_barrier_arrive(u32 barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void lac_barrier_expect(u32 barrier, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Waits until the phase of the given parity has completed. */
__device__ __forceinline__ void lac_barrier_wait(u32 barrier, u32 parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra ready;\n"
                 "bra again;\n"
                 "ready:\n"
                 "}\n" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Starts a copy of `bytes` (a multiple of 16, both ends aligned to 16) into this block's shared memory. */
__device__ __forceinline__ void lac_copy_bulk(u32 to, const void *from, u32 bytes, u32 barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(barrier)
                 : "memory");
}

/* A warpgroup's share of the registers. */
template <int count> __device__ __forceinline__ void lac_registers_more()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count> __device__ __forceinline__ void lac_registers_fewer()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

#endif
