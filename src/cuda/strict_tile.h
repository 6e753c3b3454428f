/* strict_tile.h - a weight cut into blocks and steps for kernels/strict.cu. strict.c calls it once a plan. */
#ifndef LAC_CUDA_STRICT_TILE_H
#define LAC_CUDA_STRICT_TILE_H

#include <stdbool.h>

#include "lacuna.h"

/* The kernel's compile-time constants; strict.cu explains them. */
typedef struct lac_strict_shape {
    int lanes_n, thread_n, thread_m, warps_n, warps_m;
    int blocks_at_once; /* on a multiprocessor */
    int rowwise;        /* each row of W has columns of its own */
    int packed, every, uneven, rows, slots, stages, slices, split;
} lac_strict_shape;

static inline int lac_strict_warp_n(const lac_strict_shape *s) { return s->lanes_n * s->thread_n; }
static inline int lac_strict_block_n(const lac_strict_shape *s) { return lac_strict_warp_n(s) * s->warps_n; }
static inline int lac_strict_block_m(const lac_strict_shape *s) { return 32 / s->lanes_n * s->thread_m * s->warps_m; }
static inline int lac_strict_threads(const lac_strict_shape *s) { return 32 * s->warps_n * s->warps_m * s->slices; }
/* Lists of columns in a block, and the outputs that share one. */
static inline int lac_strict_lists(const lac_strict_shape *s) { return s->warps_n * (s->rowwise ? s->thread_n : 1); }
static inline int lac_strict_list_n(const lac_strict_shape *s) { return s->rowwise ? 1 : lac_strict_warp_n(s); }
/* Offsets of one vector in one slice of a step. */
static inline int lac_strict_slice_offsets(const lac_strict_shape *s) { return s->slots / s->slices + (s->uneven ? 8 : 4); }
static inline unsigned lac_strict_record_bytes(const lac_strict_shape *s)
{
    int offsets = s->rowwise ? s->slots * lac_strict_block_n(s) : s->warps_n * s->slices * lac_strict_slice_offsets(s);
    return (unsigned)(s->slots * lac_strict_block_n(s) + offsets) * 4;
}
static inline unsigned lac_strict_stage_bytes(const lac_strict_shape *s)
{
    return (unsigned)(s->rows * lac_strict_block_m(s)) * 4 + lac_strict_record_bytes(s);
}

/* Outputs of the shortest vectors that a tile has, which is what rows are joined to, and of the longest; slots of a step. */
enum { LAC_STRICT_JOINED = 4, LAC_STRICT_MOST_LIST_N = 32, LAC_STRICT_MOST_SLOTS = 32 };

/* The columns that a vector keeps; vectors of a row group share them. */
typedef struct lac_strict_list {
    const uint32_t *columns; /* [count] ascending */
    int64_t count;
} lac_strict_list;

/* How far the weights of a vector have been read. Starts as zeros. */
typedef struct lac_strict_cursor {
    int64_t slot;                     /* the next of its kept columns                               */
    int64_t given[LAC_STRICT_JOINED]; /* joined: values that each of its rows has for those before it */
} lac_strict_cursor;

/* Where vectors of outputs come from. `values` reads the weights of the vector's next `count` columns, list_n each, into
 * out[count][stride], where zeros stand, and moves the cursor behind them. */
typedef struct lac_strict_source {
    int64_t vectors;
    uint32_t k;                   /* columns; when not packed at least the shape's rows */
    const lac_strict_list *lists; /* [vectors]                                          */
    const uint32_t *input;        /* [k] the row of X of a column, or NULL: the column itself */
    void (*values)(const void *user, int64_t vector, int count, lac_strict_cursor *cursor, float *out, int64_t stride);
    const void *user;
} lac_strict_source;

/* Steps past a block's last one whose columns the kernel may read. */
enum { LAC_STRICT_MOST_STAGES = 5, LAC_STRICT_READ_AHEAD = LAC_STRICT_MOST_STAGES };

typedef struct lac_strict_tiled {
    int64_t blocks, steps;
    uint32_t *first_step; /* [blocks + 1]                                   */
    uint32_t *columns;    /* packed: [steps + LAC_STRICT_READ_AHEAD][rows]; direct: [steps + LAC_STRICT_READ_AHEAD] */
    void *records;        /* [steps] of lac_strict_record_bytes             */
} lac_strict_tiled;

lac_status lac_strict_tile(const lac_strict_source *source, const lac_strict_shape *shape, lac_strict_tiled *out);
void lac_strict_tiled_release(lac_strict_tiled *tiled);

#endif
