/* test_contract_masks.c - what lacuna.h says of matrices, pruning, masks and calibrations, and no other test has tried: what is only read, the defaults of
 * options that are left at zero, what each method scores, where corrected weights may go, how exact energies are, orders of
 * masks, and calibrations in several pieces. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "support/support.h"

enum { N = 24, K = 64, SAMPLES = 96, GRADIENTS = 3 };

static struct {
    float w[N * K], x[SAMPLES * K], g[GRADIENTS * N * K];
    lac_matrix dense, samples;
    lac_gradients gradients;
    lac_calibration *calibration;
    lac_mask *mask; /* 2:4 of `dense` */
} the;

static lac_pattern pattern_of(const char *text)
{
    lac_pattern pattern;
    assert_ok(lac_pattern_parse(text, &pattern));
    return pattern;
}

static lac_prune_options options_of(lac_method method)
{
    lac_prune_options options = {.size = sizeof options, .method = method};
    if (method == LAC_METHOD_WANDA || method == LAC_METHOD_OBS) options.calibration = the.calibration;
    if (method == LAC_METHOD_FISHER) options.gradients = &the.gradients;
    return options;
}

/* Prunes the.dense into `out` [N][K]. */
static lac_mask *prune(const char *text, const lac_prune_options *options, float *out)
{
    lac_pattern pattern = pattern_of(text);
    lac_matrix corrected = {.data = out, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_mask *mask = NULL;
    assert_ok(lac_prune_and_correct(&the.dense, &pattern, options, &corrected, &mask));
    return mask;
}

static bool same_mask(const lac_mask *a, const lac_mask *b)
{
    for (int64_t i = 0; i < N * K; i++)
        if (lac_mask_get(a, i / K, i % K) != lac_mask_get(b, i / K, i % K)) return false;
    return true;
}

/* Whether the two options give the same mask and the same weights, to the bit. */
static bool same_result(const char *text, const lac_prune_options *a, const lac_prune_options *b)
{
    static float left[N * K], right[N * K];
    lac_mask *one = prune(text, a, left), *other = prune(text, b, right);
    bool same = same_mask(one, other) && !memcmp(left, right, sizeof left);
    lac_mask_free(one);
    lac_mask_free(other);
    return same;
}

/* ---- matrices that are read */

/* In pages that nobody may write. */
static void *sealed(const void *data, size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    memcpy(pages, data, bytes);
    assert_int_equal(mprotect(pages, bytes, PROT_READ), 0);
    return pages;
}

static void calls_that_read_never_write(void **state)
{
    (void)state;
    static const char *const texts[] = {"2:4", "25%", "vw4:2:8", "bw4x4:50%", "4:2:8", "shfl4:50%"};
    lac_matrix dense = the.dense, samples = the.samples, out = the.dense,
               moments = {.dtype = LAC_DTYPE_F32, .rows = K, .cols = K};
    static float corrected[N * K], identity[K * K];
    for (int i = 0; i < K; i++) identity[i * K + i] = 1;
    dense.data = sealed(the.w, sizeof the.w);
    samples.data = sealed(the.x, sizeof the.x);
    moments.data = sealed(identity, sizeof identity);
    void *gradients = sealed(the.g, sizeof the.g);
    out.data = corrected;
    lac_calibration *calibration = NULL;
    double error, total;
    assert_ok(lac_calibration_create(K, &calibration)); /* whoever writes ends the program here */
    assert_ok(lac_calibration_add(calibration, &samples, 2));
    assert_ok(lac_calibration_add_moments(calibration, &moments, 1));
    assert_ok(lac_calibration_error(calibration, &dense, &dense, &error, &total));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int method = LAC_METHOD_MAGNITUDE; method <= LAC_METHOD_FISHER; method++) {
            lac_pattern pattern = pattern_of(texts[i]);
            lac_prune_options options = options_of((lac_method)method);
            lac_gradients given = the.gradients;
            given.data = gradients;
            if (options.calibration) options.calibration = calibration;
            if (options.gradients) options.gradients = &given;
            if (i == 0 || i == 2) options.permute = LAC_PERMUTE_COLUMNS;
            lac_mask *mask = NULL, *again = NULL;
            lac_weight *weight = NULL;
            assert_ok(lac_prune_and_correct(&dense, &pattern, &options, &out, &mask));
            assert_ok(lac_mask_energy(mask, &dense, &error, &total));
            assert_ok(lac_weight_compress(&dense, mask, NULL, &weight));
            assert_status(lac_pattern_check(&dense, &pattern, NULL), LAC_STATUS_PATTERN_VIOLATED);
            assert_status(lac_mask_from_matrix(&dense, &pattern, &again), LAC_STATUS_PATTERN_VIOLATED);
            assert_ok(lac_mask_from_nonzeros(&dense, &again));
            lac_mask_free(again);
            lac_mask_free(mask);
            lac_weight_free(weight);
        }
    assert_ok(lac_matrix_save_npy(&dense, test_path("read.npy")));
    lac_calibration_free(calibration);
    munmap(dense.data, sizeof the.w), munmap(samples.data, sizeof the.x);
    munmap(moments.data, sizeof identity), munmap(gradients, sizeof the.g);
}

