/* test_prune.c - lac_prune against brute force: every selection a small group allows is tried. Then ties, non-finite
 * weights, threads, dtypes, layouts, scores and arguments. test_prune_search.c has the families that search. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/pattern.h"
#include "format/mask.h"
#include "support/support.h"

enum { BRUTE_UNITS = 10 };

/* In long double the squares of all doubles are exact enough and none overflows. */
static long double element_score(const test_matrix *dense, lac_score score, int64_t row, int64_t col)
{
    long double w = fabsl((long double)test_matrix_get(dense, row, col));
    return score == LAC_SCORE_L1 ? w : w * w;
}

static lac_mask *prune(const test_matrix *dense, const lac_pattern *pattern, lac_score score, int threads)
{
    lac_prune_options options = {.size = sizeof options, .score = score, .threads = threads};
    lac_mask *mask = NULL;
    assert_ok(lac_prune(&dense->view, pattern, &options, &mask));
    return mask;
}

/* The most that `want` of score[count] add up to, by trying every subset; the first best, in the order that prefers low
 * indices, goes to `best`. */
static long double try_subsets(const long double *score, int count, int want, unsigned *best)
{
    long double top = -1;
    *best = 0;
    for (unsigned set = (1u << count) - 1;; set--) { /* falling numbers read from the top bit: index 0 is the top bit */
        if (__builtin_popcount(set) == want) {
            long double sum = 0;
            for (int i = 0; i < count; i++)
                if (set >> (count - 1 - i) & 1) sum += score[i];
            if (sum > top) top = sum, *best = set;
        }
        if (set == 0) return top;
    }
}

static long double unit_score(const test_matrix *dense, lac_score score, const lac_geometry *g, int64_t group, int64_t unit)
{
    long double sum = 0;
    for (int64_t c = 0; c < lac_geometry_inputs(g, unit); c++)
        for (int64_t r = 0; r < lac_geometry_rows(g, group); r++)
            sum += element_score(dense, score, group * g->unit_n + r, unit * g->unit_k + c);
    return sum;
}

/* Units [first, first + count) of a row group: exactly `want` are kept, whole, and they are the best. Where sums are
 * exact the very choice is checked, ties included. */
static void check_units(const lac_mask *mask, const test_matrix *dense, lac_score score, const lac_geometry *g, int64_t group,
                        int64_t first, int count, int want, bool exact)
{
    long double scores[BRUTE_UNITS], kept = 0;
    unsigned best, chosen = 0;
    assert_true(count <= BRUTE_UNITS);
    for (int u = 0; u < count; u++) {
        int64_t row = group * g->unit_n, col = (first + u) * g->unit_k;
        scores[u] = unit_score(dense, score, g, group, first + u);
        bool stays = lac_mask_test(mask, row, col);
        for (int64_t r = 0; r < lac_geometry_rows(g, group); r++)
            for (int64_t c = 0; c < lac_geometry_inputs(g, first + u); c++)
                assert_int_equal(lac_mask_test(mask, row + r, col + c), stays);
        if (stays) kept += scores[u], chosen |= 1u << (count - 1 - u);
    }
    long double top = try_subsets(scores, count, want, &best);
    assert_int_equal(__builtin_popcount(chosen), want);
    if (exact)
        assert_int_equal(chosen, best);
    else
        assert_true(kept >= top * (1 - 1e-12L));
}

static void check_all_units(const lac_mask *mask, const test_matrix *dense, lac_score score, const lac_pattern *pattern,
                            bool exact)
{
    lac_geometry g;
    assert_ok(lac_geometry_make(pattern, mask->n, mask->k, &g));
    for (int64_t group = 0; group < g.row_groups; group++) {
        if (g.is_free) check_units(mask, dense, score, &g, group, 0, (int)g.units, (int)g.selected, exact);
        for (int64_t i = 0; i < g.groups; i++) {
            int count = (int)lac_geometry_group_units(&g, i);
            check_units(mask, dense, score, &g, group, i * g.group_m, count, count < g.group_n ? count : g.group_n, exact);
        }
    }
}

