/* cusparselt.c - NVIDIA's own product for 2:4 weights (fp32: 1:2, by tf32), with the algorithm that its own search finds.
 * PyTorch brings the library along. vendor.c calls it through its table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"
#include "vendor.h"

/* The numbers of cusparse.h and cusparseLt.h, from version 0.5 on. */
enum { ORDER_COL = 1, ORDER_ROW = 2, OP_N = 0, OP_T = 1, COMPUTE_32F = 2, ALG_DEFAULT = 0, SPARSITY_50 = 0, ALIGNMENT = 16 };

/* The library's own objects lie in the caller's memory: 512 bytes each in version 0.8, 11,024 in older ones. */
typedef struct opaque {
    _Alignas(16) unsigned char bytes[16384];
} opaque;

static struct {
    void *library, *stream, *workspace;
    opaque handle;
    int is_open;
    int (*init)(opaque *handle);
    int (*destroy)(const opaque *handle);
    int (*version)(const opaque *handle, int *number);
    int (*dense_init)(const opaque *handle, opaque *matrix, int64_t rows, int64_t cols, int64_t ld, uint32_t alignment,
                      int type, int order);
    int (*structured_init)(const opaque *handle, opaque *matrix, int64_t rows, int64_t cols, int64_t ld, uint32_t alignment,
                           int type, int order, int sparsity);
    int (*matrix_destroy)(const opaque *matrix);
    int (*matmul_init)(const opaque *handle, opaque *matmul, int op_a, int op_b, const opaque *a, const opaque *b,
                       const opaque *c, const opaque *d, int compute);
    int (*selection_init)(const opaque *handle, opaque *selection, const opaque *matmul, int algorithm);
    int (*plan_init)(const opaque *handle, opaque *plan, const opaque *matmul, const opaque *selection);
    int (*plan_destroy)(const opaque *plan);
    int (*workspace_size)(const opaque *handle, const opaque *plan, size_t *bytes);
    int (*compressed_size)(const opaque *handle, const opaque *plan, size_t *bytes, size_t *buffer_bytes);
    int (*compress)(const opaque *handle, const opaque *plan, const void *dense, void *compressed, void *buffer, void *stream);
    int (*matmul)(const opaque *handle, const opaque *plan, const void *alpha, const void *a, const void *b, const void *beta,
                  const void *c, void *d, void *workspace, void **streams, int32_t stream_count);
    int (*search)(const opaque *handle, opaque *plan, const void *alpha, const void *a, const void *b, const void *beta,
                  const void *c, void *d, void *workspace, void **streams, int32_t stream_count);
    char info[48];
} lt;

#define FUNCTION(field, symbol)                                                                                                \
    {                                                                                                                          \
        .pointer = &lt.field, .name = "cusparseLt" symbol                                                                      \
    }
static const bench_function functions[] = {FUNCTION(destroy, "Destroy"),
                                           FUNCTION(dense_init, "DenseDescriptorInit"),
                                           FUNCTION(structured_init, "StructuredDescriptorInit"),
                                           FUNCTION(matrix_destroy, "MatDescriptorDestroy"),
                                           FUNCTION(matmul_init, "MatmulDescriptorInit"),
                                           FUNCTION(selection_init, "MatmulAlgSelectionInit"),
                                           FUNCTION(plan_init, "MatmulPlanInit"),
                                           FUNCTION(plan_destroy, "MatmulPlanDestroy"),
                                           FUNCTION(workspace_size, "MatmulGetWorkspace"),
                                           FUNCTION(compressed_size, "SpMMACompressedSize"),
                                           FUNCTION(compress, "SpMMACompress"),
                                           FUNCTION(matmul, "Matmul"),
                                           FUNCTION(search, "MatmulSearch"),
                                           FUNCTION(init, "Init"),
                                           FUNCTION(version, "GetVersion"),
                                           {.name = NULL}};

static const char *open_library(void *stream)
{
    static const char *const names[] = {"libcusparseLt.so.0", "libcusparseLt.so", NULL};
    static char why[192];
    int number = 0;
    if (!lt.library && !(lt.library = bench_library_load(names, functions, why, sizeof why))) return why;
    if (lt.init(&lt.handle)) return "cusparseLtInit failed";
    lt.is_open = 1;
    lt.stream = stream;
    if (lt.version(&lt.handle, &number)) return "it does not tell its version";
    /* Before 0.5 plans were made with other arguments. */
    if (number < 500) return "it is older than 0.5";
    lt.workspace = bench_vendor_allocate(BENCH_VENDOR_WORKSPACE);
    if (!lt.workspace) return "there is no device memory for its workspace";
    snprintf(lt.info, sizeof lt.info, "cusparselt=%d.%d.%d", number / 1000, number / 100 % 10, number % 100);
    return NULL;
}

static void close_library(void)
{
    if (lt.is_open) lt.destroy(&lt.handle);
    bench_vendor_free(lt.workspace);
    lt.is_open = 0;
    lt.workspace = NULL;
}

static const char *info(void) { return lt.info; }

/* Of every `group` inputs at most half are nonzero, in every row of W. */
static int is_structured(const bench_vendor_problem *p, int64_t group)
{
    for (int64_t row = 0; row < p->n; row++)
        for (int64_t at = 0; at < p->k; at += group) {
            int64_t kept = 0;
            for (int64_t i = 0; i < group && at + i < p->k; i++) kept += p->w[row * p->k + at + i] != 0;
            if (kept > group / 2) return 0;
        }
    return 1;
}

