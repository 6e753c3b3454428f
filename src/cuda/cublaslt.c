/* cublaslt.c - finds and opens libcublasLt, and holds a handle for each open GPU. dense.c calls it. */
#include "cuda/cublaslt.h"

#include <stdio.h>

#include "core/status.h"
#include "cuda/library.h"
#include "cuda/state.h"

static struct {
    lac_library library;
    lac_cublaslt table;
    bool usable;
    char note[640];
} opened;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define SYMBOL(symbol)                                                                                                         \
    {                                                                                                                          \
        .name = #symbol, .offset = offsetof(lac_cublaslt, symbol)                                                              \
    }
static const lac_library_symbol symbols[] = {SYMBOL(cublasLtGetVersion),
                                             SYMBOL(cublasLtGetStatusName),
                                             SYMBOL(cublasLtCreate),
                                             SYMBOL(cublasLtDestroy),
                                             SYMBOL(cublasLtMatrixLayoutInit_internal),
                                             SYMBOL(cublasLtMatmulDescInit_internal),
                                             SYMBOL(cublasLtMatmulDescSetAttribute),
                                             SYMBOL(cublasLtMatmulPreferenceInit_internal),
                                             SYMBOL(cublasLtMatmulPreferenceSetAttribute),
                                             SYMBOL(cublasLtMatmulAlgoGetHeuristic),
                                             SYMBOL(cublasLtMatmul),
                                             {.name = NULL}};

/* The driver's own major version first, then the one before: a library newer than the driver does not start. */
static void search(void)
{
    static const int newest = 13, oldest = 12;
    const char *folders[64];
    char buffer[16384];
    lac_library_folders(folders, sizeof folders / sizeof *folders, buffer, sizeof buffer);
    int driver = lac_cuda_driver_version() / 1000;
    for (int major = driver >= oldest && driver <= newest ? driver : newest; major >= oldest; --major) {
        char name[32];
        snprintf(name, sizeof name, "libcublasLt.so.%d", major);
        if (lac_library_open(&opened.library, name, folders)) return;
    }
}

static void open_library(void)
{
    if (!lac_library_open_override(&opened.library, "LAC_CUBLASLT_LIBRARY")) search();
    opened.usable = lac_library_load(&opened.library, symbols, &opened.table,
                                     "libcublasLt not found in the system, CUDA_HOME or Python's packages: pip install "
                                     "nvidia-cublas, or name it in LAC_CUBLASLT_LIBRARY",
                                     opened.note, sizeof opened.note);
    if (!opened.usable) return;
    opened.table.version = opened.table.cublasLtGetVersion();
    snprintf(opened.note, sizeof opened.note, "cuBLASLt %zu.%zu.%zu in %.500s", opened.table.version / 10000,
             opened.table.version / 100 % 100, opened.table.version % 100, opened.library.path);
}

const lac_cublaslt *lac_cublaslt_get(const char **note)
{
    pthread_once(&once, open_library);
    if (note) *note = opened.note;
    return opened.usable ? &opened.table : NULL;
}

void lac_cublaslt_describe(lac_component_info *info)
{
    pthread_once(&once, open_library);
    lac_library_describe(&opened.library, "libcublasLt", opened.usable, opened.note, info);
    if (opened.usable)
        snprintf(info->version, sizeof info->version, "%zu.%zu.%zu", opened.table.version / 10000,
                 opened.table.version / 100 % 100, opened.table.version % 100);
}

lac_status lac_cublaslt_check(int result, const char *what)
{
    enum { ALLOCATION_FAILED = 3 };
    if (!result) return LAC_STATUS_OK;
    const lac_cublaslt *lt = lac_cublaslt_get(NULL);
    const char *name = lt ? lt->cublasLtGetStatusName(result) : NULL;
    return lac_fail(result == ALLOCATION_FAILED ? LAC_STATUS_OUT_OF_MEMORY : LAC_STATUS_DEVICE, "%s: cuBLASLt's error %d (%s)",
                    what, result, name ? name : "unknown");
}

/* ---- handles */

lac_status lac_cublaslt_handle(const lac_device *device, void **handle)
{
    const char *note;
    const lac_cublaslt *lt = lac_cublaslt_get(&note);
    if (!lt) return lac_fail(LAC_STATUS_UNSUPPORTED, "%.400s", note);
    lac_cuda_state *state = lac_cuda_state_of(device);
    bool entered;
    lac_status status = lac_cuda_enter(device, "cublasLtCreate", &entered);
    if (status) return status;
    pthread_mutex_lock(&state->cublaslt_lock);
    if (!state->cublaslt && (status = lac_cublaslt_check(lt->cublasLtCreate(&state->cublaslt), "cublasLtCreate"))) {
        state->cublaslt = NULL;
        status =
            lac_fail(LAC_STATUS_UNSUPPORTED, "%.400s does not start on %s: %.200s", note, device->info.name, lac_last_error());
    }
    *handle = state->cublaslt;
    pthread_mutex_unlock(&state->cublaslt_lock);
    lac_cuda_leave(device, entered);
    return status;
}

void lac_cublaslt_release(void *handle)
{
    if (handle) lac_cublaslt_get(NULL)->cublasLtDestroy(handle);
}
