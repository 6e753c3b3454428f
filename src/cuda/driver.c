/* driver.c - opens libcuda, once, when a device is first looked for, and fills in the table of its functions. Without a
 * driver, or with one that is too old, everything else in src/cuda finds no device and the CPU is used. */
#include "cuda/driver.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "core/status.h"
#include "cuda/library.h"

static struct {
    lac_library library;
    lac_cuda_driver table;
    int version;
    bool usable;
    char note[512];
} opened;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define NEEDED(field, symbol)                                                                                                  \
    {                                                                                                                          \
        .name = symbol, .offset = offsetof(lac_cuda_driver, field)                                                             \
    }
#define OPTIONAL(field, symbol)                                                                                                \
    {                                                                                                                          \
        .name = symbol, .offset = offsetof(lac_cuda_driver, field), .is_optional = true                                        \
    }

/* The names under which the driver exports the interfaces that driver.h declares: where there are several versions of a
 * function, the header of the toolkit picks one by a macro, and here it is written out. */
static const lac_library_symbol symbols[] = {
    NEEDED(cuInit, "cuInit"),
    NEEDED(cuDriverGetVersion, "cuDriverGetVersion"),
    NEEDED(cuGetErrorName, "cuGetErrorName"),
    NEEDED(cuGetErrorString, "cuGetErrorString"),
    NEEDED(cuDeviceGetCount, "cuDeviceGetCount"),
    NEEDED(cuDeviceGet, "cuDeviceGet"),
    NEEDED(cuDeviceGetName, "cuDeviceGetName"),
    NEEDED(cuDeviceGetAttribute, "cuDeviceGetAttribute"),
    NEEDED(cuDeviceTotalMem, "cuDeviceTotalMem_v2"),
    NEEDED(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain"),
    NEEDED(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2"),
    NEEDED(cuCtxGetCurrent, "cuCtxGetCurrent"),
    NEEDED(cuCtxPushCurrent, "cuCtxPushCurrent_v2"),
    NEEDED(cuCtxPopCurrent, "cuCtxPopCurrent_v2"),
    NEEDED(cuCtxSynchronize, "cuCtxSynchronize"),
    NEEDED(cuModuleLoadData, "cuModuleLoadData"),
    NEEDED(cuModuleUnload, "cuModuleUnload"),
    NEEDED(cuModuleGetFunction, "cuModuleGetFunction"),
    NEEDED(cuFuncGetAttribute, "cuFuncGetAttribute"),
    NEEDED(cuFuncSetAttribute, "cuFuncSetAttribute"),
    NEEDED(cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor"),
    NEEDED(cuMemAlloc, "cuMemAlloc_v2"),
    NEEDED(cuMemFree, "cuMemFree_v2"),
    NEEDED(cuMemcpyHtoD, "cuMemcpyHtoD_v2"),
    NEEDED(cuMemcpyDtoH, "cuMemcpyDtoH_v2"),
    NEEDED(cuMemcpyHtoDAsync, "cuMemcpyHtoDAsync_v2"),
    NEEDED(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2"),
    NEEDED(cuMemsetD8, "cuMemsetD8_v2"),
    NEEDED(cuMemsetD8Async, "cuMemsetD8Async"),
    NEEDED(cuPointerGetAttributes, "cuPointerGetAttributes"),
    NEEDED(cuStreamCreate, "cuStreamCreate"),
    NEEDED(cuStreamDestroy, "cuStreamDestroy_v2"),
    NEEDED(cuStreamSynchronize, "cuStreamSynchronize"),
    NEEDED(cuEventCreate, "cuEventCreate"),
    NEEDED(cuEventDestroy, "cuEventDestroy_v2"),
    NEEDED(cuEventRecord, "cuEventRecord"),
    NEEDED(cuEventSynchronize, "cuEventSynchronize"),
    NEEDED(cuEventElapsedTime, "cuEventElapsedTime"),
    NEEDED(cuLaunchKernelEx, "cuLaunchKernelEx"),
    OPTIONAL(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode"),
    OPTIONAL(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled"),
    {.name = NULL}};

static void note_failure(int result)
{
    const char *name = NULL, *text = NULL;
    opened.table.cuGetErrorName(result, &name);
    opened.table.cuGetErrorString(result, &text);
    if (result == LAC_CU_NO_DEVICE)
        snprintf(opened.note, sizeof opened.note, "the driver finds no GPU");
    else if (result == LAC_CU_STUB_LIBRARY)
        snprintf(opened.note, sizeof opened.note, "this is the toolkit's stub for linking, not a driver");
    else
        snprintf(opened.note, sizeof opened.note, "cuInit failed: %s, %s", name ? name : "unknown error", text ? text : "");
}

static void open_driver(void)
{
    static const char *const folders[] = {"/usr/lib/wsl/lib", "/usr/lib64/nvidia", "/usr/lib/nvidia", NULL};
    if (!lac_library_open_override(&opened.library, "LAC_CUDA_LIBRARY"))
        lac_library_open(&opened.library, "libcuda.so.1", folders);
    if (!opened.library.handle) {
        snprintf(opened.note, sizeof opened.note, "%s",
                 *opened.library.note ? opened.library.note
                                      : "libcuda.so.1 not found: no NVIDIA driver is installed (LAC_CUDA_LIBRARY may name it)");
        return;
    }
    const char *missing = lac_library_find(&opened.library, symbols, &opened.table);
    if (opened.table.cuDriverGetVersion) opened.table.cuDriverGetVersion(&opened.version);
    if (missing) {
        snprintf(opened.note, sizeof opened.note, "the driver (CUDA %d.%d) is too old: it has no %s; CUDA 11.8 and later do",
                 opened.version / 1000, opened.version % 1000 / 10, missing);
        return;
    }
    int result = opened.table.cuInit(0);
    if (result) {
        note_failure(result);
        return;
    }
    opened.usable = true;
    snprintf(opened.note, sizeof opened.note, "driver of CUDA %d.%d in %.300s", opened.version / 1000,
             opened.version % 1000 / 10, opened.library.path);
}

const lac_cuda_driver *lac_cuda_driver_get(const char **note)
{
    pthread_once(&once, open_driver);
    if (note) *note = opened.note;
    return opened.usable ? &opened.table : NULL;
}

int lac_cuda_driver_version(void)
{
    pthread_once(&once, open_driver);
    return opened.usable ? opened.version : 0;
}

void lac_cuda_driver_describe(lac_component_info *info)
{
    pthread_once(&once, open_driver);
    lac_library_describe(&opened.library, "libcuda", opened.usable, opened.note, info);
    if (opened.version)
        snprintf(info->version, sizeof info->version, "%d.%d", opened.version / 1000, opened.version % 1000 / 10);
}

bool lac_cuda_driver_traced(void)
{
    pthread_once(&once, open_driver);
    return opened.library.handle || access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0;
}

lac_status lac_cuda_check(int result, const char *what)
{
    if (result == LAC_CU_OK) return LAC_STATUS_OK;
    const char *name = NULL, *text = NULL;
    const lac_cuda_driver *driver = lac_cuda_driver_get(NULL);
    if (driver) {
        driver->cuGetErrorName(result, &name);
        driver->cuGetErrorString(result, &text);
    }
    return lac_fail(result == LAC_CU_OUT_OF_MEMORY ? LAC_STATUS_OUT_OF_MEMORY : LAC_STATUS_DEVICE, "%s: error %d (%s): %s",
                    what, result, name ? name : "unknown", text ? text : "no text");
}
