/* dense.h - the dense kernel for any vector unit. kernels.c registers it once a unit; its workspace is broadcast's. */
#ifndef LAC_CPU_DENSE_H
#define LAC_CPU_DENSE_H

#include "cpu/unit.h"

/* The kernel's config is its lac_cpu_unit. */
bool lac_cpu_dense_applies(const lac_problem *problem);
size_t lac_cpu_dense_workspace(const lac_problem *problem);
lac_status lac_cpu_dense_prepare(const lac_problem *problem, void **state);
lac_status lac_cpu_dense_execute(const lac_problem *problem, const void *state, const lac_call *call);
void lac_cpu_dense_release(void *state);

#endif
