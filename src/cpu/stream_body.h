/* stream_body.h - the inner loop of dataflow "stream", included once by each unit_<name>.c.
 *
 * Tokens lie along the vector. R rows of W that share their columns (R = 1 when each row has its own) times V vectors of
 * tokens stay in registers over the slots of a strip. A slot costs R broadcasts of weights, V loads of activations that
 * every row uses, a quarter of a load for its column (four are read at once), and R*V FMAs. With R = 1 each FMA takes its
 * activations straight from the first-level cache, so the loads, two a cycle, are the bottleneck: V / (V + 1.25) of the FMA
 * rate at best. Between strips the sums change, 2 R V loads and stores. */
#ifndef LAC_CPU_STREAM_BODY_H
#define LAC_CPU_STREAM_BODY_H

#include <string.h>

#include "cpu/unit.h"
#include "cpu/vector.h"

/* The most vectors of tokens beside 1 row, and beside 4. More vectors mean fewer loads an FMA, but fewer columns in a block
 * that fits the first-level cache, and so more reloading of sums: on 16 lanes that turns at 4. */
#if LAC_LANES == 16
#define LAC_STREAM_VECTORS_1 4
#else
#define LAC_STREAM_VECTORS_1 8
#endif
#if LAC_LANES == 8
#define LAC_STREAM_VECTORS_4 3
#else
#define LAC_STREAM_VECTORS_4 4
#endif

/* One slot: sum[r][v] += values[r] * x[v]. */
LAC_INLINE void lac_stream_slot(const int rows, const int vectors, const float *x, const float *values,
                                lac_vec sum[][LAC_STREAM_VECTORS_1])
{
    __asm__("" : "+r"(x)); /* one address for all the loads */
    if (rows == 1) {
        lac_vec weight = lac_vec_repeat(values);
        LAC_UNROLL
        for (int v = 0; v < vectors; ++v) sum[0][v] = lac_vec_fma(weight, lac_vec_load(x + v * LAC_LANES), sum[0][v]);
        return;
    }
    lac_vec tokens[LAC_STREAM_VECTORS_1];
    LAC_UNROLL
    for (int v = 0; v < vectors; ++v) tokens[v] = lac_vec_load(x + v * LAC_LANES);
    LAC_UNROLL
    for (int r = 0; r < rows; ++r) {
        lac_vec weight = lac_vec_repeat(values + r);
        LAC_UNROLL
        for (int v = 0; v < vectors; ++v) sum[r][v] = lac_vec_fma(weight, tokens[v], sum[r][v]);
    }
}

LAC_INLINE void lac_stream_tile(const int rows, const int vectors, const lac_cpu_stream_call *call)
{
    enum { MOST_ROWS = 4, COLUMNS = 4 };
    const int width = vectors * LAC_LANES;
    const uint16_t *columns = call->columns;
    const float *values = call->values, *packed = call->packed;
    float *sums = call->sums;
    for (int64_t strip = 0; strip < call->strips; ++strip, sums += rows * width) {
        const uint32_t count = call->counts[strip];
        const uint16_t *end = columns + count, *end_of_fours = columns + count / COLUMNS * COLUMNS;
        lac_vec sum[MOST_ROWS][LAC_STREAM_VECTORS_1];
        LAC_UNROLL
        for (int r = 0; r < rows; ++r) LAC_UNROLL
        for (int v = 0; v < vectors; ++v)
            sum[r][v] = call->fresh ? lac_vec_zero() : lac_vec_load(sums + r * width + v * LAC_LANES);
        for (; columns < end_of_fours; columns += COLUMNS, values += COLUMNS * rows) {
            uint64_t four; /* the first in the lowest bits: the units here count bytes from the low end */
            memcpy(&four, columns, sizeof four);
            LAC_UNROLL
            for (int i = 0; i < COLUMNS; ++i, four >>= 16)
                lac_stream_slot(rows, vectors, packed + (uint64_t)(uint16_t)four * (unsigned)width, values + i * rows, sum);
        }
        for (; columns < end; ++columns, values += rows)
            lac_stream_slot(rows, vectors, packed + (uint64_t)*columns * (unsigned)width, values, sum);
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
    if (call->rows == 1) {
        switch (call->vectors) {
            LAC_STREAM_CASE(1, 1)
            LAC_STREAM_CASE(1, 2)
            LAC_STREAM_CASE(1, 3)
            LAC_STREAM_CASE(1, 4)
#if LAC_STREAM_VECTORS_1 > 4
            LAC_STREAM_CASE(1, 5)
            LAC_STREAM_CASE(1, 6)
            LAC_STREAM_CASE(1, 7)
            LAC_STREAM_CASE(1, 8)
#endif
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
