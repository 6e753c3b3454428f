/* test_prune_obs_select.c - what second-order pruning chooses: the best of all sets where every set is priced, no worse than one after the other where inputs are exchanged, V:N:M against
 * every selection; ties, schedules, threads, and moments that are singular. Moments are given, and nothing but inputs of one group have any in common: so each group's best
 * is known by itself, and what it loses in double. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/mask.h"
#include "prune/calibration.h"
#include "prune/obs.h"
#include "support/support.h"

enum { K_MOST = 100, N_MOST = 80 };

typedef struct layer {
    int64_t n, k, group;
    float w[N_MOST * K_MOST], v[N_MOST * K_MOST]; /* before and after */
    double h[K_MOST * K_MOST];                    /* damped */
    lac_calibration *calibration;
    lac_mask *mask;
} layer;

/* kind 0: neighbours are alike; 1: four common factors and some noise; 2: hardly any noise, so that the damping decides. */
static void make_layer(layer *l, int64_t seed, int kind, int64_t n, int64_t k, int64_t group)
{
    enum { FACTORS = 4 };
    test_random random = test_random_make("obs_select", seed);
    static double moments[K_MOST * K_MOST];
    double mix[FACTORS][K_MOST], mean = 0;
    assert_true(n <= N_MOST && k <= K_MOST);
    *l = (layer){.n = n, .k = k, .group = group};
    for (int64_t i = 0; i < n * k; i++) l->w[i] = (float)test_random_gaussian(&random);
    for (int f = 0; f < FACTORS; f++)
        for (int64_t c = 0; c < k; c++) mix[f][c] = test_random_gaussian(&random);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < k; j++) {
            double value = kind == 0 ? pow(0.9, (double)llabs(i - j)) : i == j ? (kind == 1 ? 0.5 : 1e-3) : 0;
            for (int f = 0; f < FACTORS && kind > 0; f++) value += mix[f][i] * mix[f][j];
            moments[i * k + j] = i / group == j / group ? 1000 * value : 0;
        }
    lac_matrix m = {.data = moments, .dtype = LAC_DTYPE_F64, .rows = k, .cols = k};
    assert_ok(lac_calibration_create(k, &l->calibration));
    assert_ok(lac_calibration_add_moments(l->calibration, &m, 1000));
    for (int64_t c = 0; c < k; c++) mean += l->calibration->moments[c * k + c] / (double)k;
    for (int64_t i = 0; i < k * k; i++) l->h[i] = l->calibration->moments[i] + (i / k == i % k ? 0.01 * mean : 0);
}

static void free_layer(layer *l)
{
    lac_calibration_free(l->calibration);
    lac_mask_free(l->mask);
}

static void prune_layer(layer *l, const char *text, const char *before, int threads)
{
    lac_pattern pattern, first;
    lac_mask *again = NULL;
    lac_matrix w = {.data = l->w, .dtype = LAC_DTYPE_F32, .rows = l->n, .cols = l->k}, out = w;
    lac_prune_options options = {
        .size = sizeof options, .method = LAC_METHOD_OBS, .calibration = l->calibration, .threads = threads};
    assert_ok(lac_pattern_parse(text, &pattern));
    if (before) {
        assert_ok(lac_pattern_parse(before, &first));
        options.schedule = &first, options.schedule_count = 1;
    }
    out.data = l->v;
    lac_mask_free(l->mask);
    l->mask = NULL;
    assert_ok(lac_prune_and_correct(&w, &pattern, &options, &out, &l->mask));
    assert_ok(lac_mask_with_pattern(l->mask, &pattern, &again));
    lac_mask_free(again);
    for (int64_t i = 0; i < l->n * l->k; i++)
        assert_true(isfinite(l->v[i]) && (lac_mask_get(l->mask, i / l->k, i % l->k) || l->v[i] == 0));
}

/* What rows [row, row + rows) lose in columns [first, first + count). */
static double loss_of(const layer *l, int64_t row, int64_t rows, int64_t first, int64_t count)
{
    double sum = 0;
    for (int64_t r = row; r < row + rows; r++)
        for (int64_t i = first; i < first + count; i++)
            for (int64_t j = first; j < first + count; j++)
                sum += ((double)l->w[r * l->k + i] - l->v[r * l->k + i]) * l->h[i * l->k + j] *
                       ((double)l->w[r * l->k + j] - l->v[r * l->k + j]);
    return sum;
}

