/* cuda_driver.h - the few calls of the CUDA driver that the benchmark makes by itself: memory, a stream, events, graphs.
 * Declared here, so that building needs no CUDA toolkit; libcuda is opened when a GPU is benchmarked. */
#ifndef LACUNA_BENCH_CUDA_DRIVER_H
#define LACUNA_BENCH_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef struct bench_cuda_driver {
    int (*init)(unsigned flags);
    int (*driver_version)(int *version);
    int (*error_name)(int error, const char **name);
    int (*device_get)(int *device, int ordinal);
    int (*device_attribute)(int *value, int attribute, int device);
    int (*device_bus)(char *text, int length, int device);
    int (*context_retain)(void **context, int device);
    int (*context_release)(int device);
    int (*context_set)(void *context);
    int (*memory_info)(size_t *available, size_t *total);
    int (*allocate)(uint64_t *address, size_t bytes);
    int (*release)(uint64_t address);
    int (*upload)(uint64_t to, const void *from, size_t bytes);
    int (*download)(void *to, uint64_t from, size_t bytes);
    int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);
    int (*fill)(uint64_t to, unsigned char value, size_t bytes, void *stream);
    int (*host_allocate)(void **block, size_t bytes, unsigned flags);
    int (*host_release)(void *block);
    int (*module_load)(void **module, const void *image);
    int (*module_unload)(void *module);
    int (*module_function)(void **function, void *module, const char *name);
    int (*function_attribute)(void *function, int attribute, int value);
    int (*launch)(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                  unsigned block_z, unsigned shared_bytes, void *stream, void **parameters, void **extra);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_wait)(void *stream);
    int (*event_create)(void **event, unsigned flags);
    int (*event_destroy)(void *event);
    int (*event_record)(void *event, void *stream);
    int (*event_elapsed)(float *milliseconds, void *from, void *to);
    int (*capture_begin)(void *stream, int mode);
    int (*capture_end)(void *stream, void **graph);
    int (*graph_instantiate)(void **executable, void *graph, unsigned long long flags);
    int (*graph_destroy)(void *graph);
    int (*executable_destroy)(void *executable);
    int (*graph_launch)(void *executable, void *stream);
} bench_cuda_driver;

/* NULL when there is no driver; `why` says what is missing. */
const bench_cuda_driver *bench_cuda_driver_open(char *why, size_t why_size);
/* "CUDA_ERROR_OUT_OF_MEMORY"; never NULL. */
const char *bench_cuda_error(const bench_cuda_driver *driver, int result);

#endif
