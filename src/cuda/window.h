/* window.h - the host side of kernels/split.cu and kernels/window.cu, for the table in kernels.c. */
#ifndef LAC_CUDA_WINDOW_H
#define LAC_CUDA_WINDOW_H

#include "cuda/program.h"
#include "cuda/window_shape.h"

/* lac_kernel.config of these kernels. */
typedef struct lac_window_flow {
    lac_cuda_flow flow; /* first, as program.h wants it */
    lac_window_variant variant;
} lac_window_flow;

extern const lac_window_flow lac_cuda_fast_flow, lac_cuda_fast_dense_flow, lac_cuda_fast_mma_flow, lac_cuda_fast_mma_dense_flow;
extern const lac_window_flow lac_cuda_tf32_flow, lac_cuda_tf32_dense_flow, lac_cuda_tf32_mma_flow, lac_cuda_tf32_mma_dense_flow;

bool lac_cuda_window_applies(const lac_problem *problem);
lac_cost lac_cuda_window_cost(const lac_problem *problem);
size_t lac_cuda_window_workspace(const lac_problem *problem);
lac_status lac_cuda_window_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_window_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
