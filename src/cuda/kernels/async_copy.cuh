/* async_copy.cuh - copies from global to shared memory that go on while the warp computes (cp.async), in groups. A GPU
 * older than sm_80 has none: there the copy is a load and a store, done when it returns. */
#ifndef LAC_CUDA_KERNELS_ASYNC_COPY_CUH
#define LAC_CUDA_KERNELS_ASYNC_COPY_CUH

#include "numbers.cuh"

/* Shared memory as the 32-bit address that PTX wants. */
__device__ __forceinline__ u32 lac_shared_address(const void *pointer) { return (u32)__cvta_generic_to_shared(pointer); }

/* 16 bytes, past the first-level cache; both sides aligned to 16. `offset` is added to the shared address. */
template <int offset> __device__ __forceinline__ void lac_copy_16(u32 shared, const void *global)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0 + %1], [%2], 16;" ::"r"(shared), "n"(offset), "l"(global) : "memory");
#else
    uint4 v = *(const uint4 *)global;
    asm volatile("st.shared.v4.u32 [%0 + %1], {%2, %3, %4, %5};" ::"r"(shared), "n"(offset), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
#endif
}

/* 4 bytes, for rows that are not aligned to 16. */
template <int offset> __device__ __forceinline__ void lac_copy_4(u32 shared, const void *global)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0 + %1], [%2], 4;" ::"r"(shared), "n"(offset), "l"(global) : "memory");
#else
    asm volatile("st.shared.u32 [%0 + %1], %2;" ::"r"(shared), "n"(offset), "r"(*(const u32 *)global) : "memory");
#endif
}

/* 16 bytes where `go`, zeros of them where `none`, and then nothing is read. Predicates, for a branch would keep the compiler from
 * mixing copies with products, and ptxas turns a variable count of bytes into loads and stores. */
__device__ __forceinline__ void lac_copy_16_if(u32 shared, const void *global, bool none, bool go)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.b32 p, %2, 0;\nsetp.ne.b32 q, %3, 0;\n"
                 "@q cp.async.cg.shared.global.L2::128B [%0], [%1], 16, p;\n}\n" ::"r"(shared),
                 "l"(global), "r"((int)none), "r"((int)go)
                 : "memory");
#else
    if (!go) return;
    uint4 v = none ? make_uint4(0, 0, 0, 0) : *(const uint4 *)global;
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
#endif
}
__device__ __forceinline__ void lac_copy_16_if(u32 shared, const void *global, bool go)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("{\n.reg .pred q;\nsetp.ne.b32 q, %2, 0;\n@q cp.async.cg.shared.global.L2::128B [%0], [%1], 16;\n}\n" ::"r"(shared),
                 "l"(global), "r"((int)go)
                 : "memory");
#else
    lac_copy_16_if(shared, global, false, go);
#endif
}

/* Closes the group of this thread's copies since the last one; an empty group is allowed. */
__device__ __forceinline__ void lac_copy_commit()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Returns when at most `pending` of this thread's groups are still under way. */
template <int pending> __device__ __forceinline__ void lac_copy_wait()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}

#endif
