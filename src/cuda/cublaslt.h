/* cublaslt.h - the vendor's dense library, opened when a plan first considers it. dense.c multiplies by it where W's sparsity
 * does not pay; nothing else needs it, and a machine without it loses that one kernel. Declared here so that building needs no
 * CUDA toolkit. */
#ifndef LAC_CUDA_CUBLASLT_H
#define LAC_CUDA_CUBLASLT_H

#include "core/kernel.h"

/* The library's numbers for types, operations, arithmetic and attributes. */
enum {
    LAC_LT_F32 = 0,
    LAC_LT_F16 = 2,
    LAC_LT_BF16 = 14,
    LAC_LT_AS_IT_IS = 0,
    LAC_LT_TRANSPOSED = 1,
    LAC_LT_COMPUTE_F32 = 68,
    LAC_LT_COMPUTE_TF32 = 77,
    LAC_LT_EPILOGUE_BIAS = 4,
    LAC_LT_DESC_LEFT = 3, /* the operation on the left operand */
    LAC_LT_DESC_RIGHT = 4,
    LAC_LT_DESC_EPILOGUE = 7,
    LAC_LT_DESC_BIAS = 8,
    LAC_LT_PREFER_WORKSPACE = 1,
    LAC_LT_PREFER_REDUCTION = 3,
    LAC_LT_PREFER_ALIGNMENT = 5, /* of the left operand; then right, C, D */
    LAC_LT_NOT_SUPPORTED = 15,   /* a status: this algorithm does not take these operands, and nothing was launched */
    LAC_LT_REDUCE_IN_F32 = 2     /* parts of a split k go through the workspace in fp32 and are added in order */
};

/* The library's descriptors are plain memory of these sizes at most, which it fills in: a call makes its own on its stack, so
 * that calls from many threads share nothing and allocate nothing. */
typedef struct lac_lt_layout {
    uint64_t opaque[8];
} lac_lt_layout;

typedef struct lac_lt_desc {
    uint64_t opaque[32];
} lac_lt_desc;

typedef struct lac_lt_preference {
    uint64_t opaque[8];
} lac_lt_preference;

typedef struct lac_lt_algorithm {
    uint64_t opaque[8];
} lac_lt_algorithm;

/* An answer of the library's heuristics. */
typedef struct lac_lt_answer {
    lac_lt_algorithm algorithm;
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
} lac_lt_answer;

typedef struct lac_cublaslt {
    size_t version; /* 130100 for 13.1.0 */
    size_t (*cublasLtGetVersion)(void);
    const char *(*cublasLtGetStatusName)(int status);
    int (*cublasLtCreate)(void **handle);
    int (*cublasLtDestroy)(void *handle);
    int (*cublasLtMatrixLayoutInit_internal)(lac_lt_layout *layout, size_t size, int type, uint64_t rows, uint64_t columns,
                                             int64_t ld);
    int (*cublasLtMatmulDescInit_internal)(lac_lt_desc *desc, size_t size, int compute, int scale_type);
    int (*cublasLtMatmulDescSetAttribute)(lac_lt_desc *desc, int attribute, const void *value, size_t size);
    int (*cublasLtMatmulPreferenceInit_internal)(lac_lt_preference *preference, size_t size);
    int (*cublasLtMatmulPreferenceSetAttribute)(lac_lt_preference *preference, int attribute, const void *value, size_t size);
    int (*cublasLtMatmulAlgoGetHeuristic)(void *handle, const lac_lt_desc *desc, const lac_lt_layout *left,
                                          const lac_lt_layout *right, const lac_lt_layout *c, const lac_lt_layout *d,
                                          const lac_lt_preference *preference, int most, lac_lt_answer *answers, int *count);
    int (*cublasLtMatmul)(void *handle, const lac_lt_desc *desc, const void *alpha, const void *left,
                          const lac_lt_layout *layout_left, const void *right, const lac_lt_layout *layout_right,
                          const void *beta, const void *c, const lac_lt_layout *layout_c, void *d,
                          const lac_lt_layout *layout_d, const lac_lt_algorithm *algorithm, void *workspace,
                          size_t workspace_bytes, void *stream);
} lac_cublaslt;

/* The library, opened once in a process; NULL when there is none. `note` (may be NULL) as in lac_cuda_driver_get. */
const lac_cublaslt *lac_cublaslt_get(const char **note);
/* What `lacuna devices` shows of it. It opens the library, which is large. */
void lac_cublaslt_describe(lac_component_info *info);

/* The device's handle, made when first asked for and kept until the device is closed; many threads may use it at a time.
 * UNSUPPORTED with the reason when there is no library, or none that works on this GPU. */
lac_status lac_cublaslt_handle(const lac_device *device, void **handle);

/* OK for 0; otherwise lac_fail with the library's own name for the error after `what`: OUT_OF_MEMORY or DEVICE. */
lac_status lac_cublaslt_check(int result, const char *what);

#endif
