/* driver.h - the part of the CUDA driver's interface that Lacuna calls, declared here so that building needs no CUDA
 * toolkit. driver.c opens libcuda when a device is first looked for; everything else in src/cuda calls through the table. */
#ifndef LAC_CUDA_DRIVER_H
#define LAC_CUDA_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lacuna.h"

typedef uint64_t lac_cu_pointer; /* an address in device memory */
typedef int lac_cu_device;
typedef struct CUctx_st *lac_cu_context;
typedef struct CUmod_st *lac_cu_module;
typedef struct CUfunc_st *lac_cu_function;
typedef struct CUstream_st *lac_cu_stream;
typedef struct CUevent_st *lac_cu_event;

/* CUresult values that are told apart. */
enum {
    LAC_CU_OK = 0,
    LAC_CU_OUT_OF_MEMORY = 2,
    LAC_CU_STUB_LIBRARY = 34,
    LAC_CU_NO_DEVICE = 100,
    LAC_CU_INVALID_IMAGE = 200,
    LAC_CU_NO_BINARY = 209
};

/* CUdevice_attribute, CUfunction_attribute and CUpointer_attribute values that are asked for. */
enum {
    LAC_CU_DEVICE_CLOCK = 13, /* kHz */
    LAC_CU_DEVICE_MULTIPROCESSORS = 16,
    LAC_CU_DEVICE_COMPUTE_MODE = 20,
    LAC_CU_DEVICE_MEMORY_CLOCK = 36, /* kHz  */
    LAC_CU_DEVICE_MEMORY_WIDTH = 37, /* bits */
    LAC_CU_DEVICE_L2_BYTES = 38,
    LAC_CU_DEVICE_MAJOR = 75,
    LAC_CU_DEVICE_MINOR = 76,
    LAC_CU_DEVICE_SHARED_PER_MULTIPROCESSOR = 81,
    LAC_CU_DEVICE_SHARED_PER_BLOCK = 97, /* that a kernel may ask for */
    LAC_CU_FUNCTION_DYNAMIC_SHARED = 8,
    LAC_CU_POINTER_MEMORY_TYPE = 2,
    LAC_CU_POINTER_IS_MANAGED = 8,
    LAC_CU_POINTER_ORDINAL = 9,
    LAC_CU_MEMORY_TYPE_DEVICE = 2,
    LAC_CU_ATTRIBUTE_TOGETHER = 2, /* of a launch: cooperative */
    LAC_CU_ATTRIBUTE_CLUSTER = 4,
    LAC_CU_ATTRIBUTE_EARLY = 6, /* programmatic stream serialization */
    LAC_CU_STREAM_NON_BLOCKING = 1,
    LAC_CU_CAPTURE_RELAXED = 2
};

/* As the driver defines it for cuLaunchKernelEx: attributes are 72 bytes each. */
typedef struct lac_cu_launch_attribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        unsigned cluster[3];
        int early, together;
    } value;
} lac_cu_launch_attribute;

typedef struct lac_cu_launch_config {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    lac_cu_stream stream;
    lac_cu_launch_attribute *attributes;
    unsigned attribute_count;
} lac_cu_launch_config;

