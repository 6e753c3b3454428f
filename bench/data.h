/* data.h - the numbers that a benchmark multiplies: a fixed stream of random ones, and 16-bit floats. */
#ifndef LACUNA_BENCH_DATA_H
#define LACUNA_BENCH_DATA_H

#include <lacuna.h>

typedef struct bench_random {
    uint64_t state;
} bench_random;

uint64_t bench_random_next(bench_random *random);
/* Fills `values` with normal numbers of mean 0 and variance 1; about 2 ns a number. */
void bench_random_gaussian(bench_random *random, float *values, int64_t count);

/* One element of an F32, F16 or BF16 array, as the nearest such number, ties to even; and back. */
void bench_element_store(void *data, lac_dtype dtype, int64_t index, float value);
float bench_element_load(const void *data, lac_dtype dtype, int64_t index);
/* `count` of them from `index` on. */
void bench_elements_load(const void *data, lac_dtype dtype, int64_t index, int64_t count, float *to);

/* Each number becomes the nearest one of the dtype. */
void bench_round(float *values, lac_dtype dtype, int64_t count);

/* X[tokens][features] in fp32 as an image of `dtype` and `layout`, without padding. */
void bench_image_fill(void *image, lac_dtype dtype, lac_layout layout, const float *x, int64_t tokens, int64_t features);

#endif
