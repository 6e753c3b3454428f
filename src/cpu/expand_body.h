/* expand_body.h - the inner loop of dataflow "expand", included once by each unit_<name>.c.
 *
 * A row of W is a bit a column and its values in one run. A vector's worth of columns takes its bits, spreads as many
 * values over the lanes whose bit is set, zeros elsewhere, and is multiplied by the activations as they lie: no index, no
 * gather, whatever the pattern. Bottleneck: reading W from memory; the loop itself takes about two cycles a vector of
 * columns and half a cycle more for each token. */
#ifndef LAC_CPU_EXPAND_BODY_H
#define LAC_CPU_EXPAND_BODY_H

#include "cpu/unit.h"
#include "cpu/vector.h"

/* Lane i of the result is value number popcount(bits below i) where bit i is set, and 0 elsewhere. */
#if LAC_LANES == 16

LAC_INLINE lac_vec lac_expand(lac_vec values, unsigned bits) { return _mm512_maskz_expand_ps((__mmask16)bits, values); }

#elif LAC_LANES == 8

/* [bits][lane]: the value's number, with the sign bit where the lane keeps one. */
#define LAC_EXPAND_BELOW(bits, lane)                                                                                           \
    (((lane) > 0 && (bits)&1) + ((lane) > 1 && (bits)&2) + ((lane) > 2 && (bits)&4) + ((lane) > 3 && (bits)&8) +               \
     ((lane) > 4 && (bits)&16) + ((lane) > 5 && (bits)&32) + ((lane) > 6 && (bits)&64))
#define LAC_EXPAND_LANE(bits, lane) (LAC_EXPAND_BELOW(bits, lane) | ((bits) >> (lane)&1 ? INT32_MIN : 0))
#define LAC_EXPAND_1(bits)                                                                                                     \
    {                                                                                                                          \
        LAC_EXPAND_LANE(bits, 0), LAC_EXPAND_LANE(bits, 1), LAC_EXPAND_LANE(bits, 2), LAC_EXPAND_LANE(bits, 3),                \
            LAC_EXPAND_LANE(bits, 4), LAC_EXPAND_LANE(bits, 5), LAC_EXPAND_LANE(bits, 6), LAC_EXPAND_LANE(bits, 7)             \
    }
#define LAC_EXPAND_4(bits)  LAC_EXPAND_1(bits), LAC_EXPAND_1((bits) + 1), LAC_EXPAND_1((bits) + 2), LAC_EXPAND_1((bits) + 3)
#define LAC_EXPAND_16(bits) LAC_EXPAND_4(bits), LAC_EXPAND_4((bits) + 4), LAC_EXPAND_4((bits) + 8), LAC_EXPAND_4((bits) + 12)
#define LAC_EXPAND_64(bits)                                                                                                    \
    LAC_EXPAND_16(bits), LAC_EXPAND_16((bits) + 16), LAC_EXPAND_16((bits) + 32), LAC_EXPAND_16((bits) + 48)
static const _Alignas(32) int32_t lac_expand_table[256][8] = {LAC_EXPAND_64(0), LAC_EXPAND_64(64), LAC_EXPAND_64(128),
                                                              LAC_EXPAND_64(192)};

LAC_INLINE lac_vec lac_expand(lac_vec values, unsigned bits)
{
    __m256i entry = _mm256_load_si256((const __m256i *)(const void *)lac_expand_table[bits]);
    return _mm256_blendv_ps(_mm256_setzero_ps(), _mm256_permutevar8x32_ps(values, entry), _mm256_castsi256_ps(entry));
}

#elif LAC_LANES == 4

/* Byte numbers for tbl, which gives 0 for those past the end. */
#define LAC_EXPAND_WORD(number) 4 * (number), 4 * (number) + 1, 4 * (number) + 2, 4 * (number) + 3
#define LAC_EXPAND_NONE         255, 255, 255, 255
static const uint8_t lac_expand_table[16][16] = {
    {LAC_EXPAND_NONE, LAC_EXPAND_NONE, LAC_EXPAND_NONE, LAC_EXPAND_NONE},
    {LAC_EXPAND_WORD(0), LAC_EXPAND_NONE, LAC_EXPAND_NONE, LAC_EXPAND_NONE},
    {LAC_EXPAND_NONE, LAC_EXPAND_WORD(0), LAC_EXPAND_NONE, LAC_EXPAND_NONE},
    {LAC_EXPAND_WORD(0), LAC_EXPAND_WORD(1), LAC_EXPAND_NONE, LAC_EXPAND_NONE},
    {LAC_EXPAND_NONE, LAC_EXPAND_NONE, LAC_EXPAND_WORD(0), LAC_EXPAND_NONE},
    {LAC_EXPAND_WORD(0), LAC_EXPAND_NONE, LAC_EXPAND_WORD(1), LAC_EXPAND_NONE},
    {LAC_EXPAND_NONE, LAC_EXPAND_WORD(0), LAC_EXPAND_WORD(1), LAC_EXPAND_NONE},
    {LAC_EXPAND_WORD(0), LAC_EXPAND_WORD(1), LAC_EXPAND_WORD(2), LAC_EXPAND_NONE},
    {LAC_EXPAND_NONE, LAC_EXPAND_NONE, LAC_EXPAND_NONE, LAC_EXPAND_WORD(0)},
    {LAC_EXPAND_WORD(0), LAC_EXPAND_NONE, LAC_EXPAND_NONE, LAC_EXPAND_WORD(1)},
    {LAC_EXPAND_NONE, LAC_EXPAND_WORD(0), LAC_EXPAND_NONE, LAC_EXPAND_WORD(1)},
    {LAC_EXPAND_WORD(0), LAC_EXPAND_WORD(1), LAC_EXPAND_NONE, LAC_EXPAND_WORD(2)},
    {LAC_EXPAND_NONE, LAC_EXPAND_NONE, LAC_EXPAND_WORD(0), LAC_EXPAND_WORD(1)},
    {LAC_EXPAND_WORD(0), LAC_EXPAND_NONE, LAC_EXPAND_WORD(1), LAC_EXPAND_WORD(2)},
    {LAC_EXPAND_NONE, LAC_EXPAND_WORD(0), LAC_EXPAND_WORD(1), LAC_EXPAND_WORD(2)},
    {LAC_EXPAND_WORD(0), LAC_EXPAND_WORD(1), LAC_EXPAND_WORD(2), LAC_EXPAND_WORD(3)},
};

