/* test_plan.c - every kernel of the registry against the oracle: families, dtypes, layouts, epilogues, sizes one off each
 * tile, padded strides, permutations, shards; and what the plan promises about its inputs, threads and lifetimes. */
#include "plan_case.h"

/* ---- random cases over everything */

/* The kernels that a case can run on, and over the whole program how many cases each one has run. */
typedef struct kernels {
    const char *name[MOST_KERNELS];
    int count;
} kernels;

static int64_t cases_run[MOST_KERNELS];

static kernels kernels_of(const plan_case *c)
{
    const char *name[MOST_KERNELS];
    kernels all = {.count = 0};
    int count = kernel_names(name);
    for (int i = 0; i < count; ++i) {
        if (!kernel_applies(c, name[i])) continue;
        ++cases_run[i];
        all.name[all.count++] = name[i];
    }
    return all;
}

/* Comes last: a kernel that no case could run on would otherwise pass untested. */
static void every_kernel_has_run(void **state)
{
    (void)state;
    const char *name[MOST_KERNELS];
    int count = kernel_names(name);
    for (int i = 0; i < count; ++i) {
        printf("%-28s %lld cases\n", name[i], (long long)cases_run[i]);
        if (cases_run[i] < 20 && kernel_is_for_this_machine(name[i]))
            fail_msg("%s ran %lld cases", name[i], (long long)cases_run[i]);
    }
}

static void random_case(test_random *random, int64_t index, void *user)
{
    (void)user;
    bool exact = index % 3 == 0;
    static const test_fill fills[] = {TEST_FILL_GAUSSIAN, TEST_FILL_HEAVY_TAIL, TEST_FILL_DENORMAL, TEST_FILL_SPARSE};
    test_fill fill = exact ? TEST_FILL_INTEGER : fills[test_random_between(random, 0, 3)];
    lac_weight *weight = random_weight(random, 2000, fill);
    lac_plan_options options = random_options(random, exact);
    int64_t m = test_random_pick(random, 0, 1, 1, 2, 3, 4, 5, 15, 16, 17, 33);
    plan_case c = case_make(random, weight, m, &options, fill);
    c.pass_alpha = test_random_chance(random, 50);
    c.pass_beta = test_random_chance(random, 50);
    c.alpha = exact ? (float)test_random_pick(random, -2, -1, 0, 1, 4) : (float)test_random_gaussian(random);
    c.beta = exact ? (float)test_random_pick(random, -2, -1, 0, 1, 4) : (float)test_random_gaussian(random);
    c.c_is_y = options.has_residual && c.c.view.dtype == c.y.view.dtype && test_random_chance(random, 30);
    kernels all = kernels_of(&c);
    for (int i = 0; i < all.count; ++i) {
        bool once = exact || !strcmp(all.name[i], "ref_f64"); /* a sum in double is rounded once, whatever the data */
        case_check(&c, all.name[i], (int32_t)test_random_between(random, 1, 3), once ? JUDGE_EXACT : JUDGE_BOUND);
    }
    case_check(&c, NULL, 0, exact ? JUDGE_EXACT : JUDGE_BOUND);
    case_free(&c);
}

static void random_problems(void **state)
{
    (void)state;
    test_run_cases("plan", 3000, random_case, NULL);
}

/* ---- every combination of family, dtype, layout and epilogue */

static const char *const patterns[] = {"2:4",   "25%",   "vw4:3:10",  "vw8:25%",   "bw4x4:1:3", "bw2x8:50%",
                                       "8:2:8", "5:4:9", "shfl8:25%", "vw24:3:10", "vw64:1:2",  "bw32x3:40%"};
enum { PATTERN_COUNT = sizeof patterns / sizeof *patterns };

