/* test_prune_device.c - second-order pruning with a GPU's linear algebra, on a driver and a cuBLAS made for the tests: what it chooses
 * and how weights change are held against the CPU's, for every family; calls that fail leave nothing behind and nothing changed. */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fakes/find.h"
#include "support/support.h"

enum { N = 40, K = 300, SAMPLES = 400 };

static long (*fake_live)(void), (*fake_cublas_calls)(void), (*fake_cublas_alive)(void);
static void (*fake_fail_at)(long number, int result), (*fake_cublas_fail_at)(long number);
static int (*fake_stack_depth)(void);

static int load_fakes(void **state)
{
    (void)state;
    void *cuda = dlopen(FAKE_CUDA, RTLD_NOW), *cublas = dlopen(FAKE_CUBLAS, RTLD_NOW);
    assert_true(cuda && cublas);
    fake_find(cuda, "fake_live", &fake_live);
    fake_find(cuda, "fake_fail_at", &fake_fail_at);
    fake_find(cuda, "fake_stack_depth", &fake_stack_depth);
    fake_find(cublas, "fake_cublas_calls", &fake_cublas_calls);
    fake_find(cublas, "fake_cublas_alive", &fake_cublas_alive);
    fake_find(cublas, "fake_cublas_fail_at", &fake_cublas_fail_at);
    return 0;
}

/* A layer of correlated inputs: 20 common factors and noise. */
typedef struct layer {
    float w[N * K];
    lac_calibration *calibration;
} layer;

static layer *make_layer(int64_t seed, int64_t samples)
{
    test_random random = test_random_make("prune_device", seed);
    layer *l = malloc(sizeof *l);
    float *x = malloc((size_t)(samples * K) * sizeof *x), mix[20 * K];
    assert_true(l && x);
    for (int i = 0; i < 20 * K; i++) mix[i] = (float)test_random_gaussian(&random);
    for (int i = 0; i < N * K; i++) l->w[i] = (float)test_random_gaussian(&random);
    for (int64_t s = 0; s < samples; s++) {
        float factors[20];
        for (int f = 0; f < 20; f++) factors[f] = (float)test_random_gaussian(&random);
        for (int c = 0; c < K; c++) {
            float sum = (float)test_random_gaussian(&random);
            for (int f = 0; f < 20; f++) sum += factors[f] * mix[f * K + c];
            x[s * K + c] = sum;
        }
    }
    lac_matrix inputs = {.data = x, .dtype = LAC_DTYPE_F32, .rows = samples, .cols = K};
    assert_ok(lac_calibration_create(K, &l->calibration));
    assert_ok(lac_calibration_add(l->calibration, &inputs, 1));
    free(x);
    return l;
}

static void free_layer(layer *l)
{
    lac_calibration_free(l->calibration);
    free(l);
}

