/* plan.c - makes and releases what every dataflow's plan has: see plan.h. */
#include "cuda/plan.h"

#include "core/memory.h"
#include "core/status.h"
#include "format/weight.h"

/* What L2 should keep of W while all tokens go by. */
static const double BAND_BYTES = 20e6;

void *lac_cuda_plan_allocate(const lac_problem *problem, size_t bytes)
{
    lac_cuda_plan *plan = lac_allocate_zeroed(bytes);
    if (plan)
        plan->device = problem->device;
    else
        lac_fail_memory(problem->kernel->info.name, bytes);
    return plan;
}

lac_status lac_cuda_plan_load(lac_cuda_plan *plan, const lac_problem *problem, const int *which)
{
    const lac_cuda_flow *flow = problem->kernel->config;
    lac_cuda_request requests[LAC_CUDA_MOST_REQUESTS];
    int count = 0;
    lac_status status = flow->requests(problem, requests, &count);
    for (int i = 0; i < count && !status; ++i)
        status = lac_cuda_program_get(plan->device, &requests[i], &plan->program[which ? which[i] : i]);
    return status;
}

lac_status lac_cuda_plan_upload(lac_cuda_plan *plan, const lac_cuda_part *parts, int count)
{
    lac_status status = LAC_STATUS_OK;
    for (int i = 0; i < count && !status; ++i) {
        lac_cu_pointer pointer = 0;
        if (!parts[i].host) continue;
        status = lac_cuda_upload(plan->device, parts[i].what, parts[i].host, parts[i].bytes, &pointer);
        plan->part[i] = (const void *)(uintptr_t)pointer;
    }
    return status;
}

lac_status lac_cuda_plan_finish(void *state, lac_status status, void **out)
{
    if (status)
        lac_cuda_plan_release(state);
    else
        *out = state;
    return status;
}

void lac_cuda_plan_release(void *state)
{
    lac_cuda_plan *plan = state;
    if (!plan) return;
    for (int i = 0; i < LAC_CUDA_MOST_PARTS; ++i) lac_cuda_free(plan->device, (lac_cu_pointer)(uintptr_t)plan->part[i]);
    lac_release(plan);
}

bool lac_cuda_suits_wgmma(const lac_problem *problem)
{
    lac_dtype dtype = problem->options.x_dtype;
    return (dtype == LAC_DTYPE_F16 || dtype == LAC_DTYPE_BF16) && problem->weight->dtype == dtype &&
           lac_cuda_target_of(problem->device)->has_wgmma;
}

lac_status lac_cuda_no_shape(const lac_problem *problem)
{
    return lac_fail(LAC_STATUS_INTERNAL, "%s does not apply to this problem", problem->kernel->info.name);
}

int lac_cuda_band_within(double kept_bytes, double tile_bytes, int64_t tiles)
{
    double most = kept_bytes / (tile_bytes > 0.0 ? tile_bytes : 1.0);
    return (int)(most < 1.0 ? 1 : most < (double)tiles ? (int64_t)most : tiles);
}

int lac_cuda_band(double tile_bytes, int64_t tiles) { return lac_cuda_band_within(BAND_BYTES, tile_bytes, tiles); }
