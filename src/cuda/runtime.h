/* runtime.h - an opened GPU: its memory, its launches, its numbers. The dataflows' host side is written against this,
 * program.h and plan.h alone. */
#ifndef LAC_CUDA_RUNTIME_H
#define LAC_CUDA_RUNTIME_H

#include "core/kernel.h"
#include "cuda/driver.h"
#include "cuda/kernels/arguments.h"
#include "model/gpu.h"

/* What is compiled for: 90 for sm_90a, and so on. */
typedef struct lac_cuda_target {
    int arch;                  /* 75, 80, 86, 89, 90, 100, 120: compute capability times ten     */
    int has_wgmma;             /* sm_90a                                                         */
    int multiprocessors;       /* 132 on an H200                                                 */
    unsigned shared_per_block; /* the most dynamic shared memory that a block may ask for        */
} lac_cuda_target;

const lac_cuda_target *lac_cuda_target_of(const lac_device *device);
/* The rates that the model divides by. */
const lac_gpu_rates *lac_cuda_rates_of(const lac_device *device);
/* scatter_cost.c: seconds for token-major Y whose outputs are written in another order; 0 where they are not. */
double lac_cuda_scatter_seconds(const lac_problem *problem);

/* Stages of the next tile that may be multiplied while the last half of a tile, packed, is stored (kernels/tile_early.cuh): beside an
 * activation or a residual registers are too few, and for bf16 the compiler waits for every product. */
static inline int lac_cuda_early_stages(const lac_problem *problem)
{
    const lac_plan_options *o = &problem->options;
    return o->activation == LAC_ACTIVATION_NONE && !o->has_residual && o->y_dtype == LAC_DTYPE_F16 ? 2 : 0;
}

/* Device memory. `what` names it in messages ("re-tiled weight"). Freeing 0 is allowed. */
lac_status lac_cuda_allocate(const lac_device *device, const char *what, uint64_t bytes, lac_cu_pointer *out);
/* Allocates and copies from the host; returns when the copy is done. */
lac_status lac_cuda_upload(const lac_device *device, const char *what, const void *host, uint64_t bytes, lac_cu_pointer *out);
void lac_cuda_free(const lac_device *device, lac_cu_pointer pointer);

typedef struct lac_cuda_launch {
    lac_cu_function function;
    unsigned grid[3], block;
    unsigned shared_bytes;
    unsigned cluster; /* blocks along x in a cluster; 0 or 1: none */
    bool together;    /* all blocks run at once, or it is refused (cooperative): they wait for each other             */
    bool early;       /* may start before the kernel before it has ended: it waits for that by itself (sm_90 and later) */
} lac_cuda_launch;

/* Puts one kernel on the caller's stream: no allocation, no synchronisation, capturable in a graph. `parameters` are
 * pointers to the kernel's parameters, as cuLaunchKernel takes them. */
lac_status lac_cuda_launch_on(const lac_device *device, const lac_cuda_launch *launch, void *stream, void **parameters);

/* A matrix of 16-bit elements for the copy engine, which takes boxes of it with the 128-byte swizzle (tensor_copy.cuh): data
 * and rows aligned to 16 bytes. What lies outside is zero. */
typedef struct lac_cuda_boxes {
    const void *data;
    lac_dtype dtype;           /* fp16 or bf16 */
    int64_t columns, rows, ld; /* elements */
    unsigned across, down;     /* columns (at most 64) and rows of a box */
    unsigned fold; /* 0: two dimensions. Else row r is (r / fold, r % fold): a box has `down` neighbours of the first
                                  and all of the second, in this order, and there are as many rows as make the last one whole */
} lac_cuda_boxes;

typedef struct lac_cuda_tensor_map {
    _Alignas(64) uint64_t opaque[16];
} lac_cuda_tensor_map;

enum { LAC_CUDA_MOST_DOWN = 256 }; /* of a box's rows; kernels cut what they ask for the same way */

/* Whether the copy engine can take a matrix of the caller's; and whether it can write one: it writes whole 16 bytes, also where a row ends
 * within them, and what lies behind Y is the caller's. */
bool lac_cuda_boxes_suit(const lac_cuda_boxes *boxes);
bool lac_cuda_boxes_suit_stores(const lac_cuda_boxes *boxes);
/* The caller's Y, in boxes of 64 outputs x 64 tokens. */
lac_cuda_boxes lac_cuda_boxes_of_y(const lac_problem *problem, const lac_gpu_call *call);
lac_status lac_cuda_tensor_map_make(const lac_device *device, const lac_cuda_boxes *boxes, lac_cuda_tensor_map *out);

/* The first parameter of every kernel: the caller's arguments. Checks that x, y, c, bias and workspace are device memory of
 * this GPU, and says which one is not. */
lac_status lac_cuda_call_make(const lac_problem *problem, const lac_call *call, lac_gpu_call *out);

#endif
