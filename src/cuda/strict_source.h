/* strict_source.h - a compressed weight as vectors of outputs with their columns: what strict_tile.c re-tiles. */
#ifndef LAC_CUDA_STRICT_SOURCE_H
#define LAC_CUDA_STRICT_SOURCE_H

#include "cuda/strict_shape.h"
#include "cuda/strict_tile.h"
#include "format/weight.h"

typedef struct lac_strict_rows {
    lac_strict_source source;
    uint32_t *outputs; /* [vectors * list_n] the output of each row, UINT32_MAX for padding */
    const lac_weight *weight;
    const lac_strict_facts *facts;
    int list_n;
    const int64_t *row_first;    /* joined: [row groups + 1] where each one's own columns begin ... */
    const uint32_t *row_columns; /* ... here, ascending                                              */
    float *dense;                /* [n][k_in] of the dense kernel, else NULL */
    void *storage, *row_storage;
} lac_strict_rows;

/* `facts` must outlive it. With `dense` every column is kept, in the order of X. */
lac_status lac_strict_rows_make(const lac_weight *weight, const lac_strict_facts *facts, int list_n, bool dense,
                                lac_strict_rows *out);
void lac_strict_rows_release(lac_strict_rows *rows);

#endif
