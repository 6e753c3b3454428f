/* test_gpu_numbers.c - numbers and places that the rows of a kernel (gpu_list.c) do not come to: tokens and weights of extreme sizes, a bias
 * beside operands that lie anywhere. Each is judged as a row is. test_gpu.c runs them, on a GPU and on the emulator. */
#include <math.h>

#include "gpu/gpu_case.h"
#include "gpu/test_gpu.h"

static lac_device *device;

static int open_device(void **state)
{
    (void)state;
    assert_ok(lac_device_open("cuda:0", &device));
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    lac_device_close(device);
    return 0;
}

/* The values of a matrix, row r times two to exponents[r % count]. */
static void scale_rows(const test_matrix *matrix, const int *exponents, int count)
{
    for (int64_t row = 0; row < matrix->view.rows; ++row)
        for (int64_t col = 0; col < matrix->view.cols; ++col)
            test_matrix_set(matrix, row, col, ldexp(test_matrix_get(matrix, row, col), exponents[row % count]));
}

static lac_weight *scaled_weight(test_random *random, int64_t n, int64_t k, const int exponents[4])
{
    lac_pattern pattern = pattern_of("vw32:8:32");
    test_matrix dense = test_matrix_random(random, n, k, LAC_DTYPE_F32);
    lac_mask *mask = NULL;
    lac_weight *weight = NULL;
    test_matrix_fill(random, &dense, TEST_FILL_GAUSSIAN);
    scale_rows(&dense, exponents, 4);
    assert_ok(lac_prune(&dense.view, &pattern, NULL, &mask));
    assert_ok(lac_weight_compress(&dense.view, mask, NULL, &weight));
    lac_mask_free(mask);
    test_matrix_free(&dense);
    return weight;
}

/* Tokens of any size, down to some of the subnormal numbers, beside weights of any size: what is scaled by powers of two on its way to the
 * tensor cores comes back as it was. */
static void tiny_tokens_are_as_right_as_others(void **state)
{
    (void)state;
    static const char *const kernels[] = {"cuda_f32_fast", "cuda_f32_fast_mma", "cuda_f32_tf32", "cuda_f32_fast_dense"};
    static const int exponents[] = {0, -40, -86, -100, -112, -118, -124, -127, -131, -135};
    static const struct {
        int64_t m, k;
        int exponents[4]; /* of the weights of outputs in turn */
    } rows[] = {{70, 320, {0}}, {70, 320, {30, 30, 30, 30}}, {10, 2048, {-30, -30, -30, 0}}};
    for (size_t i = 0; i < 2 * sizeof kernels / sizeof *kernels; ++i)
        for (size_t j = 0; j < sizeof rows / sizeof *rows; ++j) {
            test_random random = test_random_make("tiny_tokens", (int64_t)(i * 8 + j));
            lac_plan_options options = {.size = sizeof options,
                                        .x_layout = (lac_layout)(i % 2),
                                        .precision = i / 2 == 2 ? LAC_PRECISION_TF32 : LAC_PRECISION_FAST,
                                        .threads = 1,
                                        .no_timing = 1};
            lac_weight *weight = scaled_weight(&random, 96, rows[j].k, rows[j].exponents);
            plan_case c = case_make(&random, weight, rows[j].m, &options, TEST_FILL_GAUSSIAN);
            scale_rows(&c.x, exponents, sizeof exponents / sizeof *exponents);
            gpu_case_check(device, &c, kernels[i / 2], JUDGE_BOUND);
            case_free(&c);
        }
}

/* The vendor's library takes a bias only where all operands lie as it likes; elsewhere it is added apart, for some tokens at a time where
 * outputs are many. */
static void dense_products_take_a_bias_anywhere(void **state)
{
    (void)state;
    static const struct {
        int64_t m, n, k;
    } narrow[] = {{128, 96, 63}, {64, 63, 640}}, wide = {65, 16400, 5};
    for (int64_t i = 0; i < 18; ++i) {
        test_random random = test_random_make("dense_bias", i);
        bool is_wide = i >= 16;
        int64_t m = is_wide ? wide.m : narrow[i % 2].m, n = is_wide ? wide.n : narrow[i % 2].n,
                k = is_wide ? wide.k : narrow[i % 2].k;
        lac_pattern pattern = pattern_of("2:4");
        lac_plan_options options = {.size = sizeof options,
                                    .x_layout = (lac_layout)(is_wide ? i % 2 : i / 2 % 2),
                                    .has_bias = 1,
                                    .activation = i / 4 % 2 ? LAC_ACTIVATION_RELU : LAC_ACTIVATION_NONE,
                                    .no_timing = 1};
        test_fill fill = is_wide ? TEST_FILL_INTEGER : TEST_FILL_GAUSSIAN;
        lac_weight *weight = weight_make(&random, &pattern, n, k, i / 8 ? LAC_DTYPE_F16 : LAC_DTYPE_BF16, fill);
        plan_case c = case_make(&random, weight, m, &options, fill);
        gpu_case_check(device, &c, "cuda_cublaslt_dense", is_wide ? JUDGE_EXACT : JUDGE_BOUND);
        case_free(&c);
    }
}

int test_gpu_numbers(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiny_tokens_are_as_right_as_others),
                                       cmocka_unit_test(dense_products_take_a_bias_anywhere)};
    return cmocka_run_group_tests_name("numbers on the GPU", tests, open_device, close_device);
}
