/* test_prune_permute.c - pruning in a better order: an order that was hidden is found again, more is kept than without, the mask obeys the
 * pattern under its permutations, and what is compressed of it multiplies like the matrix that it came from. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/mask.h"
#include "support/support.h"

/* 0 .. count - 1, shuffled when it is to be hidden. */
static int64_t *make_order(test_random *random, int64_t count, bool hidden)
{
    int64_t *order = malloc((size_t)count * sizeof *order);
    assert_non_null(order);
    for (int64_t i = 0; i < count; i++) order[i] = i;
    for (int64_t i = count - 1; hidden && i > 0; i--) {
        int64_t other = test_random_between(random, 0, i), swap = order[i];
        order[i] = order[other], order[other] = swap;
    }
    return order;
}

/* Large weights that obey the pattern exactly, `kept` of each m and the same for `alike` rows, among small ones; then rows and
 * columns are put out of order as `hidden` says. */
static float *hide(test_random *random, int64_t n, int64_t k, int kept, int m, int alike, uint32_t hidden)
{
    float *w = malloc((size_t)(n * k) * sizeof *w);
    int64_t *row = make_order(random, n, hidden & LAC_PERMUTE_ROWS),
            *column = make_order(random, k, hidden & LAC_PERMUTE_COLUMNS);
    assert_non_null(w);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < k; c++) {
            int64_t start = (r / alike * 7919 + c / m * 104729) % m;
            bool large = (c % m + m - start) % m < kept;
            double size = large ? 1 + test_random_unit(random) : 0.1 * test_random_unit(random);
            w[row[r] * k + column[c]] = (float)(test_random_chance(random, 50) ? size : -size);
        }
    free(row), free(column);
    return w;
}

static double share_kept(const float *w, int64_t n, int64_t k, const char *text, uint32_t permute, int threads, lac_mask **out)
{
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_matrix dense = {.data = (void *)(uintptr_t)w, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
    lac_prune_options options = {.size = sizeof options, .permute = permute, .threads = threads};
    double kept, total;
    assert_ok(lac_pattern_parse(text, &pattern));
    assert_ok(lac_prune(&dense, &pattern, &options, &mask));
    assert_ok(lac_mask_energy(mask, &dense, &kept, &total));
    if (out)
        *out = mask;
    else
        lac_mask_free(mask);
    return kept / total;
}

static void test_hidden_order_is_found(void **state)
{
    static const struct {
        const char *pattern;
        int kept, m, rows_alike;
        uint32_t permute;
        double most_lost; /* of what the best order loses, which is what the small weights hold */
    } cases[] = {
        {"2:4", 2, 4, 1, LAC_PERMUTE_COLUMNS, 0.35},
        {"1:4", 1, 4, 1, LAC_PERMUTE_COLUMNS, 0.5},
        {"vw8:4:8", 4, 8, 8, LAC_PERMUTE_ROWS, 0.05},
        {"16:2:8", 2, 8, 16, LAC_PERMUTE_ROWS, 0.05},
        {"vw8:2:4", 2, 4, 8, LAC_PERMUTE_ROWS | LAC_PERMUTE_COLUMNS, 0.6},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_random random = test_random_make("hidden", (int64_t)i);
        int64_t n = 64, k = 64;
        float *w = hide(&random, n, k, cases[i].kept, cases[i].m, cases[i].rows_alike, cases[i].permute);
        double plain = share_kept(w, n, k, cases[i].pattern, 0, 0, NULL);
        double moved = share_kept(w, n, k, cases[i].pattern, cases[i].permute, 0, NULL);
        print_message("%s: %.4f without, %.4f with\n", cases[i].pattern, plain, moved);
        assert_true(1 - moved < (1 - plain) * cases[i].most_lost + 0.005);
        free(w);
    }
}

/* Methods judge by doubles, which come scaled: an order is found among them all the same. */
static void test_hidden_order_is_found_by_every_method(void **state)
{
    enum { N = 64, K = 64, SAMPLES = 200 };
    test_random random = test_random_make("hidden from methods", 0);
    static float x[SAMPLES * K]; /* as gradients, 3 samples of [N][K] */
    static double wide[N * K];
    float *w = hide(&random, N, K, 2, 4, 1, LAC_PERMUTE_COLUMNS), corrected[N * K];
    lac_calibration *calibration = NULL;
    lac_pattern pattern;
    (void)state;
    for (int i = 0; i < SAMPLES * K; i++) x[i] = (float)test_random_gaussian(&random);
    for (int i = 0; i < N * K; i++) wide[i] = w[i];
    lac_matrix samples = {.data = x, .dtype = LAC_DTYPE_F32, .rows = SAMPLES, .cols = K};
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K}, doubles = dense, out = dense;
    doubles.data = wide, doubles.dtype = LAC_DTYPE_F64, out.data = corrected;
    lac_gradients gradients = {
        .size = sizeof gradients, .data = x, .dtype = LAC_DTYPE_F32, .samples = 3}; /* any numbers will do */
    assert_ok(lac_calibration_create(K, &calibration));
    assert_ok(lac_calibration_add(calibration, &samples, 1));
    assert_ok(lac_pattern_parse("2:4", &pattern));
    for (int method = LAC_METHOD_MAGNITUDE; method <= LAC_METHOD_FISHER; method++) {
        double share[2];
        for (int moved = 0; moved < 2; moved++) {
            lac_mask *mask = NULL;
            double kept, total;
            lac_prune_options options = {.size = sizeof options, .method = (lac_method)method};
            if (method == LAC_METHOD_WANDA || method == LAC_METHOD_OBS) options.calibration = calibration;
            if (method == LAC_METHOD_FISHER) options.gradients = &gradients;
            options.permute = moved ? LAC_PERMUTE_COLUMNS : 0;
            assert_ok(lac_prune_and_correct(&doubles, &pattern, &options, &out, &mask));
            assert_ok(lac_mask_energy(mask, &dense, &kept, &total));
            share[moved] = kept / total;
            lac_mask_free(mask);
        }
        print_message("method %d: %.4f of the energy without, %.4f with\n", method, share[0], share[1]);
        assert_true(1 - share[1] < (1 - share[0]) * 0.5);
    }
    lac_calibration_free(calibration);
    free(w);
}