/* The least that a row can lose of these columns when it keeps inputs index[size] of them: w^T H w - b_S^T (H_SS)^-1 b_S, by Gauss. */
static double least_loss(const layer *l, int64_t row, int64_t first, int64_t count, const int *index, int size)
{
    double a[33 * 33], b[33], loss = 0;
    const float *w = l->w + row * l->k + first;
    for (int i = 0; i < size; i++) {
        b[i] = 0;
        for (int j = 0; j < size; j++) a[i * size + j] = l->h[(first + index[i]) * l->k + first + index[j]];
        for (int64_t j = 0; j < count; j++) b[i] += l->h[(first + index[i]) * l->k + first + j] * w[j];
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < count; j++) loss += w[i] * l->h[(first + i) * l->k + first + j] * w[j];
    for (int c = 0; c < size; c++) { /* positive definite: no pivots are needed */
        loss -= b[c] * b[c] / a[c * size + c];
        for (int r = c + 1; r < size; r++) {
            double factor = a[r * size + c] / a[c * size + c];
            for (int j = c; j < size; j++) a[r * size + j] -= factor * a[c * size + j];
            b[r] -= factor * b[c];
        }
    }
    return loss;
}

static double least_loss_of_rows(const layer *l, int64_t row, int64_t rows, int64_t first, int64_t count, uint64_t kept)
{
    int index[33], size = 0;
    double sum = 0;
    for (int c = 0; c < count; c++)
        if (kept >> c & 1) index[size++] = c;
    for (int64_t r = row; r < row + rows; r++) sum += least_loss(l, r, first, count, index, size);
    return sum;
}

/* The next larger number with as many bits; of 0, which has no bits, something above every set. */
static uint64_t next_set(uint64_t set)
{
    if (set == 0) return UINT64_MAX;
    uint64_t low = set & -set, up = set + low;
    return up | ((set ^ up) / low >> 2);
}

/* The least that these rows can lose together of columns [first, first + count) when they keep `kept` inputs of `from`. */
static double best_of_sets(const layer *l, int64_t row, int64_t rows, int64_t first, int64_t count, int kept, uint64_t from)
{
    double best = INFINITY;
    for (uint64_t set = (UINT64_C(1) << kept) - 1; set < UINT64_C(1) << count; set = next_set(set)) {
        if (set & ~from) continue;
        double loss = least_loss_of_rows(l, row, rows, first, count, set);
        if (loss < best) best = loss;
    }
    return best;
}

static uint64_t kept_bits(const layer *l, int64_t row, int64_t first, int64_t count)
{
    uint64_t bits = 0;
    for (int64_t c = 0; c < count; c++) bits |= (uint64_t)lac_mask_get(l->mask, row, first + c) << c;
    return bits;
}

/* ---------------------------------------------------------------- every set */

static const struct {
    const char *pattern;
    int kept, m;
    int64_t unit, n, k;
} exact[] = {{"1:4", 1, 4, 1, 33, 10},       {"2:4", 2, 4, 1, 33, 8},        {"3:8", 3, 8, 1, 20, 21},
             {"5:8", 5, 8, 1, 20, 16},       {"1:16", 1, 16, 1, 37, 50},     {"2:16", 2, 16, 1, 20, 41},
             {"3:16", 3, 16, 1, 18, 32},     {"15:16", 15, 16, 1, 17, 16},   {"13:16", 13, 16, 1, 17, 31},
             {"4:16", 4, 16, 1, 6, 22},      {"5:13", 5, 13, 1, 8, 26},      {"6:12", 6, 12, 1, 8, 20},
             {"1:32", 1, 32, 1, 18, 68},     {"2:32", 2, 32, 1, 17, 39},     {"30:32", 30, 32, 1, 4, 32},
             {"vw4:1:16", 1, 16, 4, 70, 20}, {"vw4:3:16", 3, 16, 4, 10, 33}, {"vw2:14:16", 14, 16, 2, 7, 16},
             {"vw8:8:16", 8, 16, 8, 12, 16}, {"vw80:2:4", 2, 4, 80, 70, 10}};

