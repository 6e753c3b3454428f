/* dense.h - the vendor's dense product as a kernel of ours, for the table in kernels.c. */
#ifndef LAC_CUDA_DENSE_H
#define LAC_CUDA_DENSE_H

#include "cuda/program.h"

extern const lac_cuda_flow lac_cuda_dense_flow;

bool lac_cuda_dense_applies(const lac_problem *problem);
lac_cost lac_cuda_dense_cost(const lac_problem *problem);
lac_status lac_cuda_dense_available(const lac_problem *problem);
size_t lac_cuda_dense_workspace(const lac_problem *problem);
size_t lac_cuda_dense_workspace_of(const void *state);
lac_status lac_cuda_dense_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_dense_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
