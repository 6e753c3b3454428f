/* parallel.h - OpenMP where the build has it, one thread where it has not. Scratch for the threads is allocated before a
 * parallel region, never inside: an allocation that fails must be able to return. Pieces of work write to places of their
 * own, so no result depends on the number of threads. */
#ifndef LAC_CORE_PARALLEL_H
#define LAC_CORE_PARALLEL_H

#include <stdint.h>

#ifdef _OPENMP
#include <omp.h>
#define LAC_OMP(...) _Pragma(#__VA_ARGS__)
#else
#define LAC_OMP(...)
#endif

/* More threads than this never help, and asking OpenMP for thousands could bring the process down. */
enum { LAC_PARALLEL_MOST = 256 };
/* Fewer elements than this a thread, and waking it costs more than it brings. */
enum { LAC_PARALLEL_LEAST_ELEMENTS = 32768 };

/* Threads for `jobs` pieces of work: `wanted`, or as many as OpenMP gives when that is 0; never more than jobs, at least
 * 1. */
static inline int lac_parallel_threads(int32_t wanted, int64_t jobs)
{
#ifdef _OPENMP
    int threads = wanted > 0 ? wanted : omp_get_max_threads();
    int limit = omp_get_thread_limit();
    if (threads > limit) threads = limit;
#else
    int threads = 1;
    (void)wanted;
#endif
    if (threads > LAC_PARALLEL_MOST) threads = LAC_PARALLEL_MOST;
    if (jobs < threads) threads = (int)jobs;
    return threads < 1 ? 1 : threads;
}

/* The same for jobs that go over `elements` elements in all: unless told otherwise, as many as these keep busy. */
static inline int lac_parallel_threads_for(int32_t wanted, int64_t jobs, int64_t elements)
{
    int64_t worth = elements / LAC_PARALLEL_LEAST_ELEMENTS;
    return lac_parallel_threads(wanted, wanted <= 0 && worth < jobs ? worth : jobs);
}

/* What a call wants that takes no number of threads: as many as OpenMP gives (0), but one in a child of fork(), which would wait for
 * ever for those of its parent. */
int32_t lac_parallel_unsaid(void);

/* For calls into a library that takes OpenMP's own number of threads: from here on that is `threads` in this thread, unless it is 0.
 * Returns what it was, to be put back. */
static inline int lac_parallel_set_unsaid(int threads)
{
#ifdef _OPENMP
    int before = omp_get_max_threads();
    if (threads > 0) omp_set_num_threads(threads);
    return before;
#else
    return threads;
#endif
}

/* This thread's number within its parallel region. */
static inline int lac_parallel_number(void)
{
#ifdef _OPENMP
    return omp_get_thread_num();
#else
    return 0;
#endif
}

typedef void (*lac_task_fn)(void *state, int thread, int64_t task);

/* Calls work(state, thread, task) for every task; 0 <= thread < threads. */
static inline void lac_parallel_for_each(int64_t tasks, int threads, lac_task_fn work, void *state)
{
    (void)threads; /* unused without OpenMP */
    LAC_OMP(omp parallel for num_threads(threads) schedule(static) if (threads > 1))
    for (int64_t task = 0; task < tasks; ++task) work(state, lac_parallel_number(), task);
}

#endif
