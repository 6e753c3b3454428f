/* cublaslt.c - the dense baseline by cuBLASLt: its heuristics name several algorithms for a product, and each one, with W as
 * it is or transposed beforehand, is a way of its own; vendor.c times them and keeps the best. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "vendor.h"

/* The numbers of cublasLt.h. */
enum { OP_N = 0, OP_T = 1, COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, PREF_MAX_WORKSPACE = 1 };
/* So many algorithms for each order of W. */
enum { ALGORITHMS = 8 };

typedef struct heuristic_result {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
} heuristic_result;

static struct {
    void *library, *handle, *workspace, *stream;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    size_t (*version)(void);
    int (*desc_create)(void **desc, int compute, int scale_type);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t size);
    int (*desc_destroy)(void *desc);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t ld);
    int (*layout_destroy)(void *layout);
    int (*preference_create)(void **preference);
    int (*preference_set)(void *preference, int attribute, const void *value, size_t size);
    int (*preference_destroy)(void *preference);
    int (*heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted,
                     heuristic_result *results, int *found);
    int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *layout_a, const void *b, void *layout_b,
                  const void *beta, const void *c, void *layout_c, void *d, void *layout_d, const void *algorithm,
                  void *workspace, size_t workspace_bytes, void *stream);
    char info[48];
} lt;

#define FUNCTION(field, symbol)                                                                                                \
    {                                                                                                                          \
        .pointer = &lt.field, .name = symbol                                                                                   \
    }
static const bench_function functions[] = {FUNCTION(destroy, "cublasLtDestroy"),
                                           FUNCTION(desc_create, "cublasLtMatmulDescCreate"),
                                           FUNCTION(desc_set, "cublasLtMatmulDescSetAttribute"),
                                           FUNCTION(desc_destroy, "cublasLtMatmulDescDestroy"),
                                           FUNCTION(layout_create, "cublasLtMatrixLayoutCreate"),
                                           FUNCTION(layout_destroy, "cublasLtMatrixLayoutDestroy"),
                                           FUNCTION(preference_create, "cublasLtMatmulPreferenceCreate"),
                                           FUNCTION(preference_set, "cublasLtMatmulPreferenceSetAttribute"),
                                           FUNCTION(preference_destroy, "cublasLtMatmulPreferenceDestroy"),
                                           FUNCTION(heuristic, "cublasLtMatmulAlgoGetHeuristic"),
                                           FUNCTION(matmul, "cublasLtMatmul"),
                                           FUNCTION(create, "cublasLtCreate"),
                                           FUNCTION(version, "cublasLtGetVersion"),
                                           {.name = NULL}};

static const char *open_library(void *stream)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11", "libcublasLt.so", NULL};
    static char why[192];
    if (!lt.library && !(lt.library = bench_library_load(names, functions, why, sizeof why))) return why;
    if (lt.create(&lt.handle)) {
        lt.handle = NULL;
        return "cublasLtCreate failed";
    }
    lt.stream = stream;
    lt.workspace = bench_vendor_allocate(BENCH_VENDOR_WORKSPACE);
    if (!lt.workspace) return "there is no device memory for its workspace";
    size_t number = lt.version();
    snprintf(lt.info, sizeof lt.info, "cublaslt=%zu.%zu.%zu", number / 10000, number / 100 % 100, number % 100);
    return NULL;
}

static void close_library(void)
{
    if (lt.handle) lt.destroy(lt.handle);
    bench_vendor_free(lt.workspace);
    lt.handle = lt.workspace = NULL;
}

static const char *info(void) { return lt.info; }

typedef struct product {
    void *desc, *left, *right, *out;
    const void *w;
    int w_is_left;
    heuristic_result best;
} product;

static void release(void *handle)
{
    product *p = handle;
    if (!p) return;
    if (p->desc) lt.desc_destroy(p->desc);
    if (p->left) lt.layout_destroy(p->left);
    if (p->right) lt.layout_destroy(p->right);
    if (p->out) lt.layout_destroy(p->out);
    free(p);
}

