/* slide_shape.h - how kernels/slide.cu cuts a problem: its compile-time constants and what follows from them. slide.c and
 * slide_tile.c ask it. */
#ifndef LAC_CUDA_SLIDE_SHAPE_H
#define LAC_CUDA_SLIDE_SHAPE_H

#include "cuda/runtime.h"

enum { LAC_SLIDE_CHUNK = 64, LAC_SLIDE_SLOTS = 16, LAC_SLIDE_WARPS = 8, LAC_SLIDE_RESIDUES = 8, LAC_SLIDE_DEPTH = 4 };

typedef struct lac_slide_shape {
    int width;       /* outputs of a vector, padding included: 8, 16, 24 or 32           */
    int tokens;      /* of a tile                                                        */
    int ring;        /* chunks of X in shared memory                                     */
    int horizon;     /* chunks over which a step may choose its inputs; less than `ring` */
    int batch;       /* steps between two looks at the ring: 1, 2 or 4                   */
    int parts;       /* of k                                                             */
    int rows;        /* outputs of a vector; the last of a row group may have fewer      */
    int pieces;      /* vectors of a row group                                           */
    int64_t vectors; /* of W, padding not counted                                        */
    int64_t chunks;  /* of X                                                             */
    int64_t token_tiles, output_tiles;
    int64_t most_steps; /* of all streams together                                */
} lac_slide_shape;

static inline int64_t lac_slide_step_bytes(const lac_slide_shape *s) { return s->width * LAC_SLIDE_SLOTS * 2; }
static inline int64_t lac_slide_chunk_bytes(const lac_slide_shape *s) { return s->tokens * LAC_SLIDE_CHUNK * 2; }
/* Steps on their way, of all warps. */
static inline int64_t lac_slide_depth_bytes(const lac_slide_shape *s)
{
    return LAC_SLIDE_WARPS * LAC_SLIDE_DEPTH * (lac_slide_step_bytes(s) + 128);
}
static inline unsigned lac_slide_shared(const lac_slide_shape *s)
{
    return (unsigned)(s->ring * lac_slide_chunk_bytes(s) + lac_slide_depth_bytes(s));
}
static inline int64_t lac_slide_first_chunk(const lac_slide_shape *s, int part) { return s->chunks * part / s->parts; }

/* The shape that the model likes best; false when the kernel cannot take the problem. */
bool lac_slide_shape_make(const lac_problem *problem, lac_slide_shape *out, lac_cost *cost);

#endif
