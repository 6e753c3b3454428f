/* gpu_tiles.h - which tiles the model reaches. The rows of gpu_case.h are small and pair options; which tile a kernel takes follows from
 * sizes, and some tiles only from large ones. A grid of sizes is asked, and of the problems that take a tile the smallest is kept. */
#ifndef TEST_GPU_TILES_H
#define TEST_GPU_TILES_H

#include "core/kernel.h"

typedef struct gpu_tile {
    const char *kernel, *pattern;
    int64_t m, n, k;
    lac_layout layout; /* of X and Y */
} gpu_tile;

typedef struct gpu_tiles {
    gpu_tile *tile; /* [count] */
    int count;
    int programs; /* that differ in what a tile is */
} gpu_tiles;

/* For the kernels whose tiles are constants of tile.cuh, f16; `target` may be one without a GPU. */
void gpu_tiles_make(lac_device *target, gpu_tiles *tiles);
void gpu_tiles_free(gpu_tiles *tiles);

#endif
