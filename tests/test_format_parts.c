/* test_format_parts.c - lac_weight_from_parts against hostile bytes: every kind of damage is found and named. */
#include "format_case.h"

/* A valid weight's description and bytes, to be damaged. */
typedef struct sample {
    lac_weight_info info;
    uint8_t bytes[LAC_PART_COUNT][512];
    lac_span parts[LAC_PART_COUNT];
} sample;

/* A random weight of n x k. */
static sample make_sample(const char *text, int64_t n, int64_t k, lac_index_encoding encoding)
{
    case_rng rng = {42};
    sample s = {.info = {.size = sizeof s.info}};
    lac_pattern pattern = parse(text);
    uint8_t keep[4096];
    float data[4096];
    case_keep(&rng, &pattern, n, k, 1, keep);
    for (int64_t i = 0; i < n * k; i++) data[i] = keep[i] ? (float)(1 + i) : 0;
    lac_matrix dense = {data, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, n, k, 0};
    lac_compress_options options = {.size = sizeof options, .encoding = encoding, .dtype = LAC_DTYPE_F16};
    lac_mask *mask;
    lac_weight *w;
    ASSERT_OK(lac_mask_from_matrix(&dense, &pattern, &mask));
    ASSERT_OK(lac_weight_compress(&dense, mask, &options, &w));
    ASSERT_OK(lac_weight_get_info(w, &s.info));
    for (int i = 0; i < LAC_PART_COUNT; i++) {
        ASSERT_OK(lac_weight_get_part(w, (lac_part)i, &s.parts[i]));
        assert_true(s.parts[i].bytes <= sizeof s.bytes[i]);
        if (s.parts[i].bytes) memcpy(s.bytes[i], s.parts[i].data, s.parts[i].bytes);
    }
    lac_mask_free(mask);
    lac_weight_free(w);
    return s;
}

/* The sample's spans point into itself. */
static void aim(sample *s)
{
    for (int i = 0; i < LAC_PART_COUNT; i++) {
        if (s->parts[i].data) s->parts[i].data = s->bytes[i];
    }
}

static void set_u32(sample *s, lac_part part, int64_t i, uint32_t value) { memcpy(s->bytes[part] + 4 * i, &value, 4); }

static void rejects(sample *s, const char *words)
{
    lac_weight *w = NULL;
    ASSERT_FAILS(lac_weight_from_parts(&s->info, s->parts, &w), LAC_STATUS_INVALID_ARGUMENT, words);
    assert_null(w);
}

static void accepts(sample *s)
{
    lac_weight *w = NULL;
    ASSERT_OK(lac_weight_from_parts(&s->info, s->parts, &w));
    lac_weight_free(w);
}

#define START(TEXT, N, K, ENCODING)                                                                                            \
    s = make_sample(TEXT, N, K, ENCODING);                                                                                     \
    aim(&s);                                                                                                                   \
    accepts(&s)

static void test_packed(void **state)
{
    (void)state;
    sample s;
    START("2:5", 2, 12, LAC_INDEX_ENCODING_PACKED); /* 3 bits x 6 entries in 3 bytes, groups of 5, 5 and 2 */
    s.bytes[LAC_PART_INDEX][3] = (uint8_t)((s.bytes[LAC_PART_INDEX][3] & ~0x38) | 5 << 3);
    rejects(&s, "index: row group 1, entry 1 is 5, but its group has 5 units");
    START("2:5", 2, 12, LAC_INDEX_ENCODING_PACKED);
    s.bytes[LAC_PART_INDEX][0] = (uint8_t)((s.bytes[LAC_PART_INDEX][0] & ~0x3f) | 3 | 3 << 3);
    rejects(&s, "index: row group 0, entry 1 is 3 after 3: entries must ascend");
    START("2:5", 2, 12, LAC_INDEX_ENCODING_PACKED);
    s.bytes[LAC_PART_INDEX][2] = 2 << 1; /* entry 5: bits 15 to 17 hold 0 of 0, 1 */
    rejects(&s, "index: row group 0");
    START("2:5", 2, 12, LAC_INDEX_ENCODING_PACKED);
    s.bytes[LAC_PART_INDEX][5] |= 0x80;
    rejects(&s, "index: row group 1, its last byte is 0x80, but the 6 spare bits must be zero");
    START("2:5", 2, 12, LAC_INDEX_ENCODING_PACKED);
    s.parts[LAC_PART_INDEX].bytes--;
    rejects(&s, "index: has 5 bytes, but must have 6");
    START("2:5", 2, 12, LAC_INDEX_ENCODING_PACKED);
    s.parts[LAC_PART_INDEX] = (lac_span){NULL, 0};
    rejects(&s, "index: is absent, but must have 6 bytes");
}

