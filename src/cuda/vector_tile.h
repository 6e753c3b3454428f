/* vector_tile.h - how kernels/vector.cu and kernels/vector_mma.cu cut a problem, and the weight re-tiled for them. vector.c
 * calls it once a plan. */
#ifndef LAC_CUDA_VECTOR_TILE_H
#define LAC_CUDA_VECTOR_TILE_H

#include <stdbool.h>

#include "core/kernel.h"

/* How kept inputs are written down; numbers of LAC_INDEX_KIND in vector.cuh. */
typedef enum lac_vector_index {
    LAC_VECTOR_INDEX_NONE = 0,    /* every input stays                                     */
    LAC_VECTOR_INDEX_PACKED = 1,  /* bits an entry: the number within the group            */
    LAC_VECTOR_INDEX_BITMASK = 2, /* a bit an input of the group                           */
    LAC_VECTOR_INDEX_COLUMNS = 3  /* 16 bits an entry: the number within the chunk of X    */
} lac_vector_index;

/* The compile-time constants of the kernels, and what follows from them. vector.cuh explains the constants. Every family
 * comes down to rows that keep `group_slots` of `group_inputs` inputs, or to free columns. */
typedef struct lac_vector_shape {
    bool mma;
    bool direct; /* mma: the tiles are the fragments of the sparse mma; 2 of 4 inputs */
    lac_vector_index index;
    bool shared_index;
    int tokens, wide;
    int group_slots, group_inputs, entry_bits;
    int step_groups, group_steps; /* gather: groups in a step, steps in a group; one of them is 1    */
    int unit_groups;              /* mma: groups in a unit                                           */
    int slots;                    /* of a lane in a step                                             */
    int row_warps, k_warps, split, blocks;
    int depth;    /* gather: steps of a warp under way                                               */
    int rounds;   /* gather: row blocks that a warp takes one behind the other                       */
    int64_t grid; /* blocks of the launch                                                            */
    int value_bytes, value_loads, index_words, step_bytes;
    int64_t steps; /* in a row block; COLUMNS: unknown before tiling, 0               */
    int chunk_steps, chunk_inputs, chunks;
    int64_t x_bytes; /* of a chunk in shared memory                                                 */
    unsigned shared_bytes;
} lac_vector_shape;

enum { LAC_VECTOR_ROWS = 32, LAC_VECTOR_MOST_TOKENS = 16 };

/* False when the kernel does not apply. A pure function of the problem and the device's description. */
bool lac_vector_shape_make(const lac_problem *problem, bool mma, lac_vector_shape *out);

/* In host memory. A tile is 32 stored rows x one step:
 *     values [load][lane][16 bytes], index [load][lane][16 bytes], [word][lane][4 bytes]
 * with the index in words of 32 bits a lane, as many sixteens of bytes as it fills, then single words. gather: lane = row,
 * slots by group, then by input. mma: lane 4g+t has rows g, g+8, g+16 and g+24 of unit t, slots by row, group, input. direct:
 * 4 x 32 inputs, of each the fragments of rows 0 to 15 and 16 to 31 and a word of metadata, as mma.cuh has them. Inputs
 * ascend within a group, with a bitmask they descend. Slots that no kept weight fills hold zero and an input not kept. */
typedef struct lac_vector_tiled {
    uint8_t *tiles;  /* [tile_count] of step_bytes                                              */
    uint32_t *index; /* shared: [tile_count][index_words, rounded up to 4]; else NULL           */
    uint32_t *begin; /* COLUMNS: [row blocks][chunks + 1] the first tile of a chunk; else NULL  */
    int64_t tile_count;
} lac_vector_tiled;

lac_status lac_vector_tile(const lac_weight *weight, const lac_vector_shape *shape, lac_vector_tiled *out);
void lac_vector_tiled_release(lac_vector_tiled *tiled);

#endif
