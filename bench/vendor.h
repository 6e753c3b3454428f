/* vendor.h - products by the GPU vendor's libraries, each opened at run time: cuBLAS and cuBLASLt, the dense baselines;
 * cuSPARSELt and cuSPARSE, which use the zeros of W and get rows of their own. vendor.c makes contenders of them. */
#ifndef LACUNA_BENCH_VENDOR_H
#define LACUNA_BENCH_VENDOR_H

#include <lacuna.h>

typedef struct bench_vendor_problem {
    int64_t m, n, k;
    lac_dtype dtype; /* of W, X and Y */
    lac_layout layout;
    lac_precision precision; /* for F32 */
    const float *w;          /* [n][k] with its zeros, in host memory */
} bench_vendor_problem;

/* A library. There may be several ways to ask it for the same product: another call, another order of W, another
 * algorithm. Weights are constant, so whichever is quickest is what a user would take. */
typedef struct bench_vendor {
    const char *name;
    int is_dense; /* it multiplies the zeros of W too */
    /* Opens it for work on this stream; NULL or a sentence that says why it is not there. */
    const char *(*open)(void *stream);
    void (*close)(void);
    /* "cublas=13.1.0" */
    const char *(*info)(void);
    /* How many ways there are; 0: it cannot do this problem. */
    int (*count_ways)(const bench_vendor_problem *problem);
    void (*name_way)(const bench_vendor_problem *problem, int way, char *buffer, size_t size);
    /* 1 when this way wants W as [k][n] instead of [n][k]. */
    int (*wants_transposed)(const bench_vendor_problem *problem, int way);
    /* Makes a handle for W in device memory, which stays the caller's and stays there. NULL: it failed. */
    void *(*prepare)(const bench_vendor_problem *problem, int way, const void *w);
    /* Puts the product on the stream. Nonzero: it failed. */
    int (*run)(void *handle, const void *x, void *y);
    void (*release)(void *handle);
} bench_vendor;

extern const bench_vendor bench_vendor_cublas, bench_vendor_cublaslt, bench_vendor_cusparselt, bench_vendor_cusparse;

/* The numbers of cudaDataType_t, and a library's memory, which it never rotates: as much as NVIDIA advises for Hopper. */
enum { BENCH_CUDA_F32 = 0, BENCH_CUDA_F16 = 2, BENCH_CUDA_BF16 = 14 };
#define BENCH_VENDOR_WORKSPACE ((size_t)64 << 20)
int bench_cuda_dtype(lac_dtype dtype);
/* Device memory of the benchmark's own; NULL when there is none left. Freeing NULL is allowed. */
void *bench_vendor_allocate(size_t bytes);
void bench_vendor_free(void *block);
void bench_vendor_upload(void *to, const void *from_host, size_t bytes);
/* Until the stream is empty; nonzero: something on it failed. */
int bench_vendor_wait(void);

#endif
