/* test_prune_obs.c - pruning by calibration. Second order against the best of all choices with an exact least-squares fit; the order of
 * the methods on correlated inputs, for every family; free distributions and shuffled rows; bad calibrations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/mask.h"
#include "prune/calibration.h"
#include "support/support.h"

/* ---------------------------------------------------------------- layers */

static float *random_floats(test_random *random, int64_t count)
{
    float *values = malloc((size_t)count * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) values[i] = (float)test_random_gaussian(random);
    return values;
}

typedef struct layer {
    int64_t n, k, samples;
    float *w, *x;
    lac_calibration *calibration;
} layer;

/* Inputs with common factors and different sizes, as activations have them. */
static layer make_layer(uint64_t seed, int64_t n, int64_t k, int64_t samples)
{
    enum { FACTORS = 8 };
    test_random random = test_random_make("prune_obs", (int64_t)(seed));
    layer l = {.n = n, .k = k, .samples = samples, .w = random_floats(&random, n * k)};
    float *mix = random_floats(&random, FACTORS * k), *size = random_floats(&random, k);
    l.x = random_floats(&random, samples * k);
    for (int64_t s = 0; s < samples; s++) {
        double factor[FACTORS];
        for (int f = 0; f < FACTORS; f++) factor[f] = test_random_gaussian(&random);
        for (int64_t c = 0; c < k; c++) {
            double value = 0.5 * l.x[s * k + c];
            for (int f = 0; f < FACTORS; f++) value += factor[f] * mix[f * k + c] * 0.4;
            l.x[s * k + c] = (float)(value * exp(0.7 * size[c]));
        }
    }
    free(mix), free(size);
    lac_matrix x = {.data = l.x, .dtype = LAC_DTYPE_F32, .rows = samples, .cols = k};
    assert_ok(lac_calibration_create(k, &l.calibration));
    assert_ok(lac_calibration_add(l.calibration, &x, 2));
    return l;
}

static void free_layer(layer *l)
{
    lac_calibration_free(l->calibration);
    free(l->w), free(l->x);
}

static lac_matrix weights_of(const layer *l)
{
    return (lac_matrix){.data = l->w, .dtype = LAC_DTYPE_F32, .rows = l->n, .cols = l->k};
}

/* Prunes by a method; the relative error of the outputs. The corrected weights obey the mask, and the mask the pattern. */
static double error_of(const layer *l, const char *text, lac_method method, int threads, float *keep)
{
    lac_pattern pattern;
    lac_mask *mask = NULL, *again = NULL;
    lac_matrix w = weights_of(l), out = w;
    double error, total;
    assert_ok(lac_pattern_parse(text, &pattern));
    out.data = malloc((size_t)(l->n * l->k) * sizeof(float));
    assert_non_null(out.data);
    lac_prune_options options = {.size = sizeof options, .method = method, .calibration = l->calibration, .threads = threads};
    assert_ok(lac_prune_and_correct(&w, &pattern, &options, &out, &mask));
    for (int64_t r = 0; r < l->n; r++)
        for (int64_t c = 0; c < l->k; c++) {
            float now = ((float *)out.data)[r * l->k + c];
            if (!lac_mask_get(mask, r, c))
                assert_true(now == 0);
            else if (method != LAC_METHOD_OBS)
                assert_true(now == l->w[r * l->k + c]);
        }
    assert_ok(lac_mask_with_pattern(mask, &pattern, &again));
    assert_ok(lac_calibration_error(l->calibration, &w, &out, &error, &total));
    if (keep) memcpy(keep, out.data, (size_t)(l->n * l->k) * sizeof(float));
    lac_mask_free(mask), lac_mask_free(again);
    free(out.data);
    return error / total;
}

/* The moments and the error are what sums over the samples say. */
static void test_moments(void **state)
{
    (void)state;
    layer l = make_layer(3, 5, 37, 700);
    lac_calibration_info info = {.size = sizeof info};
    assert_ok(lac_calibration_get_info(l.calibration, &info));
    assert_int_equal(info.k, 37);
    assert_int_equal(info.samples, 700);
    assert_int_equal(info.dead, 0);
    double error = 0, total = 0, measured_error, measured_total;
    float half[5 * 37];
    for (int64_t i = 0; i < 5 * 37; i++) half[i] = i % 2 ? l.w[i] : 0;
    for (int64_t s = 0; s < l.samples; s++)
        for (int64_t r = 0; r < l.n; r++) {
            double lost = 0, all = 0;
            for (int64_t c = 0; c < l.k; c++) {
                lost += (double)(l.w[r * l.k + c] - half[r * l.k + c]) * l.x[s * l.k + c];
                all += (double)l.w[r * l.k + c] * l.x[s * l.k + c];
            }
            error += lost * lost, total += all * all;
        }
    lac_matrix w = weights_of(&l), v = w;
    v.data = half;
    assert_ok(lac_calibration_error(l.calibration, &w, &v, &measured_error, &measured_total));
    assert_true(fabs(measured_error / error - 1) < 1e-4);
    assert_true(fabs(measured_total / total - 1) < 1e-4);
    free_layer(&l);
}

