/* slide.h - the host side of kernels/slide.cu, for the table in kernels.c. */
#ifndef LAC_CUDA_SLIDE_H
#define LAC_CUDA_SLIDE_H

#include "cuda/program.h"

extern const lac_cuda_flow lac_cuda_slide_flow;

bool lac_cuda_slide_applies(const lac_problem *problem);
lac_cost lac_cuda_slide_cost(const lac_problem *problem);
size_t lac_cuda_slide_workspace(const lac_problem *problem);
lac_status lac_cuda_slide_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_slide_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