static void test_bitmask(void **state)
{
    (void)state;
    sample s;
    START("2:5", 2, 12, LAC_INDEX_ENCODING_BITMASK);
    s.bytes[LAC_PART_INDEX][2] |= 0x1f;
    rejects(&s, "index: row group 1, group 0 has 5 bits set, but must have 2");
    START("2:5", 2, 12, LAC_INDEX_ENCODING_BITMASK);
    s.bytes[LAC_PART_INDEX][1] &= (uint8_t)~0x04;
    rejects(&s, "index: row group 0, group 2 has 1 bits set, but must have 2");
    START("2:5", 2, 12, LAC_INDEX_ENCODING_BITMASK);
    s.bytes[LAC_PART_INDEX][3] |= 0x10;
    rejects(&s, "but the 4 spare bits must be zero");
    START("2:5", 2, 12, LAC_INDEX_ENCODING_BITMASK);
    s.info.encoding = LAC_INDEX_ENCODING_IMPLICIT;
    rejects(&s, "encoding is implicit");
    s.info.encoding = LAC_INDEX_ENCODING_COLUMNS;
    rejects(&s, "encoding is columns");
    s.info.encoding = (lac_index_encoding)17;
    rejects(&s, "encoding is 17");
}

static void test_positions(void **state)
{
    (void)state;
    sample s;
    START("3:2:8", 4, 11, LAC_INDEX_ENCODING_AUTO); /* groups of 8 and 3; 4 slots; row groups of 3 rows and of 1 */
    uint8_t *positions = s.bytes[LAC_PART_POSITIONS];
    assert_int_equal(s.parts[LAC_PART_POSITIONS].bytes, 3 + 1);
    /* Slot 0 and slot 1 of row 0 are values 0 and 3. */
    positions[0] = (uint8_t)((positions[0] & ~0xc3) | 2 | 2 << 6);
    rejects(&s, "positions: row group 0, slot 1, row 0 is 2 after 2: positions must ascend");
    START("3:2:8", 4, 11, LAC_INDEX_ENCODING_AUTO);
    /* Row group 1 has 4 values in one byte; slots 2 and 3 are of the group of 3 inputs. */
    positions[3] |= 0xc0;
    rejects(&s, "positions: row group 1, slot 3, row 0 is 3, but its group selects 3 inputs");
    START("3:2:8", 1, 9, LAC_INDEX_ENCODING_AUTO);
    positions[0] |= 0x40; /* 3 values: two spare bits */
    rejects(&s, "positions: row group 0, its last byte is");
    START("3:2:8", 4, 11, LAC_INDEX_ENCODING_AUTO);
    s.parts[LAC_PART_POSITIONS].bytes++;
    rejects(&s, "positions: has 5 bytes, but must have 4");
    START("2:4:8", 4, 16, LAC_INDEX_ENCODING_AUTO); /* N = 4: no positions */
    assert_null(s.parts[LAC_PART_POSITIONS].data);
    s.parts[LAC_PART_POSITIONS] = (lac_span){s.bytes[LAC_PART_POSITIONS], 4};
    rejects(&s, "positions: must be absent");
}