/* Where every set is priced, each row group of each group loses no more than with the best. What is known of the moments in float stands between the two. */
static void test_every_set(void **state)
{
    static layer l;
    (void)state;
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        for (int kind = 0; kind < 3; kind++) {
            double most = 0;
            assert_true(lac_obs_sets_are_few(exact[i].m, exact[i].kept, exact[i].unit));
            make_layer(&l, (int64_t)i, kind, exact[i].n, exact[i].k, exact[i].m);
            prune_layer(&l, exact[i].pattern, NULL, 2);
            for (int64_t row = 0; row < l.n; row += exact[i].unit)
                for (int64_t first = 0; first < l.k; first += l.group) {
                    int64_t count = l.k - first < l.group ? l.k - first : l.group;
                    int64_t rows = l.n - row < exact[i].unit ? l.n - row : exact[i].unit;
                    int kept = count < exact[i].kept ? (int)count : exact[i].kept;
                    double best = best_of_sets(&l, row, rows, first, count, kept, UINT64_MAX);
                    uint64_t bits = kept_bits(&l, row, first, count);
                    double chosen = least_loss_of_rows(&l, row, rows, first, count, bits);
                    if (count == kept) continue;
                    if (chosen / best - 1 > most) most = chosen / best - 1;
                    /* the weights are the best for that set, too */
                    assert_true(loss_of(&l, row, rows, first, count) <= chosen * (1 + 1e-2));
                }
            print_message("%s, kind %d: %.2g over the best\n", exact[i].pattern, kind, most);
            assert_true(most <= (kind == 2 ? 1e-3 : 1e-4));
            free_layer(&l);
        }
}

/* ---------------------------------------------------------------- exchanges */

/* One after the other goes, always the one without which least is lost. */
static double one_by_one(const layer *l, int64_t row, int64_t rows, int count, int kept)
{
    uint64_t left = (UINT64_C(1) << count) - 1;
    double loss = 0;
    for (int i = count; i > kept; i--) {
        uint64_t best = 0;
        double least = INFINITY;
        for (int c = 0; c < count; c++) {
            uint64_t without = left & ~(UINT64_C(1) << c);
            if (without == left) continue;
            double then = least_loss_of_rows(l, row, rows, 0, count, without);
            if (then < least) least = then, best = without;
        }
        left = best, loss = least;
    }
    return loss;
}

static void test_exchanges(void **state)
{
    static const struct {
        const char *pattern;
        int kept, m;
        int64_t unit;
        double mean; /* of what is lost, as a share of what one after the other loses: no more than this */
    } cases[] = {{"8:16", 8, 16, 1, 0.995},          {"8:32", 8, 32, 1, 0.985},      {"16:32", 16, 32, 1, 0.999},
                 {"5:20", 5, 20, 1, 0.985},          {"vw4:8:16", 8, 16, 4, 0.9995}, {"vw4:8:32", 8, 32, 4, 0.995},
                 {"vw16:12:24", 12, 24, 16, 1.0001}, {"24:31", 24, 31, 1, 1.0001}};
    static layer l;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double sum = 0;
        int64_t groups = 0;
        assert_false(lac_obs_sets_are_few(cases[i].m, cases[i].kept, cases[i].unit));
        for (int kind = 0; kind < 2; kind++) {
            int64_t n = 20 * cases[i].unit > N_MOST ? N_MOST - 3 : 20 * cases[i].unit;
            make_layer(&l, 100 + (int64_t)i, kind, n, cases[i].m, cases[i].m);
            prune_layer(&l, cases[i].pattern, NULL, 2);
            for (int64_t row = 0; row < l.n; row += cases[i].unit, groups++) {
                int64_t rows = l.n - row < cases[i].unit ? l.n - row : cases[i].unit;
                double chosen = least_loss_of_rows(&l, row, rows, 0, l.k, kept_bits(&l, row, 0, l.k));
                double before = one_by_one(&l, row, rows, cases[i].m, cases[i].kept);
                assert_true(chosen <= before * (1 + 1e-4));
                sum += chosen / before;
            }
            free_layer(&l);
        }
        print_message("%s: %.4f of one after the other\n", cases[i].pattern, sum / (double)groups);
        assert_true(sum / (double)groups <= cases[i].mean);
    }
}

