/* test_prune_schedule.c - pruning in steps: masks that are nested wherever the patterns allow it, for every method; a step that asks for nothing new changes
 * nothing; what the outputs or the loss lose beside one step; refusals. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

enum { N = 24, K = 96, SAMPLES = 300, GRADIENTS = 24, STEPS_MOST = 4 };

typedef struct layer {
    float w[N * K];
    float *x, *g; /* [SAMPLES][K], [GRADIENTS][N][K] */
    lac_calibration *calibration;
    lac_gradients gradients;
} layer;

/* Inputs that have factors in common, and gradients that are made of such inputs and of errors. */
static void make_layer(layer *l, int64_t seed)
{
    enum { FACTORS = 6 };
    test_random random = test_random_make("schedule", seed);
    float mix[FACTORS * K], size[K];
    l->x = malloc(sizeof(float) * SAMPLES * K), l->g = malloc(sizeof(float) * GRADIENTS * N * K);
    for (int i = 0; i < N * K; i++) l->w[i] = (float)test_random_gaussian(&random);
    for (int i = 0; i < FACTORS * K; i++) mix[i] = (float)test_random_gaussian(&random);
    for (int i = 0; i < K; i++) size[i] = (float)exp(0.7 * test_random_gaussian(&random));
    for (int s = 0; s < SAMPLES; s++) {
        double factor[FACTORS];
        for (int f = 0; f < FACTORS; f++) factor[f] = test_random_gaussian(&random);
        for (int c = 0; c < K; c++) {
            double value = 0.5 * test_random_gaussian(&random);
            for (int f = 0; f < FACTORS; f++) value += 0.4 * factor[f] * mix[f * K + c];
            l->x[s * K + c] = (float)(value * size[c]);
        }
    }
    for (int s = 0; s < GRADIENTS; s++)
        for (int r = 0; r < N; r++) {
            double error = test_random_gaussian(&random);
            for (int c = 0; c < K; c++) l->g[(s * N + r) * K + c] = (float)(error * l->x[s * K + c]);
        }
    lac_matrix x = {.data = l->x, .dtype = LAC_DTYPE_F32, .rows = SAMPLES, .cols = K};
    assert_ok(lac_calibration_create(K, &l->calibration));
    assert_ok(lac_calibration_add(l->calibration, &x, 1));
    l->gradients = (lac_gradients){.size = sizeof l->gradients, .data = l->g, .dtype = LAC_DTYPE_F32, .samples = GRADIENTS};
}

static void free_layer(layer *l)
{
    lac_calibration_free(l->calibration);
    free(l->x), free(l->g);
}

/* "4:8,2:8" */
static int parse_steps(const char *text, lac_pattern *out)
{
    char copy[128];
    int count = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *at = strtok(copy, ","); at; at = strtok(NULL, ",")) assert_ok(lac_pattern_parse(at, &out[count++]));
    return count;
}

/* The first `steps` of a schedule. */
static lac_status run(const layer *l, const lac_pattern *patterns, int steps, lac_method method, int threads, float *v,
                      lac_mask **mask)
{
    lac_matrix dense = {.dtype = LAC_DTYPE_F32, .rows = N, .cols = K}, corrected = dense;
    memcpy(v, l->w, sizeof l->w);
    dense.data = corrected.data = v;
    lac_prune_options options = {.size = sizeof options,
                                 .method = method,
                                 .threads = threads,
                                 .calibration = l->calibration,
                                 .gradients = &l->gradients,
                                 .schedule = patterns,
                                 .schedule_count = (size_t)steps - 1};
    return lac_prune_and_correct(&dense, &patterns[steps - 1], &options, &corrected, mask);
}

static const lac_method methods[] = {LAC_METHOD_MAGNITUDE, LAC_METHOD_WANDA, LAC_METHOD_OBS, LAC_METHOD_FISHER};
static const char *const method_names[] = {"", "magnitude", "wanda", "obs", "fisher"};

/* Groups of each step lie inside those of the next, with the same units: then what went stays out. */
static const char *const nesting[] = {
    "6:8,4:8,2:8",        "2:4,1:4,2:16",        "4:6,2:6",     "16:32,8:32,4:32", "48:96,12:96",         "vw4:4:8,vw4:2:8",
    "vw8:16:32,vw8:4:32", "bw2x2:4:8,bw2x2:2:8", "60%,30%,10%", "vw4:50%,vw4:20%", "bw4x4:50%,bw4x4:25%", "2:4,30:96"};

