/* choose.h - the host side of kernels/choose.cu, for the table in kernels.c. */
#ifndef LAC_CUDA_CHOOSE_H
#define LAC_CUDA_CHOOSE_H

#include "cuda/program.h"

extern const lac_cuda_flow lac_cuda_choose_flow;

bool lac_cuda_choose_applies(const lac_problem *problem);
lac_cost lac_cuda_choose_cost(const lac_problem *problem);
size_t lac_cuda_choose_workspace(const lac_problem *problem);
lac_status lac_cuda_choose_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_choose_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
