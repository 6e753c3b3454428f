/* backend.h - what core/registry.c takes from src/cpu: the one CPU device and its kernels. */
#ifndef LAC_CPU_BACKEND_H
#define LAC_CPU_BACKEND_H

#include "core/kernel.h"

extern const lac_device_ops lac_cpu_device_ops;
extern const lac_kernel lac_cpu_kernels[];
extern const size_t lac_cpu_kernel_count;

#endif
