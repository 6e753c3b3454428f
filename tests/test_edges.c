/* test_edges.c - the numbers and sizes at the edge: infinities, NaNs, -0.0, denormals, values too large for their dtype,
 * n, k and m of 0 and 1, k less than M, dimensions near 2^31, extreme fields in a pattern. docs/testing.md says where each
 * of them is defined. */
#include "support/support.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static lac_device *cpu;

static const char *const families[] = {"2:4",       "3:7",       "1:256", "4:4",   "25%",    "vw4:2:8",  "vw64:25%",
                                       "bw2x3:1:2", "bw3x2:50%", "4:2:8", "2:4:4", "8:1:20", "shfl4:50%"};
enum { FAMILIES = sizeof families / sizeof *families };

static lac_pattern pattern_of(const char *text)
{
    lac_pattern pattern;
    assert_ok(lac_pattern_parse(text, &pattern));
    return pattern;
}

static lac_mask *pruned(const lac_matrix *dense, const char *text)
{
    lac_pattern pattern = pattern_of(text);
    lac_mask *mask = NULL;
    assert_ok(lac_prune(dense, &pattern, NULL, &mask));
    return mask;
}

/* A matrix of doubles [rows][cols] as f64. */
static lac_matrix matrix_of(double *values, int64_t rows, int64_t cols)
{
    return (lac_matrix){.data = values, .dtype = LAC_DTYPE_F64, .rows = rows, .cols = cols};
}

/* Through a mask, a file and back, in `dtype`. */
static void through_file(const lac_matrix *dense, const char *text, lac_dtype dtype, double *out)
{
    lac_mask *mask = pruned(dense, text);
    lac_compress_options options = {.size = sizeof options, .dtype = dtype};
    lac_weight *weight = NULL, *loaded = NULL;
    assert_ok(lac_weight_compress(dense, mask, &options, &weight));
    assert_ok(lac_weight_save(weight, test_path("edge"), "w"));
    assert_ok(lac_weight_load(test_path("edge"), "w", &loaded));
    lac_matrix view = matrix_of(out, dense->rows, dense->cols);
    assert_ok(lac_weight_decompress(loaded, &view));
    lac_weight_free(weight);
    lac_weight_free(loaded);
    lac_mask_free(mask);
}

/* ---- numbers */

static void what_is_not_finite_stays_first(void **state)
{
    (void)state;
    static const lac_dtype dtypes[] = {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16};
    double values[2 * 8] = {1, -INFINITY, 5, 2, 9, NAN, 8, 7, -NAN, 3, INFINITY, 4, 1, 2, -4, 3}, out[16];
    static const int stays[2][8] = {{0, 1, 1, 0, 1, 1, 0, 0}, {1, 0, 1, 0, 0, 0, 1, 1}};
    lac_matrix dense = matrix_of(values, 2, 8);
    for (int d = 0; d < 3; d++) {
        through_file(&dense, "2:4", dtypes[d], out);
        for (int i = 0; i < 16; i++) assert_true(test_same_number(out[i], stays[i / 8][i % 8] ? values[i] : 0.0));
    }
    lac_mask *mask = pruned(&dense, "2:4");
    double kept, total;
    assert_ok(lac_mask_energy(mask, &dense, &kept, &total)); /* of the finite ones alone */
    assert_true(kept == 25 + 81 + 16 + 9 && total == 1 + 25 + 4 + 81 + 64 + 49 + 9 + 16 + 1 + 4 + 16 + 9);
    lac_mask_free(mask);
}

