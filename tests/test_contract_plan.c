/* test_contract_plan.c - what lacuna.h says of a plan before it runs: what its options mean and what they keep it from doing, and what
 * its info and its levels tell. What execute promises is in test_contract_execute.c. */
#include "plan_case.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

static lac_device *cpu;

static lac_plan_info info_of(const lac_plan *plan)
{
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(plan, &info));
    return info;
}

static lac_weight *make(const char *text, int64_t n, int64_t k, lac_dtype dtype)
{
    test_random random = test_random_make("contract_plan", 0);
    lac_pattern pattern = pattern_of(text);
    return weight_make(&random, &pattern, n, k, dtype, TEST_FILL_GAUSSIAN);
}

/* ---- candidates and picks */

/* As many as can be forced, but for the oracle; dense or not, by what can be forced alone. */
static void candidates_are_those_that_can_be_forced(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4", "4:4", "vw8:25%", "bw4x4:1:2", "8:2:8", "shfl8:50%"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        lac_weight *weight = make(patterns[i], 64, 96, LAC_DTYPE_F32);
        lac_kernel_info kernel = {.size = sizeof kernel};
        int count = 0, sparse = 0;
        for (size_t at = 0; lac_kernel_probe(at, &kernel) == LAC_STATUS_OK; at++) {
            lac_plan_options options = {.size = sizeof options, .kernel = kernel.name};
            lac_plan *plan = NULL;
            if (lac_plan_create(cpu, weight, 16, &options, &plan) != LAC_STATUS_OK) continue;
            lac_plan_info info = info_of(plan);
            assert_true(info.forced == 1 && info.is_dense == kernel.is_dense && info.measured_seconds == 0);
            assert_int_equal(info.dense_bytes, kernel.is_dense ? 64 * 96 * sizeof(float) : 0);
            count += strcmp(kernel.name, "ref_f64") != 0;
            sparse += strcmp(kernel.name, "ref_f64") != 0 && !kernel.is_dense;
            lac_plan_free(plan);
        }
        lac_plan *plan = NULL;
        assert_ok(lac_plan_create(cpu, weight, 16, NULL, &plan));
        lac_plan_info info = info_of(plan);
        assert_int_equal(info.candidates, count);
        assert_true(info.forced == 0 && info.rivals == 0 && info.measured_seconds == 0 && !*info.note);
        lac_plan_free(plan);
        lac_plan_options options = {.size = sizeof options, .no_dense = 1};
        assert_ok(lac_plan_create(cpu, weight, 16, &options, &plan));
        assert_int_equal(info_of(plan).candidates, sparse);
        lac_plan_free(plan);
        lac_weight_free(weight);
    }
}

/* Timed, all of them are rivals and the pick has a time; what was not timed has none. */
static void measuring_times_the_candidates(void **state)
{
    (void)state;
    lac_weight *weight = make("2:4", 64, 96, LAC_DTYPE_F32);
    lac_plan *plan = NULL;
    lac_plan_options options = {.size = sizeof options, .measure = 1};
    assert_ok(lac_plan_create(cpu, weight, 16, &options, &plan));
    lac_plan_info info = info_of(plan);
    assert_true(info.candidates > 1 && info.rivals == info.candidates - 1);
    assert_true(info.measured_seconds > 0 && info.predicted_seconds > 0 && info.forced == 0);
    lac_plan_free(plan);
    options.kernel = "cpu_scalar_f32_gather"; /* nothing to compare it with */
    assert_ok(lac_plan_create(cpu, weight, 16, &options, &plan));
    assert_true(info_of(plan).measured_seconds == 0 && info_of(plan).candidates == 1);
    lac_plan_free(plan);
    options.kernel = NULL;
    options.no_timing = 1;
    plan = NULL;
    assert_fails(lac_plan_create(cpu, weight, 16, &options, &plan), LAC_STATUS_INVALID_ARGUMENT, "no_timing");
    options.measure = 0;
    assert_ok(lac_plan_create(cpu, weight, 16, &options, &plan));
    assert_true(info_of(plan).measured_seconds == 0);
    lac_plan_free(plan);
    lac_weight_free(weight);
}

/* ---- what a plan is kept from */