/* On Gaussian weights there is little to gain, and nothing may be lost; the same for every number of threads. */
static void test_never_less(void **state)
{
    static const struct {
        const char *pattern;
        uint32_t permute;
    } cases[] = {{"2:4", LAC_PERMUTE_COLUMNS},  {"3:7", LAC_PERMUTE_COLUMNS},
                 {"8:32", LAC_PERMUTE_COLUMNS}, {"vw8:4:16", LAC_PERMUTE_ROWS},
                 {"vw8:25%", LAC_PERMUTE_ROWS}, {"vw8:4:16", 3},
                 {"16:2:8", LAC_PERMUTE_ROWS},  {"16:2:8", 3}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_random random = test_random_make("never less", (int64_t)i);
        enum { N = 48, K = 100 };
        static float w[N * K];
        lac_mask *one = NULL, *three = NULL;
        for (int j = 0; j < N * K; j++) w[j] = (float)test_random_gaussian(&random);
        double plain = share_kept(w, N, K, cases[i].pattern, 0, 0, NULL);
        double moved = share_kept(w, N, K, cases[i].pattern, cases[i].permute, 1, &one);
        assert_true(share_kept(w, N, K, cases[i].pattern, cases[i].permute, 3, &three) == moved);
        print_message("%s: %.4f without, %.4f with\n", cases[i].pattern, plain, moved);
        assert_true(moved >= plain);
        assert_memory_equal(one->bits, three->bits, (size_t)(N * one->words) * sizeof *one->bits);

        /* Compressed under its permutations, it is what the mask keeps; and as a weight it multiplies like that. */
        lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
        static float kept[N * K], back[N * K], x[3 * K], y[3 * N];
        lac_matrix out = {.data = back, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
        lac_weight *weight = NULL;
        lac_device *device = NULL;
        lac_plan *plan = NULL;
        for (int j = 0; j < N * K; j++) kept[j] = lac_mask_get(one, j / K, j % K) ? w[j] : 0;
        assert_ok(lac_weight_compress(&dense, one, NULL, &weight));
        assert_ok(lac_weight_decompress(weight, &out));
        assert_memory_equal(kept, back, sizeof kept);
        for (int j = 0; j < 3 * K; j++) x[j] = (float)test_random_gaussian(&random);
        lac_plan_options options = {.size = sizeof options};
        assert_ok(lac_device_open("cpu", &device));
        assert_ok(lac_plan_create(device, weight, 3, &options, &plan));
        lac_plan_info info = {.size = sizeof info};
        assert_ok(lac_plan_get_info(plan, &info));
        void *workspace = malloc(info.workspace_bytes + 64);
        assert_non_null(workspace);
        lac_execute_args args = {.size = sizeof args, .x = x, .y = y, .workspace_bytes = info.workspace_bytes};
        args.workspace = (void *)(((uintptr_t)workspace + 63) / 64 * 64);
        assert_ok(lac_plan_execute(plan, &args));
        for (int t = 0; t < 3; t++)
            for (int r = 0; r < N; r++) {
                double sum = 0;
                for (int c = 0; c < K; c++) sum += (double)x[t * K + c] * kept[r * K + c];
                assert_true(fabs(sum - y[t * N + r]) < 1e-4);
            }
        free(workspace);
        lac_plan_free(plan);
        lac_device_close(device);
        lac_weight_free(weight);
        lac_mask_free(one), lac_mask_free(three);
    }
}

/* Second order in another order: the outputs lose no more than without, and the corrected weights obey the mask. */
static void test_with_second_order(void **state)
{
    enum { N = 32, K = 64, SAMPLES = 300 };
    static const char *const patterns[] = {"2:4", "vw8:4:16", "16:2:8"};
    static float w[N * K], x[SAMPLES * K], v[N * K];
    test_random random = test_random_make("second order", 0);
    lac_calibration *calibration = NULL;
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K}, out = dense;
    lac_matrix samples = {.data = x, .dtype = LAC_DTYPE_F32, .rows = SAMPLES, .cols = K};
    out.data = v;
    (void)state;
    for (int i = 0; i < N * K; i++) w[i] = (float)test_random_gaussian(&random);
    for (int s = 0; s < SAMPLES; s++) {
        double common = test_random_gaussian(&random);
        for (int c = 0; c < K; c++) x[s * K + c] = (float)((1 + c % 5) * (common + test_random_gaussian(&random)));
    }
    assert_ok(lac_calibration_create(K, &calibration));
    assert_ok(lac_calibration_add(calibration, &samples, 0));
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        lac_pattern pattern;
        double error[2], total;
        assert_ok(lac_pattern_parse(patterns[i], &pattern));
        for (int moved = 0; moved < 2; moved++) {
            lac_mask *mask = NULL;
            lac_mask_info info = {.size = sizeof info};
            lac_prune_options options = {.size = sizeof options, .method = LAC_METHOD_OBS, .calibration = calibration};
            options.permute = !moved ? 0 : i == 0 ? LAC_PERMUTE_COLUMNS : LAC_PERMUTE_ROWS | LAC_PERMUTE_COLUMNS;
            assert_ok(lac_prune_and_correct(&dense, &pattern, &options, &out, &mask));
            assert_ok(lac_mask_get_info(mask, &info));
            assert_true(!info.col_perm == !moved);
            for (int j = 0; j < N * K; j++)
                if (!lac_mask_get(mask, j / K, j % K)) assert_true(v[j] == 0);
            assert_ok(lac_calibration_error(calibration, &dense, &out, &error[moved], &total));
            lac_mask_free(mask);
        }
        print_message("%s: %.4f of the outputs lost without, %.4f with\n", patterns[i], error[0] / total, error[1] / total);
        assert_true(error[1] <= error[0] * (i == 0 ? 0.99 : 1 + 1e-6));
    }
    lac_calibration_free(calibration);
}

