/* cusparse.c - the product by cuSPARSE on compressed sparse rows, for those who wonder; `--baseline all` asks for it. It
 * knows nothing of patterns. vendor.c calls it through its table. */
#include <stdio.h>
#include <stdlib.h>

#include "data.h"
#include "library.h"
#include "vendor.h"

/* The numbers of cusparse.h. */
enum { ORDER_COL = 1, ORDER_ROW = 2, OP_N = 0, INDEX_32 = 2, BASE_ZERO = 0, ALG_DEFAULT = 0 };

static struct {
    void *library, *handle;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*version)(void *handle, int *number);
    int (*csr_create)(void **matrix, int64_t rows, int64_t cols, int64_t kept, void *offsets, void *columns, void *values,
                      int offset_type, int column_type, int base, int type);
    int (*csr_destroy)(void *matrix);
    int (*dense_create)(void **matrix, int64_t rows, int64_t cols, int64_t ld, void *values, int type, int order);
    int (*dense_set)(void *matrix, void *values);
    int (*dense_destroy)(void *matrix);
    int (*buffer_size)(void *handle, int op_a, int op_b, const void *alpha, void *a, void *b, const void *beta, void *c,
                       int compute, int algorithm, size_t *bytes);
    int (*multiply)(void *handle, int op_a, int op_b, const void *alpha, void *a, void *b, const void *beta, void *c,
                    int compute, int algorithm, void *buffer);
    char info[48];
} sparse;

#define FUNCTION(field, symbol)                                                                                                \
    {                                                                                                                          \
        .pointer = &sparse.field, .name = "cusparse" symbol                                                                    \
    }
static const bench_function functions[] = {FUNCTION(destroy, "Destroy"),
                                           FUNCTION(csr_create, "CreateCsr"),
                                           FUNCTION(csr_destroy, "DestroySpMat"),
                                           FUNCTION(dense_create, "CreateDnMat"),
                                           FUNCTION(dense_set, "DnMatSetValues"),
                                           FUNCTION(dense_destroy, "DestroyDnMat"),
                                           FUNCTION(buffer_size, "SpMM_bufferSize"),
                                           FUNCTION(multiply, "SpMM"),
                                           FUNCTION(create, "Create"),
                                           FUNCTION(set_stream, "SetStream"),
                                           FUNCTION(version, "GetVersion"),
                                           {.name = NULL}};

static const char *open_library(void *stream)
{
    static const char *const names[] = {"libcusparse.so.12", "libcusparse.so.11", "libcusparse.so", NULL};
    static char why[192];
    int number = 0;
    if (!sparse.library && !(sparse.library = bench_library_load(names, functions, why, sizeof why))) return why;
    if (sparse.create(&sparse.handle)) {
        sparse.handle = NULL;
        return "cusparseCreate failed";
    }
    if (sparse.set_stream(sparse.handle, stream) || sparse.version(sparse.handle, &number)) return "cuSPARSE takes no stream";
    snprintf(sparse.info, sizeof sparse.info, "cusparse=%d.%d.%d", number / 1000, number / 100 % 10, number % 100);
    return NULL;
}

static void close_library(void)
{
    if (sparse.handle) sparse.destroy(sparse.handle);
    sparse.handle = NULL;
}

static const char *info(void) { return sparse.info; }

static int count_ways(const bench_vendor_problem *p)
{
    /* Its 16-bit products were seen to be off by more than fp32 sums allow. */
    return p->dtype == LAC_DTYPE_F32 && p->precision != LAC_PRECISION_TF32;
}

static int wants_transposed(const bench_vendor_problem *p, int way)
{
    (void)p;
    (void)way;
    return 0;
}

static void name_way(const bench_vendor_problem *p, int way, char *buffer, size_t size)
{
    (void)way;
    snprintf(buffer, size, "cusparse_csr_%s", lac_dtype_name(p->dtype));
}

typedef struct product {
    void *matrix, *x, *y;                      /* descriptions */
    void *offsets, *columns, *values, *buffer; /* device memory */
} product;

