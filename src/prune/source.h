/* source.h - the dense matrix as pruning reads it: rows of floats (F64: of doubles), whatever its dtype and layout.
 * Used by src/prune only. */
#ifndef LAC_PRUNE_SOURCE_H
#define LAC_PRUNE_SOURCE_H

#include <stdbool.h>

#include "lacuna.h"

/* Rows that are converted at a time: a column-major matrix gives 16 rows a cache line. */
enum { LAC_PANEL_ROWS = 16 };

typedef struct lac_source {
    lac_matrix matrix; /* resolved                                                                          */
    bool wide;         /* F64: rows are doubles, else floats                                                */
    bool direct;       /* rows are read in place, no buffer is needed                                       */
    double scale;      /* F64: a power of two by which squares neither overflow nor vanish; 1 for the others */
} lac_source;

/* `matrix` as lac_matrix_check resolved it. Reads it once, on `threads` threads, when it is F64. */
void lac_source_make(const lac_matrix *matrix, int threads, lac_source *out);

/* Bytes of the buffer that lac_source_read needs for `rows` rows of `cols` columns. */
uint64_t lac_source_buffer_bytes(const lac_source *source, int64_t rows, int64_t cols);

/* Rows perm[first .. first + count) (perm NULL: first .. first + count), columns [col, col + cols): row[i] points at
 * float or double [cols], in the matrix or in the buffer. count <= LAC_PANEL_ROWS. */
void lac_source_read(const lac_source *source, const uint32_t *perm, int64_t first, int64_t count, int64_t col, int64_t cols,
                     void *buffer, const void *row[LAC_PANEL_ROWS]);

/* sums[i] += score of row[i]; infinities and NaNs leave a sum that is not finite. */
void lac_source_add_scores(const lac_source *source, lac_score score, const void *row, int64_t cols, double *sums);

#endif