/* A NaN is a nonzero, a -0.0 is not. */
static void signs_of_zero(void **state)
{
    (void)state;
    double values[4] = {-0.0, 3, -0.0, 0.0}, nans[4] = {NAN, NAN, 0, 0}, out[4];
    lac_matrix dense = matrix_of(values, 1, 4), other = matrix_of(nans, 1, 4);
    lac_pattern one = pattern_of("1:4");
    lac_pattern_violation violation = {.size = sizeof violation};
    assert_ok(lac_pattern_check(&dense, &one, &violation));
    assert_status(lac_pattern_check(&other, &one, &violation), LAC_STATUS_PATTERN_VIOLATED);
    assert_true(violation.row == 0 && violation.col == 1 && violation.kept == 2 && violation.allowed == 1);
    lac_mask *bare = NULL;
    assert_ok(lac_mask_from_nonzeros(&dense, &bare));
    for (int i = 0; i < 4; i++) assert_int_equal(lac_mask_get(bare, 0, i), i == 1);
    lac_mask_free(bare);
    through_file(&dense, "4:4", LAC_DTYPE_F32, out); /* what is kept keeps its sign */
    for (int i = 0; i < 4; i++) assert_true(test_same_number(out[i], values[i]));
    through_file(&dense, "1:4", LAC_DTYPE_F32, out); /* what is dropped is +0.0 */
    for (int i = 0; i < 4; i++) assert_true(test_same_number(out[i], i == 1 ? 3 : 0.0));
}

/* Squares of these vanish or overflow in double; the order of magnitudes must not. */
static void tiny_and_huge_weights_are_ranked(void **state)
{
    (void)state;
    static const double scales[] = {DBL_TRUE_MIN, FLT_TRUE_MIN, 1, 1e150, 1e300};
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        for (int score = 0; score < 3; score++) {
            static const char *const texts[] = {"1:4", "vw1:1:4", "bw1x1:1:4", "25%", "1:1:4", "shfl1:25%"};
            for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
                double values[4] = {1 * scales[s], -2 * scales[s], 4 * scales[s], 3 * scales[s]};
                lac_matrix dense = matrix_of(values, 1, 4);
                lac_prune_options options = {.size = sizeof options, .score = (lac_score)score};
                lac_pattern pattern = pattern_of(texts[t]);
                lac_mask *mask = NULL;
                assert_ok(lac_prune(&dense, &pattern, &options, &mask));
                for (int i = 0; i < 4; i++) assert_int_equal(lac_mask_get(mask, 0, i), i == 2);
                lac_mask_free(mask);
            }
        }
    }
}

static void denormals_survive(void **state)
{
    (void)state;
    double f16 = test_decode(LAC_DTYPE_F16, 1), bf16 = test_decode(LAC_DTYPE_BF16, 1), out[4];
    double halves[4] = {f16, -3 * f16, 1023 * f16, 0}, brains[4] = {bf16, -3 * bf16, 127 * bf16, 0};
    double singles[4] = {FLT_TRUE_MIN, -FLT_MIN, FLT_MIN - FLT_TRUE_MIN, -FLT_TRUE_MIN};
    lac_matrix a = matrix_of(halves, 1, 4), b = matrix_of(brains, 1, 4), c = matrix_of(singles, 1, 4);
    through_file(&a, "4:4", LAC_DTYPE_F16, out);
    assert_memory_equal(out, halves, sizeof out);
    through_file(&b, "4:4", LAC_DTYPE_BF16, out);
    assert_memory_equal(out, brains, sizeof out);
    through_file(&c, "4:4", LAC_DTYPE_F32, out);
    assert_memory_equal(out, singles, sizeof out);
    through_file(&c, "4:4", LAC_DTYPE_F16, out); /* too small is no error: it rounds to a zero of its sign */
    for (int i = 0; i < 4; i++) assert_true(out[i] == 0 && signbit(out[i]) == signbit(singles[i]));
}

static void product_of_what_is_not_finite(void **state)
{
    (void)state;
    float w[4 * 4] = {INFINITY, 1, 0, 0, NAN, 1, 0, 0, -INFINITY, INFINITY, 0, 0, 1, 2, 0, 0};
    float x[4] = {1, 1, 1, 1}, y[4];
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = 4, .cols = 4};
    lac_mask *mask = pruned(&dense, "2:4");
    lac_weight *weight = NULL;
    lac_plan *plan = NULL;
    assert_ok(lac_weight_compress(&dense, mask, NULL, &weight));
    lac_kernel_info kernel = {.size = sizeof kernel};
    for (size_t i = 0; lac_kernel_probe(i, &kernel) == LAC_STATUS_OK; i++) {
        lac_plan_options options = {.size = sizeof options, .kernel = kernel.name};
        if (lac_plan_create(cpu, weight, 1, &options, &plan) != LAC_STATUS_OK) continue;
        lac_plan_info info = {.size = sizeof info};
        assert_ok(lac_plan_get_info(plan, &info));
        void *workspace = aligned_alloc(64, (info.workspace_bytes + 127) / 64 * 64);
        lac_execute_args args = {
            .size = sizeof args, .x = x, .y = y, .workspace = workspace, .workspace_bytes = info.workspace_bytes};
        assert_ok(lac_plan_execute(plan, &args));
        print_message("%s\n", kernel.name);
        assert_true(y[0] == INFINITY && isnan(y[1]) && isnan(y[2]) && y[3] == 3);
        free(workspace);
        lac_plan_free(plan);
    }
    lac_weight_free(weight);
    lac_mask_free(mask);
}

