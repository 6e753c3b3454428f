/* cluster.cuh - blocks of one cluster (sm_90 and later): who am I, wait for the others, read their shared memory. */
#ifndef LAC_CUDA_KERNELS_CLUSTER_CUH
#define LAC_CUDA_KERNELS_CLUSTER_CUH

#include "numbers.cuh"

#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ u32 lac_cluster_rank()
{
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* Every thread of every block of the cluster; what they wrote to shared memory before is seen after. */
__device__ __forceinline__ void lac_cluster_sync()
{
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
}

/* The same in two: arrive says so and goes on, wait waits for all others' arrivals. */
__device__ __forceinline__ void lac_cluster_arrive() { asm volatile("barrier.cluster.arrive.aligned;" ::: "memory"); }
__device__ __forceinline__ void lac_cluster_wait() { asm volatile("barrier.cluster.wait.aligned;" ::: "memory"); }

/* What block `rank` holds at the place where this block has `shared` (an address of lac_shared_address). */
__device__ __forceinline__ float4 lac_cluster_read(u32 shared, u32 rank)
{
    u32 there;
    float4 v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(there) : "memory");
    return v;
}

/* The same for one float. */
__device__ __forceinline__ float lac_cluster_read_float(u32 shared, u32 rank)
{
    u32 there;
    float v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(there) : "memory");
    return v;
}
#endif

#endif