/* With memory for less than a dense W at a time; dense pays here, and would be picked. */
static void no_dense_keeps_no_dense_weight(void **state)
{
    (void)state;
    enum { N = 512, K = 512, M = 256 };
    lac_weight *weight = make("4:4", N, K, LAC_DTYPE_F16), *sparse = make("3:4", N, K, LAC_DTYPE_F16);
    lac_plan *plan = NULL;
    lac_plan_options options = {.size = sizeof options};
    assert_ok(lac_plan_create(cpu, weight, M, &options, &plan));
    lac_plan_info info = info_of(plan);
    assert_true(info.is_dense && info.dense_bytes == N * K * 2);
    char dense[64];
    snprintf(dense, sizeof dense, "%s", info.kernel);
    lac_plan_free(plan);
    options.no_dense = 1;
    assert_ok(lac_plan_create(cpu, weight, M, &options, &plan));
    info = info_of(plan);
    assert_true(!info.is_dense && info.dense_bytes == 0);
    lac_plan_free(plan);
    for (int measure = 0; measure < 2; measure++) {
        options.measure = measure;
        assert_ok(lac_plan_create(cpu, sparse, 4, &options, &plan));
        assert_true(!info_of(plan).is_dense);
        lac_plan_free(plan);
    }
    options.measure = 0, options.kernel = dense;
    plan = NULL;
    assert_fails(lac_plan_create(cpu, weight, M, &options, &plan), LAC_STATUS_INVALID_ARGUMENT, "no_dense is 1");
    assert_null(plan);
    lac_weight_free(weight);
    lac_weight_free(sparse);
}

/* No kernel prepares anything: with memory for a plan and hardly more. */
static void predicting_prepares_nothing(void **state)
{
    (void)state;
    enum { N = 512, K = 512, M = 64, LITTLE = 16 << 10 };
    lac_weight *weight = make("2:4", N, K, LAC_DTYPE_F32);
    const char *name[MOST_KERNELS];
    int count = kernel_names(name), predicted = 0, prepared = 0;
    for (int i = -1; i < count; i++) {
        lac_plan_options options = {.size = sizeof options, .predict_only = 1, .kernel = i < 0 ? NULL : name[i]};
        lac_plan *plan = NULL;
        test_allocator_limit(LITTLE);
        lac_status status = lac_plan_create(cpu, weight, M, &options, &plan);
        test_allocator_limit(0);
        if (status == LAC_STATUS_UNSUPPORTED) continue;
        assert_ok(status);
        predicted++;
        lac_plan_info info = info_of(plan);
        lac_plan_free(plan);
        plan = NULL;
        options.predict_only = 0;
        assert_ok(lac_plan_create(cpu, weight, M, &options, &plan)); /* the same, but for what it may do */
        lac_plan_info whole = info_of(plan);
        assert_string_equal(whole.kernel, info.kernel);
        assert_true(whole.predicted_seconds == info.predicted_seconds && whole.candidates == info.candidates);
        lac_plan_free(plan);
        plan = NULL;
        test_allocator_limit(LITTLE);
        prepared += lac_plan_create(cpu, weight, M, &options, &plan) == LAC_STATUS_OUT_OF_MEMORY;
        test_allocator_limit(0);
        lac_plan_free(plan);
    }
    assert_true(predicted > 3 && prepared > 1); /* the limit would have been felt */
    lac_weight_free(weight);
}

/* ---- threads */

/* The rates are fixed, so that memory's tells how many threads the plan counts on. */
static double memory_rate(lac_device *device, const lac_weight *weight, int32_t threads)
{
    lac_plan *plan = NULL;
    lac_level_info level = {.size = sizeof level};
    lac_plan_options options = {.size = sizeof options, .threads = threads, .kernel = "cpu_scalar_f32_gather"};
    double rate = -1;
    if (!lac_plan_create(device, weight, 64, &options, &plan) && !lac_plan_explain(plan, 0, &level)) rate = level.rate;
    lac_plan_free(plan);
    return rate;
}

static int child_on_one_core(const lac_weight *weight, double rate_of_one)
{
    cpu_set_t all, one;
    int core = 0;
    if (sched_getaffinity(0, sizeof all, &all)) return 1;
    while (!CPU_ISSET(core, &all)) core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one)) return 2;
    lac_device *device = NULL;
    lac_device_info info = {.size = sizeof info};
    if (lac_device_open("cpu", &device) || lac_device_get_info(device, &info) || info.cores != 1) return 3;
    int wrong = memory_rate(device, weight, 0) != rate_of_one;
    lac_device_close(device);
    return wrong ? 4 : 0;
}

