/* expand_tile.h - an element-wise weight cut into the pieces that kernels/expand.cu spreads out. expand.c calls it once a plan;
 * the layout is unit-tested. */
#ifndef LAC_CUDA_EXPAND_TILE_H
#define LAC_CUDA_EXPAND_TILE_H

#include "cuda/expand_shape.h"

typedef struct lac_expand_tiled {
    uint8_t *pieces; /* [output_tiles][steps][lac_expand_pieces] of lac_expand_piece bytes  */
    int32_t *range;  /* [output_tiles][2] the stages of each tile of outputs: first, end     */
    int32_t *output; /* [output_tiles * tile_outputs] places in Y; -1: padding               */
} lac_expand_tiled;

lac_status lac_expand_tile(const lac_weight *weight, const lac_expand_shape *shape, lac_expand_tiled *out);
void lac_expand_tiled_release(lac_expand_tiled *tiled);

/* Where in a piece word `word` of thread `thread` (0 - 127) stands: sections of 16, 8 and 4 bytes a thread. */
int64_t lac_expand_word_at(int words, int thread, int word);
/* The thread that spreads input `input` (0 - 63) of row `row` (0 - 63) of a piece, and its bit in that thread's last word. */
int lac_expand_bit_at(int row, int input, int *bit);

#endif
