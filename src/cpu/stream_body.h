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
            for (int r = 0; r < rows; ++r) sum[r][v] = lac_vec_fma(weight[r], tokens, sum[r][v]);
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
    for (int v = 0; v < vectors; ++v) sum[v] = lac_vec_fma(weight, lac_vec_load(x + v * LAC_LANES), sum[v]);
}

LAC_INLINE void lac_stream_tile(const int rows, const int vectors, const lac_cpu_stream_call *call)
{
    enum { COLUMNS = 4 }; /* read at once, the first in the lowest bits: the units here count bytes from the low end */
    const int width = vectors * LAC_LANES;
    const uint16_t *columns = call->columns;
    const float *values = call->values, *packed = call->packed;
    float *sums = call->sums;
    const char *ahead = call->ahead.begin;
    int64_t due = 0; /* rows of `ahead` times strips */
    for (int64_t strip = 0; strip < call->strips; ++strip, sums += rows * width) {
        for (due += call->ahead.rows; due >= call->strips; due -= call->strips, ahead += call->ahead.stride)
            for (int64_t line = 0; line < call->ahead.bytes; line += 64) __builtin_prefetch(ahead + line, 1, 2);
        const lac_cpu_stream_count count = call->counts[strip];
        uint64_t four;
        lac_vec sum[LAC_STREAM_ROWS][LAC_STREAM_VECTORS_2];
        LAC_UNROLL
        for (int r = 0; r < rows; ++r) LAC_UNROLL
        for (int v = 0; v < vectors; ++v)
            sum[r][v] = call->fresh ? lac_vec_zero() : lac_vec_load(sums + r * width + v * LAC_LANES);
        const uint16_t *end = columns + count.shared, *end_of_fours = columns + count.shared / COLUMNS * COLUMNS;
        for (; columns < end_of_fours; columns += COLUMNS, values += COLUMNS * rows) {
            memcpy(&four, columns, sizeof four);
            LAC_UNROLL
            for (int i = 0; i < COLUMNS; ++i, four >>= 16)
                lac_stream_shared(rows, vectors, packed + (uint64_t)(uint16_t)four * (unsigned)width, values + i * rows, sum);
        }
        for (; columns < end; ++columns, values += rows)
            lac_stream_shared(rows, vectors, packed + (uint64_t)*columns * (unsigned)width, values, sum);
        if (rows == 2) {
            end = columns + 2 * count.own;
            end_of_fours = columns + count.own / 2 * COLUMNS;
            for (; columns < end_of_fours; columns += COLUMNS, values += COLUMNS) {
                memcpy(&four, columns, sizeof four);
                LAC_UNROLL
                for (int i = 0; i < COLUMNS; ++i, four >>= 16)
                    lac_stream_own(vectors, packed + (uint64_t)(uint16_t)four * (unsigned)width, values + i, sum[i % 2]);
            }
            for (; columns < end; columns += 2, values += 2) {
                lac_stream_own(vectors, packed + (uint64_t)columns[0] * (unsigned)width, values, sum[0]);
                lac_stream_own(vectors, packed + (uint64_t)columns[1] * (unsigned)width, values + 1, sum[1]);
            }
        }
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