static void release(void *handle)
{
    product *p = handle;
    if (!p) return;
    if (p->matrix) sparse.csr_destroy(p->matrix);
    if (p->x) sparse.dense_destroy(p->x);
    if (p->y) sparse.dense_destroy(p->y);
    bench_vendor_free(p->offsets);
    bench_vendor_free(p->columns);
    bench_vendor_free(p->values);
    bench_vendor_free(p->buffer);
    free(p);
}

static void *to_device(const void *host, size_t bytes)
{
    void *block = host ? bench_vendor_allocate(bytes) : NULL;
    if (block) bench_vendor_upload(block, host, bytes);
    return block;
}

static int compress(product *p, const bench_vendor_problem *problem)
{
    int64_t count = problem->n * problem->k, kept = 0;
    for (int64_t i = 0; i < count; i++) kept += problem->w[i] != 0;
    size_t size = lac_dtype_size(problem->dtype);
    int32_t *offsets = malloc((size_t)(problem->n + 1) * sizeof *offsets);
    int32_t *columns = malloc((size_t)(kept + 1) * sizeof *columns);
    void *values = malloc((size_t)(kept + 1) * size);
    int64_t at = 0;
    for (int64_t row = 0; offsets && columns && values && row < problem->n; row++) {
        offsets[row] = (int32_t)at;
        for (int64_t i = 0; i < problem->k; i++) {
            float value = problem->w[row * problem->k + i];
            if (value == 0) continue;
            columns[at] = (int32_t)i;
            bench_element_store(values, problem->dtype, at++, value);
        }
    }
    if (offsets) offsets[problem->n] = (int32_t)at;
    p->offsets = to_device(offsets, (size_t)(problem->n + 1) * sizeof *offsets);
    p->columns = to_device(columns, (size_t)(kept + 1) * sizeof *columns);
    p->values = to_device(values, (size_t)(kept + 1) * size);
    free(offsets);
    free(columns);
    free(values);
    return !p->offsets || !p->columns || !p->values ||
           sparse.csr_create(&p->matrix, problem->n, problem->k, kept, p->offsets, p->columns, p->values, INDEX_32, INDEX_32,
                             BASE_ZERO, bench_cuda_dtype(problem->dtype));
}

static const float one = 1, zero = 0;

/* D[n,m] = W[n,k] B[k,m], where B and D are X and Y or their transposes. */
static void *prepare(const bench_vendor_problem *problem, int way, const void *w)
{
    (void)way;
    int64_t m = problem->m, n = problem->n, k = problem->k;
    int type = bench_cuda_dtype(problem->dtype), is_token = problem->layout == LAC_LAYOUT_TOKEN_MAJOR;
    int order = is_token ? ORDER_COL : ORDER_ROW;
    size_t bytes = 0;
    product *p = calloc(1, sizeof *p);
    /* Any address will do for the descriptions: each call sets its own. */
    if (!p || compress(p, problem) || sparse.dense_create(&p->x, k, m, is_token ? k : m, (void *)(uintptr_t)w, type, order) ||
        sparse.dense_create(&p->y, n, m, is_token ? n : m, (void *)(uintptr_t)w, type, order) ||
        sparse.buffer_size(sparse.handle, OP_N, OP_N, &one, p->matrix, p->x, &zero, p->y, BENCH_CUDA_F32, ALG_DEFAULT,
                           &bytes) ||
        !(p->buffer = bench_vendor_allocate(bytes))) {
        release(p);
        return NULL;
    }
    return p;
}

static int run(void *handle, const void *x, void *y)
{
    product *p = handle;
    return sparse.dense_set(p->x, (void *)(uintptr_t)x) || sparse.dense_set(p->y, y) ||
           sparse.multiply(sparse.handle, OP_N, OP_N, &one, p->matrix, p->x, &zero, p->y, BENCH_CUDA_F32, ALG_DEFAULT,
                           p->buffer);
}

const bench_vendor bench_vendor_cusparse = {.name = "cuSPARSE",
                                            .open = open_library,
                                            .close = close_library,
                                            .info = info,
                                            .count_ways = count_ways,
                                            .name_way = name_way,
                                            .wants_transposed = wants_transposed,
                                            .prepare = prepare,
                                            .run = run,
                                            .release = release};
