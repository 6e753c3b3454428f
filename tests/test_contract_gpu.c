/* test_contract_gpu.c - what lacuna.h says of plans on a GPU: one that predicts only compiles, uploads and launches nothing, whatever its
 * kernel; and scalars are read while execute runs. The driver and the compiler are made for the tests, and count. */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "fakes/find.h"
#include "plan_case.h"

static long (*fake_live)(void), (*fake_launches)(void), (*fake_compiled)(void);
static void (*fake_fail_at)(long number, int result);

static int load_fakes(void **state)
{
    (void)state;
    void *cuda = dlopen(FAKE_CUDA, RTLD_NOW), *nvrtc = dlopen(FAKE_NVRTC, RTLD_NOW);
    assert_true(cuda && nvrtc);
    fake_find(cuda, "fake_live", &fake_live);
    fake_find(cuda, "fake_launches", &fake_launches);
    fake_find(cuda, "fake_fail_at", &fake_fail_at);
    fake_find(nvrtc, "fake_compiled", &fake_compiled);
    return 0;
}

static void predicting_does_nothing_on_the_gpu(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4", "vw32:8:32", "64:2:8", "bw32x32:1:2", "shfl32:25%"};
    test_random random = test_random_make("contract_gpu", 0);
    lac_device *gpu = NULL;
    int predicted = 0;
    assert_ok(lac_device_open("cuda:0", &gpu));
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        lac_pattern pattern = pattern_of(patterns[i]);
        lac_weight *weight = weight_make(&random, &pattern, 128, 256, LAC_DTYPE_F16, TEST_FILL_GAUSSIAN);
        lac_kernel_info kernel = {.size = sizeof kernel, .name = NULL};
        long live = fake_live(), launches = fake_launches(), compiled = fake_compiled();
        for (size_t k = 0; lac_kernel_probe(k, &kernel) == LAC_STATUS_OK; k++) {
            lac_plan_options options = {.size = sizeof options, .kernel = kernel.name, .predict_only = 1};
            lac_plan *plan = NULL;
            lac_status status = lac_plan_create(gpu, weight, 64, &options, &plan);
            if (status == LAC_STATUS_UNSUPPORTED) continue;
            assert_ok(status);
            lac_plan_info info = {.size = sizeof info};
            lac_level_info level = {.size = sizeof level};
            assert_ok(lac_plan_get_info(plan, &info));
            assert_ok(lac_plan_explain(plan, 0, &level));
            if (fake_live() != live || fake_launches() != launches || fake_compiled() != compiled)
                fail_msg("%s: predicting made something", kernel.name);
            lac_plan_free(plan);
            predicted++;
        }
        lac_plan_options plain = {.size = sizeof plain, .kernel = "cuda_f32_plain"};
        lac_plan *plan = NULL;
        assert_ok(lac_plan_create(gpu, weight, 64, &plain, &plan)); /* which the counters would have told */
        assert_true(fake_live() > live && (i > 0 || fake_compiled() > compiled));
        lac_plan_free(plan);
        lac_weight_free(weight);
    }
    assert_true(predicted > 20);
    lac_device_close(gpu);
    assert_int_equal(fake_live(), 0);
}

/* alpha and beta lie in a page that is gone when the call has returned. */
static void scalars_are_read_before_execute_returns(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "cuda:0"}, *const kernels[] = {NULL, "cuda_f32_plain"};
    test_random random = test_random_make("scalars", 0);
    lac_pattern pattern = pattern_of("2:4");
    lac_weight *weight = weight_make(&random, &pattern, 8, 16, LAC_DTYPE_F32, TEST_FILL_INTEGER);
    for (int i = 0; i < 2; i++) {
        lac_device *device = NULL;
        lac_plan *plan = NULL;
        lac_plan_options options = {.size = sizeof options, .has_residual = 1, .kernel = kernels[i]};
        lac_plan_info info = {.size = sizeof info};
        float ones[4 * 16], y[4 * 8];
        for (int j = 0; j < 4 * 16; j++) ones[j] = 1;
        void *x = NULL, *to = NULL, *workspace = NULL;
        assert_ok(lac_device_open(devices[i], &device));
        assert_ok(lac_plan_create(device, weight, 4, &options, &plan));
        assert_ok(lac_plan_get_info(plan, &info));
        assert_ok(lac_device_allocate(device, sizeof ones, &x));
        assert_ok(lac_device_allocate(device, sizeof y, &to));
        assert_ok(lac_device_allocate(device, info.workspace_bytes, &workspace));
        assert_ok(lac_device_upload(device, x, ones, sizeof ones));
        assert_ok(lac_device_upload(device, to, ones, sizeof y));
        float *scalars = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(scalars != MAP_FAILED);
        scalars[0] = 0, scalars[1] = 3;
        lac_execute_args args = {.size = sizeof args, .x = x, .y = to, .c = to, .alpha = scalars, .beta = scalars + 1};
        args.workspace = workspace, args.workspace_bytes = info.workspace_bytes;
        assert_ok(lac_plan_execute(plan, &args));
        assert_int_equal(munmap(scalars, 4096), 0); /* whoever reads them now ends the program */
        assert_ok(lac_device_synchronize(device));
        assert_ok(lac_device_download(device, y, to, sizeof y));
        if (i == 0) /* the driver of the tests computes nothing */
            for (int j = 0; j < 4 * 8; j++) assert_true(y[j] == 3);
        lac_plan_free(plan);
        lac_device_release(device, workspace);
        lac_device_release(device, to);
        lac_device_release(device, x);
        lac_device_close(device);
    }
    lac_weight_free(weight);
}

/* What a kernel has done wrong, the driver tells to whoever waits for it. */
static void waiting_is_the_driver_s_and_tells_of_failures(void **state)
{
    (void)state;
    enum { LOST = 719 };
    lac_device *gpu = NULL;
    int told = 0;
    assert_ok(lac_device_open("cuda:0", &gpu));
    for (long number = 1;; number++) {
        fake_fail_at(number, LOST);
        lac_status status = lac_device_synchronize(gpu);
        fake_fail_at(0, 0);
        if (status == LAC_STATUS_OK) break;
        assert_fails(status, LAC_STATUS_DEVICE, "CUDA_ERROR_LAUNCH_FAILED");
        told += strstr(lac_last_error(), "synchronize") != NULL;
    }
    assert_true(told > 0);
    assert_ok(lac_device_synchronize(gpu));
    lac_device_close(gpu);
}

int main(void)
{
    setenv("LAC_CUDA_LIBRARY", FAKE_CUDA, 1);
    setenv("LAC_NVRTC_LIBRARY", FAKE_NVRTC, 1);
    setenv("LAC_CUBLASLT_LIBRARY", FAKE_CUBLASLT, 1);
    setenv("LAC_CACHE_DIR", test_path("cache"), 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(predicting_does_nothing_on_the_gpu),
                                       cmocka_unit_test(scalars_are_read_before_execute_returns),
                                       cmocka_unit_test(waiting_is_the_driver_s_and_tells_of_failures)};
    return cmocka_run_group_tests(tests, load_fakes, NULL);
}