static int count_ways(const bench_vendor_problem *p)
{
    int is_f32 = p->dtype == LAC_DTYPE_F32;
    int64_t step = is_f32 ? 8 : 16;
    if (is_f32 && p->precision != LAC_PRECISION_TF32) return 0;
    return p->n % step == 0 && p->k % step == 0 && p->m % step == 0 && is_structured(p, is_f32 ? 2 : 4);
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
    snprintf(buffer, size, "cusparselt_%s", lac_dtype_name(p->dtype));
}

/* The plan of a problem; all copies of its weight share it, so that the search is done once. */
typedef struct shared_plan {
    bench_vendor_problem problem;
    opaque w, x, y, matmul, selection, plan;
    int matrices, has_plan, is_searched, holders;
} shared_plan;

typedef struct product {
    shared_plan *shared;
    void *compressed;
} product;

static shared_plan *last; /* the one that was made last, while somebody holds it */

static void release_plan(shared_plan *s)
{
    if (!s || --s->holders > 0) return;
    if (s->has_plan) lt.plan_destroy(&s->plan);
    const opaque *const matrices[] = {&s->w, &s->x, &s->y};
    for (int i = 0; i < s->matrices; i++) lt.matrix_destroy(matrices[i]);
    if (last == s) last = NULL;
    free(s);
}

static void release(void *handle)
{
    product *p = handle;
    if (!p) return;
    release_plan(p->shared);
    bench_vendor_free(p->compressed);
    free(p);
}

/* D[n,m] = W[n,k] B[k,m], where B and D are X and Y or their transposes: the layouts differ only in their order. */
static int describe(shared_plan *s)
{
    int64_t m = s->problem.m, n = s->problem.n, k = s->problem.k;
    int type = bench_cuda_dtype(s->problem.dtype), is_token = s->problem.layout == LAC_LAYOUT_TOKEN_MAJOR;
    if (lt.structured_init(&lt.handle, &s->w, n, k, k, ALIGNMENT, type, ORDER_ROW, SPARSITY_50)) return -1;
    s->matrices = 1;
    if (lt.dense_init(&lt.handle, &s->x, is_token ? m : k, is_token ? k : m, is_token ? k : m, ALIGNMENT, type, ORDER_ROW))
        return -1;
    s->matrices = 2;
    if (lt.dense_init(&lt.handle, &s->y, n, m, is_token ? n : m, ALIGNMENT, type, is_token ? ORDER_COL : ORDER_ROW)) return -1;
    s->matrices = 3;
    if (lt.matmul_init(&lt.handle, &s->matmul, OP_N, is_token ? OP_T : OP_N, &s->w, &s->x, &s->y, &s->y, COMPUTE_32F) ||
        lt.selection_init(&lt.handle, &s->selection, &s->matmul, ALG_DEFAULT) ||
        lt.plan_init(&lt.handle, &s->plan, &s->matmul, &s->selection))
        return -1;
    s->has_plan = 1;
    return 0;
}

static int is_same(const bench_vendor_problem *a, const bench_vendor_problem *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->dtype == b->dtype && a->layout == b->layout;
}

static shared_plan *hold_plan(const bench_vendor_problem *problem)
{
    if (last && is_same(&last->problem, problem)) {
        last->holders++;
        return last;
    }
    shared_plan *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->problem = *problem;
    made->holders = 1;
    if (describe(made)) {
        release_plan(made);
        return NULL;
    }
    return last = made;
}

static void *prepare(const bench_vendor_problem *problem, int way, const void *w)
{
    (void)way;
    size_t compressed_bytes = 0, buffer_bytes = 0;
    void *buffer = NULL;
    product *p = calloc(1, sizeof *p);
    int failed = !p || !(p->shared = hold_plan(problem)) ||
                 lt.compressed_size(&lt.handle, &p->shared->plan, &compressed_bytes, &buffer_bytes);
    if (!failed) {
        p->compressed = bench_vendor_allocate(compressed_bytes);
        buffer = bench_vendor_allocate(buffer_bytes);
        failed = !p->compressed || !buffer || lt.compress(&lt.handle, &p->shared->plan, w, p->compressed, buffer, lt.stream) ||
                 bench_vendor_wait();
    }
    bench_vendor_free(buffer);
    if (!failed) return p;
    release(p);
    return NULL;
}

/* The first call searches: it times the library's algorithms on the real operands and keeps the best in the plan. */
static int run(void *handle, const void *x, void *y)
{
    static const float one = 1, zero = 0;
    const product *p = handle;
    shared_plan *s = p->shared;
    if (!s->is_searched) {
        size_t bytes = 0;
        if (lt.search(&lt.handle, &s->plan, &one, p->compressed, x, &zero, y, y, lt.workspace, &lt.stream, 1) ||
            lt.workspace_size(&lt.handle, &s->plan, &bytes) || bytes > BENCH_VENDOR_WORKSPACE)
            return -1;
        s->is_searched = 1;
    }
    return lt.matmul(&lt.handle, &s->plan, &one, p->compressed, x, &zero, y, y, lt.workspace, &lt.stream, 1);
}

const bench_vendor bench_vendor_cusparselt = {.name = "cuSPARSELt",
                                              .open = open_library,
                                              .close = close_library,
                                              .info = info,
                                              .count_ways = count_ways,
                                              .name_way = name_way,
                                              .wants_transposed = wants_transposed,
                                              .prepare = prepare,
                                              .run = run,
                                              .release = release};
