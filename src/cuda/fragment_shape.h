/* fragment_shape.h - how kernels/fragment.cu cuts a problem: its compile-time constants and what follows from them. fragment.c
 * and fragment_tile.c ask it. */
#ifndef LAC_CUDA_FRAGMENT_SHAPE_H
#define LAC_CUDA_FRAGMENT_SHAPE_H

#include "cuda/runtime.h"

/* What distinguishes the kernels of this dataflow; the numbers are fragment.cu's LAC_KIND. */
typedef enum lac_fragment_kind {
    LAC_FRAGMENT_DENSE = 0,  /* mma on the rows of X that a row group selects            */
    LAC_FRAGMENT_SPARSE = 1, /* mma.sp on two of every four rows, selected or all of them */
    LAC_FRAGMENT_EXPAND = 2  /* mma on all rows; kept weights are spread by their masks   */
} lac_fragment_kind;

typedef struct lac_fragment_shape {
    lac_fragment_kind kind;
    bool shares_index; /* every tile of outputs reads all rows of X, in the same order */
    bool direct;       /* X is token-major, and read as it is                          */
    int rows;          /* of X a stage                                                 */
    int warp_outputs, warp_tokens, warps_outputs, warps_tokens;
    int stages, parts, blocks;                   /* parts of k; blocks at once on a multiprocessor        */
    int kept;                                    /* EXPAND: kept weights of rows / 4 inputs of an output */
    int64_t height;                              /* outputs that share their rows of X                    */
    int64_t groups, tiles_a_group, output_tiles; /* of outputs                                            */
    int64_t token_tiles;
    int64_t most_stages; /* of a tile of outputs */
} lac_fragment_shape;

static inline int lac_fragment_outputs(const lac_fragment_shape *s) { return s->warps_outputs * s->warp_outputs; }
static inline int lac_fragment_tokens(const lac_fragment_shape *s) { return s->warps_tokens * s->warp_tokens; }
static inline int lac_fragment_threads(const lac_fragment_shape *s) { return 32 * s->warps_outputs * s->warps_tokens; }

/* Bytes that fragment.cu counts the same way. */
static inline int lac_fragment_eight(const lac_fragment_shape *s) { return (s->kept + 1) / 2 * 128 + s->rows; }
static inline int lac_fragment_w_stage(const lac_fragment_shape *s)
{
    int outputs = lac_fragment_outputs(s);
    if (s->kind == LAC_FRAGMENT_EXPAND) return outputs / 8 * lac_fragment_eight(s);
    return s->kind == LAC_FRAGMENT_SPARSE ? outputs * (s->rows + s->rows / 8) : outputs * s->rows * 2;
}
static inline int lac_fragment_x_stage(const lac_fragment_shape *s) { return lac_fragment_tokens(s) * s->rows * 2; }
/* Of the epilogue: 16 outputs of each warp in fp32. */
static inline int lac_fragment_slabs(const lac_fragment_shape *s)
{
    return lac_fragment_threads(s) / 32 * 16 * (s->warp_tokens + 8) * 4;
}
static inline unsigned lac_fragment_shared(const lac_fragment_shape *s)
{
    int spread = s->kind == LAC_FRAGMENT_EXPAND ? 2 * lac_fragment_outputs(s) * s->rows * 2 : 0;
    int product = s->stages * (lac_fragment_x_stage(s) + lac_fragment_w_stage(s) + 2 * s->rows * 4) + spread;
    int slabs = lac_fragment_slabs(s);
    return (unsigned)(product > slabs ? product : slabs);
}

/* Whether every thread has a chunk of a stage's rows to copy. One without would look for its row's number behind the last one;
 * direct copies need no numbers. */
static inline bool lac_fragment_threads_fit(const lac_fragment_shape *s)
{
    return s->direct || s->rows * lac_fragment_tokens(s) >= 8 * lac_fragment_threads(s);
}

/* Bytes of X in the workspace (turn.h); 0 where the caller's X will do. */
uint64_t lac_fragment_turned_bytes(const lac_problem *problem, const lac_fragment_shape *shape);

/* The shape that the model likes best; false when the kernel cannot take the problem. */
bool lac_fragment_shape_make(const lac_problem *problem, lac_fragment_kind kind, lac_fragment_shape *out, lac_cost *cost);

#endif