/* Every activation; with each either one of the four ways to have bias and residual, in turn, or all four. */
static void check_epilogues(test_random *random, lac_weight *weight, lac_plan_options options, int turn, bool all_ways)
{
    for (int activation = LAC_ACTIVATION_NONE; activation <= LAC_ACTIVATION_SILU; ++activation) {
        for (int bits = 0; bits < 4; ++bits) {
            if (!all_ways && bits != (turn + activation) % 4) continue;
            options.has_bias = bits & 1;
            options.has_residual = bits >> 1;
            options.activation = (lac_activation)activation;
            plan_case c = case_make(random, lac_weight_retain(weight), 5, &options, TEST_FILL_GAUSSIAN);
            c.pass_alpha = c.pass_beta = true;
            c.alpha = 0.75f;
            c.beta = -1.5f;
            kernels all = kernels_of(&c);
            for (int i = 0; i < all.count; ++i) case_check(&c, all.name[i], 2, JUDGE_BOUND);
            case_free(&c);
        }
    }
}

static void every_combination(void **state)
{
    (void)state;
    test_random random = test_random_make("combinations", 0);
    for (int p = 0; p < PATTERN_COUNT; ++p) {
        for (int dtype = LAC_DTYPE_F32; dtype <= LAC_DTYPE_BF16; ++dtype) {
            lac_pattern pattern = pattern_of(patterns[p]);
            lac_weight *weight = weight_make(&random, &pattern, 13, 37, (lac_dtype)dtype, TEST_FILL_GAUSSIAN);
            for (int layouts = 0; layouts < 4; ++layouts) {
                lac_plan_options options = {.x_layout = (lac_layout)(layouts & 1), .y_layout = (lac_layout)(layouts >> 1)};
                check_epilogues(&random, weight, options, p + dtype + layouts, p < 3);
            }
            lac_weight_free(weight);
        }
    }
}

/* ---- sizes one off each tile, panel and strip */

/* By every `stride`-th kernel that applies, from `first` on. */
static void check_size_by(test_random *random, const char *text, int64_t m, int64_t n, int64_t k, int first, int stride)
{
    lac_pattern pattern = pattern_of(text);
    lac_plan_options options = {.x_layout = (lac_layout)test_random_between(random, 0, 1),
                                .y_layout = (lac_layout)test_random_between(random, 0, 1),
                                .has_bias = 1};
    lac_weight *weight = weight_make(random, &pattern, n, k, LAC_DTYPE_F32, TEST_FILL_INTEGER);
    plan_case c = case_make(random, weight, m, &options, TEST_FILL_INTEGER);
    kernels all = kernels_of(&c);
    for (int i = first; i < all.count; i += stride) case_check(&c, all.name[i], 2, JUDGE_EXACT);
    case_free(&c);
}

static void check_size(test_random *random, const char *text, int64_t m, int64_t n, int64_t k)
{
    check_size_by(random, text, m, n, k, 0, 1);
}

static void sizes_around_the_tiles(void **state)
{
    (void)state;
    static const int64_t tokens[] = {0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 15, 16, 17, 47, 48, 49, 255, 256, 257, 300};
    static const int64_t outputs[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 300};
    static const int64_t inputs[] = {0, 1, 2, 3, 255, 256, 257};
    test_random random = test_random_make("sizes", 0);
    for (int p = 0; p < PATTERN_COUNT; ++p) {
        for (size_t i = 0; i < sizeof tokens / sizeof *tokens; ++i) check_size(&random, patterns[p], tokens[i], 9, 33);
        for (size_t i = 0; i < sizeof outputs / sizeof *outputs; ++i) {
            check_size(&random, patterns[p], 3, outputs[i], 40);
        }
        for (size_t i = 0; i < sizeof inputs / sizeof *inputs; ++i) check_size(&random, patterns[p], 5, 10, inputs[i]);
    }
}

/* A weight too large for the second-level cache, and more tokens than a panel: threads then share out W and not the tokens. */
static void weights_larger_than_a_cache(void **state)
{
    (void)state;
    test_random random = test_random_make("large", 0);
    int stride = test_scale() > 1 ? 2 : 1; /* then each kernel has one of the two patterns */
    check_size_by(&random, "2:4", 270, 520, 1290, 0, stride);
    check_size_by(&random, "vw32:16:32", 270, 520, 1290, stride - 1, stride);
}

/* Groups of every index width, whole and ragged, and the numbers of tokens and outputs at which permute pads; of every family
 * that has groups, those of the most inputs that fit its registers (32, 64) and one more, and units that the last group cuts. */