/* ---- defaults */

/* Zero is what the header says that it is, and not what lies beside it. */
static void zeros_have_the_defaults_of_the_header(void **state)
{
    (void)state;
    lac_prune_options zero = {.size = sizeof zero}, said = zero;
    said.method = LAC_METHOD_MAGNITUDE, said.score = LAC_SCORE_L2;
    assert_true(same_result("vw4:2:8", NULL, &zero) && same_result("vw4:2:8", &zero, &said));
    said.score = LAC_SCORE_L1;
    assert_false(same_result("vw4:2:8", &zero, &said));
    for (int method = LAC_METHOD_OBS; method <= LAC_METHOD_FISHER; method++) {
        zero = said = options_of((lac_method)method);
        said.damping = 0.01;
        assert_true(same_result("2:4", &zero, &said));
        said.damping = 0.02;
        assert_false(same_result("2:4", &zero, &said));
        said = zero, said.score = LAC_SCORE_L1; /* a score of magnitudes is none of theirs */
        assert_true(same_result("vw4:2:8", &zero, &said));
    }
    zero = said = options_of(LAC_METHOD_WANDA);
    zero.score = LAC_SCORE_L2;
    assert_true(same_result("vw4:2:8", &zero, &said));
    zero.score = LAC_SCORE_L1;
    assert_false(same_result("vw4:2:8", &zero, &said));
    zero = said = options_of(LAC_METHOD_MAGNITUDE);
    zero.permute = said.permute = LAC_PERMUTE_COLUMNS;
    said.permute_rounds = 100;
    assert_true(same_result("2:4", &zero, &said));
    said.permute_rounds = 1;
    assert_false(same_result("2:4", &zero, &said));
    for (int method = LAC_METHOD_MAGNITUDE; method <= LAC_METHOD_FISHER; method++) {
        zero = said = options_of((lac_method)method);
        said.threads = 3;
        assert_true(same_result("2:4", &zero, &said));
    }
    lac_device *cpu = NULL; /* a CPU, or none: the CPU does it */
    assert_ok(lac_device_open("cpu", &cpu));
    zero = said = options_of(LAC_METHOD_OBS);
    said.device = cpu;
    assert_true(same_result("2:4", &zero, &said));
    lac_device_close(cpu);
}

/* ---- what is scored */

/* WANDA keeps what magnitudes would keep of the weights times their inputs' norms. */
static void wanda_is_a_weight_times_the_norm_of_its_input(void **state)
{
    (void)state;
    static const char *const texts[] = {"2:4", "25%", "vw4:2:8", "bw2x2:1:2", "4:2:8"};
    static double scaled[N * K];
    static float out[N * K];
    for (int c = 0; c < K; c++) {
        double square = 0;
        for (int s = 0; s < SAMPLES; s++) square += (double)the.x[s * K + c] * the.x[s * K + c];
        for (int r = 0; r < N; r++) scaled[r * K + c] = the.w[r * K + c] * sqrt(square);
    }
    lac_matrix magnitudes = {.data = scaled, .dtype = LAC_DTYPE_F64, .rows = N, .cols = K};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int score = LAC_SCORE_L1; score <= LAC_SCORE_L2; score++) {
            lac_pattern pattern = pattern_of(texts[i]);
            lac_prune_options wanda = options_of(LAC_METHOD_WANDA), plain = options_of(LAC_METHOD_MAGNITUDE);
            wanda.score = plain.score = (lac_score)score;
            lac_mask *got = prune(texts[i], &wanda, out), *want = NULL;
            assert_ok(lac_prune(&magnitudes, &pattern, &plain, &want));
            assert_true(same_mask(got, want));
            lac_mask_free(got);
            lac_mask_free(want);
        }
}

/* ---- corrected weights */

