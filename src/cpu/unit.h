/* unit.h - a vector unit as the portable loops of src/cpu see it: a table of inner loops, compiled for that unit.
 *
 * The loops that pack, block, share out work among threads and finish results are written once, in plain C. What runs
 * innermost is written once too, in *_body.h over vector.h, and compiled once for each unit by unit_<name>.c. */
#ifndef LAC_CPU_UNIT_H
#define LAC_CPU_UNIT_H

#include <stdbool.h>

#include "core/kernel.h"

/* Memory of `rows` rows of `bytes` bytes, `stride` bytes apart. */
typedef struct lac_cpu_region {
    const char *begin;
    int64_t rows, bytes, stride;
} lac_cpu_region;

/* Dataflow "broadcast": outputs along the vector, inputs broadcast.
 *
 *     sums[t][j] (+)= sum over s of packed[columns[s]][t] * values[s][j]
 *
 * for t < tokens, j < vectors * lanes. (+)= adds to what is there unless `fresh`. The order of the sum is that of s. */
typedef struct lac_cpu_broadcast_call {
    int tokens;      /* one of lac_cpu_unit.broadcast_tiles                     */
    int vectors;     /* 1 to lac_cpu_unit.broadcast_vectors                     */
    bool fresh;      /* sums begins at zero                                     */
    lac_dtype dtype; /* of values                                               */
    int64_t slots;
    const uint32_t *columns; /* [slots]                                                 */
    const void *values;      /* [slots][vectors * lanes]                                */
    const float *packed;     /* [k][tokens]                                             */
    float *sums;             /* [tokens][vectors * lanes]                               */
    const char *ahead;       /* weights of later calls, asked for on the way: a line every other slot, ...    */
    int64_t ahead_step;      /* ... so many bytes further                                                 */
} lac_cpu_broadcast_call;

/* Dataflow "stream": tokens along the vector, weights broadcast. Strips of rows, one after another. A shared slot has one column
 * for all rows of its strip and a weight for each, an own slot a column and a weight for each:
 *
 *     sums[r][t] += values[r] * packed[columns[0]][t]     or     values[r] * packed[columns[r]][t]
 *
 * for r < rows, t < vectors * lanes. A strip's slots lie in the order of use: a shared one and an own one in turns, the shared ones
 * that are left, the own ones that are left. 4 rows have shared slots only. */
typedef struct lac_cpu_stream_strip {
    uint16_t turns;     /* of two slots, a multiple of four              */
    uint16_t shared;    /* slots; with 2 rows a multiple of four         */
    uint16_t own;       /* slots                                         */
    uint8_t sums_of[2]; /* 2 rows: which of the sums; 4 have the next    */
} lac_cpu_stream_strip;

typedef struct lac_cpu_stream_call {
    int rows;    /* 2, or 4 with no slots of their own                      */
    int vectors; /* 1 to lac_cpu_unit.stream_vectors[rows == 4]             */
    bool fresh;  /* sums begins at zero                                     */
    int64_t count;
    const lac_cpu_stream_strip *strips; /* [count]                                                 */
    const uint16_t *columns;            /* of all slots, counted from the block's first            */
    const float *values;                /* of all slots                                            */
    const float *packed;                /* [columns of the block][vectors * lanes]                 */
    float *sums;                        /* [count * rows][vectors * lanes]                         */
    lac_cpu_region ahead;               /* asked for on the way, to be written soon                */
    const char *next;                   /* the `packed` of the next call, asked for on the way     */
    int64_t next_bytes;
} lac_cpu_stream_call;

/* Dataflow "expand": one row of W against a few tokens, columns along the vector.
 *
 *     sums[t] = sum over the columns j whose bit is set of value[number of set bits below j] * x[t][j] */
enum { LAC_CPU_EXPAND_TOKENS = 8 };
typedef struct lac_cpu_expand_call {
    int tokens;      /* 1 to LAC_CPU_EXPAND_TOKENS                                             */
    lac_dtype dtype; /* of values                                                              */
    int64_t columns;
    const uint8_t *mask; /* a bit a column, whole 64-bit words                                     */
    const void *values;  /* those kept; a vector beyond them is read, and not used                 */
    const float *x;      /* [tokens][columns], x_stride apart, padded with zeros to whole vectors  */
    int64_t x_stride;
    float *sums; /* [tokens]                                                               */
} lac_cpu_expand_call;