static void masks_are_nested(void **state)
{
    (void)state;
    layer l;
    static float v[N * K];
    make_layer(&l, 1);
    memset(l.w + 7 * K, 0, 3 * K * sizeof(float)); /* rows of nothing but ties */
    for (size_t i = 0; i < sizeof nesting / sizeof *nesting; i++)
        for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
            lac_pattern steps[STEPS_MOST];
            int count = parse_steps(nesting[i], steps);
            lac_mask *before = NULL;
            for (int s = 1; s <= count; s++) {
                lac_mask *mask = NULL, *again = NULL;
                print_message("%s, %s, step %d\n", method_names[methods[m]], nesting[i], s);
                assert_ok(run(&l, steps, s, methods[m], 2, v, &mask));
                assert_ok(lac_mask_with_pattern(mask, &steps[s - 1], &again));
                for (int64_t r = 0; r < N; r++)
                    for (int64_t c = 0; c < K; c++) {
                        if (before && lac_mask_get(mask, r, c)) assert_true(lac_mask_get(before, r, c));
                        if (!lac_mask_get(mask, r, c)) assert_true(v[r * K + c] == 0);
                    }
                lac_mask_free(again);
                lac_mask_free(before);
                before = mask;
            }
            lac_mask_free(before);
        }
    free_layer(&l);
}

/* Steps whose groups do not nest, and families that reorder rows: the last pattern holds all the same. */
static void other_steps_hold_their_patterns(void **state)
{
    static const char *const schedules[] = {"4:8,vw4:4:8,8:2:8", "2:4,2:6", "50%,shfl8:25%",
                                            "8:2:8,8:2:16",      "1:4,3:4", "vw4:2:8,bw4x4:30%"};
    (void)state;
    layer l;
    static float v[N * K], w[N * K];
    make_layer(&l, 2);
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
            lac_pattern steps[STEPS_MOST];
            int count = parse_steps(schedules[i], steps);
            lac_mask *mask = NULL, *other = NULL;
            lac_mask_info info = {.size = sizeof info};
            print_message("%s, %s\n", method_names[methods[m]], schedules[i]);
            assert_ok(run(&l, steps, count, methods[m], 1, v, &mask));
            assert_ok(run(&l, steps, count, methods[m], 3, w, &other)); /* whatever the threads */
            assert_memory_equal(v, w, sizeof v);
            assert_ok(lac_mask_get_info(mask, &info));
            assert_true(info.has_pattern && info.kept > 0);
            lac_matrix dense = {.data = v, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
            lac_weight *weight = NULL;
            assert_ok(lac_weight_compress(&dense, mask, NULL, &weight));
            lac_weight_free(weight);
            lac_mask_free(mask);
            lac_mask_free(other);
        }
    free_layer(&l);
}

static void same_step_twice_changes_nothing(void **state)
{
    static const char *const patterns[] = {"2:4,2:4", "4:16,4:16",           "vw4:2:8,vw4:2:8",
                                           "30%,30%", "bw2x2:2:8,bw2x2:2:8", "8:2:8,8:2:8"};
    (void)state;
    layer l;
    static float once[N * K], twice[N * K];
    make_layer(&l, 3);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
            lac_pattern steps[STEPS_MOST];
            parse_steps(patterns[i], steps);
            lac_mask *a = NULL, *b = NULL;
            print_message("%s, %s\n", method_names[methods[m]], patterns[i]);
            assert_ok(run(&l, steps, 1, methods[m], 1, once, &a));
            assert_ok(run(&l, steps, 2, methods[m], 1, twice, &b));
            for (int j = 0; j < N * K; j++) {
                assert_int_equal(lac_mask_get(a, j / K, j % K), lac_mask_get(b, j / K, j % K));
                assert_true(fabsf(once[j] - twice[j]) <= 1e-5f * fabsf(once[j]));
            }
            lac_mask_free(a);
            lac_mask_free(b);
        }
    free_layer(&l);
}

/* 1/2 of the mean of (g dw)^2, row by row and 64 columns at a time: what fisher minimises. */
static double rise(const layer *l, const float *v)
{
    double sum = 0;
    for (int s = 0; s < GRADIENTS; s++)
        for (int r = 0; r < N; r++)
            for (int first = 0; first < K; first += 64) {
                double part = 0;
                for (int c = first; c < K && c < first + 64; c++)
                    part += (double)l->g[(s * N + r) * K + c] * (v[r * K + c] - l->w[r * K + c]);
                sum += part * part;
            }
    return sum / (2.0 * GRADIENTS);
}

