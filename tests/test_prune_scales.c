/* test_prune_scales.c - pruning at the edges of numbers: masks in both directions of tiny weights, orders of columns of weights of any size, corrected weights that their dtype cannot hold, moments and samples that
 * overflow, blocks whose width does not divide 64 by gradients. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

/* The mask must not depend on the scale of the weights, be it ever so small. */
static void test_transposable_of_any_scale(void **state)
{
    enum { N = 32, K = 64 };
    static const double scales[] = {1e-3, 1e-6, 1e-9, 1e-15};
    test_random random = test_random_make("transposable scales", 0);
    float w[N * K];
    double unit[N * K];
    lac_pattern pattern;
    lac_prune_options options = {.size = sizeof options, .transposable = 1, .threads = 1};
    (void)state;
    assert_ok(lac_pattern_parse("2:4", &pattern));
    for (int i = 0; i < N * K; i++) unit[i] = test_random_gaussian(&random);
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        lac_mask *mask = NULL, *plain = NULL;
        lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
        for (int i = 0; i < N * K; i++) w[i] = (float)unit[i];
        assert_ok(lac_prune(&dense, &pattern, &options, &plain));
        for (int i = 0; i < N * K; i++) w[i] = (float)(unit[i] * scales[s]);
        assert_ok(lac_prune(&dense, &pattern, &options, &mask));
        for (int r = 0; r < N; r++)
            for (int c = 0; c < K; c++) assert_int_equal(lac_mask_get(mask, r, c), lac_mask_get(plain, r, c));
        lac_mask_free(mask);
        lac_mask_free(plain);
    }
}

/* An order of columns must not hide that a corrected weight does not fit. */
static void test_corrected_weights_fit(void **state)
{
    enum { N = 4, K = 8, T = 64 };
    (void)state;
    for (int64_t index = 0; index < 20; index++) {
        test_random random = test_random_make("corrected weights fit", index);
        float w[N * K], x[T * K];
        uint16_t out[N * K];
        for (int i = 0; i < N * K; i++) w[i] = (float)(65000 * tanh(test_random_gaussian(&random)));
        for (int t = 0; t < T; t++) {
            double common = test_random_gaussian(&random);
            for (int c = 0; c < K; c++) x[t * K + c] = (float)(common + 0.3 * test_random_gaussian(&random));
        }
        lac_calibration *calibration = NULL;
        lac_matrix samples = {.data = x, .dtype = LAC_DTYPE_F32, .rows = T, .cols = K};
        lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
        lac_matrix corrected = {.data = out, .dtype = LAC_DTYPE_F16, .rows = N, .cols = K};
        lac_pattern pattern;
        lac_mask *mask = NULL;
        assert_ok(lac_pattern_parse("1:4", &pattern));
        assert_ok(lac_calibration_create(K, &calibration));
        assert_ok(lac_calibration_add(calibration, &samples, 1));
        lac_prune_options options = {
            .size = sizeof options, .method = LAC_METHOD_OBS, .calibration = calibration, .permute = LAC_PERMUTE_COLUMNS};
        memset(out, 0, sizeof out);
        lac_status status = lac_prune_and_correct(&dense, &pattern, &options, &corrected, &mask);
        assert_true(status == LAC_STATUS_OK || status == LAC_STATUS_VALUE_OUT_OF_RANGE);
        for (int i = 0; i < N * K; i++) {
            assert_true((out[i] & 0x7c00) != 0x7c00);
            if (status != LAC_STATUS_OK) assert_int_equal(out[i], 0);
        }
        lac_mask_free(mask);
        lac_calibration_free(calibration);
    }
    float one[4] = {1e6f, 1, 2, 3};
    uint16_t out[4] = {7, 7, 7, 7};
    lac_matrix dense = {.data = one, .dtype = LAC_DTYPE_F32, .rows = 1, .cols = 4};
    lac_matrix corrected = {.data = out, .dtype = LAC_DTYPE_F16, .rows = 1, .cols = 4};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    assert_ok(lac_pattern_parse("2:4", &pattern));
    assert_fails(lac_prune_and_correct(&dense, &pattern, NULL, &corrected, &mask), LAC_STATUS_VALUE_OUT_OF_RANGE, "W[0][0]");
    assert_null(mask);
    assert_int_equal(out[0], 7);
    one[0] = INFINITY; /* passes as it is */
    assert_ok(lac_prune_and_correct(&dense, &pattern, NULL, &corrected, &mask));
    assert_int_equal(out[0], 0x7c00);
    lac_mask_free(mask);
}

