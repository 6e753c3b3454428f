/* gather_tile.h - a weight cut into the stages that kernels/gather.cu copies. gather.c calls it once a plan; the layout of a
 * stage is unit-tested against what the tensor cores themselves read. */
#ifndef LAC_CUDA_GATHER_TILE_H
#define LAC_CUDA_GATHER_TILE_H

#include "cuda/gather_shape.h"

/* The number of a row that a slot without one has where such slots are many: nothing is read for it. As in kernels/gather.cu. */
#define LAC_GATHER_HOLE INT32_MIN

typedef struct lac_gather_tiled {
    uint8_t *stages; /* [stage_count] of lac_gather_w_stage                                */
    int32_t *index;  /* [stage_count][rows] rows of X; any, or a hole, where there is none and W is zero */
    int32_t *range;  /* [output_tiles][2] the stages of each tile of outputs: first, end; then [output_tiles][2], of a
                        pair: where those of its first row group end, where those of its second begin */
    int32_t *output; /* [output_tiles * tile_outputs] places in Y; -1: padding             */
    int64_t stage_count;
} lac_gather_tiled;

lac_status lac_gather_tile(const lac_weight *weight, const lac_gather_shape *shape, lac_gather_tiled *out);
void lac_gather_tiled_release(lac_gather_tiled *tiled);

/* Where in a stage of W the 16-bit value of (row of the tile, slot) stands: slots 0 to `rows` - 1 dense, half of them sparse. */
int64_t lac_gather_value_at(const lac_gather_shape *shape, int row, int slot);
/* Where the 4 bits of (row of the tile, group of four rows of X) stand, as byte and shift from the first byte of the places.
 * The low two bits are the position of the first value among the four, the high two that of the second; first < second. */
void lac_gather_place_at(const lac_gather_shape *shape, int row, int group, int64_t *byte, int *shift);

/* The same where W is packed: where the word with the two values of (row of the tile, eight rows of X) stands, and the 2 bits that say
 * what the first or second four of them have of it (kernels/stream.cu), from the first byte of the codes, which are behind the places. */
int64_t lac_gather_word_at(int row, int eight);
void lac_gather_code_at(int row, int four, int64_t *byte, int *shift);

#endif
