/* test_cuda_runtime.c - the CUDA runtime against a driver that only pretends: opening, loading, launching and freeing; every
 * call of the driver and every allocation failed in turn. What is judged is the status, the message, and that nothing stays
 * behind. tests/fakes/ holds the driver and the compiler. */
#include "support/support.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/program.h"
#include "cuda/runtime.h"
#include "cuda/state.h"
#include "fakes/find.h"

enum { M = 3, N = 8, K = 16 };
enum { CU_OUT_OF_MEMORY = 2, CU_LOST = 719 };

static long (*fake_live)(void), (*fake_calls)(void), (*fake_launches)(void), (*fake_compiled)(void);
static void (*fake_fail_at)(long number, int result), (*fake_refuse_images)(int count), (*fake_set_capability)(int capability),
    (*fake_set_device_of_blocks)(int device), (*fake_fail_attribute)(int attribute, int number);
static int (*fake_stack_depth)(void);

static int load_fakes(void **state)
{
    (void)state;
    void *cuda = dlopen(FAKE_CUDA, RTLD_NOW), *nvrtc = dlopen(FAKE_NVRTC, RTLD_NOW);
    assert_true(cuda && nvrtc);
    fake_find(cuda, "fake_live", &fake_live);
    fake_find(cuda, "fake_calls", &fake_calls);
    fake_find(cuda, "fake_launches", &fake_launches);
    fake_find(cuda, "fake_fail_at", &fake_fail_at);
    fake_find(cuda, "fake_refuse_images", &fake_refuse_images);
    fake_find(cuda, "fake_set_capability", &fake_set_capability);
    fake_find(cuda, "fake_set_device_of_blocks", &fake_set_device_of_blocks);
    fake_find(cuda, "fake_fail_attribute", &fake_fail_attribute);
    fake_find(cuda, "fake_stack_depth", &fake_stack_depth);
    fake_find(nvrtc, "fake_compiled", &fake_compiled);
    return 0;
}

static lac_weight *make_weight(const char *text)
{
    float values[N * K];
    for (int i = 0; i < N * K; i++) values[i] = (float)(i % 11) - 5.0f;
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    assert_ok(lac_pattern_parse(text, &pattern));
    assert_ok(lac_prune(&dense, &pattern, NULL, &mask));
    assert_ok(lac_weight_compress(&dense, mask, NULL, &weight));
    lac_mask_free(mask);
    return weight;
}

static lac_device *open_device(const char *name)
{
    lac_device *device = NULL;
    assert_ok(lac_device_open(name, &device));
    return device;
}

static lac_plan *make_plan(lac_device *device, const lac_weight *weight, const lac_plan_options *given)
{
    lac_plan_options options = {.size = sizeof options};
    if (given) options = *given;
    options.kernel = "cuda_f32_plain";
    lac_plan *plan = NULL;
    assert_ok(lac_plan_create(device, weight, M, &options, &plan));
    return plan;
}

static void *block_of(lac_device *device, uint64_t bytes)
{
    void *block = NULL;
    assert_ok(lac_device_allocate(device, bytes, &block));
    assert_int_equal((uintptr_t)block % 64, 0);
    return block;
}

static void expect_clean(void)
{
    assert_int_equal(fake_live(), 0);
    assert_int_equal(fake_stack_depth(), 0);
}

/* ---- what there is */

