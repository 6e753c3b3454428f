/* test_plan_without.c - plans where the kernel that should be picked cannot be had: the compiler refuses its program or is not there, the
 * GPU's memory does not hold its copy of the weight. The next best is taken and told; what no other kernel would mend fails at once. The
 * fakes are the driver, the compiler and the dense library. */
#include "plan_without.h"

#include <sys/wait.h>
#include <unistd.h>

static const lac_plan_options untimed = {.no_timing = 1};

/* ---- the next best */

typedef struct best {
    char kernel[64];
    int can, cannot; /* kernels that apply, and could or could not be prepared */
} best;

/* By asking for each kernel by its name, as things are: the cheapest by the model of those that can be prepared. */
static best find_best(const lac_weight *weight, int64_t m, lac_plan_options options)
{
    best found = {.can = 0};
    double least = 0.0;
    lac_kernel_info info = {.size = sizeof info};
    for (size_t i = 0; !lac_kernel_probe(i, &info); i++) {
        if (info.device != LAC_DEVICE_KIND_CUDA || (info.is_dense && options.no_dense)) continue;
        lac_plan_options forced = options;
        forced.kernel = info.name;
        forced.predict_only = 1;
        made predicted = plan_of(weight, m, forced);
        if (predicted.status) continue; /* it does not apply */
        clear_cache();
        forced.predict_only = 0;
        made prepared = plan_of(weight, m, forced);
        assert_int_equal(prepared.warnings, 0);
        if (prepared.status) {
            found.cannot++;
            continue;
        }
        assert_true(!strcmp(prepared.kernel, info.name) && prepared.info.forced);
        double seconds = prepared.info.predicted_seconds;
        if (found.can++ == 0 || seconds < least) {
            least = seconds;
            snprintf(found.kernel, sizeof found.kernel, "%s", info.name);
        }
    }
    clear_cache();
    return found;
}

/* As things are, the plan is of the best kernel that can be had, and says so where that is not the usual one. How many were passed over. */
static int expect_next_best(const lac_weight *weight, int64_t m, lac_plan_options options, const char *usual)
{
    best want = find_best(weight, m, options);
    made got = plan_of(weight, m, options);
    if (!want.can) {
        assert_true(got.status != LAC_STATUS_OK);
        assert_int_equal(strncmp(got.error, usual, strlen(usual)), 0); /* the cheapest's own */
        assert_true(want.cannot == 1 || strstr(got.error, "; nor could any of the "));
        assert_int_equal(got.warnings, want.cannot);
        return want.cannot;
    }
    if (got.status || strcmp(got.kernel, want.kernel))
        fail_msg("%s is taken, not %s: %s %s", got.kernel, want.kernel, got.note, got.error);
    assert_true(!got.info.forced);
    bool same = !strcmp(got.kernel, usual);
    assert_true(same == !*got.note && same == !got.warnings);
    if (same) return 0;
    char begin[128], end[64];
    snprintf(begin, sizeof begin, "%s could not be prepared", usual);
    snprintf(end, sizeof end, "; nor could %d more", got.warnings - 1);
    if (strncmp(got.note, begin, strlen(begin)) || (got.warnings > 1) != !!strstr(got.note, end) || strchr(got.note, '\n'))
        fail_msg("the note is '%s' after %d warnings", got.note, got.warnings);
    assert_int_equal(strncmp(warnings.first, begin, strlen(begin)), 0);
    return got.warnings;
}