/* ---- values too large for their dtype */

static void too_large_for_its_dtype(void **state)
{
    (void)state;
    static const struct {
        lac_dtype dtype;
        double largest, fits, too_large;
        const char *text;
    } limits[] = {
        {LAC_DTYPE_F16, 65504, 65519.99, 65520, "65520"},
        {LAC_DTYPE_BF16, 0x1.fep127, 0x1.fefffffffffffp127, 0x1.ffp127, "e+38"},
        {LAC_DTYPE_F32, FLT_MAX, 0x1.fffffefffffffp127, 0x1.ffffffp127, "e+38"},
    };
    for (int d = 0; d < 3; d++) {
        for (int f = 0; f < FAMILIES; f++) {
            double values[6 * 9] = {0}, out[6 * 9];
            values[5 * 9 + 7] = -limits[d].fits;
            lac_matrix dense = matrix_of(values, 6, 9);
            through_file(&dense, families[f], limits[d].dtype, out);
            assert_true(out[5 * 9 + 7] == -limits[d].largest);
            values[5 * 9 + 7] = -limits[d].too_large;
            lac_mask *mask = pruned(&dense, families[f]);
            lac_compress_options options = {.size = sizeof options, .dtype = limits[d].dtype};
            lac_weight *weight = NULL;
            lac_status status = lac_weight_compress(&dense, mask, &options, &weight);
            assert_fails(status, LAC_STATUS_VALUE_OUT_OF_RANGE, limits[d].text);
            assert_non_null(strstr(lac_last_error(), "row 5, column 7"));
            assert_null(weight);
            options.overflow = LAC_OVERFLOW_SATURATE;
            assert_ok(lac_weight_compress(&dense, mask, &options, &weight));
            lac_matrix view = matrix_of(out, 6, 9);
            assert_ok(lac_weight_decompress(weight, &view));
            assert_true(out[5 * 9 + 7] == -limits[d].largest);
            lac_weight_free(weight);
            lac_mask_free(mask);
        }
    }
}

static void only_what_stays_must_fit(void **state)
{
    (void)state;
    double values[4] = {1e9, INFINITY, -INFINITY, NAN}, out[4];
    lac_matrix dense = matrix_of(values, 1, 4);
    through_file(&dense, "3:4", LAC_DTYPE_F16, out); /* 1e9 is dropped; infinities and NaNs pass as they are */
    assert_true(out[0] == 0 && out[1] == INFINITY && out[2] == -INFINITY && isnan(out[3]));
}