/* What steps lose beside one step to the same end, on inputs that have much in common. By obs a step from the last one's weights loses what it would from the
 * first ones under the same mask, so that nested masks, which are fewer, cost something; by fisher it pays to look again after some have gone. */
static void loses_no_more_than_one_step(void **state)
{
    static const char *const schedules[] = {"6:8,4:8,2:8",     "2:4,1:4",     "8:16,4:16",
                                            "vw4:4:8,vw4:2:8", "75%,50%,25%", "bw2x2:4:8,bw2x2:2:8"};
    enum { LAYERS = 4 };
    (void)state;
    static float v[N * K];
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (lac_method method = LAC_METHOD_OBS; method <= LAC_METHOD_FISHER; method++) {
            double loss[2] = {0};
            for (int seed = 0; seed < LAYERS; seed++) {
                layer l;
                make_layer(&l, 10 + seed);
                lac_pattern steps[STEPS_MOST];
                int count = parse_steps(schedules[i], steps);
                for (int gradual = 0; gradual < 2; gradual++) {
                    lac_mask *mask = NULL;
                    double error = 0, total = 0;
                    assert_ok(gradual ? run(&l, steps, count, method, 2, v, &mask)
                                      : run(&l, steps + count - 1, 1, method, 2, v, &mask));
                    lac_matrix before = {.data = l.w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K}, after = before;
                    after.data = v;
                    assert_ok(lac_calibration_error(l.calibration, &before, &after, &error, &total));
                    loss[gradual] += method == LAC_METHOD_OBS ? error / total / LAYERS : rise(&l, v) / LAYERS;
                    lac_mask_free(mask);
                }
                free_layer(&l);
            }
            print_message("%-7s %-20s one step %.5g, steps %.5g: %.3f times\n", method_names[method], schedules[i], loss[0],
                          loss[1], loss[1] / loss[0]);
            assert_true(loss[1] <= (method == LAC_METHOD_OBS ? 1.15 : 1.0) * loss[0]);
        }
}

static void refusals(void **state)
{
    (void)state;
    layer l;
    make_layer(&l, 4);
    lac_pattern steps[2];
    lac_mask *mask = NULL;
    parse_steps("2:4,1:4", steps);
    lac_matrix dense = {.data = l.w, .dtype = LAC_DTYPE_F32, .rows = N, .cols = K};
    lac_prune_options options = {.size = sizeof options, .schedule_count = 1};
    assert_fails(lac_prune(&dense, &steps[1], &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "schedule is NULL");
    options.schedule = steps, options.transposable = 1;
    assert_fails(lac_prune(&dense, &steps[1], &options, &mask), LAC_STATUS_UNSUPPORTED, "transposable");
    options.transposable = 0, steps[0].n = 5;
    assert_fails(lac_prune(&dense, &steps[1], &options, &mask), LAC_STATUS_INVALID_ARGUMENT, "schedule[0]");
    assert_null(mask);
    free_layer(&l);
}

/* By weights alone, and with groups that nest, steps end where one step does. */
static void magnitude_ends_where_one_step_does(void **state)
{
    (void)state;
    layer l;
    static float a[N * K], b[N * K];
    make_layer(&l, 5);
    for (size_t i = 0; i < 5; i++) {
        lac_pattern steps[STEPS_MOST];
        lac_mask *one = NULL, *many = NULL;
        int count = parse_steps(nesting[i], steps);
        if (i == 1) continue; /* 2:4 keeps some that 2:16 of all would not, and the other way round */
        assert_ok(run(&l, steps, count, LAC_METHOD_MAGNITUDE, 1, a, &many));
        assert_ok(run(&l, steps + count - 1, 1, LAC_METHOD_MAGNITUDE, 1, b, &one));
        assert_memory_equal(a, b, sizeof a);
        lac_mask_free(one);
        lac_mask_free(many);
    }
    free_layer(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_nested),
        cmocka_unit_test(other_steps_hold_their_patterns),
        cmocka_unit_test(same_step_twice_changes_nothing),
        cmocka_unit_test(magnitude_ends_where_one_step_does),
        cmocka_unit_test(loses_no_more_than_one_step),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests_name("schedules", tests, NULL, NULL);
}
