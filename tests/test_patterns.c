/* test_patterns.c - patterns as text, there and back, a table of malformed ones with their messages, and the numbers of a
 * pattern on a matrix of given size. */
#include "support/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/pattern.h"

/* ---- patterns as text */

static void one_pattern_text(test_random *random, int64_t index, void *user)
{
    (void)index, (void)user;
    lac_pattern pattern = test_random_pattern(random), back;
    char text[LAC_PATTERN_TEXT_SIZE], again[LAC_PATTERN_TEXT_SIZE];
    assert_ok(lac_pattern_format(&pattern, text, sizeof text));
    test_describe("%s", text);
    assert_ok(lac_pattern_parse(text, &back));
    assert_int_equal(back.family, pattern.family);
    assert_int_equal(back.unit_n, pattern.unit_n);
    assert_int_equal(back.unit_k, pattern.unit_k);
    assert_int_equal(back.n, pattern.n);
    assert_int_equal(back.m, pattern.m);
    assert_true(back.density == pattern.density);
    assert_true(lac_pattern_equal(&pattern, &back));
    assert_ok(lac_pattern_format(&back, again, sizeof again));
    assert_string_equal(text, again);
    assert_true(lac_pattern_density(&pattern) == (pattern.m ? (double)pattern.n / pattern.m : pattern.density));

    /* A buffer of the exact size does, one byte less does not and stays as it is. */
    memset(again, 'x', sizeof again);
    assert_ok(lac_pattern_format(&pattern, again, strlen(text) + 1));
    memset(again, 'x', sizeof again);
    assert_fails(lac_pattern_format(&pattern, again, strlen(text)), LAC_STATUS_INVALID_ARGUMENT, "buffer_size");
    for (size_t i = 0; i < sizeof again; i++) assert_int_equal(again[i], 'x');
}

static void pattern_texts_round_trip(void **state)
{
    (void)state;
    test_run_cases("pattern-text", 20000, one_pattern_text, NULL);
}

static void every_ratio_round_trips(void **state)
{
    (void)state;
    char text[LAC_PATTERN_TEXT_SIZE], want[LAC_PATTERN_TEXT_SIZE];
    for (int m = 1; m <= LAC_MAX_GROUP; m++) {
        for (int n = 1; n <= m; n++) {
            lac_pattern pattern;
            snprintf(want, sizeof want, "%d:%d", n, m);
            assert_ok(lac_pattern_parse(want, &pattern));
            assert_true(pattern.family == LAC_FAMILY_ELEMENT && pattern.n == n && pattern.m == m);
            assert_ok(lac_pattern_format(&pattern, text, sizeof text));
            assert_string_equal(text, want);
        }
    }
}

static void known_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        lac_pattern pattern;
    } table[] = {
        {"2:4", {LAC_FAMILY_ELEMENT, 1, 1, 2, 4, 0}},
        {"25%", {LAC_FAMILY_ELEMENT, 1, 1, 0, 0, 0.25}},
        {"12.5%", {LAC_FAMILY_ELEMENT, 1, 1, 0, 0, 0.125}},
        {"100%", {LAC_FAMILY_ELEMENT, 1, 1, 0, 0, 1}},
        {"0.1%", {LAC_FAMILY_ELEMENT, 1, 1, 0, 0, 0.001}},
        {"vw32:8:32", {LAC_FAMILY_VECTOR, 32, 1, 8, 32, 0}},
        {"vw24:3:10", {LAC_FAMILY_VECTOR, 24, 1, 3, 10, 0}},
        {"vw32:25%", {LAC_FAMILY_VECTOR, 32, 1, 0, 0, 0.25}},
        {"vw2147483647:1:1", {LAC_FAMILY_VECTOR, INT32_MAX, 1, 1, 1, 0}},
        {"bw4x4:2:8", {LAC_FAMILY_BLOCK, 4, 4, 2, 8, 0}},
        {"bw4x4:12.5%", {LAC_FAMILY_BLOCK, 4, 4, 0, 0, 0.125}},
        {"bw1x2147483647:256:256", {LAC_FAMILY_BLOCK, 1, INT32_MAX, 256, 256, 0}},
        {"64:2:8", {LAC_FAMILY_VNM, 64, 1, 2, 8, 0}},
        {"1:4:4", {LAC_FAMILY_VNM, 1, 1, 4, 4, 0}},
        {"shfl64:25%", {LAC_FAMILY_SHUFFLED, 64, 1, 0, 0, 0.25}},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        lac_pattern pattern;
        char text[LAC_PATTERN_TEXT_SIZE];
        assert_ok(lac_pattern_parse(table[i].text, &pattern));
        assert_true(lac_pattern_equal(&pattern, &table[i].pattern));
        assert_ok(lac_pattern_format(&pattern, text, sizeof text));
        assert_string_equal(text, table[i].text);
    }
}

