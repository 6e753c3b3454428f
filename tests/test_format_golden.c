/* test_format_golden.c - the worked examples of docs/format.md, byte by byte, in both directions. */
#include "format_case.h"

typedef struct golden {
    const char *pattern;
    int64_t n, k;
    lac_dtype dtype;
    lac_index_encoding encoding;
    const double *w; /* [n][k] */
    const char *part[LAC_PART_COUNT];
} golden;

static const double packed_w[] = {0, 1, 0, 2, 0, 3, /**/ 4, 0, 0, 5, 6, 0};
static const double bitmask_w[] = {1, 0, 2, 3, 0, 4, 5};
static const double vector_w[] = {1, 0, 0, 2, /**/ 3, 0, 0, 4};
static const double implicit_w[] = {1, 2, 3, /**/ 4, 5, 6, /**/ 7, 8, 9};
static const double vnm_w[] = {0, 1, 0, 0, 0, 0, 3, 0, 5, /**/ 0, 0, 0, 2, 0, 0, 4, 0, 6};
static const double shuffled_w[] = {1, 0, 2, 0, /**/ 0, 3, 0, 4, /**/ 5, 0, 6, 0};
static const double block_w[] = {1, 2, 0, 0, 3, 0, /**/ 4, 5, 0, 0, 6, 0};

static const golden examples[] = {
    {"2:4",
     2,
     6,
     LAC_DTYPE_F16,
     LAC_INDEX_ENCODING_PACKED,
     packed_w,
     {[LAC_PART_VALUES] = "003c 0040 0000 0042 0044 0045 0046 0000", [LAC_PART_INDEX] = "4d 4c"}},
    {"3:4",
     1,
     7,
     LAC_DTYPE_BF16,
     LAC_INDEX_ENCODING_BITMASK,
     bitmask_w,
     {[LAC_PART_VALUES] = "803f 0040 4040 0000 8040 a040", [LAC_PART_INDEX] = "7d"}},
    {"vw2:1:2",
     2,
     4,
     LAC_DTYPE_F32,
     LAC_INDEX_ENCODING_PACKED,
     vector_w,
     {[LAC_PART_VALUES] = "0000803f 00004040 00000040 00008040", [LAC_PART_INDEX] = "02"}},
    {"bw2x2:1:1",
     3,
     3,
     LAC_DTYPE_F16,
     LAC_INDEX_ENCODING_IMPLICIT,
     implicit_w,
     {[LAC_PART_VALUES] = "003c 0044 0040 0045 0042 0046 0000 0000 0047 0048 8048 0000"}},
    {"2:2:8",
     2,
     9,
     LAC_DTYPE_F16,
     LAC_INDEX_ENCODING_PACKED,
     vnm_w,
     {[LAC_PART_VALUES] = "003c 0040 0042 0044 0045 0046", [LAC_PART_INDEX] = "c8 0c", [LAC_PART_POSITIONS] = "f9 00"}},
    {"shfl2:50%",
     3,
     4,
     LAC_DTYPE_F16,
     LAC_INDEX_ENCODING_COLUMNS,
     shuffled_w,
     {[LAC_PART_VALUES] = "003c 0045 0040 0046 0042 0044",
      [LAC_PART_COUNTS] = "02000000 02000000",
      [LAC_PART_COLUMNS] = "00000000 02000000 01000000 03000000",
      [LAC_PART_ROW_PERM] = "00000000 02000000 01000000"}},
    {"bw2x2:67%",
     2,
     6,
     LAC_DTYPE_BF16,
     LAC_INDEX_ENCODING_COLUMNS,
     block_w,
     {[LAC_PART_VALUES] = "803f 8040 0040 a040 4040 c040 0000 0000",
      [LAC_PART_COUNTS] = "02000000",
      [LAC_PART_COLUMNS] = "00000000 02000000"}},
};

/* Hex digits with spaces to bytes; returns how many. */
static uint64_t read_hex(const char *text, uint8_t *out)
{
    uint64_t count = 0;
    for (; *text; text += 2) {
        while (*text == ' ') text++;
        unsigned byte;
        assert_int_equal(sscanf(text, "%2x", &byte), 1);
        out[count++] = (uint8_t)byte;
    }
    return count;
}

static void test_compress_gives_the_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const golden *g = &examples[i];
        lac_pattern pattern = parse(g->pattern);
        lac_matrix dense = {(void *)(uintptr_t)g->w, LAC_DTYPE_F64, LAC_LAYOUT_ROW_MAJOR, g->n, g->k, 0};
        lac_compress_options options = {.size = sizeof options, .dtype = g->dtype};
        lac_mask *mask;
        lac_weight *w;
        ASSERT_OK(lac_mask_from_matrix(&dense, &pattern, &mask));
        ASSERT_OK(lac_weight_compress(&dense, mask, &options, &w));
        lac_weight_info info = {.size = sizeof info};
        ASSERT_OK(lac_weight_get_info(w, &info));
        assert_int_equal(info.encoding, g->encoding);
        for (int part = 0; part < LAC_PART_COUNT; part++) {
            uint8_t wanted[256];
            uint64_t bytes, wanted_bytes = g->part[part] ? read_hex(g->part[part], wanted) : 0;
            const uint8_t *data = case_part(w, (lac_part)part, &bytes);
            assert_int_equal(data == NULL, g->part[part] == NULL);
            assert_int_equal(bytes, wanted_bytes);
            if (bytes && memcmp(data, wanted, bytes) != 0)
                fail_msg("%s: %s differs", g->pattern, lac_part_name((lac_part)part));
        }
        lac_mask_free(mask);
        lac_weight_free(w);
    }
}

static void test_bytes_give_the_matrix(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const golden *g = &examples[i];
        uint8_t bytes[LAC_PART_COUNT][256];
        lac_span parts[LAC_PART_COUNT] = {{NULL, 0}};
        for (int part = 0; part < LAC_PART_COUNT; part++) {
            if (!g->part[part]) continue;
            /* one byte off: bytes from elsewhere need no alignment */
            parts[part].bytes = read_hex(g->part[part], bytes[part] + 1);
            parts[part].data = bytes[part] + 1;
        }
        lac_weight_info info = {.size = sizeof info, .pattern = parse(g->pattern), .n = g->n, .k = g->k, .dtype = g->dtype};
        info.encoding = g->encoding;
        lac_weight *w;
        ASSERT_OK(lac_weight_from_parts(&info, parts, &w));
        double back[64];
        lac_matrix dense = {back, LAC_DTYPE_F64, LAC_LAYOUT_ROW_MAJOR, g->n, g->k, 0};
        ASSERT_OK(lac_weight_decompress(w, &dense));
        for (int64_t j = 0; j < g->n * g->k; j++) {
            if (back[j] != g->w[j]) fail_msg("%s: element %lld is %g", g->pattern, (long long)j, back[j]);
        }
        lac_weight_free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compress_gives_the_bytes),
        cmocka_unit_test(test_bytes_give_the_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
