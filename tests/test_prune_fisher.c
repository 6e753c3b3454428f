/* test_prune_fisher.c - second-order pruning by gradients: against VENOM's formula, computed in double with a plain inverse, over every choice of
 * a small group; less rise of the loss than by magnitude for every family; refusals. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

typedef struct layer {
    int64_t n, k, samples;
    float *w, *g; /* [n][k], [samples][n][k] */
} layer;

/* Gradients that neighbours have in common, of different size from weight to weight. */
static layer make_layer(int64_t seed, int64_t n, int64_t k, int64_t samples)
{
    test_random random = test_random_make("fisher", seed);
    layer l = {.n = n, .k = k, .samples = samples};
    l.w = malloc((size_t)(n * k) * sizeof *l.w);
    l.g = malloc((size_t)(samples * n * k) * sizeof *l.g);
    double *size = malloc((size_t)(n * k) * sizeof *size);
    assert_true(l.w && l.g && size);
    for (int64_t i = 0; i < n * k; i++) {
        l.w[i] = (float)test_random_gaussian(&random);
        size[i] = exp(test_random_gaussian(&random));
    }
    for (int64_t s = 0; s < samples; s++)
        for (int64_t r = 0; r < n; r++) {
            double common = test_random_gaussian(&random), other = test_random_gaussian(&random);
            for (int64_t c = 0; c < k; c++)
                l.g[(s * n + r) * k + c] =
                    (float)(size[r * k + c] * (common + (c % 3 ? 0.7 : -0.7) * other + 0.4 * test_random_gaussian(&random)));
        }
    free(size);
    return l;
}

static void free_layer(layer *l) { free(l->w), free(l->g); }

static void prune(const layer *l, const char *text, lac_method method, int threads, float *out)
{
    lac_pattern pattern;
    lac_mask *mask = NULL, *again = NULL;
    lac_gradients gradients = {.size = sizeof gradients, .data = l->g, .dtype = LAC_DTYPE_F32, .samples = l->samples};
    lac_matrix w = {.data = l->w, .dtype = LAC_DTYPE_F32, .rows = l->n, .cols = l->k}, v = w;
    lac_prune_options options = {.size = sizeof options, .method = method, .threads = threads, .gradients = &gradients};
    v.data = out;
    assert_ok(lac_pattern_parse(text, &pattern));
    assert_ok(lac_prune_and_correct(&w, &pattern, &options, &v, &mask));
    assert_ok(lac_mask_with_pattern(mask, &pattern, &again));
    for (int64_t i = 0; i < l->n * l->k; i++)
        if (!lac_mask_get(mask, i / l->k, i % l->k)) assert_true(out[i] == 0);
    lac_mask_free(mask), lac_mask_free(again);
}

/* F of row r over columns [first, first + size): damped, as the library damps it. */
static void fisher_of(const layer *l, int64_t r, int64_t first, int size, double *f)
{
    double mean = 0;
    for (int64_t i = 0; i < l->samples * l->n * l->k; i++) mean += (double)l->g[i] * l->g[i];
    mean /= (double)(l->samples * l->n * l->k);
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size; j++) {
            double sum = 0;
            for (int64_t s = 0; s < l->samples; s++)
                sum += (double)l->g[(s * l->n + r) * l->k + first + i] * l->g[(s * l->n + r) * l->k + first + j];
            f[i * size + j] = sum / (double)l->samples + (i == j ? 0.01 * mean : 0);
        }
}

/* Gauss-Jordan: a becomes its inverse. */
static void invert(double *a, int size)
{
    for (int c = 0; c < size; c++) {
        double pivot = a[c * size + c];
        a[c * size + c] = 1;
        for (int j = 0; j < size; j++) a[c * size + j] /= pivot;
        for (int r = 0; r < size; r++) {
            if (r == c) continue;
            double factor = a[r * size + c];
            a[r * size + c] = 0;
            for (int j = 0; j < size; j++) a[r * size + j] -= factor * a[c * size + j];
        }
    }
}

/* What the loss rises by: half of d^T F d, over blocks of 64 columns at most. */
static double rise(const layer *l, const float *v)
{
    double sum = 0;
    for (int64_t r = 0; r < l->n; r++)
        for (int64_t first = 0; first < l->k; first += 64) {
            int size = (int)(l->k - first < 64 ? l->k - first : 64);
            static double f[64 * 64];
            fisher_of(l, r, first, size, f);
            const float *w = l->w + r * l->k + first, *to = v + r * l->k + first;
            for (int i = 0; i < size; i++)
                for (int j = 0; j < size; j++) sum += 0.5 * (w[i] - to[i]) * f[i * size + j] * (w[j] - to[j]);
        }
    return sum;
}