static void malformed_texts(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } table[] = {
        {"", "expected a whole number at position 0"},
        {" 2:4", "expected a whole number at position 0"},
        {"2:4 ", "expected the end at position 3"},
        {"2", "expected ':' at position 1"},
        {"2:", "expected a whole number at position 2"},
        {":4", "expected a whole number at position 0"},
        {"-2:4", "expected a whole number at position 0"},
        {"2:-4", "expected a whole number at position 2"},
        {"2:4:", "expected a whole number at position 4"},
        {"2:4x", "expected the end at position 3"},
        {"1:2:8:9", "expected the end at position 5"},
        {"0:4", "N is 0"},
        {"2:0", "M is 0"},
        {"0:0", "M is 0"},
        {"5:4", "N is 5 but M is 4"},
        {"1:257", "M is 257"},
        {"2:99999999999", "over 2147483647"},
        {"99999999999999999999999999:4", "over 2147483647"},
        {"0%", "density is 0"},
        {"101%", "density is 1.01"},
        {"1000000000000000000%", "at most 100%"},
        {"0.0000000000001%", "at most 12 decimals"},
        {"25.%", "a digit behind the point"},
        {".5%", "expected a percentage"},
        {"2.5.5%", "expected '%'"},
        {"2.5", "expected ':'"},
        {"%", "expected a whole number at position 0"},
        {"25%%", "expected the end"},
        {"1e1%", "expected ':'"},
        {"nan%", "expected a whole number"},
        {"vw", "expected a whole number at position 2"},
        {"vw32", "expected ':' at position 4"},
        {"vw32:", "expected a whole number at position 5"},
        {"vw32:8", "expected ':' at position 6"},
        {"vw0:2:4", "unit_n is 0"},
        {"vw32:5:4", "N is 5 but M is 4"},
        {"vw32:0%", "density is 0"},
        {"vw32:150%", "density is 1.5"},
        {"VW32:2:4", "expected a whole number at position 0"},
        {"vw2147483648:2:4", "over 2147483647"},
        {"bw4:2:4", "expected 'x'"},
        {"bw4x:2:4", "expected a whole number at position 4"},
        {"bwx4:2:4", "expected a whole number at position 2"},
        {"bw0x4:2:4", "unit_n is 0"},
        {"bw4x0:2:4", "unit_k is 0"},
        {"bw4x4", "expected ':'"},
        {"shfl64", "expected ':'"},
        {"shfl64:2:4", "shuffled rows take a density"},
        {"shfl0:25%", "unit_n is 0"},
        {"64:5:8", "N at most 4"},
        {"64:1:3", "M at least 4"},
        {"0:2:8", "unit_n is 0"},
        {"64:2:257", "M is 257"},
        {"64:0:8", "N is 0"},
        {"64:25%", "expected"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        lac_pattern pattern, before;
        memset(&pattern, 0x5a, sizeof pattern);
        before = pattern;
        assert_fails(lac_pattern_parse(table[i].text, &pattern), LAC_STATUS_INVALID_ARGUMENT, table[i].message);
        assert_non_null(strstr(lac_last_error(), table[i].text));
        assert_memory_equal(&pattern, &before, sizeof pattern);
    }
}

