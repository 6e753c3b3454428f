/* gather_arguments.h - the second parameter of gather.cu's and stream.cu's kernels, for host and device. */
#ifndef LAC_CUDA_KERNELS_GATHER_ARGUMENTS_H
#define LAC_CUDA_KERNELS_GATHER_ARGUMENTS_H

typedef struct lac_gather_args {
    const unsigned char *weight; /* [stages][LAC_W_STAGE] as the tensor cores want it                        */
    const int *index;            /* [stages][LAC_ROWS] rows of X; 0 where W is zero                          */
    const int *range;            /* [output_tiles][2] the stages of each tile of outputs: first, end; behind them, paired,
                                    [output_tiles][2] end of the first 64 outputs' stages, begin of the second's */
    const int *output;           /* [output_tiles * LAC_TILE_OUTPUTS] places in Y; -1: padding               */
    const void *x;               /* [k][ldx] feature-major: the caller's, or turned round into the workspace */
    float *partial;              /* in the workspace: sums of the parts when k is split                      */
    long long ldx;
    int output_tiles, token_tiles; /* one of them a multiple of LAC_CLUSTER                                  */
    int band;                      /* tiles of outputs that are walked together, so that L2 keeps them       */
    int stages_a_tile;             /* where every tile has as many, one tile's behind the other's; else 0     */
    int stores_y;                  /* Y is such that the copy engine can store it                            */
} lac_gather_args;

#endif