static void test_columns(void **state)
{
    (void)state;
    sample s;
    START("vw2:50%", 5, 9, LAC_INDEX_ENCODING_AUTO); /* at most 5 of 9 */
    set_u32(&s, LAC_PART_COUNTS, 1, 6);
    rejects(&s, "counts: row group 1 keeps 6 units, but the pattern allows 5");
    set_u32(&s, LAC_PART_COUNTS, 1, UINT32_MAX);
    rejects(&s, "counts: row group 1 keeps 4294967295 units");
    START("vw2:50%", 5, 9, LAC_INDEX_ENCODING_AUTO);
    s.parts[LAC_PART_COUNTS].bytes = 8;
    rejects(&s, "counts: has 8 bytes, but must have 12");
    START("vw2:50%", 5, 9, LAC_INDEX_ENCODING_AUTO);
    s.parts[LAC_PART_COUNTS] = (lac_span){NULL, 0};
    rejects(&s, "counts: has 0 bytes, but must have 12");
    START("vw2:50%", 5, 9, LAC_INDEX_ENCODING_AUTO);
    s.parts[LAC_PART_COLUMNS].bytes -= 4;
    rejects(&s, "columns: has");
    START("vw9:100%", 2, 9, LAC_INDEX_ENCODING_AUTO);
    for (uint32_t i = 0; i < 9; i++) s.bytes[LAC_PART_COLUMNS][4 * i] = (uint8_t)i;
    set_u32(&s, LAC_PART_COUNTS, 0, 9);
    s.parts[LAC_PART_COLUMNS] = (lac_span){s.bytes[LAC_PART_COLUMNS], 36};
    s.parts[LAC_PART_VALUES] = (lac_span){s.bytes[LAC_PART_VALUES], 36};
    accepts(&s);
    set_u32(&s, LAC_PART_COLUMNS, 8, 9);
    rejects(&s, "columns: row group 0, entry 8 is 9, but there are 9 units");
    set_u32(&s, LAC_PART_COLUMNS, 8, 7);
    rejects(&s, "columns: row group 0, entry 8 is 7 after 7: entries must ascend");
    s.parts[LAC_PART_INDEX] = (lac_span){s.bytes[LAC_PART_INDEX], 1};
    rejects(&s, "index: must be absent");
    s.parts[LAC_PART_INDEX] = (lac_span){NULL, 0};
    s.info.encoding = LAC_INDEX_ENCODING_PACKED;
    rejects(&s, "encoding is packed, but a free distribution needs columns");
}

static void test_values(void **state)
{
    (void)state;
    sample s;
    START("bw2x4:1:1", 3, 6, LAC_INDEX_ENCODING_AUTO); /* the second block has 2 columns past k */
    s.bytes[LAC_PART_VALUES][2 * (6 * 2)] = 1;
    rejects(&s, "values: row group 0, value 12 lies past column 5 and must be zero");
    START("bw2x4:1:1", 3, 6, LAC_INDEX_ENCODING_AUTO);
    s.bytes[LAC_PART_VALUES][2 * (16 + 7) + 1] = 0x80; /* -0.0 */
    rejects(&s, "values: row group 1, value 23");
    START("bw2x4:50%", 3, 6, LAC_INDEX_ENCODING_AUTO);
    s.parts[LAC_PART_VALUES].bytes += 2;
    rejects(&s, "values: has");
    START("2:4", 3, 8, LAC_INDEX_ENCODING_AUTO);
    s.parts[LAC_PART_VALUES].data = NULL;
    rejects(&s, "values: data is NULL, but bytes is 24");
    s.parts[LAC_PART_VALUES].bytes = 0;
    rejects(&s, "values: is absent, but must have 24 bytes");
    START("2:4", 3, 8, LAC_INDEX_ENCODING_AUTO);
    s.parts[LAC_PART_SCALES] = (lac_span){s.bytes[LAC_PART_SCALES], 4};
    rejects(&s, "scales: must be absent");
}

static void test_permutations(void **state)
{
    (void)state;
    sample s;
    START("shfl2:50%", 5, 8, LAC_INDEX_ENCODING_AUTO);
    assert_non_null(s.parts[LAC_PART_ROW_PERM].data);
    set_u32(&s, LAC_PART_ROW_PERM, 3, 5);
    rejects(&s, "row_perm: entry 3 is 5, but must be below n_out, 5");
    uint32_t first;
    memcpy(&first, s.bytes[LAC_PART_ROW_PERM], 4);
    set_u32(&s, LAC_PART_ROW_PERM, 3, first);
    char words[64];
    snprintf(words, sizeof words, "row_perm: %u occurs twice", (unsigned)first);
    rejects(&s, words);
    START("shfl2:50%", 5, 8, LAC_INDEX_ENCODING_AUTO);
    s.parts[LAC_PART_ROW_PERM].bytes = 16;
    rejects(&s, "row_perm: has 16 bytes, but must have 20");
    START("shfl2:50%", 5, 8, LAC_INDEX_ENCODING_AUTO);
    s.info.n_out = 9; /* a shard of a whole of 9 rows */
    set_u32(&s, LAC_PART_ROW_PERM, 3, 8);
    accepts(&s);
    s.info.n_out = 4;
    rejects(&s, "n_out is 4, but must be at least n, 5");
    s.info.n_out = (int64_t)LAC_MAX_DIMENSION + 1;
    rejects(&s, "n_out is 2147483648");
    START("2:4", 3, 8, LAC_INDEX_ENCODING_AUTO);
    s.info.n_out = 4;
    rejects(&s, "n_out is 4, but without row_perm it must be n, 3");
    s.info.n_out = 0;
    s.info.k_in = 9;
    rejects(&s, "k_in is 9, but without col_perm it must be k, 8");
    for (uint32_t i = 0; i < 8; i++) set_u32(&s, LAC_PART_COL_PERM, i, 8 - i);
    s.parts[LAC_PART_COL_PERM] = (lac_span){s.bytes[LAC_PART_COL_PERM], 32};
    accepts(&s);
    s.info.k_in = 8;
    rejects(&s, "col_perm: entry 0 is 8, but must be below k_in, 8");
}

