/* values.h - values between a dense matrix and a row group's lanes. A lane is one stored column of a kept unit; the values
 * of a row group are [lane][row]. Bits are moved as they are; convert.c changes dtypes. */
#ifndef LAC_FORMAT_VALUES_H
#define LAC_FORMAT_VALUES_H

#include "lacuna.h"

/* lanes[lane][row] = dense[rows[row]][cols[lane]], for `lane_count` lanes and `row_count` rows. Elements are the dense
 * matrix's. */
void lac_values_gather(const lac_matrix *dense, const uint32_t *rows, int64_t row_count, const uint32_t *cols,
                       int64_t lane_count, void *lanes);
/* The way back: dense[rows[row]][cols[lane]] = lanes[lane][row]. */
void lac_values_scatter(const lac_matrix *dense, const uint32_t *rows, int64_t row_count, const uint32_t *cols,
                        int64_t lane_count, const void *lanes);
/* to[i * to_stride] = from[i * from_stride] for elements of `size` bytes: 2, 4 or 8. */
void lac_values_copy(const void *from, int64_t from_stride, void *to, int64_t to_stride, int64_t count, size_t size);

#endif