/* 0 is as many as the process may use: all of them, and one where it is held to one. */
static void unsaid_threads_are_the_cores(void **state)
{
    (void)state;
    lac_weight *weight = make("2:4", 64, 96, LAC_DTYPE_F32);
    lac_device_info info = {.size = sizeof info};
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_ok(lac_device_get_info(cpu, &info));
    assert_int_equal(info.cores, CPU_COUNT(&all));
    double one = memory_rate(cpu, weight, 1);
    assert_true(one > 0 && memory_rate(cpu, weight, 0) == memory_rate(cpu, weight, info.cores));
    if (info.cores > 1) assert_true(memory_rate(cpu, weight, 0) > one);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(child_on_one_core(weight, one));
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    lac_weight_free(weight);
}

/* ---- what is told of it */

static void levels_go_from_memory_inwards(void **state)
{
    (void)state;
    static const char *const names[] = {"memory", "l3", "l2", "loads", "fma", "packing"}, *const units[] = {
                                                                                              "bytes",       "bytes",
                                                                                              "bytes",       "vector loads",
                                                                                              "vector FMAs", "element moves"};
    lac_weight *weight = make("2:4", 64, 96, LAC_DTYPE_F32);
    const char *name[MOST_KERNELS];
    int count = kernel_names(name), tried = 0;
    for (int i = 0; i < count; i++) {
        lac_plan_options options = {.size = sizeof options, .kernel = name[i], .threads = 1};
        lac_plan *plan = NULL;
        if (lac_plan_create(cpu, weight, 16, &options, &plan) != LAC_STATUS_OK) continue;
        lac_plan_info info = info_of(plan);
        lac_level_info level = {.size = sizeof level};
        if (!strcmp(name[i], "ref_f64")) {
            assert_status(lac_plan_explain(plan, 0, &level), LAC_STATUS_NOT_FOUND);
            lac_plan_free(plan);
            continue;
        }
        double longest = 0;
        int bounds = 0;
        for (size_t l = 0; l < sizeof names / sizeof *names; l++) {
            assert_ok(lac_plan_explain(plan, l, &level));
            assert_string_equal(level.name, names[l]);
            assert_string_equal(level.unit, units[l]);
            assert_true(level.amount >= 0 && level.rate > 0);
            assert_true(fabs(level.seconds * level.rate - level.amount) <= 1e-9 * level.amount);
            size_t end = strlen(level.remedy);
            assert_true(end > 20 && level.remedy[end - 1] == '.' && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ", *level.remedy));
            longest = fmax(longest, level.seconds);
            bounds += level.is_bound;
            if (level.is_bound) assert_true(level.seconds == info.ceiling_seconds && !strcmp(level.name, info.bound));
        }
        assert_true(bounds == 1 && longest == info.ceiling_seconds && longest <= info.predicted_seconds);
        assert_status(lac_plan_explain(plan, sizeof names / sizeof *names, &level), LAC_STATUS_NOT_FOUND);
        lac_plan_free(plan);
        tried++;
    }
    assert_true(tried > 3);
    lac_weight_free(weight);
}

/* A GPU's waves and latency have no rate; of all others seconds are amount / rate. */
static void levels_of_a_gpu_hang_together(void **state)
{
    (void)state;
    lac_device *gpu = NULL;
    lac_weight *weight = make("vw32:8:32", 256, 512, LAC_DTYPE_F16);
    assert_ok(lac_device_open("h200", &gpu));
    for (int64_t m = 1; m <= 4096; m *= 16) {
        lac_plan *plan = NULL;
        lac_plan_options options = {.size = sizeof options, .predict_only = 1};
        lac_level_info level = {.size = sizeof level};
        assert_ok(lac_plan_create(gpu, weight, m, &options, &plan));
        int without = 0, bounds = 0;
        size_t count = 0;
        for (; lac_plan_explain(plan, count, &level) == LAC_STATUS_OK; count++) {
            bool model = !strcmp(level.name, "waves") || !strcmp(level.name, "latency");
            assert_int_equal(level.rate == 0, model);
            without += model;
            bounds += level.is_bound;
            if (!model) assert_true(fabs(level.seconds * level.rate - level.amount) <= 1e-9 * level.amount);
            if (count == 0) assert_string_equal(level.name, "memory");
        }
        assert_true(count > 4 && without == 2 && bounds == 1);
        lac_plan_free(plan);
    }
    lac_device_close(gpu);
    lac_weight_free(weight);
}

/* n and k are the widths of Y and X, also of a shard that holds fewer rows and columns. */
static void widths_are_those_of_y_and_x(void **state)
{
    (void)state;
    test_random random = test_random_make("widths", 0);
    lac_weight *weight = weight_permuted(&random, make("vw8:2:4", 32, 48, LAC_DTYPE_F32), true, true), *rows = NULL,
               *both = NULL;
    assert_ok(lac_weight_shard(weight, LAC_AXIS_N, 8, 16, &rows));
    assert_ok(lac_weight_shard(rows, LAC_AXIS_K, 4, 16, &both));
    lac_plan *plan = NULL;
    assert_ok(lac_plan_create(cpu, both, 3, NULL, &plan));
    lac_plan_info info = info_of(plan);
    lac_weight_info held = weight_info(both);
    assert_true(held.n == 8 && held.k == 12 && info.m == 3 && info.n == 32 && info.k == 48);
    lac_plan_free(plan);
    lac_weight_free(both);
    lac_weight_free(rows);
    lac_weight_free(weight);
}

/* ---- precision */

static void unsaid_precision_is_strict_on_a_cpu_and_fast_on_a_gpu(void **state)
{
    (void)state;
    static const lac_precision pairs[2][2] = {{LAC_PRECISION_DEFAULT, LAC_PRECISION_STRICT},
                                              {LAC_PRECISION_DEFAULT, LAC_PRECISION_FAST}};
    lac_weight *weight = make("2:4", 256, 512, LAC_DTYPE_F32);
    lac_device *gpu = NULL;
    assert_ok(lac_device_open("h200", &gpu));
    for (int where = 0; where < 2; where++) {
        lac_plan_info info[2];
        double bound[2] = {0, 0};
        for (int i = 0; i < 2; i++) {
            lac_plan_options options = {.size = sizeof options, .predict_only = 1, .precision = pairs[where][i]};
            lac_plan *plan = NULL;
            float x[512];
            double y[256], bounds[256];
            for (int j = 0; j < 512; j++) x[j] = 1.0f / (float)(1 + j);
            lac_execute_args args = {.size = sizeof args, .x = x};
            assert_ok(lac_plan_create(where ? gpu : cpu, weight, 1, &options, &plan));
            info[i] = info_of(plan);
            assert_ok(lac_plan_reference(plan, &args, y, bounds, 0));
            for (int j = 0; j < 256; j++) bound[i] += bounds[j];
            lac_plan_free(plan);
        }
        assert_true(bound[0] > 0 && bound[0] == bound[1] && info[0].predicted_seconds == info[1].predicted_seconds);
        assert_string_equal(info[0].kernel, info[1].kernel);
    }
    lac_device_close(gpu);
    lac_weight_free(weight);
}

static int open_cpu(void **state)
{
    (void)state;
    assert_ok(lac_device_open("cpu", &cpu));
    return 0;
}

static int close_cpu(void **state)
{
    (void)state;
    lac_device_close(cpu);
    return 0;
}

int main(void)
{
    setenv("LAC_CPU_RATES", "5,5,120,30,12,24", 1);
    test_allocator_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(candidates_are_those_that_can_be_forced),
        cmocka_unit_test(measuring_times_the_candidates),
        cmocka_unit_test(no_dense_keeps_no_dense_weight),
        cmocka_unit_test(predicting_prepares_nothing),
        cmocka_unit_test(unsaid_threads_are_the_cores),
        cmocka_unit_test(levels_go_from_memory_inwards),
        cmocka_unit_test(levels_of_a_gpu_hang_together),
        cmocka_unit_test(widths_are_those_of_y_and_x),
        cmocka_unit_test(unsaid_precision_is_strict_on_a_cpu_and_fast_on_a_gpu),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