static void decompress_into_a_narrower_dtype(void **state)
{
    (void)state;
    double values[4] = {0, 1.0 / 3, 1e6, 0};
    lac_matrix dense = matrix_of(values, 1, 4);
    lac_mask *mask = pruned(&dense, "2:4");
    lac_weight *weight = NULL;
    assert_ok(lac_weight_compress(&dense, mask, NULL, &weight));
    test_matrix out = test_matrix_make(1, 4, LAC_DTYPE_F16, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    unsigned char *before = test_matrix_snapshot(&out);
    assert_fails(lac_weight_decompress(weight, &out.view), LAC_STATUS_VALUE_OUT_OF_RANGE, "row 0, column 2");
    assert_true(test_matrix_unchanged(&out, before));
    free(before);
    test_matrix_free(&out);
    out = test_matrix_make(1, 4, LAC_DTYPE_BF16, LAC_LAYOUT_ROW_MAJOR, 0, 0);
    assert_ok(lac_weight_decompress(weight, &out.view));
    assert_true(test_matrix_get(&out, 0, 1) == test_rounded(LAC_DTYPE_BF16, (float)(1.0 / 3)));
    test_matrix_free(&out);
    lac_weight_free(weight);
    lac_mask_free(mask);
}

/* ---- sizes */

/* With k of 0 the product is empty, and the epilogue alone remains. */
static void check_small_product(const lac_weight *weight, const double *w, int64_t n, int64_t k, int64_t m)
{
    double x[2 * 9], bias[9];
    float single_x[2 * 9], single_bias[9], y[2 * 9];
    for (int i = 0; i < 18; i++) single_x[i] = (float)(x[i] = i % 5 - 2);
    for (int i = 0; i < 9; i++) single_bias[i] = (float)(bias[i] = i + 1);
    lac_plan_options options = {.size = sizeof options, .has_bias = 1, .threads = 1};
    lac_plan *plan = NULL;
    assert_ok(lac_plan_create(cpu, weight, m, &options, &plan));
    lac_plan_info info = {.size = sizeof info};
    assert_ok(lac_plan_get_info(plan, &info));
    void *workspace = aligned_alloc(64, (info.workspace_bytes + 127) / 64 * 64);
    lac_execute_args args = {.size = sizeof args,
                             .x = k && m ? single_x : NULL,
                             .y = n && m ? y : NULL,
                             .bias = n ? single_bias : NULL,
                             .workspace = workspace,
                             .workspace_bytes = info.workspace_bytes};
    assert_ok(lac_plan_execute(plan, &args));
    for (int64_t i = 0; i < m * n; i++) {
        double want = bias[i % n];
        for (int64_t j = 0; j < k; j++) want += x[i / n * k + j] * w[i % n * k + j];
        assert_true(y[i] == want);
    }
    double reference[2 * 9];
    assert_ok(lac_plan_reference(plan, &args, m && n ? reference : NULL, NULL, 0));
    for (int64_t i = 0; i < m * n; i++) assert_true(reference[i] == y[i]);
    free(workspace);
    lac_plan_free(plan);
}

static void small_sizes(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 2, 3, 9};
    for (int f = 0; f < FAMILIES; f++) {
        for (int i = 0; i < 25; i++) {
            int64_t n = sizes[i / 5], k = sizes[i % 5];
            double values[81], out[81];
            for (int j = 0; j < 81; j++) values[j] = (j * 7 % 11) - 5;
            lac_matrix dense = matrix_of(n && k ? values : NULL, n, k), view = matrix_of(n && k ? out : NULL, n, k);
            lac_pattern pattern = pattern_of(families[f]);
            lac_mask *mask = pruned(&dense, families[f]);
            lac_weight *weight = NULL, *loaded = NULL, *shard = NULL;
            assert_ok(lac_weight_compress(&dense, mask, NULL, &weight));
            assert_ok(lac_weight_save(weight, test_path("small"), "w"));
            assert_ok(lac_weight_load(test_path("small"), NULL, &loaded));
            assert_ok(lac_weight_decompress(loaded, &view));
            for (int64_t j = 0; j < n * k; j++) assert_true(out[j] == (lac_mask_get(mask, j / k, j % k) ? values[j] : 0));
            if (pattern.family != LAC_FAMILY_SHUFFLED) assert_ok(lac_pattern_check(&view, &pattern, NULL));
            for (int64_t m = 0; m < 3; m++) check_small_product(loaded, out, n, k, m);
            assert_ok(lac_weight_shard(loaded, LAC_AXIS_N, n, n, &shard)); /* an empty shard is a weight too */
            lac_weight_free(shard);
            assert_ok(lac_weight_shard(loaded, LAC_AXIS_K, 0, 0, &shard));
            lac_weight_free(shard);
            lac_weight_free(loaded);
            lac_weight_free(weight);
            lac_mask_free(mask);
        }
    }
}