/* ---------------------------------------------------------------- V:N:M */

/* The least that the rows lose when they share 4 columns and each keeps its best n of those. */
static double best_selection(const layer *l, int64_t row, int64_t rows, int64_t first, int64_t count, int n)
{
    double best = INFINITY;
    int picked = count < 4 ? (int)count : 4;
    for (uint64_t four = (UINT64_C(1) << picked) - 1; four < UINT64_C(1) << count; four = next_set(four)) {
        double loss = 0;
        for (int64_t r = row; r < row + rows && loss < best; r++)
            loss += best_of_sets(l, r, 1, first, count, n < picked ? n : picked, four);
        if (loss < best) best = loss;
    }
    return best;
}

static void test_vnm(void **state)
{
    static const struct {
        const char *pattern;
        int n, m;
        int64_t unit, k;
    } cases[] = {{"8:2:4", 2, 4, 8, 10},   {"8:1:4", 1, 4, 8, 7},   {"8:3:4", 3, 4, 8, 8},  {"8:1:8", 1, 8, 8, 19},
                 {"8:2:8", 2, 8, 8, 19},   {"4:3:7", 3, 7, 4, 14},  {"8:4:8", 4, 8, 8, 16}, {"16:2:12", 2, 12, 16, 12},
                 {"8:2:16", 2, 16, 8, 48}, {"8:1:16", 1, 16, 8, 48}};
    static layer l;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int kind = 0; kind < 3; kind++) {
            double most = 0, mean = 0;
            int64_t panels = 0;
            make_layer(&l, 200 + (int64_t)i, kind, 3 * cases[i].unit - 1, cases[i].k, cases[i].m);
            prune_layer(&l, cases[i].pattern, NULL, 2);
            for (int64_t row = 0; row < l.n; row += cases[i].unit)
                for (int64_t first = 0; first < l.k; first += l.group) {
                    int64_t count = l.k - first < l.group ? l.k - first : l.group;
                    int64_t rows = l.n - row < cases[i].unit ? l.n - row : cases[i].unit;
                    double best = best_selection(&l, row, rows, first, count, cases[i].n), chosen = 0;
                    if (count <= cases[i].n) continue;
                    for (int64_t r = row; r < row + rows; r++)
                        chosen += least_loss_of_rows(&l, r, 1, first, count, kept_bits(&l, r, first, count));
                    most = fmax(most, chosen / best - 1), mean += chosen / best - 1, panels++;
                    assert_true(loss_of(&l, row, rows, first, count) <= chosen * (1 + 1e-2));
                }
            print_message("%s, kind %d: %.2g over the best of all selections, %.2g in the mean\n", cases[i].pattern, kind, most,
                          mean / (double)panels);
            if (cases[i].m <= 12) /* every selection */
                assert_true(most <= (kind == 2 ? 1e-3 : 1e-4));
            else if (kind < 2) /* where the damping alone is left to lose, exchanges may end well above the best */
                assert_true(mean / (double)panels <= (kind == 0 ? 0.01 : 0.1));
            free_layer(&l);
        }
}

/* ---------------------------------------------------------------- schedules, ties, threads */

