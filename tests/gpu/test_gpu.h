/* test_gpu.h - the groups of tests that test_gpu.c runs one after the other. */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include "gpu/workers.h"

/* test_gpu_tiles.c, test_gpu_numbers.c, test_gpu_runtime.c and test_gpu_time.c: how many tests failed. The tiles are checked by so many processes, while this one
 * has no driver open. */
int test_gpu_tiles(int processes);
int test_gpu_numbers(void);
int test_gpu_runtime(void);
int test_gpu_time(void);
/* Makes the index-th plan of the runtime's tests, which compiles what it needs. */
gpu_step test_gpu_runtime_plan(int index);

#endif
