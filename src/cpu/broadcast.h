/* broadcast.h - the dataflow "broadcast" for any vector unit. kernels.c registers it once a unit. */
#ifndef LAC_CPU_BROADCAST_H
#define LAC_CPU_BROADCAST_H

#include "cpu/unit.h"

/* Second-level caches that W may fill where threads share out the tokens: a slot of 2 vectors is read for 6 or 12 cycles'
 * work. */
enum { LAC_CPU_BROADCAST_CACHES = 1 };

/* The kernel's config is its lac_cpu_unit. */
bool lac_cpu_broadcast_applies(const lac_problem *problem);
lac_status lac_cpu_broadcast_prepare(const lac_problem *problem, void **state);
size_t lac_cpu_broadcast_workspace(const lac_problem *problem);
lac_status lac_cpu_broadcast_execute(const lac_problem *problem, const void *state, const lac_call *call);
void lac_cpu_broadcast_release(void *state);

#endif