/* What is lost is no less than nothing, also where a few samples leave weights enough to make up for all: rounding went below zero. */
static void test_error_is_not_negative(void **state)
{
    enum { K = 8, N = 4 };
    (void)state;
    for (int64_t seed = 0; seed < 20; seed++) {
        test_random random = test_random_make("error_sign", seed);
        float *w = random_floats(&random, N * K), *x = random_floats(&random, K), v[N * K];
        lac_matrix before = {.data = w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K}, after = before;
        lac_matrix samples = {.data = x, .dtype = LAC_DTYPE_F32, .rows = 1, .cols = K};
        lac_calibration *calibration = NULL;
        lac_pattern pattern;
        lac_mask *mask = NULL;
        double error = -1, total = -1;
        after.data = v;
        assert_ok(lac_calibration_create(K, &calibration));
        assert_ok(lac_calibration_add(calibration, &samples, 1));
        assert_ok(lac_pattern_parse("4:8", &pattern));
        lac_prune_options options = {
            .size = sizeof options, .method = LAC_METHOD_OBS, .calibration = calibration, .damping = 1e-4};
        assert_ok(lac_prune_and_correct(&before, &pattern, &options, &after, &mask));
        assert_ok(lac_calibration_error(calibration, &before, &after, &error, &total));
        assert_true(error >= 0 && error < 1e-4 * total);
        lac_mask_free(mask);
        lac_calibration_free(calibration);
        free(w), free(x);
    }
}

/* Solves a small system by Gauss with pivots; returns nothing for singular ones, which the damping forbids. */
static void solve(double *a, double *b, int size)
{
    for (int c = 0; c < size; c++) {
        int pivot = c;
        for (int r = c + 1; r < size; r++)
            if (fabs(a[r * size + c]) > fabs(a[pivot * size + c])) pivot = r;
        for (int j = 0; j < size; j++) {
            double swap = a[c * size + j];
            a[c * size + j] = a[pivot * size + j], a[pivot * size + j] = swap;
        }
        double swap = b[c];
        b[c] = b[pivot], b[pivot] = swap;
        for (int r = 0; r < size; r++) {
            if (r == c) continue;
            double factor = a[r * size + c] / a[c * size + c];
            for (int j = c; j < size; j++) a[r * size + j] -= factor * a[c * size + j];
            b[r] -= factor * b[c];
        }
    }
    for (int c = 0; c < size; c++) b[c] /= a[c * size + c];
}

/* The least damped error of a row with `kept` weights of its k, by trying all, each fitted exactly. */
static double best_of_all(const double *h, const float *w, int k, int kept)
{
    double best = INFINITY;
    for (unsigned set = 0; set < 1u << k; set++) {
        if (__builtin_popcount(set) != kept) continue;
        int index[16], size = 0;
        for (int i = 0; i < k; i++)
            if (set >> i & 1) index[size++] = i;
        double a[16 * 16], b[16], error = 0, v[16] = {0};
        for (int i = 0; i < size; i++) {
            b[i] = 0;
            for (int j = 0; j < k; j++) b[i] += h[index[i] * k + j] * w[j];
            for (int j = 0; j < size; j++) a[i * size + j] = h[index[i] * k + index[j]];
        }
        solve(a, b, size);
        for (int i = 0; i < size; i++) v[index[i]] = b[i];
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++) error += (w[i] - v[i]) * h[i * k + j] * (w[j] - v[j]);
        if (error < best) best = error;
    }
    return best;
}

/* A matrix of one group: what OBS finds is the best of all choices, exactly where it tries every set, and nearly where it
 * exchanges inputs. */
