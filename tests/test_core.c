/* test_core.c - the ground that everything stands on: conversions of dtypes against exact arithmetic,
 * messages, growing structs, memory, views of matrices. Looks inside the library. */
#include "support/support.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "core/dtype.h"
#include "core/matrix.h"
#include "core/memory.h"
#include "core/status.h"

/* ---- dtypes */

typedef struct half_format {
    lac_dtype dtype;
    float (*widen)(uint16_t bits);
    uint16_t (*from_float)(float value);
    uint16_t (*from_double)(double value);
    uint16_t infinity;
} half_format;

static float widen_bf16(uint16_t bits) { return lac_bf16_to_f32(bits); }
static uint16_t narrow_bf16(float value) { return lac_f32_to_bf16(value); }

static const half_format halves[] = {{LAC_DTYPE_F16, lac_f16_to_f32, lac_f32_to_f16, lac_f64_to_f16, 0x7c00},
                                     {LAC_DTYPE_BF16, widen_bf16, narrow_bf16, lac_f64_to_bf16, 0x7f80}};

static void every_half_goes_there_and_back(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        const half_format *format = &halves[f];
        for (uint32_t bits = 0; bits < 65536; bits++) {
            uint16_t half = (uint16_t)bits, sign = half & 0x8000, magnitude = half & 0x7fff;
            float wide = format->widen(half);
            assert_true(test_same_number(wide, test_decode(format->dtype, bits)));
            if (magnitude > format->infinity) { /* a NaN stays a NaN of its sign */
                uint16_t back = format->from_float(wide), back_too = format->from_double(wide);
                assert_true((back & 0x8000) == sign && (back & 0x7fff) > format->infinity);
                assert_true((back_too & 0x8000) == sign && (back_too & 0x7fff) > format->infinity);
            } else {
                assert_int_equal(format->from_float(wide), half);
                assert_int_equal(format->from_double(wide), half);
            }
        }
    }
}

/* Between neighbours the halfway point goes to the even one, and the next number on either side of it to the nearer.
 * Seen from double, "next to halfway" is where rounding through float would go wrong. */
static void halfway_goes_to_even(void **state)
{
    (void)state;
    for (int f = 0; f < 2; f++) {
        const half_format *format = &halves[f];
        for (uint16_t low = 0; low < format->infinity; low++) {
            uint16_t high = (uint16_t)(low + 1), even = low & 1 ? high : low;
            double a = test_decode(format->dtype, low);
            double step = low ? a - test_decode(format->dtype, (uint16_t)(low - 1)) : test_decode(format->dtype, 1);
            double b = high == format->infinity ? a + step : test_decode(format->dtype, high);
            double middle = a + (b - a) / 2;
            for (int negative = 0; negative < 2; negative++) {
                double sign = negative ? -1 : 1;
                uint16_t bit = negative ? 0x8000 : 0;
                assert_int_equal(format->from_double(sign * middle), even | bit);
                assert_int_equal(format->from_double(sign * nextafter(middle, 0)), low | bit);
                assert_int_equal(format->from_double(sign * nextafter(middle, INFINITY)), high | bit);
                float single = (float)(sign * middle);
                if (single != sign * middle) continue; /* halfway below the smallest float exists in double alone */
                assert_int_equal(format->from_float(single), even | bit);
                assert_int_equal(format->from_float(nextafterf(single, 0)), low | bit);
                assert_int_equal(format->from_float(nextafterf(single, negative ? -INFINITY : INFINITY)), high | bit);
            }
        }
        assert_int_equal(format->from_double(DBL_MAX), format->infinity);
        assert_int_equal(format->from_float(FLT_MAX), format->infinity);
        assert_int_equal(format->from_double(-INFINITY), format->infinity | 0x8000);
        assert_int_equal(format->from_double(-DBL_TRUE_MIN), 0x8000);
        assert_int_equal(format->from_double(-0.0), 0x8000);
        assert_int_equal(format->from_float(-0.0f), 0x8000);
    }
}