static void devices_are_described(void **state)
{
    (void)state;
    lac_device_info info = {.size = sizeof info};
    assert_ok(lac_device_probe(1, &info));
    assert_string_equal(info.name, "cuda:0");
    assert_int_equal(info.kind, LAC_DEVICE_KIND_CUDA);
    assert_int_equal(info.available, 1);
    assert_string_equal(info.model, "Fake GPU 0");
    assert_string_equal(info.vector_unit, "sm_90");
    assert_int_equal(info.cores, 132);
    assert_int_equal(info.l2_bytes, 50 << 20);
    assert_non_null(strstr(info.note, "driver of CUDA 13.0"));
    assert_ok(lac_device_probe(2, &info));
    assert_string_equal(info.name, "cuda:1");
    assert_status(lac_device_probe(3, &info), LAC_STATUS_NOT_FOUND);

    static const char *const names[] = {"libcuda", "libnvrtc", "kernel cache", "libcublas", "libcublasLt"};
    for (size_t i = 0; i < 5; i++) {
        lac_component_info component = {.size = sizeof component};
        assert_ok(lac_component_probe(i, &component));
        assert_string_equal(component.name, names[i]);
        assert_int_equal(component.available, 1);
        assert_true(component.path[0] == '/');
        if (i < 2) assert_string_equal(component.version, "13.0");
        if (i == 3) assert_string_equal(component.version, "13.1.2");
        if (i == 4) assert_string_equal(component.version, "13.1.0");
    }
    lac_component_info none = {.size = sizeof none};
    assert_status(lac_component_probe(5, &none), LAC_STATUS_NOT_FOUND);
}

static void a_device_is_the_primary_context_and_nothing_else(void **state)
{
    (void)state;
    lac_device *device = open_device("cuda:1");
    lac_device_info info = {.size = sizeof info};
    assert_ok(lac_device_get_info(device, &info));
    assert_string_equal(info.model, "Fake GPU 1");
    assert_int_equal(fake_stack_depth(), 0); /* nobody's current context has changed */
    const lac_cuda_target *target = lac_cuda_target_of(device);
    assert_true(target->arch == 90 && target->has_wgmma && target->multiprocessors == 132);
    assert_int_equal(target->shared_per_block, 232448);
    const lac_gpu_rates *rates = lac_cuda_rates_of(device);
    assert_true(rates->memory > 4.1e12 && rates->memory < 4.4e12 && rates->mma_f16 > 9e14 && rates->mma_f16 < 1e15);
    assert_true(rates->issue > 9e11 && rates->issue < 9.6e11 && rates->l2 > 8.2e12 && rates->l2 < 8.4e12);
    lac_device_close(device);
    expect_clean();
    device = open_device("auto");
    assert_ok(lac_device_get_info(device, &info));
    assert_string_equal(info.name, "cuda:0");
    lac_device_close(device);
    expect_clean();
    assert_fails(lac_device_open("cuda:7", &device), LAC_STATUS_NOT_FOUND, "cuda:7");
}

static void an_old_gpu_is_seen_but_not_used(void **state)
{
    (void)state;
    fake_set_capability(61);
    lac_device_info info = {.size = sizeof info};
    lac_device *device = NULL;
    assert_ok(lac_device_probe(1, &info));
    assert_int_equal(info.available, 0);
    assert_non_null(strstr(info.note, "sm_61"));
    assert_fails(lac_device_open("cuda:0", &device), LAC_STATUS_DEVICE, "sm_61");
    assert_ok(lac_device_open("auto", &device));
    assert_ok(lac_device_get_info(device, &info));
    assert_string_equal(info.name, "cpu");
    lac_device_close(device);
    fake_set_capability(90);
    expect_clean();
}

/* ---- executing */

static void a_plan_runs_and_frees_everything(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("2:4");
    lac_device *device = open_device("cuda:0");
    lac_plan *plan = make_plan(device, weight, NULL);
    lac_execute_args args = {.size = sizeof args, .x = block_of(device, M * K * 4), .y = block_of(device, M * N * 4)};
    long launches = fake_launches();
    int64_t live = test_allocator_live();
    test_allocator_fail_from(1); /* executing allocates nothing */
    assert_ok(lac_plan_execute(plan, &args));
    assert_int_equal(test_allocator_count(), 0);
    test_allocator_fail_at(0);
    assert_int_equal(test_allocator_live(), live);
    assert_int_equal(fake_launches(), launches + 1);
    assert_int_equal(fake_stack_depth(), 0);
    lac_device_release(device, (void *)(uintptr_t)args.x);
    lac_device_release(device, args.y);
    lac_weight_free(weight);
    lac_device_close(device); /* the plan still holds it */
    lac_plan_free(plan);
    expect_clean();
}

