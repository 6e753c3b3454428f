/* test_pattern_check.c - lac_pattern_check: what obeys, and where exactly it first does not; how masks are filled up. */
#include "format_case.h"

static lac_matrix view(float *data, int64_t n, int64_t k)
{
    return (lac_matrix){data, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, n, k, 0};
}

/* Rows of digits, one text each: '.' and '0' are zeros, 'n' is NaN, '-' is -0.0. */
static lac_matrix draw(float *data, const char *const *rows, int64_t n)
{
    int64_t k = (int64_t)strlen(rows[0]);
    for (int64_t r = 0; r < n; r++) {
        assert_int_equal(strlen(rows[r]), k);
        for (int64_t c = 0; c < k; c++) {
            char mark = rows[r][c];
            data[r * k + c] = mark == '.'   ? 0
                              : mark == '-' ? -0.0f
                              : mark == 'n' ? NAN
                              : mark == 'i' ? INFINITY
                                            : (float)(mark - '0');
        }
    }
    return view(data, n, k);
}

static void check_obeys(const char *text, const char *const *rows, int64_t n)
{
    float data[256];
    lac_matrix dense = draw(data, rows, n);
    lac_pattern pattern = parse(text);
    lac_pattern_violation violation = {.size = sizeof violation, .row = -7};
    if (lac_pattern_check(&dense, &pattern, &violation)) fail_msg("%s: %s", text, lac_last_error());
    assert_int_equal(violation.row, -7);
}

static void check_violates(const char *text, const char *const *rows, int64_t n, int64_t row, int64_t col, int64_t kept,
                           int64_t allowed)
{
    float data[256];
    lac_matrix dense = draw(data, rows, n);
    lac_pattern pattern = parse(text);
    lac_pattern_violation v = {.size = sizeof v};
    ASSERT_FAILS(lac_pattern_check(&dense, &pattern, &v), LAC_STATUS_PATTERN_VIOLATED, "dense does not obey");
    if (v.row != row || v.col != col || v.kept != kept || v.allowed != allowed) {
        fail_msg("%s: row %lld, col %lld, kept %lld, allowed %lld", text, (long long)v.row, (long long)v.col, (long long)v.kept,
                 (long long)v.allowed);
    }
    char words[64];
    snprintf(words, sizeof words, "row %lld, column %lld", (long long)row, (long long)col);
    assert_non_null(strstr(v.message, words));
    assert_non_null(strstr(v.message, text));
    assert_non_null(strstr(lac_last_error(), v.message));
    ASSERT_FAILS(lac_pattern_check(&dense, &pattern, NULL), LAC_STATUS_PATTERN_VIOLATED, words);
    lac_mask *mask = NULL, *bare;
    ASSERT_FAILS(lac_mask_from_matrix(&dense, &pattern, &mask), LAC_STATUS_PATTERN_VIOLATED, words);
    ASSERT_OK(lac_mask_from_nonzeros(&dense, &bare));
    ASSERT_FAILS(lac_mask_with_pattern(bare, &pattern, &mask), LAC_STATUS_PATTERN_VIOLATED, words);
    assert_null(mask);
    lac_mask_free(bare);
}

#define ROWS(...) (const char *const[]){__VA_ARGS__}, (int64_t)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static void test_obeys(void **state)
{
    (void)state;
    check_obeys("2:4", ROWS("12..1..1", "....-1-1", "n..i...."));
    check_obeys("2:4", ROWS("12..11", "...1.1")); /* the last group has two units and keeps both */
    check_obeys("4:4", ROWS("12345", "12345"));
    check_obeys("1:1", ROWS("123"));
    check_obeys("1:256", ROWS("..1......."));
    check_obeys("vw2:1:2", ROWS("1..1", ".-.1", ".11.", "..1."));
    check_obeys("vw9:1:2", ROWS("1..1", "...1"));
    check_obeys("bw2x2:1:2", ROWS("1.....1", ".1.....", "..12..."));
    check_obeys("2:2:4", ROWS("12..", "..34"));
    check_obeys("2:2:8", ROWS("1..1....1", ".1..1...."));
    check_obeys("25%", ROWS("1..1....", "......11"));
    check_obeys("1%", ROWS("1...", "...1")); /* at least one */
    check_obeys("vw2:50%", ROWS("1.1.", "1...", ".1.1"));
    check_obeys("shfl2:50%", ROWS("1.1.", ".1.1", "1.1.", ".1.1"));
    check_obeys("shfl2:50%", ROWS("1...", ".1.1", "..1.", "...1")); /* unions that fit */
    check_obeys("shfl2:50%", ROWS(".1.1", "1.1.", "1.1."));         /* the odd row stands last */
    check_obeys("shfl4:25%", ROWS("....", "....", "1...", "....", "...1"));
}

