/* matrix.h - checks of a caller's lac_matrix, and where its elements lie. */
#ifndef LAC_CORE_MATRIX_H
#define LAC_CORE_MATRIX_H

#include "lacuna.h"

/* Checks shape, leading dimension, dtype, pointer and its alignment, and resolves ld = 0. `name` is the argument's, for
 * the message. F64 passes only when `allow_f64`. */
lac_status lac_matrix_check(const char *name, const lac_matrix *matrix, int allow_f64, lac_matrix *resolved);

/* Element number of (row, col) in a resolved matrix. */
static inline int64_t lac_matrix_at(const lac_matrix *matrix, int64_t row, int64_t col)
{
    return matrix->layout == LAC_LAYOUT_ROW_MAJOR ? row * matrix->ld + col : col * matrix->ld + row;
}

/* Elements from (row, col) to (row, col + 1). */
static inline int64_t lac_matrix_col_stride(const lac_matrix *matrix)
{
    return matrix->layout == LAC_LAYOUT_ROW_MAJOR ? 1 : matrix->ld;
}

/* Elements from (row, col) to (row + 1, col). */
static inline int64_t lac_matrix_row_stride(const lac_matrix *matrix)
{
    return matrix->layout == LAC_LAYOUT_ROW_MAJOR ? matrix->ld : 1;
}

#endif