/* A shard of no inputs reads nothing of X: what begins where a matrix ends is a sound place for it. */
static void an_empty_x_may_lie_anywhere(void **state)
{
    (void)state;
    lac_weight *whole = make_weight("2:4"), *weight = NULL;
    assert_ok(lac_weight_shard(whole, LAC_AXIS_K, K, K, &weight));
    lac_device *device = open_device("cuda:0");
    lac_plan *plan = make_plan(device, weight, NULL);
    char *x = block_of(device, M * K * 4);
    lac_execute_args args = {.size = sizeof args, .x = x + (size_t)M * K * 4, .y = block_of(device, M * N * 4)};
    assert_ok(lac_plan_execute(plan, &args));
    lac_device_release(device, x);
    lac_device_release(device, args.y);
    lac_plan_free(plan);
    lac_weight_free(weight);
    lac_weight_free(whole);
    lac_device_close(device);
    expect_clean();
}

static void wrong_pointers_are_named(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("2:4");
    lac_device *device = open_device("cuda:0");
    lac_plan *plan =
        make_plan(device, weight, &(lac_plan_options){.size = sizeof(lac_plan_options), .has_bias = 1, .has_residual = 1});
    _Alignas(64) float host[M * K];
    fake_set_device_of_blocks(1);
    void *other = block_of(device, M * K * 4);
    fake_set_device_of_blocks(0);
    void *x = block_of(device, M * K * 4), *y = block_of(device, M * N * 4), *bias = block_of(device, N * 4),
         *c = block_of(device, M * N * 4);
    const lac_execute_args good = {.size = sizeof good, .x = x, .y = y, .bias = bias, .c = c};
    lac_execute_args args = good;
    long launches = fake_launches();
    args.x = host;
    assert_fails(lac_plan_execute(plan, &args), LAC_STATUS_INVALID_ARGUMENT, "args->x is");
    assert_non_null(strstr(lac_last_error(), "host"));
    args = good, args.y = host;
    assert_fails(lac_plan_execute(plan, &args), LAC_STATUS_INVALID_ARGUMENT, "args->y is");
    args = good, args.bias = host;
    assert_fails(lac_plan_execute(plan, &args), LAC_STATUS_INVALID_ARGUMENT, "args->bias is");
    args = good, args.c = host;
    assert_fails(lac_plan_execute(plan, &args), LAC_STATUS_INVALID_ARGUMENT, "args->c is");
    args = good, args.x = other;
    assert_fails(lac_plan_execute(plan, &args), LAC_STATUS_INVALID_ARGUMENT, "memory of cuda:1");
    assert_int_equal(fake_launches(), launches);
    assert_ok(lac_plan_execute(plan, &good));
    void *blocks[] = {other, x, y, bias, c};
    for (int i = 0; i < 5; i++) lac_device_release(device, blocks[i]);
    lac_plan_free(plan);
    lac_weight_free(weight);
    lac_device_close(device);
    expect_clean();
}

static void device_memory_goes_there_and_back(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu", "cuda:0"};
    for (int i = 0; i < 2; i++) {
        lac_device *device = open_device(names[i]);
        char there[] = "to the device and back", back[sizeof there] = "";
        void *block = block_of(device, sizeof there), *empty = block_of(device, 0);
        assert_ok(lac_device_upload(device, block, there, sizeof there));
        assert_ok(lac_device_synchronize(device));
        assert_ok(lac_device_download(device, back, block, sizeof back));
        assert_string_equal(back, there);
        assert_ok(lac_device_upload(device, NULL, NULL, 0));
        lac_device_release(device, block);
        lac_device_release(device, empty);
        void *untouched = &there;
        test_allocator_limit(UINT64_C(1) << 40); /* the sanitizer's own allocator would end the process */
        assert_fails(lac_device_allocate(device, UINT64_C(1) << 60, &untouched), LAC_STATUS_OUT_OF_MEMORY,
                     "1152921504606846976");
        test_allocator_limit(0);
        assert_ptr_equal(untouched, &there);
        lac_device_close(device);
    }
    expect_clean();
}

