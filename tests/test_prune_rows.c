/* test_prune_rows.c - the quick ways for row-major matrices of 16 bits (keys of 16 bits, groups of four, compressing by bytes of the mask) against the general ones, which a
 * column-major copy takes: the same masks and the same bytes, ties, infinities and NaNs included; and the energies of both. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "format/compress_row.h"
#include "format/mask.h"
#include "format/weight.h"
#include "support/support.h"

enum { N = 37, MOST = 200 };

/* The same numbers row by row and column by column. */
typedef struct twins {
    lac_matrix rows, cols;
} twins;

static twins make_twins(test_random *random, lac_dtype dtype, int64_t k, int kind)
{
    twins t;
    size_t size = lac_dtype_size(dtype);
    int64_t ld = k + test_random_between(random, 0, 3);
    t.rows = (lac_matrix){.data = calloc((size_t)(N * ld + 1), size), .dtype = dtype, .rows = N, .cols = k, .ld = ld};
    t.cols = (lac_matrix){.data = calloc((size_t)(N * k + 1), size), .dtype = dtype, .rows = N, .cols = k};
    t.cols.layout = LAC_LAYOUT_COLUMN_MAJOR;
    assert_true(t.rows.data && t.cols.data);
    for (int64_t r = 0; r < N; r++)
        for (int64_t c = 0; c < k; c++) {
            double value = test_random_gaussian(random);
            if (kind == 1) value = (double)test_random_between(random, -2, 2); /* many equals */
            if (kind == 2 && test_random_chance(random, 30)) value = test_random_chance(random, 50) ? INFINITY : -NAN;
            if (kind == 3) value = ldexp(value, (int)test_random_between(random, -120, 120)); /* F16: zeros and infinities */
            lac_store_f64(t.rows.data, dtype, r * ld + c, value);
            lac_store_f64(t.cols.data, dtype, c * N + r, value);
        }
    return t;
}

static void free_twins(twins *t)
{
    free(t->rows.data);
    free(t->cols.data);
}

static void expect_same_parts(const lac_weight *a, const lac_weight *b)
{
    for (int part = 0; part < LAC_PART_COUNT; part++) {
        lac_span x = {0}, y = {0};
        assert_ok(lac_weight_get_part(a, (lac_part)part, &x));
        assert_ok(lac_weight_get_part(b, (lac_part)part, &y));
        assert_int_equal(x.bytes, y.bytes);
        if (x.bytes > 0) assert_memory_equal(x.data, y.data, (size_t)x.bytes);
    }
}

static const char *const patterns[] = {"2:4", "1:4", "3:4", "1:2", "4:8", "2:8", "7:8", "8:16", "3:7", "8:32", "50%", "10%"};
enum { PATTERNS = sizeof patterns / sizeof *patterns };
static const lac_dtype dtypes[] = {LAC_DTYPE_F16, LAC_DTYPE_BF16, LAC_DTYPE_F32};

static int quick; /* how often the quick way was there to be compared */

static void compare(const twins *t, const char *text)
{
    lac_pattern pattern;
    lac_mask *a, *b;
    lac_geometry geometry;
    lac_row_table table;
    assert_ok(lac_pattern_parse(text, &pattern));
    assert_ok(lac_prune(&t->rows, &pattern, NULL, &a));
    assert_ok(lac_prune(&t->cols, &pattern, NULL, &b));
    assert_memory_equal(a->bits, b->bits, (size_t)(a->n * a->words) * 8);
    assert_ok(lac_geometry_make(&pattern, N, t->rows.cols, &geometry));
    for (int e = 0; e < 3; e++) {
        lac_compress_options options = {.size = sizeof options, .threads = 1 + e};
        options.encoding = e == 1 ? LAC_INDEX_ENCODING_BITMASK : e == 2 ? LAC_INDEX_ENCODING_PACKED : LAC_INDEX_ENCODING_AUTO;
        if (e > 0 && geometry.is_free) continue;
        lac_weight *x, *y;
        assert_ok(lac_weight_compress(&t->rows, a, &options, &x));
        assert_ok(lac_weight_compress(&t->cols, b, &options, &y));
        expect_same_parts(x, y);
        quick += e > 0 && lac_row_table_make(&geometry, options.encoding, &table);
        lac_weight_free(x);
        lac_weight_free(y);
    }
    lac_mask_free(a);
    lac_mask_free(b);
}

static void test_same_as_the_general_way(void **state)
{
    (void)state;
    for (int64_t i = 0; i < 400; i += test_scale()) {
        test_random random = test_random_make("rows", i);
        int64_t k = test_random_chance(&random, 60) ? 8 * test_random_between(&random, 1, MOST / 8)
                                                    : test_random_between(&random, 1, MOST);
        twins t = make_twins(&random, dtypes[i % 3], k, (int)(i / 3 % 4));
        compare(&t, patterns[i % PATTERNS]);
        compare(&t, patterns[0]);
        free_twins(&t);
    }
    assert_true(quick > 0);
}

/* A mask that breaks its pattern anywhere is refused with the row, as by the general way. */
static void test_a_wrong_mask_is_refused(void **state)
{
    (void)state;
    lac_pattern pattern;
    test_random random = test_random_make("wrong mask", 0);
    assert_ok(lac_pattern_parse("2:4", &pattern));
    for (int64_t c = 0; c < 64; c++) {
        lac_mask *mask;
        lac_weight *weight = NULL;
        twins t = make_twins(&random, LAC_DTYPE_F16, 64, 0);
        assert_ok(lac_prune(&t.rows, &pattern, NULL, &mask));
        lac_mask_row_writable(mask, 5)[0] ^= UINT64_C(1) << c;
        assert_fails(lac_weight_compress(&t.rows, mask, NULL, &weight), LAC_STATUS_PATTERN_VIOLATED, "row group 5");
        assert_null(weight);
        lac_mask_free(mask);
        free_twins(&t);
    }
}

/* Sums of squares against plain doubles: to 1e-6 where eight squares are added as floats. */
static void test_energy(void **state)
{
    (void)state;
    lac_pattern pattern;
    assert_ok(lac_pattern_parse("2:4", &pattern));
    for (int64_t i = 0; i < 48; i++) {
        test_random random = test_random_make("energy of rows", i);
        twins t = make_twins(&random, dtypes[i % 3], test_random_between(&random, 1, MOST), (int)(i / 3 % 4));
        lac_mask *mask;
        double kept, total, kept_there = 0, total_there = 0;
        assert_ok(lac_prune(&t.rows, &pattern, NULL, &mask));
        for (int64_t r = 0; r < N; r++)
            for (int64_t c = 0; c < t.rows.cols; c++) {
                double value = lac_load_f64(t.rows.data, t.rows.dtype, r * t.rows.ld + c);
                double square = isfinite(value) ? value * value : 0;
                total_there += square;
                kept_there += lac_mask_get(mask, r, c) ? square : 0;
            }
        for (int layout = 0; layout < 2; layout++) {
            assert_ok(lac_mask_energy(mask, layout ? &t.cols : &t.rows, &kept, &total));
            assert_true(fabs(kept - kept_there) <= 1e-6 * kept_there);
            assert_true(fabs(total - total_there) <= 1e-6 * total_there);
        }
        lac_mask_free(mask);
        free_twins(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_the_general_way),
        cmocka_unit_test(test_a_wrong_mask_is_refused),
        cmocka_unit_test(test_energy),
    };
    return cmocka_run_group_tests_name("rows of 16 bits", tests, NULL, NULL);
}
