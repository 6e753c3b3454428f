/* test_format.c - the compressed weight: exact round trips, sizes, encodings, dtypes, overflow, edges. */
#include "format_case.h"

/* Every part has the bytes that lac_weight_measure says, when the distribution is full. */
static void check_sizes(const test_case *t, const lac_weight *w)
{
    lac_weight_info info = {.size = sizeof info}, measured;
    uint64_t bytes[LAC_PART_COUNT], part_bytes;
    ASSERT_OK(lac_weight_get_info(w, &info));
    measured = info;
    measured.kept = measured.value_bytes = measured.index_bytes = measured.dense_bytes = 0;
    if (lac_weight_measure(&measured, bytes)) fail_msg("%s: %s", t->text, lac_last_error());
    if (t->pattern.m == 0) {
        assert_true(info.value_bytes <= measured.value_bytes && info.index_bytes <= measured.index_bytes);
        return;
    }
    for (int i = 0; i < LAC_PART_COUNT; i++) {
        case_part(w, (lac_part)i, &part_bytes);
        if (part_bytes != bytes[i])
            fail_msg("%s: %s has %llu bytes", t->text, lac_part_name((lac_part)i), (unsigned long long)part_bytes);
    }
    assert_int_equal(info.kept, measured.kept);
    assert_int_equal(info.value_bytes, measured.value_bytes);
    assert_int_equal(info.index_bytes, measured.index_bytes);
    assert_int_equal(info.dense_bytes, measured.dense_bytes);
    assert_int_equal(info.dense_bytes, (uint64_t)(t->n * t->k) * lac_dtype_size(info.dtype));
}

/* The second reader and lac_weight_decompress both give the matrix back, bit by bit. */
static void check_round_trip(const test_case *t, const lac_weight *w, case_rng *rng)
{
    uint32_t *read = case_read(w);
    test_dense back = make_dense(t->dense.view.dtype, (lac_layout)case_below(rng, 2), t->n, t->k, case_below(rng, 3));
    if (lac_weight_decompress(w, &back.view)) fail_msg("%s: %s", t->text, lac_last_error());
    for (int64_t r = 0; r < t->n; r++) {
        for (int64_t c = 0; c < t->k; c++) {
            uint64_t wanted = get_bits(&t->dense.view, r, c);
            if (read[r * t->k + c] != wanted || get_bits(&back.view, r, c) != wanted) {
                fail_msg("%s: W[%lld][%lld] is %llx, read %x, decompressed %llx", t->text, (long long)r, (long long)c,
                         (unsigned long long)wanted, read[r * t->k + c], (unsigned long long)get_bits(&back.view, r, c));
            }
        }
    }
    int row_major = back.view.layout == LAC_LAYOUT_ROW_MAJOR;
    int64_t lines = row_major ? t->n : t->k, length = row_major ? t->k : t->n, size = (int64_t)lac_dtype_size(back.view.dtype);
    for (int64_t i = 0; i < lines; i++) {
        for (int64_t j = length * size; j < back.view.ld * size; j++) {
            assert_int_equal(((uint8_t *)back.view.data)[i * back.view.ld * size + j], 0xa5);
        }
    }
    free(read);
    free(back.view.data);
}

/* The weight's own bytes make an equal weight again. */
static void check_parts(const test_case *t, const lac_weight *w)
{
    lac_weight_info info = {.size = sizeof info};
    lac_span parts[LAC_PART_COUNT], again;
    lac_weight *copy;
    ASSERT_OK(lac_weight_get_info(w, &info));
    for (int i = 0; i < LAC_PART_COUNT; i++) ASSERT_OK(lac_weight_get_part(w, (lac_part)i, &parts[i]));
    if (lac_weight_from_parts(&info, parts, &copy)) fail_msg("%s: %s", t->text, lac_last_error());
    for (int i = 0; i < LAC_PART_COUNT; i++) {
        ASSERT_OK(lac_weight_get_part(copy, (lac_part)i, &again));
        assert_int_equal(again.bytes, parts[i].bytes);
        assert_int_equal(again.data == NULL, parts[i].data == NULL);
        assert_int_equal((uintptr_t)again.data % 64, 0);
        if (again.bytes) assert_memory_equal(again.data, parts[i].data, again.bytes);
    }
    lac_weight_free(copy);
}

