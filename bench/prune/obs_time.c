/* obs_time.c - how long second-order pruning of one layer takes, and what its outputs lose: a program of its own, which prints rows for
 * bench/results/prune_gpu.csv. bench/prune_obs.sh runs it.
 *
 *     obs_time DEVICE N K SAMPLES PATTERN RUNS
 *
 * Weights are random; inputs have 16 common factors, so that there is something to make up for. The samples are summed up
 * before the clock starts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lacuna.h"

enum { FACTORS = 16 };

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void check(lac_status status, const char *what)
{
    if (status == LAC_STATUS_OK) return;
    fprintf(stderr, "obs_time: %s: %s\n", what, lac_last_error());
    exit(1);
}

/* Three uniform numbers added up, about normal, of variance 1. */
static float draw(void)
{
    static uint64_t state = UINT64_C(88172645463325252);
    float sum = 0;
    for (int i = 0; i < 3; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        sum += (float)(state >> 40) / 16777216.0f - 0.5f;
    }
    return 2 * sum;
}

static float *allocate(int64_t rows, int64_t cols)
{
    float *block = malloc((size_t)rows * (size_t)cols * sizeof *block);
    if (!block) {
        fprintf(stderr, "obs_time: out of memory for %lld x %lld numbers\n", (long long)rows, (long long)cols);
        exit(1);
    }
    return block;
}

/* The moments of random inputs [samples][k]. */
static lac_calibration *make_calibration(int64_t samples, int64_t k)
{
    lac_calibration *made = NULL;
    float *x = allocate(samples, k);
    for (int64_t i = 0; i < samples; i++) {
        float factor[FACTORS];
        for (int j = 0; j < FACTORS; j++) factor[j] = draw();
        for (int64_t c = 0; c < k; c++) x[i * k + c] = draw() + factor[c % FACTORS] + 0.5f * factor[c / FACTORS % FACTORS];
    }
    lac_matrix inputs = {.data = x, .dtype = LAC_DTYPE_F32, .rows = samples, .cols = k};
    check(lac_calibration_create(k, &made), "calibration");
    check(lac_calibration_add(made, &inputs, 0), "samples");
    free(x);
    return made;
}

int main(int count, char **given)
{
    if (count != 7) {
        fprintf(stderr, "usage: obs_time DEVICE N K SAMPLES PATTERN RUNS\n");
        return 2;
    }
    int64_t n = atoll(given[2]), k = atoll(given[3]), samples = atoll(given[4]);
    lac_pattern pattern;
    check(lac_pattern_parse(given[5], &pattern), "PATTERN");
    lac_device *device = NULL;
    lac_device_info info = {.size = sizeof info};
    check(lac_device_open(given[1], &device), "DEVICE");
    check(lac_device_get_info(device, &info), "DEVICE");
    float *w = allocate(n, k), *pruned = allocate(n, k);
    for (int64_t i = 0; i < n * k; i++) w[i] = draw();
    lac_calibration *calibration = make_calibration(samples, k);
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k}, corrected = dense;
    corrected.data = pruned;
    lac_prune_options options = {
        .size = sizeof options, .method = LAC_METHOD_OBS, .calibration = calibration, .device = device};
    for (int run = 1; run <= atoi(given[6]); run++) {
        lac_mask *mask = NULL;
        double error = 0, total = 0, start = seconds_now();
        check(lac_prune_and_correct(&dense, &pattern, &options, &corrected, &mask), "prune");
        double seconds = seconds_now() - start;
        check(lac_calibration_error(calibration, &dense, &corrected, &error, &total), "error");
        printf("%s,%s,%lld,%lld,%lld,%s,obs,%d,%.3f,%.7f\n", info.name, info.model, (long long)n, (long long)k,
               (long long)samples, given[5], run, seconds, error / total);
        fflush(stdout);
        lac_mask_free(mask);
    }
    lac_calibration_free(calibration);
    lac_device_close(device);
    free(w);
    free(pruned);
    return 0;
}
