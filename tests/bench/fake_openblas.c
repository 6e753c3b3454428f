/* fake_openblas.c - stands in for OpenBLAS in the tests of `lacuna bench` and of what a child of fork() may do: the same functions by plain
 * loops, so that the tests need no package. Products take OpenMP's own number of threads, and round otherwise with another one, as the real ones
 * may. FAKE_OPENBLAS_WRONG in the environment makes its results wrong; FAKE_OPENBLAS_ENDS ends the process after
 * so many products. */
#include <stdlib.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#define EXPORT __attribute__((visibility("default")))
enum { TRANSPOSE = 112 };

static int thread_count = 1;

EXPORT void openblas_set_num_threads(int threads);
EXPORT int openblas_get_num_threads(void);
EXPORT int openblas_get_parallel(void);
EXPORT char *openblas_get_config(void);
EXPORT char *openblas_get_corename(void);
EXPORT void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                        int ldb, float beta, float *c, int ldc);
EXPORT void cblas_sgemv(int order, int transpose, int m, int n, float alpha, const float *a, int lda, const float *x, int incx,
                        float beta, float *y, int incy);

void openblas_set_num_threads(int threads) { thread_count = threads; }
int openblas_get_num_threads(void) { return thread_count; }
int openblas_get_parallel(void) { return 0; }

char *openblas_get_config(void)
{
    static char text[] = "OpenBLAS 9.9.9 FAKE";
    return text;
}

char *openblas_get_corename(void)
{
    static char text[] = "Plainloops";
    return text;
}

void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b, int ldb,
                 float beta, float *c, int ldc)
{
    int parts = 1; /* of each sum, a term of each in turn */
    (void)order;
#ifdef _OPENMP
    parts = omp_get_max_threads();
#pragma omp parallel for
#endif
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int part = 0; part < parts; part++)
                for (int l = part; l < k; l += parts)
                    sum += a[ta == TRANSPOSE ? l * lda + i : i * lda + l] * b[tb == TRANSPOSE ? j * ldb + l : l * ldb + j];
            c[i * ldc + j] = alpha * sum + (beta != 0 ? beta * c[i * ldc + j] : 0);
        }
    static int calls;
    const char *last = getenv("FAKE_OPENBLAS_ENDS");
    if (last && ++calls > atoi(last)) _exit(1);
    if (getenv("FAKE_OPENBLAS_WRONG")) c[0] += 1;
}

void cblas_sgemv(int order, int transpose, int m, int n, float alpha, const float *a, int lda, const float *x, int incx,
                 float beta, float *y, int incy)
{
    (void)order, (void)beta;
    int outputs = transpose == TRANSPOSE ? n : m, inputs = transpose == TRANSPOSE ? m : n;
    for (int j = 0; j < outputs; j++) {
        float sum = 0;
        for (int l = 0; l < inputs; l++) sum += a[transpose == TRANSPOSE ? l * lda + j : j * lda + l] * x[l * incx];
        y[j * incy] = alpha * sum;
    }
}
