/* stream_x.cuh - X on its way into a stage where the blocks of a cluster have the same tokens (LAC_SHARES_X): each fetches its
 * share of them for all, by the tensor copy engine. Used by stream.cu and stream_few.cu, behind tile_product.cuh.
 *
 * X feature-major comes in boxes of LAC_ROWS rows x 64 tokens, token-major in boxes of LAC_ROWS inputs x a share of the tokens, or of 256,
 * the engine's most; what lies outside is zero. A token-major box that has all tokens ends with the last one: to fill up what lies beyond
 * takes the engine longer than to bring it, and products of the rows that stay as they were go nowhere. */
#ifndef LAC_CUDA_KERNELS_STREAM_X_CUH
#define LAC_CUDA_KERNELS_STREAM_X_CUH

#include "cluster.cuh"
#include "tensor_copy.cuh"

#define LAC_SHARE (LAC_TILE_TOKENS / LAC_CLUSTER) /* tokens that a block fetches for its cluster */
#define LAC_BOX_TOKENS (LAC_TURNED ? 64 : LAC_SHARE < LAC_BOX_MOST ? LAC_SHARE : LAC_BOX_MOST)

static_assert(LAC_SHARE % LAC_BOX_TOKENS == 0 || LAC_TILE_TOKENS < 64, "boxes make up a share, or a stage would get more bytes than it expects");

/* What a stage gets of X, which has so many tokens. */
__device__ __forceinline__ u32 lac_stream_x_bytes(int m)
{
    if (LAC_TURNED) return LAC_X_STAGE;
    return LAC_TILE_TOKENS / LAC_BOX_TOKENS * (LAC_CLUSTER > 1 ? LAC_BOX_TOKENS : min(LAC_BOX_TOKENS, m)) * LAC_ROWS * 2;
}

__device__ __forceinline__ void lac_stream_x(const lac_tensor_map *map, u32 stage, u32 barrier, int row, int token)
{
    const int mine = LAC_CLUSTER > 1 ? (int)lac_cluster_rank() * LAC_SHARE : 0;
    const u32 mask = (1u << LAC_CLUSTER) - 1, to = stage + mine * (LAC_ROWS * 2);
#pragma unroll
    for (int box = 0; box < LAC_SHARE; box += LAC_BOX_TOKENS)
        if (LAC_TURNED)
            lac_copy_tensor(to + box * (LAC_ROWS * 2), map, token + mine + box, row, barrier, mask);
        else
            lac_copy_tensor(to + box * (LAC_ROWS * 2), map, row, token + mine + box, barrier, mask);
}

#endif