/* VENOM: the set Q that goes has the least 1/2 w_Q^T ((F^-1)_QQ)^-1 w_Q; what stays changes by -F^-1_KQ ((F^-1)_QQ)^-1 w_Q. */
static double least_saliency(const layer *l, int64_t r, int dropped)
{
    int k = (int)l->k;
    double inverse[8 * 8], best = INFINITY;
    fisher_of(l, r, 0, k, inverse);
    invert(inverse, k);
    for (unsigned set = 0; set < 1u << k; set++) {
        int index[8], size = 0;
        double part[8 * 8], cost = 0;
        if (__builtin_popcount(set) != dropped) continue;
        for (int i = 0; i < k; i++)
            if (set >> i & 1) index[size++] = i;
        for (int i = 0; i < size; i++)
            for (int j = 0; j < size; j++) part[i * size + j] = inverse[index[i] * k + index[j]];
        invert(part, size);
        for (int i = 0; i < size; i++)
            for (int j = 0; j < size; j++) cost += 0.5 * l->w[r * k + index[i]] * part[i * size + j] * l->w[r * k + index[j]];
        if (cost < best) best = cost;
    }
    return best;
}

static void test_against_the_formula(void **state)
{
    static const struct {
        const char *pattern;
        int k, dropped;
    } cases[] = {{"2:4", 4, 2}, {"1:4", 4, 3}, {"4:8", 8, 4}, {"2:8", 8, 6}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        layer l = make_layer((int64_t)i, 20, cases[i].k, 30), one = l;
        float v[20 * 8];
        prune(&l, cases[i].pattern, LAC_METHOD_FISHER, 2, v);
        double expected = 0;
        for (int64_t r = 0; r < l.n; r++) expected += least_saliency(&l, r, cases[i].dropped);
        double got = rise(&one, v);
        print_message("%s: the loss rises by %.6f, by the formula %.6f\n", cases[i].pattern, got, expected);
        assert_true(fabs(got / expected - 1) < 1e-3);
        free_layer(&l);
    }
}

static void test_better_than_magnitude(void **state)
{
    static const char *const patterns[] = {"2:4",       "8:32",      "3:7",    "25%",    "vw8:4:16", "vw8:25%",
                                           "bw4x4:2:8", "bw4x4:25%", "16:2:8", "8:2:40", "8:2:100",  "shfl8:25%"};
    (void)state;
    layer l = make_layer(50, 32, 200, 40);
    size_t bytes = (size_t)(l.n * l.k) * sizeof(float);
    float *plain = malloc(bytes), *one = malloc(bytes), *three = malloc(bytes);
    assert_true(plain && one && three);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        prune(&l, patterns[i], LAC_METHOD_MAGNITUDE, 0, plain);
        prune(&l, patterns[i], LAC_METHOD_FISHER, 1, one);
        prune(&l, patterns[i], LAC_METHOD_FISHER, 3, three);
        assert_memory_equal(one, three, bytes);
        double magnitude = rise(&l, plain), fisher = rise(&l, one);
        print_message("%-10s magnitude %9.2f  fisher %9.2f\n", patterns[i], magnitude, fisher);
        assert_true(fisher < 0.6 * magnitude);
    }
    free(plain), free(one), free(three);
    free_layer(&l);
}

/* 1/2 of the mean of (g dw)^2 over whole rows, with the damping: by what two orders are compared. */
static double rise_of_rows(const layer *l, const float *v)
{
    double sum = 0, squares = 0, mean = 0;
    for (int64_t s = 0; s < l->samples; s++)
        for (int64_t r = 0; r < l->n; r++) {
            double part = 0;
            for (int64_t c = 0; c < l->k; c++) {
                double g = l->g[(s * l->n + r) * l->k + c];
                part += g * (v[r * l->k + c] - l->w[r * l->k + c]);
                mean += g * g;
            }
            sum += part * part;
        }
    for (int64_t i = 0; i < l->n * l->k; i++) squares += (v[i] - l->w[i]) * (double)(v[i] - l->w[i]);
    mean /= (double)(l->samples * l->n * l->k);
    return 0.5 * (sum / (double)l->samples + 0.01 * mean * squares);
}

/* In another order: the loss rises no more than without, and the result is, to the bit, that of the plain method on weights and gradients that were
 * reordered by hand. */
