/* test_format_shard.c - shards of the compressed form equal slices of the dense one; cuts off a boundary are refused. */
#include "format_case.h"

/* A random boundary: a multiple of step, or the end. */
static int64_t random_cut(case_rng *rng, int64_t step, int64_t end)
{
    int64_t at = case_below(rng, end / step + 2) * step;
    return case_min(at, end);
}

static int64_t cut_step(const test_case *t, lac_axis axis)
{
    int64_t un = case_min(t->pattern.unit_n, t->n ? t->n : 1), uk = case_min(t->pattern.unit_k, t->k ? t->k : 1);
    return axis == LAC_AXIS_N ? un : t->pattern.m ? uk * t->pattern.m : uk;
}

/* The shard's numbers of stored rows and columns [row0, row0 + n) x [col0, col0 + k) of the whole's W. */
static void check_shard(const test_case *t, const lac_weight *shard, int64_t row0, int64_t n, int64_t col0, int64_t k)
{
    lac_weight_info info = {.size = sizeof info};
    ASSERT_OK(lac_weight_get_info(shard, &info));
    const uint32_t *rows = t->mask->row_perm, *cols = t->mask->col_perm;
    assert_int_equal(info.n, n);
    assert_int_equal(info.k, k);
    assert_int_equal(info.n_out, rows ? t->n : n);
    assert_int_equal(info.k_in, cols ? t->k : k);
    /* In the whole's place. */
    uint32_t *wanted = calloc((size_t)(info.n_out * info.k_in + 1), 4), *read = case_read(shard);
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = 0; c < k; c++) {
            int64_t i = rows ? rows[row0 + r] : row0 + r, j = cols ? cols[col0 + c] : col0 + c;
            wanted[(rows ? i : r) * info.k_in + (cols ? j : c)] = (uint32_t)get_bits(&t->dense.view, i, j);
        }
    }
    test_dense back = make_dense(info.dtype, LAC_LAYOUT_ROW_MAJOR, info.n_out, info.k_in, 1);
    ASSERT_OK(lac_weight_decompress(shard, &back.view));
    for (int64_t i = 0; i < info.n_out * info.k_in; i++) {
        uint32_t bits = (uint32_t)get_bits(&back.view, i / info.k_in, i % info.k_in);
        if (read[i] != wanted[i] || bits != wanted[i]) fail_msg("%s: shard differs at element %lld", t->text, (long long)i);
    }
    free(back.view.data);
    /* By itself: what is cut off is in stored order. */
    back = make_dense(info.dtype, LAC_LAYOUT_ROW_MAJOR, n, k, 0);
    ASSERT_OK(lac_weight_decompress(shard, &back.view));
    for (int64_t r = 0; r < n; r++) {
        for (int64_t c = 0; c < k; c++) {
            int64_t i = rows ? rows[row0 + r] : row0 + r, j = cols ? cols[col0 + c] : col0 + c;
            uint64_t bits = get_bits(&back.view, rows && n == t->n ? i : r, cols && k == t->k ? j : c);
            if (bits != get_bits(&t->dense.view, i, j))
                fail_msg("%s: shard differs at %lld, %lld", t->text, (long long)r, (long long)c);
        }
    }
    free(back.view.data);
    /* Its parts are valid, its pattern has a text. */
    lac_span parts[LAC_PART_COUNT];
    lac_weight *copy;
    for (int i = 0; i < LAC_PART_COUNT; i++) ASSERT_OK(lac_weight_get_part(shard, (lac_part)i, &parts[i]));
    if (lac_weight_from_parts(&info, parts, &copy)) fail_msg("%s: %s", t->text, lac_last_error());
    lac_weight_free(copy);
    char text[LAC_PATTERN_TEXT_SIZE];
    lac_pattern again;
    ASSERT_OK(lac_pattern_format(&info.pattern, text, sizeof text));
    ASSERT_OK(lac_pattern_parse(text, &again));
    assert_true(again.density == info.pattern.density);
    free(wanted);
    free(read);
}

static void shards(int permuted, uint64_t first_seed, int count)
{
    for (int i = 0; i < count; i++) {
        uint64_t seed = first_seed + (uint64_t)i;
        case_rng rng = {seed};
        test_case t = make_case(&rng, seed, permuted);
        lac_weight *w, *by_n, *by_k;
        ASSERT_OK(lac_weight_compress(&t.dense.view, t.mask, NULL, &w));
        int64_t r0 = random_cut(&rng, cut_step(&t, LAC_AXIS_N), t.n), r1 = random_cut(&rng, cut_step(&t, LAC_AXIS_N), t.n);
        int64_t c0 = random_cut(&rng, cut_step(&t, LAC_AXIS_K), t.k), c1 = random_cut(&rng, cut_step(&t, LAC_AXIS_K), t.k);
        int64_t row0 = case_min(r0, r1), row1 = r0 + r1 - row0, col0 = case_min(c0, c1), col1 = c0 + c1 - col0;
        if (lac_weight_shard(w, LAC_AXIS_N, row0, row1, &by_n)) fail_msg("%s: %s", t.text, lac_last_error());
        if (lac_weight_shard(w, LAC_AXIS_K, col0, col1, &by_k)) fail_msg("%s: %s", t.text, lac_last_error());
        check_shard(&t, by_n, row0, row1 - row0, 0, t.k);
        check_shard(&t, by_k, 0, t.n, col0, col1 - col0);
        lac_weight_free(w); /* shards live on their own */
        lac_weight_free(by_k);
        if (lac_weight_shard(by_n, LAC_AXIS_K, col0, col1, &by_k)) fail_msg("%s: %s", t.text, lac_last_error());
        check_shard(&t, by_k, row0, row1 - row0, col0, col1 - col0);
        lac_weight_free(by_n);
        lac_weight_free(by_k);
        free_case(&t);
    }
}

