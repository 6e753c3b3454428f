/* test_gpu.h - the groups of tests that test_gpu.c runs one after the other. */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include <stdbool.h>

/* test_gpu_runtime.c and test_gpu_time.c: how many tests failed. */
int test_gpu_runtime(void);
/* Makes the index-th plan of those tests, which compiles what it needs; false past the last. */
bool test_gpu_runtime_plan(int index);
int test_gpu_time(void);

#endif
