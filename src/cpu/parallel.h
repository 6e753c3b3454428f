/* parallel.h - OpenMP where the build has it, one thread where it has not. */
#ifndef LAC_CPU_PARALLEL_H
#define LAC_CPU_PARALLEL_H

#ifdef _OPENMP
#include <omp.h>
#define LAC_OMP(...) _Pragma(#__VA_ARGS__)
static inline int lac_thread_number(void) { return omp_get_thread_num(); }
#else
#define LAC_OMP(...)
static inline int lac_thread_number(void) { return 0; }
#endif

#endif
