/* nvrtc.h - the compiler for device code, opened when it is first needed, and what comes out of it. */
#ifndef LAC_CUDA_NVRTC_H
#define LAC_CUDA_NVRTC_H

#include <stddef.h>
#include <stdint.h>

#include "lacuna.h"

typedef struct lac_nvrtc_program lac_nvrtc_program; /* the compiler's */

typedef struct lac_nvrtc {
    int version; /* 13000 for 13.0 */
    int (*nvrtcVersion)(int *major, int *minor);
    const char *(*nvrtcGetErrorString)(int result);
    int (*nvrtcCreateProgram)(lac_nvrtc_program **program, const char *source, const char *name, int header_count,
                              const char *const *headers, const char *const *header_names);
    int (*nvrtcCompileProgram)(lac_nvrtc_program *program, int option_count, const char *const *options);
    int (*nvrtcDestroyProgram)(lac_nvrtc_program **program);
    int (*nvrtcGetProgramLogSize)(lac_nvrtc_program *program, size_t *bytes);
    int (*nvrtcGetProgramLog)(lac_nvrtc_program *program, char *log);
    int (*nvrtcGetCUBINSize)(lac_nvrtc_program *program, size_t *bytes);
    int (*nvrtcGetCUBIN)(lac_nvrtc_program *program, char *image);
} lac_nvrtc;

/* The compiler, opened once in a process; NULL when there is none. `note` (may be NULL) as in lac_cuda_driver_get. */
const lac_nvrtc *lac_nvrtc_get(const char **note);
void lac_nvrtc_describe(lac_component_info *info);

/* A compiled program, and what its compiler said of its one kernel. */
typedef struct lac_cuda_image {
    void *data; /* lac_allocate'd */
    uint64_t bytes;
    int registers, spill_bytes, shared_bytes, stack_bytes;
    int serialized; /* 1: the compiler put its matrix products one behind the other */
} lac_cuda_image;

/* What to compile. Headers are what `source` may include by those names. */
typedef struct lac_nvrtc_job {
    const char *name, *source;
    int header_count;
    const char *const *headers, *const *header_names;
    int option_count;
    const char *const *options;
} lac_nvrtc_job;

/* UNSUPPORTED with the first lines of the compiler's words when it refuses. */
lac_status lac_nvrtc_compile(const lac_nvrtc *nvrtc, const lac_nvrtc_job *job, lac_cuda_image *out);

#endif