static void groups_of_every_width(void **state)
{
    (void)state;
    static const char *const groups[] = {"1:1",       "1:2",       "2:3",       "2:4",        "4:5",         "1:8",
                                         "7:9",       "4:16",      "5:17",      "8:32",       "3:33",        "9:64",
                                         "vw1:2:4",   "vw3:2:8",   "vw7:3:7",   "vw20:1:33",  "vw40:5:64",   "bw1x2:1:1",
                                         "bw3x5:2:6", "bw4x4:2:8", "bw2x8:3:8", "bw5x11:1:3", "bw16x16:1:4", "bw4x13:2:5",
                                         "4:1:4",     "6:2:5",     "16:2:8",    "9:3:16",     "64:4:31",     "8:2:64"};
    static const int64_t outputs[] = {1, 8, 15, 17, 33};
    static const int64_t inputs[] = {1, 31, 64, 65, 130};
    test_random random = test_random_make("widths", 0);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; ++g) {
        for (int64_t m = 1; m <= 9; ++m) check_size(&random, groups[g], m, 19, 70);
        for (size_t i = 0; i < 5; ++i) check_size(&random, groups[g], 3, outputs[i], 66);
        for (size_t i = 0; i < 5; ++i) check_size(&random, groups[g], 6, 18, inputs[i]);
    }
}

/* ---- what is not finite */

static void nonfinite_case(test_random *random, int64_t index, void *user)
{
    (void)index;
    (void)user;
    lac_weight *weight = random_weight(random, 1500, TEST_FILL_NONFINITE);
    lac_plan_options options = random_options(random, false);
    plan_case c = case_make(random, weight, 3, &options, TEST_FILL_GAUSSIAN);
    if (test_random_chance(random, 50)) test_matrix_fill(random, &c.bias, TEST_FILL_NONFINITE);
    if (test_random_chance(random, 50)) test_matrix_fill(random, &c.c, TEST_FILL_NONFINITE);
    if (c.info.k_in && test_random_chance(random, 30)) test_matrix_set(&c.x, 1, c.info.k_in / 2, INFINITY); /* token 1 only */
    kernels all = kernels_of(&c);
    for (int i = 0; i < all.count; ++i) case_check(&c, all.name[i], 2, JUDGE_BOUND);
    case_free(&c);
}

static void infinities_and_nans_propagate(void **state)
{
    (void)state;
    test_run_cases("plan_nonfinite", 600, nonfinite_case, NULL);
}

static void c_is_not_read_when_beta_is_zero(void **state)
{
    (void)state;
    test_random random = test_random_make("beta_zero", 0);
    lac_pattern pattern = pattern_of("2:4");
    lac_plan_options options = {.has_residual = 1};
    plan_case c = case_make(&random, weight_make(&random, &pattern, 11, 20, LAC_DTYPE_F32, TEST_FILL_INTEGER), 6, &options,
                            TEST_FILL_INTEGER);
    for (int64_t i = 0; i < c.m; ++i) {
        for (int64_t j = 0; j < c.info.n_out; ++j) test_matrix_set(&c.c, i, j, NAN);
    }
    c.beta = 0.0f;
    c.pass_beta = true;
    kernels all = kernels_of(&c);
    for (int i = 0; i < all.count; ++i) {
        case_check(&c, all.name[i], 1, JUDGE_EXACT); /* NaN is never equal, so none came through */
        lac_plan *plan = plan_make(&c, all.name[i], 1);
        lac_plan_info info = {.size = sizeof info};
        assert_ok(lac_plan_get_info(plan, &info));
        lac_execute_args args = case_args(&c);
        args.c = NULL; /* it may even be absent */
        args.workspace = aligned_alloc(64, info.workspace_bytes / 64 * 64 + 64);
        args.workspace_bytes = info.workspace_bytes;
        assert_ok(lac_plan_execute(plan, &args));
        free(args.workspace);
        lac_plan_free(plan);
    }
    case_free(&c);
}

