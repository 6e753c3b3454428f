/* shared_access.cuh - shared memory by its 32-bit address: what stores halves and loads words back must not be reordered by
 * what the compiler thinks of types, and an address that is computed by hand costs no more than it must. */
#ifndef LAC_CUDA_KERNELS_SHARED_ACCESS_CUH
#define LAC_CUDA_KERNELS_SHARED_ACCESS_CUH

#include "numbers.cuh"

__device__ __forceinline__ void lac_shared_store_half(u32 address, u16 value)
{
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(value));
}

__device__ __forceinline__ void lac_shared_store(u32 address, u32 value)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value));
}

__device__ __forceinline__ u32 lac_shared_load(u32 address)
{
    u32 value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
    return value;
}

__device__ __forceinline__ u32 lac_shared_load_half(u32 address)
{
    u32 value;
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(value) : "r"(address));
    return value;
}

__device__ __forceinline__ void lac_shared_store_16(u32 address, uint4 v)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w));
}

__device__ __forceinline__ uint2 lac_shared_load_8(u32 address)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
    return v;
}

__device__ __forceinline__ uint4 lac_shared_load_16(u32 address)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
    return v;
}

#endif
