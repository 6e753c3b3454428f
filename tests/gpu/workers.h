/* workers.h - runs the rows of a gpu_list in several processes at once, since compiling their programs takes the time: each
 * process opens the GPU for itself. What a process was doing when it ended early is reported, and another takes its place. */
#ifndef TEST_GPU_WORKERS_H
#define TEST_GPU_WORKERS_H

#include "gpu/gpu_case.h"

typedef struct gpu_results {
    int taken;  /* rows that were begun                              */
    int done;   /* rows that passed                                  */
    int failed; /* rows that did not                                 */
    double seconds;
} gpu_results;

/* Looks for a usable GPU in a process of its own, so that this one has no driver open when it makes others. 0: there is one,
 * and `info` tells of it; otherwise `info->note` says what is missing. */
int gpu_probe(lac_device_info *info);

/* What compiling ahead came to. */
typedef struct gpu_compiled {
    int programs; /* distinct ones that the rows need                                                       */
    int fresh;    /* those that the cache did not hold; -1: they could not be stored, each row compiles its own */
    double seconds;
} gpu_compiled;

/* Compiles what all rows need into the cache, each program once, in `processes` processes that need no GPU. */
gpu_compiled gpu_workers_compile(const gpu_list *list, const char *arch, int shapes, int processes);

typedef enum gpu_step {
    GPU_STEP_NONE, /* there is no more */
    GPU_STEP_PASSED,
    GPU_STEP_FAILED
} gpu_step;

/* Calls `one` with 0, 1, 2 ... in several processes until it says that there is no more. What they do must outlive them. How many of the
 * processes saw a failure, or ended before that. */
int gpu_workers_each(gpu_step (*one)(int index), int processes);

typedef struct gpu_limits {
    int seconds;        /* no row is begun after so long; 0: no limit                          */
    double row_seconds; /* a row that goes on for longer has failed, and its process is ended */
} gpu_limits;

/* Runs all rows in `workers` processes; in this one, without a limit for a row, when that is 0. `only` is "KERNEL:ROW", or NULL for all. Tells every few seconds how far it is, and at the end how many rows of each kernel
 * passed. `results` is a CSV file with a line for each row, or NULL. */
gpu_results gpu_workers_run(const gpu_list *list, int shapes, int workers, const char *only, const gpu_limits *limits,
                            const char *results);

#endif
