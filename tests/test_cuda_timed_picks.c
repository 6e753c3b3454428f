/* test_cuda_timed_picks.c - where the model holds several kernels for nearly as fast: they race by the fake driver's clock, the
 * quickest is taken and remembered, in the process and on disk. And ties, files that were damaged or lie, no memory, no compiler,
 * threads that ask at the same time, every call failing in turn. */
#include "support/support.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/kernel.h"
#include "fakes/cache_file.h"
#include "fakes/steer.h"

/* A problem on which the model holds dense and some sparse kernels for nearly as fast, since all it takes is a launch. */
enum { M = 128, N = 256, K = 256, MOST_WEIGHTS = 1024 * 2048, CU_OUT_OF_MEMORY = 2 };
#define DENSE "cuda_cublaslt_dense"

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

/* ---- plans */

typedef struct made {
    char kernel[64], note[64];
    lac_plan_info info;
    long launches; /* that making the plan took */
} made;

static lac_weight *make_weight_of(const char *text, int n, int k)
{
    static float values[MOST_WEIGHTS];
    assert_true(n * k <= MOST_WEIGHTS);
    for (int i = 0; i < n * k; i++) values[i] = (float)(i % 7 - 3);
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    lac_compress_options options = {.size = sizeof options, .dtype = LAC_DTYPE_F16};
    assert_ok(lac_pattern_parse(text, &pattern));
    assert_ok(lac_prune(&dense, &pattern, NULL, &mask));
    assert_ok(lac_weight_compress(&dense, mask, &options, &weight));
    lac_mask_free(mask);
    return weight;
}

static lac_weight *make_weight(void) { return make_weight_of("2:4", N, K); }

static lac_status try_plan_of(lac_device *device, const lac_weight *weight, int64_t m, lac_plan_options options, made *out)
{
    lac_plan *plan = NULL;
    long before = fake_launches();
    options.size = sizeof options;
    out->info.size = sizeof out->info;
    lac_status status = lac_plan_create(device, weight, m, &options, &plan);
    out->launches = fake_launches() - before;
    if (!status) status = lac_plan_get_info(plan, &out->info);
    if (!status) snprintf(out->kernel, sizeof out->kernel, "%s", out->info.kernel);
    if (!status) snprintf(out->note, sizeof out->note, "%.60s", out->info.note);
    lac_plan_free(plan);
    return status;
}

static lac_status try_plan(lac_device *device, const lac_weight *weight, lac_plan_options options, made *out)
{
    return try_plan_of(device, weight, M, options, out);
}

/* On a device of its own, so that only the disk remembers. */
static made plan_anew(lac_plan_options options)
{
    lac_device *device = NULL;
    lac_weight *weight = make_weight();
    made made = {0};
    assert_ok(lac_device_open("cuda:0", &device));
    assert_ok(try_plan(device, weight, options, &made));
    lac_weight_free(weight);
    lac_device_close(device);
    expect_fakes_clean();
    return made;
}

static made plan_usually(void) { return plan_anew((lac_plan_options){0}); }
static bool model_picks_dense(void) { return plan_anew((lac_plan_options){.no_timing = 1}).info.is_dense == 1; }

static void expect(made made, bool timed, bool dense, double microseconds)
{
    double told = 1e6 * made.info.measured_seconds;
    if (timed != (made.launches > 0) || dense != !strcmp(made.kernel, DENSE) || dense != (made.info.is_dense == 1) ||
        !(told > microseconds - 0.01 && told < microseconds + 0.01))
        fail_msg("%s, %ld launches, %.3f us", made.kernel, made.launches, told);
}

/* ---- what is taken, and remembered */

