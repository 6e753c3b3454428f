/* data.c - random normal numbers, quick enough for weights of 10^8 elements, and conversion to 16-bit floats. run.c draws
 * weights and activations with it, check.c reads results. */
#include "data.h"

#include <math.h>
#include <string.h>

#include "parallel.h"

/* Elements that are worth a thread. */
enum { A_THREADS_WORTH = 1 << 18 };

#define STEP UINT64_C(0x9e3779b97f4a7c15)

/* splitmix64: every seed gives a good stream, and the stream is the same on every machine. */
uint64_t bench_random_next(bench_random *random)
{
    uint64_t z = random->state += STEP;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#define QUANTILES 4096

/* Solves erfc(-z / sqrt 2) / 2 = p by bisection: slow, but done once for each entry of a small table. */
static double normal_quantile(double p)
{
    double low = -8, high = 8;
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2)) / 2 < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

static float quantiles[QUANTILES + 1];

typedef struct drawing {
    uint64_t state;
    float *values;
    int64_t count;
} drawing;

/* Pairs [begin, end): the state before a pair is known, since each draw adds the same to it. */
static void draw_pairs(void *user, int64_t begin, int64_t end)
{
    const drawing *d = user;
    bench_random random = {d->state + (uint64_t)begin * STEP};
    for (int64_t i = 2 * begin; i < 2 * end; i += 2) {
        uint64_t bits = bench_random_next(&random);
        for (int64_t j = i; j < i + 2 && j < d->count; j++, bits >>= 32) {
            uint32_t at = (uint32_t)(bits & 0xfff), part = (uint32_t)(bits >> 12 & 0xfffff);
            float share = (float)part * 0x1p-20f;
            d->values[j] = quantiles[at] + (quantiles[at + 1] - quantiles[at]) * share;
        }
    }
}

/* A uniform number through the inverse of the distribution, linear between the quantiles of a table; tails end at 3.8. */
void bench_random_gaussian(bench_random *random, float *values, int64_t count)
{
    static int ready;
    if (!ready) {
        for (int i = 0; i <= QUANTILES; i++) {
            double p = i == 0 ? 0.25 / QUANTILES : i == QUANTILES ? 1 - 0.25 / QUANTILES : (double)i / QUANTILES;
            quantiles[i] = (float)normal_quantile(p);
        }
        ready = 1;
    }
    int64_t pairs = (count + 1) / 2;
    bench_parallel(pairs, A_THREADS_WORTH, draw_pairs, &(drawing){random->state, values, count});
    random->state += (uint64_t)pairs * STEP;
}

static uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Rounds by adding just under half a unit of the last bit that stays, and one more when that bit is odd. */
static uint16_t to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* below 2^-14: a multiple of 2^-24 */
        float small;
        memcpy(&small, &magnitude, sizeof small);
        return (uint16_t)(sign | (uint16_t)lrintf(small * 0x1p24f));
    }
    return (uint16_t)(sign | (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13);
}

static float from_f16(uint16_t half)
{
    uint32_t exponent = half >> 10 & 31, fraction = half & 1023, bits = (exponent + 112) << 23 | fraction << 13;
    float magnitude;
    memcpy(&magnitude, &bits, sizeof magnitude);
    if (exponent == 0) magnitude = (float)fraction * 0x1p-24f;
    if (exponent == 31) magnitude = fraction ? NAN : INFINITY;
    return half & 0x8000 ? -magnitude : magnitude;
}

void bench_element_store(void *data, lac_dtype dtype, int64_t index, float value)
{
    if (dtype == LAC_DTYPE_F32)
        ((float *)data)[index] = value;
    else
        ((uint16_t *)data)[index] = dtype == LAC_DTYPE_F16 ? to_f16(value) : to_bf16(value);
}

float bench_element_load(const void *data, lac_dtype dtype, int64_t index)
{
    if (dtype == LAC_DTYPE_F32) return ((const float *)data)[index];
    uint16_t bits = ((const uint16_t *)data)[index];
    if (dtype == LAC_DTYPE_F16) return from_f16(bits);
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

void bench_elements_load(const void *data, lac_dtype dtype, int64_t index, int64_t count, float *to)
{
    const uint16_t *narrow = (const uint16_t *)data + index;
    if (dtype == LAC_DTYPE_F16)
        for (int64_t i = 0; i < count; i++) to[i] = from_f16(narrow[i]);
    else
        for (int64_t i = 0; i < count; i++) to[i] = bench_element_load(data, dtype, index + i);
}

typedef struct filling {
    void *image;
    lac_dtype dtype;
    const float *x; /* [tokens][features] */
    int64_t tokens, features;
} filling;

static void fill_rows(void *user, int64_t begin, int64_t end)
{
    const filling *f = user;
    for (int64_t i = begin * f->features; i < end * f->features; i++) bench_element_store(f->image, f->dtype, i, f->x[i]);
}

/* Features [begin, end), in tiles that fit the cache. */
static void fill_columns(void *user, int64_t begin, int64_t end)
{
    enum { TILE = 32 };
    const filling *f = user;
    for (int64_t i = begin; i < end; i += TILE)
        for (int64_t j = 0; j < f->tokens; j += TILE)
            for (int64_t feature = i; feature < i + TILE && feature < end; feature++)
                for (int64_t token = j; token < j + TILE && token < f->tokens; token++)
                    bench_element_store(f->image, f->dtype, feature * f->tokens + token, f->x[token * f->features + feature]);
}

void bench_image_fill(void *image, lac_dtype dtype, lac_layout layout, const float *x, int64_t tokens, int64_t features)
{
    filling f = {image, dtype, x, tokens, features};
    int by_rows = layout == LAC_LAYOUT_TOKEN_MAJOR;
    int64_t lines = by_rows ? tokens : features, length = by_rows ? features : tokens;
    bench_parallel(lines, A_THREADS_WORTH / (length + 1) + 1, by_rows ? fill_rows : fill_columns, &f);
}

typedef struct rounding {
    float *values;
    lac_dtype dtype;
} rounding;

static void round_range(void *user, int64_t begin, int64_t end)
{
    const rounding *r = user;
    float narrow; /* room for any dtype */
    for (int64_t i = begin; i < end; i++) {
        bench_element_store(&narrow, r->dtype, 0, r->values[i]);
        r->values[i] = bench_element_load(&narrow, r->dtype, 0);
    }
}

void bench_round(float *values, lac_dtype dtype, int64_t count)
{
    if (dtype != LAC_DTYPE_F32) bench_parallel(count, A_THREADS_WORTH, round_range, &(rounding){values, dtype});
}
