/* test_cuda_dense_choice.c - which of the vendor's algorithms a dense plan takes: the fastest by the fake driver's clock, timed
 * once and remembered, in the process and on disk. And files that were damaged or lie, folders that cannot be written, threads that
 * ask at the same time, timings that are disturbed, no memory to time in, every call failing in turn. */
#include "support/support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cuda/dense_product.h"
#include "cuda/state.h"
#include "fakes/cache_file.h"
#include "fakes/steer.h"

enum { M = 8, N = 24, K = 16, LT_FAILED = 13, LT_NOT_SUPPORTED = 15, CU_OUT_OF_MEMORY = 2 };

static int warnings;

static void count_warning(void *user, lac_log_level level, const char *message)
{
    (void)user, (void)message;
    warnings += level == LAC_LOG_LEVEL_WARNING;
}

/* ---- times */

/* Microseconds, as milliseconds, of algorithm 2 with W the other way, which is left and transposed, and of all others. */
static double late_answer_is_fastest(int number, int left, int right)
{
    (void)right;
    return number == 2 && left ? 0.004 : 0.005;
}

static double first_answer_is_fastest(int number, int left, int right)
{
    (void)right;
    return number == 0 && !left ? 0.004 : 0.005;
}

/* All alike, but for noise below what counts. */
static double nearly_alike(int number, int left, int right)
{
    (void)right;
    return number == 2 || left ? 0.004990 : 0.005;
}

/* Somebody else works on the GPU at times: no two batches take the same. */
static double disturbed(int number, int left, int right)
{
    static unsigned calls;
    (void)number, (void)left, (void)right;
    return 0.005 * (1 + ++calls / 20 * 2654435761u % 4);
}

static void take_time(fake_lt_takes *takes) { fake_lt_set_times(takes, fake_advance); }

/* ---- plans */

typedef struct choice {
    bool other_way;
    long number, products; /* products that making the plan took */
} choice;

static lac_weight *make_weight(void)
{
    static float values[N * K];
    for (int i = 0; i < N * K; i++) values[i] = (float)(i % 7 - 3);
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    assert_ok(lac_pattern_parse("2:4", &pattern));
    assert_ok(lac_prune(&dense, &pattern, NULL, &mask));
    assert_ok(lac_weight_compress(&dense, mask, NULL, &weight));
    lac_mask_free(mask);
    return weight;
}

/* What a dense plan does, told by executing it once: which algorithm, and whether W lies as it does untimed. */
static lac_status try_plan(lac_device *device, const lac_weight *weight, lac_plan_options options, choice *out)
{
    lac_plan *plan = NULL;
    lac_plan_info info = {.size = sizeof info};
    void *x = NULL, *y = NULL, *workspace = NULL;
    long before = fake_lt_products();
    options.size = sizeof options;
    options.kernel = "cuda_cublaslt_dense";
    lac_status status = lac_plan_create(device, weight, M, &options, &plan);
    if (!status) status = lac_plan_get_info(plan, &info);
    out->products = fake_lt_products() - before;
    if (!status) status = lac_device_allocate(device, M * K * sizeof(float), &x);
    if (!status) status = lac_device_allocate(device, M * N * sizeof(float), &y);
    if (!status) status = lac_device_allocate(device, info.workspace_bytes, &workspace);
    if (!status) memset(x, 0, M * K * sizeof(float)); /* the fake's memory is the host's */
    lac_execute_args args = {
        .size = sizeof args, .x = x, .y = y, .workspace = workspace, .workspace_bytes = info.workspace_bytes};
    if (!status) status = lac_plan_execute(plan, &args);
    out->number = fake_lt_last_algorithm();
    lac_dense_way way;
    if (!status) status = lac_dense_choose(&plan->problem, false, &way);
    out->other_way = !status && !way.product.w_by_inputs;
    lac_device_release(device, x);
    lac_device_release(device, y);
    lac_device_release(device, workspace);
    lac_plan_free(plan);
    return status;
}

/* On a device of its own, so that only the disk remembers. */
static choice plan_anew(const lac_plan_options *options)
{
    lac_device *device = NULL;
    lac_weight *weight = make_weight();
    choice made = {0};
    assert_ok(lac_device_open("cuda:0", &device));
    assert_ok(try_plan(device, weight, options ? *options : (lac_plan_options){0}, &made));
    lac_weight_free(weight);
    lac_device_close(device);
    expect_fakes_clean();
    return made;
}

