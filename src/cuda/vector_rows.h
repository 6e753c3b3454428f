/* vector_rows.h - row groups cut into vectors, pieces of as many outputs as a kernel takes at once: which rows each one has. Used by
 * pick_tile.c, slide_tile.c and choose_tile.c. */
#ifndef LAC_CUDA_VECTOR_ROWS_H
#define LAC_CUDA_VECTOR_ROWS_H

#include "core/pattern.h"

typedef struct lac_vector_cut {
    int64_t vectors; /* of all row groups                        */
    int pieces;      /* of a row group                           */
    int rows;        /* of a piece; the last one may have fewer  */
} lac_vector_cut;

typedef struct lac_vector_rows {
    int64_t group, first; /* its row group, and its first stored row   */
    int count;            /* 0: there is no such vector, or it is empty */
} lac_vector_rows;

static inline lac_vector_rows lac_vector_rows_of(const lac_geometry *g, lac_vector_cut cut, int64_t vector)
{
    lac_vector_rows rows = {.group = vector / cut.pieces};
    if (vector >= cut.vectors) return rows;
    int64_t begin = vector % cut.pieces * cut.rows, left = lac_geometry_rows(g, rows.group) - begin;
    rows.first = rows.group * g->unit_n + begin;
    rows.count = left < 0 ? 0 : left < cut.rows ? (int)left : cut.rows;
    return rows;
}

#endif
