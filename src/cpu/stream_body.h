/* stream_body.h - the inner loop of dataflow "stream", included once by each unit_<name>.c.
 *
 * Tokens lie along the vector. R rows of W times V vectors of tokens stay in registers over the slots of a strip. A slot
 * whose column all R rows read costs V loads of activations, R broadcasts of weights, a quarter of a load for its column (four
 * are read at once) and R*V FMAs, which are then the bottleneck. A slot in which each of R = 2 rows has a column of its own
 * costs 2 V loads, each folded into its FMA: two loads a cycle are the bottleneck, V / (V + 1.25) of the FMA rate at best.
 * Two rows rather than one make 2 V sums that do not wait for each other, of half as many tokens: a block of X that fits the
 * first-level cache has twice the columns. Between strips the sums change, 2 R V loads and stores. */
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
        for (int v = 0; v < vectors; ++v) sum[r][v] = lac_vec_fma(weight[r], tokens[v], sum[r][v]);
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

/* 4 rows, all slots shared. */
LAC_INLINE void lac_stream_four(const int vectors, const float *packed, const uint16_t *columns, const float *values,
                                uint32_t count, lac_vec sum[][LAC_STREAM_VECTORS_2])
{
    const unsigned width = (unsigned)vectors * LAC_LANES;
    const uint16_t *end = columns + count, *end_of_fours = columns + count / 4 * 4;
    for (; columns < end_of_fours; columns += 4, values += 16) {
        uint64_t four = lac_stream_columns(columns);
        LAC_UNROLL
        for (int i = 0; i < 4; ++i, four >>= 16)
            lac_stream_shared(4, vectors, packed + (uint64_t)(uint16_t)four * width, values + i * 4, sum);
    }
    for (; columns < end; ++columns, values += 4)
        lac_stream_shared(4, vectors, packed + (uint64_t)*columns * width, values, sum);
}

/* 2 rows: a shared slot, which has loads to spare, and a slot of own columns, which lacks them, in turns as long as there are
 * both; shared ones are a multiple of four. */
LAC_INLINE void lac_stream_pair(const int vectors, const float *packed, const uint16_t *columns, const float *values,
                                lac_cpu_stream_count count, lac_vec sum[][LAC_STREAM_VECTORS_2])
{
    const unsigned width = (unsigned)vectors * LAC_LANES;
    const uint16_t *own = columns + count.shared, *end = own + 2 * (uint64_t)count.own;
    const float *own_values = values + 2 * (uint64_t)count.shared;
    const uint32_t most = count.shared < count.own ? count.shared : count.own / 4 * 4;
    const uint32_t both = 2 * count.shared >= count.own ? most : 0; /* one more loop must pay for its end */
    const uint16_t *end_of_both = columns + both, *end_of_shared = columns + count.shared;
    for (; columns < end_of_both; columns += 4, values += 8) {
        uint64_t four = lac_stream_columns(columns);
        LAC_UNROLL
        for (int i = 0; i < 4; i += 2, own += 4, own_values += 4) {
            uint64_t four_own = lac_stream_columns(own);
            LAC_UNROLL
            for (int j = 0; j < 2; ++j, four >>= 16, four_own >>= 32) {
                lac_stream_shared(2, vectors, packed + (uint64_t)(uint16_t)four * width, values + 2 * (i + j), sum);
                lac_stream_own(vectors, packed + (uint64_t)(uint16_t)four_own * width, own_values + 2 * j, sum[0]);
                lac_stream_own(vectors, packed + (uint64_t)(uint16_t)(four_own >> 16) * width, own_values + 2 * j + 1, sum[1]);
            }
        }
    }
    for (; columns < end_of_shared; columns += 4, values += 8) {
        uint64_t four = lac_stream_columns(columns);
        LAC_UNROLL
        for (int i = 0; i < 4; ++i, four >>= 16)
            lac_stream_shared(2, vectors, packed + (uint64_t)(uint16_t)four * width, values + i * 2, sum);
    }
    for (; end - own >= 4; own += 4, own_values += 4) {
        uint64_t four = lac_stream_columns(own);
        LAC_UNROLL
        for (int i = 0; i < 4; ++i, four >>= 16)
            lac_stream_own(vectors, packed + (uint64_t)(uint16_t)four * width, own_values + i, sum[i % 2]);
    }
    if (own < end) {
        lac_stream_own(vectors, packed + (uint64_t)own[0] * width, own_values, sum[0]);
        lac_stream_own(vectors, packed + (uint64_t)own[1] * width, own_values + 1, sum[1]);
    }
}

LAC_INLINE void lac_stream_tile(const int rows, const int vectors, const lac_cpu_stream_call *call)
{
    const int width = vectors * LAC_LANES;
    const uint16_t *columns = call->columns;
    const float *values = call->values, *packed = call->packed;
    float *sums = call->sums;
    const char *ahead = call->ahead.begin;
    int64_t due = 0;                                                                     /* rows of `ahead` times strips */
    const char *next = call->next, *end_of_next = next ? next + call->next_bytes : NULL; /* the last block has no next */
    const int64_t next_step = call->strips > 0 ? (call->next_bytes / call->strips + 64) / 64 * 64 : 0;
    for (int64_t strip = 0; strip < call->strips; ++strip, sums += rows * width) {
        for (due += call->ahead.rows; due >= call->strips; due -= call->strips, ahead += call->ahead.stride)
            for (int64_t line = 0; line < call->ahead.bytes; line += 64) __builtin_prefetch(ahead + line, 1, 2);
        for (const char *stop = end_of_next - next > next_step ? next + next_step : end_of_next; next < stop; next += 64)
            __builtin_prefetch(next, 0, 2);
        const lac_cpu_stream_count count = call->counts[strip];
        lac_vec sum[LAC_STREAM_ROWS][LAC_STREAM_VECTORS_2];
        LAC_UNROLL
        for (int r = 0; r < rows; ++r) LAC_UNROLL
        for (int v = 0; v < vectors; ++v)
            sum[r][v] = call->fresh ? lac_vec_zero() : lac_vec_load(sums + r * width + v * LAC_LANES);
        if (rows == 2) lac_stream_pair(vectors, packed, columns, values, count, sum);
        if (rows == 4) lac_stream_four(vectors, packed, columns, values, count.shared, sum);
        columns += count.shared + (uint64_t)count.own * rows;
        values += (uint64_t)(count.shared + count.own) * rows;
        LAC_UNROLL
        for (int r = 0; r < rows; ++r) LAC_UNROLL
        for (int v = 0; v < vectors; ++v) lac_vec_store(sums + r * width + v * LAC_LANES, sum[r][v]);
    }
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
