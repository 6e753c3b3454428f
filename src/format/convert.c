/* convert.c - conversion of values between dtypes for compress and decompress. */
#include "format/convert.h"

#include <math.h>
#include <string.h>

#include "core/dtype.h"

bool lac_convert_may_overflow(lac_dtype from, lac_dtype to) { return lac_dtype_max(from) > lac_dtype_max(to); }

static inline float same_f32(float value) { return value; }
static inline double f16_to_f64(uint16_t bits) { return lac_f16_to_f32(bits); }
static inline double bf16_to_f64(uint16_t bits) { return lac_bf16_to_f32(bits); }
static inline bool is_inf_f16(uint16_t bits) { return (bits & 0x7fffu) == 0x7c00u; }
static inline bool is_inf_bf16(uint16_t bits) { return (bits & 0x7fffu) == 0x7f80u; }
/* One less than infinity, as a number of bits, is the largest finite value of that sign. */
static inline uint16_t below_16(uint16_t bits) { return (uint16_t)(bits - 1); }
static inline bool is_inf_f32(float value) { return isinf(value); }
static inline float below_f32(float value) { return value < 0 ? -3.40282346638528859812e38f : 3.40282346638528859812e38f; }

/* Wider or as wide: nothing can overflow. */
#define LAC_CONVERT_WIDEN(NAME, FROM, TO, CONVERT)                                                                             \
    static bool NAME(const void *from, void *to, int64_t count, bool saturate)                                                 \
    {                                                                                                                          \
        const FROM *in = from;                                                                                                 \
        TO *out = to;                                                                                                          \
        (void)saturate;                                                                                                        \
        for (int64_t i = 0; i < count; i++) out[i] = CONVERT(in[i]);                                                           \
        return false;                                                                                                          \
    }

/* LOAD makes a float or double of an element, STORE rounds that to TO. */
#define LAC_CONVERT_NARROW(NAME, FROM, LOAD, TO, STORE, IS_INF, BELOW)                                                         \
    static bool NAME(const void *from, void *to, int64_t count, bool saturate)                                                 \
    {                                                                                                                          \
        const FROM *in = from;                                                                                                 \
        TO *out = to;                                                                                                          \
        bool overflow = false;                                                                                                 \
        for (int64_t i = 0; i < count; i++) {                                                                                  \
            out[i] = STORE(LOAD(in[i]));                                                                                       \
            if (IS_INF(out[i]) && isfinite(LOAD(in[i]))) {                                                                     \
                overflow = true;                                                                                               \
                if (saturate) out[i] = BELOW(out[i]);                                                                          \
            }                                                                                                                  \
        }                                                                                                                      \
        return overflow;                                                                                                       \
    }

static inline float f64_to_f32(double value) { return (float)value; }
static inline double f32_to_f64(float value) { return value; }
static inline double same_f64(double value) { return value; }

LAC_CONVERT_NARROW(f32_to_f16_run, float, same_f32, uint16_t, lac_f32_to_f16, is_inf_f16, below_16)
LAC_CONVERT_NARROW(f32_to_bf16_run, float, same_f32, uint16_t, lac_f32_to_bf16, is_inf_bf16, below_16)
LAC_CONVERT_NARROW(bf16_to_f16_run, uint16_t, lac_bf16_to_f32, uint16_t, lac_f32_to_f16, is_inf_f16, below_16)
LAC_CONVERT_NARROW(f64_to_f32_run, double, same_f64, float, f64_to_f32, is_inf_f32, below_f32)
LAC_CONVERT_NARROW(f64_to_f16_run, double, same_f64, uint16_t, lac_f64_to_f16, is_inf_f16, below_16)
LAC_CONVERT_NARROW(f64_to_bf16_run, double, same_f64, uint16_t, lac_f64_to_bf16, is_inf_bf16, below_16)
LAC_CONVERT_NARROW(f16_to_bf16_run, uint16_t, lac_f16_to_f32, uint16_t, lac_f32_to_bf16, is_inf_bf16, below_16)
LAC_CONVERT_WIDEN(f16_to_f32_run, uint16_t, float, lac_f16_to_f32)
LAC_CONVERT_WIDEN(bf16_to_f32_run, uint16_t, float, lac_bf16_to_f32)
LAC_CONVERT_WIDEN(f16_to_f64_run, uint16_t, double, f16_to_f64)
LAC_CONVERT_WIDEN(bf16_to_f64_run, uint16_t, double, bf16_to_f64)
LAC_CONVERT_WIDEN(f32_to_f64_run, float, double, f32_to_f64)

typedef bool (*convert_fn)(const void *from, void *to, int64_t count, bool saturate);

/* By from and to, in the order of lac_dtype; equal dtypes are not here. */
static const convert_fn conversions[5][5] = {
    [LAC_DTYPE_F32] = {[LAC_DTYPE_F16] = f32_to_f16_run, [LAC_DTYPE_BF16] = f32_to_bf16_run, [LAC_DTYPE_F64] = f32_to_f64_run},
    [LAC_DTYPE_F16] = {[LAC_DTYPE_F32] = f16_to_f32_run, [LAC_DTYPE_BF16] = f16_to_bf16_run, [LAC_DTYPE_F64] = f16_to_f64_run},
    [LAC_DTYPE_BF16] =
        {[LAC_DTYPE_F32] = bf16_to_f32_run, [LAC_DTYPE_F16] = bf16_to_f16_run, [LAC_DTYPE_F64] = bf16_to_f64_run},
    [LAC_DTYPE_F64] = {[LAC_DTYPE_F32] = f64_to_f32_run, [LAC_DTYPE_F16] = f64_to_f16_run, [LAC_DTYPE_BF16] = f64_to_bf16_run},
};

bool lac_convert_run(const void *from, lac_dtype from_dtype, void *to, lac_dtype to_dtype, int64_t count, bool saturate)
{
    if (count <= 0) return false;
    if (from_dtype == to_dtype) {
        memcpy(to, from, (size_t)count * lac_dtype_size(to_dtype));
        return false;
    }
    return conversions[from_dtype][to_dtype](from, to, count, saturate);
}
