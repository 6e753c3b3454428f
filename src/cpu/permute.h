/* permute.h - the dataflow "permute" for any vector unit, for up to 8 tokens and element-wise N:M of small groups.
 * kernels.c registers it once a unit. */
#ifndef LAC_CPU_PERMUTE_H
#define LAC_CPU_PERMUTE_H

#include "cpu/unit.h"

/* The kernel's config is its lac_cpu_unit. */
bool lac_cpu_permute_applies(const lac_problem *problem);
lac_cost lac_cpu_permute_cost(const lac_problem *problem);
size_t lac_cpu_permute_workspace(const lac_problem *problem);
lac_status lac_cpu_permute_prepare(const lac_problem *problem, void **state);
lac_status lac_cpu_permute_execute(const lac_problem *problem, const void *state, const lac_call *call);
void lac_cpu_permute_release(void *state);

#endif
