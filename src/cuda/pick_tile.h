/* pick_tile.h - a weight cut into the chunks that kernels/pick.cu copies, as its head describes them. pick.c calls it once a
 * plan. */
#ifndef LAC_CUDA_PICK_TILE_H
#define LAC_CUDA_PICK_TILE_H

#include "cuda/pick_shape.h"

typedef struct lac_pick_tiled {
    uint8_t *chunks; /* [output_tiles][windows][pairs] of lac_pick_chunk_bytes       */
    int32_t *output; /* [output_tiles][vectors of a tile][width] places in Y; -1: padding */
    uint64_t chunk_bytes, outputs;
} lac_pick_tiled;

lac_status lac_pick_tile(const lac_weight *weight, const lac_pick_shape *shape, lac_pick_tiled *out);
void lac_pick_tiled_release(lac_pick_tiled *tiled);

/* Where the place of slot `slot` of load `load` stands in a chunk, and the 16-bit weight of (product of the pair, output, slot). */
static inline int64_t lac_pick_place_at(const lac_pick_shape *s, int set, int load, int slot)
{
    return set * ((lac_pick_loads(s) + 3) / 4 * 128) + load / 4 * 128 + slot * 8 + load % 4 * 2;
}
static inline int64_t lac_pick_value_at(const lac_pick_shape *s, int set, int product, int row, int slot)
{
    return lac_pick_index_bytes(s) + (set * 2 * s->steps + product) * lac_pick_matrix_bytes(s) + row / 8 * 256 +
           slot / 8 * 128 + row % 8 * 16 + slot % 8 * 2;
}

#endif
