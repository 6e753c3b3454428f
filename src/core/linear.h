/* linear.h - linear algebra as second-order pruning asks for it, of the host (prune/linear.c) or of a device that has it.
 * Matrices are row-major floats; those that a device gets lie in its own memory. */
#ifndef LAC_CORE_LINEAR_H
#define LAC_CORE_LINEAR_H

#include <stdbool.h>
#include <stdint.h>

#include "lacuna.h"

/* C[rows][cols] += alpha * op(A) * op(B), op(A) of rows x depth and op(B) of depth x cols, where op turns a matrix round
 * when its flag says so. `threads` as in lac_parallel_threads; libraries take as many as they were told to. */
typedef struct lac_product {
    bool turn_a, turn_b;
    int64_t rows, cols, depth;
    float alpha;
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
    int threads;
} lac_product;

/* What a device offers. Calls return before the work is done; downloads wait for it. */
typedef struct lac_linear_ops {
    /* NOT_FOUND, with what is missing, when the device's library is not on this machine. */
    lac_status (*open)(const lac_device *device, void **engine);
    void (*close)(void *engine); /* takes NULL */
    lac_status (*multiply)(void *engine, const lac_product *product);
    /* to[rows][cols] = from[rows][cols] */
    lac_status (*copy)(void *engine, int64_t rows, int64_t cols, const float *from, int64_t ld_from, float *to, int64_t ld_to);
    /* Row by row, x of b[count][size] becomes the solution y of y V^T = x, V the upper triangle of v[size][size]. */
    lac_status (*solve_rows)(void *engine, int64_t size, const float *v, int64_t ld_v, int64_t count, float *b, int64_t ld_b);
    /* The upper triangle of c[size][size] loses that of P P^T, P[size][depth]. */
    lac_status (*subtract_square)(void *engine, int64_t size, int64_t depth, const float *p, int64_t ld_p, float *c,
                                  int64_t ld_c);
    /* out[size][size] becomes the inverse of the upper triangle of v, with zeros below; `ones` holds so many. */
    lac_status (*invert_upper)(void *engine, int64_t size, const float *v, const float *ones, float *out);
} lac_linear_ops;

#endif