static void fp16_results_overflow_to_infinity(void **state)
{
    (void)state;
    test_random random = test_random_make("overflow", 0);
    lac_pattern pattern = pattern_of("1:1");
    lac_plan_options options = {.x_dtype = LAC_DTYPE_F32, .y_dtype = LAC_DTYPE_F16};
    plan_case c = case_make(&random, weight_make(&random, &pattern, 1, 1, LAC_DTYPE_F32, TEST_FILL_INTEGER), 2, &options,
                            TEST_FILL_INTEGER);
    double *w = dense_weight(c.weight);
    if (w[0] == 0.0) fail_msg("the only weight is 0");
    test_matrix_set(&c.x, 0, 0, 1e6 / w[0]);
    test_matrix_set(&c.x, 1, 0, -1e6 / w[0]);
    kernels all = kernels_of(&c);
    for (int i = 0; i < all.count; ++i) {
        case_check(&c, all.name[i], 1, JUDGE_BOUND);
        assert_true(test_matrix_get(&c.y, 0, 0) == INFINITY);
        assert_true(test_matrix_get(&c.y, 1, 0) == -INFINITY);
    }
    free(w);
    case_free(&c);
}

/* ---- the same bits always */

static void same_bits_on_any_number_of_threads(void **state)
{
    (void)state;
    test_random random = test_random_make("threads", 0);
    for (int p = 0; p < PATTERN_COUNT; ++p) {
        lac_pattern pattern = pattern_of(patterns[p]);
        lac_plan_options options = {.x_layout = LAC_LAYOUT_FEATURE_MAJOR, .activation = LAC_ACTIVATION_SILU};
        lac_weight *weight = weight_make(&random, &pattern, 83, 190, LAC_DTYPE_F32, TEST_FILL_GAUSSIAN);
        for (int64_t m = 1; m <= 301; m += 100) {
            plan_case c = case_make(&random, lac_weight_retain(weight), m, &options, TEST_FILL_GAUSSIAN);
            kernels all = kernels_of(&c);
            for (int i = 0; i < all.count; ++i) {
                /* Where time is short each kernel has one m with each pattern, and every m with some. */
                if (test_scale() > 1 && (m / 100 + i + p) % 4) continue;
                unsigned char *first = NULL;
                for (int run = 0; run < 5; ++run) {
                    static const int32_t threads[] = {1, 1, 2, 3, 7};
                    lac_plan *plan = plan_make(&c, all.name[i], threads[run]);
                    case_reset_y(&c);
                    case_execute(&c, plan);
                    if (!first) first = test_matrix_snapshot(&c.y);
                    if (!test_matrix_unchanged(&c.y, first))
                        fail_msg("%s, %s, m %lld: other bits on %d threads", all.name[i], patterns[p], (long long)m,
                                 threads[run]);
                    lac_plan_free(plan);
                }
                free(first);
            }
            case_free(&c);
        }
        lac_weight_free(weight);
    }
}

/* ---- plans and what they hold */

static void plan_outlives_weight_and_device(void **state)
{
    (void)state;
    test_random random = test_random_make("lifetime", 0);
    lac_pattern pattern = pattern_of("vw16:2:4");
    lac_plan_options options = {0};
    const char *name[MOST_KERNELS];
    int count = kernel_names(name);
    for (int i = 0; i < count; ++i) {
        plan_case c = case_make(&random, weight_make(&random, &pattern, 16, 16, LAC_DTYPE_F32, TEST_FILL_INTEGER), 3, &options,
                                TEST_FILL_INTEGER);
        if (!kernel_applies(&c, name[i])) {
            case_free(&c);
            continue;
        }
        lac_plan *plan = plan_make(&c, name[i], 2); /* closes its device */
        double *want, *bound;
        case_reference(&c, plan, &want, &bound);
        lac_weight_free(c.weight);
        c.weight = NULL;
        case_execute(&c, plan);
        for (int64_t at = 0; at < 3 * 16; ++at) assert_true(test_matrix_get(&c.y, at / 16, at % 16) == want[at]);
        free(want);
        free(bound);
        lac_plan_free(plan);
        case_free(&c);
    }
    lac_plan_free(NULL);
}