static void test_against_all_choices(void **state)
{
    static const struct {
        const char *pattern;
        int kept, k;
        double most; /* mean excess over the best */
    } cases[] = {{"2:4", 2, 4, 1e-4},     {"1:4", 1, 4, 1e-4},  {"4:8", 4, 8, 1e-4},   {"2:8", 2, 8, 1e-4},
                 {"6:12", 6, 12, 1e-4},   {"3:8", 3, 8, 1e-4},  {"1:16", 1, 16, 1e-4}, {"4:16", 4, 16, 1e-4},
                 {"15:16", 15, 16, 1e-4}, {"8:16", 8, 16, 0.01}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int k = cases[i].k;
        layer l = make_layer(10 + i, k > 12 ? 20 : 40, k, 300);
        float *v = malloc((size_t)(l.n * k) * sizeof *v);
        double h[16 * 16], mean = 0, excess = 0;
        assert_non_null(v);
        error_of(&l, cases[i].pattern, LAC_METHOD_OBS, 2, v);
        for (int c = 0; c < k; c++) mean += l.calibration->moments[c * k + c] / k;
        for (int c = 0; c < k * k; c++) h[c] = l.calibration->moments[c] + (c / k == c % k ? 0.01 * mean : 0);
        for (int64_t r = 0; r < l.n; r++) {
            const float *w = l.w + r * k;
            double error = 0, best = best_of_all(h, w, k, cases[i].kept);
            for (int a = 0; a < k; a++)
                for (int b = 0; b < k; b++) error += (w[a] - v[r * k + a]) * h[a * k + b] * (w[b] - v[r * k + b]);
            assert_true(error >= best * (1 - 1e-3));
            excess += (error / best - 1) / (double)l.n;
        }
        print_message("%s: %.2g over the best of all choices\n", cases[i].pattern, excess);
        assert_true(excess <= cases[i].most);
        free(v);
        free_layer(&l);
    }
}

/* obs < wanda < magnitude, on every family. */
static void test_order_of_methods(void **state)
{
    static const char *const patterns[] = {"2:4",       "4:8",       "8:32",      "2:7",    "25%",     "vw8:4:16", "vw8:25%",
                                           "vw32:8:32", "bw4x4:2:8", "bw4x4:25%", "16:2:8", "16:2:40", "16:2:100", "shfl8:25%"};
    (void)state;
    layer l = make_layer(77, 64, 208, 2000);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        double magnitude = error_of(&l, patterns[i], LAC_METHOD_MAGNITUDE, 0, NULL);
        double wanda = error_of(&l, patterns[i], LAC_METHOD_WANDA, 0, NULL);
        double obs = error_of(&l, patterns[i], LAC_METHOD_OBS, 0, NULL);
        print_message("%-10s magnitude %.4f  wanda %.4f  obs %.4f\n", patterns[i], magnitude, wanda, obs);
        assert_true(wanda < magnitude);
        assert_true(obs < 0.8 * wanda);
    }
    free_layer(&l);
}

/* Half of the inputs are near copies of a few signals. Each of them alone costs next to nothing, since the others can stand in for it, and all of them together
 * much: a free distribution that went by each unit's own price would let them all go, and lose to N:M, which cannot. */
static void test_free_is_no_worse_than_groups(void **state)
{
    static const char *const pairs[][2] = {{"16:32", "50%"},           {"8:32", "25%"},           {"vw4:16:32", "vw4:50%"},
                                           {"vw4:8:32", "vw4:25%"},    {"vw32:8:32", "vw32:25%"}, {"bw4x4:16:32", "bw4x4:50%"},
                                           {"bw4x4:8:32", "bw4x4:25%"}};
    enum { SIGNALS = 8, LAYERS = 3 };
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        double sums[sizeof pairs / sizeof *pairs][2] = {{0}};
        for (uint64_t seed = 90; seed < 90 + LAYERS; seed++) {
            layer l = make_layer(seed, 64, 256, 1500);
            for (int64_t s = 0; s < l.samples; s++)
                for (int64_t c = l.k / 2; kind == 1 && c < l.k; c++)
                    l.x[s * l.k + c] = l.x[s * l.k + c % SIGNALS] + 0.1f * l.x[s * l.k + c];
            lac_calibration_free(l.calibration);
            lac_matrix x = {.data = l.x, .dtype = LAC_DTYPE_F32, .rows = l.samples, .cols = l.k};
            assert_ok(lac_calibration_create(l.k, &l.calibration));
            assert_ok(lac_calibration_add(l.calibration, &x, 2));
            for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
                for (int free_one = 0; free_one < 2; free_one++)
                    sums[i][free_one] += error_of(&l, pairs[i][free_one], LAC_METHOD_OBS, 0, NULL) / LAYERS;
            free_layer(&l);
        }
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            print_message("%-11s %.4f  %-9s %.4f\n", pairs[i][0], sums[i][0], pairs[i][1], sums[i][1]);
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) assert_true(sums[i][1] <= sums[i][0]);
    }
}

