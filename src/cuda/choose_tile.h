/* choose_tile.h - a weight cut into the stages that kernels/choose.cu copies, as its head describes them. choose.c calls it once a
 * plan; choose_shape.c asks how many stages there will be. */
#ifndef LAC_CUDA_CHOOSE_TILE_H
#define LAC_CUDA_CHOOSE_TILE_H

#include "cuda/choose_shape.h"
#include "format/weight.h"

typedef struct lac_choose_tiled {
    uint8_t *images; /* [stages][2 blocks] of LAC_CHOOSE_IMAGE_BYTES                             */
    int32_t *boxes;  /* [stages][boxes] the first input of each; -1: there is none               */
    int32_t *range;  /* [quads + 1] the first stage of each quad                                 */
    int32_t *output; /* [quads * 4][128] places in Y; -1: padding                                */
    int32_t *
        piece; /* [quads * 4][2] of 64 outputs: the place of the first, if they are neighbours in Y, nobody else's and begin at 16 bytes; or -1 */
    int64_t stage_count;
} lac_choose_tiled;

lac_status lac_choose_tile(const lac_weight *weight, const lac_choose_shape *shape, lac_choose_tiled *out);
void lac_choose_tiled_release(lac_choose_tiled *tiled);

/* Stages of a quad in the mean, by some of them; below 0 without memory. */
double lac_choose_count_stages(const lac_weight *weight, const lac_choose_shape *shape);

/* Where in an image the 16-bit weight of (step, vector of the block, row, slot) stands, and the place of the input of (step, vector,
 * lane, load): slot lac_choose_slot(lane, load) of the step. */
static inline int lac_choose_value_at(int step, int vector, int row, int slot)
{
    return (step * 2 + vector) * LAC_CHOOSE_MATRIX_BYTES + row / 8 * 256 + slot / 8 * 128 + row % 8 * 16 + slot % 8 * 2;
}
static inline int lac_choose_place_at(int step, int vector, int lane, int load)
{
    return LAC_CHOOSE_STEPS * 2 * LAC_CHOOSE_MATRIX_BYTES + (step * 2 + vector) * LAC_CHOOSE_PLACES_BYTES + lane * 16 +
           load * 2;
}
static inline int lac_choose_slot(int lane, int load) { return 2 * lane + (load & 1) + (load >> 1) * 8; }
/* How loads 2 * pair and 2 * pair + 1 of a lane make a word: bytes as __byte_perm numbers them, those of a slot without an input zero. */
static inline int lac_choose_join_at(int step, int vector, int lane, int pair)
{
    return lac_choose_place_at(step, vector, lane, 4 + pair);
}
enum { LAC_CHOOSE_JOIN_LOW = 0x10, LAC_CHOOSE_JOIN_HIGH = 0x5400, LAC_CHOOSE_NO_LOW = 0x22, LAC_CHOOSE_NO_HIGH = 0x2200 };

#endif