static void plan_tells_what_it_is(void **state)
{
    (void)state;
    test_random random = test_random_make("info", 0);
    lac_pattern pattern = pattern_of("2:8");
    lac_plan_options options = {0};
    plan_case c = case_make(&random, weight_make(&random, &pattern, 24, 64, LAC_DTYPE_F16, TEST_FILL_INTEGER), 5, &options,
                            TEST_FILL_INTEGER);
    lac_plan_info info = {.size = sizeof info};
    lac_plan *plan = plan_make(&c, NULL, 0);
    assert_ok(lac_plan_get_info(plan, &info));
    assert_string_not_equal(info.kernel, "ref_f64"); /* the oracle is never picked */
    assert_int_equal(info.forced, 0);
    assert_true(info.candidates >= 2);
    assert_true(info.predicted_seconds > 0.0);
    assert_true(info.ceiling_seconds > 0.0 && info.ceiling_seconds <= info.predicted_seconds);
    lac_level_info level = {.size = sizeof level};
    int bounds = 0; /* exactly one of the levels */
    for (size_t i = 0; lac_plan_explain(plan, i, &level) == LAC_STATUS_OK; ++i)
        bounds += level.is_bound && !strcmp(info.bound, level.name);
    assert_int_equal(bounds, 1);
    assert_int_equal(info.m, 5);
    assert_int_equal(info.n, 24);
    assert_int_equal(info.k, 64);
    lac_plan_free(plan);

    lac_kernel_info kernel = {.size = sizeof kernel};
    for (size_t i = 0; lac_kernel_probe(i, &kernel) == LAC_STATUS_OK; ++i) {
        if (kernel.device != LAC_DEVICE_KIND_CPU || !kernel_applies(&c, kernel.name)) continue;
        plan = plan_make(&c, kernel.name, 1);
        assert_ok(lac_plan_get_info(plan, &info));
        assert_string_equal(info.kernel, kernel.name);
        assert_int_equal(info.is_dense, kernel.is_dense);
        assert_int_equal(info.forced, 1);
        assert_true(strlen(kernel.summary) > 0);
        lac_plan_free(plan);
    }
    c.options.measure = 1; /* timing the candidates picks one of them too */
    case_check(&c, NULL, 1, JUDGE_EXACT);
    case_free(&c);
}

static void planner_takes_dense_only_when_it_pays(void **state)
{
    (void)state;
    test_random random = test_random_make("dense", 0);
    static const struct {
        const char *pattern;
        int64_t m;
        int dense;
    } rows[] = {{"1:8", 64, 0}, {"1:8", 1, 0}, {"vw32:8:32", 64, 0}, {"4:4", 64, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
        lac_pattern pattern = pattern_of(rows[i].pattern);
        lac_plan_options options = {0};
        plan_case c = case_make(&random, weight_make(&random, &pattern, 256, 256, LAC_DTYPE_F32, TEST_FILL_GAUSSIAN), rows[i].m,
                                &options, TEST_FILL_GAUSSIAN);
        lac_plan_info info = {.size = sizeof info};
        lac_plan *plan = plan_make(&c, NULL, 1);
        assert_ok(lac_plan_get_info(plan, &info));
        if (info.is_dense != rows[i].dense) fail_msg("%s, m %d: %s", rows[i].pattern, (int)rows[i].m, info.kernel);
        lac_plan_free(plan);
        case_free(&c);
    }
}

int main(void)
{
    /* The planner's picks must not hang on this machine's load, or on a sanitizer's. */
    setenv("LAC_CPU_RATES", "5,5,120,30,12,24", 1);
    const struct CMUnitTest tests[] = {
        test_of_cases(random_problems),
        cmocka_unit_test(every_combination),
        cmocka_unit_test(sizes_around_the_tiles),
        cmocka_unit_test(weights_larger_than_a_cache),
        cmocka_unit_test(groups_of_every_width),
        test_of_cases(infinities_and_nans_propagate),
        cmocka_unit_test(c_is_not_read_when_beta_is_zero),
        cmocka_unit_test(fp16_results_overflow_to_infinity),
        cmocka_unit_test(same_bits_on_any_number_of_threads),
        cmocka_unit_test(plan_outlives_weight_and_device),
        cmocka_unit_test(plan_tells_what_it_is),
        cmocka_unit_test(planner_takes_dense_only_when_it_pays),
        cmocka_unit_test(every_kernel_has_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
