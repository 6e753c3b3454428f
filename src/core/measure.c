/* measure.c - times a prepared kernel for the planner's measuring mode: random operands in the device's memory, a warm-up,
 * the median of a few runs. Called by plan.c only. */
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

/* A matrix of random numbers in the device's memory. */
static lac_status make_operand(const lac_device *device, lac_dtype dtype, uint64_t rows, uint64_t cols, void **out)
{
    uint64_t count = rows * cols, bytes; /* both below 2^31 */
    void *host = lac_multiply_u64(count, lac_dtype_size(dtype), &bytes) ? lac_allocate(bytes) : NULL;
    if (!host) return lac_fail_memory("measuring", count);
    fill_random(host, dtype, (int64_t)count);
    if (!device->ops->allocate) {
        *out = host;
        return LAC_STATUS_OK;
    }
    lac_status status = lac_device_allocate(device, bytes, out);
    if (!status) status = lac_device_upload(device, *out, host, bytes); /* who called releases it */
    lac_release(host);
    return status;
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

typedef struct measurement {
    const lac_problem *problem;
    const lac_kernel *kernel;
    const void *state;
    lac_call call;
} measurement;

static lac_status run_once(void *user, void *stream)
{
    measurement *m = user;
    m->call.stream = stream;
    return m->kernel->execute(m->problem, m->state, &m->call);
}

/* `repeats` runs in a row, by the device's clock where it has one. */
static lac_status time_runs(measurement *m, int repeats, double *seconds)
{
    const lac_device *device = m->problem->device;
    if (device->ops->time) return device->ops->time(device, run_once, m, repeats, seconds);
    double start = now();
    lac_status status = LAC_STATUS_OK;
    for (int i = 0; i < repeats && !status; ++i) status = run_once(m, NULL);
    *seconds = (now() - start) / repeats;
    return status;
}

/* A GPU's clock needs a while to be exact, so short runs are timed several at a time. */
static const double LEAST_SECONDS = 2e-4;
enum { MOST_REPEATS = 50 };

static lac_status time_median(measurement *m, double *seconds)
{
    double times[RUNS] = {0}, first = 0;
    lac_status status = time_runs(m, 1, &first); /* warms up */
    int repeats = 1;
    if (!status && m->problem->device->ops->time && !(status = time_runs(m, 1, &first)))
        repeats = first * MOST_REPEATS > LEAST_SECONDS ? 1 + (int)(LEAST_SECONDS / first) : MOST_REPEATS;
    for (int run = 0; run < RUNS && !status; ++run) status = time_runs(m, repeats, &times[run]);
    if (!status) *seconds = median(times);
    return status;
}

lac_status lac_measure_kernel(const lac_problem *problem, const lac_kernel *kernel, const void *state, double *seconds)
{
    const lac_device *device = problem->device;
    const lac_plan_options *o = &problem->options;
    uint64_t m = (uint64_t)problem->m, n = (uint64_t)problem->weight->n_out, k = (uint64_t)problem->weight->k_in;
    uint64_t workspace_bytes = lac_kernel_workspace(kernel, problem, state);
    void *x = NULL, *y = NULL, *c = NULL, *bias = NULL, *workspace = NULL;
    lac_status status = make_operand(device, o->x_dtype, m, k, &x);
    if (!status) status = make_operand(device, o->y_dtype, m, n, &y);
    if (!status && o->has_residual) status = make_operand(device, o->c_dtype, m, n, &c);
    if (!status && o->has_bias) status = make_operand(device, o->bias_dtype, 1, n, &bias);
    if (!status) status = lac_device_allocate(device, workspace_bytes, &workspace);
    if (!status) {
        int64_t ldy = (int64_t)(o->y_layout == LAC_LAYOUT_TOKEN_MAJOR ? n : m);
        measurement measured = {problem,
                                kernel,
                                state,
                                {.x = x,
                                 .bias = bias,
                                 .c = c,
                                 .y = y,
                                 .ldx = (int64_t)(o->x_layout == LAC_LAYOUT_TOKEN_MAJOR ? k : m),
                                 .ldy = ldy,
                                 .ldc = ldy,
                                 .alpha = 1.0f,
                                 .beta = c ? 1.0f : 0.0f,
                                 .workspace = workspace}};
        if (m && n)
            status = time_median(&measured, seconds);
        else
            *seconds = 0.0;
    }
    lac_device_release(device, x);
    lac_device_release(device, y);
    lac_device_release(device, c);
    lac_device_release(device, bias);
    lac_device_release(device, workspace);
    return status;
}
