/* permute_body.h - the inner loop of dataflow "permute", included once by each unit_<name>.c.
 *
 * A strip of rows of W lies along the lanes. The inputs of a group are few enough for registers: for each slot, a vector of
 * weights and a vector of indices are read, the indices pick their inputs out of those registers, and one FMA adds the
 * products of as many rows as there are lanes. No gather, no sum across lanes.
 *
 * The indices of 8 adjacent rows are one octet. Up to 4 bits an index it is `bits` bytes: a broadcast of 4 bytes and a shift
 * by lane bring each index to the bottom of its lane. What stands above it does no harm: the inputs are repeated until they
 * fill a register, and permutes ignore all further bits. Beyond 4 bits an octet has 4 bytes of low parts, and behind
 * those of the whole strip a byte for each further bit, which chooses between two results.
 *
 * Bottleneck: reading W from memory. For one token a vector takes about 2 cycles with groups of up to 8 inputs, 5 with 32. */
#ifndef LAC_CPU_PERMUTE_BODY_H
#define LAC_CPU_PERMUTE_BODY_H

#include <string.h>

#include "cpu/unit.h"
#include "cpu/vector.h"

/* Vectors in a strip: enough for independent sums, and for whole octets. The widest index. */
#if LAC_LANES >= 8
#define LAC_PERMUTE_VECTORS 2
#else
#define LAC_PERMUTE_VECTORS (8 / LAC_LANES)
#endif
#if LAC_LANES == 16
#define LAC_PERMUTE_BITS 6
#else
#define LAC_PERMUTE_BITS 5
#endif
enum { LAC_PERMUTE_STRIP = LAC_PERMUTE_VECTORS * LAC_LANES };
_Static_assert((int)LAC_PERMUTE_STRIP <= (int)LAC_CPU_PERMUTE_STRIP, "a strip is larger than its callers allow for");

/* Bytes of an octet that hold the low parts; bits of a low part. */
LAC_INLINE int lac_permute_low(int bits) { return bits < 4 ? bits : 4; }

LAC_INLINE uint32_t lac_permute_word(const uint8_t *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

/* Two floats as they lie. */
LAC_INLINE double lac_permute_pair(const float *x)
{
    double pair;
    memcpy(&pair, x, sizeof pair);
    return pair;
}

/* For each unit: lac_permute_inputs, the registers that hold a group; lac_permute_load fills them; lac_permute_index, the
 * indices of a vector; lac_permute_read reads those of vector v of a strip; lac_permute_pick picks. `bits` is a constant. */
#if LAC_LANES == 16

typedef struct lac_permute_inputs {
    __m512 x[4];
} lac_permute_inputs;
typedef struct lac_permute_index {
    __m512i low;
    __mmask16 high[2];
} lac_permute_index;

LAC_INLINE lac_permute_inputs lac_permute_load(const int bits, const float *x)
{
    lac_permute_inputs in;
    if (bits == 1)
        in.x[0] = _mm512_castpd_ps(_mm512_set1_pd(lac_permute_pair(x)));
    else if (bits == 2)
        in.x[0] = _mm512_broadcast_f32x4(_mm_loadu_ps(x));
    else if (bits == 3)
        in.x[0] = _mm512_broadcast_f32x8(_mm256_loadu_ps(x));
    else
        in.x[0] = _mm512_loadu_ps(x);
    if (bits > 4) in.x[1] = _mm512_loadu_ps(x + 16);
    if (bits > 5) in.x[2] = _mm512_loadu_ps(x + 32), in.x[3] = _mm512_loadu_ps(x + 48);
    return in;
}

LAC_INLINE lac_permute_index lac_permute_read(const int bits, const uint8_t *octets, int v)
{
    const int low = lac_permute_low(bits);
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7);
    const uint8_t *first = octets + 2 * v * low;
    __m512i words = _mm512_set1_epi32((int)lac_permute_word(first));
    words = _mm512_mask_set1_epi32(words, 0xff00, (int)lac_permute_word(first + low));
    lac_permute_index index = {.low = _mm512_srlv_epi32(words, _mm512_mullo_epi32(lane, _mm512_set1_epi32(low)))};
    for (int high = 0; high < bits - 4; ++high) {
        uint16_t mask;
        memcpy(&mask, octets + (4 + high) * LAC_PERMUTE_STRIP / 8 + 2 * v, sizeof mask);
        index.high[high] = mask;
    }
    return index;
}