/* k < M: the one group has k units and keeps min(N, k). */
static void less_than_a_group(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t k, kept; /* kept: elements of a row */
    } table[] = {{"2:4", 1, 1},    {"2:4", 3, 2},     {"5:13", 4, 4},    {"1:256", 255, 1},  {"200:256", 100, 100},
                 {"8:3:16", 2, 2}, {"8:3:16", 15, 3}, {"vw2:3:8", 5, 3}, {"bw1x4:1:9", 7, 4}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        float values[2 * 255];
        for (int j = 0; j < 510; j++) values[j] = (float)(j % 13) + 1;
        lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = 2, .cols = table[i].k};
        lac_mask *mask = pruned(&dense, table[i].text);
        lac_mask_info info = {.size = sizeof info};
        assert_ok(lac_mask_get_info(mask, &info));
        assert_true(info.kept <= 2 * table[i].kept && info.kept >= 2 * (table[i].kept - 1));
        if (strncmp(table[i].text, "bw", 2) != 0) assert_int_equal(info.kept, 2 * table[i].kept);
        lac_mask_free(mask);
    }
}

/* ---- dimensions near 2^31. No allocation past 64 MiB may even be tried to succeed. */

static void huge_dimensions_measure(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++) {
        lac_weight_info info = {.size = sizeof info,
                                .pattern = pattern_of(families[f]),
                                .n = LAC_MAX_DIMENSION,
                                .k = LAC_MAX_DIMENSION,
                                .dtype = LAC_DTYPE_BF16};
        uint64_t bytes[LAC_PART_COUNT];
        lac_status status = lac_weight_measure(&info, bytes);
        if (status != LAC_STATUS_OK) { /* a size that does not fit 64 bits is said to be so */
            assert_fails(status, LAC_STATUS_INVALID_ARGUMENT, "2147483647");
            continue;
        }
        assert_true(info.dense_bytes == (uint64_t)LAC_MAX_DIMENSION * LAC_MAX_DIMENSION * 2);
        assert_true(info.value_bytes == bytes[LAC_PART_VALUES] && info.kept > 0);
        assert_true(info.value_bytes == (uint64_t)info.kept * 2);
    }
}

static void huge_and_empty(void **state)
{
    (void)state;
    test_allocator_limit(UINT64_C(64) << 20);
    for (int f = 0; f < FAMILIES; f++) {
        lac_pattern pattern = pattern_of(families[f]);
        lac_matrix wide = {.dtype = LAC_DTYPE_F32, .rows = 0, .cols = LAC_MAX_DIMENSION};
        lac_mask *mask = NULL;
        lac_weight *weight = NULL, *loaded = NULL;
        lac_status status = lac_prune(&wide, &pattern, NULL, &mask);
        if (status == LAC_STATUS_OK) status = lac_weight_compress(&wide, mask, NULL, &weight);
        if (status == LAC_STATUS_OK) { /* what can be made can be stored */
            assert_ok(lac_weight_save(weight, test_path("wide"), "w"));
            assert_ok(lac_weight_load(test_path("wide"), "w", &loaded));
            assert_ok(lac_weight_decompress(loaded, &wide));
        } else {
            assert_int_equal(status, LAC_STATUS_OUT_OF_MEMORY);
        }
        lac_weight_free(loaded);
        lac_weight_free(weight);
        lac_mask_free(mask);
    }
    /* A few bytes make a weight of any width: reading them takes no more than they are. */
    static const char *const texts[] = {"2:4", "100%", "bw2x5:100%"};
    static const uint32_t none[1] = {0};
    for (int i = 0; i < 3; i++) {
        lac_weight *weight = NULL;
        lac_weight_info info = {
            .size = sizeof info, .pattern = pattern_of(texts[i]), .n = i > 0, .k = LAC_MAX_DIMENSION, .dtype = LAC_DTYPE_F32};
        lac_span parts[LAC_PART_COUNT] = {{0}};
        if (i > 0) parts[LAC_PART_COUNTS] = (lac_span){none, sizeof none};
        assert_ok(lac_weight_from_parts(&info, parts, &weight));
        lac_weight_free(weight);
    }
    test_allocator_limit(0);
}

