/* fake_cublas.c - the few functions of cuBLAS that pruning calls, as plain loops over column-major matrices: the fake driver's
 * memory is the host's. Tests name it in LAC_CUBLAS_LIBRARY and tell it which call is to fail. */
#include <stdlib.h>

enum { OP_N = 0, LOWER = 0, LEFT = 0, BAD = 13 };

static long calls, fail_at, alive;

long fake_cublas_calls(void) { return calls; }
long fake_cublas_alive(void) { return alive; }
/* The number-th call from now fails; 0: none. */
void fake_cublas_fail_at(long number)
{
    calls = 0;
    fail_at = number;
}

static int enter(void) { return ++calls == fail_at ? BAD : 0; }

int cublasCreate_v2(void **handle)
{
    int result = enter();
    if (result) return result;
    *handle = malloc(1);
    alive++;
    return 0;
}

int cublasDestroy_v2(void *handle)
{
    free(handle);
    alive--;
    return 0;
}

int cublasGetProperty(int which, int *value)
{
    static const int version[] = {13, 1, 2};
    if (which < 0 || which > 2) return BAD;
    *value = version[which];
    return 0;
}

const char *cublasGetStatusString(int status) { return status == BAD ? "made to fail" : "?"; }

int cublasSgemm_v2(void *handle, int ta, int tb, int m, int n, int k, const float *alpha, const float *a, int lda,
                   const float *b, int ldb, const float *beta, float *c, int ldc)
{
    (void)handle;
    int result = enter();
    if (result) return result;
    for (long j = 0; j < n; j++)
        for (long i = 0; i < m; i++) {
            double sum = 0;
            for (long p = 0; p < k; p++)
                sum += (double)a[ta == OP_N ? i + p * lda : p + i * lda] * b[tb == OP_N ? p + j * ldb : j + p * ldb];
            c[i + j * ldc] = (float)(*alpha * sum + *beta * (double)c[i + j * ldc]);
        }
    return 0;
}

int cublasSgeam(void *handle, int ta, int tb, int m, int n, const float *alpha, const float *a, int lda, const float *beta,
                const float *b, int ldb, float *c, int ldc)
{
    (void)handle;
    int result = enter();
    if (result || ta != OP_N || tb != OP_N || *beta != 0) return result ? result : BAD;
    (void)b, (void)ldb;
    for (long j = 0; j < n; j++)
        for (long i = 0; i < m; i++) c[i + j * ldc] = *alpha * a[i + j * lda];
    return 0;
}

int cublasSsyrk_v2(void *handle, int uplo, int trans, int n, int k, const float *alpha, const float *a, int lda,
                   const float *beta, float *c, int ldc)
{
    (void)handle;
    int result = enter();
    if (result || uplo != LOWER || trans == OP_N) return result ? result : BAD;
    for (long j = 0; j < n; j++)
        for (long i = j; i < n; i++) {
            double sum = 0;
            for (long p = 0; p < k; p++) sum += (double)a[p + i * lda] * a[p + j * lda];
            c[i + j * ldc] = (float)(*alpha * sum + *beta * (double)c[i + j * ldc]);
        }
    return 0;
}

/* op(A) X = B, A lower. */
int cublasStrsm_v2(void *handle, int side, int uplo, int trans, int diag, int m, int n, const float *alpha, const float *a,
                   int lda, float *b, int ldb)
{
    (void)handle, (void)diag;
    int result = enter();
    if (result || side != LEFT || uplo != LOWER || *alpha != 1) return result ? result : BAD;
    for (long j = 0; j < n; j++) {
        float *x = b + j * ldb;
        for (long step = 0; step < m; step++) {
            long i = trans == OP_N ? step : m - 1 - step;
            double sum = x[i];
            for (long p = trans == OP_N ? 0 : i + 1; p < (trans == OP_N ? i : m); p++)
                sum -= (double)a[trans == OP_N ? i + p * lda : p + i * lda] * x[p];
            x[i] = (float)(sum / a[i + i * lda]);
        }
    }
    return 0;
}

int cublasScopy_v2(void *handle, int n, const float *x, int step_x, float *y, int step_y)
{
    (void)handle;
    int result = enter();
    for (long i = 0; !result && i < n; i++) y[i * step_y] = x[i * step_x];
    return result;
}