/* The squared error of the outputs with the damping in it: what OBS makes small. */
static double damped_error(const layer *l, const char *pattern)
{
    double mean = 0, sum = 0;
    const float *h = l->calibration->moments;
    float *v = malloc((size_t)(l->n * l->k) * sizeof *v);
    assert_non_null(v);
    error_of(l, pattern, LAC_METHOD_OBS, 0, v);
    for (int64_t c = 0; c < l->k; c++) mean += h[c * l->k + c] / (double)l->k;
    for (int64_t r = 0; r < l->n; r++)
        for (int64_t a = 0; a < l->k; a++) {
            double product = 0.01 * mean * (l->w[r * l->k + a] - v[r * l->k + a]);
            for (int64_t b = 0; b < l->k; b++) product += (double)h[a * l->k + b] * (l->w[r * l->k + b] - v[r * l->k + b]);
            sum += product * (l->w[r * l->k + a] - v[r * l->k + a]);
        }
    free(v);
    return sum;
}

/* Rows that may be shuffled lose no more than rows in order. An order that keeps more need not lose less once the rest has made up for what went: both are tried. */
static void test_shuffled_is_no_worse_than_in_order(void **state)
{
    static const char *const pairs[][2] = {{"vw8:50%", "shfl8:50%"}, {"vw8:25%", "shfl8:25%"}, {"vw16:25%", "shfl16:25%"}};
    (void)state;
    for (uint64_t seed = 40; seed < 52; seed++) {
        layer l = make_layer(seed, 50, 96, 600);
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            double in_order = damped_error(&l, pairs[i][0]), shuffled = damped_error(&l, pairs[i][1]);
            print_message("%s: %.4f of %s\n", pairs[i][1], shuffled / in_order, pairs[i][0]);
            assert_true(shuffled <= in_order * (1 + 1e-4));
        }
        free_layer(&l);
    }
}

static void test_threads_do_not_matter(void **state)
{
    static const char *const patterns[] = {"2:4", "8:32", "vw8:4:16", "16:2:8", "25%"};
    (void)state;
    layer l = make_layer(5, 48, 200, 400);
    size_t bytes = (size_t)(l.n * l.k) * sizeof(float);
    float *one = malloc(bytes), *three = malloc(bytes);
    assert_non_null(one);
    assert_non_null(three);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        error_of(&l, patterns[i], LAC_METHOD_OBS, 1, one);
        error_of(&l, patterns[i], LAC_METHOD_OBS, 3, three);
        assert_memory_equal(one, three, bytes);
    }
    free(one), free(three);
    free_layer(&l);
}

static void keep_warnings(void *user, lac_log_level level, const char *message)
{
    char *text = user; /* [1024] */
    assert_int_equal(level, LAC_LOG_LEVEL_WARNING);
    snprintf(text + strlen(text), 1024 - strlen(text), "%s\n", message);
}

