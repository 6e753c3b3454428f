/* measure.c - times a prepared kernel for the planner's measuring mode: random operands in host memory, one warm-up,
 * the median of a few runs. Called by plan.c only. */
#include <string.h>
#include <time.h>

#include "core/dtype.h"
#include "core/kernel.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/weight.h"

enum { RUNS = 5 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Numbers in [-0.5, 0.5): zeros could run faster than real data. */
static void fill_random(void *data, lac_dtype dtype, int64_t count)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (int64_t i = 0; i < count; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        lac_store_f64(data, dtype, i, (double)(state >> 40) * 0x1p-24 - 0.5);
    }
}

static void *random_operand(lac_dtype dtype, uint64_t rows, uint64_t cols)
{
    uint64_t count = rows * cols, bytes; /* both below 2^31 */
    if (!lac_multiply_u64(count, lac_dtype_size(dtype), &bytes)) return NULL;
    void *data = lac_allocate(bytes);
    if (data) fill_random(data, dtype, (int64_t)count);
    return data;
}

static double median(double *times)
{
    for (int i = 1; i < RUNS; ++i)
        for (int j = i; j > 0 && times[j - 1] > times[j]; --j) {
            double swap = times[j];
            times[j] = times[j - 1];
            times[j - 1] = swap;
        }
    return times[RUNS / 2];
}

lac_status lac_measure_kernel(const lac_problem *problem, const lac_kernel *kernel, const void *state, double *seconds)
{
    if (problem->device->info.kind != LAC_DEVICE_KIND_CPU)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "options->measure is 1; only a CPU's kernels can be measured");
    const lac_plan_options *o = &problem->options;
    uint64_t m = (uint64_t)problem->m, n = (uint64_t)problem->weight->n_out, k = (uint64_t)problem->weight->k_in;
    uint64_t workspace_bytes = kernel->workspace ? kernel->workspace(problem) : 0;
    void *x = random_operand(o->x_dtype, m, k);
    void *y = random_operand(o->y_dtype, m, n);
    void *c = o->has_residual ? random_operand(o->c_dtype, m, n) : NULL;
    void *bias = o->has_bias ? random_operand(o->bias_dtype, 1, n) : NULL;
    void *workspace = lac_allocate(workspace_bytes);

    lac_status status = LAC_STATUS_OK;
    if (!x || !y || (o->has_residual && !c) || (o->has_bias && !bias) || !workspace) {
        status = lac_fail_memory("measuring", m * (n + k));
    } else {
        int64_t ldy = (int64_t)(o->y_layout == LAC_LAYOUT_TOKEN_MAJOR ? n : m);
        lac_call call = {.x = x,
                         .bias = bias,
                         .c = c,
                         .y = y,
                         .ldx = (int64_t)(o->x_layout == LAC_LAYOUT_TOKEN_MAJOR ? k : m),
                         .ldy = ldy,
                         .ldc = ldy,
                         .alpha = 1.0f,
                         .beta = c ? 1.0f : 0.0f,
                         .workspace = workspace};
        double times[RUNS] = {0};
        for (int run = -1; run < RUNS && !status; ++run) { /* run -1 warms up */
            double start = now();
            if (m && n) status = kernel->execute(problem, state, &call);
            if (run >= 0) times[run] = now() - start;
        }
        if (!status) *seconds = median(times);
    }
    lac_release(x);
    lac_release(y);
    lac_release(c);
    lac_release(bias);
    lac_release(workspace);
    return status;
}