/* Of any floating dtype, rounded once; in place; and +0.0 for what goes. */
static void corrected_weights_go_anywhere(void **state)
{
    (void)state;
    static const lac_dtype dtypes[] = {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16, LAC_DTYPE_F64};
    static const char *const texts[] = {"2:4", "vw4:25%", "4:2:8", "shfl4:50%"};
    static float want[N * K];
    for (int method = LAC_METHOD_MAGNITUDE; method <= LAC_METHOD_FISHER; method++)
        for (int i = 0; i < 8; i++) {
            lac_pattern pattern = pattern_of(texts[i % 4]);
            lac_prune_options options = options_of((lac_method)method);
            lac_mask *mask = prune(texts[i % 4], &options, want), *again = NULL;
            test_matrix out = test_matrix_make(N, K, dtypes[i % 4], (lac_layout)(i / 4), 3, 1);
            assert_ok(lac_prune_and_correct(&the.dense, &pattern, &options, &out.view, &again));
            assert_true(same_mask(mask, again) && test_matrix_intact(&out));
            for (int64_t j = 0; j < N * K; j++) {
                double got = test_matrix_get(&out, j / K, j % K);
                bool stays = lac_mask_get(mask, j / K, j % K);
                if (!stays) assert_true(test_same_number(got, 0.0) && test_same_number(want[j], 0.0));
                if (method < LAC_METHOD_OBS && stays) assert_true(want[j] == the.w[j]);
                assert_true(test_same_number(got, test_rounded(dtypes[i % 4], want[j])));
            }
            lac_mask_free(again);
            test_matrix_free(&out);
            static float in_place[N * K];
            memcpy(in_place, the.w, sizeof in_place);
            lac_matrix both = the.dense;
            both.data = in_place;
            assert_ok(lac_prune_and_correct(&both, &pattern, &options, &both, &again));
            assert_true(same_mask(mask, again));
            assert_memory_equal(in_place, want, sizeof want);
            lac_mask_free(again);
            lac_mask_free(mask);
        }
}

static void second_order_needs_finite_weights(void **state)
{
    (void)state;
    for (int method = LAC_METHOD_MAGNITUDE; method <= LAC_METHOD_FISHER; method++) {
        static float w[N * K], out[N * K], before[N * K];
        memcpy(w, the.w, sizeof w);
        w[5 * K + 7] = method % 2 ? NAN : INFINITY;
        memset(out, 0x5a, sizeof out);
        memcpy(before, out, sizeof out);
        lac_pattern pattern = pattern_of("2:4");
        lac_prune_options options = options_of((lac_method)method);
        lac_matrix dense = the.dense, corrected = the.dense;
        dense.data = w, corrected.data = out;
        lac_mask *mask = NULL;
        lac_status status = lac_prune_and_correct(&dense, &pattern, &options, &corrected, &mask);
        if (method < LAC_METHOD_OBS) {
            assert_ok(status);
            assert_true(lac_mask_get(mask, 5, 7)); /* it outranks every finite one */
            lac_mask_free(mask);
        } else {
            assert_fails(status, LAC_STATUS_INVALID_ARGUMENT, "W[5][7]");
            assert_memory_equal(out, before, sizeof out);
            assert_null(mask);
        }
    }
}

/* ---- masks */

/* Of 16 bits to 5e-7, of others as exact as doubles add up; numbers of all sizes, where a float's sums are worst. */
static void energies_are_as_exact_as_said(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 640 };
    static const lac_dtype dtypes[] = {LAC_DTYPE_F16, LAC_DTYPE_BF16, LAC_DTYPE_F32, LAC_DTYPE_F64};
    for (int64_t i = 0; i < 120; i++) {
        test_random random = test_random_make("energies", i);
        lac_dtype dtype = dtypes[i % 4];
        test_matrix w = test_matrix_random(&random, ROWS, COLS, dtype);
        for (int64_t j = 0; j < ROWS * COLS; j++) {
            double value = i % 3 == 0   ? test_random_gaussian(&random)
                           : i % 3 == 1 ? 1 + test_random_unit(&random) /* sums round at every step */
                                        : ldexp(1 + test_random_unit(&random), j % 13 == 0 ? 12 : -8); /* and lose small ones */
            test_matrix_set(&w, j / COLS, j % COLS, value);
        }
        lac_pattern pattern = pattern_of(i % 2 ? "2:4" : "25%");
        lac_mask *mask = NULL;
        assert_ok(lac_prune(&w.view, &pattern, NULL, &mask));
        long double kept_there = 0, total_there = 0;
        int64_t count = 0;
        for (int64_t j = 0; j < ROWS * COLS; j++) {
            long double value = test_matrix_get(&w, j / COLS, j % COLS);
            total_there += value * value;
            if (!lac_mask_get(mask, j / COLS, j % COLS)) continue;
            kept_there += value * value;
            count++;
        }
        double kept, total, most = i % 4 < 2 ? 5e-7 : 1e-13;
        assert_ok(lac_mask_energy(mask, &w.view, &kept, &total));
        assert_true(fabsl(kept - kept_there) <= most * kept_there && fabsl(total - total_there) <= most * total_there);
        lac_mask_info info = {.size = sizeof info};
        assert_ok(lac_mask_get_info(mask, &info));
        assert_true(info.n == ROWS && info.k == COLS && info.kept == count && info.has_pattern);
        assert_true(!info.row_perm && !info.col_perm && info.pattern.m == pattern.m);
        lac_mask_free(mask);
        test_matrix_free(&w);
    }
}

