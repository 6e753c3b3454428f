/* arguments.h - what a launch is told, for both sides: included by the host's C and by NVRTC. Every kernel's first
 * parameter is a lac_gpu_call; its second, where it needs one, a struct of its own in which pointers into the re-tiled
 * weight stand. Only types of fixed size. */
#ifndef LAC_CUDA_KERNELS_ARGUMENTS_H
#define LAC_CUDA_KERNELS_ARGUMENTS_H

typedef struct lac_gpu_call {
    const void *x;    /* [m][k] token-major with ldx >= k, [k][m] feature-major with ldx >= m */
    const void *bias; /* [n]                                                                  */
    const void *c;    /* as y; NULL: beta is 0 and it must not be read                        */
    void *y;          /* [m][n] or [n][m]                                                     */
    void *workspace;  /* aligned to 64 bytes, uncleared                                       */
    long long ldx, ldy, ldc;
    float alpha, beta;
    int m, n, k; /* tokens, and the widths of Y and X */
    int reserved;
} lac_gpu_call;

#endif