static void test_violates(void **state)
{
    (void)state;
    check_violates("2:4", ROWS("12..1..1", ".1.2111."), 1, 6, 3, 2);
    check_violates("1:4", ROWS("...1.1.1"), 0, 7, 2, 1);
    check_violates("1:4", ROWS("1...nn"), 0, 5, 2, 1);
    check_violates("1:4", ROWS("1...", "-i1."), 1, 2, 2, 1);
    check_violates("100:256",
                   (const char *const[]){"1111111111111111111111111111111111111111111111111111111111111111111111111111111"
                                         "1111111111111111111111"},
                   1, 0, 100, 101, 100);
    /* Row order: row 0 takes unit 0, row 1 brings unit 1 as the second of one. */
    check_violates("vw2:1:2", ROWS("1...", ".1.."), 1, 1, 2, 1);
    check_violates("vw2:1:2", ROWS("1...", "1...", "..11", "...."), 2, 3, 2, 1);
    check_violates("bw2x2:1:2", ROWS("1......", "..1...."), 1, 2, 2, 1);
    check_violates("bw1x3:1:2", ROWS(".......", "..1..1."), 1, 5, 2, 1);
    check_violates("bw1x70:1:2",
                   (const char *const[]){"1....................................................................."
                                         "....................................................................11"},
                   1, 0, 138, 2, 1);
}

static void test_violates_vnm(void **state)
{
    (void)state;
    check_violates("2:2:8", ROWS("111.....", "........"), 0, 2, 3, 2);
    check_violates("3:2:8", ROWS("11......", "..11....", ".1...1.."), 2, 5, 5, 4); /* a fifth input */
    check_violates("3:2:8", ROWS("1.......", "..1.1.1.", ".1...1.."), 1, 6, 3, 2); /* the row first, though a fifth comes */
    check_violates("1:3:4", ROWS("111.1111"), 0, 7, 4, 3);
    check_violates("1:1:5", ROWS("....1.11."), 0, 7, 2, 1);
}

static void test_violates_free(void **state)
{
    (void)state;
    check_violates("25%", ROWS("1..1....", "11....11"), 1, 6, 4, 2);
    check_violates("vw2:25%", ROWS("1..1....", "1......1"), 1, 7, 3, 2);
    check_violates("shfl2:50%", ROWS("1.1.", "111.", "...."), 1, 2, 3, 2);
    check_violates("shfl2:50%", ROWS("11..", "..11", "1..1", ".11."), 1, 2, 4, 2);
}