static void huge_parts_and_batches(void **state)
{
    (void)state;
    test_allocator_limit(UINT64_C(64) << 20);
    float value = 1;
    lac_weight *weight = NULL;
    for (int f = 0; f < FAMILIES; f++) { /* far more elements than bytes are there */
        lac_weight_info info = {.size = sizeof info,
                                .pattern = pattern_of(families[f]),
                                .n = LAC_MAX_DIMENSION,
                                .k = LAC_MAX_DIMENSION,
                                .dtype = LAC_DTYPE_F32};
        lac_span parts[LAC_PART_COUNT] = {{&value, 4}};
        int64_t before = test_allocator_live();
        lac_status status = lac_weight_from_parts(&info, parts, &weight);
        assert_true(status == LAC_STATUS_INVALID_ARGUMENT || status == LAC_STATUS_BAD_FILE);
        assert_true(!weight && test_allocator_live() == before && !test_allocator_failed());
    }
    double values[4] = {1, 2, 3, 4};
    lac_matrix dense = matrix_of(values, 1, 4);
    lac_mask *mask = pruned(&dense, "2:4");
    assert_ok(lac_weight_compress(&dense, mask, NULL, &weight));
    lac_plan *plan = NULL;
    assert_ok(lac_plan_create(cpu, weight, LAC_MAX_DIMENSION, NULL, &plan)); /* a plan holds nothing the size of m */
    lac_plan_free(plan);
    lac_weight_free(weight);
    lac_mask_free(mask);
    test_allocator_limit(0);
}

/* ---- extremes in a pattern's fields */

static void extreme_patterns(void **state)
{
    (void)state;
    static const int32_t extremes[] = {INT32_MIN, -1, 0, 1, 4, 256, 257, INT32_MAX};
    static const double densities[] = {-INFINITY, -1, -0.0, 0, DBL_TRUE_MIN, 0.5, 1, 1.0000001, INFINITY, NAN};
    double values[4] = {1, 2, 3, 4};
    lac_matrix dense = matrix_of(values, 2, 2);
    int64_t accepted = 0;
    for (int family = -1; family < 7; family++) {
        for (int code = 0; code < 8 * 8 * 8 * 8 * 10; code++) {
            lac_pattern pattern = {(lac_family)family,      extremes[code % 8],       extremes[code / 8 % 8],
                                   extremes[code / 64 % 8], extremes[code / 512 % 8], densities[code / 4096]};
            char text[LAC_PATTERN_TEXT_SIZE];
            lac_status status = lac_pattern_format(&pattern, text, sizeof text);
            lac_mask *mask = NULL;
            assert_status(lac_prune(&dense, &pattern, NULL, &mask), status); /* all calls agree on what is a pattern */
            assert_true((lac_pattern_density(&pattern) > 0) == (status == LAC_STATUS_OK));
            if (status == LAC_STATUS_OK) {
                lac_weight *weight = NULL;
                assert_ok(lac_weight_compress(&dense, mask, NULL, &weight));
                lac_weight_free(weight);
                accepted++;
            } else {
                assert_true(status == LAC_STATUS_INVALID_ARGUMENT && strlen(lac_last_error()) > 10);
            }
            lac_mask_free(mask);
        }
    }
    assert_true(accepted > 100);
}

/* ---- what a plan may write */

/* Every kernel that takes the weight, with as much workspace as its plan asks for and canaries behind that. Returns how many. */
static int run_all(const lac_weight *weight, int64_t m, int32_t threads, const float *x, float *y)
{
    enum { GUARD = 1 << 20, CANARY = 0x5a };
    int ran = 0;
    lac_kernel_info kernel = {.size = sizeof kernel};
    for (size_t i = 0; lac_kernel_probe(i, &kernel) == LAC_STATUS_OK; ++i, kernel.size = sizeof kernel) {
        lac_plan_options options = {.size = sizeof options, .kernel = kernel.name, .threads = threads};
        lac_plan *plan = NULL;
        if (kernel.device != LAC_DEVICE_KIND_CPU || lac_plan_create(cpu, weight, m, &options, &plan) != LAC_STATUS_OK) continue;
        lac_plan_info info = {.size = sizeof info};
        assert_ok(lac_plan_get_info(plan, &info));
        size_t bytes = (info.workspace_bytes + GUARD + 63) / 64 * 64;
        unsigned char *workspace = aligned_alloc(64, bytes);
        assert_non_null(workspace);
        memset(workspace, CANARY, bytes);
        lac_execute_args args = {
            .size = sizeof args, .x = x, .y = y, .workspace = workspace, .workspace_bytes = info.workspace_bytes};
        assert_ok(lac_plan_execute(plan, &args));
        for (size_t at = info.workspace_bytes; at < bytes; ++at)
            if (workspace[at] != CANARY) fail_msg("%s wrote behind its workspace", kernel.name);
        free(workspace);
        lac_plan_free(plan);
        ++ran;
    }
    return ran;
}

