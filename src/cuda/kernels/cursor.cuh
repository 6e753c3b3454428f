/* cursor.cuh - where a thread is in a ring of buffers in shared memory, each with a barrier whose phases alternate. Used by window.cu and
 * pick.cu. */
#ifndef LAC_CUDA_KERNELS_CURSOR_CUH
#define LAC_CUDA_KERNELS_CURSOR_CUH

#include "numbers.cuh"

template <int count> struct lac_cursor {
    u32 slot, parity;
    __device__ __forceinline__ void next()
    {
        if (++slot == count) slot = 0, parity ^= 1;
    }
    /* `distance` buffers further, fewer than there are; before() is the slot alone, so many back. */
    __device__ __forceinline__ lac_cursor after(u32 distance) const
    {
        if (distance == 0) return *this;
        return slot + distance < count ? lac_cursor{slot + distance, parity} : lac_cursor{slot + distance - count, parity ^ 1};
    }
    __device__ __forceinline__ u32 before(u32 distance) const { return slot >= distance ? slot - distance : slot + count - distance; }
};

#endif
