/* broadcast_body.h - the inner loop of dataflow "broadcast", included once by each unit_<name>.c.
 *
 * A tile of T tokens x V vectors of outputs stays in registers over all slots. A slot costs V loads of weights, T
 * broadcasts of packed activations, one load of its column, and T*V FMAs: with T*V = 12 (AVX2, 16 registers) or 24
 * (AVX-512 and NEON, 32 registers) the two FMA pipes are the bottleneck, not the loads. */
#ifndef LAC_CPU_BROADCAST_BODY_H
#define LAC_CPU_BROADCAST_BODY_H

#include <string.h>

#include "cpu/unit.h"
#include "cpu/vector.h"

/* The tiles: tokens by vectors. One list makes the table of sizes and the dispatch below. */
#if LAC_LANES == 8
#define LAC_BROADCAST_TILES(X) X(6) X(4) X(3) X(2) X(1)
#define LAC_BROADCAST_VECTORS  2
#elif LAC_LANES == 1
#define LAC_BROADCAST_TILES(X) X(4) X(2) X(1)
#define LAC_BROADCAST_VECTORS  4
#else
#define LAC_BROADCAST_TILES(X) X(12) X(8) X(6) X(4) X(3) X(2) X(1)
#define LAC_BROADCAST_VECTORS  2
#endif

/* Weights are read front to back: so many bytes ahead they are brought to the first-level cache. */
enum { LAC_BROADCAST_NEAR = 768, LAC_BROADCAST_MOST = 12 };

/* One slot: sum[t][v] += x[t] * values[v]. */
LAC_INLINE void lac_broadcast_slot(const int tokens, const int vectors, const lac_dtype dtype, const float *x,
                                   const char *values, lac_vec sum[][LAC_BROADCAST_VECTORS])
{
    __asm__("" : "+r"(x)); /* one address for all the broadcasts, instead of one each on the FMA's own ports */
    lac_vec weight[LAC_BROADCAST_VECTORS];
    LAC_UNROLL
    for (int v = 0; v < vectors; ++v) weight[v] = lac_vec_load_as(dtype, values, v * LAC_LANES);
    __builtin_prefetch(values + LAC_BROADCAST_NEAR);
    LAC_UNROLL
    for (int t = 0; t < tokens; ++t) {
        lac_vec one = lac_vec_repeat(x + t);
        LAC_UNROLL
        for (int v = 0; v < vectors; ++v) sum[t][v] = lac_vec_fma(one, weight[v], sum[t][v]);
    }
}

LAC_INLINE void lac_broadcast_tile(const int tokens, const int vectors, const lac_dtype dtype,
                                   const lac_cpu_broadcast_call *call)
{
    const int width = vectors * LAC_LANES;
    const uint32_t *columns = call->columns, *end = columns + call->slots, *end_of_pairs = columns + call->slots / 2 * 2;
    const float *packed = call->packed;
    const char *values = call->values;
    const int64_t slot_bytes = (int64_t)width * (dtype == LAC_DTYPE_F32 ? 4 : 2);
    const char *ahead = call->ahead;
    lac_vec sum[LAC_BROADCAST_MOST][LAC_BROADCAST_VECTORS];
    LAC_UNROLL
    for (int t = 0; t < tokens; ++t) LAC_UNROLL
    for (int v = 0; v < vectors; ++v)
        sum[t][v] = call->fresh ? lac_vec_zero() : lac_vec_load(call->sums + t * width + v * LAC_LANES);
    for (; columns < end_of_pairs; columns += 2, values += 2 * slot_bytes, ahead += call->ahead_step) {
        uint64_t pair; /* the first in the lower half: the units here count bytes from the low end */
        memcpy(&pair, columns, sizeof pair);
        __builtin_prefetch(ahead, 0, 2);
        lac_broadcast_slot(tokens, vectors, dtype, packed + (uint64_t)(uint32_t)pair * (unsigned)tokens, values, sum);
        lac_broadcast_slot(tokens, vectors, dtype, packed + (pair >> 32) * (unsigned)tokens, values + slot_bytes, sum);
    }
    if (columns < end) lac_broadcast_slot(tokens, vectors, dtype, packed + (uint64_t)*columns * (unsigned)tokens, values, sum);
    LAC_UNROLL
    for (int t = 0; t < tokens; ++t) LAC_UNROLL
    for (int v = 0; v < vectors; ++v) lac_vec_store(call->sums + t * width + v * LAC_LANES, sum[t][v]);
}

LAC_INLINE void lac_broadcast_vectors(const int tokens, const lac_dtype dtype, const lac_cpu_broadcast_call *call)
{
    switch (call->vectors) {
    case 1:
        lac_broadcast_tile(tokens, 1, dtype, call);
        break;
    case 2:
        lac_broadcast_tile(tokens, 2, dtype, call);
        break;
#if LAC_BROADCAST_VECTORS > 2
    case 3:
        lac_broadcast_tile(tokens, 3, dtype, call);
        break;
    default:
        lac_broadcast_tile(tokens, 4, dtype, call);
        break;
#endif
    }
}

#define LAC_BROADCAST_CASE(tokens)                                                                                             \
    case tokens:                                                                                                               \
        lac_broadcast_vectors(tokens, dtype, call);                                                                            \
        break;

LAC_INLINE void lac_broadcast_dtype(const lac_dtype dtype, const lac_cpu_broadcast_call *call)
{
    switch (call->tokens) {
        LAC_BROADCAST_TILES(LAC_BROADCAST_CASE)
    default:
        break;
    }
}

static void lac_broadcast(const lac_cpu_broadcast_call *call)
{
    if (call->dtype == LAC_DTYPE_F16)
        lac_broadcast_dtype(LAC_DTYPE_F16, call);
    else if (call->dtype == LAC_DTYPE_BF16)
        lac_broadcast_dtype(LAC_DTYPE_BF16, call);
    else
        lac_broadcast_dtype(LAC_DTYPE_F32, call);
}

#define LAC_BROADCAST_ENTRY(tokens) tokens,
static const int lac_broadcast_tiles[] = {LAC_BROADCAST_TILES(LAC_BROADCAST_ENTRY) 0};

#endif
