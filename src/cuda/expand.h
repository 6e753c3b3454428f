/* expand.h - the host side of kernels/expand.cu, for the table in kernels.c. */
#ifndef LAC_CUDA_EXPAND_H
#define LAC_CUDA_EXPAND_H

#include "cuda/program.h"

extern const lac_cuda_flow lac_cuda_expand_flow;

bool lac_cuda_expand_applies(const lac_problem *problem);
lac_cost lac_cuda_expand_cost(const lac_problem *problem);
size_t lac_cuda_expand_workspace(const lac_problem *problem);
lac_status lac_cuda_expand_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_expand_execute(const lac_problem *problem, const void *state, const lac_call *call);
void lac_cuda_expand_release(void *state);

#endif