static void random_numbers_round_like_exact_arithmetic(test_random *random, int64_t index, void *user)
{
    (void)index, (void)user;
    for (int i = 0; i < 1000; i++) {
        uint64_t bits = test_random_bits(random);
        double wide;
        memcpy(&wide, &bits, sizeof wide);
        if (test_random_chance(random, 70))
            wide = ldexp(test_random_gaussian(random), (int)test_random_between(random, -30, 20));
        uint32_t low = (uint32_t)bits;
        float single;
        memcpy(&single, &low, sizeof single);
        test_describe("%a and %a", wide, (double)single);
        for (int f = 0; f < 2; f++) {
            uint16_t from_double = halves[f].from_double(wide), from_float = halves[f].from_float(single);
            if (isnan(wide))
                assert_true(isnan(test_decode(halves[f].dtype, from_double)));
            else
                assert_int_equal(from_double, test_encode(halves[f].dtype, wide));
            if (isnan(single))
                assert_true(isnan(test_decode(halves[f].dtype, from_float)));
            else
                assert_int_equal(from_float, test_encode(halves[f].dtype, single));
        }
    }
}

static void rounding_is_exact(void **state)
{
    (void)state;
    test_run_cases("rounding", 1000, random_numbers_round_like_exact_arithmetic, NULL);
}

static void elements_load_and_store(void **state)
{
    (void)state;
    static const lac_dtype dtypes[] = {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16, LAC_DTYPE_F64};
    test_random random = test_random_make("elements", 0);
    for (size_t d = 0; d < 4; d++) {
        test_matrix m = test_matrix_make(5, 7, dtypes[d], LAC_LAYOUT_ROW_MAJOR, 3, 1);
        test_matrix_fill(&random, &m, TEST_FILL_HEAVY_TAIL);
        for (int64_t row = 0; row < 5; row++) {
            float run[7];
            lac_load_run_f32(m.view.data, dtypes[d], row * m.view.ld, 1, 7, run);
            for (int64_t col = 0; col < 7; col++) {
                double want = test_matrix_get(&m, row, col);
                assert_true(test_same_number(lac_load_f64(m.view.data, dtypes[d], row * m.view.ld + col), want));
                assert_true(test_same_number(run[col], (float)want));
            }
        }
        float down[5];
        lac_load_run_f32(m.view.data, dtypes[d], 2, m.view.ld, 5, down);
        for (int64_t row = 0; row < 5; row++) assert_true(down[row] == (float)test_matrix_get(&m, row, 2));
        lac_store_run_f32(m.view.data, dtypes[d], 3, m.view.ld, 5, down);
        for (int64_t row = 0; row < 5; row++)
            assert_true(test_matrix_get(&m, row, 3) == down[row]); /* 16 bits came from there */
        for (int64_t col = 0; col < 7; col++) {
            double value = test_random_gaussian(&random) * 1e3;
            lac_store_f64(m.view.data, dtypes[d], col, value);
            assert_true(test_same_number(test_matrix_get(&m, 0, col), test_rounded(dtypes[d], value)));
        }
        assert_true(test_matrix_intact(&m));
        test_matrix_free(&m);
    }
}

static void every_half_widens_alike(void **state)
{
    (void)state;
    enum { ALL = 65536 };
    uint16_t *bits = lac_allocate(ALL * sizeof *bits);
    float *wide = lac_allocate(ALL * sizeof *wide);
    assert_non_null(bits);
    assert_non_null(wide);
    for (int i = 0; i < ALL; i++) bits[i] = (uint16_t)i;
    lac_load_run_f32(bits, LAC_DTYPE_F16, 0, 1, ALL, wide);
    for (int i = 0; i < ALL; i++) {
        float want = lac_f16_to_f32((uint16_t)i);
        assert_memory_equal(wide + i, &want, sizeof want);
    }
    lac_release(bits);
    lac_release(wide);
}