/* The second step keeps the best of what the first one left. */
static void test_schedules(void **state)
{
    static const struct {
        const char *first, *then;
        int64_t unit, k;
        int kept;
        bool every;
    } cases[] = {{"4:16", "2:16", 1, 16, 2, true},         {"14:16", "13:16", 1, 16, 13, true},
                 {"2:4", "3:16", 1, 16, 3, true},          {"12:16", "8:16", 1, 16, 8, false},
                 {"vw4:6:12", "vw4:3:12", 4, 12, 3, true}, {"vw4:14:20", "vw4:8:20", 4, 20, 8, false},
                 {"1:4", "8:16", 1, 16, 8, false},         {"1:4", "5:13", 1, 13, 5, true}};
    static layer l;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t left[N_MOST];
        static float between[N_MOST * K_MOST];
        make_layer(&l, 300 + (int64_t)i, (int)(i % 2), 22, cases[i].k, cases[i].k);
        prune_layer(&l, cases[i].first, NULL, 2);
        for (int64_t r = 0; r < l.n; r++) left[r] = kept_bits(&l, r, 0, l.k);
        memcpy(between, l.v, sizeof between);
        prune_layer(&l, cases[i].then, cases[i].first, 2);
        memcpy(l.w, between, sizeof between); /* what the second step began with */
        for (int64_t row = 0; row < l.n; row += cases[i].unit) {
            int64_t rows = l.n - row < cases[i].unit ? l.n - row : cases[i].unit;
            uint64_t bits = kept_bits(&l, row, 0, l.k);
            if (__builtin_popcountll(left[row]) < cases[i].kept) { /* some come back, and none of what was left goes */
                assert_true((left[row] & ~bits) == 0);
                continue;
            }
            assert_true((bits & ~left[row]) == 0);
            double best = best_of_sets(&l, row, rows, 0, l.k, cases[i].kept, left[row]);
            double chosen = least_loss_of_rows(&l, row, rows, 0, l.k, bits);
            assert_true(chosen <= best * (cases[i].every ? 1 + 1e-3 : 1.5));
        }
        free_layer(&l);
    }
}

/* Where groups have much in common, what one loses is passed on to the next, and inputs that went are no longer zero when their group is reached: they stay out all the same. */
static void test_nested(void **state)
{
    static const char *const cases[][2] = {{"4:16", "2:16"},  {"8:16", "6:16"},         {"15:16", "12:16"},
                                           {"16:32", "8:32"}, {"vw4:6:12", "vw4:3:12"}, {"vw4:16:24", "vw4:12:24"},
                                           {"2:4", "3:32"}};
    static layer l;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int kind = 0; kind < 3; kind++) {
            static bool left[N_MOST * K_MOST];
            make_layer(&l, 350 + (int64_t)i, kind, 36, 96, 96);
            prune_layer(&l, cases[i][0], NULL, 2);
            for (int64_t j = 0; j < l.n * l.k; j++) left[j] = lac_mask_get(l.mask, j / l.k, j % l.k);
            prune_layer(&l, cases[i][1], cases[i][0], 2);
            for (int64_t j = 0; j < l.n * l.k; j++) assert_true(left[j] || !lac_mask_get(l.mask, j / l.k, j % l.k));
            free_layer(&l);
        }
}

static const char *const any[] = {"1:16", "2:4",      "15:16",    "8:16",    "8:32",   "16:32",   "31:32",
                                  "4:32", "vw4:2:16", "vw4:8:32", "vw3:5:7", "16:2:8", "16:1:20", "16:3:70"};

/* Rows of zeros have nothing but ties: the lower inputs stay. */
static void test_ties(void **state)
{
    static layer l;
    (void)state;
    make_layer(&l, 400, 0, 35, 96, 96);
    memset(l.w, 0, sizeof l.w);
    for (size_t i = 0; i < sizeof any / sizeof *any; i++) {
        lac_pattern pattern;
        lac_geometry g;
        assert_ok(lac_pattern_parse(any[i], &pattern));
        assert_ok(lac_geometry_make(&pattern, l.n, l.k, &g));
        prune_layer(&l, any[i], NULL, 2);
        for (int64_t r = 0; r < l.n; r++)
            for (int64_t c = 0; c < l.k; c++) assert_int_equal(lac_mask_get(l.mask, r, c), c % g.group_m < g.slot_n);
    }
    free_layer(&l);
}

static void test_threads(void **state)
{
    static layer l, other;
    (void)state;
    make_layer(&l, 500, 1, 77, 100, 100);
    make_layer(&other, 500, 1, 77, 100, 100);
    for (size_t i = 0; i < sizeof any / sizeof *any; i++) {
        prune_layer(&l, any[i], NULL, 1);
        prune_layer(&other, any[i], NULL, 3);
        for (int64_t r = 0; r < l.n; r++) assert_memory_equal(lac_mask_row(l.mask, r), lac_mask_row(other.mask, r), 16);
    }
    free_layer(&l), free_layer(&other);
}

/* ---------------------------------------------------------------- singular */