/* ---- failures in turn */

/* Everything a user does, in a row; stops at the first failure, and always takes apart what it has made. `measure`: with a
 * plan that runs every kernel, which is long. */
static lac_status whole_life(const lac_weight *weight, bool measure)
{
    lac_device *device = NULL;
    lac_plan *plan = NULL, *measured = NULL;
    void *x = NULL, *y = NULL;
    float host[M * K] = {0};
    lac_plan_options forced = {.size = sizeof forced, .kernel = "cuda_f32_plain"};
    lac_plan_options timed = {.size = sizeof timed, .measure = 1, .has_bias = 1, .has_residual = 1};
    lac_status status = lac_device_open("cuda:0", &device);
    if (!status) status = lac_plan_create(device, weight, M, &forced, &plan);
    if (!status) status = lac_device_allocate(device, sizeof host, &x);
    if (!status) status = lac_device_allocate(device, sizeof host, &y);
    if (!status) status = lac_device_upload(device, x, host, sizeof host);
    lac_execute_args args = {.size = sizeof args, .x = x, .y = y};
    if (!status) status = lac_plan_execute(plan, &args);
    if (!status) status = lac_device_synchronize(device);
    if (!status) status = lac_device_download(device, host, y, sizeof host);
    if (!status && measure) status = lac_plan_create(device, weight, M, &timed, &measured);
    lac_device_release(device, x);
    lac_device_release(device, y);
    lac_plan_free(measured);
    lac_plan_free(plan);
    lac_device_close(device);
    return status;
}

static void every_driver_call_fails_in_turn(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("vw4:2:4");
    static const int results[] = {CU_OUT_OF_MEMORY, CU_LOST};
    long step = test_scale() > 1 ? 17 : 1;
    assert_ok(whole_life(weight, true));
    for (int i = 0; i < 2; i++) {
        long failed = 0, went_on = 0;
        for (long number = 1;; number += number < 40 ? 1 : step) {
            int64_t live = test_allocator_live();
            fake_fail_at(number, results[i]);
            lac_status status = whole_life(weight, true);
            bool reached = fake_calls() >= number;
            fake_fail_at(0, 0);
            expect_clean();
            assert_int_equal(test_allocator_live(), live);
            if (!reached) break;
            if (!status) { /* one kernel that could not be prepared is not measured */
                went_on++;
                continue;
            }
            failed++;
            assert_status(status, results[i] == CU_LOST ? LAC_STATUS_DEVICE : LAC_STATUS_OUT_OF_MEMORY);
            assert_non_null(strstr(lac_last_error(), results[i] == CU_LOST ? "CUDA_ERROR_LAUNCH_FAILED" : "out of memory"));
        }
        print_message("%ld calls failed with %d, %ld went on without a kernel\n", failed, results[i], went_on);
        assert_true(failed > 40 && went_on > 0);
    }
    assert_ok(whole_life(weight, true));
    lac_weight_free(weight);
}

/* A GPU that gets lost between looking and opening: the driver does not answer any more. */
static void attributes_that_nobody_tells(void **state)
{
    (void)state;
    enum { MULTIPROCESSORS = 16, MAJOR = 75 };
    static const int attributes[] = {MULTIPROCESSORS, MAJOR};
    lac_weight *weight = make_weight("2:4");
    for (int i = 0; i < 2; i++) {
        int opened = 0, refused = 0;
        for (int number = 1; number < 12; number++) {
            lac_device *device = NULL;
            lac_plan *plan = NULL;
            fake_fail_attribute(attributes[i], number);
            lac_status status = lac_device_open("cuda:0", &device);
            if (status) assert_fails(status, LAC_STATUS_DEVICE, "cuda:0");
            status ? refused++ : opened++;
            if (!status) assert_ok(lac_plan_create(device, weight, M, NULL, &plan));
            fake_fail_attribute(0, 0);
            lac_plan_free(plan);
            lac_device_close(device);
            expect_clean();
        }
        assert_true(opened > 0 && refused > 0);
    }
    lac_weight_free(weight);
}

