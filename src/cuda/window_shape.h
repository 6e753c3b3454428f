/* window_shape.h - how kernels/window.cu cuts a problem: its compile-time constants and what follows from them. window.c and
 * window_tile.c ask it. */
#ifndef LAC_CUDA_WINDOW_SHAPE_H
#define LAC_CUDA_WINDOW_SHAPE_H

#include "cuda/runtime.h"

enum {
    LAC_WINDOW_SLOTS = 16 /* in a step */,
    LAC_WINDOW_RESIDUES = 8 /* of rows, by banks */,
    LAC_WINDOW_MOST = 256 /* inputs */
};

/* What distinguishes the kernels of this dataflow. */
typedef struct lac_window_variant {
    int planes; /* 2: half pairs, as accurate as fp32; 1: their upper halves alone, as tf32 */
    bool dense; /* takes every input of W, whatever it keeps                                */
    bool mma;   /* mma.sync instead of wgmma                                                */
} lac_window_variant;

typedef struct lac_window_shape {
    lac_window_variant variant;
    int tokens;    /* of a tile: 64 with wgmma, 128 with mma.sync                  */
    int window;    /* inputs                                                       */
    int unit;      /* inputs that are kept together, or 0: lac_window_row          */
    int steps;     /* of 16 slots in a window                                      */
    int width;     /* outputs of a vector, padded to 8, 16, 24 or 32               */
    int vectors;   /* of a warpgroup; a tile has twice as many                     */
    int chunk;     /* steps of a warpgroup that are copied together                */
    int stages;    /* windows of X in shared memory                                */
    int ring;      /* chunks of W in shared memory                                 */
    int zero_rows; /* 8 where slots are padded, else 0                             */
    int low_shift; /* lo is multiplied by 2^low_shift: 11 where an output has few products, else 0 */
    int parts;     /* that k is split into                                         */
    int rows;      /* outputs of a vector; the last of a row group may have fewer  */
    int pieces;    /* vectors of a row group                                       */
    int64_t vector_count, windows, token_tiles, output_tiles;
} lac_window_shape;

/* The row of a tile of X where input `input` of the window stands; kernels/window_tile.cuh explains it. */
static inline int lac_window_row(const lac_window_shape *s, int input)
{
    if (!s->unit) return input;
    int rank = input % s->unit * (s->window / s->unit) + input / s->unit, eighth = s->window / LAC_WINDOW_RESIDUES;
    return rank % eighth * LAC_WINDOW_RESIDUES + rank / eighth;
}

static inline int lac_window_tile_width(const lac_window_shape *s) { return 2 * s->vectors * s->width; }
static inline int lac_window_turn(const lac_window_shape *s) { return s->vectors * s->steps; }
static inline int64_t lac_window_row_bytes(const lac_window_shape *s) { return s->tokens * 2 * s->variant.planes; }
static inline int64_t lac_window_x_tile(const lac_window_shape *s)
{
    return s->tokens * 4 + s->window * lac_window_row_bytes(s);
}
static inline int64_t lac_window_x_stage(const lac_window_shape *s)
{
    return lac_window_x_tile(s) + s->zero_rows * lac_window_row_bytes(s);
}
/* Of W, a chunk: places of both warpgroups, those of so many steps together, then their matrices. */
static inline int lac_window_places(const lac_window_shape *s) { return !s->variant.mma && s->variant.planes == 1 ? 4 : 2; }
static inline int64_t lac_window_group_index(const lac_window_shape *s)
{
    int places = lac_window_places(s);
    return (s->chunk + places - 1) / places * places * LAC_WINDOW_SLOTS * 2;
}
static inline int64_t lac_window_index_bytes(const lac_window_shape *s)
{
    return (2 * lac_window_group_index(s) + 127) / 128 * 128;
}
static inline int64_t lac_window_matrix_bytes(const lac_window_shape *s) { return s->width * 32; }
static inline int64_t lac_window_w_chunk(const lac_window_shape *s)
{
    return lac_window_index_bytes(s) + 2 * s->chunk * s->variant.planes * lac_window_matrix_bytes(s);
}
static inline int64_t lac_window_w_tile(const lac_window_shape *s)
{
    return lac_window_turn(s) / s->chunk * lac_window_w_chunk(s);
}
/* Barriers too, and what wgmma's blocks note of a tile's outputs. */
static inline unsigned lac_window_shared(const lac_window_shape *s)
{
    int64_t notes = s->variant.mma ? 0 : lac_window_tile_width(s) * 8;
    return (unsigned)(s->stages * (lac_window_x_stage(s) + 16) + s->ring * (lac_window_w_chunk(s) + 16) + notes);
}

/* The cheapest shape by the model, and its cost; false when the dataflow does not apply. A pure function of the problem and
 * the device's description. */
bool lac_window_shape_make(const lac_problem *problem, const lac_window_variant *variant, lac_window_shape *out,
                           lac_cost *cost);

#endif
