/* test_model_gpu.c - the performance model of GPUs, which needs none: what its formula must do, and what plans that predict
 * only say and refuse. */
#include "format/weight.h"
#include "model/gpu.h"
#include "plan_case.h"

static const lac_gpu_rates rates = {.memory = 4e12,
                                    .l2 = 8e12,
                                    .shared = 3e13,
                                    .issue = 1e12,
                                    .mma_f16 = 1e15,
                                    .launch = 2e-6,
                                    .l2_bytes = 60u << 20,
                                    .multiprocessors = 132};

static const lac_gpu_work full = {.memory_bytes = 4e8,
                                  .l2_bytes = 8e8,
                                  .shared_bytes = 9e9,
                                  .instructions = 1e9,
                                  .mma_flops = 0,
                                  .blocks = 1320,
                                  .blocks_at_once = 132,
                                  .launches = 1};

static const lac_level *level_named(const lac_cost *cost, const char *name)
{
    for (int i = 0; i < cost->levels; ++i)
        if (!strcmp(cost->level[i].name, name)) return &cost->level[i];
    fail_msg("there is no level '%s'", name);
    return NULL;
}

static void the_longest_level_bounds(void **state)
{
    (void)state;
    lac_cost cost = lac_model_gpu_cost(&rates, &full);
    assert_string_equal(cost.bound, "issue");
    assert_true(fabs(cost.ceiling - 1e-3) < 1e-12);
    assert_true(cost.seconds > cost.ceiling);
    lac_gpu_work work = full;
    work.memory_bytes = 4e10;
    cost = lac_model_gpu_cost(&rates, &work);
    assert_string_equal(cost.bound, "memory");
    assert_true(fabs(cost.ceiling - 1e-2) < 1e-12);
    work = (lac_gpu_work){.memory_bytes = 1e3, .blocks = 1, .blocks_at_once = 132, .launches = 1};
    cost = lac_model_gpu_cost(&rates, &work);
    assert_string_equal(cost.bound, "launch");
    assert_true(cost.seconds >= rates.launch && cost.seconds < 2 * rates.launch);
}

/* More of anything never takes less time. */
static void more_work_takes_longer(void **state)
{
    (void)state;
    double before = lac_model_gpu_cost(&rates, &full).seconds;
    for (int i = 0; i < 7; ++i) {
        lac_gpu_work work = full;
        double *const fields[] = {&work.memory_bytes, &work.l2_bytes,     &work.shared_bytes, &work.instructions,
                                  &work.mma_flops,    &work.fill_seconds, &work.blocks};
        *fields[i] = i == 6 ? work.blocks + 1 : 1.5 * *fields[i] + 1e-5;
        assert_true(lac_model_gpu_cost(&rates, &work).seconds >= before);
    }
}

static void a_last_wave_that_is_not_full_costs(void **state)
{
    (void)state;
    lac_cost even = lac_model_gpu_cost(&rates, &full);
    assert_true(level_named(&even, "waves")->seconds == 0.0);
    lac_gpu_work work = full;
    work.blocks = 133; /* one block more than a wave: as long as two */
    lac_cost uneven = lac_model_gpu_cost(&rates, &work);
    double lost = level_named(&uneven, "waves")->seconds;
    assert_true(lost > 0.9e-3 && lost < 1.3e-3);
    assert_true(fabs(uneven.seconds - even.seconds - lost) < 1e-9);
    /* Device memory does not care how many ask, as long as they can take it. */
    work = (lac_gpu_work){.memory_bytes = 4e8, .blocks = 66, .blocks_at_once = 132, .launches = 1};
    lac_cost bandwidth = lac_model_gpu_cost(&rates, &work);
    assert_true(level_named(&bandwidth, "waves")->seconds == 0.0);
}

static void a_kernel_may_say_what_it_reaches(void **state)
{
    (void)state;
    lac_gpu_work work = full;
    work.efficiency = 0.5;
    double slow = lac_model_gpu_cost(&rates, &work).seconds;
    work.efficiency = 1.0;
    double fast = lac_model_gpu_cost(&rates, &work).seconds, usual = lac_model_gpu_cost(&rates, &full).seconds;
    assert_true(slow > usual && usual > fast);
    work.efficiency = 1.5; /* more than the rate that was measured: then that is no ceiling */
    lac_cost faster = lac_model_gpu_cost(&rates, &work);
    assert_true(faster.seconds < fast && faster.ceiling <= faster.seconds);
}