static void the_quicker_one_is_taken_and_remembered(void **state)
{
    (void)state;
    for (int sparse = 0; sparse < 2; sparse++) {
        clear_cache();
        take_time(sparse ? 2 : 7);
        made first = plan_usually();
        expect(first, true, !sparse, sparse ? 2 : 5);
        assert_true(first.info.rivals > 0);
        /* Whatever is faster now: plans for one problem are alike. */
        take_time(sparse ? 7 : 2);
        made again = plan_usually();
        expect(again, false, !sparse, sparse ? 2 : 5);
        assert_string_equal(again.kernel, first.kernel);
        /* Untimed the model decides, predicting as well; neither reads what was timed. */
        made untimed = plan_anew((lac_plan_options){.no_timing = 1}),
             predicted = plan_anew((lac_plan_options){.predict_only = 1});
        expect(untimed, false, untimed.info.is_dense, 0);
        assert_int_equal(untimed.info.rivals, 0);
        expect(predicted, false, untimed.info.is_dense, 0);
        assert_int_equal(predicted.info.rivals, first.info.rivals);
        assert_string_equal(predicted.kernel, untimed.kernel);
        /* By name there is nothing to choose, and without dense other rivals. */
        expect(plan_anew((lac_plan_options){.kernel = DENSE}), false, true, 0);
        made without = plan_anew((lac_plan_options){.no_dense = 1});
        assert_true(!without.info.is_dense && without.info.rivals <= first.info.rivals);
        /* Another problem is timed for itself. */
        expect(plan_anew((lac_plan_options){.has_bias = 1}), true, sparse, sparse ? 5 : 2);
    }
}

/* Dense is believed to take a quarter longer, which is not close, and is timed all the same: what is promised does not rest on a model. */
static void dense_is_timed_though_it_is_not_close(void **state)
{
    (void)state;
    lac_device *device = NULL;
    lac_weight *weight = make_weight_of("vw64:4:32", 1024, 2048);
    lac_plan_options dense = {.size = sizeof dense, .kernel = DENSE, .predict_only = 1}, untimed = {.no_timing = 1};
    made far = {0}, near = {0}, timed = {0};
    clear_cache();
    take_time(7);
    assert_ok(lac_device_open("cuda:0", &device));
    assert_ok(try_plan_of(device, weight, 64, dense, &far));
    assert_ok(try_plan_of(device, weight, 64, untimed, &near));
    assert_true(!near.info.is_dense);
    assert_true(far.info.predicted_seconds > 1.15 * near.info.predicted_seconds);
    assert_true(far.info.predicted_seconds < 1.5 * near.info.predicted_seconds);
    assert_ok(try_plan_of(device, weight, 64, (lac_plan_options){0}, &timed));
    assert_true(timed.info.is_dense && timed.info.rivals > 0);
    /* Without the library there is no such rival, and nothing to regret: it is not the one that the model would have picked. */
    made without = {0};
    fake_lt_set_answers(0);
    lac_status status = try_plan_of(device, weight, 64, (lac_plan_options){.has_bias = 1}, &without);
    fake_lt_set_answers(3);
    assert_ok(status);
    assert_true(!without.info.is_dense && without.info.rivals < timed.info.rivals);
    assert_string_equal(without.note, "");
    lac_weight_free(weight);
    lac_device_close(device);
}

/* A race needs X and Y of its own, which nobody expects to take gigabytes. */
static void large_products_are_not_raced(void **state)
{
    (void)state;
    lac_device *device = NULL;
    lac_weight *weight = make_weight();
    made predicted = {0};
    lac_plan_options options = {.predict_only = 1};
    assert_ok(lac_device_open("cuda:0", &device));
    assert_ok(try_plan_of(device, weight, M, options, &predicted));
    assert_true(predicted.info.rivals > 0);
    int rivals[2];
    for (int i = 0; i < 2; i++) {
        int64_t m = (INT64_C(1) << 31) / ((N + K) * 2) + i; /* two gigabytes, and a token more */
        assert_ok(try_plan_of(device, weight, m, options, &predicted));
        rivals[i] = predicted.info.rivals;
    }
    assert_true(rivals[0] > 0);
    assert_int_equal(rivals[1], 0);
    lac_weight_free(weight);
    lac_device_close(device);
}

/* Measuring times all that apply, each time. */
static void measuring_takes_the_quickest(void **state)
{
    (void)state;
    clear_cache();
    for (int sparse = 0; sparse < 2; sparse++) {
        take_time(sparse ? 2 : 7);
        made measured = plan_anew((lac_plan_options){.measure = 1});
        expect(measured, true, !sparse, sparse ? 2 : 5);
        assert_int_equal(measured.info.rivals, measured.info.candidates - 1);
    }
}