/* By brute force: elements in row order, and the units seen so far of each group. Fills `keep` up when it obeys. */
static int judge(const lac_pattern *p, int64_t n, int64_t k, uint8_t *keep, lac_pattern_violation *v)
{
    int64_t un = case_min(p->unit_n, n), uk = case_min(p->unit_k, k), units = case_ceil(k, uk),
            vnm = p->family == LAC_FAMILY_VNM;
    int64_t step = p->m ? p->m : units, limit = !p->m ? case_free_limit(p, units) : vnm ? 4 : p->n;
    uint8_t *seen = malloc((size_t)units);
    for (int64_t r = 0; r < n; r++) {
        if (r % un == 0) memset(seen, 0, (size_t)units);
        for (int64_t c = 0; c < k; c++) {
            if (!keep[r * k + c]) continue;
            int64_t u = c / uk, q = u / step, count = 0, row_count = 0, all = 0, row_all = 0;
            for (int64_t i = q * step; i < case_min(units, (q + 1) * step); i++) {
                int any = 0;
                for (int64_t rr = r / un * un; rr < case_min(n, r / un * un + un); rr++) {
                    for (int64_t cc = i * uk; cc < case_min(k, i * uk + uk); cc++) any |= keep[rr * k + cc];
                }
                count += seen[i];
                all += any;
                if (vnm) row_all += keep[r * k + i];
                if (vnm && i < u) row_count += keep[r * k + i];
            }
            int row_full = vnm && row_count == p->n;
            if (row_full || (!seen[u] && count == limit)) {
                *v = (lac_pattern_violation){
                    .row = r, .col = c, .kept = row_full ? row_all : all, .allowed = row_full ? p->n : limit};
                free(seen);
                return 0;
            }
            seen[u] = 1;
        }
        if (r % un != un - 1 && r != n - 1) continue;
        int64_t r0 = r / un * un;
        for (int64_t q = 0; q < case_ceil(units, step) && p->m; q++) { /* the row group is done: fill it up */
            int64_t end = case_min(units, (q + 1) * step), count = 0;
            for (int64_t i = q * step; i < end; i++) count += seen[i];
            for (int64_t i = q * step; i < end && count < limit; i++) count += !seen[i], seen[i] = 1;
            for (int64_t rr = r0; vnm && rr <= r; rr++) {
                int64_t row_count = 0;
                for (int64_t i = q * step; i < end; i++) row_count += keep[rr * k + i];
                for (int64_t i = q * step; i < end && row_count < p->n; i++) {
                    if (seen[i] && !keep[rr * k + i]) keep[rr * k + i] = 1, row_count++;
                }
            }
        }
        for (int64_t rr = r0; rr <= r && !vnm; rr++) {
            for (int64_t c = 0; c < k; c++) keep[rr * k + c] = seen[c / uk];
        }
    }
    free(seen);
    return 1;
}

/* Random matrices that obey a pattern but for a few elements: the same verdict, the same place, the same fill. */
static void test_brute_force(void **state)
{
    (void)state;
    print_message("seeds 1 to 3000\n");
    int obeyed = 0, violated = 0;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        case_rng rng = {seed};
        lac_pattern pattern = case_pattern(&rng);
        if (pattern.family == LAC_FAMILY_SHUFFLED) continue;
        int64_t n = 1 + case_below(&rng, 12), k = 1 + case_below(&rng, 70);
        uint8_t *keep = malloc((size_t)(n * k));
        float *data = malloc((size_t)(n * k) * sizeof *data);
        case_keep(&rng, &pattern, n, k, 0, keep);
        for (int64_t extra = case_below(&rng, 2) * 12; extra > 0; extra--) keep[case_below(&rng, n * k)] = 1;
        for (int64_t i = 0; i < n * k; i++) data[i] = keep[i] ? 3 : case_below(&rng, 2) ? -0.0f : 0.0f;
        lac_matrix dense = view(data, n, k);
        lac_pattern_violation wanted, v = {.size = sizeof v};
        int obeys = judge(&pattern, n, k, keep, &wanted);
        lac_status status = lac_pattern_check(&dense, &pattern, &v);
        if (status != (obeys ? LAC_STATUS_OK : LAC_STATUS_PATTERN_VIOLATED))
            fail_msg("seed %llu: %d", (unsigned long long)seed, status);
        if (!obeys && (v.row != wanted.row || v.col != wanted.col || v.kept != wanted.kept || v.allowed != wanted.allowed)) {
            fail_msg("seed %llu: %s; wanted row %lld, column %lld, %lld of %lld", (unsigned long long)seed, v.message,
                     (long long)wanted.row, (long long)wanted.col, (long long)wanted.kept, (long long)wanted.allowed);
        }
        if (obeys) {
            lac_mask *mask;
            ASSERT_OK(lac_mask_from_matrix(&dense, &pattern, &mask));
            for (int64_t i = 0; i < n * k; i++) {
                if (lac_mask_get(mask, i / k, i % k) != keep[i])
                    fail_msg("seed %llu: element %lld", (unsigned long long)seed, (long long)i);
            }
            lac_mask_free(mask);
        }
        obeyed += obeys;
        violated += !obeys;
        free(keep);
        free(data);
    }
    assert_true(obeyed > 500 && violated > 500);
}