LAC_INLINE lac_vec lac_permute_pick(const int bits, const lac_permute_inputs *in, const lac_permute_index *index)
{
    __m512 picked = _mm512_permutexvar_ps(index->low, in->x[0]);
    if (bits > 4) picked = _mm512_mask_permutexvar_ps(picked, index->high[0], index->low, in->x[1]);
    if (bits > 5) {
        __m512 upper = _mm512_permutexvar_ps(index->low, in->x[2]);
        upper = _mm512_mask_permutexvar_ps(upper, index->high[0], index->low, in->x[3]);
        picked = _mm512_mask_mov_ps(picked, index->high[1], upper);
    }
    return picked;
}

#elif LAC_LANES == 8

typedef struct lac_permute_inputs {
    __m256 x[4];
} lac_permute_inputs;
/* The sign bits of `half` and `high` choose, in groups of more than 8 and more than 16 inputs. */
typedef struct lac_permute_index {
    __m256i low;
    __m256 half, high;
} lac_permute_index;

LAC_INLINE lac_permute_inputs lac_permute_load(const int bits, const float *x)
{
    lac_permute_inputs in;
    if (bits == 1)
        in.x[0] = _mm256_castpd_ps(_mm256_set1_pd(lac_permute_pair(x)));
    else if (bits == 2)
        in.x[0] = _mm256_broadcast_ps((const __m128 *)(const void *)x);
    else
        in.x[0] = _mm256_loadu_ps(x);
    if (bits > 3) in.x[1] = _mm256_loadu_ps(x + 8);
    if (bits > 4) in.x[2] = _mm256_loadu_ps(x + 16), in.x[3] = _mm256_loadu_ps(x + 24);
    return in;
}

LAC_INLINE lac_permute_index lac_permute_read(const int bits, const uint8_t *octets, int v)
{
    const int low = lac_permute_low(bits);
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i words = _mm256_set1_epi32((int)lac_permute_word(octets + v * low));
    lac_permute_index index = {.low = _mm256_srlv_epi32(words, _mm256_mullo_epi32(lane, _mm256_set1_epi32(low)))};
    if (bits > 3) index.half = _mm256_castsi256_ps(_mm256_slli_epi32(index.low, 28));
    if (bits > 4) {
        words = _mm256_set1_epi32((int)lac_permute_word(octets + 4 * LAC_PERMUTE_STRIP / 8 + v));
        index.high = _mm256_castsi256_ps(_mm256_sllv_epi32(words, _mm256_sub_epi32(_mm256_set1_epi32(31), lane)));
    }
    return index;
}

LAC_INLINE lac_vec lac_permute_pick(const int bits, const lac_permute_inputs *in, const lac_permute_index *index)
{
    __m256 picked = _mm256_permutevar8x32_ps(in->x[0], index->low);
    if (bits > 3) picked = _mm256_blendv_ps(picked, _mm256_permutevar8x32_ps(in->x[1], index->low), index->half);
    if (bits > 4) {
        __m256 upper = _mm256_permutevar8x32_ps(in->x[2], index->low);
        upper = _mm256_blendv_ps(upper, _mm256_permutevar8x32_ps(in->x[3], index->low), index->half);
        picked = _mm256_blendv_ps(picked, upper, index->high);
    }
    return picked;
}

#elif LAC_LANES == 4

/* tbl picks bytes: an index becomes the numbers of its float's four bytes. Past the end of its table tbl gives 0 and tbx
 * leaves what is there, so a second table of 64 bytes needs no choice. */
typedef struct lac_permute_inputs {
    uint8x16x4_t x[2];
} lac_permute_inputs;
typedef struct lac_permute_index {
    uint8x16_t bytes;
} lac_permute_index;

LAC_INLINE lac_permute_inputs lac_permute_load(const int bits, const float *x)
{
    const int registers = bits > 2 ? (1 << bits) / 4 : 1;
    lac_permute_inputs in;
    LAC_UNROLL
    for (int i = 0; i < registers; ++i) in.x[i / 4].val[i % 4] = vreinterpretq_u8_f32(vld1q_f32(x + 4 * i));
    return in;
}

