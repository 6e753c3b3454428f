/* strict_arguments.h - the re-tiled weight of strict.cu, for both sides. src/cuda/strict_tile.c makes it. */
#ifndef LAC_CUDA_KERNELS_STRICT_ARGUMENTS_H
#define LAC_CUDA_KERNELS_STRICT_ARGUMENTS_H

typedef struct lac_strict_weight {
    const void *records;          /* [steps] of strict.cu's W and offsets, one behind the other                   */
    const unsigned *columns;      /* packed: [steps][rows] inputs of X; direct: [steps] the first input            */
    const unsigned *first_step;   /* [blocks + 1] of records and columns                                          */
    const unsigned *row_map;      /* [rows] the output of a row, ~0 for padding; NULL: in order                   */
    int steps;                    /* of every block, or 0 when they differ                                        */
    int rows;                     /* of the weight, padding included                                              */
    int tiles_m, group_m, blocks; /* tiles of tokens, how many of them run side by side, blocks of outputs        */
} lac_strict_weight;

#endif
