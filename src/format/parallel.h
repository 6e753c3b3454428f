/* parallel.h - OpenMP where the build has it, one thread where it has not. Scratch for the threads is allocated before a
 * parallel region, never inside: an allocation that fails must be able to return. */
#ifndef LAC_FORMAT_PARALLEL_H
#define LAC_FORMAT_PARALLEL_H

#include <stdint.h>

#ifdef _OPENMP
#include <omp.h>
#define LAC_OMP(...) _Pragma(#__VA_ARGS__)
#else
#define LAC_OMP(...)
#endif

/* Fewer elements than this a thread, and waking it costs more than it brings. */
enum { LAC_PARALLEL_LEAST_ELEMENTS = 32768 };

/* Threads for `jobs` pieces of work on `elements` elements: `wanted`, or when that is 0 as many as OpenMP gives and the
 * elements keep busy; never more than jobs, at least 1. */
static inline int lac_parallel_threads(int32_t wanted, int64_t jobs, int64_t elements)
{
    if (wanted <= 0 && jobs > elements / LAC_PARALLEL_LEAST_ELEMENTS) jobs = elements / LAC_PARALLEL_LEAST_ELEMENTS;
#ifdef _OPENMP
    int threads = wanted > 0 ? wanted : omp_get_max_threads();
    int limit = omp_get_thread_limit();
    if (threads > limit) threads = limit;
#else
    int threads = 1;
    (void)wanted;
#endif
    if (jobs < threads) threads = (int)jobs;
    return threads < 1 ? 1 : threads;
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

#endif
