/* execute.c - checks what a caller hands to a plan and runs its kernel. Allocates nothing. */
#include <inttypes.h>

#include "core/dtype.h"
#include "core/kernel.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/weight.h"

/* One of x, y, c: a matrix of `tokens` x `features` in `layout`. A NULL pointer passes when it has no elements. */
static lac_status check_operand(const char *name, const void *data, lac_dtype dtype, lac_layout layout, int64_t tokens,
                                int64_t features, int64_t *ld)
{
    int64_t run = layout == LAC_LAYOUT_TOKEN_MAJOR ? features : tokens;
    int64_t runs = layout == LAC_LAYOUT_TOKEN_MAJOR ? tokens : features;
    if (!data && tokens && features) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->%s is NULL", name);
    if ((uintptr_t)data % lac_dtype_size(dtype))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->%s is %p, not aligned to its %zu-byte element", name, data,
                        lac_dtype_size(dtype));
    if (*ld == 0) *ld = run;
    if (*ld < run)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->ld%s is %" PRId64 ", less than the %" PRId64 " elements of a %s",
                        name, *ld, run, layout == LAC_LAYOUT_TOKEN_MAJOR ? "token" : "feature");
    uint64_t elements, bytes;
    if (!lac_multiply_u64((uint64_t)*ld, (uint64_t)runs, &elements) ||
        !lac_multiply_u64(elements, lac_dtype_size(dtype), &bytes) || bytes > PTRDIFF_MAX)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->ld%s is %" PRId64 ", which times %" PRId64 " does not fit memory",
                        name, *ld, runs);
    return LAC_STATUS_OK;
}

static lac_status check_epilogue(const lac_plan *plan, const lac_execute_args *a, float beta)
{
    const lac_plan_options *o = &plan->problem.options;
    if (o->has_bias && !a->bias && plan->info.n)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->bias is NULL, but the plan has a bias");
    if (!o->has_bias && a->bias)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->bias is %p, but the plan has no bias", a->bias);
    if ((uintptr_t)a->bias % lac_dtype_size(o->bias_dtype))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->bias is %p, not aligned to its %zu-byte element", a->bias,
                        lac_dtype_size(o->bias_dtype));
    if (!o->has_residual && a->c)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->c is %p, but the plan has no residual", a->c);
    if (!o->has_residual && a->beta)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->beta is %g, but the plan has no residual", (double)beta);
    return LAC_STATUS_OK;
}

static lac_status check_workspace(const lac_plan *plan, const lac_execute_args *a)
{
    if (a->stream && plan->problem.device->info.kind == LAC_DEVICE_KIND_CPU)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->stream is %p; a CPU has no streams", a->stream);
    size_t needed = plan->info.workspace_bytes;
    if (!needed) return LAC_STATUS_OK;
    if (!a->workspace)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->workspace is NULL; the plan needs %zu bytes", needed);
    if (a->workspace_bytes < needed)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->workspace_bytes is %zu; the plan needs %zu", a->workspace_bytes,
                        needed);
    if ((uintptr_t)a->workspace % 64)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args->workspace is %p; it must be aligned to 64 bytes", a->workspace);
    return LAC_STATUS_OK;
}

lac_status lac_plan_resolve_call(const lac_plan *plan, const lac_execute_args *args, lac_call_use use, lac_call *out)
{
    if (!plan) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "plan is NULL");
    if (!args) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "args is NULL");
    lac_execute_args a;
    lac_status status = lac_read_struct("args", args, &a, sizeof a);
    if (status) return status;

    const lac_plan_options *o = &plan->problem.options;
    int64_t m = plan->info.m, n = plan->info.n, k = plan->info.k;
    float alpha = a.alpha ? *a.alpha : 1.0f;
    float beta = a.beta ? *a.beta : o->has_residual ? 1.0f : 0.0f;
    if ((status = check_operand("x", a.x, o->x_dtype, o->x_layout, m, k, &a.ldx))) return status;
    if ((status = check_epilogue(plan, &a, beta))) return status;
    bool reads_c = o->has_residual && beta != 0.0f;
    if (reads_c && (status = check_operand("c", a.c, o->c_dtype, o->y_layout, m, n, &a.ldc))) return status;
    if (use == LAC_CALL_EXECUTE) {
        if ((status = check_operand("y", a.y, o->y_dtype, o->y_layout, m, n, &a.ldy))) return status;
        if ((status = check_workspace(plan, &a))) return status;
        if (reads_c && a.c == a.y && a.y && (o->c_dtype != o->y_dtype || a.ldc != a.ldy))
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                            "args->c is args->y, but c is %s with ldc %" PRId64 " and y is %s with ldy %" PRId64,
                            lac_dtype_name(o->c_dtype), a.ldc, lac_dtype_name(o->y_dtype), a.ldy);
    }
    *out = (lac_call){.x = a.x,
                      .bias = o->has_bias ? a.bias : NULL,
                      .c = reads_c ? a.c : NULL,
                      .y = a.y,
                      .ldx = a.ldx,
                      .ldy = a.ldy,
                      .ldc = a.ldc,
                      .alpha = alpha,
                      .beta = reads_c ? beta : 0.0f,
                      .stream = a.stream,
                      .workspace = a.workspace};
    return LAC_STATUS_OK;
}

lac_status lac_plan_execute(const lac_plan *plan, const lac_execute_args *args)
{
    lac_call call;
    lac_status status = lac_plan_resolve_call(plan, args, LAC_CALL_EXECUTE, &call);
    if (status) return status;
    if (plan->problem.options.predict_only)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "the plan was made to predict only (options->predict_only)");
    if (plan->info.m == 0 || plan->problem.weight->geometry.n == 0) return LAC_STATUS_OK; /* a shard may own no output */
    return plan->kernel->execute(&plan->problem, plan->state, &call);
}
