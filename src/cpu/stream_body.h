/* stream_body.h - the inner loop of dataflow "stream", included once by each unit_<name>.c.
 *
 * Tokens lie along the vector. R rows of W times V vectors of tokens stay in registers over the slots of a strip. A slot
 * whose column all R rows read costs V loads of activations, R broadcasts of weights, a quarter of a load for its column (four
 * are read at once) and R*V FMAs, which are then the bottleneck. A slot in which each of R = 2 rows has a column of its own
 * costs 2 V loads, each folded into its FMA: two loads a cycle are the bottleneck, V / (V + 1.25) of the FMA rate at best.
 * Two rows rather than one make 2 V sums that do not wait for each other, of half as many tokens: a block of X that fits the
 * first-level cache has twice the columns. Between strips the sums change, 2 R V loads and stores: those of two rows lie
 * wherever these are, since preparing chooses the two that share most (stream_pairs.c). A strip's numbers are one word, and its
 * slots one run of columns and one of weights: what it takes beside its slots counts, with 20 to 40 of these. */
#ifndef LAC_CPU_STREAM_BODY_H
#define LAC_CPU_STREAM_BODY_H

#include <string.h>

#include "cpu/unit.h"
#include "cpu/vector.h"

/* The most vectors of tokens beside 2 rows, and beside 4: as many sums as registers allow, with the operands of a slot. */
#if LAC_LANES == 8
#define LAC_STREAM_VECTORS_2 6
#define LAC_STREAM_VECTORS_4 3
#else
#define LAC_STREAM_VECTORS_2 6
#define LAC_STREAM_VECTORS_4 4
#endif
enum { LAC_STREAM_ROWS = 4 };

/* sum += weight * tokens, from a register or from memory. Written out for x86, where compilers move sums from register to
 * register here until they run out of these. */
