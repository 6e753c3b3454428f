/* strict.h - the host side of kernels/strict.cu, for the table in kernels.c: fp32 on CUDA cores, sparse and dense. */
#ifndef LAC_CUDA_STRICT_H
#define LAC_CUDA_STRICT_H

#include "cuda/program.h"

/* The config of cuda_f32_strict and of cuda_f32_strict_dense; the functions serve both. */
extern const lac_cuda_flow lac_cuda_strict_flow, lac_cuda_strict_dense_flow;

bool lac_cuda_strict_applies(const lac_problem *problem);
lac_cost lac_cuda_strict_cost(const lac_problem *problem);
size_t lac_cuda_strict_workspace(const lac_problem *problem);
lac_status lac_cuda_strict_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_strict_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
