/* fragment_arguments.h - the second parameter of fragment.cu's kernels, for host and device. */
#ifndef LAC_CUDA_KERNELS_FRAGMENT_ARGUMENTS_H
#define LAC_CUDA_KERNELS_FRAGMENT_ARGUMENTS_H

typedef struct lac_fragment_args {
    const unsigned char *weight; /* [stages][LAC_W_STAGE] in the order of fragments                          */
    const int *index;            /* [stages][LAC_ROWS] rows of X; -1: zeros. LAC_SHARED_INDEX: of one tile   */
    const int *range;            /* [output_tiles][2] the stages of each tile of outputs: first, end         */
    const int *output;           /* [output_tiles * LAC_TILE_OUTPUTS] places in Y; -1: padding               */
    const void *x;               /* [k][ldx] feature-major: the caller's, or turned round into the workspace */
    float *partial;              /* in the workspace: sums of the parts when k is split                      */
    long long ldx;
    int output_tiles, token_tiles;
    int band;        /* tiles of outputs that are walked together, so that L2 keeps them */
    int tile_stages; /* LAC_EVEN: the stages of every tile of outputs                    */
} lac_fragment_args;

#endif
