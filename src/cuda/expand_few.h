/* expand_few.h - the host side of kernels/expand_few.cu, for the table in kernels.c, and how it cuts a problem. */
#ifndef LAC_CUDA_EXPAND_FEW_H
#define LAC_CUDA_EXPAND_FEW_H

#include "cuda/program.h"
#include "cuda/runtime.h"

/* A tile of W has 128 rows, a chunk 128 inputs; a warp has 16 of the rows, a lane 32 inputs of two of them. */
enum { LAC_FEW_ROWS = 128, LAC_FEW_INPUTS = 128, LAC_FEW_SPAN = 32, LAC_FEW_WARPS = 8, LAC_FEW_MOST_TOKENS = 128 };

typedef struct lac_few_shape {
    int words;  /* of two kept weights of a row in 32 inputs */
    int width;  /* tokens of a product                        */
    int stages; /* in shared memory                           */
    int groups; /* warpgroups of a block, 2 or 4              */
    int split;  /* blocks of a cluster, each a part of k      */
    int64_t tiles, chunks;
    unsigned shared_bytes;
} lac_few_shape;

/* Words of a lane in a chunk: values of its two rows, then their masks. Bytes of a tile's chunk. */
static inline int lac_few_lane_words(const lac_few_shape *s) { return 2 * s->words + 2; }
static inline int lac_few_chunk_bytes(const lac_few_shape *s) { return LAC_FEW_WARPS * lac_few_lane_words(s) * 128; }

/* The shape that the model likes best; false when the kernel cannot take the problem. */
bool lac_few_shape_make(const lac_problem *problem, lac_few_shape *out, lac_cost *cost);

/* expand_few_tile.c: W as the kernel reads it, [tiles][chunks] of lac_few_chunk_bytes; released with lac_release. */
lac_status lac_few_tile(const lac_weight *weight, const lac_few_shape *shape, uint8_t **out);
/* Where in a chunk word `word` of a lane of a warp stands: sections of 16 and 8 bytes a lane. */
int64_t lac_few_word_at(const lac_few_shape *shape, int warp, int lane, int word);

extern const lac_cuda_flow lac_cuda_few_flow;

bool lac_cuda_few_applies(const lac_problem *problem);
lac_cost lac_cuda_few_cost(const lac_problem *problem);
size_t lac_cuda_few_workspace(const lac_problem *problem);
lac_status lac_cuda_few_prepare(const lac_problem *problem, void **state);
lac_status lac_cuda_few_execute(const lac_problem *problem, const void *state, const lac_call *call);

#endif