static void test_in_another_order(void **state)
{
    static const struct {
        const char *pattern;
        uint32_t permute;
    } cases[] = {{"2:4", LAC_PERMUTE_COLUMNS},
                 {"vw8:4:16", LAC_PERMUTE_ROWS},
                 {"vw8:4:16", 3},
                 {"16:2:8", 3},
                 {"vw4:25%", LAC_PERMUTE_ROWS}};
    (void)state;
    layer l = make_layer(21, 32, 64, 24);
    size_t count = (size_t)(l.n * l.k);
    float *v = malloc(count * sizeof *v), *plain = malloc(count * sizeof *v), *by_hand = malloc(count * sizeof *v);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        layer moved = l;
        lac_pattern pattern;
        lac_mask *mask = NULL;
        lac_mask_info info = {.size = sizeof info};
        lac_gradients gradients = {.size = sizeof gradients, .data = l.g, .dtype = LAC_DTYPE_F32, .samples = l.samples};
        lac_prune_options options = {
            .size = sizeof options, .method = LAC_METHOD_FISHER, .gradients = &gradients, .threads = 2};
        lac_matrix w = {.data = l.w, .dtype = LAC_DTYPE_F32, .rows = l.n, .cols = l.k}, out = w;
        out.data = v;
        options.permute = cases[i].permute;
        assert_ok(lac_pattern_parse(cases[i].pattern, &pattern));
        assert_ok(lac_prune_and_correct(&w, &pattern, &options, &out, &mask));
        prune(&l, cases[i].pattern, LAC_METHOD_FISHER, 1, plain);
        double with = rise_of_rows(&l, v), without = rise_of_rows(&l, plain);
        print_message("%-10s %.4f without, %.4f with\n", cases[i].pattern, without, with);
        assert_true(with <= without * (1 + 1e-9));
        assert_ok(lac_mask_get_info(mask, &info));
        for (int64_t j = 0; j < l.n * l.k; j++) assert_true(v[j] == 0 || lac_mask_get(mask, j / l.k, j % l.k));
        moved.w = malloc(count * sizeof *v), moved.g = malloc(count * (size_t)l.samples * sizeof *v);
        for (int64_t r = 0; r < l.n; r++)
            for (int64_t c = 0; c < l.k; c++) {
                int64_t row = info.row_perm ? info.row_perm[r] : r, col = info.col_perm ? info.col_perm[c] : c;
                moved.w[r * l.k + c] = l.w[row * l.k + col];
                for (int64_t s = 0; s < l.samples; s++) moved.g[(s * l.n + r) * l.k + c] = l.g[(s * l.n + row) * l.k + col];
            }
        prune(&moved, cases[i].pattern, LAC_METHOD_FISHER, 1, by_hand);
        for (int64_t r = 0; r < l.n; r++)
            for (int64_t c = 0; c < l.k; c++) {
                int64_t row = info.row_perm ? info.row_perm[r] : r, col = info.col_perm ? info.col_perm[c] : c;
                assert_true(by_hand[r * l.k + c] == v[row * l.k + col]);
            }
        free(moved.w), free(moved.g);
        lac_weight *weight = NULL;
        assert_ok(lac_weight_compress(&out, mask, NULL, &weight));
        lac_weight_free(weight);
        lac_mask_free(mask);
    }
    free(v), free(plain), free(by_hand);
    free_layer(&l);
}

static void test_refusals(void **state)
{
    layer l = make_layer(9, 4, 8, 2);
    float out[4 * 8];
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_gradients gradients = {.size = sizeof gradients, .data = l.g, .dtype = LAC_DTYPE_F32, .samples = 0};
    lac_matrix w = {.data = l.w, .dtype = LAC_DTYPE_F32, .rows = 4, .cols = 8}, v = w;
    lac_prune_options options = {.size = sizeof options, .method = LAC_METHOD_FISHER};
    v.data = out;
    (void)state;
    assert_ok(lac_pattern_parse("2:4", &pattern));
    assert_fails(lac_prune_and_correct(&w, &pattern, &options, &v, &mask), LAC_STATUS_INVALID_ARGUMENT, "gradients is NULL");
    options.gradients = &gradients;
    assert_fails(lac_prune_and_correct(&w, &pattern, &options, &v, &mask), LAC_STATUS_INVALID_ARGUMENT, "0 samples");
    gradients.samples = 2, gradients.dtype = LAC_DTYPE_NONE;
    assert_fails(lac_prune_and_correct(&w, &pattern, &options, &v, &mask), LAC_STATUS_INVALID_ARGUMENT, "dtype none");
    gradients.dtype = LAC_DTYPE_F32, gradients.data = (const char *)l.g + 1;
    assert_fails(lac_prune_and_correct(&w, &pattern, &options, &v, &mask), LAC_STATUS_INVALID_ARGUMENT, "aligned");
    gradients.data = l.g;
    assert_fails(lac_prune(&w, &pattern, &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "method is fisher");
    l.g[32 + 13] = INFINITY;
    assert_fails(lac_prune_and_correct(&w, &pattern, &options, &v, &mask), LAC_STATUS_INVALID_ARGUMENT,
                 "sample 1, W[1][5] is inf");
    memset(l.g, 0, 2 * 32 * sizeof *l.g);
    assert_fails(lac_prune_and_correct(&w, &pattern, &options, &v, &mask), LAC_STATUS_INVALID_ARGUMENT, "2 samples are zero");
    assert_null(mask);
    free_layer(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_the_formula),
        cmocka_unit_test(test_better_than_magnitude),
        cmocka_unit_test(test_in_another_order),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