static void sums_of_parts_come_behind_all_else(void **state)
{
    (void)state;
    assert_true(lac_model_gpu_parts(&rates, 0.0, 0.0) == 0.0);
    /* Enough blocks read as fast as memory gives, and more of them no faster. */
    double many = lac_model_gpu_parts(&rates, 4e6, 132);
    assert_true(fabs(many - 2e-6) < 1e-12);
    assert_true(lac_model_gpu_parts(&rates, 4e6, 1320) == many);
    /* Few blocks do not, however little else there is to do: half of them, half the rate. */
    double few = lac_model_gpu_parts(&rates, 4e6, 32) - 1e-6, fewer = lac_model_gpu_parts(&rates, 4e6, 16) - 1e-6;
    assert_true(few > 1e-6 && fabs(fewer - 2.0 * few) < 1e-12);
}

static void what_is_not_hidden_adds_up(void **state)
{
    (void)state;
    lac_gpu_work work = full;
    double hidden = lac_model_gpu_cost(&rates, &full).seconds;
    work.exposed = 0.5;
    lac_cost cost = lac_model_gpu_cost(&rates, &work);
    assert_true(fabs(cost.seconds - hidden - 0.5 * level_named(&cost, "memory")->seconds) < 1e-9);
}

/* The same of a pass that comes behind: each level takes its amount at its rate, and the ceiling stays below. */
static void a_pass_adds_to_its_levels(void **state)
{
    (void)state;
    lac_cost before = lac_model_gpu_cost(&rates, &full), cost = before;
    lac_model_gpu_pass(&rates, 1e9, &cost);
    assert_true(cost.seconds - before.seconds > 1e9 / rates.l2 && cost.ceiling <= cost.seconds);
    for (int i = 0; i < cost.levels; ++i) {
        const lac_level *l = &cost.level[i];
        if (l->rate > 0.0) assert_true(fabs(l->amount / l->rate - l->seconds) <= 1e-9 * l->seconds);
    }
}

/* ---- plans without a GPU */

static void a_gpu_that_is_not_here_can_be_asked(void **state)
{
    (void)state;
    static const char *const names[] = {"h200", "h100", "a100", "rtx4090", "rtx3090", "sm_90a", "sm_80"};
    test_random random = test_random_make("absent", 0);
    lac_pattern pattern = pattern_of("vw32:8:32");
    lac_weight *weight = weight_make(&random, &pattern, 256, 512, LAC_DTYPE_F32, TEST_FILL_GAUSSIAN);
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        lac_device *device = NULL;
        lac_plan *plan = NULL;
        lac_plan_options options = {.size = sizeof options, .predict_only = 1};
        assert_ok(lac_device_open(names[i], &device));
        lac_device_info info = {.size = sizeof info};
        assert_ok(lac_device_get_info(device, &info));
        assert_string_equal(info.name, names[i]);
        assert_ok(lac_plan_create(device, weight, 128, &options, &plan));
        lac_plan_info planned = {.size = sizeof planned};
        assert_ok(lac_plan_get_info(plan, &planned));
        assert_true(planned.predicted_seconds > 0 && planned.predicted_seconds < 1);
        assert_true(planned.ceiling_seconds <= planned.predicted_seconds);
        lac_plan_free(plan);
        plan = NULL;
        options.predict_only = 0; /* there is nothing to prepare it on */
        assert_int_not_equal(lac_plan_create(device, weight, 128, &options, &plan), LAC_STATUS_OK);
        assert_null(plan);
        lac_device_close(device);
    }
    lac_weight_free(weight);
}

/* 32 outputs are one row block, which eight blocks share at the most: whatever the other multiprocessors could do, they have none. */
static void few_outputs_keep_few_multiprocessors_busy(void **state)
{
    (void)state;
    static const char *const names[] = {"cuda_spmv_gather", "cuda_spmv_mma"};
    enum { MOST_BLOCKS = 8 };
    test_random random = test_random_make("few outputs", 0);
    lac_pattern pattern = pattern_of("vw32:8:32");
    lac_weight *weight = weight_make(&random, &pattern, 32, 16384, LAC_DTYPE_F16, TEST_FILL_GAUSSIAN);
    lac_device *device = NULL;
    lac_device_info about = {.size = sizeof about};
    assert_ok(lac_device_open("h200", &device));
    assert_ok(lac_device_get_info(device, &about));
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i)
        for (int64_t m = 2; m <= 16; m *= 2) {
            lac_plan_options options = {.size = sizeof options, .predict_only = 1, .kernel = names[i]};
            lac_plan *plan = NULL;
            assert_ok(lac_plan_create(device, weight, m, &options, &plan));
            lac_plan_info info = {.size = sizeof info};
            lac_level_info level = {.size = sizeof level};
            assert_ok(lac_plan_get_info(plan, &info));
            for (size_t j = 0; lac_plan_explain(plan, j, &level) == LAC_STATUS_OK; ++j) {
                bool own = !strcmp(level.name, "shared") || !strcmp(level.name, "issue") || !strcmp(level.name, "tensor");
                if (own) assert_true(info.predicted_seconds >= level.seconds * about.cores / MOST_BLOCKS);
            }
            lac_plan_free(plan);
        }
    lac_device_close(device);
    lac_weight_free(weight);
}

