/* gpu_case.h - a plan_case run on a GPU and judged by the oracle, and the list of cases that all kernels of the registry have
 * to pass: made by pairwise.c, numbered, and the same on every machine with the same kernels and architecture. */
#ifndef TEST_GPU_CASE_H
#define TEST_GPU_CASE_H

#include "cuda/program.h"
#include "plan_case.h"

/* Runs the case on one kernel (NULL: the planner's pick), twice, and compares: with the oracle, within its bound or exactly;
 * the second time with the first, bit for bit; what lies beside Y and behind the workspace with what lay there before. X, C
 * and bias end where their device memory ends. */
void gpu_case_check(lac_device *device, const plan_case *c, const char *kernel, judge how);
/* The host's half of it alone: the plan made, executed and freed, no result looked at. For a driver that runs nothing. */
void gpu_case_launch(lac_device *device, const plan_case *c, const char *kernel, judge how);

/* One program, or a few, of one kernel: everything that is fixed when it is compiled. Run on several shapes. */
typedef struct gpu_row {
    const char *kernel;
    int index; /* of the kernel's rows */
    lac_pattern pattern;
    lac_dtype weight_dtype;
    lac_plan_options options;
    int variant; /* a gpu_variant: in order, permuted, sharded */
} gpu_row;

typedef struct gpu_list {
    gpu_row *rows; /* [count] */
    int count;
    int kernels;  /* how many there are ...                    */
    int unused;   /* ... and how many took no case at all     */
    int programs; /* distinct ones, for the first shape of each row */
} gpu_list;

/* Whether a kernel's name begins with the prefix or, after a '!', does not; NULL: always. */
bool gpu_kernel_is_wanted(const char *name, const char *prefix);
/* `arch` is "sm_90a": which kernels apply is asked of a target without a GPU. `most` rows for a kernel;
 * only kernels whose name begins with `prefix`, or the others where it begins with '!', unless that is NULL. */
void gpu_list_make(const char *arch, const char *prefix, int most, gpu_list *list);
void gpu_list_free(gpu_list *list);

/* All shapes of a row, with random numbers and with small integers, which must come out exactly; `run` is one of the two above. */
void gpu_row_run(lac_device *device, const gpu_row *row, int shapes,
                 void (*run)(lac_device *device, const plan_case *c, const char *kernel, judge how));
/* What gpu_row_run will have compiled, asked of a target without a GPU: up to LAC_CUDA_MOST_REQUESTS for each shape; returns
 * how many. Several rows may ask for the same, which the hash tells. */
int gpu_row_requests(lac_device *target, const gpu_row *row, int shapes, lac_cuda_request *requests);
uint64_t gpu_request_hash(const lac_cuda_request *request);
void gpu_row_describe(const gpu_row *row, char *buffer, size_t size);

#endif