/* A shard of a permuted weight keeps the width of the whole's Y, also when it has no row of it. */
static void shards_without_outputs(void **state)
{
    (void)state;
    enum { N = 8, K = 8, M = 20 };
    double values[N * K];
    float x[M * K] = {0}, y[M * N];
    for (int i = 0; i < N * K; ++i) values[i] = i % 7 - 3;
    lac_matrix dense = matrix_of(values, N, K);
    lac_mask *mask = pruned(&dense, "shfl4:50%");
    lac_weight *whole = NULL, *shard = NULL;
    assert_ok(lac_weight_compress(&dense, mask, NULL, &whole));
    assert_ok(lac_weight_shard(whole, LAC_AXIS_N, 0, 0, &shard));
    for (int i = 0; i < M * N; ++i) y[i] = 7.0f;
    assert_true(run_all(shard, M, 2, x, y) > 0);
    lac_plan_options options = {.size = sizeof options, .measure = 1};
    lac_plan *plan = NULL;
    assert_ok(lac_plan_create(cpu, shard, M, &options, &plan));
    for (int i = 0; i < M * N; ++i) assert_true(y[i] == 7.0f);
    lac_plan_free(plan);
    lac_weight_free(shard);
    lac_weight_free(whole);
    lac_mask_free(mask);
}

/* Partial last blocks are stored whole, so that a weight may hold more values than W has: no kernel's workspace may count on fewer. */
static void workspaces_of_padded_blocks(void **state)
{
    (void)state;
    static const int64_t inputs[] = {5, 9};
    enum { N = 9000, MOST_K = 9, M = 60 };
    float *w = malloc(sizeof(float) * N * MOST_K), *x = calloc(M * MOST_K, sizeof *x), *y = malloc(sizeof(float) * M * N);
    for (int i = 0; i < N * MOST_K; ++i) w[i] = (float)(i % 7 - 3);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; ++i) {
        lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = inputs[i]};
        lac_mask *mask = pruned(&dense, "bw16x4:1:1");
        lac_weight *weight = NULL;
        assert_ok(lac_weight_compress(&dense, mask, NULL, &weight));
        for (int32_t threads = 2; threads <= 3; ++threads) assert_true(run_all(weight, M, threads, x, y) > 0);
        lac_weight_free(weight);
        lac_mask_free(mask);
    }
    free(w);
    free(x);
    free(y);
}

int main(void)
{
    test_allocator_install();
    if (lac_device_open("cpu", &cpu) != LAC_STATUS_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_finite_stays_first),
        cmocka_unit_test(signs_of_zero),
        cmocka_unit_test(tiny_and_huge_weights_are_ranked),
        cmocka_unit_test(denormals_survive),
        cmocka_unit_test(product_of_what_is_not_finite),
        cmocka_unit_test(too_large_for_its_dtype),
        cmocka_unit_test(only_what_stays_must_fit),
        cmocka_unit_test(decompress_into_a_narrower_dtype),
        cmocka_unit_test(small_sizes),
        cmocka_unit_test(less_than_a_group),
        cmocka_unit_test(huge_dimensions_measure),
        cmocka_unit_test(huge_and_empty),
        cmocka_unit_test(huge_parts_and_batches),
        cmocka_unit_test(extreme_patterns),
        cmocka_unit_test(shards_without_outputs),
        cmocka_unit_test(workspaces_of_padded_blocks),
    };
    int64_t live = test_allocator_live();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!failed && test_allocator_live() != live) {
        fprintf(stderr, "%lld blocks were leaked\n", (long long)(test_allocator_live() - live));
        failed = 1;
    }
    lac_device_close(cpu);
    return failed;
}