/* There and back through a random encoding. */
static void round_trip(case_rng *rng, const test_case *t)
{
    static const lac_index_encoding encodings[] = {LAC_INDEX_ENCODING_AUTO, LAC_INDEX_ENCODING_PACKED,
                                                   LAC_INDEX_ENCODING_BITMASK};
    lac_compress_options options = {.size = sizeof options, .threads = (int32_t)case_below(rng, 2)};
    if (t->pattern.m) options.encoding = encodings[case_below(rng, 3)];
    lac_weight *w;
    if (lac_weight_compress(&t->dense.view, t->mask, &options, &w)) fail_msg("%s: %s", t->text, lac_last_error());
    check_sizes(t, w);
    check_round_trip(t, w, rng);
    check_parts(t, w);
    lac_weight_free(w);
}

static void round_trips(int permuted, uint64_t first_seed, int count)
{
    for (int i = 0; i < count; i++) {
        uint64_t seed = first_seed + (uint64_t)i;
        case_rng rng = {seed};
        test_case t = make_case(&rng, seed, permuted);
        round_trip(&rng, &t);
        free_case(&t);
    }
}

static void test_round_trips(void **state)
{
    (void)state;
    print_message("seeds 1000 to 4999\n");
    round_trips(0, 1000, 4000);
}

static void test_round_trips_permuted(void **state)
{
    (void)state;
    print_message("seeds 500000 to 501499\n");
    round_trips(1, 500000, 1500);
}

/* Nothing, one, less than a unit, less than a group, one more than it. */
static void test_edges(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "1:1",      "2:4",    "4:4",       "1:256",     "256:256",    "100:256",   "3:2:4",      "2:1:8",     "5:3:9",
        "64:4:256", "64:2:4", "vw7:1:3",   "vw100:5:5", "vw1:2:4",    "bw3x5:1:2", "bw9x90:1:1", "bw1x1:2:4", "bw2x64:3:4",
        "30%",      "vw3:1%", "vw50:100%", "bw4x4:50%", "bw50x50:1%", "shfl1:50%", "shfl3:40%",  "shfl99:1%"};
    static const int64_t sizes[] = {0, 1, 2, 3, 4, 5, 7, 9, 65, 257};
    uint64_t seed = 90000;
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        for (int i = 0; i < 10; i++) {
            for (int j = 0; j < 10; j++, seed++) {
                if (sizes[i] * sizes[j] > 2500) continue;
                case_rng rng = {seed};
                test_case t = make_case_of(&rng, seed, (i ^ j) & 1, parse(patterns[p]), sizes[i], sizes[j]);
                round_trip(&rng, &t);
                free_case(&t);
            }
        }
    }
}

/* 1 thread or 3: the same bytes. */
static void test_threads_agree(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        case_rng rng = {seed};
        test_case t = make_case(&rng, seed, 0);
        lac_weight *w[2];
        for (int i = 0; i < 2; i++) {
            lac_compress_options options = {.size = sizeof options, .threads = i ? 3 : 1};
            ASSERT_OK(lac_weight_compress(&t.dense.view, t.mask, &options, &w[i]));
        }
        for (int i = 0; i < LAC_PART_COUNT; i++) {
            uint64_t a_bytes, b_bytes;
            const uint8_t *a = case_part(w[0], (lac_part)i, &a_bytes), *b = case_part(w[1], (lac_part)i, &b_bytes);
            assert_int_equal(a_bytes, b_bytes);
            if (a_bytes) assert_memory_equal(a, b, a_bytes);
        }
        lac_weight_free(w[0]);
        lac_weight_free(w[1]);
        free_case(&t);
    }
}

static void check_encoding(const char *text, int64_t k, lac_index_encoding wanted, uint64_t index_bytes)
{
    lac_weight_info info = {.size = sizeof info, .pattern = parse(text), .n = 1, .k = k, .dtype = LAC_DTYPE_F32};
    ASSERT_OK(lac_weight_measure(&info, NULL));
    if (info.encoding != wanted || info.index_bytes != index_bytes) {
        fail_msg("%s, k %lld: encoding %d, %llu bytes", text, (long long)k, (int)info.encoding,
                 (unsigned long long)info.index_bytes);
    }
}

