/* stream_body.h - the inner loop of dataflow "stream", included once by each unit_<name>.c.
 *
 * Tokens lie along the vector. R rows of W that share their columns (R = 1 when each row has its own) times V vectors of
 * tokens stay in registers. A slot costs R broadcasts of weights, V loads of activations that every row uses, its column,
 * and R*V FMAs; with R = 1 each FMA takes its activations straight from the first-level cache, so the loads, two a cycle,
 * are the bottleneck: V / (V + 2) of the FMA rate at best. */
#ifndef LAC_CPU_STREAM_BODY_H
#define LAC_CPU_STREAM_BODY_H

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

LAC_INLINE void lac_stream_tile(const int rows, const int vectors, const lac_cpu_stream_call *call)
{
    enum { MOST_ROWS = 4, MOST_VECTORS = LAC_STREAM_VECTORS_1 };
    const int width = vectors * LAC_LANES;
    const int64_t slots = call->slots;
    const uint16_t *columns = call->columns;
    const float *values = call->values;
    lac_vec sum[MOST_ROWS][MOST_VECTORS];
    LAC_UNROLL
    for (int r = 0; r < rows; ++r) LAC_UNROLL
    for (int v = 0; v < vectors; ++v)
        sum[r][v] = call->fresh ? lac_vec_zero() : lac_vec_load(call->sums + r * width + v * LAC_LANES);
    for (int64_t s = 0; s < slots; ++s, values += rows) {
        const float *x = call->packed + (int64_t)columns[s] * width; /* [width] */
        __asm__("" : "+r"(x));                                       /* one address for all the loads */
        if (rows == 1) {
            lac_vec weight = lac_vec_repeat(values);
            LAC_UNROLL
            for (int v = 0; v < vectors; ++v) sum[0][v] = lac_vec_fma(weight, lac_vec_load(x + v * LAC_LANES), sum[0][v]);
        } else {
            lac_vec tokens[MOST_VECTORS];
            LAC_UNROLL
            for (int v = 0; v < vectors; ++v) tokens[v] = lac_vec_load(x + v * LAC_LANES);
            LAC_UNROLL
            for (int r = 0; r < rows; ++r) {
                lac_vec weight = lac_vec_repeat(values + r);
                LAC_UNROLL
                for (int v = 0; v < vectors; ++v) sum[r][v] = lac_vec_fma(weight, tokens[v], sum[r][v]);
            }
        }
    }
    LAC_UNROLL
    for (int r = 0; r < rows; ++r) LAC_UNROLL
    for (int v = 0; v < vectors; ++v) lac_vec_store(call->sums + r * width + v * LAC_LANES, sum[r][v]);
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