/* Random bytes never crash the reader, and what it accepts it can print. */
static void one_random_text(test_random *random, int64_t index, void *user)
{
    (void)index, (void)user;
    static const char letters[] = "0123456789:%.xvwbshfl -+eEnaN\t\n\xff";
    char text[40], printed[LAC_PATTERN_TEXT_SIZE];
    int64_t length = test_random_between(random, 0, 12);
    for (int64_t i = 0; i < length; i++) text[i] = letters[test_random_between(random, 0, (int64_t)sizeof letters - 2)];
    text[length] = '\0';
    test_describe("\"%s\"", text);
    lac_pattern pattern, back;
    lac_status status = lac_pattern_parse(text, &pattern);
    if (status != LAC_STATUS_OK) {
        assert_int_equal(status, LAC_STATUS_INVALID_ARGUMENT);
        return;
    }
    assert_ok(lac_pattern_format(&pattern, printed, sizeof printed));
    assert_ok(lac_pattern_parse(printed, &back));
    assert_true(lac_pattern_equal(&pattern, &back));
}

static void random_texts(void **state)
{
    (void)state;
    test_run_cases("random-text", 200000, one_random_text, NULL);
}

/* ---- patterns on a matrix */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Counts by walking, as docs/format.md words it. */
static void one_geometry(test_random *random, int64_t index, void *user)
{
    (void)index, (void)user;
    lac_pattern pattern = test_random_pattern(random);
    int64_t n, k;
    test_random_shape(random, &pattern, 4096, &n, &k);
    char text[LAC_PATTERN_TEXT_SIZE];
    assert_ok(lac_pattern_format(&pattern, text, sizeof text));
    test_describe("%s on %lld x %lld", text, (long long)n, (long long)k);
    lac_geometry g;
    assert_ok(lac_geometry_make(&pattern, n, k, &g));
    assert_int_equal(g.unit_n, smaller(pattern.unit_n, n ? n : 1));
    assert_int_equal(g.unit_k, smaller(pattern.unit_k, k ? k : 1));
    int64_t row_groups = 0, rows = 0, units = 0, inputs = 0;
    for (int64_t row = 0; row < n; row += g.unit_n) rows += lac_geometry_rows(&g, row_groups++);
    for (int64_t col = 0; col < k; col += g.unit_k) inputs += lac_geometry_inputs(&g, units++);
    assert_int_equal(g.row_groups, row_groups);
    assert_int_equal(g.units, units);
    assert_int_equal(rows, n);
    assert_int_equal(inputs, k);
    assert_int_equal(g.is_free, pattern.m == 0);
    if (g.is_free) {
        int64_t most = (int64_t)floor(pattern.density * (double)units + 0.5);
        assert_int_equal(g.selected, smaller(most < 1 ? 1 : most, units));
        return;
    }
    bool vnm = pattern.family == LAC_FAMILY_VNM;
    int64_t groups = 0, selected = 0, slots = 0;
    for (int64_t unit = 0; unit < units; unit += pattern.m) {
        int64_t r = lac_geometry_group_units(&g, groups++);
        selected += smaller(vnm ? 4 : pattern.n, r);
        slots += smaller(pattern.n, r);
    }
    assert_int_equal(g.groups, groups);
    assert_int_equal(g.selected, selected);
    assert_int_equal(g.slots, slots);
    assert_true((int64_t)1 << g.index_bits >= pattern.m && (g.index_bits == 0 || 1 << (g.index_bits - 1) < pattern.m));
}

static void geometries(void **state)
{
    (void)state;
    test_run_cases("geometry", 20000, one_geometry, NULL);
}

int main(void)
{
    test_seed();
    const struct CMUnitTest tests[] = {
        test_of_cases(pattern_texts_round_trip),
        cmocka_unit_test(every_ratio_round_trips),
        cmocka_unit_test(known_texts),
        cmocka_unit_test(malformed_texts),
        test_of_cases(random_texts),
        test_of_cases(geometries),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
