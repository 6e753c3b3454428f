/* kernel.c - the oracle as a kernel, `ref_f64`: sums in double, one rounding to y's dtype. The planner never picks it;
 * options.kernel does, to see what an exact sum would give. core/registry.c lists it. */
#include "core/dtype.h"
#include "format/weight.h"
#include "ref/backend.h"
#include "ref/reference.h"

static bool applies(const lac_problem *problem)
{
    (void)problem;
    return true;
}

/* About a product every 3 ns, on one core. It is never ranked, so that will do. */
static lac_cost cost(const lac_problem *problem)
{
    double seconds = (double)problem->m * (double)problem->weight->kept * 3e-9;
    return (lac_cost){.seconds = seconds, .bound = "compute", .ceiling = seconds};
}

static size_t workspace(const lac_problem *problem) { return lac_reference_scratch_bytes(problem->weight); }

static lac_status execute(const lac_problem *problem, const void *state, const lac_call *call)
{
    (void)state;
    const lac_plan_options *options = &problem->options;
    bool token_major = options->y_layout == LAC_LAYOUT_TOKEN_MAJOR;
    lac_reference_row row;
    lac_reference_bind(problem->weight, call->workspace, &row);
    for (int64_t stored = 0; stored < problem->weight->geometry.n; ++stored) {
        lac_reference_expand(problem->weight, stored, &row);
        for (int64_t token = 0; token < problem->m; ++token) {
            double y = lac_reference_element(problem, call, &row, token, NULL);
            int64_t at = token_major ? token * call->ldy + row.output : row.output * call->ldy + token;
            lac_store_f64(call->y, options->y_dtype, at, y);
        }
    }
    return LAC_STATUS_OK;
}

#define ALL_FAMILIES                                                                                                           \
    (1u << LAC_FAMILY_ELEMENT | 1u << LAC_FAMILY_VECTOR | 1u << LAC_FAMILY_BLOCK | 1u << LAC_FAMILY_VNM |                      \
     1u << LAC_FAMILY_SHUFFLED)
#define ALL_DTYPES (1u << LAC_DTYPE_F32 | 1u << LAC_DTYPE_F16 | 1u << LAC_DTYPE_BF16)

const lac_kernel lac_ref_kernels[] = {{.info = {.size = sizeof(lac_kernel_info),
                                                .name = "ref_f64",
                                                .device = LAC_DEVICE_KIND_CPU,
                                                .summary = "the oracle: row by row in double, one thread",
                                                .families = ALL_FAMILIES,
                                                .weight_dtypes = ALL_DTYPES,
                                                .x_dtypes = ALL_DTYPES,
                                                .y_dtypes = ALL_DTYPES},
                                       .oracle = true,
                                       .applies = applies,
                                       .cost = cost,
                                       .workspace = workspace,
                                       .execute = execute}};
const size_t lac_ref_kernel_count = sizeof lac_ref_kernels / sizeof *lac_ref_kernels;
