/* window_shape.h - how kernels/window.cu cuts a problem: its compile-time constants and what follows from them. window.c and
 * window_tile.c ask it. */
#ifndef LAC_CUDA_WINDOW_SHAPE_H
#define LAC_CUDA_WINDOW_SHAPE_H

#include "cuda/runtime.h"

enum { LAC_WINDOW_TOKENS = 128, LAC_WINDOW_SLOTS = 16 /* in a step */, LAC_WINDOW_RESIDUES = 8 /* of rows, by banks */ };

/* What distinguishes the kernels of this dataflow. */
typedef struct lac_window_variant {
    int planes; /* 2: half pairs, as accurate as fp32; 1: their upper halves alone, as tf32 */
    bool dense; /* takes every input of W, whatever it keeps                                */
    bool mma;   /* mma.sync instead of wgmma                                                */
} lac_window_variant;

typedef struct lac_window_shape {
    lac_window_variant variant;
    int window;  /* inputs                                                       */
    int steps;   /* of 16 slots in a window                                      */
    int width;   /* outputs of a vector, padded to 8, 16, 24 or 32               */
    int vectors; /* of a warpgroup; a tile has twice as many                     */
    int stages;
    int zero_rows; /* 8 where slots are padded, else 0                             */
    int cluster;   /* blocks that share their windows of X                         */
    int parts;     /* that k is split into                                         */
    int rows;      /* outputs of a vector; the last of a row group may have fewer  */
    int pieces;    /* vectors of a row group                                       */
    int64_t vector_count, windows, token_tiles, output_tiles;
} lac_window_shape;

static inline int lac_window_tile_width(const lac_window_shape *s) { return 2 * s->vectors * s->width; }
static inline int64_t lac_window_row_bytes(const lac_window_shape *s) { return LAC_WINDOW_TOKENS * 2 * s->variant.planes; }
static inline int64_t lac_window_x_tile(const lac_window_shape *s)
{
    return LAC_WINDOW_TOKENS * 4 + s->window * lac_window_row_bytes(s);
}
/* Of W: places, then matrices. */
static inline int64_t lac_window_index_bytes(const lac_window_shape *s)
{
    return (2 * s->vectors * s->steps * 32 + 127) / 128 * 128;
}
static inline int64_t lac_window_matrix_bytes(const lac_window_shape *s) { return s->width * 32; }
static inline int64_t lac_window_w_tile(const lac_window_shape *s)
{
    return lac_window_index_bytes(s) + 2 * s->vectors * s->steps * s->variant.planes * lac_window_matrix_bytes(s);
}
static inline int64_t lac_window_stage(const lac_window_shape *s)
{
    return (lac_window_x_tile(s) + s->zero_rows * lac_window_row_bytes(s) + lac_window_w_tile(s) + 127) / 128 * 128;
}
static inline unsigned lac_window_shared(const lac_window_shape *s)
{
    return (unsigned)(s->stages * (lac_window_stage(s) + 16));
}

/* The cheapest shape by the model, and its cost; false when the dataflow does not apply. A pure function of the problem and
 * the device's description. */
bool lac_window_shape_make(const lac_problem *problem, const lac_window_variant *variant, lac_window_shape *out,
                           lac_cost *cost);

#endif
