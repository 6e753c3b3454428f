/* tensor_copy.cuh - boxes of a matrix into shared memory and out of it by the tensor copy engine (sm_90 and later). Used by stream_x.cuh,
 * slide.cu, pick.cu, choose.cu, expand.cu and gather_store.cuh. */
#ifndef LAC_CUDA_KERNELS_TENSOR_COPY_CUH
#define LAC_CUDA_KERNELS_TENSOR_COPY_CUH

#include "numbers.cuh"

#define LAC_BOX_MOST 256 /* rows of a box: the engine takes no more */

/* As the driver encodes it: matrix, box and swizzle. */
typedef struct __align__(64) lac_tensor_map {
    u64 opaque[16];
} lac_tensor_map;

/* Asks for the description, which the copies below would wait for. */
__device__ __forceinline__ void lac_prefetch_map(const lac_tensor_map *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

/* Starts the copy of the box whose first element is (x, y), x along the matrix's rows, to the same place in every block of
 * `mask`, each of whose barriers is told. */
__device__ __forceinline__ void lac_copy_tensor(u32 to, const lac_tensor_map *map, int x, int y, u32 barrier, u32 mask)
{
    if (mask == 1)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
                         "r"(to),
                     "l"(map), "r"(x), "r"(y), "r"(barrier)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                     "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
                     "l"(map), "r"(x), "r"(y), "r"(barrier), "h"((u16)mask)
                     : "memory");
}

/* The same of a matrix of three dimensions, into this block alone. */
__device__ __forceinline__ void lac_copy_tensor_3d(u32 to, const lac_tensor_map *map, int x, int y, int z, u32 barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                     to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
                 : "memory");
}

/* Starts the copy of a box out of this block's shared memory to (x, y). What was written there by others than the copy engine must
 * have been fenced for it. */
__device__ __forceinline__ void lac_store_tensor(u32 from, const lac_tensor_map *map, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y),
                 "r"(from)
                 : "memory");
}

/* Closes the group of this thread's stores since the last one; an empty group is allowed. */
__device__ __forceinline__ void lac_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/* Waits until shared memory of all but the last `pending` groups of this thread may be written again. */
template <int pending> __device__ __forceinline__ void lac_store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

#endif