static void every_allocation_fails_in_turn(void **state)
{
    (void)state;
    int64_t step = test_scale() > 1 ? 17 : 1;
    static const char *const patterns[] = {"2:4", "4:2:8", "shfl4:50%", "bw2x3:1:3", "vw4:40%"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        lac_weight *weight = make_weight(patterns[i]);
        assert_ok(whole_life(weight, true));
        for (int64_t number = 1;; number += number < 40 ? 1 : step) {
            int64_t live = test_allocator_live();
            test_allocator_fail_at(number);
            lac_status status = whole_life(weight, i == 0);
            bool reached = test_allocator_failed();
            test_allocator_fail_at(0);
            expect_clean();
            assert_int_equal(test_allocator_live(), live);
            if (!reached) break;
            assert_fails(status, LAC_STATUS_OUT_OF_MEMORY, "memory");
            assert_true(number < 5000);
        }
        lac_weight_free(weight);
    }
}

/* ---- programs */

static void an_image_that_the_driver_refuses_is_compiled_again(void **state)
{
    (void)state;
    lac_weight *weight = make_weight("2:4");
    lac_device *device = open_device("cuda:0");
    lac_plan_free(make_plan(device, weight, NULL)); /* now the cache has it */
    lac_device_close(device);
    long compiled = fake_compiled();
    device = open_device("cuda:0");
    lac_plan_free(make_plan(device, weight, NULL));
    assert_int_equal(fake_compiled(), compiled);
    lac_device_close(device);
    device = open_device("cuda:0");
    fake_refuse_images(1);
    lac_plan_free(make_plan(device, weight, NULL));
    assert_int_equal(fake_compiled(), compiled + 1);
    lac_device_close(device);
    device = open_device("cuda:0");
    fake_refuse_images(2);
    lac_plan *plan = NULL;
    lac_plan_options options = {.size = sizeof options, .kernel = "cuda_f32_plain"};
    assert_fails(lac_plan_create(device, weight, M, &options, &plan), LAC_STATUS_DEVICE, "lac_plain");
    assert_null(plan);
    lac_device_close(device);
    lac_weight_free(weight);
    expect_clean();
}

static void wrong_requests_are_refused(void **state)
{
    (void)state;
    lac_device *device = open_device("cuda:0");
    lac_cuda_request request;
    lac_cu_function function = NULL, first = NULL;
    lac_cuda_request_begin(&request, "nowhere.cu", "f");
    assert_fails(lac_cuda_program_get(device, &request, &function), LAC_STATUS_INTERNAL, "nowhere.cu");
    lac_cuda_request_begin(&request, "plain.cu", "f");
    for (int i = 0; i <= LAC_CUDA_MOST_DEFINES; i++) lac_cuda_request_define(&request, "LAC_X", i);
    assert_fails(lac_cuda_program_get(device, &request, &function), LAC_STATUS_INTERNAL, "too many");
    lac_cuda_request_begin(&request, "plain.cu", "f");
    lac_cuda_request_define(&request, "FAKE_ERROR", 1);
    assert_fails(lac_cuda_program_get(device, &request, &function), LAC_STATUS_UNSUPPORTED, "expected a");
    assert_non_null(strstr(lac_last_error(), "sm_90a"));
    assert_null(strstr(lac_last_error(), "fifth"));
    lac_cuda_request_begin(&request, "plain.cu", "f");
    request.shared_bytes = 1 << 20;
    assert_fails(lac_cuda_program_get(device, &request, &function), LAC_STATUS_UNSUPPORTED, "1048576");
    assert_null(function);
    request.shared_bytes = 100000;
    assert_ok(lac_cuda_program_get(device, &request, &first));
    request.shared_bytes = 200000;
    assert_ok(lac_cuda_program_get(device, &request, &function));
    assert_ptr_equal(function, first); /* the same one, now with more shared memory */
    lac_device_close(device);
    expect_clean();
}