static void test_encoding_choice(void **state)
{
    (void)state;
    check_encoding("2:4", 64, LAC_INDEX_ENCODING_PACKED, 8); /* a tie: 2 x 2 bits against 4 */
    check_encoding("1:4", 64, LAC_INDEX_ENCODING_PACKED, 4);
    check_encoding("3:4", 64, LAC_INDEX_ENCODING_BITMASK, 8);
    check_encoding("4:4", 64, LAC_INDEX_ENCODING_IMPLICIT, 0);
    check_encoding("1:1", 64, LAC_INDEX_ENCODING_IMPLICIT, 0);
    check_encoding("8:32", 64, LAC_INDEX_ENCODING_BITMASK, 8); /* 8 x 5 bits against 32 */
    check_encoding("4:32", 64, LAC_INDEX_ENCODING_PACKED, 5);
    check_encoding("1:256", 1024, LAC_INDEX_ENCODING_PACKED, 4);
    check_encoding("255:256", 1024, LAC_INDEX_ENCODING_BITMASK, 128);
    check_encoding("1:2:4", 64, LAC_INDEX_ENCODING_IMPLICIT, 8); /* the 8 are positions: 32 values x 2 bits */
    check_encoding("1:4:8", 64, LAC_INDEX_ENCODING_BITMASK, 8);  /* N = 4: no positions; 12 bits against 8 */
    check_encoding("1:2:32", 64, LAC_INDEX_ENCODING_PACKED, 5 + 1);
    check_encoding("25%", 64, LAC_INDEX_ENCODING_COLUMNS, 4 + 16 * 4);
    lac_weight_info info = {.size = sizeof info, .pattern = parse("2:4"), .n = 1, .k = 8, .dtype = LAC_DTYPE_F32};
    info.encoding = LAC_INDEX_ENCODING_IMPLICIT;
    ASSERT_FAILS(lac_weight_measure(&info, NULL), LAC_STATUS_INVALID_ARGUMENT, "implicit");
    info.encoding = LAC_INDEX_ENCODING_COLUMNS;
    ASSERT_FAILS(lac_weight_measure(&info, NULL), LAC_STATUS_INVALID_ARGUMENT, "columns");
    info.encoding = (lac_index_encoding)9;
    ASSERT_FAILS(lac_weight_measure(&info, NULL), LAC_STATUS_INVALID_ARGUMENT, "encoding is 9");
    info.encoding = LAC_INDEX_ENCODING_AUTO;
    info.dtype = LAC_DTYPE_F64;
    ASSERT_FAILS(lac_weight_measure(&info, NULL), LAC_STATUS_INVALID_ARGUMENT, "f64");
    info.dtype = LAC_DTYPE_F32;
    info.pattern = parse("25%");
    info.encoding = LAC_INDEX_ENCODING_BITMASK;
    ASSERT_FAILS(lac_weight_measure(&info, NULL), LAC_STATUS_INVALID_ARGUMENT, "bitmask");
}

/* The formulas of docs/format.md, section Sizes, at a large size of each family. */
static void test_size_formulas(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        uint64_t values, rest;
    } cases[] = {
        {"2:4", 4096ull * 2048 * 2, 4096ull * 2048 * 2 / 8},
        {"8:32", 4096ull * 1024 * 2, 4096ull * 4096 / 8},
        {"vw32:8:32", 4096ull * 1024 * 2, 128ull * 4096 / 8},
        {"bw4x4:2:8", 1024ull * 256 * 16 * 2, 1024ull * 256 * 3 / 8},
        {"64:2:8", 4096ull * 1024 * 2, 64ull * 4096 / 8 + 4096ull * 1024 * 2 / 8},
        {"shfl64:25%", 4096ull * 1024 * 2, 64ull * (1 + 1024) * 4 + 4096ull * 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lac_weight_info info = {
            .size = sizeof info, .pattern = parse(cases[i].pattern), .n = 4096, .k = 4096, .dtype = LAC_DTYPE_F16};
        info.has_row_perm = info.pattern.family == LAC_FAMILY_SHUFFLED;
        ASSERT_OK(lac_weight_measure(&info, NULL));
        if (info.value_bytes != cases[i].values || info.index_bytes != cases[i].rest) {
            fail_msg("%s: %llu + %llu bytes", cases[i].pattern, (unsigned long long)info.value_bytes,
                     (unsigned long long)info.index_bytes);
        }
    }
    lac_weight_info huge = {.size = sizeof huge, .pattern = parse("bw2000000000x2000000000:1:1"), .n = LAC_MAX_DIMENSION};
    huge.k = LAC_MAX_DIMENSION;
    huge.dtype = LAC_DTYPE_F32;
    ASSERT_FAILS(lac_weight_measure(&huge, NULL), LAC_STATUS_INVALID_ARGUMENT, "too large");
}

