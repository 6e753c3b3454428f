/* window_tile.cuh - how split.cu leaves X in the workspace and window.cu finds it in shared memory; arguments of both.
 *
 * A tile is LAC_WINDOW inputs x 128 tokens, contiguous in the workspace at (token tile * windows + window) * LAC_X_TILE:
 *     128 fp32 factors, one a token: what a sum over this window must be multiplied by
 *     LAC_WINDOW rows: 128 halves hi, then, with two planes, 128 halves lo
 * Within row r the 16-byte pieces (eight tokens) of a plane are permuted: piece p lies at p ^ (r & 7). Eight rows that are
 * read at the same tokens lie in different banks when they differ in their last three bits. In shared memory LAC_ZERO_ROWS
 * (8, or 0 when W has no padding) rows of zeros follow: padding slots of W point there. */
#ifndef LAC_CUDA_KERNELS_WINDOW_TILE_CUH
#define LAC_CUDA_KERNELS_WINDOW_TILE_CUH

#include "numbers.cuh"
#include "window_arguments.h"

#define LAC_TOKENS 128
#define LAC_X_PLANE (LAC_TOKENS * 2)
#define LAC_X_ROW (LAC_X_PLANE * LAC_PLANES)
#define LAC_X_HEADER (LAC_TOKENS * 4)
#define LAC_X_TILE (LAC_X_HEADER + LAC_WINDOW * LAC_X_ROW)
#define LAC_X_STAGE (LAC_X_TILE + LAC_ZERO_ROWS * LAC_X_ROW)

#endif
