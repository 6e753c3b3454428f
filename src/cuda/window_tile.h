/* window_tile.h - a weight cut into the tiles that kernels/window.cu copies, as its head describes them. window.c calls it
 * once a plan. */
#ifndef LAC_CUDA_WINDOW_TILE_H
#define LAC_CUDA_WINDOW_TILE_H

#include "cuda/window_shape.h"

typedef struct lac_window_tiled {
    uint8_t *tiles;  /* [output_tiles][windows] of lac_window_w_tile                      */
    float *factor;   /* [output_tiles * tile width] what the kernel multiplies a sum by   */
    int32_t *output; /* [output_tiles * tile width] its place in Y; -1: padding           */
    uint64_t tile_bytes, outputs;
    int exponent; /* the factors of X carry 2^exponent more, those of W less */
    bool odd;     /* something in W is not finite                            */
} lac_window_tiled;

lac_status lac_window_tile(const lac_weight *weight, const lac_window_shape *shape, lac_window_tiled *out);
void lac_window_tiled_release(lac_window_tiled *tiled);

#endif