static void expect(choice made, bool timed, bool other_way, long number)
{
    if (timed != (made.products > 0) || made.other_way != other_way || made.number != number)
        fail_msg("%ld products, the %s way, algorithm %ld", made.products, made.other_way ? "other" : "usual", made.number);
}

/* ---- what is taken, and remembered */

static void the_fastest_is_taken_and_remembered(void **state)
{
    (void)state;
    clear_cache();
    take_time(late_answer_is_fastest);
    lac_plan_options untimed = {.no_timing = 1}, measured = {.measure = 1};
    expect(plan_anew(&untimed), false, false, 0);
    assert_int_equal(test_folder_files(), 0);
    expect(plan_anew(NULL), true, true, 2);
    assert_int_equal(test_folder_files(), 1);
    /* Whatever is faster now: plans for one problem are alike. */
    take_time(first_answer_is_fastest);
    expect(plan_anew(NULL), false, true, 2);
    expect(plan_anew(&measured), false, true, 2);
    expect(plan_anew(&untimed), false, false, 0); /* nor does it read what was timed */
    lac_plan_options other = {.has_bias = 1}, forbidden = {.size = sizeof forbidden, .measure = 1, .no_timing = 1};
    lac_device *device = NULL;
    lac_weight *weight = make_weight();
    lac_plan *plan = NULL;
    assert_ok(lac_device_open("cuda:0", &device));
    assert_fails(lac_plan_create(device, weight, M, &forbidden, &plan), LAC_STATUS_INVALID_ARGUMENT, "no_timing");
    forbidden.no_timing = 2;
    assert_fails(lac_plan_create(device, weight, M, &forbidden, &plan), LAC_STATUS_INVALID_ARGUMENT, "no_timing is 2");
    /* Other problems are timed for themselves. */
    other.size = sizeof other;
    other.kernel = "cuda_cublaslt_dense";
    long before = fake_lt_products();
    assert_ok(lac_plan_create(device, weight, M, &other, &plan));
    lac_plan_free(plan);
    assert_true(fake_lt_products() > before);
    assert_int_equal(test_folder_files(), 3); /* and the program that adds a bias where the library does not */
    /* Predicting times nothing. */
    lac_plan_options predicted = {.size = sizeof predicted, .kernel = "cuda_cublaslt_dense", .predict_only = 1};
    before = fake_lt_products();
    assert_ok(lac_plan_create(device, weight, 2 * M, &predicted, &plan));
    assert_int_equal(fake_lt_products(), before);
    lac_plan_free(plan);
    lac_weight_free(weight);
    lac_device_close(device);
}

/* A clock too coarse for the product shows nothing, and the library's first is taken; it is not waited for. */
static double takes_nothing(int number, int left, int right)
{
    (void)number, (void)left, (void)right;
    return 0.0;
}

static void a_clock_that_stands_still_ends_the_timing(void **state)
{
    (void)state;
    lac_weight *weight = make_weight();
    lac_device *device = NULL;
    choice found = {0};
    clear_cache();
    take_time(takes_nothing);
    fake_set_untold_time(0.0);
    assert_ok(lac_device_open("cuda:0", &device));
    assert_ok(try_plan(device, weight, (lac_plan_options){0}, &found));
    assert_int_equal(found.number, 0);
    fake_set_untold_time(1.0);
    clear_cache();
    lac_device_close(device);
    lac_weight_free(weight);
}

static void near_ties_go_to_the_library_s_first(void **state)
{
    (void)state;
    clear_cache();
    take_time(nearly_alike);
    expect(plan_anew(NULL), true, false, 0);
}