static lac_status compress_one(lac_dtype from, double value, lac_dtype to, lac_overflow overflow, lac_weight **out)
{
    uint64_t data[8] = {0};
    lac_pattern pattern = parse("2:4");
    lac_matrix dense = {data, from, LAC_LAYOUT_ROW_MAJOR, 2, 4, 0};
    lac_store_f64(data, from, 1 * 4 + 2, value);
    lac_mask *mask;
    ASSERT_OK(lac_mask_from_matrix(&dense, &pattern, &mask));
    lac_compress_options options = {.size = sizeof options, .dtype = to, .overflow = overflow};
    lac_status status = lac_weight_compress(&dense, mask, &options, out);
    lac_mask_free(mask);
    return status;
}

/* The element 1, 2 of the weight above as a double. */
static double value_of(lac_weight *w)
{
    double back[8];
    lac_matrix dense = {back, LAC_DTYPE_F64, LAC_LAYOUT_ROW_MAJOR, 2, 4, 0};
    ASSERT_OK(lac_weight_decompress(w, &dense));
    lac_weight_free(w);
    for (int i = 0; i < 8; i++) assert_true(i == 6 || (back[i] == 0 && !signbit(back[i])));
    return back[6];
}

static void test_overflow(void **state)
{
    (void)state;
    lac_weight *w = NULL;
    static const char where[] = "row 1, column 2 is 65520, but the largest f16 is 65504";
    ASSERT_FAILS(compress_one(LAC_DTYPE_F32, 65520, LAC_DTYPE_F16, LAC_OVERFLOW_ERROR, &w), LAC_STATUS_VALUE_OUT_OF_RANGE,
                 where);
    ASSERT_FAILS(compress_one(LAC_DTYPE_F64, -1e39, LAC_DTYPE_NONE, LAC_OVERFLOW_ERROR, &w), LAC_STATUS_VALUE_OUT_OF_RANGE,
                 "-1e+39");
    ASSERT_FAILS(compress_one(LAC_DTYPE_F32, 3.4e38, LAC_DTYPE_BF16, LAC_OVERFLOW_ERROR, &w), LAC_STATUS_VALUE_OUT_OF_RANGE,
                 "bf16");
    ASSERT_FAILS(compress_one(LAC_DTYPE_BF16, 1e5, LAC_DTYPE_F16, LAC_OVERFLOW_ERROR, &w), LAC_STATUS_VALUE_OUT_OF_RANGE,
                 "f16");
    assert_null(w);
    ASSERT_OK(compress_one(LAC_DTYPE_F32, 65519, LAC_DTYPE_F16, LAC_OVERFLOW_ERROR, &w));
    assert_true(value_of(w) == 65504);
    ASSERT_OK(compress_one(LAC_DTYPE_F32, -1e30, LAC_DTYPE_F16, LAC_OVERFLOW_SATURATE, &w));
    assert_true(value_of(w) == -65504);
    ASSERT_OK(compress_one(LAC_DTYPE_F64, 1e39, LAC_DTYPE_F32, LAC_OVERFLOW_SATURATE, &w));
    assert_true(value_of(w) == lac_dtype_max(LAC_DTYPE_F32));
    ASSERT_OK(compress_one(LAC_DTYPE_F64, -1e300, LAC_DTYPE_BF16, LAC_OVERFLOW_SATURATE, &w));
    assert_true(value_of(w) == -lac_dtype_max(LAC_DTYPE_BF16));
}

static void test_non_finite(void **state)
{
    (void)state;
    static const lac_dtype inputs[] = {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16, LAC_DTYPE_F64};
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 3; j++) {
            for (int overflow = 0; overflow < 2; overflow++) {
                lac_weight *w;
                ASSERT_OK(compress_one(inputs[i], INFINITY, case_storage[j], (lac_overflow)overflow, &w));
                assert_true(value_of(w) == INFINITY);
                ASSERT_OK(compress_one(inputs[i], -INFINITY, case_storage[j], (lac_overflow)overflow, &w));
                assert_true(value_of(w) == -INFINITY);
                ASSERT_OK(compress_one(inputs[i], NAN, case_storage[j], (lac_overflow)overflow, &w));
                assert_true(isnan(value_of(w)));
            }
        }
    }
    /* -0.0 is a zero to the check, but keeps its sign when it is kept; a dropped one becomes +0.0. */
    float data[4] = {-0.0f, -0.0f, 1, 2};
    lac_pattern pattern = parse("3:4");
    lac_matrix dense = {data, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 1, 4, 0};
    lac_mask *mask;
    lac_weight *w;
    ASSERT_OK(lac_mask_from_matrix(&dense, &pattern, &mask));
    ASSERT_OK(lac_weight_compress(&dense, mask, NULL, &w));
    float back[4];
    dense.data = back;
    ASSERT_OK(lac_weight_decompress(w, &dense));
    assert_true(signbit(back[0]) && back[0] == 0 && !signbit(back[1]) && back[1] == 0 && back[2] == 1 && back[3] == 2);
    lac_mask_free(mask);
    lac_weight_free(w);
}

