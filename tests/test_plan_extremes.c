/* test_plan_extremes.c - plans and calls at the ends of what is allowed, on every kernel of the CPU: factors that are not finite, leading
 * dimensions up to the end of the address space, thousands of threads, measuring without memory. */
#include "plan_case.h"

/* ---- factors */

static const float factors[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-45f, 3e38f, -2.0f};
enum { FACTORS = sizeof factors / sizeof *factors, NOT_FINITE = 3 };

static double draw(test_random *random, int count) { return (double)factors[test_random_between(random, 0, count - 1)]; }

/* What alpha and beta do to sums, biases and residuals that may be anything, C = Y among them. */
static void factor_case(test_random *random, int64_t index, void *user)
{
    (void)user;
    lac_weight *weight = random_weight(random, 300, TEST_FILL_GAUSSIAN);
    lac_plan_options options = random_options(random, false);
    plan_case c = case_make(random, weight, test_random_pick(random, 1, 2, 5, 17), &options, TEST_FILL_GAUSSIAN);
    if (c.info.k_in && test_random_chance(random, 50))
        test_matrix_set(&c.x, 0, test_random_between(random, 0, c.info.k_in - 1), draw(random, NOT_FINITE));
    if (c.info.n_out && test_random_chance(random, 50)) {
        int64_t at = test_random_between(random, 0, c.info.n_out - 1);
        test_matrix_set(test_random_chance(random, 50) ? &c.bias : &c.c, 0, at, draw(random, NOT_FINITE));
    }
    c.pass_alpha = c.pass_beta = true;
    c.alpha = factors[index % FACTORS];
    c.beta = factors[index / FACTORS % FACTORS];
    c.c_is_y = options.has_residual && c.c.view.dtype == c.y.view.dtype && test_random_chance(random, 50);
    const char *name[MOST_KERNELS];
    int count = kernel_names(name);
    for (int i = 0; i < count; i++)
        if (kernel_applies(&c, name[i])) case_check(&c, name[i], 2, JUDGE_BOUND);
    case_free(&c);
}

static void factors_that_are_not_finite(void **state)
{
    (void)state;
    test_run_cases("factors", (int64_t)2 * FACTORS * FACTORS, factor_case, NULL);
}

/* ---- leading dimensions */

/* Of one run of memory nobody needs to know where the next would begin. */
static void check_far(const plan_case *c, const char *kernel)
{
    lac_plan *plan = plan_make(c, kernel, 2);
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(plan, &info));
    double *want, *bound;
    case_reset_y(c);
    case_reference(c, plan, &want, &bound);
    lac_execute_args args = case_args(c);
    args.workspace = aligned_alloc(64, info.workspace_bytes / 64 * 64 + 64);
    args.workspace_bytes = info.workspace_bytes;
    args.ldx = INT64_MAX / (int64_t)lac_dtype_size(c->x.view.dtype);
    args.ldy = args.ldc = INT64_MAX / (int64_t)lac_dtype_size(c->y.view.dtype);
    assert_ok(lac_plan_execute(plan, &args));
    for (int64_t i = 0; i < c->m * c->info.n_out; i++) {
        double got = test_matrix_get(&c->y, i / c->info.n_out, i % c->info.n_out);
        if (!agrees(got, want[i], bound[i])) fail_msg("%s: %.9g, the oracle says %.9g +- %.3g", kernel, got, want[i], bound[i]);
    }
    args.ldx++;
    assert_fails(lac_plan_execute(plan, &args), LAC_STATUS_INVALID_ARGUMENT, "args->ldx is");
    free(args.workspace);
    free(want);
    free(bound);
    lac_plan_free(plan);
}