/* Too few samples, and moments that are singular until the damping is raised: a warning each, and a sound result; none that helps: an error, and nothing changes. */
static void test_warnings(void **state)
{
    enum { K = 16 };
    (void)state;
    char text[1024] = "";
    lac_pattern pattern;
    lac_mask *mask = NULL;
    layer l = make_layer(9, 8, K, 5);
    float out[8 * K], moments[K * K] = {0};
    lac_matrix w = weights_of(&l), m = {.data = moments, .dtype = LAC_DTYPE_F32, .rows = K, .cols = K};
    lac_matrix corrected = {.data = out, .dtype = LAC_DTYPE_F32, .rows = 8, .cols = K};
    lac_prune_options options = {.size = sizeof options, .method = LAC_METHOD_OBS, .calibration = l.calibration};
    assert_ok(lac_pattern_parse("2:4", &pattern));
    lac_set_log(keep_warnings, text, LAC_LOG_LEVEL_WARNING);
    assert_ok(lac_prune_and_correct(&w, &pattern, &options, &corrected, &mask));
    assert_string_equal(text, "calibration: 5 samples for 16 inputs; the damping of 0.01 decides where they say nothing\n");
    lac_mask_free(mask);
    mask = NULL;

    /* Each pair of inputs could have these moments, all of them together could not: the least eigenvalue is 1 - 15 * 0.2 = -2. */
    lac_calibration *wrong = NULL;
    for (int i = 0; i < K * K; i++) moments[i] = i / K == i % K ? 1 : -0.2f;
    assert_ok(lac_calibration_create(K, &wrong));
    assert_ok(lac_calibration_add_moments(wrong, &m, 100));
    options.calibration = wrong;
    text[0] = 0;
    assert_ok(lac_prune_and_correct(&w, &pattern, &options, &corrected, &mask)); /* a damping of 10 does */
    assert_non_null(strstr(text, "with a damping of 0.01 the moments are singular at input"));
    assert_non_null(strstr(text, "with a damping of 1 the moments are singular at input"));
    assert_null(strstr(text, "with a damping of 10 "));
    for (int i = 0; i < 8 * K; i++) assert_true(isfinite(out[i]));
    lac_mask_free(mask);
    mask = NULL;

    options.damping = 1e-6; /* ends at 0.1 */
    memset(out, 0x5a, sizeof out);
    assert_fails(lac_prune_and_correct(&w, &pattern, &options, &corrected, &mask), LAC_STATUS_INVALID_ARGUMENT,
                 "singular even with a damping of 0.1");
    assert_null(mask);
    for (size_t i = 0; i < sizeof out; i++) assert_int_equal(((unsigned char *)out)[i], 0x5a);
    lac_set_log(NULL, NULL, LAC_LOG_LEVEL_WARNING);
    lac_calibration_free(wrong);
    free_layer(&l);
}

static void test_bad_calibration(void **state)
{
    (void)state;
    layer l = make_layer(6, 8, 32, 3); /* 3 samples for 32 inputs: damping makes it sound */
    lac_pattern pattern;
    lac_mask *mask = NULL;
    lac_matrix w = weights_of(&l);
    float out[8 * 32], x[2 * 32] = {0};
    lac_matrix corrected = {.data = out, .dtype = LAC_DTYPE_F32, .rows = 8, .cols = 32};
    lac_matrix samples = {.data = x, .dtype = LAC_DTYPE_F32, .rows = 2, .cols = 32};
    lac_prune_options options = {.size = sizeof options, .method = LAC_METHOD_OBS, .calibration = l.calibration};
    assert_ok(lac_pattern_parse("2:4", &pattern));
    assert_ok(lac_prune_and_correct(&w, &pattern, &options, &corrected, &mask));
    for (int i = 0; i < 8 * 32; i++) assert_true(isfinite(out[i]));
    lac_mask_free(mask);
    mask = NULL;

    /* A sample that is not finite is refused, and the moments stay. */
    float before = l.calibration->moments[33];
    x[32 + 5] = NAN;
    assert_int_equal(lac_calibration_add(l.calibration, &samples, 1), LAC_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(lac_last_error(), "sample 1, input 5 is nan"));
    assert_true(l.calibration->moments[33] == before);
    assert_int_equal(l.calibration->samples, 3);

    /* None, empty, of the wrong width, or of zeros alone. */
    lac_calibration *other = NULL;
    options.calibration = NULL;
    assert_int_equal(lac_prune_and_correct(&w, &pattern, &options, &corrected, &mask), LAC_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(lac_last_error(), "calibration is NULL"));
    assert_ok(lac_calibration_create(32, &other));
    options.calibration = other;
    assert_int_equal(lac_prune_and_correct(&w, &pattern, &options, &corrected, &mask), LAC_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(lac_last_error(), "no samples"));
    x[32 + 5] = 0;
    assert_ok(lac_calibration_add(other, &samples, 0));
    assert_int_equal(lac_prune_and_correct(&w, &pattern, &options, &corrected, &mask), LAC_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(lac_last_error(), "mean square of its inputs is 0"));
    lac_calibration_free(other);
    assert_ok(lac_calibration_create(31, &other));
    options.calibration = other;
    assert_int_equal(lac_prune_and_correct(&w, &pattern, &options, &corrected, &mask), LAC_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(lac_last_error(), "k = 31"));
    lac_calibration_free(other);

    /* OBS without a place for its weights, weights that are not finite, an input that never moves. */
    options.calibration = l.calibration;
    assert_int_equal(lac_prune(&w, &pattern, &options, &mask), LAC_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(lac_last_error(), "lac_prune_and_correct"));
    float kept = l.w[40];
    l.w[40] = INFINITY;
    assert_int_equal(lac_prune_and_correct(&w, &pattern, &options, &corrected, &mask), LAC_STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(lac_last_error(), "W[1][8] is inf"));
    l.w[40] = kept;
    assert_null(mask);
    for (int c = 0; c < 32; c++) l.calibration->moments[7 * 32 + c] = l.calibration->moments[c * 32 + 7] = 0;
    lac_calibration_info info = {.size = sizeof info};
    assert_ok(lac_calibration_get_info(l.calibration, &info));
    assert_int_equal(info.dead, 1);
    assert_ok(lac_prune_and_correct(&w, &pattern, &options, &w, &mask)); /* in place */
    for (int i = 0; i < 8 * 32; i++) assert_true(isfinite(l.w[i]));
    lac_mask_free(mask);
    free_layer(&l);
}

