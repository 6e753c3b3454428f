/* gather.h - the host side of kernels/gather.cu and kernels/stream.cu, for the table in kernels.c. */
#ifndef LAC_CUDA_GATHER_H
#define LAC_CUDA_GATHER_H

#include "cuda/gather_shape.h"
#include "cuda/program.h"

/* The flow comes first, so that a pointer to this is one to it. */
typedef struct lac_gather_flow {
    lac_cuda_flow flow;
    lac_gather_kind kind;
} lac_gather_flow;

extern const lac_gather_flow lac_cuda_gather_flow, lac_cuda_gather_sparse_flow, lac_cuda_stream_flow;

bool lac_cuda_gather_applies(const lac_problem *problem);
lac_cost lac_cuda_gather_cost(const lac_problem *problem);
size_t lac_cuda_gather_workspace(const lac_problem *problem);
lac_status lac_cuda_gather_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_gather_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
