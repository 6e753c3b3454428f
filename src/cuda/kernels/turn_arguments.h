/* turn_arguments.h - the second parameter of turn.cu's kernel, for host and device. */
#ifndef LAC_CUDA_KERNELS_TURN_ARGUMENTS_H
#define LAC_CUDA_KERNELS_TURN_ARGUMENTS_H

typedef struct lac_turn_args {
    unsigned short *to; /* [k][ld]: X, feature-major        */
    long long ld;       /* a multiple of 64, and at least m */
} lac_turn_args;

#endif
