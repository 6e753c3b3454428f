/* data.c - random normal numbers, quick enough for weights of 10^8 elements, and conversion to 16-bit floats. run.c draws
 * weights and activations with it, check.c reads results. */
#include "data.h"

#include <math.h>
#include <string.h>

/* splitmix64: every seed gives a good stream, and the stream is the same on every machine. */
uint64_t bench_random_next(bench_random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
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

/* A uniform number through the inverse of the distribution, linear between the quantiles of a table; tails end at 3.8. */
void bench_random_gaussian(bench_random *random, float *values, int64_t count)
{
    static float quantiles[QUANTILES + 1];
    static int ready;
    if (!ready) {
        for (int i = 0; i <= QUANTILES; i++) {
            double p = i == 0 ? 0.25 / QUANTILES : i == QUANTILES ? 1 - 0.25 / QUANTILES : (double)i / QUANTILES;
            quantiles[i] = (float)normal_quantile(p);
        }
        ready = 1;
    }
    for (int64_t i = 0; i < count; i += 2) {
        uint64_t bits = bench_random_next(random);
        for (int64_t j = i; j < i + 2 && j < count; j++, bits >>= 32) {
            uint32_t at = (uint32_t)(bits & 0xfff), part = (uint32_t)(bits >> 12 & 0xfffff);
            float share = (float)part * 0x1p-20f;
            values[j] = quantiles[at] + (quantiles[at + 1] - quantiles[at]) * share;
        }
    }
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
    uint32_t exponent = half >> 10 & 31, fraction = half & 1023;
    float magnitude = exponent == 0    ? ldexpf((float)fraction, -24)
                      : exponent == 31 ? (fraction ? NAN : INFINITY)
                                       : ldexpf((float)(1024 + fraction), (int)exponent - 25);
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

void bench_image_fill(void *image, lac_dtype dtype, lac_layout layout, const float *x, int64_t tokens, int64_t features)
{
    for (int64_t token = 0; token < tokens; token++)
        for (int64_t feature = 0; feature < features; feature++) {
            int64_t at = layout == LAC_LAYOUT_TOKEN_MAJOR ? token * features + feature : feature * tokens + token;
            bench_element_store(image, dtype, at, x[token * features + feature]);
        }
}
