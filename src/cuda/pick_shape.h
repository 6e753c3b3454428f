/* pick_shape.h - how kernels/pick.cu cuts a problem: its compile-time constants and what follows from them. pick.c and
 * pick_tile.c ask it. */
#ifndef LAC_CUDA_PICK_SHAPE_H
#define LAC_CUDA_PICK_SHAPE_H

#include "cuda/runtime.h"

enum { LAC_PICK_SLOTS = 16 /* of a step */, LAC_PICK_CLASSES = 8 /* of rows, by banks */, LAC_PICK_EIGHTH = 32 /* inputs */ };
enum { LAC_PICK_WINDOW = LAC_PICK_CLASSES * LAC_PICK_EIGHTH, LAC_PICK_MOST_STEPS = LAC_PICK_WINDOW / LAC_PICK_SLOTS };

typedef struct lac_pick_shape {
    int width;  /* outputs of a vector, padding included: 8, 16, 24 or 32                  */
    int tokens; /* of a tile: 64 or 128                                                    */
    int steps;  /* of 16 slots, that a vector has in a window                              */
    int common; /* of them, those whose inputs it shares with the other vector of its pair */
    int pairs;  /* of vectors, of a warpgroup                                              */
    int stages; /* windows of X in shared memory                                           */
    int ring;   /* chunks of W in shared memory                                            */
    int parts;  /* of k                                                                    */
    int rows;   /* outputs of a vector; the last of a row group may have fewer             */
    int pieces; /* vectors of a row group                                                  */
    int64_t vectors, windows, token_tiles, output_tiles;
} lac_pick_shape;

/* Sets of vectors: with 64 tokens each warpgroup has its own. */
static inline int lac_pick_sets(const lac_pick_shape *s) { return s->tokens == 64 ? 2 : 1; }
static inline int lac_pick_tile_vectors(const lac_pick_shape *s) { return lac_pick_sets(s) * s->pairs * 2; }
/* Of a pair in a window, the last one of an odd number being none. */
static inline int lac_pick_loads(const lac_pick_shape *s) { return (2 * s->steps - s->common + 1) / 2 * 2; }
static inline int64_t lac_pick_x_stage(const lac_pick_shape *s) { return s->tokens * 2 * LAC_PICK_WINDOW; }
static inline int64_t lac_pick_matrix_bytes(const lac_pick_shape *s) { return s->width * LAC_PICK_SLOTS * 2; }
/* Of W, a chunk: places of the inputs, then matrices. */
static inline int64_t lac_pick_index_bytes(const lac_pick_shape *s)
{
    return lac_pick_sets(s) * ((lac_pick_loads(s) + 3) / 4 * 128);
}
static inline int64_t lac_pick_chunk_bytes(const lac_pick_shape *s)
{
    return lac_pick_index_bytes(s) + lac_pick_sets(s) * 2 * s->steps * lac_pick_matrix_bytes(s);
}
/* Barriers too, and the places of a tile's outputs. */
static inline unsigned lac_pick_shared(const lac_pick_shape *s)
{
    return (unsigned)(s->stages * (lac_pick_x_stage(s) + 16) + s->ring * (lac_pick_chunk_bytes(s) + 16) +
                      lac_pick_tile_vectors(s) * s->width * 4);
}
/* The row of a window where input `input` of it stands: the copy engine makes neighbours of equal places in the eighths. */
static inline int lac_pick_row(int input) { return input % LAC_PICK_EIGHTH * LAC_PICK_CLASSES + input / LAC_PICK_EIGHTH; }

/* Bytes of X in the workspace (turn.h), a whole number of eighths. A feature-major X of the caller's that is so itself is read where
 * it is. */
uint64_t lac_pick_turned_bytes(const lac_problem *problem);

/* Whether vectors with `a` and `b` inputs in a window, `both` of them in either, fit `steps` steps of which `common` are shared. */
bool lac_pick_fits(int steps, int common, int a, int b, int both);

/* The shape that the model likes best; false when the kernel cannot take the problem, or memory is short. */
bool lac_pick_shape_make(const lac_problem *problem, lac_pick_shape *out, lac_cost *cost);

#endif
