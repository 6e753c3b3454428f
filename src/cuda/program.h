/* program.h - compiled kernels: from memory, from the cache on disk, or from NVRTC. The dataflows ask for what they need
 * with a lac_cuda_request; `lac_kernels_compile` fills a cache with the same requests on a machine without a GPU. */
#ifndef LAC_CUDA_PROGRAM_H
#define LAC_CUDA_PROGRAM_H

#include "core/kernel.h"
#include "cuda/driver.h"
#include "cuda/nvrtc.h"

enum { LAC_CUDA_MOST_DEFINES = 48, LAC_CUDA_MOST_REQUESTS = 6 };

/* A compile-time constant of a kernel: -Dname=value. */
typedef struct lac_cuda_define {
    const char *name; /* static text */
    int64_t value;
} lac_cuda_define;

/* One kernel, for one exact problem: a file of src/cuda/kernels, its entry point, its constants. */
typedef struct lac_cuda_request {
    const char *source;    /* "strict.cu"                      */
    const char *entry;     /* the extern "C" __global__ in it  */
    unsigned shared_bytes; /* dynamic shared memory that it is launched with, at most; no part of the program */
    int define_count;
    lac_cuda_define defines[LAC_CUDA_MOST_DEFINES];
} lac_cuda_request;

void lac_cuda_request_begin(lac_cuda_request *request, const char *source, const char *entry);
void lac_cuda_request_define(lac_cuda_request *request, const char *name, int64_t value);
/* What every kernel wants to know of a problem: LAC_X_DTYPE, LAC_Y_DTYPE, LAC_C_DTYPE, LAC_BIAS_DTYPE, LAC_W_DTYPE (numbers of
 * lac_dtype), LAC_X_TOKEN_MAJOR, LAC_Y_TOKEN_MAJOR, LAC_HAS_BIAS, LAC_HAS_RESIDUAL, LAC_ACTIVATION (number of lac_activation),
 * LAC_HAS_ROW_PERM. NVRTC's own __CUDA_ARCH__ and __CUDA_ARCH_FEAT_SM90_ALL tell the architecture. */
void lac_cuda_request_define_problem(lac_cuda_request *request, const lac_problem *problem);

/* The dataflow of a kernel: lac_kernel.config of every kernel in src/cuda points to one. */
typedef struct lac_cuda_flow {
    /* The programs that `problem` needs, in the order in which prepare loads them. A pure function: it looks at
     * problem->device->info and lac_cuda_target_of(problem->device), never at the GPU itself. */
    lac_status (*requests)(const lac_problem *problem, lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS], int *count);
} lac_cuda_flow;

/* The function for a request, compiled for the device's architecture and loaded into its context. It lives as long as the
 * device. */
lac_status lac_cuda_program_get(const lac_device *device, const lac_cuda_request *request, lac_cu_function *out);

/* The compiled image alone, for filling a cache and for the tests. */
typedef struct lac_cuda_image_options {
    const char *folder; /* of the cache; NULL: the user's own                                  */
    bool fresh;         /* compile, whatever the cache holds                                   */
    bool must_store;    /* fail when the cache cannot be written, which is otherwise a warning */
    bool any_compiler;  /* take an image of any compiler, as when there is none                */
} lac_cuda_image_options;

/* *found says whether it came out of the cache. Free the image with lac_cuda_image_release. */
lac_status lac_cuda_image_get(const lac_device *device, const lac_cuda_request *request, const lac_cuda_image_options *options,
                              bool *found, lac_cuda_image *out);
void lac_cuda_image_release(lac_cuda_image *image);

#endif