static void units_case(test_random *random, int64_t index, void *user)
{
    (void)index, (void)user;
    lac_pattern p = {.family = (lac_family)test_random_between(random, LAC_FAMILY_ELEMENT, LAC_FAMILY_BLOCK)};
    p.unit_n = p.family == LAC_FAMILY_ELEMENT ? 1 : (int32_t)test_random_between(random, 1, 6);
    p.unit_k = p.family == LAC_FAMILY_BLOCK ? (int32_t)test_random_between(random, 1, 5) : 1;
    int64_t units;
    if (test_random_chance(random, 35)) {
        p.density = (double)test_random_between(random, 1, 100) / 100;
        units = test_random_between(random, 1, BRUTE_UNITS);
    } else {
        p.m = (int32_t)test_random_between(random, 1, BRUTE_UNITS);
        p.n = (int32_t)test_random_between(random, 1, p.m);
        units = test_random_between(random, 1, 3 * p.m + 1);
    }
    int64_t n = test_random_between(random, 1, 2 * p.unit_n + 2);
    int64_t k = (units - 1) * p.unit_k + test_random_between(random, 1, p.unit_k);
    lac_dtype dtype = test_random_dtype(random, 1);
    test_fill fill = (test_fill)test_random_between(random, 0, TEST_FILL_FINITE_COUNT - 1);
    /* Sums of doubles reach 2^-900 times the largest weight and no further. */
    if (dtype == LAC_DTYPE_F64 && fill == TEST_FILL_DENORMAL) fill = TEST_FILL_TIES;
    lac_score score = test_random_chance(random, 50) ? LAC_SCORE_L1 : LAC_SCORE_L2;
    char text[LAC_PATTERN_TEXT_SIZE];
    assert_ok(lac_pattern_format(&p, text, sizeof text));
    test_describe("%s, %lld x %lld, %s, fill %d, score %d", text, (long long)n, (long long)k, lac_dtype_name(dtype), (int)fill,
                  (int)score);

    test_matrix dense = test_matrix_random(random, n, k, dtype);
    test_matrix_fill(random, &dense, fill);
    lac_mask *mask = prune(&dense, &p, score, 0);
    check_all_units(mask, &dense, score, &p, fill == TEST_FILL_INTEGER);
    assert_true(test_matrix_intact(&dense));
    lac_mask_free(mask);
    test_matrix_free(&dense);
}

static void test_units_brute_force(void **state)
{
    (void)state;
    test_run_cases("prune_units", 6000, units_case, NULL);
}

/* The best N of the inputs in `set` for one row. */
static long double row_best(const long double *score, unsigned set, int cols, int n)
{
    long double sum = 0;
    for (unsigned taken = 0; n > 0; n--) {
        int best = -1;
        for (int c = 0; c < cols; c++)
            if ((set >> c & 1) && !(taken >> c & 1) && (best < 0 || score[c] > score[best])) best = c;
        if (best < 0) break;
        taken |= 1u << best;
        sum += score[best];
    }
    return sum;
}