static void a_process_remembers_without_a_disk(void **state)
{
    (void)state;
    clear_cache();
    take_time(late_answer_is_fastest);
    assert_int_equal(chmod(test_path("cache"), 0777), 0); /* a folder that is not trusted */
    lac_device *device = NULL;
    lac_weight *weight = make_weight();
    choice first, second;
    lac_set_log(count_warning, NULL, LAC_LOG_LEVEL_WARNING);
    warnings = 0;
    assert_ok(lac_device_open("cuda:0", &device));
    assert_ok(try_plan(device, weight, (lac_plan_options){0}, &first));
    assert_true(warnings > 0);
    take_time(first_answer_is_fastest);
    assert_ok(try_plan(device, weight, (lac_plan_options){0}, &second));
    expect(first, true, true, 2);
    expect(second, false, true, 2);
    lac_weight_free(weight);
    lac_device_close(device);
    assert_int_equal(test_folder_files(), 0);
    expect(plan_anew(NULL), true, false, 0);
    lac_set_log(NULL, NULL, LAC_LOG_LEVEL_WARNING);
}

static void disturbed_timings_are_repeated_once(void **state)
{
    (void)state;
    for (int twice = 0; twice < 2; twice++) {
        clear_cache();
        take_time(disturbed);
        assert_true(plan_anew(NULL).products > 0);
        assert_int_equal(test_folder_files(), 1);
        if (!twice) take_time(late_answer_is_fastest);
        choice again = plan_anew(NULL);
        if (!twice) expect(again, true, true, 2);
        assert_true(again.products > 0);
        assert_int_equal(test_folder_files(), 1);
        take_time(first_answer_is_fastest); /* which nobody asks any more */
        choice last = plan_anew(NULL);
        expect(last, false, again.other_way, again.number);
    }
}

static void without_memory_nothing_is_timed(void **state)
{
    (void)state;
    clear_cache();
    take_time(late_answer_is_fastest);
    lac_set_log(count_warning, NULL, LAC_LOG_LEVEL_WARNING);
    warnings = 0;
    fake_set_most_bytes(1 << 20);
    expect(plan_anew(NULL), false, false, 0);
    fake_set_most_bytes((size_t)1 << 40);
    assert_true(warnings > 0);
    lac_set_log(NULL, NULL, LAC_LOG_LEVEL_WARNING);
    assert_int_equal(test_folder_files(), 0);
    /* Nor where all algorithms refuse the operands that they were named for: the plan runs by the second choice. */
    fake_lt_refuse_aligned(1);
    expect(plan_anew(NULL), false, false, 100);
    fake_lt_refuse_aligned(0);
    expect(plan_anew(NULL), true, true, 2);
}

/* ---- files that are not as they should be */

static void damaged_files_are_timed_anew(void **state)
{
    (void)state;
    clear_cache();
    take_time(late_answer_is_fastest);
    expect(plan_anew(NULL), true, true, 2);
    cache_file file;
    cache_file_find(test_path("cache"), 96, &file);
    for (size_t at = 0; at < file.bytes; at += at < CACHE_HEADER_BYTES ? 3 : 17) {
        file.data[at] ^= 0x55;
        cache_file_write(&file, file.bytes);
        file.data[at] ^= 0x55;
        expect(plan_anew(NULL), true, true, 2);
        expect(plan_anew(NULL), false, true, 2); /* and written anew */
    }
    for (size_t bytes = 0; bytes < file.bytes; bytes += 41) {
        cache_file_write(&file, bytes);
        expect(plan_anew(NULL), true, true, 2);
    }
}

/* A file with a right checksum that says something else than the library: what it names is never used. */
static void files_that_lie_are_timed_anew(void **state)
{
    (void)state;
    clear_cache();
    take_time(late_answer_is_fastest);
    expect(plan_anew(NULL), true, true, 2);
    cache_file file;
    cache_file_find(test_path("cache"), 96, &file);
    size_t record = cache_file_record(&file);
    static const struct {
        size_t at;
        unsigned char value;
    } lies[] = {{0, 2}, {3, 0x80}, {4, 9}, {7, 0x80}, {8, 1}, {16, 0}, {20, 1}, {79, 1}, {0, 0}, {4, 0}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        cache_file lie = file;
        assert_true(lie.data[record + lies[i].at] != lies[i].value);
        lie.data[record + lies[i].at] = lies[i].value;
        cache_file_seal(&lie);
        cache_file_write(&lie, lie.bytes);
        expect(plan_anew(NULL), true, true, 2);
        expect(plan_anew(NULL), false, true, 2);
    }
    /* A library that has no such answer any more. */
    fake_lt_set_answers(1);
    expect(plan_anew(NULL), true, false, 0);
    fake_lt_set_answers(3);
}