/* The planner asks for it several times in a plan, and in every plan. */
static void what_is_counted_over_a_free_weight_stays_with_it(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        lac_dtype dtype;
        lac_weight_fact first, last;
    } cases[] = {{"25%", LAC_DTYPE_F16, LAC_FACT_EXPAND_MOST, LAC_FACT_EXPAND_MOST},
                 {"vw32:25%", LAC_DTYPE_F32, LAC_FACT_WINDOW_MOST, LAC_FACT_WINDOW_LAST}};
    test_random random = test_random_make("facts", 0);
    lac_device *device = NULL;
    assert_ok(lac_device_open("h200", &device));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        lac_pattern pattern = pattern_of(cases[i].pattern);
        lac_weight *weight = weight_make(&random, &pattern, 128, 512, cases[i].dtype, TEST_FILL_GAUSSIAN);
        lac_plan_options options = {.size = sizeof options, .predict_only = 1};
        double seconds[2];
        for (int again = 0; again < 2; ++again) {
            lac_plan *plan = NULL;
            lac_plan_info info = {.size = sizeof info};
            assert_ok(lac_plan_create(device, weight, 128, &options, &plan));
            assert_ok(lac_plan_get_info(plan, &info));
            seconds[again] = info.predicted_seconds;
            lac_plan_free(plan);
        }
        assert_true(seconds[0] == seconds[1]);
        for (lac_weight_fact fact = cases[i].first; fact <= cases[i].last; ++fact)
            assert_true(lac_weight_known(weight, fact) > 0);
        lac_weight_free(weight);
    }
    lac_device_close(device);
}

static void names_of_nothing_are_refused(void **state)
{
    (void)state;
    lac_device *device = NULL;
    assert_fails(lac_device_open("h2000", &device), LAC_STATUS_NOT_FOUND, "h2000");
    assert_fails(lac_device_open("sm_12", &device), LAC_STATUS_NOT_FOUND, "sm_12");
    assert_null(device);
}

static void a_plan_that_predicts_does_not_execute(void **state)
{
    (void)state;
    test_random random = test_random_make("predict_only", 0);
    lac_pattern pattern = pattern_of("2:4");
    lac_plan_options options = {.size = sizeof options, .predict_only = 1};
    plan_case c = case_make(&random, weight_make(&random, &pattern, 16, 32, LAC_DTYPE_F32, TEST_FILL_GAUSSIAN), 4, &options,
                            TEST_FILL_GAUSSIAN);
    lac_plan *plan = plan_make(&c, NULL, 1);
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(plan, &info));
    assert_true(info.predicted_seconds > 0);
    lac_execute_args args = case_args(&c);
    void *workspace = info.workspace_bytes ? aligned_alloc(64, (info.workspace_bytes + 63) / 64 * 64) : NULL;
    args.workspace = workspace;
    args.workspace_bytes = info.workspace_bytes;
    assert_fails(lac_plan_execute(plan, &args), LAC_STATUS_UNSUPPORTED, "predict_only");
    free(workspace);
    lac_plan_free(plan);
    lac_device *device = NULL;
    options.measure = 1;
    plan = NULL;
    assert_ok(lac_device_open("cpu", &device));
    assert_fails(lac_plan_create(device, c.weight, 4, &options, &plan), LAC_STATUS_INVALID_ARGUMENT, "predict_only");
    lac_device_close(device);
    case_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_longest_level_bounds),
                                       cmocka_unit_test(more_work_takes_longer),
                                       cmocka_unit_test(a_last_wave_that_is_not_full_costs),
                                       cmocka_unit_test(a_kernel_may_say_what_it_reaches),
                                       cmocka_unit_test(sums_of_parts_come_behind_all_else),
                                       cmocka_unit_test(what_is_not_hidden_adds_up),
                                       cmocka_unit_test(a_pass_adds_to_its_levels),
                                       cmocka_unit_test(a_gpu_that_is_not_here_can_be_asked),
                                       cmocka_unit_test(few_outputs_keep_few_multiprocessors_busy),
                                       cmocka_unit_test(what_is_counted_over_a_free_weight_stays_with_it),
                                       cmocka_unit_test(names_of_nothing_are_refused),
                                       cmocka_unit_test(a_plan_that_predicts_does_not_execute)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