/* Dataflow "permute": a strip of rows of W along the lanes, inputs picked out of registers.
 *
 *     sums[t][r] (+)= sum over g, s of values[g][s][r] * x[t][g * inputs + number[g][s][r]]
 *
 * for r < permute_strip. permute_body.h describes how `index` holds the numbers. */
enum { LAC_CPU_PERMUTE_TOKENS = 8, LAC_CPU_PERMUTE_STRIP = 32 }; /* the most tokens of a call of the kernel; rows of a strip */
typedef struct lac_cpu_permute_call {
    int tokens; /* 1, 2 or 4                                                       */
    int bits;   /* of a number: 1 to lac_cpu_unit.permute_bits                     */
    int slots;  /* of a group                                                      */
    int inputs; /* of a group, at most 1 << bits                                   */
    bool fresh; /* sums begins at zero                                             */
    lac_dtype dtype;
    int64_t groups;
    const void *values;   /* [groups][slots][permute_strip]                                  */
    const uint8_t *index; /* [groups][slots][permute_strip * bits / 8]; 3 bytes beyond are read */
    const float *x;       /* [tokens][groups * inputs], x_stride apart; 63 floats beyond are read, and not used */
    int64_t x_stride;
    float *sums; /* [tokens][permute_strip] */
} lac_cpu_permute_call;

/* Rows become columns: to[c][r] = from[r][c] for c < columns, r < rows, and 0 for rows <= r < width. Nothing else is
 * written. */
typedef struct lac_cpu_turn_call {
    int rows, width;
    int64_t columns;
    const float *from; /* [rows][columns], from_stride apart             */
    float *to;         /* [columns][width], to_stride apart              */
    int64_t from_stride, to_stride;
} lac_cpu_turn_call;

/* The end of every dataflow: runs of `count` sums, each of one token (adjacent outputs) or of one output (adjacent tokens),
 * become act(alpha * sum + bias) + beta * c in y. */
typedef struct lac_cpu_finish_call {
    int64_t runs, count;
    const float *sums; /* [runs][count], `run_stride` and `stride` apart */
    int64_t run_stride, stride;
    float alpha, beta;
    const float *bias; /* [count], or NULL                              */
    float one_bias;    /* added to all when bias is NULL                */
    lac_activation activation;
    const void *c; /* [runs][count] of c_dtype, c_stride apart, or NULL */
    lac_dtype c_dtype, y_dtype;
    void *y; /* [runs][count] of y_dtype, y_stride apart      */
    int64_t c_stride, y_stride;
    const uint32_t *places; /* [count] element i goes to y[places[i]]: only a factor, in fp32; or NULL */
} lac_cpu_finish_call;

/* FMAs in one round of lac_cpu_unit.peak. */
enum { LAC_CPU_PEAK_FMAS = 12 };

typedef struct lac_cpu_unit {
    const char *name;
    int lanes;
    bool (*is_supported)(void);
    const int *broadcast_tiles; /* the tokens a tile may have, from most to 1; ends with 0 */
    int broadcast_vectors;
    void (*broadcast)(const lac_cpu_broadcast_call *call);
    int stream_vectors[2]; /* the most beside 2 rows, beside 4 */
    void (*stream)(const lac_cpu_stream_call *call);
    /* Which entry of `left`, numbers of `count` other rows, has the most columns in common with row `row`, by whole fours of
     * them and the first of equals; *common tells how many. A row is `words` words of `masks`. */
    int (*closest)(const uint64_t *masks, int64_t words, int row, const uint8_t *left, int count, uint32_t *common);
    void (*expand)(const lac_cpu_expand_call *call);
    int permute_strip, permute_bits; /* rows of a strip; the widest index */
    void (*permute)(const lac_cpu_permute_call *call);
    void (*turn)(const lac_cpu_turn_call *call);
    void (*finish)(const lac_cpu_finish_call *call);
    /* As many FMAs as the unit can do, for model/rates.c. `from` NULL: from registers; else each loads a vector, a round
     * LAC_CPU_PEAK_FMAS adjacent ones, and the next round `step` floats further. */
    void (*peak)(int64_t rounds, const float *from, int64_t step);
} lac_cpu_unit;

/* From the plainest to the widest; those of other architectures are not there. */
extern const lac_cpu_unit lac_cpu_unit_scalar;
#if defined(__x86_64__)
extern const lac_cpu_unit lac_cpu_unit_avx2;
extern const lac_cpu_unit lac_cpu_unit_avx512;
#elif defined(__aarch64__)
extern const lac_cpu_unit lac_cpu_unit_neon;
#endif

#endif
