/* kernels.h - the functions behind the CPU's table of kernels, which kernels.c puts together. */
#ifndef LAC_CPU_KERNELS_H
#define LAC_CPU_KERNELS_H

#include "core/kernel.h"
#include "format/row.h"

/* gather.c */
size_t lac_cpu_gather_workspace(const lac_problem *problem);
lac_status lac_cpu_gather_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
