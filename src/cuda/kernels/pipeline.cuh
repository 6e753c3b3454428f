/* pipeline.cuh - barriers in shared memory and bulk copies into it (sm_90 and later), by name. Used by
 * every kernel whose stages come by the copy engine. */
#ifndef LAC_CUDA_KERNELS_PIPELINE_CUH
#define LAC_CUDA_KERNELS_PIPELINE_CUH

#include "async_copy.cuh"

/* 1: every thread that has read its last of a buffer says so for itself, not a lane for its warp. Slower; for racecheck, which does
 * not carry what a warp did together over to the lane that arrives (docs/kernels/fast.md; scripts/gpu-sanitize.sh sets it). */
#ifndef LAC_EACH_ARRIVES
#define LAC_EACH_ARRIVES 0
#endif
enum { LAC_ARRIVALS = LAC_EACH_ARRIVES ? 32 : 1 }; /* of a warp */

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

/* The same into every block of the cluster that `blocks` has a bit for, at the same place in each; each one's barrier at the
 * place of `barrier` gets the bytes. */
__device__ __forceinline__ void lac_copy_bulk_all(u32 to, const void *from, u32 bytes, u32 barrier, u16 blocks)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(
                     to),
                 "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
                 : "memory");
}

/* Arrives at the barrier that block `rank` of the cluster has at the place of `barrier`. It publishes no writes beyond this
 * block (release.cluster would, by a barrier of the whole GPU's memory for every arrival): a reader gives a stage back. */
__device__ __forceinline__ void lac_barrier_arrive_at(u32 barrier, u32 rank)
{
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
                 "}\n" ::"r"(barrier),
                 "r"(rank)
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