static void limits_of_dtypes(void **state)
{
    (void)state;
    assert_true(lac_dtype_max(LAC_DTYPE_F16) == 65504 && lac_dtype_max(LAC_DTYPE_F32) == FLT_MAX);
    assert_true(lac_dtype_max(LAC_DTYPE_BF16) == test_decode(LAC_DTYPE_BF16, 0x7f7f) &&
                lac_dtype_max(LAC_DTYPE_F64) == DBL_MAX);
    assert_true(lac_dtype_roundoff(LAC_DTYPE_F16) == 0x1p-11 && lac_dtype_roundoff(LAC_DTYPE_BF16) == 0x1p-8);
    assert_true(lac_dtype_roundoff(LAC_DTYPE_F32) == 0x1p-24 && lac_dtype_roundoff(LAC_DTYPE_F64) == 0x1p-53);
    assert_true(lac_dtype_tiny(LAC_DTYPE_F16) == test_decode(LAC_DTYPE_F16, 1));
    assert_true(lac_dtype_tiny(LAC_DTYPE_BF16) == test_decode(LAC_DTYPE_BF16, 1));
    assert_true(lac_dtype_tiny(LAC_DTYPE_F32) == FLT_TRUE_MIN && lac_dtype_tiny(LAC_DTYPE_F64) == DBL_TRUE_MIN);
    for (int d = -1; d < 10; d++) {
        assert_int_equal(lac_dtype_is_storage((lac_dtype)d), d >= LAC_DTYPE_F32 && d <= LAC_DTYPE_BF16);
        assert_int_equal(lac_dtype_is_input((lac_dtype)d), d >= LAC_DTYPE_F32 && d <= LAC_DTYPE_F64);
    }
}

static void dtype_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        lac_dtype dtype;
    } good[] = {{"f32", LAC_DTYPE_F32},   {"fp32", LAC_DTYPE_F32}, {"float32", LAC_DTYPE_F32},   {"F32", LAC_DTYPE_F32},
                {"f16", LAC_DTYPE_F16},   {"FP16", LAC_DTYPE_F16}, {"float16", LAC_DTYPE_F16},   {"bf16", LAC_DTYPE_BF16},
                {"BF16", LAC_DTYPE_BF16}, {"f64", LAC_DTYPE_F64},  {"bfloat16", LAC_DTYPE_BF16}, {"float64", LAC_DTYPE_F64}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        lac_dtype dtype = LAC_DTYPE_NONE;
        assert_ok(lac_dtype_parse(good[i].text, &dtype));
        assert_int_equal(dtype, good[i].dtype);
        assert_ok(lac_dtype_parse(lac_dtype_name(dtype), &dtype));
        assert_int_equal(dtype, good[i].dtype);
    }
    static const char *bad[] = {"", "f", "f320", "32", "none", " f32", "f32 ", "a very long text that is no dtype at all"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        lac_dtype dtype = LAC_DTYPE_BF16;
        assert_fails(lac_dtype_parse(bad[i], &dtype), LAC_STATUS_INVALID_ARGUMENT, bad[i]);
        assert_int_equal(dtype, LAC_DTYPE_BF16);
    }
    assert_int_equal(lac_dtype_size(LAC_DTYPE_F64), 8);
    assert_int_equal(lac_dtype_size(LAC_DTYPE_F32), 4);
    assert_int_equal(lac_dtype_size(LAC_DTYPE_F16), 2);
    assert_int_equal(lac_dtype_size(LAC_DTYPE_BF16), 2);
    assert_int_equal(lac_dtype_size((lac_dtype)99), 0);
    assert_int_equal(lac_dtype_size((lac_dtype)-1), 0);
    assert_string_equal(lac_dtype_name(LAC_DTYPE_NONE), "none");
}

/* ---- messages, structs, memory */

