/* strict_source.h - a compressed weight as vectors of outputs with their columns: what strict_tile.c re-tiles. */
#ifndef LAC_CUDA_STRICT_SOURCE_H
#define LAC_CUDA_STRICT_SOURCE_H

#include "cuda/strict_shape.h"
#include "cuda/strict_tile.h"
#include "format/weight.h"

/* A vector's row group, its first row in that, and how many rows it really has. */
typedef struct lac_strict_place {
    int64_t group, row;
    int rows;
} lac_strict_place;

typedef struct lac_strict_rows {
    lac_strict_source source;
    uint32_t *outputs; /* [vectors * list_n] the output of each row, UINT32_MAX for padding */
    const lac_weight *weight;
    const lac_strict_facts *facts;
    int list_n;
    lac_strict_place *places; /* [vectors]                                                          */
    lac_strict_list *lists;   /* [vectors]                                                          */
    uint32_t *columns;        /* [row groups][stride] each one's list                               */
    uint8_t *keepers;         /* joined: [row groups][stride] bit i: row i keeps the column, else NULL */
    uint64_t stride;
    float *dense; /* [n][k_in] of the dense kernel, else NULL */
    void *storage;
} lac_strict_rows;

/* `facts` must outlive it. With `dense` every column is kept, in the order of X. */
lac_status lac_strict_rows_make(const lac_weight *weight, const lac_strict_facts *facts, int list_n, bool dense,
                                lac_strict_rows *out);
void lac_strict_rows_release(lac_strict_rows *rows);

#endif
