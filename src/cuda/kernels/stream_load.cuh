/* stream_load.cuh - loads of what is read once: through the read-only path, leaving nothing in the first-level cache; and copies of it to
 * shared memory that go on while the warp computes (sm_80 and later), in the groups of async_copy.cuh. */
#ifndef LAC_CUDA_KERNELS_STREAM_LOAD_CUH
#define LAC_CUDA_KERNELS_STREAM_LOAD_CUH

#include "numbers.cuh"

__device__ __forceinline__ uint4 lac_stream_16(const void *from)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}

__device__ __forceinline__ uint2 lac_stream_8(const void *from)
{
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
    return v;
}

__device__ __forceinline__ u32 lac_stream_4(const void *from)
{
    u32 v;
    asm volatile("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(from));
    return v;
}

/* Both sides aligned to as many bytes. */
__device__ __forceinline__ void lac_stream_copy_16(u32 shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}

__device__ __forceinline__ void lac_stream_copy_8(u32 shared, const void *global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared), "l"(global) : "memory");
}

__device__ __forceinline__ void lac_stream_copy_4(u32 shared, const void *global)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(global) : "memory");
}

#endif