/* A bare mask under random permutations: checked and filled in stored order, spoken of in W's. */
static void test_permuted_masks(void **state)
{
    (void)state;
    print_message("seeds 1 to 1500\n");
    int obeyed = 0, violated = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        case_rng rng = {seed};
        lac_pattern pattern = case_pattern(&rng);
        int64_t n = 1 + case_below(&rng, 12), k = 1 + case_below(&rng, 70);
        uint8_t *keep = malloc((size_t)(n * k));
        case_keep(&rng, &pattern, n, k, 0, keep);
        int extra = pattern.family != LAC_FAMILY_SHUFFLED && case_below(&rng, 2);
        for (int i = 0; i < 12 * extra; i++) keep[case_below(&rng, n * k)] = 1;
        lac_mask *bare, *mask = NULL;
        ASSERT_OK(lac_mask_create(n, k, NULL, &bare));
        uint32_t *rows = bare->row_perm = lac_allocate((uint64_t)n * 4), *cols = bare->col_perm = lac_allocate((uint64_t)k * 4);
        case_shuffle(&rng, rows, n);
        case_shuffle(&rng, cols, k);
        for (int64_t i = 0; i < n * k; i++) {
            if (keep[i]) lac_mask_set(bare, rows[i / k], cols[i % k]);
        }
        lac_pattern_violation wanted;
        int obeys = judge(&pattern, n, k, keep, &wanted);
        if (obeys) {
            if (lac_mask_with_pattern(bare, &pattern, &mask))
                fail_msg("seed %llu: %s", (unsigned long long)seed, lac_last_error());
            for (int64_t i = 0; i < n * k; i++) {
                if (lac_mask_get(mask, rows[i / k], cols[i % k]) != keep[i])
                    fail_msg("seed %llu: element %lld", (unsigned long long)seed, (long long)i);
            }
            assert_memory_equal(mask->row_perm, rows, (size_t)n * 4);
            assert_memory_equal(mask->col_perm, cols, (size_t)k * 4);
        } else {
            char words[64];
            snprintf(words, sizeof words, "row %u, column %u is", (unsigned)rows[wanted.row], (unsigned)cols[wanted.col]);
            ASSERT_FAILS(lac_mask_with_pattern(bare, &pattern, &mask), LAC_STATUS_PATTERN_VIOLATED, words);
        }
        obeyed += obeys;
        violated += !obeys;
        lac_mask_free(mask);
        lac_mask_free(bare);
        free(keep);
    }
    assert_true(obeyed > 200 && violated > 200);
}

/* A row permutation that does not serve is replaced by one that does. */
static void test_shuffled_again(void **state)
{
    (void)state;
    float data[32];
    const char *const rows[] = {"11..", "11..", "..11", "..11"};
    lac_matrix dense = draw(data, rows, 4);
    lac_pattern pattern = parse("shfl2:50%");
    lac_mask *bare, *mask;
    ASSERT_OK(lac_mask_from_nonzeros(&dense, &bare));
    static const uint32_t wrong[] = {0, 2, 1, 3}, right[] = {0, 1, 2, 3};
    bare->row_perm = lac_allocate(sizeof wrong);
    memcpy(bare->row_perm, wrong, sizeof wrong);
    ASSERT_OK(lac_mask_with_pattern(bare, &pattern, &mask));
    assert_memory_equal(mask->row_perm, right, sizeof right);
    lac_mask_free(mask);
    lac_mask_free(bare);
}

