/* gpu_tiles.h - which tiles the model reaches. The rows of gpu_case.h are small and pair options; which tile a kernel takes follows from
 * sizes, and some tiles only from large ones. A grid of sizes is asked, and of the problems that take a tile the smallest is kept. There a
 * block has one tile. What happens between two, one's way out under the next one's stages, is asked of a second grid, of ragged sizes with
 * many tokens: of the problems whose blocks have several of these tiles the cheapest is kept. */
#ifndef TEST_GPU_TILES_H
#define TEST_GPU_TILES_H

#include "core/kernel.h"

typedef struct gpu_tile {
    const char *kernel, *pattern;
    int64_t m, n, k;
    lac_layout layout;    /* of X and Y                               */
    double tiles_a_block; /* by the kernel's shape, in the mean of all */
} gpu_tile;

/* A program, but for what does not make a tile another: how many stages fit, what the epilogue does, how W lies. */
typedef struct gpu_program {
    uint64_t hash;
    double tiles_a_block; /* the most of any problem in the list; 0: it does not walk over tiles */
} gpu_program;

typedef struct gpu_tiles {
    gpu_tile *tile; /* [count] */
    int count;
    gpu_program *program; /* [programs] */
    int programs;
} gpu_tiles;

/* The kernels whose tiles are constants of tile.cuh. */
enum { GPU_TILE_KERNELS = 6 };
extern const char *const gpu_tile_kernels[GPU_TILE_KERNELS];

/* For all of them, f16; `target` may be one without a GPU. Problems have so many products (m n k) at the most, or fewer: INFINITY for all. */
void gpu_tiles_make(lac_device *target, double most_products, gpu_tiles *tiles);
void gpu_tiles_free(gpu_tiles *tiles);

/* One of these kernels on f16 with X and Y of one layout; `problem` borrows the weight. False when the kernel does not take it. */
bool gpu_tiles_problem(const lac_device *target, const lac_weight *weight, const gpu_tile *tile, lac_problem *problem);
/* How many tiles a block has, in the mean of all. */
double gpu_tiles_a_block(const lac_problem *problem);
/* How many it has, at the most, in problems of the list that run the same programs as this one; the least of them counts. */
double gpu_tiles_most(const gpu_tiles *tiles, const lac_problem *problem);

#endif
