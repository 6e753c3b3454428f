/* vector_select.h - the host side of kernels/vector_select.cu, for the table in kernels.c. */
#ifndef LAC_CUDA_VECTOR_SELECT_H
#define LAC_CUDA_VECTOR_SELECT_H

#include "cuda/program.h"

extern const lac_cuda_flow lac_cuda_select_flow; /* cuda_spmv_select */

bool lac_cuda_select_applies(const lac_problem *problem);
lac_cost lac_cuda_select_cost(const lac_problem *problem);
lac_status lac_cuda_select_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_select_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