static void leading_dimensions_without_end(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4", "vw32:8:32", "shfl16:25%", "8:2:8", "bw4x4:2:8", "25%"};
    test_random random = test_random_make("far", 0);
    const char *name[MOST_KERNELS];
    int count = kernel_names(name);
    for (int p = 0; p < 6; p++) {
        for (int way = 0; way < 12; way++) {
            int by_inputs = way & 1, by_outputs = way >> 1 & 1;
            int64_t m = by_inputs && by_outputs ? 37 : 1; /* one run each of X and Y */
            lac_pattern pattern = pattern_of(patterns[p]);
            lac_plan_options options = {.has_bias = 1,
                                        .has_residual = 1,
                                        .x_layout = (lac_layout)by_inputs,
                                        .y_layout = (lac_layout)by_outputs,
                                        .c_dtype = LAC_DTYPE_F32,
                                        .y_dtype = LAC_DTYPE_F32};
            lac_weight *weight = weight_make(&random, &pattern, by_outputs ? 1 : 50, by_inputs ? 1 : 70,
                                             (lac_dtype)(LAC_DTYPE_F32 + way / 4), TEST_FILL_GAUSSIAN);
            plan_case c = case_make(&random, weight, m, &options, TEST_FILL_GAUSSIAN);
            for (int i = 0; i < count; i++)
                if (kernel_applies(&c, name[i])) check_far(&c, name[i]);
            case_free(&c);
        }
    }
}

/* ---- threads and memory */

/* A plan takes no more threads than could help, however many are asked for: OpenMP would end the process where it gets none. */
static void thousands_of_threads(void **state)
{
    (void)state;
    test_random random = test_random_make("threads", 0);
    lac_pattern pattern = pattern_of("vw8:2:8");
    lac_plan_options options = {.has_bias = 1};
    lac_weight *weight = weight_make(&random, &pattern, 64, 64, LAC_DTYPE_F32, TEST_FILL_INTEGER);
    plan_case c = case_make(&random, weight, 33, &options, TEST_FILL_INTEGER);
    lac_device *device = NULL;
    lac_device_info about = {.size = sizeof about};
    assert_ok(lac_device_open("cpu", &device));
    assert_ok(lac_device_get_info(device, &about));
    lac_plan_info many = {.size = sizeof many}, most = {.size = sizeof most};
    static const char kernel[] = "cpu_scalar_f32_stream"; /* has scratch for each thread */
    lac_plan *plan = plan_make(&c, kernel, 4096);
    assert_ok(lac_plan_get_info(plan, &many));
    lac_plan_free(plan);
    plan = plan_make(&c, kernel, about.cores > 256 ? about.cores : 256);
    assert_ok(lac_plan_get_info(plan, &most));
    lac_plan_free(plan);
    assert_int_equal(many.workspace_bytes, most.workspace_bytes);
    case_check(&c, kernel, 4096, JUDGE_EXACT);
    lac_device_close(device);
    case_free(&c);
}

/* The message tells the bytes that were missing. */
static void measuring_without_memory(void **state)
{
    (void)state;
    enum { TOKENS = 100000, INPUTS = 16 };
    test_random random = test_random_make("measure", 0);
    lac_pattern pattern = pattern_of("2:4");
    lac_weight *weight = weight_make(&random, &pattern, 12, INPUTS, LAC_DTYPE_F32, TEST_FILL_INTEGER);
    lac_device *device = NULL;
    lac_plan *plan = NULL;
    lac_plan_options options = {.size = sizeof options, .measure = 1, .threads = 1};
    char bytes[64];
    snprintf(bytes, sizeof bytes, "no memory for %d bytes", TOKENS * INPUTS * 4);
    assert_ok(lac_device_open("cpu", &device));
    test_allocator_limit(TOKENS * INPUTS * 4);
    lac_status status = lac_plan_create(device, weight, TOKENS, &options, &plan);
    test_allocator_limit(0);
    assert_fails(status, LAC_STATUS_OUT_OF_MEMORY, bytes);
    assert_null(plan);
    lac_device_close(device);
    lac_weight_free(weight);
}

int main(void)
{
    test_allocator_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(factors_that_are_not_finite),
        cmocka_unit_test(leading_dimensions_without_end),
        cmocka_unit_test(thousands_of_threads),
        cmocka_unit_test(measuring_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
