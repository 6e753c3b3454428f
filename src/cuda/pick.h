/* pick.h - the host side of kernels/pick.cu, for the table in kernels.c. */
#ifndef LAC_CUDA_PICK_H
#define LAC_CUDA_PICK_H

#include "cuda/program.h"

extern const lac_cuda_flow lac_cuda_pick_flow;

bool lac_cuda_pick_applies(const lac_problem *problem);
lac_cost lac_cuda_pick_cost(const lac_problem *problem);
size_t lac_cuda_pick_workspace(const lac_problem *problem);
lac_status lac_cuda_pick_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_pick_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
