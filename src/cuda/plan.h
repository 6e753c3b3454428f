/* plan.h - what the plans of all dataflows have in common: the programs that they launch and the parts of the re-tiled weight in the GPU's
 * memory. A dataflow's state begins with a lac_cuda_plan, so that a pointer to the one is one to the other and one function releases all. */
#ifndef LAC_CUDA_PLAN_H
#define LAC_CUDA_PLAN_H

#include "cuda/program.h"
#include "cuda/runtime.h"

enum { LAC_CUDA_MOST_PARTS = 6 };

typedef struct lac_cuda_plan {
    const lac_device *device; /* core's plan holds it */
    lac_cu_function program[LAC_CUDA_MOST_REQUESTS];
    const void *part[LAC_CUDA_MOST_PARTS]; /* on the GPU; NULL: there is none */
} lac_cuda_plan;

/* What is to become a part: `what` names it in messages; without `host` there is none. */
typedef struct lac_cuda_part {
    const char *what;
    const void *host;
    uint64_t bytes;
} lac_cuda_part;

/* A dataflow's state, of so many bytes, without programs and parts; NULL, with a message, when there is no memory for it. */
void *lac_cuda_plan_allocate(const lac_problem *problem, size_t bytes);
/* Loads the programs that the problem's kernel asks for: that of its i-th request is plan->program[which[i]], or without `which`
 * plan->program[i]. */
lac_status lac_cuda_plan_load(lac_cuda_plan *plan, const lac_problem *problem, const int *which);
/* Uploads one part after the other: parts[i] is plan->part[i]. After a failure those before it stay, for the release. */
lac_status lac_cuda_plan_upload(lac_cuda_plan *plan, const lac_cuda_part *parts, int count);
/* The end of every prepare: *out is `state`, or this is released where `status`, which it returns, is a failure. */
lac_status lac_cuda_plan_finish(void *state, lac_status status, void **out);
/* Frees the parts and the state. NULL is allowed. */
void lac_cuda_plan_release(void *state);

/* What most kernels of sm_90a in 16 bits need: X and W of one such dtype, on a target with wgmma. */
bool lac_cuda_suits_wgmma(const lac_problem *problem);
/* The failure of one that was asked for its programs and does not apply. */
lac_status lac_cuda_no_shape(const lac_problem *problem);

/* A workspace comes aligned to 64 bytes. Kernels want its parts further apart: they begin at its first multiple of this, and so does
 * each that follows one of lac_cuda_aligned bytes; its size has as much beside. */
enum { LAC_CUDA_ALIGNMENT = 256 };

static inline uint64_t lac_cuda_aligned(uint64_t bytes)
{
    return (bytes + LAC_CUDA_ALIGNMENT - 1) / LAC_CUDA_ALIGNMENT * LAC_CUDA_ALIGNMENT;
}
/* Where the parts begin; 0 when there is no workspace. */
static inline uintptr_t lac_cuda_workspace_of(const lac_gpu_call *call)
{
    return (uintptr_t)lac_cuda_aligned((uintptr_t)call->workspace);
}

/* Tiles of outputs that are walked together while all tokens go by: those whose W, of so many bytes each, L2 keeps. */
int lac_cuda_band(double tile_bytes, int64_t tiles);
/* The same where L2 should keep another number of bytes. */
int lac_cuda_band_within(double kept_bytes, double tile_bytes, int64_t tiles);

#endif
