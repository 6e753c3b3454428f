/* plan.c - a plan: options resolved, a kernel that choose.c has chosen and prepared, and what there is to tell of it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/device.h"
#include "core/dtype.h"
#include "core/kernel.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "format/weight.h"

/* ---- options */

static lac_status check_dtype(const char *name, lac_dtype dtype)
{
    if (lac_dtype_is_storage(dtype)) return LAC_STATUS_OK;
    return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options->%s is %d (%s); it is one of f32, f16, bf16", name, (int)dtype,
                    lac_dtype_name(dtype));
}

static lac_status check_number(const char *name, int64_t value, int64_t last)
{
    if (value >= 0 && value <= last) return LAC_STATUS_OK;
    return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options->%s is %" PRId64 "; it lies in 0 to %" PRId64, name, value, last);
}

lac_status lac_plan_options_resolve(const lac_weight *weight, const lac_device *device, lac_plan_options *o)
{
    if (!o->x_dtype) o->x_dtype = weight->dtype;
    if (!o->y_dtype) o->y_dtype = o->x_dtype;
    if (!o->bias_dtype) o->bias_dtype = o->y_dtype;
    if (!o->c_dtype) o->c_dtype = o->y_dtype;
    if (!o->precision) o->precision = device->info.kind == LAC_DEVICE_KIND_CPU ? LAC_PRECISION_STRICT : LAC_PRECISION_FAST;
    if (!o->threads) o->threads = device->info.cores > 0 ? device->info.cores : 1;
    lac_status status;
    if ((status = check_number("x_layout", o->x_layout, LAC_LAYOUT_COLUMN_MAJOR)) ||
        (status = check_number("y_layout", o->y_layout, LAC_LAYOUT_COLUMN_MAJOR)) ||
        (status = check_dtype("x_dtype", o->x_dtype)) || (status = check_dtype("y_dtype", o->y_dtype)) ||
        (status = check_dtype("bias_dtype", o->bias_dtype)) || (status = check_dtype("c_dtype", o->c_dtype)) ||
        (status = check_number("precision", o->precision, LAC_PRECISION_TF32)) ||
        (status = check_number("has_bias", o->has_bias, 1)) ||
        (status = check_number("activation", o->activation, LAC_ACTIVATION_SILU)) ||
        (status = check_number("has_residual", o->has_residual, 1)) || (status = check_number("threads", o->threads, 4096)) ||
        (status = check_number("measure", o->measure, 1)) || (status = check_number("predict_only", o->predict_only, 1)) ||
        (status = check_number("no_dense", o->no_dense, 1)) || (status = check_number("no_timing", o->no_timing, 1)))
        return status;
    if (o->measure && o->predict_only)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options->measure and options->predict_only are both 1");
    if (o->measure && o->no_timing)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options->measure and options->no_timing are both 1");
    /* OpenMP ends the process where the system has no more threads to give, so nobody's wish is taken for thousands. */
    const int32_t most = device->info.cores > LAC_PARALLEL_MOST ? device->info.cores : LAC_PARALLEL_MOST;
    if (o->threads > most) o->threads = most;
    return LAC_STATUS_OK;
}

/* ---- the plan */

size_t lac_kernel_workspace(const lac_kernel *kernel, const lac_problem *problem, const void *state)
{
    if (state && kernel->workspace_of) return kernel->workspace_of(state);
    return kernel->workspace ? kernel->workspace(problem) : 0;
}

/* W with its zeros: on a CPU in its own dtype, on a GPU in X's where that is the wider one. */
static uint64_t dense_bytes_of(const lac_problem *problem)
{
    const lac_weight *w = problem->weight;
    size_t own = lac_dtype_size(w->dtype), wide = lac_dtype_size(problem->options.x_dtype);
    bool widens = problem->device->info.kind != LAC_DEVICE_KIND_CPU && wide > own;
    return (uint64_t)w->n_out * (uint64_t)w->k_in * (widens ? wide : own);
}

lac_status lac_plan_create(lac_device *device, const lac_weight *weight, int64_t m, const lac_plan_options *options,
                           lac_plan **out)
{
    if (!device) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "device is NULL");
    if (!weight) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "weight is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    if (m < 0 || m > LAC_MAX_DIMENSION)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "m is %" PRId64 "; it lies in 0 to 2147483647", m);
    lac_plan_options resolved;
    lac_status status = lac_read_struct("options", options, &resolved, sizeof resolved);
    if (status || (status = lac_plan_options_resolve(weight, device, &resolved))) return status;
    const char *forced = resolved.kernel;
    resolved.kernel = NULL; /* the caller's text need not live as long as the plan */

    lac_plan *plan = lac_allocate_zeroed(sizeof *plan);
    if (!plan) return lac_fail_memory("plan", sizeof *plan);
    plan->problem = (lac_problem){lac_device_retain(device), lac_weight_retain(weight), m, resolved, NULL};
    status = lac_plan_choose(plan, forced);
    if (status) {
        lac_plan_free(plan);
        return status;
    }
    plan->cost = plan->kernel->cost(&plan->problem);
    plan->info.size = sizeof plan->info;
    plan->info.kernel = plan->kernel->info.name;
    plan->info.is_dense = plan->kernel->info.is_dense;
    plan->info.predicted_seconds = plan->cost.seconds;
    plan->info.bound = plan->cost.bound;
    plan->info.ceiling_seconds = plan->cost.ceiling;
    if (plan->kernel->inner && !*plan->note)
        snprintf(plan->note, sizeof plan->note, "its products are by %s", plan->kernel->inner(&plan->problem)->info.name);
    plan->info.note = plan->note;
    if (plan->info.is_dense) plan->info.dense_bytes = dense_bytes_of(&plan->problem);
    plan->info.m = m;
    plan->info.n = weight->n_out;
    plan->info.k = weight->k_in;
    plan->info.workspace_bytes = lac_kernel_workspace(plan->kernel, &plan->problem, plan->state);
    *out = plan;
    return LAC_STATUS_OK;
}

lac_status lac_plan_get_info(const lac_plan *plan, lac_plan_info *info)
{
    if (!plan) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "plan is NULL");
    return lac_write_struct("info", info, &plan->info, sizeof plan->info);
}

lac_status lac_plan_explain(const lac_plan *plan, size_t index, lac_level_info *info)
{
    if (!plan) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "plan is NULL");
    if (!info) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "info is NULL");
    if (index >= (size_t)plan->cost.levels)
        return lac_fail(LAC_STATUS_NOT_FOUND, "index is %zu; the model of %s has %d levels", index, plan->info.kernel,
                        plan->cost.levels);
    const lac_level *level = &plan->cost.level[index];
    lac_level_info found;
    memset(&found, 0, sizeof found); /* padding too */
    found.size = sizeof found;
    found.name = level->name;
    found.unit = level->unit;
    found.amount = level->amount;
    found.rate = level->rate;
    found.seconds = level->seconds;
    found.is_bound = level->name == plan->cost.bound;
    found.remedy = level->remedy;
    return lac_write_struct("info", info, &found, sizeof found);
}

void lac_plan_free(lac_plan *plan)
{
    if (!plan) return;
    if (plan->kernel) lac_kernel_release(plan->kernel, plan->state);
    lac_weight_free((lac_weight *)plan->problem.weight);
    lac_device_close((lac_device *)plan->problem.device);
    lac_release(plan);
}
