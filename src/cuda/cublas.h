/* cublas.h - cuBLAS for pruning, opened at run time. */
#ifndef LAC_CUDA_CUBLAS_H
#define LAC_CUDA_CUBLAS_H

#include "core/linear.h"

extern const lac_linear_ops lac_cublas_linear_ops;
/* What `lacuna devices` shows of it. */
void lac_cublas_describe(lac_component_info *info);

#endif
