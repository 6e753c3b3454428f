/* test_prune_transposable.c - masks that obey N:M in both directions: the best of all by brute force on small blocks, both directions
 * checked on large ones, infinities kept, refusals. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

static lac_mask *prune(float *w, int64_t n, int64_t k, const char *text, lac_score score, int threads)
{
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
    lac_prune_options options = {.size = sizeof options, .transposable = 1, .score = score, .threads = threads};
    assert_ok(lac_pattern_parse(text, &pattern));
    assert_ok(lac_prune(&dense, &pattern, &options, &mask));
    return mask;
}

/* The most that an m x m block keeps with n in every row and column: rows one after the other, over all that columns can still take. */
static double best_of_all(const float *w, int64_t ld, int m, int n, int row, int *left)
{
    if (row == m) return 0;
    double best = -INFINITY;
    for (unsigned set = 0; set < 1u << m; set++) {
        if (__builtin_popcount(set) != n) continue;
        bool fits = true;
        double sum = 0;
        for (int c = 0; c < m; c++)
            if (set >> c & 1) {
                fits = fits && left[c] > 0;
                sum += (double)w[row * ld + c] * w[row * ld + c];
            }
        if (!fits) continue;
        for (int c = 0; c < m; c++) left[c] -= set >> c & 1;
        sum += best_of_all(w, ld, m, n, row + 1, left);
        for (int c = 0; c < m; c++) left[c] += set >> c & 1;
        if (sum > best) best = sum;
    }
    return best;
}

static void test_best_of_all(void **state)
{
    static const struct {
        const char *pattern;
        int n, m;
    } cases[] = {{"2:4", 2, 4}, {"1:4", 1, 4}, {"3:4", 3, 4}, {"2:5", 2, 5}, {"2:3", 2, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum { BLOCKS = 6 };
        int m = cases[i].m;
        int64_t k = (int64_t)m * BLOCKS;
        test_random random = test_random_make("transposable", (int64_t)i);
        float *w = malloc((size_t)(m * k) * sizeof *w);
        assert_non_null(w);
        for (int64_t j = 0; j < m * k; j++) w[j] = (float)test_random_gaussian(&random);
        lac_mask *mask = prune(w, m, k, cases[i].pattern, LAC_SCORE_L2, 0);
        for (int b = 0; b < BLOCKS; b++) {
            int left[5];
            double kept = 0;
            for (int c = 0; c < m; c++) left[c] = cases[i].n;
            for (int r = 0; r < m; r++)
                for (int c = b * m; c < (b + 1) * m; c++)
                    if (lac_mask_get(mask, r, c)) kept += (double)w[r * k + c] * w[r * k + c];
            double best = best_of_all(w + b * m, k, m, cases[i].n, 0, left);
            assert_true(fabs(kept - best) < 1e-9 * best);
        }
        lac_mask_free(mask);
        free(w);
    }
}

static void test_both_directions(void **state)
{
    static const struct {
        const char *pattern;
        int n, m;
    } cases[] = {{"2:4", 2, 4}, {"4:8", 4, 8}, {"8:32", 8, 32}, {"3:7", 3, 7}, {"4:4", 4, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int m = cases[i].m;
        int64_t n = 2 * m, k = 3 * m;
        test_random random = test_random_make("directions", (int64_t)i);
        float *w = malloc((size_t)(n * k) * sizeof *w);
        assert_non_null(w);
        for (int64_t j = 0; j < n * k; j++) w[j] = (float)test_random_gaussian(&random);
        w[5] = INFINITY, w[k + 1] = NAN; /* outrank all others */
        lac_mask *mask = prune(w, n, k, cases[i].pattern, LAC_SCORE_L1, 1),
                 *again = prune(w, n, k, cases[i].pattern, LAC_SCORE_L1, 3);
        assert_true(lac_mask_get(mask, 0, 5) && lac_mask_get(mask, 1, 1));
        for (int64_t r = 0; r < n; r++)
            for (int64_t c = 0; c < k; c++) assert_int_equal(lac_mask_get(mask, r, c), lac_mask_get(again, r, c));
        for (int64_t r = 0; r < n; r++)
            for (int64_t b = 0; b < k; b += m) {
                int kept = 0;
                for (int c = 0; c < m; c++) kept += lac_mask_get(mask, r, b + c);
                assert_int_equal(kept, cases[i].n);
            }
        for (int64_t c = 0; c < k; c++)
            for (int64_t b = 0; b < n; b += m) {
                int kept = 0;
                for (int r = 0; r < m; r++) kept += lac_mask_get(mask, b + r, c);
                assert_int_equal(kept, cases[i].n);
            }
        lac_mask_free(mask), lac_mask_free(again);
        free(w);
    }
}

static void test_refusals(void **state)
{
    static float w[8 * 8];
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = 8, .cols = 8};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_prune_options options = {.size = sizeof options, .transposable = 2};
    (void)state;
    assert_ok(lac_pattern_parse("2:4", &pattern));
    assert_fails(lac_prune(&dense, &pattern, &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "transposable is 2");
    options.transposable = 1, options.permute = LAC_PERMUTE_COLUMNS;
    assert_fails(lac_prune(&dense, &pattern, &options, &mask), LAC_STATUS_UNSUPPORTED, "without permute");
    options.permute = 0, dense.rows = 6;
    assert_fails(lac_prune(&dense, &pattern, &options, &mask), LAC_STATUS_UNSUPPORTED, "they are 6 and 8");
    dense.rows = 8;
    assert_ok(lac_pattern_parse("vw4:2:4", &pattern));
    assert_fails(lac_prune(&dense, &pattern, &options, &mask), LAC_STATUS_UNSUPPORTED, "single weights only");
    assert_null(mask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_of_all),
        cmocka_unit_test(test_both_directions),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