static void a_program_that_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        int m;
        lac_plan_options options;
    } cases[] = {{"2:4", 1, {.no_timing = 1}},
                 {"vw32:8:32", 8, {.no_timing = 1}},
                 {"vw64:4:32", 128, {.no_timing = 1, .no_dense = 1}},
                 {"64:2:8", 512, {.no_timing = 1, .has_bias = 1, .activation = LAC_ACTIVATION_SILU}},
                 {"shfl64:25%", 256, {.no_timing = 1, .has_residual = 1, .no_dense = 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lac_weight *weight = make_weight(cases[i].pattern);
        clear_cache();
        made usual = plan_of(weight, cases[i].m, cases[i].options);
        assert_int_equal(usual.status, LAC_STATUS_OK);
        assert_true(!usual.warnings && fake_compiled() > 0);
        /* A program of the usual pick is refused; then all that begin so, and at last all. */
        char source[64];
        snprintf(source, sizeof source, "%s", fake_last_source());
        int passed[3];
        for (int step = 0; step < 3; step++) {
            if (step) source[step == 1 ? 1 : 0] = '\0';
            fake_refuse_source(source);
            passed[step] = expect_next_best(weight, cases[i].m, cases[i].options, usual.kernel);
            if (step == 2 && cases[i].options.no_dense) { /* nothing is left */
                made none = plan_of(weight, cases[i].m, cases[i].options);
                assert_int_equal(none.status, LAC_STATUS_UNSUPPORTED);
                assert_non_null(strstr(none.error, "does not compile it"));
            }
            fake_refuse_source(NULL);
        }
        assert_true(passed[0] > 0 && passed[1] >= passed[0] && passed[2] >= passed[1] && passed[2] > 1);
        /* It was never prepared: predicting knows nothing of it. */
        fake_refuse_source("");
        lac_plan_options predict = cases[i].options;
        predict.predict_only = 1;
        made predicted = plan_of(weight, cases[i].m, predict);
        assert_true(!predicted.status && !strcmp(predicted.kernel, usual.kernel) && !predicted.warnings);
        lac_plan_options forced = {.kernel = usual.kernel};
        made by_name = plan_of(weight, cases[i].m, forced);
        assert_true(by_name.status == LAC_STATUS_UNSUPPORTED && !by_name.warnings);
        fake_refuse_source(NULL);
        lac_weight_free(weight);
    }
}

/* However little memory there is, a plan fails only where no kernel fits it, and then as the best one does. */
static void memory_that_does_not_suffice(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4", "vw64:4:32", "15:16"};
    int passed = 0, none = 0;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        lac_weight *weight = make_weight(patterns[i]);
        clear_cache();
        made usual = plan_of(weight, M, untimed);
        assert_int_equal(usual.status, LAC_STATUS_OK);
        for (size_t bytes = N * K * 2 - 1; bytes >= 4096; bytes = bytes * 4 / 7) {
            fake_set_most_bytes(bytes);
            int over = expect_next_best(weight, M, untimed, usual.kernel);
            made plan = plan_of(weight, M, untimed);
            fake_set_most_bytes(no_limit);
            assert_true(!plan.status || plan.status == LAC_STATUS_OUT_OF_MEMORY);
            passed += over && !plan.status;
            none += plan.status != LAC_STATUS_OK;
        }
        lac_weight_free(weight);
    }
    print_message("%d had another kernel, %d none\n", passed, none);
    assert_true(passed > 2 && none > 0);
}

/* What is not installed is not tried, so that there is nothing to warn of; the note tells it, and the next best is taken here, too. */
static void what_is_not_offered(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("15:16");
    clear_cache();
    made usual = plan_of(weight, M, untimed);
    assert_string_equal(usual.kernel, DENSE);
    fake_lt_set_answers(0);
    best want = find_best(weight, M, untimed);
    made got = plan_of(weight, M, untimed);
    fake_lt_set_answers(3);
    assert_string_equal(got.kernel, want.kernel);
    assert_true(!got.warnings && got.info.candidates == usual.info.candidates - 1);
    assert_int_equal(strncmp(got.note, DENSE " is not offered: ", sizeof DENSE " is not offered: " - 1), 0);
    lac_weight_free(weight);
}

/* What a plan says that its dense copy takes is what it takes, also where X is wider than W. */
static void dense_takes_what_it_says(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("2:4");
    for (int x_dtype = LAC_DTYPE_F32; x_dtype <= LAC_DTYPE_F16; x_dtype++) {
        lac_plan_options options = {.kernel = DENSE, .no_timing = 1, .x_dtype = (lac_dtype)x_dtype};
        made told = plan_of(weight, M, options);
        assert_int_equal(told.status, LAC_STATUS_OK);
        fake_set_most_bytes(told.info.dense_bytes);
        made enough = plan_of(weight, M, options);
        fake_set_most_bytes(told.info.dense_bytes - 1);
        made less = plan_of(weight, M, options);
        fake_set_most_bytes(no_limit);
        assert_int_equal(enough.status, LAC_STATUS_OK);
        assert_int_equal(less.status, LAC_STATUS_OUT_OF_MEMORY);
    }
    lac_weight_free(weight);
}

/* ---- without a compiler at all */

/* In a child cmocka cannot judge: the first thing that does not hold ends it. */
static void need(bool holds, int line)
{
    if (holds) return;
    fprintf(stderr, "%s:%d: does not hold; last error: %s\n", __FILE__, line, lac_last_error());
    _exit(1);
}

