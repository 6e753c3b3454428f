/* cuda_driver.c - opens libcuda and fills the table of cuda_driver.h. backend_cuda.c calls it. */
#include "cuda_driver.h"

#include <stdio.h>

#include "library.h"

static bench_cuda_driver driver;

#define FUNCTION(field, symbol)                                                                                                \
    {                                                                                                                          \
        .pointer = &driver.field, .name = symbol                                                                               \
    }
static const bench_function functions[] = {FUNCTION(init, "cuInit"),
                                           FUNCTION(driver_version, "cuDriverGetVersion"),
                                           FUNCTION(error_name, "cuGetErrorName"),
                                           FUNCTION(device_get, "cuDeviceGet"),
                                           FUNCTION(device_attribute, "cuDeviceGetAttribute"),
                                           FUNCTION(device_bus, "cuDeviceGetPCIBusId"),
                                           FUNCTION(context_retain, "cuDevicePrimaryCtxRetain"),
                                           FUNCTION(context_release, "cuDevicePrimaryCtxRelease_v2"),
                                           FUNCTION(context_set, "cuCtxSetCurrent"),
                                           FUNCTION(memory_info, "cuMemGetInfo_v2"),
                                           FUNCTION(allocate, "cuMemAlloc_v2"),
                                           FUNCTION(release, "cuMemFree_v2"),
                                           FUNCTION(upload, "cuMemcpyHtoD_v2"),
                                           FUNCTION(download, "cuMemcpyDtoH_v2"),
                                           FUNCTION(copy, "cuMemcpyDtoDAsync_v2"),
                                           FUNCTION(fill, "cuMemsetD8Async"),
                                           FUNCTION(host_allocate, "cuMemHostAlloc"),
                                           FUNCTION(host_release, "cuMemFreeHost"),
                                           FUNCTION(module_load, "cuModuleLoadData"),
                                           FUNCTION(module_unload, "cuModuleUnload"),
                                           FUNCTION(module_function, "cuModuleGetFunction"),
                                           FUNCTION(function_attribute, "cuFuncSetAttribute"),
                                           FUNCTION(launch, "cuLaunchKernel"),
                                           FUNCTION(stream_create, "cuStreamCreate"),
                                           FUNCTION(stream_destroy, "cuStreamDestroy_v2"),
                                           FUNCTION(stream_wait, "cuStreamSynchronize"),
                                           FUNCTION(event_create, "cuEventCreate"),
                                           FUNCTION(event_destroy, "cuEventDestroy_v2"),
                                           FUNCTION(event_record, "cuEventRecord"),
                                           FUNCTION(event_elapsed, "cuEventElapsedTime"),
                                           FUNCTION(capture_begin, "cuStreamBeginCapture_v2"),
                                           FUNCTION(capture_end, "cuStreamEndCapture"),
                                           FUNCTION(graph_instantiate, "cuGraphInstantiateWithFlags"),
                                           FUNCTION(graph_destroy, "cuGraphDestroy"),
                                           FUNCTION(executable_destroy, "cuGraphExecDestroy"),
                                           FUNCTION(graph_launch, "cuGraphLaunch"),
                                           {.name = NULL}};

const bench_cuda_driver *bench_cuda_driver_open(char *why, size_t why_size)
{
    static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
    if (driver.init) return &driver;
    if (bench_library_load(names, functions, why, why_size)) return &driver;
    driver = (bench_cuda_driver){0};
    return NULL;
}

const char *bench_cuda_error(const bench_cuda_driver *with, int result)
{
    const char *name = NULL;
    return with->error_name(result, &name) || !name ? "an unknown error of the CUDA driver" : name;
}