/* Inputs that are dead or copies of each other, and hardly any damping: full counts, finite weights (prune_layer looks), and nothing is kept of dead inputs while others are there. */
static void test_singular(void **state)
{
    enum { K = 64, N = 35 };
    static layer l;
    static float moments[K * K];
    (void)state;
    make_layer(&l, 600, 0, N, K, K);
    for (int copies = 0; copies < 2; copies++)
        for (size_t i = 0; i < sizeof any / sizeof *any; i++) {
            lac_pattern pattern;
            lac_mask *mask = NULL;
            lac_calibration *calibration = NULL;
            lac_matrix m = {.data = moments, .dtype = LAC_DTYPE_F32, .rows = K, .cols = K};
            lac_matrix w = {.data = l.w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K}, out = w;
            memset(moments, 0, sizeof moments);
            for (int c = 0; c < K * K; c++)
                if (copies ? c / K % 4 == c % K % 4 : c / K == c % K && c % K % 4 != 1) moments[c] = 3;
            out.data = l.v;
            assert_ok(lac_pattern_parse(any[i], &pattern));
            assert_ok(lac_calibration_create(K, &calibration));
            assert_ok(lac_calibration_add_moments(calibration, &m, 100));
            lac_prune_options options = {
                .size = sizeof options, .method = LAC_METHOD_OBS, .calibration = calibration, .damping = 1e-5, .threads = 2};
            assert_ok(lac_prune_and_correct(&w, &pattern, &options, &out, &mask));
            for (int64_t r = 0; r < N; r++)
                for (int64_t c = 0; c < K; c++) {
                    assert_true(isfinite(l.v[r * K + c]));
                    if (!copies && pattern.n * 2 <= pattern.m && c % 4 == 1) assert_false(lac_mask_get(mask, r, c));
                }
            lac_mask_free(mask);
            lac_calibration_free(calibration);
        }
    free_layer(&l);
}

/* Where the moments of a group are singular even in double, its sets have no price: what stays is what exchanges find. */
static void test_no_pivots(void **state)
{
    enum { K = 8, N = 5 };
    static const int counts[] = {2, 6}; /* priced by what stays, and by what goes */
    (void)state;
    for (int i = 0; i < 2; i++) {
        static float w[N * K], u[K * K];
        static double scratch[100000];
        double inverse[K * K], moments[K * K], room[K * K];
        char text[8];
        uint64_t words[N];
        lac_obs obs = {.n = N, .k = K, .threads = 1, .w = w, .u = u, .scratch = scratch, .scratch_count = 100000};
        lac_obs_group group = {.obs = &obs, .inverse = inverse, .moments = moments, .count = K, .kept = counts[i]};
        for (int c = 0; c < N * K; c++) w[c] = (float)(c % 7 - 3);
        for (int c = 0; c < K * K; c++) u[c] = c / K == c % K ? (i ? 1e-20f : 1) : 0;
        for (int c = 0; c < K; c++) {
            if (i) /* F is one in every place */
                u[c] = 1;
            else /* its inverse is 1e20 in every place but the last of all */
                u[c * K + K - 1] = c == K - 1 ? 1e-20f : 1e-10f;
        }
        snprintf(text, sizeof text, "%d:8", counts[i]);
        assert_ok(lac_pattern_parse(text, &obs.pattern));
        assert_ok(lac_geometry_make(&obs.pattern, N, K, &obs.geometry));
        assert_ok(lac_mask_create(N, K, &obs.pattern, &obs.mask));
        lac_obs_inverse(&obs, 0, 0, K, inverse);
        lac_obs_moments(&obs, 0, K, room, moments);
        lac_obs_exchange_select(&group);
        for (int64_t r = 0; r < N; r++) words[r] = *lac_mask_row(obs.mask, r);
        lac_obs_sets_select(&group);
        for (int64_t r = 0; r < N; r++) {
            assert_int_equal(__builtin_popcountll(*lac_mask_row(obs.mask, r)), counts[i]);
            assert_true(*lac_mask_row(obs.mask, r) == words[r]);
        }
        lac_mask_free(obs.mask);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_set), cmocka_unit_test(test_exchanges), cmocka_unit_test(test_vnm),
        cmocka_unit_test(test_schedules), cmocka_unit_test(test_nested),    cmocka_unit_test(test_ties),
        cmocka_unit_test(test_threads),   cmocka_unit_test(test_singular),  cmocka_unit_test(test_no_pivots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
