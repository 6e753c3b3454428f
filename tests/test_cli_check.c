/* test_cli_check.c - can the checks of `lacuna verify` and `multiply --check` fail? They are given wrong answers here, since
 * the library gives none. And the command line's own rounding, which verify relies on, agrees with the library's. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../cli/cli.h"

enum { M = 3, N = 8, K = 16 };

typedef struct setting {
    lac_device *device;
    lac_mask *mask;
    lac_weight *weight;
    lac_plan *plan;
    lac_matrix w, x, y; /* [N][K], [M][K], [M][N] */
    lac_execute_args args;
    void *workspace;
} setting;

static void make_setting(setting *s)
{
    lac_pattern pattern;
    memset(s, 0, sizeof *s);
    assert_int_equal(cli_matrix_create(&s->w, LAC_DTYPE_F32, N, K), 0);
    assert_int_equal(cli_matrix_create(&s->x, LAC_DTYPE_F32, M, K), 0);
    assert_int_equal(cli_matrix_create(&s->y, LAC_DTYPE_F32, M, N), 0);
    cli_random random = {1};
    for (int i = 0; i < N * K; i++) cli_matrix_put(&s->w, i, cli_random_gaussian(&random));
    for (int i = 0; i < M * K; i++) cli_matrix_put(&s->x, i, cli_random_gaussian(&random));
    assert_int_equal(lac_device_open("cpu", &s->device), LAC_STATUS_OK);
    assert_int_equal(lac_pattern_parse("2:4", &pattern), LAC_STATUS_OK);
    assert_int_equal(lac_prune(&s->w, &pattern, NULL, &s->mask), LAC_STATUS_OK);
    assert_int_equal(lac_weight_compress(&s->w, s->mask, NULL, &s->weight), LAC_STATUS_OK);
    assert_int_equal(lac_plan_create(s->device, s->weight, M, NULL, &s->plan), LAC_STATUS_OK);
    lac_plan_info info = {.size = sizeof info};
    assert_int_equal(lac_plan_get_info(s->plan, &info), LAC_STATUS_OK);
    size_t bytes = (info.workspace_bytes + 64) / 64 * 64;
    s->workspace = aligned_alloc(64, bytes);
    assert_non_null(s->workspace);
    s->args = (lac_execute_args){.size = sizeof s->args, .x = s->x.data, .y = s->y.data, .workspace = s->workspace};
    s->args.workspace_bytes = bytes;
    assert_int_equal(lac_plan_execute(s->plan, &s->args), LAC_STATUS_OK);
}

static void free_setting(setting *s)
{
    cli_matrix_free(&s->w);
    cli_matrix_free(&s->x);
    cli_matrix_free(&s->y);
    free(s->workspace);
    lac_plan_free(s->plan);
    lac_weight_free(s->weight);
    lac_mask_free(s->mask);
    lac_device_close(s->device);
}

/* Y may overflow where the oracle's double does not: that is no error, and no share of an infinite bound. */
static void an_overflow_is_no_error(void **state)
{
    (void)state;
    setting s;
    make_setting(&s);
    float alpha = 3e38f;
    cli_product product = {0};
    s.args.alpha = &alpha;
    assert_int_equal(lac_plan_execute(s.plan, &s.args), LAC_STATUS_OK);
    int overflows = 0;
    for (int i = 0; i < M * N; i++) overflows += isinf(cli_matrix_get(&s.y, i)) != 0;
    assert_true(overflows > 0);
    assert_int_equal(cli_product_compare(s.plan, &s.args, &s.y, &product), LAC_STATUS_OK);
    assert_true(product.ok);
    assert_true(isfinite(product.max_error) && product.share <= 1);
    free_setting(&s);
}

static void a_wrong_product_is_found(void **state)
{
    (void)state;
    setting s;
    make_setting(&s);
    cli_product product = {0};
    assert_int_equal(cli_product_compare(s.plan, &s.args, &s.y, &product), LAC_STATUS_OK);
    assert_true(product.ok);
    assert_true(product.share <= 1);
    double wrong[] = {1e-3, NAN, INFINITY};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        double right = cli_matrix_get(&s.y, 1 * N + 5);
        cli_matrix_put(&s.y, 1 * N + 5, right + wrong[i]);
        product = (cli_product){0};
        assert_int_equal(cli_product_compare(s.plan, &s.args, &s.y, &product), LAC_STATUS_OK);
        assert_false(product.ok);
        assert_int_equal(product.row, 1);
        assert_int_equal(product.col, 5);
        assert_false(product.share <= 1);
        cli_matrix_put(&s.y, 1 * N + 5, right);
    }
    free_setting(&s);
}

/* The oracle goes by the plan's weight: another weight's product must not pass for it. */
static void the_product_of_another_weight_is_found(void **state)
{
    (void)state;
    setting s, other;
    make_setting(&s);
    make_setting(&other);
    cli_matrix_put(&other.x, 0, cli_matrix_get(&other.x, 0) + 0.5);
    assert_int_equal(lac_plan_execute(other.plan, &other.args), LAC_STATUS_OK);
    cli_product product = {0};
    assert_int_equal(cli_product_compare(s.plan, &s.args, &other.y, &product), LAC_STATUS_OK);
    assert_false(product.ok);
    assert_int_equal(product.row, 0);
    free_setting(&s);
    free_setting(&other);
}

