/* dtype.h - what the element types are and how their bits become numbers. Conversions round to nearest even. */
#ifndef LAC_CORE_DTYPE_H
#define LAC_CORE_DTYPE_H

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "lacuna.h"

/* F32, F16 or BF16: what values, activations and results may be. */
bool lac_dtype_is_storage(lac_dtype dtype);
/* Those and F64: what prune and compress read. */
bool lac_dtype_is_input(lac_dtype dtype);

/* The largest finite value. */
double lac_dtype_max(lac_dtype dtype);
/* The unit roundoff: 2^-24, 2^-11, 2^-8, 2^-53. */
double lac_dtype_roundoff(lac_dtype dtype);
/* The smallest positive value (subnormals count): half of it bounds the rounding error near zero. */
double lac_dtype_tiny(lac_dtype dtype);

static inline float lac_bf16_to_f32(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static inline uint16_t lac_f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x0040u); /* a quiet NaN stays one */
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float lac_f16_to_f32(uint16_t bits);
uint16_t lac_f32_to_f16(float value);
/* From double in one rounding; through float there would be two. */
uint16_t lac_f64_to_f16(double value);
uint16_t lac_f64_to_bf16(double value);

/* Element i of an array of `dtype`. */
double lac_load_f64(const void *data, lac_dtype dtype, int64_t i);
void lac_store_f64(void *data, lac_dtype dtype, int64_t i, double value);

/* `count` elements from one dtype to another; elements `stride` apart on the source side, adjacent on the other. */
void lac_load_run_f32(const void *data, lac_dtype dtype, int64_t start, int64_t stride, int64_t count, float *out);
/* The other way: adjacent ones, to places `stride` apart. */
void lac_store_run_f32(void *data, lac_dtype dtype, int64_t start, int64_t stride, int64_t count, const float *from);

#endif
