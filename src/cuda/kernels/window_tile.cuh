/* window_tile.cuh - how split.cu leaves X in the workspace and window.cu finds it in shared memory; arguments of both.
 *
 * A tile is LAC_WINDOW inputs x LAC_TOKENS tokens, contiguous in the workspace at (token tile * windows + window) * LAC_X_TILE:
 *     LAC_TOKENS fp32 factors, one a token: what a sum over this window must be multiplied by
 *     LAC_WINDOW rows: LAC_TOKENS halves hi, then, with two planes, LAC_TOKENS halves lo
 * Within row r the 16-byte pieces (eight tokens) of 128 bytes are permuted: piece p lies at p ^ (r & 7). Eight rows that are
 * read at the same tokens lie in different banks when they differ in their last three bits, the row's class. In shared memory
 * LAC_ZERO_ROWS (8, or 0 when W has no padding) rows of zeros follow: padding slots of W point there. Of 16 tokens the even
 * ones stand in the first piece and the odd ones in the second, so that a thread's two tokens of a product are neighbours.
 *
 * Which input stands in which row: each eighth of the window is a class, so the groups of N:M, which all keep alike many inputs,
 * fill the classes evenly. Inputs of a unit of LAC_UNIT are kept together: they go to different classes. window_shape.h has
 * the same function for the host. LAC_UNIT 0: input i is row i. */
#ifndef LAC_CUDA_KERNELS_WINDOW_TILE_CUH
#define LAC_CUDA_KERNELS_WINDOW_TILE_CUH

#include "numbers.cuh"
#include "window_arguments.h"

#define LAC_BANDS (LAC_TOKENS / 64) /* of 64 tokens, what a warpgroup multiplies at once */
#define LAC_X_PLANE (LAC_TOKENS * 2)
#define LAC_X_ROW (LAC_X_PLANE * LAC_PLANES)
#define LAC_X_HEADER (LAC_TOKENS * 4)
#define LAC_X_TILE (LAC_X_HEADER + LAC_WINDOW * LAC_X_ROW)
#define LAC_X_STAGE (LAC_X_TILE + LAC_ZERO_ROWS * LAC_X_ROW)

/* The row of the tile where input `input` of the window stands. */
__device__ __forceinline__ constexpr int lac_row_of(int input)
{
#if LAC_UNIT > 0
    const int rank = input % LAC_UNIT * (LAC_WINDOW / LAC_UNIT) + input / LAC_UNIT;
    return rank % (LAC_WINDOW / 8) * 8 + rank / (LAC_WINDOW / 8);
#else
    return input;
#endif
}

#endif
