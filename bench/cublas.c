/* cublas.c - the dense baseline by cuBLAS: gemm, and for one token gemv as well; W as it is or transposed beforehand.
 * vendor.c calls it through its table.
 *
 * cuBLAS is column-major, so a row-major matrix is its own transpose there: Y^T[n,m] = W[n,k] X^T[k,m] for token-major
 * activations, Y[m,n] = X[m,k] W^T[k,n] for feature-major ones. */
#include <stdio.h>
#include <stdlib.h>

#include "library.h"
#include "vendor.h"

/* The numbers of cublas_api.h. */
enum { OP_N = 0, OP_T = 1, COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77, ALGO_DEFAULT = -1 };

typedef int (*gemv16_fn)(void *handle, int transpose, int m, int n, const float *alpha, const void *a, int lda,
                         long long stride_a, const void *x, int incx, long long stride_x, const float *beta, void *y, int incy,
                         long long stride_y, int batches);

static struct {
    void *library, *handle, *workspace;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*set_workspace)(void *handle, void *workspace, size_t bytes);
    int (*version)(void *handle, int *number);
    int (*gemm)(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const void *alpha, const void *a,
                int type_a, int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc,
                int compute, int algorithm);
    int (*gemv)(void *handle, int transpose, int m, int n, const float *alpha, const float *a, int lda, const float *x,
                int incx, const float *beta, float *y, int incy);
    gemv16_fn gemv_f16, gemv_bf16; /* NULL in older versions */
    char info[48];
} blas;

#define FUNCTION(field, symbol)                                                                                                \
    {                                                                                                                          \
        .pointer = &blas.field, .name = "cublas" symbol                                                                        \
    }
#define OPTIONAL(field, symbol)                                                                                                \
    {                                                                                                                          \
        .pointer = &blas.field, .name = "cublas" symbol, .is_optional = 1                                                      \
    }
static const bench_function functions[] = {FUNCTION(create, "Create_v2"),
                                           FUNCTION(destroy, "Destroy_v2"),
                                           FUNCTION(set_stream, "SetStream_v2"),
                                           FUNCTION(set_workspace, "SetWorkspace_v2"),
                                           FUNCTION(version, "GetVersion_v2"),
                                           FUNCTION(gemm, "GemmEx"),
                                           FUNCTION(gemv, "Sgemv_v2"),
                                           OPTIONAL(gemv_f16, "HSHgemvStridedBatched"),
                                           OPTIONAL(gemv_bf16, "TSTgemvStridedBatched"),
                                           {.name = NULL}};

static const char *open_library(void *stream)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so", NULL};
    static char why[192];
    int number = 0;
    if (!blas.library && !(blas.library = bench_library_load(names, functions, why, sizeof why))) return why;
    if (blas.create(&blas.handle)) {
        blas.handle = NULL;
        return "cublasCreate failed";
    }
    blas.workspace = bench_vendor_allocate(BENCH_VENDOR_WORKSPACE);
    /* The stream first: setting it resets the workspace. */
    if (!blas.workspace || blas.set_stream(blas.handle, stream) ||
        blas.set_workspace(blas.handle, blas.workspace, BENCH_VENDOR_WORKSPACE) || blas.version(blas.handle, &number))
        return "cuBLAS takes no stream or no workspace";
    snprintf(blas.info, sizeof blas.info, "cublas=%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
    return NULL;
}

static void close_library(void)
{
    if (blas.handle) blas.destroy(blas.handle);
    bench_vendor_free(blas.workspace);
    blas.handle = blas.workspace = NULL;
}

static const char *info(void) { return blas.info; }

/* Ways 0 and 1 are gemm, 2 and 3 gemv; the odd ones want W transposed. */
static int count_ways(const bench_vendor_problem *p)
{
    int has_gemv = p->dtype == LAC_DTYPE_F32 ? 1 : p->dtype == LAC_DTYPE_F16 ? blas.gemv_f16 != NULL : blas.gemv_bf16 != NULL;
    return p->m == 1 && has_gemv ? 4 : 2;
}

static int wants_transposed(const bench_vendor_problem *p, int way)
{
    (void)p;
    return way & 1;
}

static void name_way(const bench_vendor_problem *p, int way, char *buffer, size_t size)
{
    const char *how = p->dtype == LAC_DTYPE_F32 && p->precision == LAC_PRECISION_TF32 ? "tf32" : lac_dtype_name(p->dtype);
    snprintf(buffer, size, "cublas_%s_%s_%s", way < 2 ? "gemm" : "gemv", how, way & 1 ? "wt" : "w");
}

typedef struct product {
    bench_vendor_problem problem;
    int way;
    const void *w;
} product;

static void *prepare(const bench_vendor_problem *problem, int way, const void *w)
{
    product *made = malloc(sizeof *made);
    if (made) *made = (product){*problem, way, w};
    return made;
}

static const float one = 1, zero = 0;

/* y[n] = W x: column-major, W as it is has k rows. */
static int run_gemv(const product *p, const void *x, void *y)
{
    int n = (int)p->problem.n, k = (int)p->problem.k, transposed = p->way & 1;
    int rows = transposed ? n : k, columns = transposed ? k : n, operation = transposed ? OP_N : OP_T;
    if (p->problem.dtype == LAC_DTYPE_F32)
        return blas.gemv(blas.handle, operation, rows, columns, &one, p->w, rows, x, 1, &zero, y, 1);
    gemv16_fn gemv = p->problem.dtype == LAC_DTYPE_F16 ? blas.gemv_f16 : blas.gemv_bf16;
    return gemv(blas.handle, operation, rows, columns, &one, p->w, rows, 0, x, 1, 0, &zero, y, 1, 0, 1);
}

static int run(void *handle, const void *x, void *y)
{
    const product *p = handle;
    if (p->way >= 2) return run_gemv(p, x, y);
    int m = (int)p->problem.m, n = (int)p->problem.n, k = (int)p->problem.k, transposed = p->way & 1;
    int type = bench_cuda_dtype(p->problem.dtype), ldw = transposed ? n : k;
    int is_tf32 = p->problem.dtype == LAC_DTYPE_F32 && p->problem.precision == LAC_PRECISION_TF32;
    int compute = is_tf32 ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F;
    if (p->problem.layout == LAC_LAYOUT_TOKEN_MAJOR)
        return blas.gemm(blas.handle, transposed ? OP_N : OP_T, OP_N, n, m, k, &one, p->w, type, ldw, x, type, k, &zero, y,
                         type, n, compute, ALGO_DEFAULT);
    return blas.gemm(blas.handle, OP_N, transposed ? OP_T : OP_N, m, n, k, &one, x, type, m, p->w, type, ldw, &zero, y, type, m,
                     compute, ALGO_DEFAULT);
}

const bench_vendor bench_vendor_cublas = {.name = "cuBLAS",
                                          .is_dense = 1,
                                          .open = open_library,
                                          .close = close_library,
                                          .info = info,
                                          .count_ways = count_ways,
                                          .name_way = name_way,
                                          .wants_transposed = wants_transposed,
                                          .prepare = prepare,
                                          .run = run,
                                          .release = free};
