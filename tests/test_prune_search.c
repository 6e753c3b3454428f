/* test_prune_search.c - the prunings that search. V:N:M with M > 16 against a long exchange search; Shfl-BW against rows in
 * order, and on rows with a hidden structure. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/mask.h"
#include "support/support.h"

enum { GROUP_MAX = 100, ROWS_MAX = 64, PICKED = 4 };

static lac_mask *prune(const lac_matrix *dense, const char *text)
{
    lac_pattern pattern;
    lac_mask *mask = NULL;
    assert_ok(lac_pattern_parse(text, &pattern));
    assert_ok(lac_prune(dense, &pattern, NULL, &mask));
    return mask;
}

static double kept_energy(const lac_mask *mask, const lac_matrix *dense)
{
    double kept, total;
    assert_ok(lac_mask_energy(mask, dense, &kept, &total));
    return kept;
}

/* One group of a V:N:M matrix. */
typedef struct vnm_group {
    int rows, cols, n;
    double score[GROUP_MAX][ROWS_MAX]; /* [cols][rows] */
} vnm_group;

/* The sum over the rows of the N best of four. */
static double worth(const vnm_group *g, const int pick[PICKED])
{
    double sum = 0;
    for (int r = 0; r < g->rows; r++) {
        double a = g->score[pick[0]][r], b = g->score[pick[1]][r], c = g->score[pick[2]][r], d = g->score[pick[3]][r];
        double high = fmax(fmax(a, b), fmax(c, d)), low = fmin(fmin(a, b), fmin(c, d)), all = a + b + c + d;
        double two = fmax(fmax(a, b) + fmax(c, d), fmax(a + b, c + d));
        sum += g->n == 1 ? high : g->n == 2 ? two : g->n == 3 ? all - low : all;
    }
    return sum;
}

static bool contains(const int pick[PICKED], int c) { return pick[0] == c || pick[1] == c || pick[2] == c || pick[3] == c; }

/* Tries every exchange of one input, then, when that is exhausted, of two; takes each that helps. */
static bool improve(const vnm_group *g, int pick[PICKED], double *best)
{
    for (int i = 0; i < PICKED; i++) {
        for (int c = 0; c < g->cols; c++) {
            int old = pick[i];
            if (contains(pick, c)) continue;
            pick[i] = c;
            double now = worth(g, pick);
            if (now > *best * (1 + 1e-12)) return *best = now, true;
            pick[i] = old;
        }
    }
    for (int pair = 0; pair < PICKED * PICKED; pair++) {
        int i = pair / PICKED, j = pair % PICKED;
        if (i >= j) continue;
        int old_i = pick[i], old_j = pick[j];
        for (int c = 0; c < g->cols; c++) {
            for (int d = c + 1; d < g->cols; d++) {
                pick[i] = old_i, pick[j] = old_j;
                if (contains(pick, c) || contains(pick, d)) continue;
                pick[i] = c, pick[j] = d;
                double now = worth(g, pick);
                if (now > *best * (1 + 1e-12)) return *best = now, true;
            }
        }
        pick[i] = old_i, pick[j] = old_j;
    }
    return false;
}

static double long_search(test_random *random, const vnm_group *g, int restarts)
{
    double top = 0;
    for (int s = 0; s < restarts; s++) {
        int pick[PICKED] = {-1, -1, -1, -1};
        for (int i = 0; i < PICKED; i++) {
            int c = (int)test_random_between(random, 0, g->cols - 1);
            while (contains(pick, c)) c = (c + 1) % g->cols;
            pick[i] = c;
        }
        double best = worth(g, pick);
        while (improve(g, pick, &best)) {}
        top = fmax(top, best);
    }
    return top;
}

/* Weights of three kinds: Gaussian; over many binades; each row large in a few inputs that other rows share or not. */
static double draw(test_random *random, int kind, int row, int col, const unsigned *wanted)
{
    double w = test_random_gaussian(random);
    if (kind == 1) return w * exp2(2 * test_random_gaussian(random));
    if (kind == 2) return w * ((wanted[row] >> (col % 32) & 1) ? 1.0 : 0.1);
    return w;
}

