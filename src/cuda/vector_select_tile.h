/* vector_select_tile.h - how kernels/vector_select.cu cuts a problem, and the weight cut for it. vector_select.c calls it once a
 * plan. */
#ifndef LAC_CUDA_VECTOR_SELECT_TILE_H
#define LAC_CUDA_VECTOR_SELECT_TILE_H

#include <stdbool.h>

#include "core/kernel.h"

enum { LAC_SELECT_MOST_TOKENS = 32, LAC_SELECT_STEP = 32 };

/* The compile-time constants of the kernel, which vector_select.cu explains, and what follows from them. */
typedef struct lac_select_shape {
    int tokens, unit_rows;
    bool sparse, all_inputs;
    int packed;   /* room for kept weights of a row in 32 inputs; 0: rows share their inputs or keep two of four */
    bool is_free; /* chunks of a unit have numbers of batches of their own */
    int batch, batch_bytes;
    int row_warps, k_warps, split;
    int ring, ring_first; /* packed: batches of a warp in shared memory, and those asked for before X; else 0 */
    int x_warps;          /* that bring X while the others multiply; 0: it comes before */
    int x_ring, x_strips; /* chunks of X in shared memory, strips of such a warp on their way */
    bool early;
    int64_t units;
    int chunk_inputs, chunks;
    int chunk_batches; /* 0: free */
    unsigned shared_bytes;
    double seconds; /* that it is thought to take */
} lac_select_shape;

/* False when the kernel does not apply. A pure function of the problem and the device's description. */
bool lac_select_shape_make(const lac_problem *problem, lac_select_shape *out);

/* Batches of the whole weight; of free columns each unit is taken to need the mean. */
double lac_select_batches(const lac_weight *weight, const lac_select_shape *shape);

/* Words of values, of codes, of places and of inputs that a lane has of a batch, in this order. */
int lac_select_value_words(const lac_select_shape *shape);
int lac_select_code_words(const lac_select_shape *shape);
int lac_select_place_words(const lac_select_shape *shape);
int lac_select_input_words(const lac_select_shape *shape);
/* Where word `word` of `words` of a lane stands, in bytes: [sixteens][lane][16], then what is left by eights and fours. */
int64_t lac_select_word_at(int words, int lane, int word);
/* Where row `input` of a chunk of X lies in shared memory, in rows of 16 bytes. */
static inline uint32_t lac_select_place_of(int64_t input) { return (uint32_t)(input + input / 8); }

/* In host memory. A batch is, for all lanes: values as fragments of mma, [step][16 rows][k16 when dense]; 2-bit places of the kept
 * in fragments of mma.sp, a word for 32 rows of a step; inputs, a half of a word for lane i as the i-th input of a step. */
typedef struct lac_select_tiled {
    uint8_t *batches; /* [batch_count] of batch_bytes                                               */
    uint32_t *begin;  /* free: [units * chunks + 1]; else NULL                                      */
    int64_t batch_count;
    /* Packed: batches behind those, for weights that did not fit. */
    uint32_t *more, *more_begin; /* [more_count] numbers of batches in their chunks; [units * chunks + 1]; NULL: none */
    int64_t more_count;
} lac_select_tiled;

lac_status lac_select_tile(const lac_weight *weight, const lac_select_shape *shape, lac_select_tiled *out);
void lac_select_tiled_release(lac_select_tiled *tiled);

#endif