static void vnm_case(test_random *random, int64_t index, void *user)
{
    (void)user;
    /* Few cases pay for the 1820 selections of M = 16. */
    int m = (int)(index % 100 == 0 ? 16 : test_random_between(random, 4, 10)), n_of = (int)test_random_between(random, 1, 4);
    lac_pattern p = {LAC_FAMILY_VNM, (int32_t)test_random_between(random, 1, 20), 1, n_of, m, 0};
    int64_t n = test_random_between(random, 1, p.unit_n + 3), k = test_random_between(random, 1, 2 * m + 1);
    test_fill fill = (test_fill)test_random_between(random, 0, TEST_FILL_FINITE_COUNT - 1);
    lac_score score = test_random_chance(random, 50) ? LAC_SCORE_L1 : LAC_SCORE_L2;
    test_describe("%d:%d:%d, %lld x %lld, fill %d, score %d", (int)p.unit_n, n_of, m, (long long)n, (long long)k, (int)fill,
                  (int)score);
    test_matrix dense = test_matrix_random(random, n, k, test_random_dtype(random, fill != TEST_FILL_DENORMAL));
    test_matrix_fill(random, &dense, fill);
    lac_mask *mask = prune(&dense, &p, score, 0);
    for (int64_t top = 0; top < n; top += p.unit_n) {
        for (int64_t left = 0; left < k; left += m) {
            int rows = (int)(n - top < p.unit_n ? n - top : p.unit_n), cols = (int)(k - left < m ? k - left : m);
            long double scores[20][16], kept = 0, best = -1;
            unsigned used = 0;
            for (int r = 0; r < rows; r++) {
                int count = 0;
                for (int c = 0; c < cols; c++) {
                    scores[r][c] = element_score(&dense, score, top + r, left + c);
                    if (!lac_mask_test(mask, top + r, left + c)) continue;
                    kept += scores[r][c];
                    used |= 1u << c;
                    count++;
                }
                assert_int_equal(count, cols < n_of ? cols : n_of);
            }
            assert_true(__builtin_popcount(used) <= 4);
            for (unsigned set = 0; set < 1u << cols; set++) {
                if (__builtin_popcount(set) != (cols < 4 ? cols : 4)) continue;
                long double sum = 0;
                for (int r = 0; r < rows; r++) sum += row_best(scores[r], set, cols, n_of);
                if (sum > best) best = sum;
            }
            assert_true(kept >= best * (1 - 1e-12L));
        }
    }
    lac_mask_free(mask);
    test_matrix_free(&dense);
}

static void test_vnm_brute_force(void **state)
{
    (void)state;
    test_run_cases("prune_vnm", 1500, vnm_case, NULL);
}

