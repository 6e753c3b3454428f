/* test_plan_without_times.c - where kernels are timed or remembered, and some of them cannot be had: what is remembered and cannot be
 * prepared is passed over, those that are left race, measuring times what there is, and somebody else's pick is taken if it can be. */
#include "plan_without.h"

#include "core/kernel.h"

static const lac_plan_options usually = {.size = 0};

static double five_microseconds(int number, int left, int right)
{
    (void)number, (void)left, (void)right;
    return 0.005;
}

/* Dense takes 5 us; a kernel of ours so much. */
static void take_time(double launch_microseconds)
{
    fake_lt_set_times(five_microseconds, fake_advance);
    fake_set_launch_time(1e-3 * launch_microseconds);
}

/* Refuses every program from now on, also those that the cache has. */
static void refuse_all(bool refuse)
{
    if (refuse)
        setenv("LAC_CUDA_OPTIONS", "-DFAKE_ERROR", 1);
    else
        unsetenv("LAC_CUDA_OPTIONS");
}

static void what_is_remembered_cannot_be_had(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("2:4");
    for (int sparse = 0; sparse < 2; sparse++) {
        clear_cache();
        take_time(sparse ? 2 : 7);
        made first = plan_of(weight, M, usually);
        assert_true(!first.status && first.info.is_dense == !sparse && first.info.measured_seconds > 0.0 && !first.warnings);
        if (sparse)
            refuse_all(true);
        else
            fake_set_most_bytes(N * K * 2 - 1);
        made without = plan_of(weight, M, usually);
        refuse_all(false);
        fake_set_most_bytes(no_limit);
        assert_int_equal(without.status, LAC_STATUS_OK);
        assert_int_equal(without.info.is_dense, sparse);
        assert_true(without.warnings > 0 && !strncmp(without.note, first.kernel, strlen(first.kernel)));
        assert_true(without.info.candidates < first.info.candidates && without.info.measured_seconds == 0.0);
        /* What was remembered still is. */
        take_time(sparse ? 7 : 2);
        made again = plan_of(weight, M, usually);
        assert_string_equal(again.kernel, first.kernel);
        assert_true(!again.warnings && again.info.measured_seconds == first.info.measured_seconds);
    }
    lac_weight_free(weight);
}

/* Those that are left are raced like any others. */
static void what_is_left_is_timed(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("2:4");
    clear_cache();
    made usual = plan_of(weight, M, (lac_plan_options){.no_timing = 1, .no_dense = 1});
    char source[64];
    snprintf(source, sizeof source, "%s", fake_last_source());
    clear_cache();
    take_time(7); /* dense is the quickest of all, but not offered */
    fake_lt_set_answers(0);
    fake_refuse_source(source);
    made left = plan_of(weight, M, usually);
    fake_refuse_source(NULL);
    fake_lt_set_answers(3);
    assert_int_equal(left.status, LAC_STATUS_OK);
    assert_true(strcmp(left.kernel, usual.kernel) && left.warnings && strstr(left.note, usual.kernel));
    /* One that is not among the cheapest may be left alone on its own field; where there are rivals, a race decides. */
    assert_int_equal(left.info.rivals > 0, left.info.measured_seconds > 0.0);
    lac_weight_free(weight);
}

static void measuring_times_what_can_be_had(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("2:4");
    const lac_plan_options measure = {.measure = 1};
    clear_cache();
    take_time(2);
    made all = plan_of(weight, M, measure);
    assert_true(!all.status && !all.info.is_dense && all.info.rivals == all.info.candidates - 1);
    clear_cache();
    made usual = plan_of(weight, M, (lac_plan_options){.no_timing = 1, .no_dense = 1});
    char source[64];
    snprintf(source, sizeof source, "%s", fake_last_source());
    for (int step = 0; step < 2; step++) { /* the cheapest sparse one, then all but dense */
        clear_cache();
        fake_refuse_source(step ? "" : source);
        made some = plan_of(weight, M, measure);
        fake_refuse_source(NULL);
        assert_int_equal(some.status, LAC_STATUS_OK);
        assert_int_equal(some.info.is_dense, step);
        assert_int_equal(some.info.candidates, all.info.candidates - some.warnings);
        assert_int_equal(some.info.rivals, some.info.candidates - 1);
        assert_true(some.warnings > 0 && strstr(some.note, "could not be prepared") && strcmp(some.kernel, usual.kernel));
        if (!step) assert_true(some.info.measured_seconds > 0.0 && strstr(some.note, usual.kernel));
    }
    /* Whoever asked for times gets none where nothing can be timed. */
    clear_cache();
    fake_set_most_bytes(4 << 20); /* too little to empty a cache with */
    made none = plan_of(weight, M, measure);
    fake_set_most_bytes(no_limit);
    assert_int_equal(none.status, LAC_STATUS_OUT_OF_MEMORY);
    lac_weight_free(weight);
}

/* Somebody else ends a race of the same kernels during ours, in which dense wins: here, by a file that comes when dense runs for the
 * last time. */
static struct {
    cache_file file;
    int runs, at;
    size_t most_bytes;
} theirs;

static double dense_runs(int number, int left, int right)
{
    if (++theirs.runs == theirs.at) {
        cache_file_write(&theirs.file, theirs.file.bytes);
        fake_set_most_bytes(theirs.most_bytes);
    }
    return five_microseconds(number, left, right);
}

static void somebody_else_was_quicker(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("2:4");
    clear_cache();
    take_time(2);
    made sparse = plan_of(weight, M, usually);
    assert_true(!sparse.status && !sparse.info.is_dense);
    cache_file_find(test_path("cache"), sizeof(lac_timed_pick), &theirs.file);
    for (int step = 0; step < 3; step++) { /* nobody; somebody; and what he took does not fit memory beside ours */
        clear_cache();
        take_time(7);
        theirs.at = step ? theirs.runs : 0;
        theirs.runs = 0;
        theirs.most_bytes = step == 2 ? 1 : no_limit;
        fake_lt_set_times(dense_runs, fake_advance);
        made got = plan_of(weight, M, usually);
        fake_set_most_bytes(no_limit);
        assert_int_equal(got.status, LAC_STATUS_OK);
        assert_string_equal(got.kernel, step == 1 ? sparse.kernel : DENSE);
        double seconds = step == 1 ? 2e-6 : 5e-6;
        assert_true(got.info.measured_seconds > 0.99 * seconds && got.info.measured_seconds < 1.01 * seconds);
    }
    fake_lt_set_times(five_microseconds, fake_advance);
    lac_weight_free(weight);
}

int main(void)
{
    use_fakes();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_remembered_cannot_be_had),
        cmocka_unit_test(what_is_left_is_timed),
        cmocka_unit_test(measuring_times_what_can_be_had),
        cmocka_unit_test(somebody_else_was_quicker),
    };
    return cmocka_run_group_tests(tests, load_all_fakes, NULL);
}
