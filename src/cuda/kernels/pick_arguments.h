/* pick_arguments.h - the second parameter of pick.cu's kernels, for host and device. */
#ifndef LAC_CUDA_KERNELS_PICK_ARGUMENTS_H
#define LAC_CUDA_KERNELS_PICK_ARGUMENTS_H

typedef struct lac_pick_args {
    const unsigned char *weight; /* [output_tiles][windows][LAC_PAIRS] chunks of LAC_W_CHUNK bytes       */
    const int *output;           /* [output_tiles][LAC_TILE_VECTORS][LAC_WIDTH] places in Y; -1: padding */
    float *partial;              /* in the workspace: sums of the parts when k is split                  */
    int output_tiles, token_tiles;
    int windows; /* of LAC_WINDOW inputs, that X has                    */
    int band;    /* tiles of outputs that are walked together, so that L2 keeps them */
} lac_pick_args;

#endif
