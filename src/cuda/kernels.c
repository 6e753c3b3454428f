/* kernels.c - the GPU's table of kernels. core/registry.c lists it; a dataflow is a file of its own beside this one, and a
 * line or a few here. */
#include "cuda/backend.h"
#include "cuda/choose.h"
#include "cuda/dense.h"
#include "cuda/expand.h"
#include "cuda/expand_few.h"
#include "cuda/fragment.h"
#include "cuda/gather.h"
#include "cuda/pick.h"
#include "cuda/plain.h"
#include "cuda/plan.h"
#include "cuda/slide.h"
#include "cuda/strict.h"
#include "cuda/unshuffle.h"
#include "cuda/vector.h"
#include "cuda/vector_select.h"
#include "cuda/window.h"

#define ALL_FAMILIES                                                                                                           \
    (1u << LAC_FAMILY_ELEMENT | 1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_VNM |                      \
     1u << LAC_FAMILY_SHUFFLED)
#define ALL_DTYPES  (1u << LAC_DTYPE_F32 | 1u << LAC_DTYPE_F16 | 1u << LAC_DTYPE_BF16)
#define HALF_DTYPES (1u << LAC_DTYPE_F16 | 1u << LAC_DTYPE_BF16)

#define INFO(kernel_name, kernel_is_dense, kernel_families, kernel_weights, kernel_x, kernel_summary)                          \
    {                                                                                                                          \
        .size = sizeof(lac_kernel_info), .name = kernel_name, .device = LAC_DEVICE_KIND_CUDA, .is_dense = kernel_is_dense,     \
        .summary = kernel_summary, .families = kernel_families, .weight_dtypes = kernel_weights, .x_dtypes = kernel_x,         \
        .y_dtypes = ALL_DTYPES                                                                                                 \
    }
/* A dataflow's functions all begin with its name. What its plan holds is released in one way, unless that holds another kernel's. */
#define OWN_FUNCTIONS(flow)           .applies = flow##_applies, .cost = flow##_cost, .prepare = flow##_prepare, .execute = flow##_execute
#define FUNCTIONS(flow)               OWN_FUNCTIONS(flow), .release = lac_cuda_plan_release
#define FUNCTIONS_AND_WORKSPACE(flow) FUNCTIONS(flow), .workspace = flow##_workspace