/* The well-known optimum of 2:4: of every four the two of largest magnitude. */
static void test_two_of_four(void **state)
{
    (void)state;
    test_random random = test_random_make("two_of_four", 0);
    lac_pattern p = {LAC_FAMILY_ELEMENT, 1, 1, 2, 4, 0};
    test_matrix dense = test_matrix_make(33, 1024, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    test_matrix_fill(&random, &dense, TEST_FILL_GAUSSIAN);
    lac_mask *mask = prune(&dense, &p, LAC_SCORE_DEFAULT, 0);
    double kept, total, best = 0, all = 0;
    assert_ok(lac_mask_energy(mask, &dense.view, &kept, &total));
    for (int64_t r = 0; r < 33; r++) {
        for (int64_t c = 0; c < 1024; c += 4) {
            double w[4];
            for (int i = 0; i < 4; i++) w[i] = test_matrix_get(&dense, r, c + i) * test_matrix_get(&dense, r, c + i);
            double ab = fmax(w[0], w[1]), cd = fmax(w[2], w[3]);
            best += fmax(fmax(w[0] + w[1], w[2] + w[3]), ab + cd);
            all += w[0] + w[1] + w[2] + w[3];
        }
    }
    assert_true(fabs(kept - best) <= 1e-12 * best && fabs(total - all) <= 1e-12 * all);
    lac_mask_free(mask);
    test_matrix_free(&dense);
}

/* Groups of every size up to 256, by the definition: a weight stays when fewer than N go before it. */
static void every_m_case(test_random *random, int64_t index, void *user)
{
    (void)user;
    lac_pattern p = {LAC_FAMILY_ELEMENT, 1, 1, 0, (int32_t)(1 + index % LAC_MAX_GROUP), 0};
    p.n = (int32_t)test_random_between(random, 1, p.m);
    int64_t k = p.m * test_random_between(random, 0, 19) + test_random_between(random, 1, p.m);
    lac_dtype dtype = test_random_dtype(random, 1);
    test_fill fill = (test_fill)test_random_between(random, 0, TEST_FILL_NONFINITE);
    test_describe("%d:%d, k %lld, %s, fill %d", (int)p.n, (int)p.m, (long long)k, lac_dtype_name(dtype), (int)fill);
    test_matrix dense = test_matrix_random(random, 2, k, dtype);
    test_matrix_fill(random, &dense, fill);
    lac_mask *mask = prune(&dense, &p, LAC_SCORE_DEFAULT, 1);
    double *magnitude = malloc((size_t)k * sizeof *magnitude);
    for (int64_t r = 0; r < 2; r++) {
        for (int64_t c = 0; c < k; c++) {
            double w = test_matrix_get(&dense, r, c);
            magnitude[c] = isnan(w) ? INFINITY : fabs(w);
        }
        for (int64_t c = 0; c < k; c++) {
            int64_t first = c / p.m * p.m, end = first + p.m < k ? first + p.m : k, before = 0;
            for (int64_t j = first; j < end; j++)
                before += magnitude[j] > magnitude[c] || (magnitude[j] == magnitude[c] && j < c);
            assert_int_equal(lac_mask_test(mask, r, c), before < p.n);
        }
    }
    free(magnitude);
    lac_mask_free(mask);
    test_matrix_free(&dense);
}

static void test_every_m(void **state)
{
    (void)state;
    test_run_cases("prune_every_m", 3 * LAC_MAX_GROUP, every_m_case, NULL);
}

static void expect_mask(const char *pattern, lac_score score, int64_t n, int64_t k, const float *values, const char *want)
{
    lac_pattern p;
    lac_matrix dense = {.dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
    lac_prune_options options = {.size = sizeof options, .score = score};
    lac_mask *mask = NULL;
    memcpy(&dense.data, &values, sizeof dense.data);
    assert_ok(lac_pattern_parse(pattern, &p));
    assert_ok(lac_prune(&dense, &p, &options, &mask));
    char got[64] = "";
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < k; c++) strcat(got, lac_mask_get(mask, r, c) ? "x" : ".");
    assert_string_equal(got, want);
    lac_mask_free(mask);
}

static void test_by_hand(void **state)
{
    (void)state;
    const float tiny = 1e-45f;
    expect_mask("2:4", LAC_SCORE_DEFAULT, 1, 4, (float[]){1, 1, -1, 1}, "xx..");
    expect_mask("2:4", LAC_SCORE_DEFAULT, 1, 6, (float[]){0, -0.0f, 0, 0, 0, 0}, "xx..xx");
    expect_mask("1:4", LAC_SCORE_DEFAULT, 1, 4, (float[]){0, 0, tiny, 0}, "..x.");
    expect_mask("2:4", LAC_SCORE_DEFAULT, 1, 4, (float[]){3e38f, NAN, 1, -INFINITY}, ".x.x");
    expect_mask("1:4", LAC_SCORE_DEFAULT, 1, 4, (float[]){9, INFINITY, NAN, NAN}, ".x..");
    expect_mask("1:4", LAC_SCORE_DEFAULT, 1, 4, (float[]){9, -NAN, INFINITY, NAN}, ".x..");
    /* Two outputs: inputs (3,0) and (2,2): L1 prefers the second, L2 the first. */
    expect_mask("vw2:1:2", LAC_SCORE_L1, 2, 2, (float[]){3, 2, 0, 2}, ".x.x");
    expect_mask("vw2:1:2", LAC_SCORE_L2, 2, 2, (float[]){3, 2, 0, 2}, "x.x.");
    expect_mask("vw2:1:2", LAC_SCORE_DEFAULT, 2, 2, (float[]){3, 2, 0, 2}, "x.x.");
    expect_mask("vw2:1:2", LAC_SCORE_L2, 2, 2, (float[]){3e38f, 0, 3e38f, -NAN}, ".x.x");
    expect_mask("vw2:1:3", LAC_SCORE_L2, 2, 3, (float[]){9, 1, NAN, 9, INFINITY, NAN}, ".x..x.");
    expect_mask("bw2x2:1:2", LAC_SCORE_L2, 2, 4, (float[]){1, 1, 3, 0, 1, 1, 0, 0}, "..xx..xx");
    expect_mask("bw2x2:50%", LAC_SCORE_L1, 2, 4, (float[]){1, 1, 3, 0, 1, 1, 0, 0}, "xx..xx..");
    expect_mask("40%", LAC_SCORE_L2, 1, 5, (float[]){1, 5, 5, 2, 5}, ".xx..");
    expect_mask("1%", LAC_SCORE_L2, 2, 3, (float[]){1, 2, 3, 3, 2, 1}, "..xx..");
    /* Inputs 0 and 4 are never the larger of their row but for NaN, which outranks all. */
    expect_mask("1:1:5", LAC_SCORE_L2, 1, 5, (float[]){1e30f, 2, 3, 4, NAN}, "....x");
    expect_mask("2:1:5", LAC_SCORE_L2, 2, 5, (float[]){9, 9, 9, 9, NAN, 1, 2, 3, 4, 0}, "....x...x.");
    expect_mask("2:2:4", LAC_SCORE_L2, 1, 3, (float[]){1, 3, 2}, ".xx");
    expect_mask("shfl2:50%", LAC_SCORE_L2, 4, 2, (float[]){1, 0, 0, 1, 1, 0, 0, 1}, "x..xx..x");
}

static bool same_mask(const lac_mask *a, const lac_mask *b)
{
    if (a->n != b->n || a->k != b->k || !a->row_perm != !b->row_perm) return false;
    if (a->row_perm && memcmp(a->row_perm, b->row_perm, (size_t)a->n * sizeof *a->row_perm) != 0) return false;
    return memcmp(a->bits, b->bits, (size_t)(a->n * a->words) * sizeof *a->bits) == 0;
}

static void threads_case(test_random *random, int64_t index, void *user)
{
    (void)index, (void)user;
    lac_pattern p = test_random_pattern(random);
    int64_t n, k;
    test_random_shape(random, &p, 20000, &n, &k);
    test_fill fill = (test_fill)test_random_between(random, 0, TEST_FILL_NONFINITE);
    char text[LAC_PATTERN_TEXT_SIZE];
    assert_ok(lac_pattern_format(&p, text, sizeof text));
    test_describe("%s, %lld x %lld, fill %d", text, (long long)n, (long long)k, (int)fill);
    test_matrix dense = test_matrix_random(random, n, k, test_random_dtype(random, 1));
    test_matrix_fill(random, &dense, fill);
    lac_mask *one = prune(&dense, &p, LAC_SCORE_DEFAULT, 1), *obeys = NULL;
    assert_int_equal(one->row_perm != NULL, p.family == LAC_FAMILY_SHUFFLED);
    for (int threads = 2; threads <= 5; threads += 3) {
        lac_mask *many = prune(&dense, &p, LAC_SCORE_DEFAULT, threads);
        assert_true(same_mask(one, many));
        lac_mask_free(many);
    }
    if (p.family != LAC_FAMILY_SHUFFLED) assert_ok(lac_mask_with_pattern(one, &p, &obeys));
    lac_mask_free(obeys);
    lac_mask_free(one);
    test_matrix_free(&dense);
}

/* The same mask on 1, 2 and 5 threads, and one that obeys its pattern, for all families and odd shapes. */
static void test_threads(void **state)
{
    (void)state;
    test_run_cases("prune_threads", 300, threads_case, NULL);
}

static void views_case(test_random *random, int64_t index, void *user)
{
    (void)index, (void)user;
    lac_pattern p = test_random_pattern(random);
    int64_t n, k;
    test_random_shape(random, &p, 3000, &n, &k);
    lac_score score = test_random_chance(random, 50) ? LAC_SCORE_L1 : LAC_SCORE_L2;
    char text[LAC_PATTERN_TEXT_SIZE];
    assert_ok(lac_pattern_format(&p, text, sizeof text));
    test_describe("%s, %lld x %lld, score %d", text, (long long)n, (long long)k, (int)score);
    test_matrix plain = test_matrix_make(n, k, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    test_matrix_fill(random, &plain, TEST_FILL_INTEGER); /* the same numbers in every dtype */
    lac_mask *want = prune(&plain, &p, score, 0);
    const lac_dtype dtypes[] = {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16, LAC_DTYPE_F64};
    for (int i = 0; i < 8; i++) {
        test_matrix view = test_matrix_make(n, k, dtypes[i / 2], (lac_layout)(i % 2), i, i);
        for (int64_t r = 0; r < n; r++)
            for (int64_t c = 0; c < k; c++) test_matrix_set(&view, r, c, test_matrix_get(&plain, r, c));
        lac_mask *got = prune(&view, &p, score, 0);
        if (!same_mask(got, want)) fail_msg("%s, layout %d gives another mask", lac_dtype_name(dtypes[i / 2]), i % 2);
        assert_true(test_matrix_intact(&view));
        lac_mask_free(got);
        test_matrix_free(&view);
    }
    lac_mask_free(want);
    test_matrix_free(&plain);
}

static void test_views(void **state)
{
    (void)state;
    test_run_cases("prune_views", 400, views_case, NULL);
}

/* F64: squares that would overflow or vanish still count, and infinities still outrank. */
static void test_wide_range(void **state)
{
    (void)state;
    const double values[][4] = {{1e300, 3e300, 2e300, 1e300},
                                {1e-300, 3e-300, 2e-300, 1e-300},
                                {5e-324, 15e-324, 1e-323, 0},
                                {1e308, INFINITY, 1.7e308, 0}};
    const char *want[] = {".xx.", ".xx.", ".xx.", ".xx."};
    lac_pattern p = {LAC_FAMILY_VECTOR, 2, 1, 2, 4, 0}, vnm = {LAC_FAMILY_VNM, 2, 1, 2, 4, 0};
    for (int i = 0; i < 4; i++) {
        test_matrix dense = test_matrix_make(2, 4, LAC_DTYPE_F64, LAC_LAYOUT_ROW_MAJOR, 0, 0);
        for (int c = 0; c < 8; c++) test_matrix_set(&dense, c / 4, c % 4, values[i][c % 4]);
        for (int score = LAC_SCORE_L1; score <= LAC_SCORE_L2; score++) {
            lac_mask *mask = prune(&dense, &p, (lac_score)score, 0), *other = prune(&dense, &vnm, (lac_score)score, 0);
            for (int c = 0; c < 8; c++) {
                assert_int_equal(lac_mask_get(mask, c / 4, c % 4), want[i][c % 4] == 'x');
                assert_int_equal(lac_mask_get(other, c / 4, c % 4), want[i][c % 4] == 'x');
            }
            lac_mask_free(mask);
            lac_mask_free(other);
        }
        test_matrix_free(&dense);
    }
}

static void test_arguments(void **state)
{
    (void)state;
    float values[8] = {0};
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = 2, .cols = 4}, wrong;
    lac_pattern p = {LAC_FAMILY_ELEMENT, 1, 1, 2, 4, 0}, bad = {LAC_FAMILY_ELEMENT, 1, 1, 5, 4, 0};
    lac_mask *const untouched = (lac_mask *)values;
    lac_mask *mask = untouched;
    lac_prune_options options = {.size = sizeof options};
    assert_fails(lac_prune(NULL, &p, &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "dense");
    assert_fails(lac_prune(&dense, NULL, &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "pattern");
    assert_fails(lac_prune(&dense, &p, &options, NULL), LAC_STATUS_INVALID_ARGUMENT, "out");
    assert_fails(lac_prune(&dense, &bad, &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "5");
    wrong = dense, wrong.rows = -1;
    assert_fails(lac_prune(&wrong, &p, &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "-1");
    wrong = dense, wrong.dtype = LAC_DTYPE_I8;
    assert_status(lac_prune(&wrong, &p, &options, &mask), LAC_STATUS_INVALID_ARGUMENT);
    options.score = (lac_score)7;
    assert_fails(lac_prune(&dense, &p, &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "7");
    options.score = LAC_SCORE_L1, options.threads = -3;
    assert_fails(lac_prune(&dense, &p, &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "-3");
    options.threads = 0, options.size = 0;
    assert_fails(lac_prune(&dense, &p, &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "size");
    assert_ptr_equal(mask, untouched);
    options.size = sizeof options, options.threads = 1000000; /* more than there is work for */
    assert_ok(lac_prune(&dense, &p, &options, &mask));
    lac_mask_free(mask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_of_cases(test_units_brute_force),
        test_of_cases(test_vnm_brute_force),
        cmocka_unit_test(test_two_of_four),
        test_of_cases(test_every_m),
        cmocka_unit_test(test_by_hand),
        test_of_cases(test_threads),
        test_of_cases(test_views),
        cmocka_unit_test(test_wide_range),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
