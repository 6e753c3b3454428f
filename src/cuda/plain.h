/* plain.h - the host side of kernels/plain.cu, for the table in kernels.c. */
#ifndef LAC_CUDA_PLAIN_H
#define LAC_CUDA_PLAIN_H

#include "cuda/program.h"

extern const lac_cuda_flow lac_cuda_plain_flow;

bool lac_cuda_plain_applies(const lac_problem *problem);
lac_cost lac_cuda_plain_cost(const lac_problem *problem);
lac_status lac_cuda_plain_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_plain_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