typedef struct lac_cuda_driver {
    int (*cuInit)(unsigned flags);
    int (*cuDriverGetVersion)(int *version);
    int (*cuGetErrorName)(int error, const char **name);
    int (*cuGetErrorString)(int error, const char **text);
    int (*cuDeviceGetCount)(int *count);
    int (*cuDeviceGet)(lac_cu_device *device, int ordinal);
    int (*cuDeviceGetName)(char *name, int length, lac_cu_device device);
    int (*cuDeviceGetAttribute)(int *value, int attribute, lac_cu_device device);
    int (*cuDeviceTotalMem)(size_t *bytes, lac_cu_device device);
    int (*cuDevicePrimaryCtxRetain)(lac_cu_context *context, lac_cu_device device);
    int (*cuDevicePrimaryCtxRelease)(lac_cu_device device);
    int (*cuCtxGetCurrent)(lac_cu_context *context);
    int (*cuCtxPushCurrent)(lac_cu_context context);
    int (*cuCtxPopCurrent)(lac_cu_context *context);
    int (*cuCtxSynchronize)(void);
    int (*cuModuleLoadData)(lac_cu_module *module, const void *image);
    int (*cuModuleUnload)(lac_cu_module module);
    int (*cuModuleGetFunction)(lac_cu_function *function, lac_cu_module module, const char *name);
    int (*cuFuncGetAttribute)(int *value, int attribute, lac_cu_function function);
    int (*cuFuncSetAttribute)(lac_cu_function function, int attribute, int value);
    int (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *blocks, lac_cu_function function, int threads, size_t shared);
    int (*cuMemAlloc)(lac_cu_pointer *pointer, size_t bytes);
    int (*cuMemFree)(lac_cu_pointer pointer);
    int (*cuMemcpyHtoD)(lac_cu_pointer to, const void *from, size_t bytes);
    int (*cuMemcpyDtoH)(void *to, lac_cu_pointer from, size_t bytes);
    int (*cuMemcpyHtoDAsync)(lac_cu_pointer to, const void *from, size_t bytes, lac_cu_stream stream);
    int (*cuMemcpyDtoDAsync)(lac_cu_pointer to, lac_cu_pointer from, size_t bytes, lac_cu_stream stream);
    int (*cuMemsetD8)(lac_cu_pointer to, unsigned char value, size_t bytes);
    int (*cuMemsetD8Async)(lac_cu_pointer to, unsigned char value, size_t bytes, lac_cu_stream stream);
    int (*cuPointerGetAttributes)(unsigned count, int *attributes, void **values, lac_cu_pointer pointer);
    int (*cuStreamCreate)(lac_cu_stream *stream, unsigned flags);
    int (*cuStreamDestroy)(lac_cu_stream stream);
    int (*cuStreamSynchronize)(lac_cu_stream stream);
    int (*cuEventCreate)(lac_cu_event *event, unsigned flags);
    int (*cuEventDestroy)(lac_cu_event event);
    int (*cuEventRecord)(lac_cu_event event, lac_cu_stream stream);
    int (*cuEventSynchronize)(lac_cu_event event);
    int (*cuEventElapsedTime)(float *milliseconds, lac_cu_event from, lac_cu_event to);
    int (*cuLaunchKernelEx)(const lac_cu_launch_config *config, lac_cu_function function, void **parameters, void **extra);
    /* Optional: NULL when the driver is too old for it. */
    int (*cuThreadExchangeStreamCaptureMode)(int *mode);
    /* Optional too. TMA needs it. */
    int (*cuTensorMapEncodeTiled)(void *map, int type, unsigned rank, void *address, const uint64_t *sizes,
                                  const uint64_t *strides, const unsigned *box, const unsigned *element_strides, int interleave,
                                  int swizzle, int promotion, int fill);
} lac_cuda_driver;

/* The driver, opened once in a process; NULL when there is none. `note` (may be NULL) says what was found where, or what is
 * missing; it lives as long as the process. Any thread may call it. */
const lac_cuda_driver *lac_cuda_driver_get(const char **note);
/* What `lacuna devices` shows of it: whether it was found, its version, where, and what is wrong with it. Also whether the
 * machine shows any sign of an NVIDIA GPU or its driver. */
void lac_cuda_driver_describe(lac_component_info *info);
bool lac_cuda_driver_traced(void);
/* 13000 for CUDA 13.0; 0 without a driver. */
int lac_cuda_driver_version(void);

/* OK for 0; otherwise lac_fail with the driver's own name and text of the error after `what`: OUT_OF_MEMORY or DEVICE. */
lac_status lac_cuda_check(int result, const char *what);

#endif