static void test_decompress_overflow(void **state)
{
    (void)state;
    lac_weight *w;
    ASSERT_OK(compress_one(LAC_DTYPE_F32, 70000, LAC_DTYPE_F32, LAC_OVERFLOW_ERROR, &w));
    uint16_t back[8], before[8];
    memset(back, 0x5a, sizeof back);
    memcpy(before, back, sizeof back);
    lac_matrix dense = {back, LAC_DTYPE_F16, LAC_LAYOUT_COLUMN_MAJOR, 2, 4, 0};
    ASSERT_FAILS(lac_weight_decompress(w, &dense), LAC_STATUS_VALUE_OUT_OF_RANGE, "row 1, column 2 is 70000");
    assert_memory_equal(back, before, sizeof back);
    dense.dtype = LAC_DTYPE_BF16;
    ASSERT_OK(lac_weight_decompress(w, &dense));
    assert_int_equal(back[2 * 2 + 1], lac_f32_to_bf16(70000));
    dense.cols = 3;
    ASSERT_FAILS(lac_weight_decompress(w, &dense), LAC_STATUS_INVALID_ARGUMENT, "dense is 2 x 3, but the weight is 2 x 4");
    lac_weight_free(w);
}

static void test_arguments(void **state)
{
    (void)state;
    float data[8] = {1, 0, 0, 0, 1, 0, 0, 0};
    lac_matrix dense = {data, LAC_DTYPE_F32, LAC_LAYOUT_ROW_MAJOR, 2, 4, 0};
    lac_mask *bare, *mask;
    lac_weight *w = NULL;
    lac_pattern pattern = parse("2:4");
    ASSERT_OK(lac_mask_from_nonzeros(&dense, &bare));
    ASSERT_FAILS(lac_weight_compress(&dense, bare, NULL, &w), LAC_STATUS_INVALID_ARGUMENT, "lac_mask_with_pattern");
    ASSERT_OK(lac_mask_with_pattern(bare, &pattern, &mask));
    ASSERT_FAILS(lac_weight_compress(&dense, NULL, NULL, &w), LAC_STATUS_INVALID_ARGUMENT, "mask is NULL");
    ASSERT_FAILS(lac_weight_compress(&dense, mask, NULL, NULL), LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_compress_options options = {.size = sizeof options, .dtype = LAC_DTYPE_F64};
    ASSERT_FAILS(lac_weight_compress(&dense, mask, &options, &w), LAC_STATUS_INVALID_ARGUMENT, "f64");
    options = (lac_compress_options){.size = sizeof options, .threads = -1};
    ASSERT_FAILS(lac_weight_compress(&dense, mask, &options, &w), LAC_STATUS_INVALID_ARGUMENT, "threads is -1");
    options = (lac_compress_options){.size = sizeof options, .overflow = (lac_overflow)7};
    ASSERT_FAILS(lac_weight_compress(&dense, mask, &options, &w), LAC_STATUS_INVALID_ARGUMENT, "overflow is 7");
    dense.cols = 3;
    dense.ld = 4;
    ASSERT_FAILS(lac_weight_compress(&dense, mask, NULL, &w), LAC_STATUS_INVALID_ARGUMENT, "2 x 3");
    dense.cols = 4;
    lac_mask_set(mask, 1, 2); /* three in a group: not what any public call makes */
    ASSERT_FAILS(lac_weight_compress(&dense, mask, NULL, &w), LAC_STATUS_PATTERN_VIOLATED, "row group 1");
    assert_null(w);
    lac_mask_free(bare);
    lac_mask_free(mask);
}

/* Holders are counted: the last one frees. The leak checker of the sanitizer build watches. */
static void test_retain(void **state)
{
    (void)state;
    lac_weight *w;
    ASSERT_OK(compress_one(LAC_DTYPE_F32, 5, LAC_DTYPE_F32, LAC_OVERFLOW_ERROR, &w));
    assert_ptr_equal(lac_weight_retain(w), w);
    lac_weight_free(w);
    assert_true(value_of(w) == 5);
    assert_null(lac_weight_retain(NULL));
    lac_weight_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_round_trips_permuted),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_threads_agree),
        cmocka_unit_test(test_encoding_choice),
        cmocka_unit_test(test_size_formulas),
        cmocka_unit_test(test_overflow),
        cmocka_unit_test(test_non_finite),
        cmocka_unit_test(test_decompress_overflow),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_retain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
