/* plan_reference.c - lac_plan_reference, the public door to the oracle: the caller's operands in, double results and
 * their bounds out. The arithmetic is in reference.c. */
#include <inttypes.h>
#include <math.h>

#include "core/dtype.h"
#include "core/kernel.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/weight.h"
#include "ref/reference.h"

/* Which tokens hold a NaN or an infinity anywhere in their row of X: nothing can be said of their results. */
static void find_spoiled(const lac_problem *problem, const lac_call *call, bool *spoiled /* [m] */)
{
    const lac_plan_options *options = &problem->options;
    bool token_major = options->x_layout == LAC_LAYOUT_TOKEN_MAJOR;
    for (int64_t token = 0; token < problem->m; ++token) {
        spoiled[token] = false;
        for (int64_t input = 0; input < problem->weight->k_in; ++input) {
            int64_t at = token_major ? token * call->ldx + input : input * call->ldx + token;
            if (!isfinite(lac_load_f64(call->x, options->x_dtype, at))) spoiled[token] = true;
        }
    }
}

lac_status lac_plan_reference(const lac_plan *plan, const lac_execute_args *args, double *y, double *bound, int64_t ld)
{
    lac_call call;
    lac_status status = lac_plan_resolve_call(plan, args, LAC_CALL_REFERENCE, &call);
    if (status) return status;
    const lac_problem *problem = &plan->problem;
    const lac_weight *weight = problem->weight;
    if (problem->m == 0 || weight->n_out == 0) return LAC_STATUS_OK;
    if (!y) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "y is NULL");
    if (ld == 0) ld = weight->n_out;
    if (ld < weight->n_out)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "ld is %" PRId64 ", less than the %" PRId64 " outputs of a token", ld,
                        weight->n_out);

    uint64_t row_bytes = lac_reference_scratch_bytes(weight);
    uint64_t bytes = row_bytes + (uint64_t)problem->m * sizeof(bool);
    unsigned char *scratch = lac_allocate(bytes);
    if (!scratch) return lac_fail_memory("the oracle's scratch", bytes);
    bool *spoiled = (bool *)(scratch + row_bytes);
    if (bound) find_spoiled(problem, &call, spoiled);

    lac_reference_row row;
    lac_reference_bind(weight, scratch, &row);
    for (int64_t stored = 0; stored < weight->geometry.n; ++stored) {
        lac_reference_expand(weight, stored, &row);
        for (int64_t token = 0; token < problem->m; ++token) {
            int64_t at = token * ld + row.output;
            y[at] = lac_reference_element(problem, &call, &row, token, bound ? &bound[at] : NULL);
            if (bound && spoiled[token]) bound[at] = INFINITY;
        }
    }
    lac_release(scratch);
    return LAC_STATUS_OK;
}