static void *message_of_another_thread(void *argument)
{
    (void)argument;
    if (lac_last_error()[0]) return "not empty";
    lac_fail(LAC_STATUS_IO, "theirs");
    return NULL;
}

static void messages(void **state)
{
    (void)state;
    assert_status(lac_fail(LAC_STATUS_IO, "number %d", 7), LAC_STATUS_IO);
    assert_string_equal(lac_last_error(), "number 7");
    assert_status(lac_fail_in(LAC_STATUS_IO, "in %s", "it"), LAC_STATUS_IO);
    assert_string_equal(lac_last_error(), "in it: number 7");
    pthread_t thread;
    void *complaint = NULL;
    assert_int_equal(pthread_create(&thread, NULL, message_of_another_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, &complaint), 0);
    assert_null(complaint);
    assert_string_equal(lac_last_error(), "in it: number 7");
    assert_status(lac_fail_memory("mask", UINT64_C(1) << 40), LAC_STATUS_OUT_OF_MEMORY);
    assert_non_null(strstr(lac_last_error(), "mask"));
    assert_non_null(strstr(lac_last_error(), "1099511627776"));

    char large[5000];
    memset(large, 'y', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    lac_fail(LAC_STATUS_IO, "%s", large);
    assert_in_range(strlen(lac_last_error()), 100, sizeof large - 1);
    for (int i = 0; i < 5; i++) lac_fail_in(LAC_STATUS_IO, "%s", large);
    assert_in_range(strlen(lac_last_error()), 100, sizeof large - 1);
}

typedef struct sample {
    size_t size;
    int32_t a;
    int32_t b;
} sample;

typedef struct longer_sample {
    sample known;
    int64_t unknown;
} longer_sample;

static void structs_that_grow(void **state)
{
    (void)state;
    sample out = {0};
    longer_sample from = {{.size = sizeof from, .a = 1, .b = 2}, 0};
    assert_ok(lac_read_struct("thing", &from, &out, sizeof out));
    assert_true(out.a == 1 && out.b == 2);
    from.unknown = 1;
    assert_fails(lac_read_struct("thing", &from, &out, sizeof out), LAC_STATUS_INVALID_ARGUMENT, "thing->size is 24");
    from.known.size = offsetof(sample, b);
    assert_ok(lac_read_struct("thing", &from, &out, sizeof out));
    assert_true(out.a == 1 && out.b == 0);
    from.known.size = 0;
    assert_fails(lac_read_struct("thing", &from, &out, sizeof out), LAC_STATUS_INVALID_ARGUMENT, "thing->size is 0");
    assert_ok(lac_read_struct("thing", NULL, &out, sizeof out));
    assert_true(out.size == 0 && out.a == 0);

    sample source = {.size = sizeof source, .a = 5, .b = 6};
    longer_sample to = {{.size = sizeof to, .a = 0, .b = 0}, -1};
    assert_ok(lac_write_struct("thing", &to, &source, sizeof source));
    assert_true(to.known.size == sizeof to && to.known.a == 5 && to.known.b == 6 && to.unknown == 0);
    to = (longer_sample){{.size = offsetof(sample, b), .a = 0, .b = -1}, -1};
    assert_ok(lac_write_struct("thing", &to, &source, sizeof source));
    assert_true(to.known.size == offsetof(sample, b) && to.known.a == 5 && to.known.b == -1 && to.unknown == -1);
    to.known.size = 0;
    assert_fails(lac_write_struct("thing", &to, &source, sizeof source), LAC_STATUS_INVALID_ARGUMENT, "thing->size is 0");
    assert_fails(lac_write_struct("thing", NULL, &source, sizeof source), LAC_STATUS_INVALID_ARGUMENT, "thing is NULL");
}

static void memory(void **state)
{
    (void)state;
    int64_t live = test_allocator_live();
    for (uint64_t bytes = 0; bytes < 300; bytes += 7) {
        unsigned char *block = lac_allocate(bytes), *zeroed = lac_allocate_zeroed(bytes);
        assert_true(block && zeroed && (uintptr_t)block % 64 == 0 && (uintptr_t)zeroed % 64 == 0);
        for (uint64_t i = 0; i < bytes; i++) {
            assert_int_equal(zeroed[i], 0);
            block[i] = (unsigned char)i;
        }
        block = lac_grow(block, bytes, bytes * 2);
        assert_non_null(block);
        for (uint64_t i = 0; i < bytes; i++) assert_int_equal(block[i], (unsigned char)i);
        test_allocator_fail_at(1);
        assert_null(lac_grow(block, bytes * 2, bytes * 4));
        test_allocator_fail_at(0);
        for (uint64_t i = 0; i < bytes; i++) assert_int_equal(block[i], (unsigned char)i);
        lac_release(block);
        lac_release(zeroed);
    }
    assert_null(lac_allocate(UINT64_MAX));
    assert_null(lac_allocate(INT64_MAX));
    assert_null(lac_allocate_zeroed(UINT64_MAX - 63));
    lac_release(NULL);
    char *copy = lac_copy_text("text");
    assert_string_equal(copy, "text");
    lac_release(copy);
    assert_int_equal(test_allocator_live(), live);
}

static void matrices(void **state)
{
    (void)state;
    double storage[16];
    lac_matrix out, good = {.data = storage, .dtype = LAC_DTYPE_F64, .rows = 3, .cols = 4};
    assert_ok(lac_matrix_check("w", &good, 1, &out));
    assert_int_equal(out.ld, 4);
    assert_fails(lac_matrix_check("w", &good, 0, &out), LAC_STATUS_INVALID_ARGUMENT, "w->dtype is 4");
    assert_fails(lac_matrix_check("w", NULL, 1, &out), LAC_STATUS_INVALID_ARGUMENT, "w is NULL");
    static const struct {
        const char *message;
        lac_matrix matrix;
    } bad[] = {
        {"w->rows is -1", {.dtype = LAC_DTYPE_F32, .rows = -1, .cols = 4}},
        {"w->cols is 2147483648", {.dtype = LAC_DTYPE_F32, .rows = 0, .cols = INT64_C(1) << 31}},
        {"w->ld is 3", {.dtype = LAC_DTYPE_F32, .rows = 0, .cols = 4, .ld = 3}},
        {"w->ld is -4", {.dtype = LAC_DTYPE_F32, .rows = 0, .cols = 4, .ld = -4}},
        {"w->layout is 2", {.dtype = LAC_DTYPE_F32, .layout = (lac_layout)2}},
        {"w->dtype is 0", {.rows = 0}},
        {"w->dtype is 5", {.dtype = LAC_DTYPE_I8}},
        {"w->data is NULL", {.dtype = LAC_DTYPE_F32, .rows = 1, .cols = 1}},
        {"address space", {.dtype = LAC_DTYPE_F64, .rows = 3, .cols = 1, .ld = INT64_MAX / 2}},
        {"not aligned", {.data = (void *)3, .dtype = LAC_DTYPE_F32, .rows = 1, .cols = 1}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_fails(lac_matrix_check("w", &bad[i].matrix, 1, &out), LAC_STATUS_INVALID_ARGUMENT, bad[i].message);
    }
}

int main(void)
{
    test_allocator_install();
    test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_goes_there_and_back),
        cmocka_unit_test(halfway_goes_to_even),
        test_of_cases(rounding_is_exact),
        cmocka_unit_test(elements_load_and_store),
        cmocka_unit_test(every_half_widens_alike),
        cmocka_unit_test(limits_of_dtypes),
        cmocka_unit_test(dtype_texts),
        cmocka_unit_test(messages),
        cmocka_unit_test(structs_that_grow),
        cmocka_unit_test(memory),
        cmocka_unit_test(matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
