/* child.h - the baseline of a CPU in a process of its own. contender.c and timing.c hand its work over through here. */
#ifndef LACUNA_BENCH_CHILD_H
#define LACUNA_BENCH_CHILD_H

#include "backend.h"

typedef struct bench_child bench_child;
struct bench_contender;
struct bench_problem;
struct bench_session;
struct bench_turn;

/* Starts the process; it waits. Called before this process has any other thread. NULL: `why` says why. */
bench_child *bench_child_start(const struct bench_session *session, char *why, size_t why_size);
/* Opens OpenBLAS there; `info` gets what bench_openblas_info tells. Nonzero: it is not there, and `why` says so. */
int bench_child_open(bench_child *child, int threads, char *info, size_t info_size, char *why, size_t why_size);
void bench_child_stop(bench_child *child);
/* 1: its process ended by itself, which is why a call failed. */
int bench_child_is_gone(const bench_child *child);

/* The baseline of a problem: sends W and X, and learns which way it is (name and way of `c`). */
lac_status bench_child_open_dense(bench_child *child, const struct bench_problem *problem, struct bench_contender *c);
/* As many copies of the weight and of X and Y in all. */
lac_status bench_child_copy(bench_child *child, size_t copies, size_t slots);
/* One call on the next copies. Nonzero: the process is gone. */
int bench_child_call(bench_child *child);
/* One call on the first copies, Y of NaN before; what was written goes to y. */
int bench_child_call_first(bench_child *child, void *y, size_t bytes);
/* A turn of calls, as bench_turn_run does it. The threads there sleep when it returns. */
int bench_child_turn(bench_child *child, struct bench_turn *turn);
void bench_child_close_dense(bench_child *child);

/* Waits until all other threads of this process sleep. 0: they do; 1: they still run after a fifth of a second. */
int bench_settle(void);

#endif
