/* stream_x.cuh - X on its way into a stage where the blocks of a cluster have the same tokens (LAC_SHARES_X): each fetches its
 * share of them for all, by the tensor copy engine. Used by stream.cu, behind tile_product.cuh.
 *
 * X feature-major comes in boxes of LAC_ROWS rows x 64 tokens, token-major in boxes of LAC_ROWS inputs x a share of the tokens; what lies
 * outside is zero. */
#ifndef LAC_CUDA_KERNELS_STREAM_X_CUH
#define LAC_CUDA_KERNELS_STREAM_X_CUH

#include "cluster.cuh"
#include "tensor_copy.cuh"

#define LAC_SHARE (LAC_TILE_TOKENS / LAC_CLUSTER) /* tokens that a block fetches for its cluster */

static_assert(!LAC_TURNED || LAC_SHARE % 64 == 0 || LAC_TILE_TOKENS < 64, "boxes of 64 tokens make up a share, or a stage would get more bytes than it expects");

__device__ __forceinline__ void lac_stream_x(const lac_tensor_map *map, u32 stage, u32 barrier, int row, int token)
{
    const int mine = LAC_CLUSTER > 1 ? (int)lac_cluster_rank() * LAC_SHARE : 0;
    const u32 mask = (1u << LAC_CLUSTER) - 1, to = stage + mine * (LAC_ROWS * 2);
#if LAC_TURNED
#pragma unroll
    for (int block = 0; block < LAC_SHARE; block += 64)
        lac_copy_tensor(to + block * (LAC_ROWS * 2), map, token + mine + block, row, barrier, mask);
#else
    lac_copy_tensor(to, map, row, token + mine, barrier, mask);
#endif
}

#endif
