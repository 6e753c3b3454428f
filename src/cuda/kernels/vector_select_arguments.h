/* vector_select_arguments.h - the cut weight of vector_select.cu, for both sides. src/cuda/vector_select_tile.c makes it and
 * describes its layout. */
#ifndef LAC_CUDA_KERNELS_VECTOR_SELECT_ARGUMENTS_H
#define LAC_CUDA_KERNELS_VECTOR_SELECT_ARGUMENTS_H

typedef struct lac_select_weight {
    const unsigned char *batches; /* [unit][chunk][batch]: values, places, inputs                              */
    const unsigned *begin;        /* free: [units * chunks + 1] the first batch of each chunk of a unit; or NULL */
    const unsigned *row_perm;     /* [rows] the output that stands i-th, or NULL                                */
    const unsigned *col_perm;     /* [cols] the input that stands j-th, or NULL                                 */
    const unsigned *more;         /* packed: [batches behind the others] which batch of its chunk each one adds to, or NULL */
    const unsigned *more_begin;   /* ... and [units * chunks + 1] the first of each chunk of a unit             */
    long long batch_count;        /* those before them                                                          */
    int chunks;                   /* of the inputs, each as much of X as a block holds at a time                */
    int rows, cols;               /* stored ones                                                                */
} lac_select_weight;

#endif