static void plan_without_a_compiler(void)
{
    lac_weight *weight = make_weight("vw32:8:32");
    made predicted = plan_of(weight, FEW, (lac_plan_options){.predict_only = 1}),
         got = plan_of(weight, FEW, (lac_plan_options){0});
    need(!predicted.status && !predicted.info.is_dense, __LINE__);
    need(!got.status && !strcmp(got.kernel, DENSE) && got.info.is_dense && got.info.dense_bytes == N * K * 2, __LINE__);
    need(strstr(got.note, "could not be prepared") && strstr(got.note, "there is no compiler") && got.warnings, __LINE__);
    need(!strncmp(got.note, predicted.kernel, strlen(predicted.kernel)), __LINE__);
    got = plan_of(weight, FEW, (lac_plan_options){.no_dense = 1});
    need(got.status == LAC_STATUS_UNSUPPORTED && strstr(got.error, "there is no compiler"), __LINE__);
    need(strstr(got.error, "; nor could any of the ") != NULL, __LINE__);
    lac_weight_free(weight);
}

/* What libraries there are is found out once in a process, so this is one of its own; it comes first. */
static void without_a_compiler_dense_is_left(void **state)
{
    (void)state;
    clear_cache();
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("LAC_NVRTC_LIBRARY", "/nowhere/libnvrtc.so", 1);
        plan_without_a_compiler();
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- what fails at once */

/* Whichever call finds the GPU lost, no other kernel is tried. */
static void a_gpu_that_is_lost(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("vw64:4:32");
    int failed = 0;
    for (long number = 1;; number++) {
        clear_cache();
        fake_lose_at(number);
        made got = plan_of(weight, M, untimed);
        bool reached = fake_calls() >= number;
        fake_fail_at(0, 0);
        if (!reached) break;
        assert_int_equal(got.warnings, 0);
        /* Who asks the library only whether it is there takes it for missing. */
        if (got.status) assert_int_equal(got.status, LAC_STATUS_DEVICE);
        /* The message is that of the call, not of the byte that was asked for to find out. */
        if (got.status && (!strstr(got.error, "error 719") || strstr(got.error, "1 bytes")))
            fail_msg("call %ld: %s", number, got.error);
        failed += got.status == LAC_STATUS_DEVICE;
    }
    assert_true(failed > 5);
    lac_weight_free(weight);
}

/* A failure of the driver's that does not stay is one kernel's; another one is taken, and that is told. */
static void one_call_fails_in_turn(void **state)
{
    (void)state;
    static const int results[] = {CU_OUT_OF_MEMORY, CU_LAUNCH_FAILED};
    lac_weight *weight = make_weight("vw64:4:32");
    clear_cache();
    made usual = plan_of(weight, M, untimed);
    for (int i = 0; i < 2; i++) {
        int others = 0;
        for (long number = 1;; number++) {
            clear_cache();
            fake_fail_at(number, results[i]);
            made got = plan_of(weight, M, untimed);
            bool reached = fake_calls() >= number;
            fake_fail_at(0, 0);
            if (!reached) break;
            if (got.status) continue;
            assert_int_equal(got.warnings, strcmp(got.kernel, usual.kernel) != 0);
            assert_int_equal(got.warnings, *got.note != 0);
            others += got.warnings;
        }
        assert_true(others > 0);
    }
    lac_weight_free(weight);
}

/* With a kernel that needs less there might be enough, but who has no memory at all needs to know that. */
static void without_memory_on_the_host(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4", "vw64:4:32", "shfl64:25%"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        lac_weight *weight = make_weight(patterns[i]);
        clear_cache();
        made usual = plan_of(weight, M, untimed);
        int failed = 0;
        for (int64_t number = 1;; number++) {
            clear_cache();
            test_allocator_fail_at(number);
            made got = plan_of(weight, M, untimed);
            bool reached = test_allocator_failed();
            test_allocator_fail_at(0);
            if (!reached) break;
            assert_int_equal(got.warnings, 0);
            if (got.status) {
                assert_int_equal(got.status, LAC_STATUS_OUT_OF_MEMORY);
                failed++;
            } else {
                assert_string_equal(got.kernel, usual.kernel);
            }
        }
        assert_true(failed > 3);
        lac_weight_free(weight);
    }
}

int main(void)
{
    use_fakes();
    /* The first comes before the libraries are opened. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_compiler_dense_is_left), cmocka_unit_test(a_program_that_is_refused),
        cmocka_unit_test(memory_that_does_not_suffice),     cmocka_unit_test(what_is_not_offered),
        cmocka_unit_test(dense_takes_what_it_says),         cmocka_unit_test(a_gpu_that_is_lost),
        cmocka_unit_test(one_call_fails_in_turn),           cmocka_unit_test(without_memory_on_the_host),
    };
    return cmocka_run_group_tests(tests, load_all_fakes, NULL);
}
