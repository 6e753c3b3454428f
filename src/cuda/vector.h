/* vector.h - the host side of kernels/vector.cu and kernels/vector_mma.cu, for the table in kernels.c. */
#ifndef LAC_CUDA_VECTOR_H
#define LAC_CUDA_VECTOR_H

#include "cuda/program.h"

extern const lac_cuda_flow lac_cuda_vector_flow;     /* cuda_spmv_gather */
extern const lac_cuda_flow lac_cuda_vector_mma_flow; /* cuda_spmv_mma    */

bool lac_cuda_vector_applies(const lac_problem *problem);
lac_cost lac_cuda_vector_cost(const lac_problem *problem);
lac_status lac_cuda_vector_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_vector_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
