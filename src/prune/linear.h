/* linear.h - the linear algebra of second-order pruning: products, a Cholesky factor, a triangular inverse. Row-major floats.
 * Products go to OpenBLAS where it is found; everything else is built of them. Used by calibration.c and obs.c. */
#ifndef LAC_PRUNE_LINEAR_H
#define LAC_PRUNE_LINEAR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/linear.h"

void lac_linear_multiply(const lac_product *product);

/* The lower triangle of `a` [size][size] becomes L with L L^T = a; what lies above the diagonal is not read, and spoilt.
 * Returns `size`, or the row whose pivot was not positive: then all of `a` is spoilt. */
int64_t lac_linear_cholesky(float *a, int64_t size, int threads);

/* The lower triangle of `a` becomes its inverse, with zeros above it; `scratch` holds LAC_LINEAR_BLOCK * size floats. */
enum { LAC_LINEAR_BLOCK = 128 };
void lac_linear_invert_lower(float *a, int64_t size, float *scratch, int threads);

/* Small and in double: the lower triangle of a[size][ld] becomes its Cholesky factor; false when a pivot is not positive. */
bool lac_linear_cholesky_small(double *a, int size, int ld);
/* x becomes (L L^T)^-1 x. */
void lac_linear_solve_small(const double *l, int size, int ld, double *x);

#endif