static lac_status prune(const layer *l, const char *text, const lac_device *device, float *out, lac_mask **mask)
{
    lac_pattern pattern;
    lac_matrix dense = {.data = (void *)(uintptr_t)l->w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_matrix corrected = {.data = out, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_prune_options options = {
        .size = sizeof options, .method = LAC_METHOD_OBS, .calibration = l->calibration, .device = device};
    assert_ok(lac_pattern_parse(text, &pattern));
    return lac_prune_and_correct(&dense, &pattern, &options, &corrected, mask);
}

static double error_of(const layer *l, float *pruned)
{
    double error, total;
    lac_matrix dense = {.data = (void *)(uintptr_t)l->w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_matrix other = {.data = pruned, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    assert_ok(lac_calibration_error(l->calibration, &dense, &other, &error, &total));
    return error / total;
}

static lac_device *open_gpu(void)
{
    lac_device *device = NULL;
    assert_ok(lac_device_open("cuda:0", &device));
    return device;
}

/* Rounding differs, so a choice between near equals may too: nearly all choices are the same, and the errors of the outputs. */
static void test_every_family_as_on_the_cpu(void **state)
{
    static const char *const patterns[] = {"2:4",     "4:8",       "8:32",        "3:7",       "64:256", "25%",      "vw4:8:32",
                                           "vw4:25%", "bw4x4:2:8", "bw4x4:16:64", "bw2x2:25%", "8:2:8",  "shfl4:25%"};
    layer *l = make_layer(1, SAMPLES);
    (void)state;
    lac_device *device = open_gpu();
    long held = fake_live();
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        float *here = malloc(sizeof l->w), *there = malloc(sizeof l->w);
        lac_mask *one = NULL, *two = NULL;
        assert_true(here && there);
        assert_ok(prune(l, patterns[p], NULL, here, &one));
        fake_cublas_fail_at(0);
        assert_ok(prune(l, patterns[p], device, there, &two));
        assert_true(fake_cublas_calls() > 8); /* it was asked indeed */
        int differ = 0;
        for (int i = 0; i < N * K; i++) {
            differ += lac_mask_get(one, i / K, i % K) != lac_mask_get(two, i / K, i % K);
            if (!lac_mask_get(two, i / K, i % K)) assert_true(there[i] == 0);
        }
        double a = error_of(l, here), b = error_of(l, there);
        if (differ > N * K / 100 || fabs(a - b) > 0.01 * a)
            fail_msg("%s: %d of %d choices differ, error %g on the CPU, %g on the GPU", patterns[p], differ, N * K, a, b);
        assert_true(fake_live() == held && fake_cublas_alive() == 0 && fake_stack_depth() == 0);
        lac_mask_free(one), lac_mask_free(two);
        free(here), free(there);
    }
    lac_device_close(device);
    free_layer(l);
}

/* Each call of the driver and of cuBLAS fails in turn. */
static void test_failures_change_nothing(void **state)
{
    layer *l = make_layer(2, SAMPLES);
    float *out = malloc(sizeof l->w), *before = malloc(sizeof l->w);
    (void)state;
    assert_true(out && before);
    lac_device *device = open_gpu();
    long held = fake_live();
    for (int which = 0; which < 2; which++) {
        int failed = 1;
        for (long number = 1; failed; number++) {
            lac_mask *mask = NULL;
            memset(out, 0x55, sizeof l->w);
            memcpy(before, out, sizeof l->w);
            fake_fail_at(which ? number : 0, 719);
            fake_cublas_fail_at(which ? 0 : number);
            lac_status status = prune(l, "2:4", device, out, &mask);
            fake_fail_at(0, 0);
            fake_cublas_fail_at(0);
            failed = status != LAC_STATUS_OK;
            if (failed) {
                assert_true(status == LAC_STATUS_DEVICE && !mask);
                assert_memory_equal(out, before, sizeof l->w);
                if (!which) assert_non_null(strstr(lac_last_error(), "made to fail"));
            } else {
                assert_true(number > 12);
            }
            lac_mask_free(mask);
            assert_true(fake_live() == held && fake_cublas_alive() == 0 && fake_stack_depth() == 0);
        }
    }
    lac_device_close(device);
    free(out), free(before);
    free_layer(l);
}

/* Fewer samples than inputs and no damping to speak of: raised until it does, on both. */
static void test_singular_moments(void **state)
{
    layer *l = make_layer(3, 40);
    float *out = malloc(sizeof l->w);
    lac_pattern pattern;
    lac_mask *mask = NULL;
    (void)state;
    assert_non_null(out);
    lac_device *device = open_gpu();
    lac_matrix dense = {.data = l->w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_matrix corrected = {.data = out, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_prune_options options = {
        .size = sizeof options, .method = LAC_METHOD_OBS, .calibration = l->calibration, .damping = 1e-9, .device = device};
    assert_ok(lac_pattern_parse("2:4", &pattern));
    assert_ok(lac_prune_and_correct(&dense, &pattern, &options, &corrected, &mask));
    for (int i = 0; i < N * K; i++) assert_true(isfinite(out[i]));
    assert_true(error_of(l, out) < 0.2);
    lac_mask_free(mask);
    lac_device_close(device);
    free(out);
    free_layer(l);
}

static void test_refusals(void **state)
{
    layer *l = make_layer(4, SAMPLES);
    float *out = malloc(sizeof l->w);
    lac_mask *mask = NULL;
    lac_device *device = NULL;
    lac_pattern pattern;
    (void)state;
    assert_non_null(out);
    assert_ok(lac_device_open("sm_90a", &device)); /* no GPU behind it */
    assert_int_equal(prune(l, "2:4", device, out, &mask), LAC_STATUS_DEVICE);
    assert_non_null(strstr(lac_last_error(), "sm_90a"));
    lac_device_close(device);
    device = open_gpu();
    lac_matrix dense = {.data = l->w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_prune_options options = {.size = sizeof options, .device = device};
    assert_ok(lac_pattern_parse("2:4", &pattern));
    assert_int_equal(lac_prune(&dense, &pattern, &options, &mask), LAC_STATUS_UNSUPPORTED);
    assert_non_null(strstr(lac_last_error(), "only method obs"));
    assert_null(mask);
    lac_device_close(device);
    free(out);
    free_layer(l);
}

int main(void)
{
    setenv("LAC_CUDA_LIBRARY", FAKE_CUDA, 1);
    setenv("LAC_NVRTC_LIBRARY", FAKE_NVRTC, 1);
    setenv("LAC_CUBLAS_LIBRARY", FAKE_CUBLAS, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family_as_on_the_cpu),
        cmocka_unit_test(test_failures_change_nothing),
        cmocka_unit_test(test_singular_moments),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("prune_device", tests, load_fakes, NULL);
}
