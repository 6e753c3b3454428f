/* parallel.h - the one loop that pruning runs in parallel, with OpenMP or without. Used by src/prune only.
 * Tasks write to places of their own, so the result does not depend on the number of threads. */
#ifndef LAC_PRUNE_PARALLEL_H
#define LAC_PRUNE_PARALLEL_H

#include <stdint.h>

#ifdef _OPENMP
#include <omp.h>
#endif

/* More threads than this never help here, and asking OpenMP for thousands could bring the process down. */
enum { LAC_PRUNE_MAX_THREADS = 256 };

typedef void (*lac_task_fn)(void *state, int thread, int64_t task);

/* The threads to use for `tasks` when the caller asked for `wanted` (0: as many as OpenMP gives). At least 1. */
static inline int lac_prune_threads(int wanted, int64_t tasks)
{
#ifdef _OPENMP
    int threads = wanted > 0 ? wanted : omp_get_max_threads();
#else
    int threads = 1;
    (void)wanted;
#endif
    if (threads > LAC_PRUNE_MAX_THREADS) threads = LAC_PRUNE_MAX_THREADS;
    if (threads > tasks) threads = (int)tasks;
    return threads > 0 ? threads : 1;
}

/* Calls work(state, thread, task) for every task; 0 <= thread < threads. */
static inline void lac_prune_for_each(int64_t tasks, int threads, lac_task_fn work, void *state)
{
#ifdef _OPENMP
    if (threads > 1) {
#pragma omp parallel for num_threads(threads) schedule(static)
        for (int64_t task = 0; task < tasks; task++) work(state, omp_get_thread_num(), task);
        return;
    }
#else
    (void)threads;
#endif
    for (int64_t task = 0; task < tasks; task++) work(state, 0, task);
}

#endif
