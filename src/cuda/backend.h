/* backend.h - what core/registry.c takes from src/cuda: the GPUs and their kernels. */
#ifndef LAC_CUDA_BACKEND_H
#define LAC_CUDA_BACKEND_H

#include "core/kernel.h"

extern const lac_device_ops lac_cuda_device_ops;
extern const lac_kernel lac_cuda_kernels[];
extern const size_t lac_cuda_kernel_count;

#endif