LAC_INLINE lac_vec lac_expand(lac_vec values, unsigned bits)
{
    return vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(values), vld1q_u8(lac_expand_table[bits])));
}

#else

LAC_INLINE lac_vec lac_expand(lac_vec values, unsigned bits) { return bits ? values : 0.0f; }

#endif

/* The bits of the LAC_LANES columns from LAC_LANES * i on. */
LAC_INLINE unsigned lac_expand_bits(const uint8_t *mask, int64_t i)
{
#if LAC_LANES == 16
    uint16_t bits;
    memcpy(&bits, mask + 2 * i, sizeof bits);
    return bits;
#elif LAC_LANES == 8
    return mask[i];
#elif LAC_LANES == 4
    return mask[i >> 1] >> (i & 1) * 4 & 15u;
#else
    return mask[i >> 3] >> (i & 7) & 1u;
#endif
}

LAC_INLINE float lac_expand_total(lac_vec v)
{
    float lanes[LAC_LANES];
    lac_vec_store(lanes, v);
    for (int width = LAC_LANES / 2; width; width /= 2)
        for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    return lanes[0];
}

/* Values are read once, front to back: this many bytes ahead they are asked for. */
enum { LAC_EXPAND_AHEAD = 2048 };

LAC_INLINE void lac_expand_row(const int tokens, const lac_dtype dtype, const lac_cpu_expand_call *call)
{
    const int64_t vectors = (call->columns + LAC_LANES - 1) / LAC_LANES;
    int64_t at = 0;
    /* Two sums a token while there are few: the FMA's latency would show otherwise. */
    const int twice = tokens <= 4 ? 2 : 1;
    lac_vec sum[LAC_CPU_EXPAND_TOKENS][2];
    LAC_UNROLL
    for (int t = 0; t < tokens; ++t) sum[t][0] = sum[t][1] = lac_vec_zero();
    for (int64_t i = 0; i < vectors; i += twice) {
        LAC_UNROLL
        for (int half = 0; half < twice; ++half) {
            if (half && i + 1 == vectors) break;
            unsigned bits = lac_expand_bits(call->mask, i + half);
            __builtin_prefetch((const char *)call->values + at * (dtype == LAC_DTYPE_F32 ? 4 : 2) + LAC_EXPAND_AHEAD);
            lac_vec weight = lac_expand(lac_vec_load_as(dtype, call->values, at), bits);
            at += __builtin_popcount(bits);
            LAC_UNROLL
            for (int t = 0; t < tokens; ++t)
                sum[t][half] =
                    lac_vec_fma(weight, lac_vec_load(call->x + t * call->x_stride + (i + half) * LAC_LANES), sum[t][half]);
        }
    }
    LAC_UNROLL
    for (int t = 0; t < tokens; ++t) call->sums[t] = lac_expand_total(sum[t][0]) + lac_expand_total(sum[t][1]);
}

#define LAC_EXPAND_CASE(count)                                                                                                 \
    case count:                                                                                                                \
        lac_expand_row(count, dtype, call);                                                                                    \
        break;

LAC_INLINE void lac_expand_dtype(const lac_dtype dtype, const lac_cpu_expand_call *call)
{
    switch (call->tokens) {
        LAC_EXPAND_CASE(1)
        LAC_EXPAND_CASE(2)
        LAC_EXPAND_CASE(3)
        LAC_EXPAND_CASE(4)
        LAC_EXPAND_CASE(5)
        LAC_EXPAND_CASE(6)
        LAC_EXPAND_CASE(7)
        LAC_EXPAND_CASE(8)
    default:
        break;
    }
}

static void lac_expand_any(const lac_cpu_expand_call *call)
{
    if (call->dtype == LAC_DTYPE_F16)
        lac_expand_dtype(LAC_DTYPE_F16, call);
    else if (call->dtype == LAC_DTYPE_BF16)
        lac_expand_dtype(LAC_DTYPE_BF16, call);
    else
        lac_expand_dtype(LAC_DTYPE_F32, call);
}

#endif
