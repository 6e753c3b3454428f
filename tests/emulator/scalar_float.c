/* scalar_float.c - arithmetic on floats, comparisons of them and the usual conversions, as lists of scalar.h; scalar.c
 * searches them.
 *
 * An f32x is an f32 of an instruction with modifiers, .ftz, .sat or a rounding other than to nearest. Functions that
 * hardware approximates are computed in double and rounded; reciprocals and roots are then rounded correctly too, double
 * having more than twice a float's bits, so that .rn and .approx are one row. */
#include "scalar.h"

#include <math.h>

/* A NaN gives way to the other; -0 is less than +0. Selections only, to be vectorised. */
#define LEAST_AND_MOST(T)                                                                                                      \
    static inline value_##T least_##T(value_##T a, value_##T b)                                                                \
    {                                                                                                                          \
        lane_##T a_bits = put_##T(a, 0), b_bits = put_##T(b, 0), least = a < b ? a_bits : b_bits;                              \
        least = a == b ? a_bits | b_bits : least;                                                                              \
        least = a != a ? b_bits : least;                                                                                       \
        return get_##T(b != b ? a_bits : least, 0);                                                                            \
    }                                                                                                                          \
    static inline value_##T most_##T(value_##T a, value_##T b)                                                                 \
    {                                                                                                                          \
        lane_##T a_bits = put_##T(a, 0), b_bits = put_##T(b, 0), most = a > b ? a_bits : b_bits;                               \
        most = a == b ? a_bits & b_bits : most;                                                                                \
        most = a != a ? b_bits : most;                                                                                         \
        return get_##T(b != b ? a_bits : most, 0);                                                                             \
    }
LEAST_AND_MOST(f32)
LEAST_AND_MOST(f32x)
LEAST_AND_MOST(f64)

/* The product of two fp16 is exact in double. So is its sum with a third, unless one is so small beside the other that it
 * does not count. A float on the way to fp16 would round twice; rounded to odd where it is not exact, it lies in the middle
 * of two fp16 only if the sum does. */
static uint16_t fma_f16(float a, float b, float c)
{
    double sum = (double)a * b + c;
    float rounded = (float)sum;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    if (rounded != sum && !isnan(sum) && !(bits & 1)) rounded = nextafterf(rounded, sum > rounded ? INFINITY : -INFINITY);
    return emu_to_f16(rounded);
}
#define LOW(x)  emu_from_f16((uint16_t)(x))
#define HIGH(x) emu_from_f16((uint16_t)((x) >> 16))
static inline uint32_t pair(uint16_t low, uint16_t high) { return (uint32_t)high << 16 | low; }

#define SIGN UINT32_C(0x80000000)