static void ties_go_to_the_model_s_pick(void **state)
{
    (void)state;
    bool dense = model_picks_dense();
    clear_cache();
    /* Dense only needs to be the quicker, a sparse kernel by a percent and a microsecond. */
    take_time(dense ? 3.96 : 5.00);
    expect(plan_usually(), true, dense, 5);
    clear_cache();
    take_time(dense ? 3.94 : 5.01);
    expect(plan_usually(), true, !dense, dense ? 3.94 : 5);
}

static void a_process_remembers_without_a_disk(void **state)
{
    (void)state;
    clear_cache();
    take_time(2);
    assert_int_equal(chmod(test_path("cache"), 0777), 0); /* a folder that is not trusted */
    lac_device *device = NULL;
    lac_weight *weight = make_weight();
    made first, second;
    assert_ok(lac_device_open("cuda:0", &device));
    assert_ok(try_plan(device, weight, (lac_plan_options){0}, &first));
    take_time(7);
    assert_ok(try_plan(device, weight, (lac_plan_options){0}, &second));
    expect(first, true, false, 2);
    expect(second, false, false, 2);
    lac_weight_free(weight);
    lac_device_close(device);
    assert_int_equal(test_folder_files(), 0);
    expect(plan_usually(), true, true, 5);
}

/* ---- what is not there */

/* A plan that could not time has a kernel all the same, and remembers nothing. */
static void without_memory_the_model_decides(void **state)
{
    (void)state;
    clear_cache();
    bool dense = model_picks_dense();
    take_time(dense ? 2 : 7);
    fake_set_most_bytes(4 << 20); /* too little to empty a cache with */
    made untimed = plan_usually();
    fake_set_most_bytes((size_t)1 << 40);
    assert_true(untimed.info.is_dense == dense && untimed.info.measured_seconds == 0.0);
    expect(plan_usually(), true, !dense, dense ? 2 : 5);
}

/* ---- files that are not as they should be */

static void damaged_files_are_timed_anew(void **state)
{
    (void)state;
    clear_cache();
    take_time(2);
    expect(plan_usually(), true, false, 2);
    cache_file file;
    cache_file_find(test_path("cache"), sizeof(lac_timed_pick), &file);
    for (size_t at = 0; at < file.bytes; at += at < CACHE_HEADER_BYTES ? 5 : 37) {
        file.data[at] ^= 0x55;
        cache_file_write(&file, file.bytes);
        file.data[at] ^= 0x55;
        expect(plan_usually(), true, false, 2);
        expect(plan_usually(), false, false, 2); /* and written anew */
    }
    for (size_t bytes = 0; bytes < file.bytes; bytes += 97) {
        cache_file_write(&file, bytes);
        expect(plan_usually(), true, false, 2);
    }
}

/* A file with a right checksum that names what is no rival, or no name, or no time: it is not taken at its word. */
static void files_that_lie_are_timed_anew(void **state)
{
    (void)state;
    static const char *const names[] = {"cuda_f32_plain", "nobody", "", "pattern"};
    clear_cache();
    take_time(2);
    expect(plan_usually(), true, false, 2);
    cache_file file;
    cache_file_find(test_path("cache"), sizeof(lac_timed_pick), &file);
    size_t record = cache_file_record(&file);
    for (int i = 0; i < 6; i++) {
        cache_file lie = file;
        if (i < 4)
            memcpy(lie.data + record, names[i], strlen(names[i]) + 1);
        else if (i == 4)
            memset(lie.data + record, 'x', LAC_KERNEL_NAME_SIZE); /* no end */
        else
            memset(lie.data + record + LAC_KERNEL_NAME_SIZE, 0xff, sizeof(double)); /* not a number of seconds */
        cache_file_seal(&lie);
        cache_file_write(&lie, lie.bytes);
        expect(plan_usually(), true, false, 2);
        expect(plan_usually(), false, false, 2); /* and written anew */
    }
}

/* ---- threads */

typedef struct planner {
    lac_device *device;
    const lac_weight *weight;
    lac_status status;
    made made;
} planner;

