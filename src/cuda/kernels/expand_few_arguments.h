/* expand_few_arguments.h - the cut weight of expand_few.cu, for both sides. src/cuda/expand_few_tile.c makes it and describes its layout. */
#ifndef LAC_CUDA_KERNELS_EXPAND_FEW_ARGUMENTS_H
#define LAC_CUDA_KERNELS_EXPAND_FEW_ARGUMENTS_H

typedef struct lac_few_weight {
    const unsigned char *parts; /* [tile of 128 rows][chunk of 128 inputs][warp]: a lane's words */
    const unsigned *row_perm;   /* [rows] the output that stands i-th, or NULL                    */
    int rows, chunks;
} lac_few_weight;

#endif
