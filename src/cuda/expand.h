/* expand.h - the host side of kernels/expand.cu and kernels/expand_ring.cu, for the table in kernels.c. */
#ifndef LAC_CUDA_EXPAND_H
#define LAC_CUDA_EXPAND_H

#include "cuda/program.h"

/* The flow comes first, so that a pointer to this is one to it. */
typedef struct lac_expand_flow {
    lac_cuda_flow flow;
    bool ring; /* W is spread into a ring in the workspace, for many tokens at once */
} lac_expand_flow;

extern const lac_expand_flow lac_cuda_expand_flow, lac_cuda_expand_ring_flow;

bool lac_cuda_expand_applies(const lac_problem *problem);
lac_cost lac_cuda_expand_cost(const lac_problem *problem);
size_t lac_cuda_expand_workspace(const lac_problem *problem);
lac_status lac_cuda_expand_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_expand_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
