/* test_prune_speed.c - prints how fast pruning and compressing are: MB of dense fp32 weight per second of processor time,
 * on one thread. Time is only printed, since machines differ. What is checked is that the large matrix keeps as much as its
 * pattern says. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "core/pattern.h"
#include "support/support.h"

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The best of three, in seconds; each result is checked. */
typedef struct speed {
    double prune, compress_f32, compress_f16;
} speed;

static double compress_once(const lac_matrix *dense, const lac_mask *mask, lac_dtype dtype, int64_t kept)
{
    lac_compress_options options = {.size = sizeof options, .dtype = dtype, .threads = 1};
    lac_weight_info info = {.size = sizeof info};
    lac_weight *weight;
    double start = processor_seconds();
    assert_ok(lac_weight_compress(dense, mask, &options, &weight));
    double took = processor_seconds() - start;
    assert_ok(lac_weight_get_info(weight, &info));
    assert_int_equal(info.kept, kept);
    lac_weight_free(weight);
    return took;
}

static speed measure(const lac_matrix *dense, const lac_pattern *pattern, int64_t kept)
{
    lac_prune_options options = {.size = sizeof options, .threads = 1};
    speed best = {1e9, 1e9, 1e9};
    for (int repeat = 0; repeat < 3; repeat++) {
        lac_mask *mask;
        lac_mask_info info = {.size = sizeof info};
        double start = processor_seconds();
        assert_ok(lac_prune(dense, pattern, &options, &mask));
        best.prune = fmin(best.prune, processor_seconds() - start);
        assert_ok(lac_mask_get_info(mask, &info));
        assert_int_equal(info.kept, kept);
        best.compress_f32 = fmin(best.compress_f32, compress_once(dense, mask, LAC_DTYPE_F32, kept));
        best.compress_f16 = fmin(best.compress_f16, compress_once(dense, mask, LAC_DTYPE_F16, kept));
        lac_mask_free(mask);
    }
    return best;
}

static void test_speed(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4",    "4:8",      "8:32",      "16:32",    "64:256",
                                           "25%",    "vw4:8:32", "vw32:8:32", "vw32:25%", "bw4x4:2:8",
                                           "64:2:8", "64:2:16",  "64:2:32",   "64:2:100", "shfl64:25%"};
    const int64_t n = 512, k = 4096;
    const double megabytes = (double)(n * k) * sizeof(float) / 1e6;
    test_random random = test_random_make("prune_speed", 0);
    float *values = malloc((size_t)(n * k) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n * k; i++) values[i] = (float)test_random_gaussian(&random);
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
    print_message("MB/s            prune  compress to f32  to f16\n");
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        lac_pattern p;
        lac_geometry g;
        assert_ok(lac_pattern_parse(patterns[i], &p));
        assert_ok(lac_geometry_make(&p, n, k, &g));
        speed best = measure(&dense, &p, n * g.slots * g.unit_k);
        print_message("%-12s %8.0f %16.0f %7.0f\n", patterns[i], megabytes / best.prune, megabytes / best.compress_f32,
                      megabytes / best.compress_f16);
    }
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_speed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