/* What is zero and kept is kept: of a matrix of zeros, and with the first of each group. */
static void kept_zeros_count(void **state)
{
    (void)state;
    float zeros[2 * 6] = {0};
    lac_matrix dense = {.data = zeros, .dtype = LAC_DTYPE_F32, .rows = 2, .cols = 6};
    lac_pattern pattern = pattern_of("2:4");
    lac_mask *mask = NULL;
    lac_mask_info info = {.size = sizeof info};
    assert_ok(lac_mask_from_matrix(&dense, &pattern, &mask));
    assert_ok(lac_mask_get_info(mask, &info));
    assert_int_equal(info.kept, 2 * 4);
    for (int i = 0; i < 12; i++) assert_int_equal(lac_mask_get(mask, i / 6, i % 6), i % 6 < 2 || i % 6 > 3);
    lac_mask_free(mask);
}

/* Another order of W: rows, columns, and an order that the mask carries in both directions. */
static void masks_are_put_in_another_order(void **state)
{
    (void)state;
    static float out[N * K];
    lac_prune_options options = options_of(LAC_METHOD_MAGNITUDE);
    options.permute = LAC_PERMUTE_ROWS | LAC_PERMUTE_COLUMNS;
    lac_mask *mask = prune("vw4:2:8", &options, out), *moved = NULL, *plain = NULL, *same = NULL;
    lac_mask_info info = {.size = sizeof info}, after = {.size = sizeof after};
    assert_ok(lac_mask_get_info(mask, &info));
    assert_true(info.row_perm && info.col_perm);
    uint32_t rows[N], cols[K];
    for (uint32_t i = 0; i < N; i++) rows[i] = (i * 7 + 3) % N; /* 7 and 24, 27 and 64 have no factor in common */
    for (uint32_t i = 0; i < K; i++) cols[i] = (i * 27 + 11) % K;
    assert_ok(lac_mask_reorder(mask, rows, cols, &moved));
    assert_ok(lac_mask_get_info(moved, &after));
    for (int i = 0; i < N * K; i++)
        assert_int_equal(lac_mask_get(moved, i / K, i % K), lac_mask_get(mask, rows[i / K], cols[i % K]));
    for (int i = 0; i < N; i++) assert_int_equal(rows[after.row_perm[i]], info.row_perm[i]); /* the same rows stand together */
    for (int i = 0; i < K; i++) assert_int_equal(cols[after.col_perm[i]], info.col_perm[i]);
    assert_ok(lac_mask_reorder(mask, info.row_perm, info.col_perm, &plain));
    assert_ok(lac_mask_get_info(plain, &after));
    assert_true(!after.row_perm && !after.col_perm);
    assert_ok(lac_mask_reorder(mask, NULL, NULL, &same));
    assert_ok(lac_mask_get_info(same, &after));
    assert_true(same_mask(mask, same) && !memcmp(after.row_perm, info.row_perm, sizeof rows));
    lac_mask_free(same);
    lac_mask_free(plain);
    lac_mask_free(moved);
    lac_mask_free(mask);
}

/* ---- calibrations */

