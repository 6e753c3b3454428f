/* plan.c - the planner: resolves options, asks every kernel of the registry whether it applies and what it costs, and
 * keeps the cheapest, prepared. Dense kernels are candidates like any other. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/device.h"
#include "core/dtype.h"
#include "core/kernel.h"
#include "core/memory.h"
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
    return LAC_STATUS_OK;
}

/* ---- choosing */

static void release_state(const lac_kernel *kernel, void *state)
{
    if (kernel->release) kernel->release(state);
}

static bool is_candidate(const lac_kernel *kernel, lac_problem *problem)
{
    problem->kernel = kernel;
    return kernel->info.device == problem->device->info.kind && kernel->applies(problem);
}

static lac_status prepare(const lac_kernel *kernel, const lac_problem *problem, void **state)
{
    *state = NULL;
    return kernel->prepare && !problem->options.predict_only ? kernel->prepare(problem, state) : LAC_STATUS_OK;
}

static lac_status choose_by_name(lac_plan *plan, const char *name)
{
    const lac_kernel *kernel;
    for (size_t i = 0; (kernel = lac_registry_kernel(i)); ++i)
        if (!strcmp(kernel->info.name, name)) break;
    if (!kernel) return lac_fail(LAC_STATUS_NOT_FOUND, "options->kernel is '%.60s'; there is no such kernel", name);
    if (!is_candidate(kernel, &plan->problem)) {
        char pattern[LAC_PATTERN_TEXT_SIZE] = "";
        lac_pattern_format(&plan->problem.weight->pattern, pattern, sizeof pattern);
        return lac_fail(LAC_STATUS_UNSUPPORTED,
                        "options->kernel is '%s', which does not apply to pattern %s with %s weights on %s", name, pattern,
                        lac_dtype_name(plan->problem.weight->dtype), plan->problem.device->info.name);
    }
    if (kernel->info.is_dense && plan->problem.options.no_dense)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options->kernel is '%s', which is dense, but options->no_dense is 1",
                        name);
    lac_status status = kernel->available ? kernel->available(&plan->problem) : LAC_STATUS_OK;
    if (status) return lac_fail_in(status, "options->kernel is '%s'", name);
    plan->kernel = kernel; /* and plan->problem.kernel, since it was asked last */
    plan->info.forced = 1;
    plan->info.candidates = 1;
    return prepare(kernel, &plan->problem, &plan->state);
}

/* The seconds to rank a candidate by: the model's, or those of a run. Leaves the candidate prepared in *state. */
static lac_status rank(const lac_kernel *kernel, const lac_problem *problem, void **state, double *seconds)
{
    lac_status status = prepare(kernel, problem, state);
    if (status) return status;
    if ((status = lac_measure_kernel(problem, kernel, *state, seconds))) {
        release_state(kernel, *state);
        *state = NULL;
    }
    return status;
}

/* Whether the machine has what the kernel needs. Where it has not, the plan says so: it would have been the faster one. */
static lac_status ask_available(lac_plan *plan, const lac_kernel *kernel, bool *available)
{
    lac_status status = kernel->available ? kernel->available(&plan->problem) : LAC_STATUS_OK;
    *available = !status;
    if (status != LAC_STATUS_UNSUPPORTED) return status;
    snprintf(plan->note, sizeof plan->note, "%s is not offered: %.200s", kernel->info.name, lac_last_error());
    return LAC_STATUS_OK;
}

static lac_status choose_best(lac_plan *plan)
{
    lac_problem *problem = &plan->problem;
    const lac_kernel *kernel;
    double best = INFINITY;
    for (size_t i = 0; (kernel = lac_registry_kernel(i)); ++i) {
        if (kernel->oracle || (problem->options.no_dense && kernel->info.is_dense) || !is_candidate(kernel, problem)) continue;
        ++plan->info.candidates;
        double seconds = kernel->cost(problem).seconds;
        void *state = NULL;
        if (plan->kernel && !problem->options.measure && seconds >= best) continue;
        bool available;
        lac_status status = ask_available(plan, kernel, &available);
        if (status) return status;
        if (!available) {
            --plan->info.candidates;
            continue;
        }
        if (problem->options.measure) {
            status = rank(kernel, problem, &state, &seconds);
            if (status) return status;
        }
        if (!plan->kernel || seconds < best) {
            if (plan->kernel) release_state(plan->kernel, plan->state);
            best = seconds;
            plan->kernel = kernel;
            plan->state = state;
        } else {
            release_state(kernel, state);
        }
    }
    if (!plan->kernel) {
        char pattern[LAC_PATTERN_TEXT_SIZE] = "";
        lac_pattern_format(&problem->weight->pattern, pattern, sizeof pattern);
        return lac_fail(LAC_STATUS_UNSUPPORTED, "no kernel on %s applies to pattern %s, weights %s, x %s, y %s, precision %d",
                        problem->device->info.name, pattern, lac_dtype_name(problem->weight->dtype),
                        lac_dtype_name(problem->options.x_dtype), lac_dtype_name(problem->options.y_dtype),
                        (int)problem->options.precision);
    }
    problem->kernel = plan->kernel;
    return problem->options.measure ? LAC_STATUS_OK : prepare(plan->kernel, problem, &plan->state);
}

size_t lac_kernel_workspace(const lac_kernel *kernel, const lac_problem *problem, const void *state)
{
    if (state && kernel->workspace_of) return kernel->workspace_of(state);
    return kernel->workspace ? kernel->workspace(problem) : 0;
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
    status = forced ? choose_by_name(plan, forced) : choose_best(plan);
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
    plan->info.note = plan->note;
    if (plan->info.is_dense)
        plan->info.dense_bytes = (uint64_t)weight->n_out * (uint64_t)weight->k_in * lac_dtype_size(weight->dtype);
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
    if (plan->kernel) release_state(plan->kernel, plan->state);
    lac_weight_free((lac_weight *)plan->problem.weight);
    lac_device_close((lac_device *)plan->problem.device);
    lac_release(plan);
}