static void test_shards(void **state)
{
    (void)state;
    print_message("seeds 1 to 1500\n");
    shards(0, 1, 1500);
}

static void test_shards_permuted(void **state)
{
    (void)state;
    print_message("seeds 70001 to 70700\n");
    shards(1, 70001, 700);
}

static void test_cuts(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        lac_axis axis;
        int64_t begin, end;
        const char *words; /* NULL: allowed */
    } cases[] = {
        {"vw4:2:4", LAC_AXIS_N, 4, 8, NULL},
        {"vw4:2:4", LAC_AXIS_N, 8, 10, NULL},
        {"vw4:2:4", LAC_AXIS_N, 10, 10, NULL},
        {"vw4:2:4", LAC_AXIS_N, 3, 8, "begin is 3, which is no boundary: the nearest are 0 and 4"},
        {"vw4:2:4", LAC_AXIS_N, 4, 9, "end is 9, which is no boundary: the nearest are 8 and 10"},
        {"vw4:2:4", LAC_AXIS_K, 4, 14, NULL},
        {"vw4:2:4", LAC_AXIS_K, 4, 13, "end is 13, which is no boundary: the nearest are 12 and 14"},
        {"bw2x3:1:2", LAC_AXIS_K, 6, 12, NULL},
        {"bw2x3:1:2", LAC_AXIS_K, 3, 12, "begin is 3, which is no boundary: the nearest are 0 and 6"},
        {"bw2x3:50%", LAC_AXIS_K, 3, 12, NULL},
        {"bw2x3:50%", LAC_AXIS_K, 4, 12, "begin is 4, which is no boundary: the nearest are 3 and 6"},
        {"2:2:4", LAC_AXIS_K, 0, 6, "end is 6, which is no boundary: the nearest are 4 and 8"},
        {"2:4", LAC_AXIS_N, -1, 4, "begin is -1"},
        {"2:4", LAC_AXIS_N, 4, 3, "begin is 4 and end is 3"},
        {"2:4", LAC_AXIS_N, 0, 11, "end is 11"},
        {"2:4", (lac_axis)2, 0, 10, "axis is 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static float zeros[10 * 14];
        lac_pattern pattern = parse(cases[i].pattern);
        lac_matrix dense = {zeros, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 10, 14, 0};
        lac_mask *mask;
        lac_weight *w, *shard = NULL;
        ASSERT_OK(lac_mask_from_matrix(&dense, &pattern, &mask));
        ASSERT_OK(lac_weight_compress(&dense, mask, NULL, &w));
        if (cases[i].words) {
            ASSERT_FAILS(lac_weight_shard(w, cases[i].axis, cases[i].begin, cases[i].end, &shard), LAC_STATUS_INVALID_ARGUMENT,
                         cases[i].words);
            assert_null(shard);
        } else {
            ASSERT_OK(lac_weight_shard(w, cases[i].axis, cases[i].begin, cases[i].end, &shard));
        }
        lac_weight_free(shard);
        lac_weight_free(w);
        lac_mask_free(mask);
    }
}

/* A cut along k may hold more than its share: the shard's density says what it holds. */
static void test_raised_density(void **state)
{
    (void)state;
    float data[12] = {1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    lac_pattern pattern = parse("25%");
    lac_matrix dense = {data, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 1, 12, 0};
    lac_mask *mask;
    lac_weight *w, *shard;
    ASSERT_OK(lac_mask_from_matrix(&dense, &pattern, &mask));
    ASSERT_OK(lac_weight_compress(&dense, mask, NULL, &w));
    lac_weight_info info = {.size = sizeof info};
    ASSERT_OK(lac_weight_shard(w, LAC_AXIS_K, 0, 7, &shard));
    ASSERT_OK(lac_weight_get_info(shard, &info));
    assert_true(info.pattern.density == 0.43); /* 3 of 7 */
    lac_weight_free(shard);
    ASSERT_OK(lac_weight_shard(w, LAC_AXIS_K, 7, 12, &shard));
    ASSERT_OK(lac_weight_get_info(shard, &info));
    assert_true(info.pattern.density == 0.25 && info.kept == 0);
    lac_weight_free(shard);
    lac_weight_free(w);
    lac_mask_free(mask);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_shards_permuted),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_raised_density),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
