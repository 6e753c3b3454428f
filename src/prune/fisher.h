/* fisher.h - second-order pruning by gradients, inside. */
#ifndef LAC_PRUNE_FISHER_H
#define LAC_PRUNE_FISHER_H

#include "prune/prune.h"

/* Columns that know of each other: the Fisher matrix of a row is taken to be zero outside of blocks of so many. */
enum { LAC_FISHER_BLOCK = 64 };

typedef struct lac_fisher {
    int64_t n, k;
    lac_pattern pattern;
    lac_geometry geometry;
    int64_t group;  /* columns of a group, or 0 where the whole matrix is chosen at once */
    int64_t width;  /* columns of a block: whole groups */
    int threads;    /* 1 or more */
    double damping; /* as it is added to the diagonal */
    const lac_gradients *gradients;
    const uint32_t *row_order, *col_order; /* where rows and columns stand in them; NULL: there too */
    float *w;                              /* [n][k]: as corrected so far */
    float *scores;                         /* [n][k] where the whole matrix is chosen at once, else NULL */
    double *scratch;                       /* [threads][scratch_count] */
    int64_t scratch_count;
    lac_mask *mask;
    const lac_mask *within; /* what may stay; the rest goes first. NULL: everything */
} lac_fisher;

/* The rows of a row group, with their weights in a block and the inverse of their Fisher matrices there. */
typedef struct lac_fisher_rows {
    int64_t rows;
    int width;
    double *w;       /* [rows][width] */
    double *inverse; /* [rows][width][width] */
} lac_fisher_rows;

/* Lets columns [first, first + count) of the block lose what the pattern says; the bits that stay, of each row, go to
 * kept [rows]. */
void lac_fisher_choose(const lac_fisher *fisher, lac_fisher_rows *rows, int first, int count, uint64_t *kept);

/* Sets weight `column` of one row to zero; the others of its block make up for it. */
void lac_fisher_drop(lac_fisher_rows *rows, int64_t row, int column);

#endif
