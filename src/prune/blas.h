/* blas.h - OpenBLAS for the products of second-order pruning, opened when the first of them is asked for. */
#ifndef LAC_PRUNE_BLAS_H
#define LAC_PRUNE_BLAS_H

#include "prune/linear.h"

/* Does the product; false when there is no OpenBLAS, or it is too small to be worth a call. */
bool lac_blas_multiply(const lac_product *product);
/* Where it was found; "" when it was not. */
const char *lac_blas_path(void);

#endif
