/* backend.h - what core/registry.c takes from src/ref: the oracle as a kernel that is picked only by its name. */
#ifndef LAC_REF_BACKEND_H
#define LAC_REF_BACKEND_H

#include "core/kernel.h"

extern const lac_kernel lac_ref_kernels[];
extern const size_t lac_ref_kernel_count;

#endif
