/* cublas.c - finds and opens cuBLAS and runs it on a GPU's memory. prune/obs_device.c calls it through the device's table;
 * multiplying by sparse weights does not need it.
 *
 * cuBLAS is column-major: a row-major matrix is its own transpose there, an upper triangle a lower one. */
#include "cuda/cublas.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/status.h"
#include "cuda/library.h"
#include "cuda/state.h"

/* The numbers of cublas_api.h. */
enum { OP_N = 0, OP_T = 1, LOWER = 0, LEFT = 0, NON_UNIT = 0, CUBLAS_ALLOC_FAILED = 3 };
/* Those of library_types.h. */
enum { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL, VERSION_PARTS };

typedef struct cublas_table {
    int (*cublasCreate_v2)(void **handle);
    int (*cublasDestroy_v2)(void *handle);
    int (*cublasGetProperty)(int which, int *value); /* unlike cublasGetVersion, without a handle */
    const char *(*cublasGetStatusString)(int status);
    int (*cublasSgemm_v2)(void *handle, int transpose_a, int transpose_b, int m, int n, int k, const float *alpha,
                          const float *a, int lda, const float *b, int ldb, const float *beta, float *c, int ldc);
    int (*cublasSgeam)(void *handle, int transpose_a, int transpose_b, int m, int n, const float *alpha, const float *a,
                       int lda, const float *beta, const float *b, int ldb, float *c, int ldc);
    int (*cublasSsyrk_v2)(void *handle, int triangle, int transpose, int n, int k, const float *alpha, const float *a, int lda,
                          const float *beta, float *c, int ldc);
    int (*cublasStrsm_v2)(void *handle, int side, int triangle, int transpose, int diagonal, int m, int n, const float *alpha,
                          const float *a, int lda, float *b, int ldb);
    int (*cublasScopy_v2)(void *handle, int n, const float *x, int step_x, float *y, int step_y);
} cublas_table;

#define SYMBOL(symbol)                                                                                                         \
    {                                                                                                                          \
        .name = #symbol, .offset = offsetof(cublas_table, symbol)                                                              \
    }
static const lac_library_symbol symbols[] = {SYMBOL(cublasCreate_v2),   SYMBOL(cublasDestroy_v2),
                                             SYMBOL(cublasGetProperty), SYMBOL(cublasGetStatusString),
                                             SYMBOL(cublasSgemm_v2),    SYMBOL(cublasSgeam),
                                             SYMBOL(cublasSsyrk_v2),    SYMBOL(cublasStrsm_v2),
                                             SYMBOL(cublasScopy_v2),    {.name = NULL}};

static struct {
    lac_library library;
    cublas_table table;
    int version[VERSION_PARTS];
    bool usable;
    char note[640];
} opened;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- finding it */

static void search(void)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11", "libcublas.so"};
    const char *folders[64];
    char buffer[16384];
    lac_library_folders(folders, sizeof folders / sizeof *folders, buffer, sizeof buffer);
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
        if (lac_library_open(&opened.library, names[i], folders)) return;
}

static void open_cublas(void)
{
    if (!lac_library_open_override(&opened.library, "LAC_CUBLAS_LIBRARY")) search();
    opened.usable = lac_library_load(&opened.library, symbols, &opened.table,
                                     "libcublas not found in the system, CUDA_HOME or Python's packages; name it in "
                                     "LAC_CUBLAS_LIBRARY. Pruning on a GPU needs it, nothing else does",
                                     opened.note, sizeof opened.note);
    if (!opened.usable) return;
    for (int part = MAJOR_VERSION; part < VERSION_PARTS; ++part) opened.table.cublasGetProperty(part, &opened.version[part]);
}

void lac_cublas_describe(lac_component_info *info)
{
    pthread_once(&once, open_cublas);
    lac_library_describe(&opened.library, "libcublas", opened.usable, opened.note, info);
    if (opened.usable)
        snprintf(info->version, sizeof info->version, "%d.%d.%d", opened.version[MAJOR_VERSION], opened.version[MINOR_VERSION],
                 opened.version[PATCH_LEVEL]);
}

/* ---- an engine */

typedef struct cublas_engine {
    const lac_device *device;
    void *handle;
} cublas_engine;

static const float one = 1, minus_one = -1, zero = 0;

static lac_status check(int result, const char *what)
{
    if (!result) return LAC_STATUS_OK;
    return lac_fail(result == CUBLAS_ALLOC_FAILED ? LAC_STATUS_OUT_OF_MEMORY : LAC_STATUS_DEVICE, "%s: cuBLAS says %d (%s)",
                    what, result, opened.table.cublasGetStatusString(result));
}

static lac_status open_engine(const lac_device *device, void **out)
{
    pthread_once(&once, open_cublas);
    if (!opened.usable) return lac_fail(LAC_STATUS_NOT_FOUND, "device is %s: %s", device->info.name, opened.note);
    cublas_engine *engine = lac_allocate(sizeof *engine);
    if (!engine) return lac_fail_memory("an engine", sizeof *engine);
    *engine = (cublas_engine){.device = device};
    bool entered;
    lac_status status = lac_cuda_enter(device, "cuBLAS", &entered);
    if (status == LAC_STATUS_OK) {
        status = check(opened.table.cublasCreate_v2(&engine->handle), "cublasCreate");
        lac_cuda_leave(device, entered);
    }
    if (status != LAC_STATUS_OK) {
        lac_release(engine);
        return status;
    }
    *out = engine;
    return LAC_STATUS_OK;
}