static void a_target_without_a_gpu_launches_nothing(void **state)
{
    (void)state;
    lac_device *target = NULL;
    lac_weight *weight = make_weight("2:4");
    assert_fails(lac_cuda_target_open("sm_12", &target), LAC_STATUS_INVALID_ARGUMENT, "sm_12");
    assert_ok(lac_cuda_target_open("sm_86", &target));
    lac_plan *plan = NULL;
    assert_fails(lac_plan_create(target, weight, 1, NULL, &plan), LAC_STATUS_DEVICE, "sm_86");
    void *block = NULL;
    assert_fails(lac_device_allocate(target, 16, &block), LAC_STATUS_DEVICE, "without a GPU");
    assert_true(!plan && !block);
    lac_device_close(target);
    lac_weight_free(weight);
    expect_clean();
}

/* ---- threads */

typedef struct worker {
    lac_device *device;
    const lac_weight *weight;
    int failed;
} worker;

static void *work(void *user)
{
    worker *w = user;
    void *x = NULL, *y = NULL;
    w->failed = lac_device_allocate(w->device, M * K * 4, &x) || lac_device_allocate(w->device, M * N * 4, &y);
    for (int i = 0; i < 20 && !w->failed; i++) {
        lac_plan *plan = NULL;
        lac_plan_options options = {.size = sizeof options, .kernel = "cuda_f32_plain", .activation = (lac_activation)(i % 3)};
        w->failed = lac_plan_create(w->device, w->weight, M, &options, &plan) != LAC_STATUS_OK;
        lac_execute_args args = {.size = sizeof args, .x = x, .y = y};
        for (int j = 0; j < 10 && !w->failed; j++) w->failed = lac_plan_execute(plan, &args) != LAC_STATUS_OK;
        lac_plan_free(plan);
    }
    lac_device_release(w->device, x);
    lac_device_release(w->device, y);
    return NULL;
}

static void many_threads_share_a_device(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    lac_weight *weight = make_weight("shfl4:25%");
    lac_device *device = open_device("cuda:0");
    pthread_t threads[THREADS];
    worker workers[THREADS];
    long compiled = fake_compiled();
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){device, weight, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failed, 0);
    }
    assert_true(fake_compiled() - compiled <= 3); /* one for each activation, not one for each thread */
    lac_device_close(device);
    lac_weight_free(weight);
    expect_clean();
}

int main(void)
{
    setenv("LAC_CUDA_LIBRARY", FAKE_CUDA, 1);
    setenv("LAC_NVRTC_LIBRARY", FAKE_NVRTC, 1);
    setenv("LAC_CUBLAS_LIBRARY", FAKE_CUBLAS, 1);
    setenv("LAC_CUBLASLT_LIBRARY", FAKE_CUBLASLT, 1);
    setenv("LAC_CACHE_DIR", test_path("cache"), 1);
    test_allocator_install();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_described),
        cmocka_unit_test(a_device_is_the_primary_context_and_nothing_else),
        cmocka_unit_test(an_old_gpu_is_seen_but_not_used),
        cmocka_unit_test(a_plan_runs_and_frees_everything),
        cmocka_unit_test(an_empty_x_may_lie_anywhere),
        cmocka_unit_test(wrong_pointers_are_named),
        cmocka_unit_test(device_memory_goes_there_and_back),
        cmocka_unit_test(attributes_that_nobody_tells),
        cmocka_unit_test(every_driver_call_fails_in_turn),
        cmocka_unit_test(every_allocation_fails_in_turn),
        cmocka_unit_test(an_image_that_the_driver_refuses_is_compiled_again),
        cmocka_unit_test(wrong_requests_are_refused),
        cmocka_unit_test(a_target_without_a_gpu_launches_nothing),
        cmocka_unit_test(many_threads_share_a_device),
    };
    return cmocka_run_group_tests(tests, load_fakes, NULL);
}
