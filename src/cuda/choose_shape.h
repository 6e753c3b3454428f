/* choose_shape.h - how kernels/choose.cu cuts a problem: its compile-time constants and what follows from them. choose.c and
 * choose_tile.c ask it. */
#ifndef LAC_CUDA_CHOOSE_SHAPE_H
#define LAC_CUDA_CHOOSE_SHAPE_H

#include "cuda/runtime.h"

enum {
    LAC_CHOOSE_TOKENS = 128,  /* of a tile                               */
    LAC_CHOOSE_OUTPUTS = 128, /* of a vector                             */
    LAC_CHOOSE_VECTORS = 4,   /* of a quad, which a cluster works on ... */
    LAC_CHOOSE_BLOCKS = 2,    /* ... with so many blocks                 */
    LAC_CHOOSE_BOX = 64,      /* inputs of a box                         */
    LAC_CHOOSE_STEPS = 2,     /* of a stage, each of ...                 */
    LAC_CHOOSE_SLOTS = 16,
    LAC_CHOOSE_MOST_BOXES = 2
};
enum {
    LAC_CHOOSE_STAGE_SLOTS = LAC_CHOOSE_STEPS * LAC_CHOOSE_SLOTS,
    LAC_CHOOSE_BOX_BYTES = LAC_CHOOSE_TOKENS * LAC_CHOOSE_BOX * 2,
    LAC_CHOOSE_MATRIX_BYTES = LAC_CHOOSE_OUTPUTS * LAC_CHOOSE_SLOTS * 2,
    LAC_CHOOSE_PLACES_BYTES = 64,
    LAC_CHOOSE_IMAGE_BYTES =
        LAC_CHOOSE_STEPS * (LAC_CHOOSE_VECTORS / LAC_CHOOSE_BLOCKS) * (LAC_CHOOSE_MATRIX_BYTES + LAC_CHOOSE_PLACES_BYTES)
};

typedef struct lac_choose_shape {
    int boxes;  /* of X, of a stage            */
    int stages; /* in shared memory            */
    int pieces; /* vectors of a row group      */
    int64_t vectors, quads, token_tiles;
    double usual_stages; /* of a quad, in the mean */
} lac_choose_shape;

static inline int lac_choose_stage_bytes(const lac_choose_shape *s)
{
    return (s->boxes * LAC_CHOOSE_BOX_BYTES + LAC_CHOOSE_IMAGE_BYTES + 1023) / 1024 * 1024;
}
static inline unsigned lac_choose_shared(const lac_choose_shape *s)
{
    return (unsigned)(s->stages * lac_choose_stage_bytes(s) + 2 * 8192); /* a piece of Y for each warpgroup */
}

/* The shape that the model likes best; false when the kernel cannot take the problem, or memory is short. */
bool lac_choose_shape_make(const lac_problem *problem, lac_choose_shape *out, lac_cost *cost);

#endif
