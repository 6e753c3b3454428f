/* fragment.h - the host side of kernels/fragment.cu, for the table in kernels.c. */
#ifndef LAC_CUDA_FRAGMENT_H
#define LAC_CUDA_FRAGMENT_H

#include "cuda/fragment_shape.h"
#include "cuda/program.h"

/* The flow comes first, so that a pointer to this is one to it. */
typedef struct lac_fragment_flow {
    lac_cuda_flow flow;
    lac_fragment_kind kind;
} lac_fragment_flow;

extern const lac_fragment_flow lac_cuda_fragment_flow, lac_cuda_fragment_sparse_flow, lac_cuda_fragment_expand_flow;

bool lac_cuda_fragment_applies(const lac_problem *problem);
lac_cost lac_cuda_fragment_cost(const lac_problem *problem);
size_t lac_cuda_fragment_workspace(const lac_problem *problem);
lac_status lac_cuda_fragment_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_fragment_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