/* Groups of rows that each lost some of their values: unequal subsets of their group's columns. */
static void test_shuffled_subsets(void **state)
{
    (void)state;
    enum { N = 61, K = 96, SIZE = 8 };
    print_message("seeds 1 to 50\n");
    for (uint64_t seed = 1; seed <= 50; seed++) {
        case_rng rng = {seed};
        lac_pattern pattern = parse("shfl8:25%");
        uint8_t keep[N * K];
        static float data[N * K];
        uint32_t rows[N];
        for (int64_t r0 = 0; r0 < N; r0 += SIZE) {
            case_pick(&rng, keep + r0 * K, K, K / 4);
            for (int64_t r = r0 + 1; r < case_min(N, r0 + SIZE); r++) memcpy(keep + r * K, keep + r0 * K, K);
        }
        case_shuffle(&rng, rows, N);
        for (int64_t i = 0; i < N * K; i++) data[rows[i / K] * K + i % K] = keep[i] && case_below(&rng, 10) ? 1 : 0;
        lac_matrix dense = view(data, N, K);
        lac_mask *mask;
        if (lac_mask_from_matrix(&dense, &pattern, &mask))
            fail_msg("seed %llu: %s", (unsigned long long)seed, lac_last_error());
        lac_mask_info info = {.size = sizeof info};
        ASSERT_OK(lac_mask_get_info(mask, &info));
        assert_non_null(info.row_perm);
        uint8_t used[N] = {0};
        for (int64_t i = 0; i < N; i++) {
            assert_true(info.row_perm[i] < N && !used[info.row_perm[i]]);
            used[info.row_perm[i]] = 1;
            int64_t count = 0;
            for (int64_t c = 0; c < K; c++) {
                int here = lac_mask_get(mask, info.row_perm[i], c);
                count += here;
                assert_int_equal(here, lac_mask_get(mask, info.row_perm[i / SIZE * SIZE], c));
                assert_true(here || data[info.row_perm[i] * K + c] == 0);
            }
            assert_true(count <= K / 4);
        }
        lac_mask_free(mask);
    }
}

/* Apply, energy, get and the bare mask. */
static void test_mask_calls(void **state)
{
    (void)state;
    float data[] = {1, 2, NAN, 4, 5, INFINITY, 7, 8};
    double wide[8];
    lac_matrix dense = view(data, 2, 4);
    lac_pattern pattern = parse("1:2");
    lac_mask *mask;
    ASSERT_OK(lac_mask_create(2, 4, &pattern, &mask));
    for (int r = 0; r < 2; r++) lac_mask_set(mask, r, 1), lac_mask_set(mask, r, 2);
    double kept = -1, total = -1;
    ASSERT_OK(lac_mask_energy(mask, &dense, &kept, &total));
    assert_true(kept == 4 + 49 && total == 1 + 4 + 16 + 25 + 49 + 64);
    for (int i = 0; i < 8; i++) wide[i % 4 * 2 + i / 4] = data[i];
    lac_matrix columns = {wide, LAC_DTYPE_F64, LAC_LAYOUT_COLUMN_MAJOR, 2, 4, 0};
    ASSERT_OK(lac_mask_energy(mask, &columns, &kept, &total));
    assert_true(kept == 4 + 49 && total == 1 + 4 + 16 + 25 + 49 + 64);
    ASSERT_OK(lac_mask_apply(mask, &dense));
    ASSERT_OK(lac_mask_apply(mask, &columns));
    assert_true(data[0] == 0 && data[1] == 2 && isnan(data[2]) && data[3] == 0 && data[4] == 0 && isinf(data[5]) &&
                data[6] == 7);
    for (int i = 0; i < 8; i++) assert_true(wide[i % 4 * 2 + i / 4] == data[i] || isnan(data[i]));
    assert_int_equal(lac_mask_get(mask, 1, 2), 1);
    assert_int_equal(lac_mask_get(mask, 2, 2) | lac_mask_get(mask, -1, 0) | lac_mask_get(mask, 0, 4) | lac_mask_get(NULL, 0, 0),
                     0);
    lac_mask_free(mask);
    ASSERT_OK(lac_mask_from_nonzeros(&dense, &mask));
    lac_mask_info info = {.size = sizeof info};
    ASSERT_OK(lac_mask_get_info(mask, &info));
    assert_true(info.n == 2 && info.k == 4 && info.kept == 4 && !info.has_pattern && !info.row_perm && !info.col_perm);
    dense.cols = 3;
    dense.ld = 4;
    ASSERT_FAILS(lac_mask_apply(mask, &dense), LAC_STATUS_INVALID_ARGUMENT, "2 x 3");
    ASSERT_FAILS(lac_mask_energy(mask, &dense, &kept, &total), LAC_STATUS_INVALID_ARGUMENT, "2 x 3");
    lac_mask_free(mask);
    lac_mask_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_obeys),          cmocka_unit_test(test_violates),         cmocka_unit_test(test_violates_vnm),
        cmocka_unit_test(test_violates_free),  cmocka_unit_test(test_brute_force),      cmocka_unit_test(test_permuted_masks),
        cmocka_unit_test(test_shuffled_again), cmocka_unit_test(test_shuffled_subsets), cmocka_unit_test(test_mask_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