/* As in cublas.c: for token-major activations W is the left operand, for feature-major ones the right. */
static int describe(product *p, const bench_vendor_problem *problem, int transposed)
{
    int type = bench_cuda_dtype(problem->dtype);
    int is_tf32 = problem->dtype == LAC_DTYPE_F32 && problem->precision == LAC_PRECISION_TF32;
    uint64_t m = (uint64_t)problem->m, n = (uint64_t)problem->n, k = (uint64_t)problem->k;
    uint64_t w_rows = transposed ? n : k, w_cols = transposed ? k : n;
    p->w_is_left = problem->layout == LAC_LAYOUT_TOKEN_MAJOR;
    int left_op = p->w_is_left && !transposed ? OP_T : OP_N, right_op = !p->w_is_left && transposed ? OP_T : OP_N;
    if (lt.desc_create(&p->desc, is_tf32 ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F, BENCH_CUDA_F32) ||
        lt.desc_set(p->desc, DESC_TRANSA, &left_op, sizeof left_op) ||
        lt.desc_set(p->desc, DESC_TRANSB, &right_op, sizeof right_op))
        return -1;
    if (p->w_is_left)
        return lt.layout_create(&p->left, type, w_rows, w_cols, (int64_t)w_rows) ||
               lt.layout_create(&p->right, type, k, m, (int64_t)k) || lt.layout_create(&p->out, type, n, m, (int64_t)n);
    return lt.layout_create(&p->left, type, m, k, (int64_t)m) ||
           lt.layout_create(&p->right, type, w_rows, w_cols, (int64_t)w_rows) ||
           lt.layout_create(&p->out, type, m, n, (int64_t)m);
}

static int ask(const product *p, heuristic_result results[ALGORITHMS])
{
    void *preference = NULL;
    size_t most = BENCH_VENDOR_WORKSPACE;
    int found = 0;
    if (lt.preference_create(&preference)) return 0;
    if (lt.preference_set(preference, PREF_MAX_WORKSPACE, &most, sizeof most) ||
        lt.heuristic(lt.handle, p->desc, p->left, p->right, p->out, p->out, preference, ALGORITHMS, results, &found))
        found = 0;
    lt.preference_destroy(preference);
    return found;
}

/* Ways are numbered by algorithm, then by order of W: how many there are of each is asked when one is prepared. */
static int count_ways(const bench_vendor_problem *problem)
{
    (void)problem;
    return 2 * ALGORITHMS;
}

static int wants_transposed(const bench_vendor_problem *problem, int way)
{
    (void)problem;
    return way & 1;
}

static void name_way(const bench_vendor_problem *p, int way, char *buffer, size_t size)
{
    const char *how = p->dtype == LAC_DTYPE_F32 && p->precision == LAC_PRECISION_TF32 ? "tf32" : lac_dtype_name(p->dtype);
    snprintf(buffer, size, "cublaslt_matmul_%s_%s_%d", how, way & 1 ? "wt" : "w", way / 2);
}

static void *prepare(const bench_vendor_problem *problem, int way, const void *w)
{
    heuristic_result results[ALGORITHMS];
    product *p = calloc(1, sizeof *p);
    memset(results, 0, sizeof results);
    if (!p || describe(p, problem, way & 1) || ask(p, results) <= way / 2 || results[way / 2].state) {
        release(p);
        return NULL;
    }
    p->best = results[way / 2];
    p->w = w;
    return p;
}

static int run(void *handle, const void *x, void *y)
{
    static const float one = 1, zero = 0;
    const product *p = handle;
    return lt.matmul(lt.handle, p->desc, &one, p->w_is_left ? p->w : x, p->left, p->w_is_left ? x : p->w, p->right, &zero, y,
                     p->out, y, p->out, p->best.algorithm, lt.workspace, BENCH_VENDOR_WORKSPACE, lt.stream);
}

const bench_vendor bench_vendor_cublaslt = {.name = "cuBLASLt",
                                            .is_dense = 1,
                                            .open = open_library,
                                            .close = close_library,
                                            .info = info,
                                            .count_ways = count_ways,
                                            .name_way = name_way,
                                            .wants_transposed = wants_transposed,
                                            .prepare = prepare,
                                            .run = run,
                                            .release = release};
