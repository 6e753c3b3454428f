/* vector_select_tile.h - how kernels/vector_select.cu cuts a problem, and the weight cut for it. vector_select.c calls it once a
 * plan. */
#ifndef LAC_CUDA_VECTOR_SELECT_TILE_H
#define LAC_CUDA_VECTOR_SELECT_TILE_H

#include <stdbool.h>

#include "core/kernel.h"
#include "format/row.h"

enum { LAC_SELECT_MOST_TOKENS = 128, LAC_SELECT_STEP = 32 };

/* The compile-time constants of the kernel, which vector_select.cu explains, and what follows from them. */
typedef struct lac_select_shape {
    int tokens, unit_rows;
    bool sparse, all_inputs, spread;
    int group_slots, group_inputs, entry_bits; /* when spread */
    bool is_free; /* chunks of a unit have numbers of batches of their own */
    int batch, batch_bytes;
    int row_warps, k_warps, split, blocks;
    int stage, prefetch;
    bool early;
    int64_t units;
    int chunk_inputs, chunks;
    int chunk_batches; /* 0: free */
    unsigned shared_bytes;
} lac_select_shape;

/* False when the kernel does not apply. A pure function of the problem and the device's description. */
bool lac_select_shape_make(const lac_problem *problem, lac_select_shape *out);

/* Inputs of a step; words of values, of places and of inputs that a lane has of a batch. */
int lac_select_step_inputs(const lac_select_shape *shape);
int lac_select_value_words(const lac_select_shape *shape);
int lac_select_place_words(const lac_select_shape *shape);
int lac_select_input_words(const lac_select_shape *shape);
/* Where word `word` of `words` of a lane stands, in bytes: [sixteens][lane][16], then what is left by eights and fours. */
int64_t lac_select_word_at(int words, int lane, int word);
/* Where row `input` of a chunk of X lies in shared memory, in rows of 16 bytes. */
static inline uint32_t lac_select_place_of(int64_t input) { return (uint32_t)(input + input / 8); }

/* In host memory. A batch is, for all lanes: values as fragments of mma, [step][16 rows][k16 when dense]; 2-bit places of the kept
 * in fragments of mma.sp, a word for 32 rows of a step; inputs, a half of a word for lane i as the i-th input of a step.
 * Spread: lane 4g+t has of a step of 128 inputs number 32t to 32t+31 of rows g, g+8, g+16 and g+24; values by step, row, group and
 * input, and the numbers of their inputs within the groups as places, entry_bits each. Slots that no kept weight fills hold zero
 * and an input not kept. */
typedef struct lac_select_tiled {
    uint8_t *batches; /* [batch_count] of batch_bytes                                               */
    uint32_t *begin;  /* free: [units * chunks + 1]; else NULL                                      */
    int64_t batch_count;
} lac_select_tiled;

/* vector_select_spread.c: a unit's weights when spread. `row` is scratch; `batches` is the unit's first batch. */
void lac_select_spread_unit(const lac_weight *weight, const lac_select_shape *shape, int64_t unit, uint32_t *units, lac_weight_row *row,
                            uint8_t *batches);

lac_status lac_select_tile(const lac_weight *weight, const lac_select_shape *shape, lac_select_tiled *out);
void lac_select_tiled_release(lac_select_tiled *tiled);

#endif
