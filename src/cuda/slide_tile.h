/* slide_tile.h - a weight cut into the streams of steps that the warps of kernels/slide.cu read. slide.c calls it once a
 * plan. */
#ifndef LAC_CUDA_SLIDE_TILE_H
#define LAC_CUDA_SLIDE_TILE_H

#include "cuda/slide_shape.h"

typedef struct lac_slide_tiled {
    uint8_t *weight; /* [step_count + LAC_SLIDE_DEPTH] of lac_slide_step_bytes            */
    uint32_t *index; /* [step_count + LAC_SLIDE_DEPTH][16]                                */
    int32_t *first;  /* [streams + 1] the first step of each: a vector's part of k           */
    int32_t *output; /* [output_tiles * 8 * width] places in Y; -1: padding       */
    int64_t step_count, streams, outputs;
} lac_slide_tiled;

lac_status lac_slide_tile(const lac_weight *weight, const lac_slide_shape *shape, lac_slide_tiled *out);
void lac_slide_tiled_release(lac_slide_tiled *tiled);

/* A stream: which input (its place in the list; -1: none) stands in which slot, where its row lies, and what to wait for. */
typedef struct lac_slide_stream {
    int32_t *slots;  /* [steps][16]                                 */
    uint32_t *index; /* [steps][16] as slide.cu wants it            */
    int64_t steps;
} lac_slide_stream;

/* Deals `count` inputs, ascending and counted from the first chunk of the part, out to steps. With slots and index NULL it only
 * counts them, which tells how much room they need. */
void lac_slide_deal(const lac_slide_shape *shape, const uint32_t *inputs, int64_t count, lac_slide_stream *stream);

/* Where in a step the 16-bit weight of (output of the vector, slot) stands. */
int64_t lac_slide_value_at(const lac_slide_shape *shape, int row, int slot);

#endif
