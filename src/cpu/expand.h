/* expand.h - the dataflow "expand" for any vector unit, for up to 8 tokens. kernels.c registers it once a unit. */
#ifndef LAC_CPU_EXPAND_H
#define LAC_CPU_EXPAND_H

#include "cpu/unit.h"

/* The kernel's config is its lac_cpu_unit. */
bool lac_cpu_expand_applies(const lac_problem *problem);
size_t lac_cpu_expand_workspace(const lac_problem *problem);
lac_status lac_cpu_expand_prepare(const lac_problem *problem, void **state);
lac_status lac_cpu_expand_execute(const lac_problem *problem, const void *state, const lac_call *call);
void lac_cpu_expand_release(void *state);

#endif