/* Moments that somebody else has formed stand for the samples; what cannot be a sum of x x^T is refused. */
static void test_moments_from_elsewhere(void **state)
{
    enum { K = 24, SAMPLES = 90 };
    (void)state;
    layer l = make_layer(77, 8, K, SAMPLES);
    double sums[K * K] = {0};
    float v[2][8 * K];
    lac_pattern pattern;
    assert_ok(lac_pattern_parse("2:4", &pattern));
    for (int s = 0; s < SAMPLES; s++)
        for (int i = 0; i < K * K; i++) sums[i] += (double)l.x[s * K + i / K] * l.x[s * K + i % K];
    lac_matrix m = {.data = sums, .dtype = LAC_DTYPE_F64, .rows = K, .cols = K};
    lac_calibration *other = NULL;
    lac_calibration_info info = {.size = sizeof info};
    assert_ok(lac_calibration_create(K, &other));
    assert_ok(lac_calibration_add_moments(other, &m, SAMPLES));
    assert_ok(lac_calibration_get_info(other, &info));
    assert_int_equal(info.samples, SAMPLES);
    for (int i = 0; i < 2; i++) {
        lac_mask *mask = NULL;
        lac_matrix w = {.data = l.w, .dtype = LAC_DTYPE_F32, .rows = 8, .cols = K}, out = w;
        lac_prune_options options = {
            .size = sizeof options, .method = LAC_METHOD_OBS, .calibration = i ? other : l.calibration};
        out.data = v[i];
        assert_ok(lac_prune_and_correct(&w, &pattern, &options, &out, &mask));
        lac_mask_free(mask);
    }
    for (int i = 0; i < 8 * K; i++) assert_true(fabs(v[0][i] - v[1][i]) < 1e-3 && (v[0][i] == 0) == (v[1][i] == 0));
    static const struct {
        int at;
        double value;
        const char *words;
    } bad[] = {{5 * K + 5, -1, "element (5, 5) is -1"},
               {7 * K + 2, NAN, "element (7, 2) is nan"},
               {7 * K + 2, 1e9, "no sum of x x^T"},
               {2 * K + 7, -1e9, "no sum of x x^T"},
               {9 * K + 9, 1e39, "finite"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        double saved = sums[bad[i].at];
        sums[bad[i].at] = bad[i].value;
        assert_fails(lac_calibration_add_moments(other, &m, SAMPLES), LAC_STATUS_INVALID_ARGUMENT, bad[i].words);
        sums[bad[i].at] = saved;
    }
    assert_fails(lac_calibration_add_moments(other, &m, 0), LAC_STATUS_INVALID_ARGUMENT, "samples is 0");
    assert_ok(lac_calibration_get_info(other, &info));
    assert_int_equal(info.samples, SAMPLES);
    assert_ok(lac_calibration_add_moments(other, &m, INT64_MAX - SAMPLES)); /* as many as can be counted */
    lac_matrix one = {.data = l.x, .dtype = LAC_DTYPE_F32, .rows = 1, .cols = K};
    assert_fails(lac_calibration_add(other, &one, 1), LAC_STATUS_INVALID_ARGUMENT, "x has 1 rows");
    assert_ok(lac_calibration_get_info(other, &info));
    assert_true(info.samples == INT64_MAX);
    lac_calibration_free(other);
    free(l.w), free(l.x);
    lac_calibration_free(l.calibration);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_error_is_not_negative),
        cmocka_unit_test(test_against_all_choices),
        cmocka_unit_test(test_order_of_methods),
        cmocka_unit_test(test_free_is_no_worse_than_groups),
        cmocka_unit_test(test_shuffled_is_no_worse_than_in_order),
        cmocka_unit_test(test_threads_do_not_matter),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_bad_calibration),
        cmocka_unit_test(test_moments_from_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