static void samples_come_in_any_number_of_calls(void **state)
{
    (void)state;
    lac_calibration *pieces = NULL;
    lac_calibration_info info = {.size = sizeof info}, whole = {.size = sizeof whole};
    assert_ok(lac_calibration_create(K, &pieces));
    for (int64_t first = 0; first < SAMPLES;) {
        int64_t count = first % 7 == 0 ? 1 : 5;
        if (count > SAMPLES - first) count = SAMPLES - first;
        lac_matrix x = {.data = the.x + first * K, .dtype = LAC_DTYPE_F32, .rows = count, .cols = K};
        assert_ok(lac_calibration_add(pieces, &x, 1));
        first += count;
    }
    assert_ok(lac_calibration_get_info(pieces, &info));
    assert_ok(lac_calibration_get_info(the.calibration, &whole));
    assert_true(info.samples == SAMPLES && info.k == K && info.dead == 0 && whole.samples == SAMPLES);
    double error[2], total[2];
    float none[N * K] = {0};
    lac_matrix nothing = the.dense;
    nothing.data = none;
    assert_ok(lac_calibration_error(pieces, &the.dense, &nothing, &error[0], &total[0]));
    assert_ok(lac_calibration_error(the.calibration, &the.dense, &nothing, &error[1], &total[1]));
    assert_true(error[0] == total[0] && error[1] == total[1]); /* all is lost */
    assert_true(fabs(total[0] - total[1]) <= 1e-5 * total[1]);
    lac_calibration_free(pieces);
}

typedef struct reader {
    pthread_t thread;
    bool good;
} reader;

static void *read_it(void *user)
{
    reader *r = user;
    float out[N * K];
    lac_matrix corrected = the.dense;
    corrected.data = out;
    lac_prune_options options = options_of(LAC_METHOD_WANDA);
    lac_pattern pattern = {.family = LAC_FAMILY_ELEMENT, .unit_n = 1, .unit_k = 1, .n = 2, .m = 4};
    options.threads = 1;
    r->good = true;
    for (int i = 0; i < 20; i++) {
        lac_mask *mask = NULL;
        lac_calibration_info info = {.size = sizeof info};
        r->good = r->good && !lac_calibration_get_info(the.calibration, &info) && info.samples == SAMPLES;
        r->good = r->good && !lac_prune_and_correct(&the.dense, &pattern, &options, &corrected, &mask);
        lac_mask_free(mask);
        lac_weight *weight = NULL;
        lac_compress_options compress = {.size = sizeof compress, .threads = 1};
        double kept = 0, total = 0;
        r->good = r->good && !lac_mask_energy(the.mask, &the.dense, &kept, &total) && kept > 0 && kept < total;
        r->good = r->good && !lac_weight_compress(&the.dense, the.mask, &compress, &weight);
        lac_weight_free(weight);
    }
    return NULL;
}

/* The thread sanitizer's build looks on. */
static void many_threads_read_what_is_shared(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    reader readers[THREADS];
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&readers[i].thread, NULL, read_it, &readers[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(readers[i].thread, NULL);
        assert_true(readers[i].good);
    }
}

static int set_up(void **state)
{
    (void)state;
    test_random random = test_random_make("contract_masks", 0);
    for (int i = 0; i < N * K; i++) the.w[i] = (float)test_random_gaussian(&random);
    for (int i = 0; i < SAMPLES * K; i++) the.x[i] = (float)(test_random_gaussian(&random) * exp(0.7 * (i % K % 5)));
    for (int i = 0; i < GRADIENTS * N * K; i++) the.g[i] = (float)test_random_gaussian(&random);
    the.dense = (lac_matrix){.data = the.w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    the.samples = (lac_matrix){.data = the.x, .dtype = LAC_DTYPE_F32, .rows = SAMPLES, .cols = K};
    the.gradients = (lac_gradients){.size = sizeof the.gradients, .data = the.g, .dtype = LAC_DTYPE_F32, .samples = GRADIENTS};
    assert_ok(lac_calibration_create(K, &the.calibration));
    assert_ok(lac_calibration_add(the.calibration, &the.samples, 1));
    lac_pattern pattern = pattern_of("2:4");
    lac_prune_options options = {.size = sizeof options, .threads = 1};
    assert_ok(lac_prune(&the.dense, &pattern, &options, &the.mask));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lac_mask_free(the.mask);
    lac_calibration_free(the.calibration);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_read_never_write),
        cmocka_unit_test(zeros_have_the_defaults_of_the_header),
        cmocka_unit_test(wanda_is_a_weight_times_the_norm_of_its_input),
        cmocka_unit_test(corrected_weights_go_anywhere),
        cmocka_unit_test(second_order_needs_finite_weights),
        cmocka_unit_test(energies_are_as_exact_as_said),
        cmocka_unit_test(kept_zeros_count),
        cmocka_unit_test(masks_are_put_in_another_order),
        cmocka_unit_test(samples_come_in_any_number_of_calls),
        cmocka_unit_test(many_threads_read_what_is_shared),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
