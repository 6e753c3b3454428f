/* obs_select.c - what the choice of second-order pruning is worth: the share of the outputs' energy that layers lose, and the processor's time, by pattern, over random layers of
 * two kinds. A program of its own, which prints rows for bench/results/prune_select.csv; two builds of it side by side compare two choices.
 *
 *     obs_select N K SAMPLES SEEDS PATTERN...
 *
 * ar1: an input is 0.9 times the one before it and noise, as neighbours in a signal are. factors: inputs are mixtures of 16 common factors and as much noise again, of
 * different sizes, as activations are. Weights are normal. Inputs are summed up before the clock starts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lacuna.h"

enum { FACTORS = 16 };
static uint64_t drawn;

static void check(lac_status status, const char *what)
{
    if (status == LAC_STATUS_OK) return;
    fprintf(stderr, "obs_select: %s: %s\n", what, lac_last_error());
    exit(1);
}

/* Twelve uniform numbers added up, about normal, of variance 1. */
static float draw(void)
{
    float sum = -6;
    for (int i = 0; i < 12; i++) {
        drawn ^= drawn << 13, drawn ^= drawn >> 7, drawn ^= drawn << 17;
        sum += (float)(drawn >> 40) / 16777216.0f;
    }
    return sum;
}

static float *allocate(int64_t rows, int64_t cols)
{
    float *block = malloc((size_t)rows * (size_t)cols * sizeof *block);
    if (block) return block;
    fprintf(stderr, "obs_select: out of memory for %lld x %lld numbers\n", (long long)rows, (long long)cols);
    exit(1);
}

/* Inputs [samples][k] of one kind. */
static void make_inputs(int kind, int64_t samples, int64_t k, float *x)
{
    float *mix = allocate(FACTORS + 1, k);
    for (int64_t i = 0; i < (FACTORS + 1) * k; i++) mix[i] = draw();
    for (int64_t s = 0; s < samples; s++) {
        float factor[FACTORS];
        for (int f = 0; f < FACTORS; f++) factor[f] = draw();
        for (int64_t c = 0; c < k; c++) {
            float *at = x + s * k + c;
            *at = draw();
            if (kind == 0) {
                if (c > 0) *at = 0.9f * at[-1] + 0.43589f * *at;
                continue;
            }
            for (int f = 0; f < FACTORS; f++) *at += 0.25f * factor[f] * mix[f * k + c];
            *at *= expf(0.5f * mix[FACTORS * k + c]);
        }
    }
    free(mix);
}

int main(int count, char **given)
{
    static const char *const kinds[] = {"ar1", "factors"};
    if (count < 6) {
        fprintf(stderr, "usage: obs_select N K SAMPLES SEEDS PATTERN...\n");
        return 2;
    }
    int64_t n = atoll(given[1]), k = atoll(given[2]), samples = atoll(given[3]);
    float *w = allocate(n, k), *pruned = allocate(n, k), *x = allocate(samples, k);
    lac_matrix dense = {.data = w, .dtype = LAC_DTYPE_F32, .rows = n, .cols = k}, corrected = dense;
    lac_matrix inputs = {.data = x, .dtype = LAC_DTYPE_F32, .rows = samples, .cols = k};
    corrected.data = pruned;
    for (int kind = 0; kind < 2; kind++)
        for (int seed = 1; seed <= atoi(given[4]); seed++) {
            lac_calibration *calibration = NULL;
            drawn = UINT64_C(88172645463325252) + (uint64_t)seed * UINT64_C(0x9e3779b97f4a7c15);
            for (int64_t i = 0; i < n * k; i++) w[i] = draw();
            make_inputs(kind, samples, k, x);
            check(lac_calibration_create(k, &calibration), "calibration");
            check(lac_calibration_add(calibration, &inputs, 0), "samples");
            for (int p = 5; p < count; p++) {
                lac_pattern pattern;
                lac_mask *mask = NULL;
                lac_prune_options options = {
                    .size = sizeof options, .method = LAC_METHOD_OBS, .calibration = calibration, .threads = 1};
                double error = 0, total = 0;
                check(lac_pattern_parse(given[p], &pattern), given[p]);
                clock_t start = clock();
                check(lac_prune_and_correct(&dense, &pattern, &options, &corrected, &mask), given[p]);
                double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
                check(lac_calibration_error(calibration, &dense, &corrected, &error, &total), "error");
                printf("%s,%lld,%lld,%lld,%d,%s,%.4f,%.8f\n", kinds[kind], (long long)n, (long long)k, (long long)samples, seed,
                       given[p], seconds, error / total);
                fflush(stdout);
                lac_mask_free(mask);
            }
            lac_calibration_free(calibration);
        }
    free(w), free(pruned), free(x);
    return 0;
}