static void *make_plan(void *user)
{
    planner *p = user;
    p->status = try_plan(p->device, p->weight, (lac_plan_options){0}, &p->made);
    return NULL;
}

static void threads_take_the_same(void **state)
{
    (void)state;
    enum { THREADS = 6 };
    clear_cache();
    take_time(2);
    lac_device *device = NULL;
    lac_weight *weight = make_weight();
    assert_ok(lac_device_open("cuda:0", &device));
    pthread_t threads[THREADS];
    planner planners[THREADS];
    memset(planners, 0, sizeof planners);
    for (int i = 0; i < THREADS; i++) {
        planners[i].device = device;
        planners[i].weight = weight;
        assert_int_equal(pthread_create(&threads[i], NULL, make_plan, &planners[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(planners[i].status, LAC_STATUS_OK);
        assert_string_equal(planners[i].made.kernel, planners[0].made.kernel);
    }
    lac_weight_free(weight);
    lac_device_close(device);
    assert_int_equal(fake_live(), 0);
}

/* ---- failures */

static lac_status whole_life(const lac_weight *weight, bool *opened)
{
    lac_device *device = NULL;
    made made;
    lac_status status = lac_device_open("cuda:0", &device);
    *opened = !status;
    if (!status) status = try_plan(device, weight, (lac_plan_options){0}, &made);
    lac_device_close(device);
    return status;
}

static void expect_clean(int64_t live)
{
    expect_fakes_clean();
    assert_int_equal(test_allocator_live(), live);
}

static void every_call_fails_in_turn(void **state)
{
    (void)state;
    lac_weight *weight = make_weight();
    int64_t live = test_allocator_live();
    int failed = 0, passed = 0;
    take_time(2);
    bool reached = true, opened;
    for (long number = 1; reached; number += number < 120 ? 1 : 41) {
        clear_cache();
        fake_fail_at(number, CU_OUT_OF_MEMORY);
        lac_status status = whole_life(weight, &opened);
        reached = fake_calls() >= number;
        fake_fail_at(0, 0);
        expect_clean(live);
        /* Of a GPU's memory one kernel needs more than another, so that a plan goes on without it. */
        assert_int_equal(status, opened ? LAC_STATUS_OK : LAC_STATUS_OUT_OF_MEMORY);
        failed += status != LAC_STATUS_OK;
        passed += reached && !status;
    }
    assert_true(failed > 0 && passed > 5);
    failed = passed = 0;
    for (int64_t number = 1;; number++) {
        clear_cache();
        test_allocator_fail_at(number);
        lac_status status = whole_life(weight, &opened);
        reached = test_allocator_failed();
        test_allocator_fail_at(0);
        expect_clean(live);
        if (!reached) break;
        assert_true(!status || status == LAC_STATUS_OUT_OF_MEMORY);
        failed += status != LAC_STATUS_OK;
        passed += !status;
    }
    print_message("%d failed, %d went on without\n", failed, passed);
    assert_true(failed > 5 && passed > 5);
    lac_weight_free(weight);
}

int main(void)
{
    setenv("LAC_CUDA_LIBRARY", FAKE_CUDA, 1);
    setenv("LAC_NVRTC_LIBRARY", FAKE_NVRTC, 1);
    setenv("LAC_CUBLASLT_LIBRARY", FAKE_CUBLASLT, 1);
    setenv("LAC_CACHE_DIR", test_path("cache"), 1);
    test_allocator_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_quicker_one_is_taken_and_remembered),
        cmocka_unit_test(dense_is_timed_though_it_is_not_close),
        cmocka_unit_test(large_products_are_not_raced),
        cmocka_unit_test(measuring_takes_the_quickest),
        cmocka_unit_test(ties_go_to_the_model_s_pick),
        cmocka_unit_test(a_process_remembers_without_a_disk),
        cmocka_unit_test(without_memory_the_model_decides),
        cmocka_unit_test(damaged_files_are_timed_anew),
        cmocka_unit_test(files_that_lie_are_timed_anew),
        cmocka_unit_test(threads_take_the_same),
        cmocka_unit_test(every_call_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, load_fakes, NULL);
}
