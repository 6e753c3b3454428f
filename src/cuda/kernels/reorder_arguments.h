/* reorder_arguments.h - the parameter of reorder.cu's kernel, for host and device. */
#ifndef LAC_CUDA_KERNELS_REORDER_ARGUMENTS_H
#define LAC_CUDA_KERNELS_REORDER_ARGUMENTS_H

typedef struct lac_reorder_args {
    const void *from;            /* [m][ld_from] */
    void *to;                    /* [m][ld_to]   */
    const unsigned short *index; /* [columns, padded to a multiple of 8] where in `from` each column of `to` stands; 0 beyond */
    long long ld_from, ld_to;
    int m, columns;
    int lane_bits; /* 2^lane_bits threads have a line; at most as many as a block has */
    int reserved;
} lac_reorder_args;

#endif
