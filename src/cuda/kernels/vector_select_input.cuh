/* vector_select_input.cuh - what both ways of vector_select.cu to bring X share: an element of X, its place in a chunk, when it may be read. */
#ifndef LAC_CUDA_KERNELS_VECTOR_SELECT_INPUT_CUH
#define LAC_CUDA_KERNELS_VECTOR_SELECT_INPUT_CUH

#include "cluster.cuh"
#include "vector_select_batch.cuh"

/* X[token][stored column `column`]; zero past the last of either. */
__device__ __forceinline__ u32 x_at(const lac_gpu_call &call, const lac_select_weight &w, int token, int column)
{
    if (column >= w.cols || token >= LAC_TOKENS) return 0;
#if LAC_HAS_COL_PERM
    const i64 input = w.col_perm[column];
#else
    const i64 input = column;
#endif
#if LAC_X_TOKEN_MAJOR
    return ((const u16 *)call.x)[(i64)token * call.ldx + input];
#else
    return ((const u16 *)call.x)[input * call.ldx + token];
#endif
}

__device__ __forceinline__ u32 row_address(u32 x, int tile, int input) { return x + tile * tile_bytes + (input + input / 8) * 16; }

__device__ __forceinline__ int split_rank()
{
#if LAC_SPLIT > 1
    return (int)lac_cluster_rank();
#else
    return 0;
#endif
}

/* Returns when the kernel before this one on the stream has ended: until then X may not be read, nor Y be written. */
__device__ __forceinline__ void wait_for_x()
{
#if LAC_EARLY && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#endif