#if LAC_LANES == 16
typedef __m512_u lac_stream_tokens;
#elif LAC_LANES == 8
typedef __m256_u lac_stream_tokens;
#endif
#if LAC_LANES >= 8
#define LAC_STREAM_FMA(sum, weight, tokens) __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(weight), "v"(tokens))
#define LAC_STREAM_FMA_AT(sum, weight, x)                                                                                      \
    __asm__("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(weight), "m"(*(const lac_stream_tokens *)(const void *)(x)))
#else
#define LAC_STREAM_FMA(sum, weight, tokens) ((sum) = lac_vec_fma(weight, tokens, sum))
#define LAC_STREAM_FMA_AT(sum, weight, x)   ((sum) = lac_vec_fma(weight, lac_vec_load(x), sum))
#endif

/* A vector that several FMAs use is loaded once, into a register: the compiler would fold a load into each of them. */
#if defined(__x86_64__)
#define LAC_STREAM_ONCE(vector) __asm__("" : "+x"(vector))
#elif defined(__aarch64__)
#define LAC_STREAM_ONCE(vector) __asm__("" : "+w"(vector))
#else
#define LAC_STREAM_ONCE(vector) ((void)0)
#endif

/* One column for all rows: sum[r][v] += values[r] * x[v]. */
LAC_INLINE void lac_stream_shared(const int rows, const int vectors, const float *x, const float *values,
                                  lac_vec sum[][LAC_STREAM_VECTORS_2])
{
    __asm__("" : "+r"(x)); /* one address for all the loads */
    lac_vec weight[LAC_STREAM_ROWS];
    if (rows == 2) { /* the rows' weights stay, and the vectors pass */
        LAC_UNROLL
        for (int r = 0; r < rows; ++r) weight[r] = lac_vec_repeat(values + r);
        LAC_UNROLL
        for (int v = 0; v < vectors; ++v) {
            lac_vec tokens = lac_vec_load(x + v * LAC_LANES);
            LAC_STREAM_ONCE(tokens);
            LAC_UNROLL
            for (int r = 0; r < rows; ++r) LAC_STREAM_FMA(sum[r][v], weight[r], tokens);
        }
        return;
    }
    lac_vec tokens[LAC_STREAM_VECTORS_4];
    LAC_UNROLL
    for (int v = 0; v < vectors; ++v) tokens[v] = lac_vec_load(x + v * LAC_LANES);
    LAC_UNROLL
    for (int r = 0; r < rows; ++r) {
        weight[r] = lac_vec_repeat(values + r);
        LAC_UNROLL
        for (int v = 0; v < vectors; ++v) LAC_STREAM_FMA(sum[r][v], weight[r], tokens[v]);
    }
}

/* One row's own column: sum[v] += *value * x[v]. */
LAC_INLINE void lac_stream_own(const int vectors, const float *x, const float *value, lac_vec *sum)
{
    __asm__("" : "+r"(x));
    lac_vec weight = lac_vec_repeat(value);
    LAC_UNROLL
    for (int v = 0; v < vectors; ++v) LAC_STREAM_FMA_AT(sum[v], weight, x + v * LAC_LANES);
}

/* Columns are read four at once, the first in the lowest bits: the units here count bytes from the low end. */
LAC_INLINE uint64_t lac_stream_columns(const uint16_t *columns)
{
    uint64_t four;
    memcpy(&four, columns, sizeof four);
    return four;
}

/* Where the next slot lies. */
typedef struct lac_stream_place {
    const uint16_t *columns;
    const float *values;
} lac_stream_place;

/* 4 rows, all slots shared. */
LAC_INLINE lac_stream_place lac_stream_four(const int vectors, const float *packed, lac_stream_place at,
                                            lac_cpu_stream_strip strip, lac_vec sum[][LAC_STREAM_VECTORS_2])
{
    const unsigned width = (unsigned)vectors * LAC_LANES;
    const uint16_t *end = at.columns + strip.shared, *end_of_fours = at.columns + strip.shared / 4 * 4;
    for (; at.columns < end_of_fours; at.columns += 4, at.values += 16) {
        uint64_t four = lac_stream_columns(at.columns);
        LAC_UNROLL
        for (int i = 0; i < 4; ++i, four >>= 16)
            lac_stream_shared(4, vectors, packed + (uint64_t)(uint16_t)four * width, at.values + i * 4, sum);
    }
    for (; at.columns < end; ++at.columns, at.values += 4)
        lac_stream_shared(4, vectors, packed + (uint64_t)*at.columns * width, at.values, sum);
    return at;
}

/* 2 rows. A shared slot has loads to spare and one of own columns lacks them, so they come in turns as long as there are both. */
LAC_INLINE lac_stream_place lac_stream_pair(const int vectors, const float *packed, lac_stream_place at,
                                            lac_cpu_stream_strip strip, lac_vec sum[][LAC_STREAM_VECTORS_2])
{
    const unsigned width = (unsigned)vectors * LAC_LANES;
    for (unsigned left = strip.turns; left > 0; left -= 4, at.columns += 12, at.values += 16) {
        uint64_t four = 0;
        LAC_UNROLL
        for (int i = 0; i < 12; ++i, four >>= 16) { /* of each turn the shared column, then the rows' own */
            if (i % 4 == 0) four = lac_stream_columns(at.columns + i);
            const float *x = packed + (uint64_t)(uint16_t)four * width, *values = at.values + i / 3 * 4;
            if (i % 3 == 0)
                lac_stream_shared(2, vectors, x, values, sum);
            else
                lac_stream_own(vectors, x, values + 1 + i % 3, sum[i % 3 - 1]);
        }
    }
    for (unsigned left = strip.shared; left > 0; left -= 4, at.columns += 4, at.values += 8) {
        uint64_t four = lac_stream_columns(at.columns);
        LAC_UNROLL
        for (int i = 0; i < 4; ++i, four >>= 16)
            lac_stream_shared(2, vectors, packed + (uint64_t)(uint16_t)four * width, at.values + i * 2, sum);
    }
    for (unsigned left = strip.own / 2; left > 0; --left, at.columns += 4, at.values += 4) {
        uint64_t four = lac_stream_columns(at.columns);
        LAC_UNROLL
        for (int i = 0; i < 4; ++i, four >>= 16)
            lac_stream_own(vectors, packed + (uint64_t)(uint16_t)four * width, at.values + i, sum[i % 2]);
    }
    if (strip.own % 2) {
        lac_stream_own(vectors, packed + (uint64_t)at.columns[0] * width, at.values, sum[0]);
        lac_stream_own(vectors, packed + (uint64_t)at.columns[1] * width, at.values + 1, sum[1]);
        at.columns += 2;
        at.values += 2;
    }
    return at;
}

LAC_INLINE void lac_stream_tile(const int rows, const int vectors, const lac_cpu_stream_call *call)
{
    const int width = vectors * LAC_LANES;
    const float *packed = call->packed;
    lac_stream_place at = {call->columns, call->values};
    const char *ahead = call->ahead.begin;
    int64_t due = 0;                                                                     /* rows of `ahead` times strips */
    const char *next = call->next, *end_of_next = next ? next + call->next_bytes : NULL; /* the last block has no next */
    const int64_t next_step = call->count > 0 ? (call->next_bytes / call->count + 64) / 64 * 64 : 0;
    float *first = call->sums; /* of a strip of 4 rows */
    for (const lac_cpu_stream_strip *s = call->strips, *end = s + call->count; s < end; ++s, first += rows * width) {
        for (due += call->ahead.rows; due >= call->count; due -= call->count, ahead += call->ahead.stride)
            for (int64_t line = 0; line < call->ahead.bytes; line += 64) __builtin_prefetch(ahead + line, 1, 2);
        for (const char *stop = end_of_next - next > next_step ? next + next_step : end_of_next; next < stop; next += 64)
            __builtin_prefetch(next, 0, 2);
        lac_cpu_stream_strip strip;
        memcpy(&strip, s, sizeof strip);
        float *sums[LAC_STREAM_ROWS];
        LAC_UNROLL
        for (int r = 0; r < rows; ++r) sums[r] = rows == 2 ? call->sums + strip.sums_of[r] * width : first + r * width;
        lac_vec sum[LAC_STREAM_ROWS][LAC_STREAM_VECTORS_2];
        LAC_UNROLL
        for (int r = 0; r < rows; ++r) LAC_UNROLL
        for (int v = 0; v < vectors; ++v) sum[r][v] = call->fresh ? lac_vec_zero() : lac_vec_load(sums[r] + v * LAC_LANES);
        at = rows == 2 ? lac_stream_pair(vectors, packed, at, strip, sum) : lac_stream_four(vectors, packed, at, strip, sum);
        LAC_UNROLL
        for (int r = 0; r < rows; ++r) LAC_UNROLL
        for (int v = 0; v < vectors; ++v) lac_vec_store(sums[r] + v * LAC_LANES, sum[r][v]);
    }
}

static int lac_stream_closest(const uint64_t *masks, int64_t words, int row, const uint8_t *left, int count, uint32_t *common)
{
    const uint64_t *own = masks + row * words;
    int best = 0;
    *common = 0;
    for (int i = 0; i < count; ++i) {
        const uint64_t *other = masks + left[i] * words;
        uint32_t both = 0;
        for (int64_t w = 0; w < words; ++w) both += (uint32_t)__builtin_popcountll(own[w] & other[w]);
        if (both / 4 > *common / 4 || i == 0) {
            best = i;
            *common = both;
        }
    }
    return best;
}

#define LAC_STREAM_CASE(rows, vectors)                                                                                         \
    case vectors:                                                                                                              \
        lac_stream_tile(rows, vectors, call);                                                                                  \
        break;

static void lac_stream(const lac_cpu_stream_call *call)
{
    if (call->rows == 2) {
        switch (call->vectors) {
            LAC_STREAM_CASE(2, 1)
            LAC_STREAM_CASE(2, 2)
            LAC_STREAM_CASE(2, 3)
            LAC_STREAM_CASE(2, 4)
            LAC_STREAM_CASE(2, 5)
            LAC_STREAM_CASE(2, 6)
        default:
            break;
        }
    } else {
        switch (call->vectors) {
            LAC_STREAM_CASE(4, 1)
            LAC_STREAM_CASE(4, 2)
            LAC_STREAM_CASE(4, 3)
#if LAC_STREAM_VECTORS_4 > 3
            LAC_STREAM_CASE(4, 4)
#endif
        default:
            break;
        }
    }
}

#endif