static void close_engine(void *given)
{
    cublas_engine *engine = given;
    bool entered;
    if (!engine) return;
    if (lac_cuda_enter(engine->device, "cuBLAS", &entered) == LAC_STATUS_OK) {
        opened.table.cublasDestroy_v2(engine->handle);
        lac_cuda_leave(engine->device, entered);
    }
    lac_release(engine);
}

/* cuBLAS counts in int. */
static lac_status check_sizes(const char *what, int64_t a, int64_t b, int64_t c)
{
    int64_t most = a > b ? a : b;
    if (c > most) most = c;
    if (most <= INT_MAX) return LAC_STATUS_OK;
    return lac_fail(LAC_STATUS_UNSUPPORTED, "%s: a dimension of %lld is more than cuBLAS takes", what, (long long)most);
}

static lac_status multiply(void *given, const lac_product *p)
{
    const cublas_engine *engine = given;
    bool entered;
    if (p->rows <= 0 || p->cols <= 0 || p->depth <= 0) return LAC_STATUS_OK;
    lac_status status = check_sizes("multiply", p->rows, p->cols, p->depth);
    if (status == LAC_STATUS_OK) status = lac_cuda_enter(engine->device, "multiply", &entered);
    if (status != LAC_STATUS_OK) return status;
    status = check(opened.table.cublasSgemm_v2(engine->handle, p->turn_b ? OP_T : OP_N, p->turn_a ? OP_T : OP_N, (int)p->cols,
                                               (int)p->rows, (int)p->depth, &p->alpha, p->b, (int)p->ldb, p->a, (int)p->lda,
                                               &one, p->c, (int)p->ldc),
                   "multiply");
    lac_cuda_leave(engine->device, entered);
    return status;
}

static lac_status copy(void *given, int64_t rows, int64_t cols, const float *from, int64_t ld_from, float *to, int64_t ld_to)
{
    const cublas_engine *engine = given;
    bool entered;
    if (rows <= 0 || cols <= 0) return LAC_STATUS_OK;
    lac_status status = check_sizes("copy", rows, ld_from, ld_to);
    if (status == LAC_STATUS_OK) status = lac_cuda_enter(engine->device, "copy", &entered);
    if (status != LAC_STATUS_OK) return status;
    status = check(opened.table.cublasSgeam(engine->handle, OP_N, OP_N, (int)cols, (int)rows, &one, from, (int)ld_from, &zero,
                                            to, (int)ld_to, to, (int)ld_to),
                   "copy");
    lac_cuda_leave(engine->device, entered);
    return status;
}

/* y V^T = x for every row is V Y^T = X^T: from the left, by the transpose of what cuBLAS sees as a lower triangle. */
static lac_status solve_rows(void *given, int64_t size, const float *v, int64_t ld_v, int64_t count, float *b, int64_t ld_b)
{
    const cublas_engine *engine = given;
    bool entered;
    if (size <= 0 || count <= 0) return LAC_STATUS_OK;
    lac_status status = check_sizes("solve", count, ld_v, ld_b);
    if (status == LAC_STATUS_OK) status = lac_cuda_enter(engine->device, "solve", &entered);
    if (status != LAC_STATUS_OK) return status;
    status = check(opened.table.cublasStrsm_v2(engine->handle, LEFT, LOWER, OP_T, NON_UNIT, (int)size, (int)count, &one, v,
                                               (int)ld_v, b, (int)ld_b),
                   "solve");
    lac_cuda_leave(engine->device, entered);
    return status;
}

static lac_status subtract_square(void *given, int64_t size, int64_t depth, const float *p, int64_t ld_p, float *c,
                                  int64_t ld_c)
{
    const cublas_engine *engine = given;
    bool entered;
    if (size <= 0 || depth <= 0) return LAC_STATUS_OK;
    lac_status status = check_sizes("update", size, ld_p, ld_c);
    if (status == LAC_STATUS_OK) status = lac_cuda_enter(engine->device, "update", &entered);
    if (status != LAC_STATUS_OK) return status;
    status = check(opened.table.cublasSsyrk_v2(engine->handle, LOWER, OP_T, (int)size, (int)depth, &minus_one, p, (int)ld_p,
                                               &one, c, (int)ld_c),
                   "update");
    lac_cuda_leave(engine->device, entered);
    return status;
}

/* U V = I is V^T U^T = I: the lower triangle that cuBLAS sees, from the left, into the identity. */
static lac_status invert_upper(void *given, int64_t size, const float *v, const float *ones, float *out)
{
    const cublas_engine *engine = given;
    const lac_cuda_driver *driver = lac_cuda_state_of(engine->device)->driver;
    bool entered;
    lac_status status = check_sizes("invert", size + 1, size, size);
    if (status == LAC_STATUS_OK) status = lac_cuda_enter(engine->device, "invert", &entered);
    if (status != LAC_STATUS_OK) return status;
    status = lac_cuda_check(driver->cuMemsetD8((lac_cu_pointer)(uintptr_t)out, 0, (size_t)size * (size_t)size * sizeof(float)),
                            "invert");
    if (status == LAC_STATUS_OK)
        status = check(opened.table.cublasScopy_v2(engine->handle, (int)size, ones, 1, out, (int)size + 1), "invert");
    if (status == LAC_STATUS_OK)
        status = check(opened.table.cublasStrsm_v2(engine->handle, LEFT, LOWER, OP_N, NON_UNIT, (int)size, (int)size, &one, v,
                                                   (int)size, out, (int)size),
                       "invert");
    lac_cuda_leave(engine->device, entered);
    return status;
}

const lac_linear_ops lac_cublas_linear_ops = {.open = open_engine,
                                              .close = close_engine,
                                              .multiply = multiply,
                                              .copy = copy,
                                              .solve_rows = solve_rows,
                                              .subtract_square = subtract_square,
                                              .invert_upper = invert_upper};
