/* kernels.c - the GPU's table of kernels. core/registry.c lists it; a dataflow is a file of its own beside this one, and a
 * line or a few here. */
#include "cuda/backend.h"
#include "cuda/plain.h"
#include "cuda/strict.h"

#define ALL_FAMILIES                                                                                                           \
    (1u << LAC_FAMILY_ELEMENT | 1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_VNM |                      \
     1u << LAC_FAMILY_SHUFFLED)
#define ALL_DTYPES (1u << LAC_DTYPE_F32 | 1u << LAC_DTYPE_F16 | 1u << LAC_DTYPE_BF16)

const lac_kernel lac_cuda_kernels[] = {
    {.info = {.size = sizeof(lac_kernel_info),
              .name = "cuda_f32_plain",
              .device = LAC_DEVICE_KIND_CUDA,
              .summary = "a thread an output: a row's columns and values, products in fp32",
              .families = ALL_FAMILIES,
              .weight_dtypes = ALL_DTYPES,
              .x_dtypes = ALL_DTYPES,
              .y_dtypes = ALL_DTYPES},
     .config = &lac_cuda_plain_flow,
     .applies = lac_cuda_plain_applies,
     .cost = lac_cuda_plain_cost,
     .prepare = lac_cuda_plain_prepare,
     .execute = lac_cuda_plain_execute,
     .release = lac_cuda_plain_release},
    {.info = {.size = sizeof(lac_kernel_info),
              .name = "cuda_f32_strict",
              .device = LAC_DEVICE_KIND_CUDA,
              .summary = "a vector of outputs a warp, selected rows of X in shared memory, products in fp32",
              .families = ALL_FAMILIES,
              .weight_dtypes = ALL_DTYPES,
              .x_dtypes = ALL_DTYPES,
              .y_dtypes = ALL_DTYPES},
     .config = &lac_cuda_strict_flow,
     .applies = lac_cuda_strict_applies,
     .cost = lac_cuda_strict_cost,
     .workspace = lac_cuda_strict_workspace,
     .prepare = lac_cuda_strict_prepare,
     .execute = lac_cuda_strict_execute,
     .release = lac_cuda_strict_release},
    {.info = {.size = sizeof(lac_kernel_info),
              .name = "cuda_f32_strict_dense",
              .device = LAC_DEVICE_KIND_CUDA,
              .is_dense = 1,
              .summary = "the dataflow of cuda_f32_strict over every input, zeros included",
              .families = ALL_FAMILIES,
              .weight_dtypes = ALL_DTYPES,
              .x_dtypes = ALL_DTYPES,
              .y_dtypes = ALL_DTYPES},
     .config = &lac_cuda_strict_dense_flow,
     .applies = lac_cuda_strict_applies,
     .cost = lac_cuda_strict_cost,
     .workspace = lac_cuda_strict_workspace,
     .prepare = lac_cuda_strict_prepare,
     .execute = lac_cuda_strict_execute,
     .release = lac_cuda_strict_release},
};
const size_t lac_cuda_kernel_count = sizeof lac_cuda_kernels / sizeof *lac_cuda_kernels;
