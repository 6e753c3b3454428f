/* vector_arguments.h - the re-tiled weight of vector.cu and vector_mma.cu, for both sides. src/cuda/vector_tile.c makes it
 * and describes its layout. */
#ifndef LAC_CUDA_KERNELS_VECTOR_ARGUMENTS_H
#define LAC_CUDA_KERNELS_VECTOR_ARGUMENTS_H

typedef struct lac_vector_weight {
    const unsigned char *tiles; /* [row block][step] of LAC_STEP_BYTES: values [load][lane][16 B], the lanes' own index      */
    const unsigned *index;      /* [row block][step][words of a step, a multiple of 4] where rows share it; else NULL        */
    const unsigned *begin;      /* free: [row block][chunks + 1] the first tile of each chunk, counted over the whole weight */
    const unsigned *row_perm;   /* [rows] the output that stands i-th, or NULL                                               */
    const unsigned *col_perm;   /* [cols] the input that stands j-th, or NULL                                                */
    int steps;                  /* in a row block; free: 0                                                                   */
    int chunks;                 /* of the inputs, each as much of X as shared memory holds at a time                         */
    int rows, cols;             /* stored ones                                                                               */
} lac_vector_weight;

#endif