const lac_kernel lac_cuda_kernels[] = {
    {.info = INFO("cuda_f32_plain", 0, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES,
                  "a thread an output: a row's columns and values, products in fp32"),
     .config = &lac_cuda_plain_flow,
     FUNCTIONS(lac_cuda_plain)},
    {.info = INFO("cuda_f32_strict", 0, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES,
                  "a vector of outputs a warp, selected rows of X in shared memory, products in fp32"),
     .config = &lac_cuda_strict_flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_strict)},
    {.info = INFO("cuda_f32_strict_dense", 1, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES,
                  "the dataflow of cuda_f32_strict over every input, zeros included"),
     .config = &lac_cuda_strict_dense_flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_strict)},
    {.info = INFO("cuda_spmv_gather", 0, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES,
                  "1 to 16 tokens: the weight streamed once, x gathered from shared memory, products in fp32"),
     .config = &lac_cuda_vector_flow,
     FUNCTIONS(lac_cuda_vector)},
    {.info = INFO("cuda_spmv_mma", 0, ALL_FAMILIES, HALF_DTYPES, HALF_DTYPES,
                  "2 to 16 tokens in 16 bits: the weight streamed once, spread into dense fragments for mma.sync"),
     .config = &lac_cuda_vector_mma_flow,
     FUNCTIONS(lac_cuda_vector)},
    {.info = INFO("cuda_spmv_select", 0, ALL_FAMILIES, HALF_DTYPES, HALF_DTYPES,
                  "2 to 32 tokens in 16 bits: the weight streamed once as fragments, ldmatrix selects the inputs"),
     .config = &lac_cuda_select_flow,
     FUNCTIONS(lac_cuda_select)},
    {.info = INFO("cuda_f32_fast", 0, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES,
                  "tensor cores on scaled half pairs: windows of X in shared memory, a vector selects its inputs"),
     .config = &lac_cuda_fast_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_window)},
    {.info = INFO("cuda_f32_fast_dense", 1, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES,
                  "the dataflow of cuda_f32_fast over every input, zeros included"),
     .config = &lac_cuda_fast_dense_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_window)},
    {.info = INFO("cuda_f32_tf32", 0, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES,
                  "the dataflow of cuda_f32_fast on the upper halves alone"),
     .config = &lac_cuda_tf32_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_window)},
    {.info = INFO("cuda_f32_tf32_dense", 1, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES,
                  "the dataflow of cuda_f32_tf32 over every input, zeros included"),
     .config = &lac_cuda_tf32_dense_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_window)},
    {.info = INFO("cuda_f32_fast_mma", 0, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES, "the dataflow of cuda_f32_fast by mma.sync"),
     .config = &lac_cuda_fast_mma_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_window)},
    {.info = INFO("cuda_f32_fast_mma_dense", 1, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES,
                  "the dataflow of cuda_f32_fast_mma over every input, zeros included"),
     .config = &lac_cuda_fast_mma_dense_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_window)},
    {.info = INFO("cuda_f32_tf32_mma", 0, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES, "the dataflow of cuda_f32_tf32 by mma.sync"),
     .config = &lac_cuda_tf32_mma_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_window)},
    {.info = INFO("cuda_f32_tf32_mma_dense", 1, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES,
                  "the dataflow of cuda_f32_tf32_mma over every input, zeros included"),
     .config = &lac_cuda_tf32_mma_dense_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_window)},
    {.info = INFO("cuda_f16_gather", 0, ALL_FAMILIES, HALF_DTYPES, HALF_DTYPES,
                  "selected rows of X gathered into shared memory, wgmma on them"),
     .config = &lac_cuda_gather_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_gather)},
    {.info = INFO("cuda_f16_gather_sparse", 0,
                  1u << LAC_FAMILY_VNM | 1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_SHUFFLED,
                  HALF_DTYPES, HALF_DTYPES, "selected rows of X gathered into shared memory, wgmma.sp on two of four of them"),
     .config = &lac_cuda_gather_sparse_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_gather)},
    {.info = INFO("cuda_f16_window", 0,
                  1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_VNM | 1u << LAC_FAMILY_SHUFFLED,
                  HALF_DTYPES, HALF_DTYPES, "X slides through shared memory, a short vector selects its inputs, mma.sync"),
     .config = &lac_cuda_slide_flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_slide)},
    {.info = INFO("cuda_f16_pick", 0,
                  1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_VNM | 1u << LAC_FAMILY_SHUFFLED,
                  HALF_DTYPES, HALF_DTYPES, "windows of X in shared memory, pairs of short vectors pick their inputs, wgmma"),
     .config = &lac_cuda_pick_flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_pick)},
    {.info =
         INFO("cuda_f16_choose", 0, 1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_SHUFFLED, HALF_DTYPES,
              HALF_DTYPES, "boxes of token-major X in shared memory, long row groups choose their inputs, wgmma"),
     .config = &lac_cuda_choose_flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_choose)},
    {.info = INFO("cuda_f16_stream", 0, 1u << LAC_FAMILY_ELEMENT | 1u << LAC_FAMILY_VNM, HALF_DTYPES, HALF_DTYPES,
                  "X and W streamed into shared memory, wgmma.sp on two of four inputs"),
     .config = &lac_cuda_stream_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_gather)},
    {.info = INFO("cuda_f16_expand", 0, 1u << LAC_FAMILY_ELEMENT, HALF_DTYPES, HALF_DTYPES,
                  "X streamed into shared memory, W spread out on its way there, wgmma on all inputs"),
     .config = &lac_cuda_expand_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_expand)},
    {.info = INFO("cuda_f16_expand_ring", 0, 1u << LAC_FAMILY_ELEMENT, HALF_DTYPES, HALF_DTYPES,
                  "X streamed, W spread out once for many tokens into a ring in L2, wgmma on all inputs"),
     .config = &lac_cuda_expand_ring_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_expand)},
    {.info = INFO("cuda_f16_mma", 0,
                  1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_VNM | 1u << LAC_FAMILY_SHUFFLED,
                  HALF_DTYPES, HALF_DTYPES, "selected rows of X gathered into shared memory, mma.sync on them"),
     .config = &lac_cuda_fragment_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_fragment)},
    {.info = INFO("cuda_f16_mma_sparse", 0, 1u << LAC_FAMILY_ELEMENT | 1u << LAC_FAMILY_VNM, HALF_DTYPES, HALF_DTYPES,
                  "rows of X, selected ones or all, in shared memory, mma.sp on two of four of them"),
     .config = &lac_cuda_fragment_sparse_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_fragment)},
    {.info = INFO("cuda_f16_mma_expand", 0,
                  1u << LAC_FAMILY_ELEMENT | 1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_VNM,
                  HALF_DTYPES, HALF_DTYPES, "kept weights spread by their masks to fragments, mma.sync over every input"),
     .config = &lac_cuda_fragment_expand_flow.flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_fragment)},
    {.info = INFO("cuda_f16_expand_few", 0, 1u << LAC_FAMILY_ELEMENT, HALF_DTYPES, HALF_DTYPES,
                  "2 to 128 tokens: the weight streamed once and spread in registers, wgmma on all inputs"),
     .config = &lac_cuda_few_flow,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_few)},
    {.info = INFO("cuda_unshuffle", 0, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES,
                  "outputs in another order than W's rows: the cheapest kernel for these, then every token's are put in place"),
     .config = &lac_cuda_unshuffle_flow,
     .inner = lac_cuda_unshuffle_inner,
     .workspace = lac_cuda_unshuffle_workspace,
     .workspace_of = lac_cuda_unshuffle_workspace_of,
     .release = lac_cuda_unshuffle_release,
     OWN_FUNCTIONS(lac_cuda_unshuffle)},
    /* The last one: whether its library is there is only asked where it would win. */
    {.info = INFO("cuda_cublaslt_dense", 1, ALL_FAMILIES, ALL_DTYPES, ALL_DTYPES,
                  "W with its zeros, multiplied by the vendor's library, which is opened when it is first needed"),
     .config = &lac_cuda_dense_flow,
     .available = lac_cuda_dense_available,
     .workspace_of = lac_cuda_dense_workspace_of,
     FUNCTIONS_AND_WORKSPACE(lac_cuda_dense)},
};
const size_t lac_cuda_kernel_count = sizeof lac_cuda_kernels / sizeof *lac_cuda_kernels;