LAC_INLINE lac_permute_index lac_permute_read(const int bits, const uint8_t *octets, int v)
{
    static const int32_t lanes[2][4] = {{0, -1, -2, -3}, {-4, -5, -6, -7}};
    const int low = lac_permute_low(bits);
    const int32x4_t lane = vld1q_s32(lanes[v]);
    uint32x4_t number = vshlq_u32(vdupq_n_u32(lac_permute_word(octets)), vmulq_n_s32(lane, low));
    number = vandq_u32(number, vdupq_n_u32((1u << low) - 1));
    if (bits > 4) {
        uint32x4_t high = vandq_u32(vshlq_u32(vdupq_n_u32(octets[4]), lane), vdupq_n_u32(1));
        number = vorrq_u32(number, vshlq_n_u32(high, 4));
    }
    number = vmlaq_n_u32(vdupq_n_u32(0x03020100), number, 0x04040404);
    return (lac_permute_index){vreinterpretq_u8_u32(number)};
}

LAC_INLINE lac_vec lac_permute_pick(const int bits, const lac_permute_inputs *in, const lac_permute_index *index)
{
    uint8x16_t picked;
    if (bits <= 2) {
        picked = vqtbl1q_u8(in->x[0].val[0], index->bytes);
    } else if (bits == 3) {
        uint8x16x2_t pair = {{in->x[0].val[0], in->x[0].val[1]}};
        picked = vqtbl2q_u8(pair, index->bytes);
    } else {
        picked = vqtbl4q_u8(in->x[0], index->bytes);
    }
    if (bits > 4) picked = vqtbx4q_u8(picked, in->x[1], vsubq_u8(index->bytes, vdupq_n_u8(64)));
    return vreinterpretq_f32_u8(picked);
}

#else

/* Plain C: the group stays where it is. */
typedef struct lac_permute_inputs {
    const float *x;
} lac_permute_inputs;
typedef struct lac_permute_index {
    unsigned number;
} lac_permute_index;

LAC_INLINE lac_permute_inputs lac_permute_load(const int bits, const float *x)
{
    (void)bits;
    return (lac_permute_inputs){x};
}

LAC_INLINE lac_permute_index lac_permute_read(const int bits, const uint8_t *octets, int v)
{
    const int low = lac_permute_low(bits);
    unsigned number = 0;
    for (int i = 0; i < low; ++i) number |= (unsigned)octets[i] << 8 * i;
    number = number >> v * low & ((1u << low) - 1);
    if (bits > 4) number |= (octets[4] >> v & 1u) << 4;
    return (lac_permute_index){number};
}

LAC_INLINE lac_vec lac_permute_pick(const int bits, const lac_permute_inputs *in, const lac_permute_index *index)
{
    (void)bits;
    return in->x[index->number];
}

#endif

/* Weights are read once, front to back: this many bytes ahead they are asked for, and indices a fraction of it. Further than
 * the core's own prefetching goes, which stops at the end of a page. */
enum { LAC_PERMUTE_AHEAD = 8192, LAC_PERMUTE_INDEX_AHEAD = 1024 };

/* Slot `s` of a group: V vectors of weights, each times what `tokens` tokens have at its indices. */
LAC_INLINE void lac_permute_slot(const int tokens, const lac_dtype dtype, const int bits, const lac_permute_inputs *in,
                                 const void *values, const uint8_t *octets, lac_vec sum[][LAC_PERMUTE_VECTORS])
{
    LAC_UNROLL
    for (int v = 0; v < LAC_PERMUTE_VECTORS; ++v) {
        lac_vec weight = lac_vec_load_as(dtype, values, v * LAC_LANES);
        lac_permute_index index = lac_permute_read(bits, octets, v);
        LAC_UNROLL
        for (int t = 0; t < tokens; ++t) sum[t][v] = lac_vec_fma(weight, lac_permute_pick(bits, &in[t], &index), sum[t][v]);
    }
}

