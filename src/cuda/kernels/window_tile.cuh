/* window_tile.cuh - how split.cu leaves X in the workspace and window.cu finds it in shared memory; arguments of both.
 *
 * A tile is LAC_WINDOW inputs x 128 tokens, contiguous in the workspace at (token tile * windows + window) * LAC_X_TILE:
 *     128 fp32 factors, one a token: what a sum over this window must be multiplied by
 *     LAC_WINDOW rows of 128 tokens, LAC_PLANES halves a token: {hi, lo} side by side, or hi alone
 * Within row r the 32-byte pieces are permuted: piece p lies at p ^ (r & 3). A quarter of a warp reads 32 bytes of each of
 * four rows; rows that differ in their last two bits then lie in different banks. In shared memory LAC_ZERO_ROWS
 * (4, or 0 when W has no padding) rows of zeros follow: padding slots of W point there. */
#ifndef LAC_CUDA_KERNELS_WINDOW_TILE_CUH
#define LAC_CUDA_KERNELS_WINDOW_TILE_CUH

#include "numbers.cuh"

#define LAC_TOKENS 128
#define LAC_X_ROW (LAC_TOKENS * 2 * LAC_PLANES)
#define LAC_X_HEADER (LAC_TOKENS * 4)
#define LAC_X_TILE (LAC_X_HEADER + LAC_WINDOW * LAC_X_ROW)
#define LAC_X_STAGE (LAC_X_TILE + LAC_ZERO_ROWS * LAC_X_ROW)

#include "window_arguments.h"

#endif
