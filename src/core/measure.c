/* measure.c - times prepared kernels for the planner: random operands in the device's memory, and the kernels in turns on them, so
 * that a machine that slows down slows all of them down. Called by choose.c only. */
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

/* ---- operands */

enum { PATTERN_ELEMENTS = 1 << 16 };

/* Numbers in [-0.5, 0.5), for zeros could run faster than real data. They repeat after a while: drawing takes longer than copying. */
static void fill_random(char *data, lac_dtype dtype, uint64_t count)
{
    uint64_t drawn = count < PATTERN_ELEMENTS ? count : PATTERN_ELEMENTS, size = lac_dtype_size(dtype);
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (uint64_t i = 0; i < drawn; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        lac_store_f64(data, dtype, (int64_t)i, (double)(state >> 40) * 0x1p-24 - 0.5);
    }
    for (uint64_t part; drawn < count; drawn += part) {
        part = drawn < count - drawn ? drawn : count - drawn;
        memcpy(data + drawn * size, data, part * size);
    }
}

/* A matrix of random numbers in the device's memory. */
static lac_status make_operand(const lac_device *device, lac_dtype dtype, uint64_t rows, uint64_t cols, void **out)
{
    uint64_t count = rows * cols, bytes = count * lac_dtype_size(dtype); /* below 2^31 each, and 4 bytes at most */
    void *host = lac_allocate(bytes);
    if (!host) return lac_fail_memory("an operand to measure with", bytes);
    fill_random(host, dtype, count);
    if (!device->ops->allocate) {
        *out = host;
        return LAC_STATUS_OK;
    }
    lac_status status = lac_device_allocate(device, bytes, out);
    if (!status) status = lac_device_upload(device, *out, host, bytes); /* who called releases it */
    lac_release(host);
    return status;
}

lac_status lac_test_bed_make(const lac_problem *problem, lac_test_bed *out)
{
    const lac_device *device = problem->device;
    const lac_plan_options *o = &problem->options;
    uint64_t m = (uint64_t)problem->m, n = (uint64_t)problem->weight->n_out, k = (uint64_t)problem->weight->k_in;
    *out = (lac_test_bed){.problem = problem};
    lac_status status = make_operand(device, o->x_dtype, m, k, &out->x);
    if (!status) status = make_operand(device, o->y_dtype, m, n, &out->y);
    if (!status && o->has_residual) status = make_operand(device, o->c_dtype, m, n, &out->c);
    if (!status && o->has_bias) status = make_operand(device, o->bias_dtype, 1, n, &out->bias);
    if (status) lac_test_bed_release(out);
    return status;
}

void lac_test_bed_release(lac_test_bed *bed)
{
    const lac_device *device = bed->problem->device;
    lac_device_release(device, bed->x);
    lac_device_release(device, bed->y);
    lac_device_release(device, bed->c);
    lac_device_release(device, bed->bias);
}

/* ---- runs */

typedef struct runner {
    lac_problem problem; /* with the entrant's own kernel */
    const void *state;
    lac_call call;
} runner;

static lac_status run_once(void *user, void *stream)
{
    runner *r = user;
    r->call.stream = stream;
    return r->problem.kernel->execute(&r->problem, r->state, &r->call);
}

static runner make_runner(const lac_test_bed *bed, const lac_entrant *entrant, void *workspace)
{
    const lac_problem *p = bed->problem;
    const lac_plan_options *o = &p->options;
    int64_t n = p->weight->n_out, k = p->weight->k_in, ldy = o->y_layout == LAC_LAYOUT_TOKEN_MAJOR ? n : p->m;
    runner made = {.problem = *p,
                   .state = entrant->state,
                   .call = {.x = bed->x,
                            .bias = bed->bias,
                            .c = bed->c,
                            .y = bed->y,
                            .ldx = o->x_layout == LAC_LAYOUT_TOKEN_MAJOR ? k : p->m,
                            .ldy = ldy,
                            .ldc = ldy,
                            .alpha = 1.0f,
                            .beta = bed->c ? 1.0f : 0.0f,
                            .workspace = workspace}};
    made.problem.kernel = entrant->kernel;
    return made;
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

/* By the host's clock; the first round warms up. */
static lac_status race_on_host(const lac_work *works, int count, double *seconds)
{
    double times[LAC_MOST_ENTRANTS][RUNS];
    for (int round = -1; round < RUNS; ++round)
        for (int i = 0; i < count; ++i) {
            double start = now();
            lac_status status = works[i].run(works[i].user, NULL);
            if (status) return status;
            if (round >= 0) times[i][round] = now() - start;
        }
    for (int i = 0; i < count; ++i) seconds[i] = median(times[i]);
    return LAC_STATUS_OK;
}

lac_status lac_test_bed_race(const lac_test_bed *bed, lac_entrant *entrants, int count)
{
    const lac_problem *problem = bed->problem;
    const lac_device *device = problem->device;
    runner runners[LAC_MOST_ENTRANTS];
    lac_work works[LAC_MOST_ENTRANTS];
    double seconds[LAC_MOST_ENTRANTS] = {0};
    size_t workspace_bytes = 0;
    void *workspace = NULL;
    for (int i = 0; i < count; ++i) {
        lac_problem own = *problem;
        own.kernel = entrants[i].kernel;
        size_t bytes = lac_kernel_workspace(own.kernel, &own, entrants[i].state);
        if (bytes > workspace_bytes) workspace_bytes = bytes;
    }
    lac_status status = lac_device_allocate(device, workspace_bytes, &workspace);
    for (int i = 0; i < count; ++i) {
        runners[i] = make_runner(bed, &entrants[i], workspace);
        works[i] = (lac_work){run_once, &runners[i]};
    }
    bool empty = !problem->m || !problem->weight->geometry.n; /* a shard may own no output */
    if (!status && !empty)
        status = device->ops->race ? device->ops->race(device, works, count, seconds) : race_on_host(works, count, seconds);
    for (int i = 0; i < count && !status; ++i) entrants[i].seconds = seconds[i];
    lac_device_release(device, workspace);
    return status;
}