/* ---- the lists */
#define FLOAT(ONE, TWO, THREE, COMPARE, T, fused)                                                                              \
    TWO(add_##T, "add." #T, T, T, T, a + b)                                                                                    \
    TWO(sub_##T, "sub." #T, T, T, T, a - b)                                                                                    \
    TWO(mul_##T, "mul." #T, T, T, T, a *b)                                                                                     \
    TWO(div_##T, "div." #T, T, T, T, a / b)                                                                                    \
    TWO(min_##T, "min." #T, T, T, T, least_##T(a, b))                                                                          \
    TWO(max_##T, "max." #T, T, T, T, most_##T(a, b))                                                                           \
    THREE(fma_##T, "fma." #T, T, T, T, T, fused(a, b, c))                                                                      \
    ONE(rcp_##T, "rcp." #T, T, T, (value_##T)(1.0 / a))                                                                        \
    ONE(sqrt_##T, "sqrt." #T, T, T, (value_##T)sqrt(a))                                                                        \
    COMPARE(eq_##T, "setp.eq." #T, T, a == b)                                                                                  \
    COMPARE(ne_##T, "setp.ne." #T, T, (a < b) | (a > b))                                                                       \
    COMPARE(lt_##T, "setp.lt." #T, T, a < b)                                                                                   \
    COMPARE(le_##T, "setp.le." #T, T, a <= b)                                                                                  \
    COMPARE(gt_##T, "setp.gt." #T, T, a > b)                                                                                   \
    COMPARE(ge_##T, "setp.ge." #T, T, a >= b)                                                                                  \
    COMPARE(equ_##T, "setp.equ." #T, T, !((a < b) | (a > b)))                                                                  \
    COMPARE(neu_##T, "setp.neu." #T, T, !(a == b))                                                                             \
    COMPARE(ltu_##T, "setp.ltu." #T, T, !(a >= b))                                                                             \
    COMPARE(leu_##T, "setp.leu." #T, T, !(a > b))                                                                              \
    COMPARE(gtu_##T, "setp.gtu." #T, T, !(a <= b))                                                                             \
    COMPARE(geu_##T, "setp.geu." #T, T, !(a < b))                                                                              \
    COMPARE(num_##T, "setp.num." #T, T, (a == a) & (b == b))                                                                   \
    COMPARE(nan_##T, "setp.nan." #T, T, (a != a) | (b != b))
#define FUNCTIONS(ONE, T)                                                                                                      \
    ONE(ex2_##T, "ex2." #T, T, T, (float)exp2(a))                                                                              \
    ONE(lg2_##T, "lg2." #T, T, T, (float)log2(a))                                                                              \
    ONE(rsqrt_##T, "rsqrt." #T, T, T, (float)(1.0 / sqrt(a)))                                                                  \
    ONE(sin_##T, "sin." #T, T, T, (float)sin(a))                                                                               \
    ONE(cos_##T, "cos." #T, T, T, (float)cos(a))                                                                               \
    ONE(tanh_##T, "tanh." #T, T, T, (float)tanh(a))                                                                            \
    ONE(cvt_##T##_##T, "cvt.f32." #T, T, T, a)
/* Signs are bits, also a NaN's, unless there is flushing to do. */
#define SIGNS(ONE, TWO)                                                                                                        \
    ONE(neg_f32, "neg.f32", u32, u32, a ^ SIGN)                                                                                \
    ONE(abs_f32, "abs.f32", u32, u32, a & ~SIGN)                                                                               \
    ONE(neg_f32x, "neg.f32x", f32x, f32x, -a)                                                                                  \
    ONE(abs_f32x, "abs.f32x", f32x, f32x, fabsf(a))                                                                            \
    TWO(copysign_f32, "copysign.f32", u32, u32, u32, (a & SIGN) | (b & ~SIGN))                                                 \
    ONE(neg_f64, "neg.f64", u64, u64, a ^ (uint64_t)SIGN << 32)                                                                \
    ONE(abs_f64, "abs.f64", u64, u64, a & ~((uint64_t)SIGN << 32))                                                             \
    TWO(copysign_f64, "copysign.f64", u64, u64, u64, (a & (uint64_t)SIGN << 32) | (b & ~((uint64_t)SIGN << 32)))               \
    ONE(neg_f16, "neg.f16", u16, u16, a ^ 0x8000u)                                                                             \
    ONE(abs_f16, "abs.f16", u16, u16, a & 0x7fffu)                                                                             \
    ONE(neg_f16x2, "neg.f16x2", u32, u32, a ^ 0x80008000u)                                                                     \
    ONE(abs_f16x2, "abs.f16x2", u32, u32, a & 0x7fff7fffu)
/* Sums and products of two fp16 are rounded correctly by way of float, which has more than twice their bits. */
#define HALVES(TWO, THREE)                                                                                                     \
    TWO(add_f16, "add.f16", f16, f16, f16, a + b)                                                                              \
    TWO(sub_f16, "sub.f16", f16, f16, f16, a - b)                                                                              \
    TWO(mul_f16, "mul.f16", f16, f16, f16, a *b)                                                                               \
    THREE(fma_f16_run, "fma.f16", u16, f16, f16, f16, fma_f16(a, b, c))                                                        \
    TWO(add_f16x2, "add.f16x2", u32, u32, u32, pair(emu_to_f16(LOW(a) + LOW(b)), emu_to_f16(HIGH(a) + HIGH(b))))               \
    TWO(sub_f16x2, "sub.f16x2", u32, u32, u32, pair(emu_to_f16(LOW(a) - LOW(b)), emu_to_f16(HIGH(a) - HIGH(b))))               \
    TWO(mul_f16x2, "mul.f16x2", u32, u32, u32, pair(emu_to_f16(LOW(a) * LOW(b)), emu_to_f16(HIGH(a) * HIGH(b))))               \
    THREE(fma_f16x2, "fma.f16x2", u32, u32, u32, u32, pair(fma_f16(LOW(a), LOW(b), LOW(c)), fma_f16(HIGH(a), HIGH(b), HIGH(c))))
/* Conversions, with all operands as wide as their types: scalar_convert.c does the rest. Of a pair the first source is the
 * high half. */
#define TO_INTEGER(ONE, D)                                                                                                     \
    ONE(cvt_##D##_u8, "cvt." #D ".u8", D, u8, (lane_##D)a)                                                                     \
    ONE(cvt_##D##_s8, "cvt." #D ".s8", D, s8, (lane_##D)a)                                                                     \
    ONE(cvt_##D##_u16, "cvt." #D ".u16", D, u16, (lane_##D)a)                                                                  \
    ONE(cvt_##D##_s16, "cvt." #D ".s16", D, s16, (lane_##D)a)                                                                  \
    ONE(cvt_##D##_u32, "cvt." #D ".u32", D, u32, (lane_##D)a)                                                                  \
    ONE(cvt_##D##_s32, "cvt." #D ".s32", D, s32, (lane_##D)a)                                                                  \
    ONE(cvt_##D##_u64, "cvt." #D ".u64", D, u64, (lane_##D)a)                                                                  \
    ONE(cvt_##D##_s64, "cvt." #D ".s64", D, s64, (lane_##D)a)
#define TO_FLOAT(ONE, TWO)                                                                                                     \
    ONE(cvt_f32_u16, "cvt.f32.u16", f32, u16, (float)a)                                                                        \
    ONE(cvt_f32_s16, "cvt.f32.s16", f32, s16, (float)a)                                                                        \
    ONE(cvt_f32_u32, "cvt.f32.u32", f32, u32, (float)a)                                                                        \
    ONE(cvt_f32_s32, "cvt.f32.s32", f32, s32, (float)a)                                                                        \
    ONE(cvt_f32_u64, "cvt.f32.u64", f32, u64, (float)a)                                                                        \
    ONE(cvt_f32_s64, "cvt.f32.s64", f32, s64, (float)a)                                                                        \
    ONE(cvt_f32_f16, "cvt.f32.f16", f32, f16, a)                                                                               \
    ONE(cvt_f32_bf16, "cvt.f32.bf16", f32, bf16, a)                                                                            \
    ONE(cvt_f16_f32, "cvt.f16.f32", f16, f32, a)                                                                               \
    ONE(cvt_bf16_f32, "cvt.bf16.f32", bf16, f32, a)                                                                            \
    TWO(cvt_f16x2_f32, "cvt.f16x2.f32", u32, f32, f32, pair(emu_to_f16(b), emu_to_f16(a)))                                     \
    TWO(cvt_bf16x2_f32, "cvt.bf16x2.f32", u32, f32, f32, pair(emu_to_bf16(b), emu_to_bf16(a)))
#define ALL(ONE, TWO, THREE, COMPARE)                                                                                          \
    FLOAT(ONE, TWO, THREE, COMPARE, f32, __builtin_fmaf)                                                                       \
    FLOAT(ONE, TWO, THREE, COMPARE, f32x, __builtin_fmaf)                                                                      \
    FLOAT(ONE, TWO, THREE, COMPARE, f64, __builtin_fma)                                                                        \
    FUNCTIONS(ONE, f32)                                                                                                        \
    FUNCTIONS(ONE, f32x)                                                                                                       \
    SIGNS(ONE, TWO)                                                                                                            \
    HALVES(TWO, THREE)                                                                                                         \
    TO_INTEGER(ONE, u16)                                                                                                       \
    TO_INTEGER(ONE, s16)                                                                                                       \
    TO_INTEGER(ONE, u32)                                                                                                       \
    TO_INTEGER(ONE, s32)                                                                                                       \
    TO_INTEGER(ONE, u64)                                                                                                       \
    TO_INTEGER(ONE, s64)                                                                                                       \
    TO_FLOAT(ONE, TWO)

ALL(EMU_ONE, EMU_TWO, EMU_THREE, EMU_COMPARE)
const emu_scalar_row emu_scalar_float_rows[] = {ALL(EMU_ONE_ROW, EMU_TWO_ROW, EMU_THREE_ROW, EMU_COMPARE_ROW)};
const int emu_scalar_float_count = sizeof emu_scalar_float_rows / sizeof *emu_scalar_float_rows;

/* fma.rn.f32 is what kernels do most, and without the machine's own instruction it is a call of libm for every lane. */
#if defined(__x86_64__)
__attribute__((target("avx2,fma")))
EMU_THREE(fma_f32_machine, "", f32, f32, f32, f32, __builtin_fmaf(a, b, c)) emu_run *emu_scalar_faster(emu_run *run)
{
    bool is_able = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return run == fma_f32 && is_able ? fma_f32_machine : run;
}
#else
emu_run *emu_scalar_faster(emu_run *run) { return run; }
#endif