typedef struct share_stats {
    double least, sum;
    int64_t count;
} share_stats;

static void share_case(test_random *random, int64_t index, void *user)
{
    static const int sizes[] = {20, 32, 100}, heights[] = {4, 16, 64};
    share_stats *stats = user; /* [3], by size */
    int size = (int)(index % 3), kind = (int)(index / 3 % 3), n = (int)(1 + index / 9 % 3), rows = heights[index / 27 % 3];
    static vnm_group g;
    static float values[ROWS_MAX * GROUP_MAX]; /* [rows][cols] */
    char text[LAC_PATTERN_TEXT_SIZE];
    g.rows = rows, g.cols = sizes[size], g.n = n;
    snprintf(text, sizeof text, "%d:%d:%d", rows, n, g.cols);
    test_describe("%s, kind %d", text, kind);
    unsigned wanted[ROWS_MAX], shapes[5];
    for (int i = 0; i < 5; i++) shapes[i] = (unsigned)(test_random_bits(random) & test_random_bits(random) & 0xffffffffu);
    for (int r = 0; r < rows; r++) wanted[r] = shapes[test_random_between(random, 0, 4)];
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < g.cols; c++) {
            float w = (float)draw(random, kind, r, c, wanted);
            values[r * g.cols + c] = w;
            g.score[c][r] = (double)w * (double)w;
        }
    }
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = rows, .cols = g.cols};
    lac_mask *mask = prune(&dense, text);
    double share = kept_energy(mask, &dense) / long_search(random, &g, g.cols == GROUP_MAX ? 6 : 30);
    lac_mask_free(mask);
    stats[size].least = fmin(stats[size].least, share);
    stats[size].sum += share;
    stats[size].count++;
    if (share < 0.995) fail_msg("%s keeps %.5f of the long search's energy", text, share);
}

static void test_vnm_share(void **state)
{
    (void)state;
    share_stats stats[3] = {{2, 0, 0}, {2, 0, 0}, {2, 0, 0}};
    test_run_cases("prune_vnm_share", 162, share_case, stats);
    for (int i = 0; i < 3; i++)
        if (stats[i].count > 0)
            print_message("M = %d: least share of the long search %.5f, mean %.5f, %lld groups\n", (int[]){20, 32, 100}[i],
                          stats[i].least, stats[i].sum / (double)stats[i].count, (long long)stats[i].count);
}

/* Rows perm[g * v ..] of a group ascend and keep the same `kept` columns; perm is a permutation. */
static void check_shuffled(const lac_mask *mask, int64_t v, int64_t kept)
{
    uint8_t *seen = calloc((size_t)mask->n + 1, 1);
    assert_non_null(mask->row_perm);
    for (int64_t i = 0; i < mask->n; i++) {
        uint32_t row = mask->row_perm[i];
        assert_true(row < mask->n && !seen[row]);
        seen[row] = 1;
        int64_t count = 0;
        for (int64_t w = 0; w < mask->words; w++) count += __builtin_popcountll(lac_mask_row(mask, row)[w]);
        assert_int_equal(count, kept);
        if (i % v == 0) continue;
        assert_true(row > mask->row_perm[i - 1]);
        assert_memory_equal(lac_mask_row(mask, row), lac_mask_row(mask, mask->row_perm[i - 1]), (size_t)mask->words * 8);
    }
    free(seen);
}

