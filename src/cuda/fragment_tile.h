/* fragment_tile.h - a weight cut into the stages that kernels/fragment.cu copies. fragment.c calls it once a plan; the layout
 * of a stage is unit-tested. */
#ifndef LAC_CUDA_FRAGMENT_TILE_H
#define LAC_CUDA_FRAGMENT_TILE_H

#include "cuda/fragment_shape.h"

typedef struct lac_fragment_tiled {
    uint8_t *stages; /* [stage_count] of lac_fragment_w_stage                                                      */
    int32_t *index;  /* [stage_count, or most_stages where the tiles share it][rows] rows of X; -1: zeros          */
    int32_t *range;  /* [output_tiles][2] the stages of each tile of outputs: first, end                           */
    int32_t *output; /* [output_tiles * outputs of a tile] places in Y; -1: padding                                */
    int64_t stage_count, index_stages;
} lac_fragment_tiled;

lac_status lac_fragment_tile(const lac_weight *weight, const lac_fragment_shape *shape, lac_fragment_tiled *out);
void lac_fragment_tiled_release(lac_fragment_tiled *tiled);

/* Where in a stage of W the 16-bit value of (row of the tile, slot) stands: slots 0 to `rows` - 1 dense, half of them sparse,
 * in the order of the fragments of mma.cuh. */
int64_t lac_fragment_value_at(const lac_fragment_shape *shape, int row, int slot);
/* SPARSE: where the 4 bits of (row of the tile, group of four rows of X) stand, as byte and shift. The low two bits are the
 * position of the first value among the four, the high two that of the second; first < second. */
void lac_fragment_place_at(const lac_fragment_shape *shape, int row, int group, int64_t *byte, int *shift);
/* EXPAND: where kept weight `number` (from the highest input down) of (row of the tile, lane t of its four) stands, where the
 * lane's mask does, and which input of the stage's `rows` a slot of X holds. Lane t has inputs t * rows / 4 on. */
int64_t lac_fragment_kept_at(const lac_fragment_shape *shape, int row, int t, int number);
int64_t lac_fragment_mask_at(const lac_fragment_shape *shape, int row, int t);
int lac_fragment_input_of(const lac_fragment_shape *shape, int slot);

#endif
