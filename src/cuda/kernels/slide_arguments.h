/* slide_arguments.h - the second parameter of slide.cu, for host and device. */
#ifndef LAC_CUDA_KERNELS_SLIDE_ARGUMENTS_H
#define LAC_CUDA_KERNELS_SLIDE_ARGUMENTS_H

typedef struct lac_slide_args {
    const unsigned char *weight; /* [steps] fragments of LAC_WIDTH outputs x 16 slots                  */
    const unsigned *index;       /* [steps][16] where the inputs lie, and what to wait for             */
    const int *first;            /* [vectors * LAC_PARTS + 1] the first step of each stream            */
    const int *output;           /* [vectors * LAC_WIDTH] places in Y; -1: padding                     */
    float *partial;              /* in the workspace: sums of the parts when k is split                */
    int output_tiles, token_tiles;
    int band;   /* tiles of outputs that are walked together */
    int chunks; /* of 64 inputs, that X has                     */
} lac_slide_args;

#endif