static void in_order_case(test_random *random, int64_t index, void *user)
{
    (void)index, (void)user;
    int64_t v = test_random_between(random, 1, 12), n = test_random_between(random, 1, 60),
            k = test_random_between(random, 1, 90);
    int percent = (int)test_random_between(random, 1, 100);
    char shuffled[LAC_PATTERN_TEXT_SIZE], in_order[LAC_PATTERN_TEXT_SIZE];
    snprintf(shuffled, sizeof shuffled, "shfl%d:%d%%", (int)v, percent);
    snprintf(in_order, sizeof in_order, "vw%d:%d%%", (int)v, percent);
    test_describe("%s, %lld x %lld", shuffled, (long long)n, (long long)k);
    test_matrix dense = test_matrix_random(random, n, k, test_random_dtype(random, 1));
    test_matrix_fill(random, &dense, (test_fill)test_random_between(random, 0, TEST_FILL_SPARSE));
    lac_mask *a = prune(&dense.view, shuffled), *b = prune(&dense.view, in_order);
    int64_t kept = (int64_t)floor(percent / 100.0 * (double)k + 0.5);
    check_shuffled(a, v < n ? v : n, kept > 1 ? kept : 1);
    assert_true(kept_energy(a, &dense.view) >= kept_energy(b, &dense.view) * (1 - 1e-12));
    lac_mask_free(a);
    lac_mask_free(b);
    test_matrix_free(&dense);
}

static void test_never_below_order(void **state)
{
    (void)state;
    test_run_cases("prune_shuffle", 800, in_order_case, NULL);
}

/* Rows of 8 hidden kinds in random order, each large in a quarter of the columns: the shuffle finds them again. */
static void test_hidden_structure(void **state)
{
    (void)state;
    enum { N = 128, K = 256, KINDS = 8 };
    test_random random = test_random_make("hidden_structure", 0);
    static float values[N * K];
    static bool large[KINDS][K];
    int kinds[N];
    double planted = 0;
    for (int i = 0; i < N; i++) kinds[i] = i % KINDS;
    for (int i = N - 1; i > 0; i--) {
        int j = (int)test_random_between(&random, 0, i), other = kinds[i];
        kinds[i] = kinds[j], kinds[j] = other;
    }
    for (int kind = 0; kind < KINDS; kind++)
        for (int c = 0; c < K / 4; c++) {
            int at = (int)test_random_between(&random, 0, K - 1);
            while (large[kind][at]) at = (at + 1) % K;
            large[kind][at] = true;
        }
    for (int i = 0; i < N * K; i++) {
        bool is_large = large[kinds[i / K]][i % K];
        values[i] = (float)(test_random_gaussian(&random) * (is_large ? 1.0 : 0.15));
        if (is_large) planted += (double)values[i] * values[i];
    }
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_mask *a = prune(&dense, "shfl16:25%"), *b = prune(&dense, "vw16:25%");
    double shuffled = kept_energy(a, &dense), in_order = kept_energy(b, &dense);
    print_message("hidden structure: shuffled %.4f, in order %.4f of the planted energy\n", shuffled / planted,
                  in_order / planted);
    check_shuffled(a, 16, K / 4);
    assert_true(shuffled >= 0.99 * planted);
    assert_true(in_order < 0.7 * planted);
    lac_mask_free(a);
    lac_mask_free(b);
}

/* All weights the same, all zero, all NaN: still a shuffle by the rules. */
static void test_flat(void **state)
{
    (void)state;
    const double flat[] = {0, 1, NAN, INFINITY, 1e-45, 3e38};
    for (size_t i = 0; i < sizeof flat / sizeof *flat; i++) {
        test_matrix dense = test_matrix_make(21, 30, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 0, 0);
        for (int j = 0; j < 21 * 30; j++) test_matrix_set(&dense, j / 30, j % 30, flat[i]);
        lac_mask *mask = prune(&dense.view, "shfl4:10%");
        check_shuffled(mask, 4, 3);
        for (int64_t r = 0; r < 21; r++) assert_int_equal(mask->row_perm[r], r);
        for (int64_t r = 0; r < 21; r++) assert_int_equal(lac_mask_row(mask, r)[0], 7);
        lac_mask_free(mask);
        test_matrix_free(&dense);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test_of_cases(test_vnm_share),
        test_of_cases(test_never_below_order),
        cmocka_unit_test(test_hidden_structure),
        cmocka_unit_test(test_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