/* ---- threads */

typedef struct planner {
    lac_device *device;
    const lac_weight *weight;
    lac_status status;
    bool other_way;
    uint64_t algorithm;
} planner;

static void *make_plan(void *user)
{
    planner *p = user;
    lac_plan_options options = {.size = sizeof options, .kernel = "cuda_cublaslt_dense"};
    lac_plan *plan = NULL;
    lac_dense_way way;
    p->status = lac_plan_create(p->device, p->weight, M, &options, &plan);
    if (!p->status) p->status = lac_dense_choose(&plan->problem, false, &way);
    if (!p->status) {
        p->other_way = !way.product.w_by_inputs;
        p->algorithm = way.usual.algorithm.opaque[0];
    }
    lac_plan_free(plan);
    return NULL;
}

static void threads_time_once(void **state)
{
    (void)state;
    enum { THREADS = 6 };
    clear_cache();
    take_time(late_answer_is_fastest);
    long alone = plan_anew(NULL).products;
    clear_cache();
    lac_device *device = NULL;
    lac_weight *weight = make_weight();
    assert_ok(lac_device_open("cuda:0", &device));
    long before = fake_lt_products();
    pthread_t threads[THREADS];
    planner planners[THREADS];
    for (int i = 0; i < THREADS; i++) {
        planners[i] = (planner){.device = device, .weight = weight};
        assert_int_equal(pthread_create(&threads[i], NULL, make_plan, &planners[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(planners[i].status, LAC_STATUS_OK);
        assert_true(planners[i].other_way);
        assert_true(planners[i].algorithm == planners[0].algorithm);
    }
    assert_int_equal(fake_lt_products() - before, alone);
    lac_weight_free(weight);
    lac_device_close(device);
}

/* ---- failures */

static lac_status whole_life(const lac_weight *weight)
{
    lac_device *device = NULL;
    choice made;
    lac_status status = lac_device_open("cuda:0", &device);
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
    take_time(late_answer_is_fastest);
    bool reached = true;
    for (long number = 1; reached; number += number < 80 ? 1 : 23) {
        clear_cache();
        fake_lt_fail_at(number, number % 2 ? LT_FAILED : LT_NOT_SUPPORTED);
        lac_status status = whole_life(weight);
        reached = fake_lt_calls() >= number;
        fake_lt_fail_at(0, 0);
        expect_clean(live);
        assert_true(!status || status == LAC_STATUS_DEVICE || status == LAC_STATUS_UNSUPPORTED);
        failed += status != LAC_STATUS_OK;
        passed += reached && !status;
    }
    assert_true(failed > 40 && passed > 2);
    reached = true;
    for (long number = 1; reached; number += number < 80 ? 1 : 23) {
        clear_cache();
        fake_fail_at(number, CU_OUT_OF_MEMORY);
        lac_status status = whole_life(weight);
        reached = fake_calls() >= number;
        fake_fail_at(0, 0);
        expect_clean(live);
        assert_true(!status || status == LAC_STATUS_OUT_OF_MEMORY);
        failed += status != LAC_STATUS_OK;
    }
    for (int64_t number = 1;; number++) {
        clear_cache();
        test_allocator_fail_at(number);
        lac_status status = whole_life(weight);
        reached = test_allocator_failed();
        test_allocator_fail_at(0);
        expect_clean(live);
        if (!reached) break;
        assert_fails(status, LAC_STATUS_OUT_OF_MEMORY, "memory");
    }
    print_message("%d failed, %d went on without\n", failed, passed);
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
        cmocka_unit_test(the_fastest_is_taken_and_remembered),
        cmocka_unit_test(a_clock_that_stands_still_ends_the_timing),
        cmocka_unit_test(near_ties_go_to_the_library_s_first),
        cmocka_unit_test(a_process_remembers_without_a_disk),
        cmocka_unit_test(disturbed_timings_are_repeated_once),
        cmocka_unit_test(without_memory_nothing_is_timed),
        cmocka_unit_test(damaged_files_are_timed_anew),
        cmocka_unit_test(files_that_lie_are_timed_anew),
        cmocka_unit_test(threads_time_once),
        cmocka_unit_test(every_call_fails_in_turn),
    };
    return cmocka_run_group_tests(tests, load_fakes, NULL);
}