/* Neither the size of the weights nor the dtype that holds them changes which order of columns is found. */
static void test_columns_of_any_scale(void **state)
{
    enum { N = 24, K = 96 };
    static const char *const texts[] = {"2:4", "vw4:2:4", "8:2:8"};
    static const int exponents[] = {-120, -80, 0, 50, 120};
    static float narrow[N * K], scaled[N * K];
    static double wide[N * K];
    test_random random = test_random_make("columns of any scale", 0);
    (void)state;
    for (int i = 0; i < N * K; i++) narrow[i] = (float)test_random_gaussian(&random);
    for (size_t p = 0; p < sizeof texts / sizeof *texts; p++)
        for (lac_score score = LAC_SCORE_L1; score <= LAC_SCORE_L2; score++) {
            lac_prune_options options = {.size = sizeof options, .score = score, .permute = LAC_PERMUTE_COLUMNS};
            lac_matrix dense = {.data = narrow, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
            lac_pattern pattern;
            lac_mask *plain = NULL;
            assert_ok(lac_pattern_parse(texts[p], &pattern));
            assert_ok(lac_prune(&dense, &pattern, &options, &plain));
            for (size_t e = 0; e < 2 * sizeof exponents / sizeof *exponents; e++) {
                for (int i = 0; i < N * K; i++) {
                    scaled[i] = ldexpf(narrow[i], exponents[e / 2]);
                    wide[i] = ldexp(narrow[i], 5 * exponents[e / 2]);
                }
                lac_mask *mask = NULL;
                dense.data = e % 2 ? (void *)wide : (void *)scaled;
                dense.dtype = e % 2 ? LAC_DTYPE_F64 : LAC_DTYPE_F32;
                assert_ok(lac_prune(&dense, &pattern, &options, &mask));
                for (int i = 0; i < N * K; i++)
                    if (lac_mask_get(mask, i / K, i % K) != lac_mask_get(plain, i / K, i % K))
                        fail_msg("%s of %s weights by 2^%d is another", texts[p], lac_dtype_name(dense.dtype),
                                 exponents[e / 2] * (e % 2 ? 5 : 1));
                lac_mask_free(mask);
            }
            lac_mask_free(plain);
        }
}

static void test_moments(void **state)
{
    float moments[4] = {1, NAN, 0.5f, 1}, w[4] = {1e-3f, 1, 1, 1}, x[4] = {1e20f, 2e20f, 3e20f, 1e25f};
    lac_matrix m = {.data = moments, .dtype = LAC_DTYPE_F32, .rows = 2, .cols = 2};
    lac_matrix samples = {.data = x, .dtype = LAC_DTYPE_F32, .rows = 1, .cols = 4};
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = 1, .cols = 4};
    lac_calibration *calibration = NULL;
    lac_pattern pattern;
    lac_mask *mask = NULL;
    (void)state;
    assert_ok(lac_calibration_create(2, &calibration));
    assert_fails(lac_calibration_add_moments(calibration, &m, 1), LAC_STATUS_INVALID_ARGUMENT, "(1, 0) and (0, 1)");
    moments[1] = 0.5f;
    assert_ok(lac_calibration_add_moments(calibration, &m, 1));
    assert_fails(lac_calibration_add_moments(calibration, &m, INT64_MAX), LAC_STATUS_INVALID_ARGUMENT, "counted");
    lac_calibration_free(calibration);
    assert_ok(lac_calibration_create(4, &calibration));
    assert_ok(lac_calibration_add(calibration, &samples, 1));
    lac_prune_options options = {.size = sizeof options, .method = LAC_METHOD_WANDA, .calibration = calibration};
    assert_ok(lac_pattern_parse("1:4", &pattern));
    assert_fails(lac_prune(&dense, &pattern, &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "input 0");
    lac_calibration_free(calibration);
}

/* The unit of columns 66 to 68 costs next to nothing, though its first column goes with one of the unit before. */
static void test_units_across_64(void **state)
{
    enum { K = 72, T = 400, WIDE = 3 };
    static float g[T * K], w[K], out[K];
    test_random random = test_random_make("units across 64", 0);
    (void)state;
    for (int i = 0; i < T * K; i++) g[i] = (float)test_random_gaussian(&random);
    for (int t = 0; t < T; t++) g[t * K + 66] = g[t * K + 65] + 0.02f * g[t * K + 66];
    for (int c = 0; c < K; c++) w[c] = c / WIDE == 22 ? 0.01f : 1;
    w[65] = 10;
    lac_gradients gradients = {.size = sizeof gradients, .data = g, .dtype = LAC_DTYPE_F32, .samples = T};
    lac_prune_options options = {.size = sizeof options, .method = LAC_METHOD_FISHER, .gradients = &gradients};
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = 1, .cols = K};
    lac_matrix corrected = {.data = out, .dtype = LAC_DTYPE_F32, .rows = 1, .cols = K};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    assert_ok(lac_pattern_parse("bw1x3:95%", &pattern)); /* 23 of 24 */
    assert_ok(lac_prune_and_correct(&dense, &pattern, &options, &corrected, &mask));
    for (int u = 0; u < K / WIDE; u++) assert_int_equal(lac_mask_get(mask, 0, u * WIDE), u != 22);
    lac_mask_free(mask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transposable_of_any_scale), cmocka_unit_test(test_corrected_weights_fit),
        cmocka_unit_test(test_columns_of_any_scale),      cmocka_unit_test(test_moments),
        cmocka_unit_test(test_units_across_64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