static void test_description(void **state)
{
    (void)state;
    sample s;
    lac_weight *w = NULL;
    START("2:4", 3, 8, LAC_INDEX_ENCODING_AUTO);
    s.info.n = 4;
    s.info.n_out = 0;
    rejects(&s, "values: has 24 bytes, but must have 32");
    s.info.n = -1;
    rejects(&s, "n is -1");
    s.info.n = (int64_t)LAC_MAX_DIMENSION + 1;
    rejects(&s, "n is 2147483648");
    s.info.n = s.info.k = LAC_MAX_DIMENSION;
    s.info.k_in = 0;
    rejects(&s, "must have");
    START("2:4", 3, 8, LAC_INDEX_ENCODING_AUTO);
    s.info.dtype = LAC_DTYPE_F64;
    rejects(&s, "dtype is f64");
    s.info.dtype = LAC_DTYPE_NONE;
    rejects(&s, "dtype is none");
    START("2:4", 3, 8, LAC_INDEX_ENCODING_AUTO);
    s.info.pattern.n = 5;
    rejects(&s, "N is 5");
    s.info.size = 0;
    rejects(&s, "size");
    ASSERT_FAILS(lac_weight_from_parts(NULL, s.parts, &w), LAC_STATUS_INVALID_ARGUMENT, "info is NULL");
    ASSERT_FAILS(lac_weight_from_parts(&s.info, NULL, &w), LAC_STATUS_INVALID_ARGUMENT, "parts is NULL");
    ASSERT_FAILS(lac_weight_from_parts(&s.info, s.parts, NULL), LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
}

/* Random damage never makes a weight that reads outside itself: what is accepted decompresses. */
static void test_random_damage(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:5", "3:2:8", "vw2:50%", "bw2x4:1:3", "shfl2:50%", "vw3:2:7", "1:4:9"};
    print_message("seeds 1 to 4000\n");
    int accepted = 0, rejected = 0;
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        case_rng rng = {seed};
        sample s = make_sample(patterns[case_below(&rng, 7)], 1 + case_below(&rng, 6), 1 + case_below(&rng, 25),
                               LAC_INDEX_ENCODING_AUTO);
        aim(&s);
        for (int64_t damage = 1 + case_below(&rng, 2); damage > 0; damage--) {
            int part = (int)case_below(&rng, LAC_PART_COUNT - 1);
            if (case_below(&rng, 8) == 0) part = LAC_PART_INDEX;
            if (s.parts[part].bytes)
                s.bytes[part][case_below(&rng, (int64_t)s.parts[part].bytes)] ^= (uint8_t)(1 << case_below(&rng, 8));
            if (case_below(&rng, 10) == 0) s.info.k += case_below(&rng, 3) - 1, s.info.k_in = 0;
            if (case_below(&rng, 10) == 0) s.info.n += case_below(&rng, 3) - 1, s.info.n_out = 0;
        }
        lac_weight *w;
        if (lac_weight_from_parts(&s.info, s.parts, &w)) {
            assert_true(strlen(lac_last_error()) > 0);
            rejected++;
            continue;
        }
        accepted++;
        uint32_t *read = case_read(w);
        double *back = malloc((size_t)(s.info.n * s.info.k + 1) * sizeof *back);
        lac_matrix dense = {back, LAC_DTYPE_F64, LAC_LAYOUT_ROW_MAJOR, s.info.n, s.info.k, 0};
        ASSERT_OK(lac_weight_decompress(w, &dense));
        for (int64_t i = 0; i < s.info.n * s.info.k; i++) {
            double wanted = lac_f16_to_f32((uint16_t)read[i]);
            assert_true(back[i] == wanted || (isnan(back[i]) && isnan(wanted)));
        }
        free(read);
        free(back);
        lac_weight_free(w);
    }
    assert_true(accepted > 200 && rejected > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed),      cmocka_unit_test(test_bitmask),       cmocka_unit_test(test_positions),
        cmocka_unit_test(test_columns),     cmocka_unit_test(test_values),        cmocka_unit_test(test_permutations),
        cmocka_unit_test(test_description), cmocka_unit_test(test_random_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