static void test_refusals(void **state)
{
    static float w[8 * 8];
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = 8, .cols = 8};
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_prune_options options = {.size = sizeof options, .permute = 4};
    (void)state;
    assert_ok(lac_pattern_parse("2:4", &pattern));
    assert_fails(lac_prune(&dense, &pattern, &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "permute is 4");
    options = (lac_prune_options){.size = sizeof options, .permute = 2, .permute_rounds = -1};
    assert_fails(lac_prune(&dense, &pattern, &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "permute_rounds is -1");
    options = (lac_prune_options){.size = sizeof options, .permute = LAC_PERMUTE_ROWS};
    assert_fails(lac_prune(&dense, &pattern, &options, &mask), LAC_STATUS_UNSUPPORTED, "permute asks for rows");
    assert_ok(lac_pattern_parse("vw4:25%", &pattern));
    options.permute = LAC_PERMUTE_COLUMNS;
    assert_fails(lac_prune(&dense, &pattern, &options, &mask), LAC_STATUS_UNSUPPORTED, "permute asks for columns");
    assert_null(mask);
}

/* One product by one kernel; false when it does not apply. */
static bool multiply(lac_device *device, const lac_weight *weight, const char *kernel, int64_t m, const float *x, float *y,
                     double *predicted)
{
    lac_plan *plan = NULL;
    lac_plan_info info = {.size = sizeof info};
    lac_plan_options options = {.size = sizeof options, .kernel = kernel, .threads = 1};
    lac_status status = lac_plan_create(device, weight, m, &options, &plan);
    if (status == LAC_STATUS_UNSUPPORTED) return false;
    assert_ok(status);
    assert_ok(lac_plan_get_info(plan, &info));
    *predicted = info.predicted_seconds;
    char *workspace = malloc(info.workspace_bytes + 64);
    assert_non_null(workspace);
    lac_execute_args args = {.size = sizeof args, .x = x, .y = y, .workspace_bytes = info.workspace_bytes};
    args.workspace = info.workspace_bytes ? workspace + (64 - (uintptr_t)workspace % 64) % 64 : NULL;
    assert_ok(lac_plan_execute(plan, &args));
    free(workspace);
    lac_plan_free(plan);
    return true;
}

/* Each kernel of this machine multiplies a weight with an order, to the bit, like the same stored weight without one, whose inputs and outputs were put in that
 * order by hand: it is undone as X is read and Y is written, not in passes of its own. Dense kernels put the
 * weights back in place when the plan is made, and so add up in another order. */
static void test_orders_are_undone_in_passing(void **state)
{
    enum { N = 48, K = 64, TOKENS_MOST = 40 };
    static const char *const patterns[] = {"2:4", "8:32", "vw8:4:16", "vw16:50%", "16:2:8"};
    static const int64_t tokens[] = {1, 5, TOKENS_MOST};
    static float w[N * K], x[TOKENS_MOST * K], moved_x[TOKENS_MOST * K], y[TOKENS_MOST * N], moved_y[TOKENS_MOST * N];
    uint32_t rows[N], columns[K];
    test_random random = test_random_make("orders", 0);
    lac_device *device = NULL;
    int tried = 0;
    double most = 0;
    (void)state;
    assert_ok(lac_device_open("cpu", &device));
    for (int i = 0; i < N * K; i++) w[i] = (float)test_random_gaussian(&random);
    for (uint32_t i = 0; i < N; i++) rows[i] = (i * 29 + 5) % N; /* 29 and 48, 27 and 64 have no factor in common */
    for (uint32_t i = 0; i < K; i++) columns[i] = (i * 27 + 11) % K;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        lac_pattern pattern;
        lac_mask *mask = NULL;
        lac_weight *plain = NULL, *ordered = NULL;
        lac_weight_info info = {.size = sizeof info};
        lac_span parts[LAC_PART_COUNT];
        lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
        assert_ok(lac_pattern_parse(patterns[i], &pattern));
        assert_ok(lac_prune(&dense, &pattern, NULL, &mask));
        assert_ok(lac_weight_compress(&dense, mask, NULL, &plain));
        assert_ok(lac_weight_get_info(plain, &info));
        for (int part = 0; part < LAC_PART_COUNT; part++) assert_ok(lac_weight_get_part(plain, (lac_part)part, &parts[part]));
        parts[LAC_PART_ROW_PERM] = (lac_span){rows, sizeof rows},
        parts[LAC_PART_COL_PERM] = (lac_span){columns, sizeof columns};
        info.has_row_perm = info.has_col_perm = 1;
        assert_ok(lac_weight_from_parts(&info, parts, &ordered));
        lac_kernel_info kernel = {.size = sizeof kernel};
        for (size_t number = 0; lac_kernel_probe(number, &kernel) == LAC_STATUS_OK; number++)
            for (size_t t = 0; t < sizeof tokens / sizeof *tokens && kernel.device == LAC_DEVICE_KIND_CPU; t++) {
                double seconds[2];
                int64_t m = tokens[t];
                for (int64_t j = 0; j < m * K; j++) x[j] = (float)test_random_gaussian(&random);
                for (int64_t j = 0; j < m * K; j++) moved_x[j] = x[j / K * K + columns[j % K]];
                bool a = multiply(device, ordered, kernel.name, m, x, y, &seconds[0]);
                bool b = multiply(device, plain, kernel.name, m, moved_x, moved_y, &seconds[1]);
                if (!a || !b) continue;
                tried++;
                for (int64_t j = 0; j < m * N; j++)
                    if (fabsf(y[j / N * N + rows[j % N]] - moved_y[j]) > (kernel.is_dense ? 1e-4f : 0))
                        fail_msg("%s, %s, %lld tokens: %.9g and %.9g", kernel.name, patterns[i], (long long)m,
                                 (double)y[j / N * N + rows[j % N]], (double)moved_y[j]);
                most = fmax(most, seconds[0] / seconds[1]);
            }
        lac_weight_free(plain);
        lac_weight_free(ordered);
        lac_mask_free(mask);
    }
    print_message("%d products by kernels of this machine; the model predicts up to %.2f times as long\n", tried, most);
    assert_true(tried > 20);
    lac_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hidden_order_is_found),
        cmocka_unit_test(test_hidden_order_is_found_by_every_method),
        cmocka_unit_test(test_never_less),
        cmocka_unit_test(test_orders_are_undone_in_passing),
        cmocka_unit_test(test_with_second_order),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
