/* unshuffle.h - the host side of kernels/reorder.cu around another kernel, for the table in kernels.c. */
#ifndef LAC_CUDA_UNSHUFFLE_H
#define LAC_CUDA_UNSHUFFLE_H

#include "cuda/program.h"

extern const lac_cuda_flow lac_cuda_unshuffle_flow;

bool lac_cuda_unshuffle_applies(const lac_problem *problem);
lac_cost lac_cuda_unshuffle_cost(const lac_problem *problem);
const lac_kernel *lac_cuda_unshuffle_inner(const lac_problem *problem);
size_t lac_cuda_unshuffle_workspace(const lac_problem *problem);
size_t lac_cuda_unshuffle_workspace_of(const void *state);
lac_status lac_cuda_unshuffle_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_unshuffle_execute(const lac_problem *problem, const void *state, const lac_call *call);
void lac_cuda_unshuffle_release(void *state);

#endif
