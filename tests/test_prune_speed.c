/* test_prune_speed.c - prints how fast pruning is: MB of dense fp32 weight per second of processor time, on one thread.
 * Time is only printed, since machines differ. What is checked is that the large matrix keeps as much as its pattern
 * says. */
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

static void test_speed(void **state)
{
    (void)state;
    static const char *const patterns[] = {"2:4",       "4:8",      "8:32",      "16:32",  "64:256",  "25%",       "vw4:8:32",
                                           "vw32:8:32", "vw32:25%", "bw4x4:2:8", "64:2:8", "64:2:32", "shfl64:25%"};
    const int64_t n = 512, k = 4096;
    test_random random = test_random_make("prune_speed", 0);
    float *values = malloc((size_t)(n * k) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < n * k; i++) values[i] = (float)test_random_gaussian(&random);
    lac_matrix dense = {.data = values, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k};
    lac_prune_options options = {.size = sizeof options, .threads = 1};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        lac_pattern p;
        lac_geometry g;
        double best = 1e9;
        assert_ok(lac_pattern_parse(patterns[i], &p));
        assert_ok(lac_geometry_make(&p, n, k, &g));
        for (int repeat = 0; repeat < 3; repeat++) {
            lac_mask *mask;
            lac_mask_info info = {.size = sizeof info};
            double start = processor_seconds();
            assert_ok(lac_prune(&dense, &p, &options, &mask));
            double took = processor_seconds() - start;
            if (took < best) best = took;
            assert_ok(lac_mask_get_info(mask, &info));
            assert_int_equal(info.kept, n * g.slots * g.unit_k);
            lac_mask_free(mask);
        }
        print_message("%-11s %7.0f MB/s\n", patterns[i], (double)(n * k) * sizeof *values / best / 1e6);
    }
    free(values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_speed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