LAC_INLINE void lac_permute_strip(const int tokens, const lac_dtype dtype, const int bits, const lac_cpu_permute_call *call)
{
    enum { MOST_TOKENS = 4, V = LAC_PERMUTE_VECTORS };
    const int64_t value_step = LAC_PERMUTE_STRIP * (dtype == LAC_DTYPE_F32 ? 4 : 2); /* bytes of a slot */
    const int64_t index_step = LAC_PERMUTE_STRIP * bits / 8;
    const int slots = call->slots;
    const char *values = call->values;
    const uint8_t *octets = call->index;
    const float *x = call->x;
    lac_vec even[MOST_TOKENS][V], odd[MOST_TOKENS][V]; /* sums of every other slot, so that they are independent */
    LAC_UNROLL
    for (int t = 0; t < tokens; ++t) LAC_UNROLL
    for (int v = 0; v < V; ++v) {
        even[t][v] = call->fresh ? lac_vec_zero() : lac_vec_load(call->sums + t * LAC_PERMUTE_STRIP + v * LAC_LANES);
        odd[t][v] = lac_vec_zero();
    }
    for (int64_t g = 0; g < call->groups; ++g, x += call->inputs) {
        lac_permute_inputs in[MOST_TOKENS];
        LAC_UNROLL
        for (int t = 0; t < tokens; ++t) in[t] = lac_permute_load(bits, x + t * call->x_stride);
        int s = 0;
        for (; s + 1 < slots; s += 2) {
            LAC_UNROLL
            for (int64_t line = 0; line < 2 * value_step; line += 64) __builtin_prefetch(values + LAC_PERMUTE_AHEAD + line);
            __builtin_prefetch(octets + LAC_PERMUTE_INDEX_AHEAD);
            lac_permute_slot(tokens, dtype, bits, in, values, octets, even);
            lac_permute_slot(tokens, dtype, bits, in, values + value_step, octets + index_step, tokens > 2 ? even : odd);
            values += 2 * value_step;
            octets += 2 * index_step;
        }
        if (s < slots) {
            LAC_UNROLL
            for (int64_t line = 0; line < value_step; line += 64) __builtin_prefetch(values + LAC_PERMUTE_AHEAD + line);
            __builtin_prefetch(octets + LAC_PERMUTE_INDEX_AHEAD);
            lac_permute_slot(tokens, dtype, bits, in, values, octets, even);
            values += value_step;
            octets += index_step;
        }
    }
    LAC_UNROLL
    for (int t = 0; t < tokens; ++t) LAC_UNROLL
    for (int v = 0; v < V; ++v)
        lac_vec_store(call->sums + t * LAC_PERMUTE_STRIP + v * LAC_LANES, lac_vec_add(even[t][v], odd[t][v]));
}

#define LAC_PERMUTE_CASE(bits)                                                                                                 \
    case bits:                                                                                                                 \
        lac_permute_strip(tokens, dtype, bits, call);                                                                          \
        break;

LAC_INLINE void lac_permute_bits(const int tokens, const lac_dtype dtype, const lac_cpu_permute_call *call)
{
    switch (call->bits) {
        LAC_PERMUTE_CASE(1)
        LAC_PERMUTE_CASE(2)
        LAC_PERMUTE_CASE(3)
        LAC_PERMUTE_CASE(4)
        LAC_PERMUTE_CASE(5)
#if LAC_PERMUTE_BITS > 5
        LAC_PERMUTE_CASE(6)
#endif
    default:
        break;
    }
}

LAC_INLINE void lac_permute_dtype(const lac_dtype dtype, const lac_cpu_permute_call *call)
{
    if (call->tokens == 1)
        lac_permute_bits(1, dtype, call);
    else if (call->tokens == 2)
        lac_permute_bits(2, dtype, call);
    else
        lac_permute_bits(4, dtype, call);
}

static void lac_permute(const lac_cpu_permute_call *call)
{
    if (call->dtype == LAC_DTYPE_F16)
        lac_permute_dtype(LAC_DTYPE_F16, call);
    else if (call->dtype == LAC_DTYPE_BF16)
        lac_permute_dtype(LAC_DTYPE_BF16, call);
    else
        lac_permute_dtype(LAC_DTYPE_F32, call);
}

#endif
