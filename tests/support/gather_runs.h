/* gather_runs.h - what an H200 took for gathered products with named tiles, as bench/results/h200_gather_tiles.csv has it, and which of the
 * model's candidates each run was. */
#ifndef TEST_SUPPORT_GATHER_RUNS_H
#define TEST_SUPPORT_GATHER_RUNS_H

#include "cuda/gather_shape.h"

enum { GATHER_RUNS_MOST = 2048 };

/* A problem of one of the stored runs, and a tile that was timed for it. */
typedef struct gather_run {
    int number;
    int64_t m, n, k;
    char pattern[16], layout[16];
    lac_gather_shape tile; /* what names it; the rest is the model's to fill in        */
    bool directly;         /* Y left the registers directly, not through shared memory */
    double us;
} gather_run;

/* Those of kernels and tiles as they are committed; of blocks whose way into shared memory was not noted, none. Returns how many. */
int gather_runs_read(gather_run runs[GATHER_RUNS_MOST]);

bool gather_runs_share_weight(const gather_run *a, const gather_run *b);
/* Timed together too, so that their times can be compared. */
bool gather_runs_share_problem(const gather_run *a, const gather_run *b);
bool gather_run_had_tile(const gather_run *run, const lac_gather_shape *shape);

/* The weight of a run, and its problem on `device`. */
lac_weight *gather_run_weight(const gather_run *run);
lac_problem gather_run_problem(const gather_run *run, lac_device *device, lac_weight *weight);

/* Shows every problem of the runs once, with the first of its runs and its weight's number; those of a weight one after the other, so that
 * it is made once. */
typedef void gather_problem_look(const lac_problem *problem, const gather_run *first, int weight, void *context);
void gather_runs_each_problem(lac_device *device, const gather_run *runs, int count, gather_problem_look *look, void *context);

#endif
