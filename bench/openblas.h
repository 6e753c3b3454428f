/* openblas.h - the dense baseline on a CPU: OpenBLAS, opened at run time. */
#ifndef LACUNA_BENCH_OPENBLAS_H
#define LACUNA_BENCH_OPENBLAS_H

#include <lacuna.h>

typedef struct bench_openblas bench_openblas;

/* Opens it and sets its threads. NULL when it is not there; then `why` says where it was looked for and how to get it. */
bench_openblas *bench_openblas_open(int threads, char *why, size_t why_size);
void bench_openblas_close(bench_openblas *blas);
/* "openblas=0.3.21; openblas_core=SkylakeX; ..." */
const char *bench_openblas_info(const bench_openblas *blas);

/* Each way to ask for the same product. Weights are constant, so they may lie as the call likes them best. */
enum { BENCH_OPENBLAS_WAYS = 2 };
/* "openblas_sgemm_nt" and so on: what way 0 or 1 is called for these sizes. */
const char *bench_openblas_way_name(int way, int64_t m, lac_layout layout);
/* 1 when this way wants W transposed: [k][n] instead of [n][k]. */
int bench_openblas_wants_transposed(int way);
/* Y = X W^T in fp32; X and Y in `layout`, W as the way wants it. */
void bench_openblas_multiply(const bench_openblas *blas, int way, lac_layout layout, int64_t m, int64_t n, int64_t k,
                             const float *x, const float *w, float *y);

#endif