static void a_wrong_value_is_found(void **state)
{
    (void)state;
    lac_matrix now, before;
    assert_int_equal(cli_matrix_create(&now, LAC_DTYPE_F16, 2, 3), 0);
    assert_int_equal(cli_matrix_create(&before, LAC_DTYPE_F64, 2, 3), 0);
    double original[] = {1.0, 3.0, 1e6, 1.0 / 3, -0.0, 1e-12}, stored[] = {1.0, 0.0, 65504.0, 1.0 / 3, 0.0, 0.0};
    for (int i = 0; i < 6; i++) {
        cli_matrix_put(&before, i, original[i]);
        cli_matrix_put(&now, i, stored[i]);
    }
    cli_verdict verdict = {.ok = 1};
    cli_matrix_compare(&now, &before, &verdict);
    assert_true(verdict.ok);
    assert_int_equal(verdict.dropped, 1); /* the 3; 1e-12 is zero in f16 and so was not dropped by anybody */
    cli_matrix_put(&now, 3, 0.25);
    cli_matrix_compare(&now, &before, &verdict);
    assert_false(verdict.ok);
    assert_non_null(strstr(verdict.problem, "(1, 0)"));
    cli_matrix_free(&now);
    cli_matrix_free(&before);
}

static void every_half_survives(void **state)
{
    (void)state;
    lac_dtype dtypes[] = {LAC_DTYPE_F16, LAC_DTYPE_BF16};
    for (size_t d = 0; d < 2; d++) {
        for (uint32_t bits = 0; bits < 65536; bits++) {
            uint16_t half = (uint16_t)bits, back = 0;
            double value = cli_number_get(&half, dtypes[d], 0);
            cli_number_put(&back, dtypes[d], 0, value);
            if (isnan(value))
                assert_true(isnan(cli_number_get(&back, dtypes[d], 0)));
            else
                assert_int_equal(back, half);
        }
    }
}

/* Values round numbers of the dtype, and halfway between two: the library must round as the definition says. */
static void the_library_rounds_alike(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    lac_dtype dtypes[] = {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16};
    int exponents[] = {150, 26, 150};
    lac_pattern pattern;
    assert_int_equal(lac_pattern_parse("1:1", &pattern), LAC_STATUS_OK);
    for (size_t d = 0; d < 3; d++) {
        lac_matrix from, to;
        lac_mask *mask = NULL;
        lac_weight *weight = NULL;
        assert_int_equal(cli_matrix_create(&from, LAC_DTYPE_F64, 1, COUNT), 0);
        assert_int_equal(cli_matrix_create(&to, LAC_DTYPE_F64, 1, COUNT), 0);
        cli_random random = {7 + d};
        for (int i = 0; i < COUNT; i++) {
            int exponent = (int)(2 * exponents[d] * cli_random_uniform(&random)) - exponents[d];
            double value = cli_number_round(ldexp(2 * cli_random_uniform(&random) - 1, exponent), dtypes[d]);
            /* Half of the last place on top of it, exactly or nearly: that is where rounding is hard. */
            double step = ldexp(1, ilogb(value == 0 || isinf(value) ? 1 : value) - (d == 0 ? 24 : d == 1 ? 11 : 8));
            double nudge[] = {0, step, step * (1 + 0x1p-20), step * (1 - 0x1p-20), -step};
            value += nudge[i % 5];
            if (fabs(value) > cli_number_largest(dtypes[d])) value = 1;
            cli_matrix_put(&from, i, value);
        }
        lac_compress_options options = {.size = sizeof options, .dtype = dtypes[d]};
        assert_int_equal(lac_prune(&from, &pattern, NULL, &mask), LAC_STATUS_OK);
        assert_int_equal(lac_weight_compress(&from, mask, &options, &weight), LAC_STATUS_OK);
        assert_int_equal(lac_weight_decompress(weight, &to), LAC_STATUS_OK);
        for (int i = 0; i < COUNT; i++) {
            double want = cli_number_round(cli_matrix_get(&from, i), dtypes[d]), got = cli_matrix_get(&to, i);
            if (got != want)
                print_error("%s of %a is %a, not %a\n", lac_dtype_name(dtypes[d]), cli_matrix_get(&from, i), got, want);
            assert_true(got == want);
        }
        cli_matrix_free(&from);
        cli_matrix_free(&to);
        lac_mask_free(mask);
        lac_weight_free(weight);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_product_is_found),
        cmocka_unit_test(an_overflow_is_no_error),
        cmocka_unit_test(the_product_of_another_weight_is_found),
        cmocka_unit_test(a_wrong_value_is_found),
        cmocka_unit_test(every_half_survives),
        cmocka_unit_test(the_library_rounds_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
