/* window_arguments.h - the second parameter of split.cu and window.cu, for host and device. */
#ifndef LAC_CUDA_KERNELS_WINDOW_ARGUMENTS_H
#define LAC_CUDA_KERNELS_WINDOW_ARGUMENTS_H

typedef struct lac_window_args {
    const unsigned char *weight; /* tiles of W: [output tiles][windows][LAC_W_TILE]                     */
    const float *factor;         /* [output tiles * tile width] what a sum is multiplied by             */
    const int *output;           /* [output tiles * tile width] its place in Y; -1: padding             */
    const unsigned *source;      /* [windows * LAC_WINDOW] the column of X, when it is permuted         */
    unsigned char *tiles;        /* in the workspace: X, [token tiles][windows][LAC_X_TILE]             */
    unsigned *odd;               /* in the workspace: [token tiles][windows][bands] whether 64 tokens are odd: two planes, inf
                                    or NaN; one plane, a factor that is not the one that most windows of its token have */
    float *partial;              /* in the workspace: sums of the parts when k is split                 */
    int windows, token_tiles, output_tiles;
    int vectors;    /* of W, padding not counted                                     */
    int weight_odd; /* W has an infinity or a NaN                                    */
    int k;          /* columns of W: inputs beyond are zero                       */
    int exponent;   /* every factor of X is multiplied by 2^exponent              */
} lac_window_args;

#endif
