/* expand_shape.h - how kernels/expand.cu and kernels/expand_ring.cu cut a problem: their compile-time constants and what follows
 * from them. expand.c and expand_tile.c ask it. */
#ifndef LAC_CUDA_EXPAND_SHAPE_H
#define LAC_CUDA_EXPAND_SHAPE_H

#include "cuda/runtime.h"

/* A piece of W is 64 outputs x 64 inputs; a thread spreads 32 inputs of a row. */
enum { LAC_EXPAND_OUTPUTS = 64, LAC_EXPAND_INPUTS = 64, LAC_EXPAND_SPAN = 32 };

typedef struct lac_expand_shape {
    int run, per;                         /* each run of so many inputs has places for so many values */
    int words;                            /* of W that a thread has of a piece                         */
    int tile_outputs, tile_tokens, width; /* width: tokens of one product                              */
    int stages, cluster, parts;           /* parts of k                                                */
    int team, teams;                      /* through the ring: clusters of a team, and teams; else 0   */
    int spreaders;                        /* through the ring: warps of a block that spread W          */
    int staging;                          /* pieces of Y on its way out; 0: it goes directly           */
    int64_t output_tiles;
    int64_t token_tiles; /* a multiple of cluster, or of team */
    int64_t steps;       /* stages that a tile multiplies */
} lac_expand_shape;

/* Bytes that the kernel counts the same way. */
static inline int lac_expand_piece(const lac_expand_shape *s) { return s->words * 512; }
static inline int lac_expand_pieces(const lac_expand_shape *s) { return s->tile_outputs / LAC_EXPAND_OUTPUTS; }
static inline int lac_expand_stage(const lac_expand_shape *s)
{
    return (s->tile_tokens + s->tile_outputs) * LAC_EXPAND_INPUTS * 2;
}
static inline int lac_expand_staging(int pieces) { return pieces * 2 * 8192; } /* 64 x 64 elements for each warpgroup */
static inline unsigned lac_expand_shared(const lac_expand_shape *s)
{
    return (unsigned)(s->stages * lac_expand_stage(s) + lac_expand_staging(s->staging));
}

/* The shape that the model likes best, through the ring or not; false when the kernel cannot take the problem. */
bool lac_expand_shape_make(const lac_problem *problem, bool ring, lac_expand_shape *out, lac_cost *cost);

#endif
