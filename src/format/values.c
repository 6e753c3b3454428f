/* values.c - gather and scatter of values by element size. Called by compress and decompress.
 * Row-major matrices are walked in tiles of 64 lanes x 64 rows, so that a row is read in order while the lanes that it is
 * spread over stay in the first-level cache. */
#include "format/values.h"

#include "core/dtype.h"

enum { LANE_TILE = 64, ROW_TILE = 64 };

#define LAC_VALUES_BODY(SUFFIX, TYPE)                                                                                          \
    static void gather_rows_##SUFFIX(const TYPE *data, int64_t ld, const uint32_t *rows, int64_t row_count,                    \
                                     const uint32_t *cols, int64_t lane_count, TYPE *lanes)                                    \
    {                                                                                                                          \
        for (int64_t l0 = 0; l0 < lane_count; l0 += LANE_TILE) {                                                               \
            int64_t l1 = l0 + LANE_TILE < lane_count ? l0 + LANE_TILE : lane_count;                                            \
            for (int64_t r0 = 0; r0 < row_count; r0 += ROW_TILE) {                                                             \
                int64_t r1 = r0 + ROW_TILE < row_count ? r0 + ROW_TILE : row_count;                                            \
                for (int64_t r = r0; r < r1; r++) {                                                                            \
                    const TYPE *row = data + (int64_t)rows[r] * ld;                                                            \
                    for (int64_t l = l0; l < l1; l++) lanes[l * row_count + r] = row[cols[l]];                                 \
                }                                                                                                              \
            }                                                                                                                  \
        }                                                                                                                      \
    }                                                                                                                          \
    static void gather_cols_##SUFFIX(const TYPE *data, int64_t ld, const uint32_t *rows, int64_t row_count,                    \
                                     const uint32_t *cols, int64_t lane_count, TYPE *lanes)                                    \
    {                                                                                                                          \
        for (int64_t l = 0; l < lane_count; l++) {                                                                             \
            const TYPE *col = data + (int64_t)cols[l] * ld;                                                                    \
            for (int64_t r = 0; r < row_count; r++) lanes[l * row_count + r] = col[rows[r]];                                   \
        }                                                                                                                      \
    }                                                                                                                          \
    static void scatter_rows_##SUFFIX(TYPE *data, int64_t ld, const uint32_t *rows, int64_t row_count, const uint32_t *cols,   \
                                      int64_t lane_count, const TYPE *lanes)                                                   \
    {                                                                                                                          \
        for (int64_t l0 = 0; l0 < lane_count; l0 += LANE_TILE) {                                                               \
            int64_t l1 = l0 + LANE_TILE < lane_count ? l0 + LANE_TILE : lane_count;                                            \
            for (int64_t r = 0; r < row_count; r++) {                                                                          \
                TYPE *row = data + (int64_t)rows[r] * ld;                                                                      \
                for (int64_t l = l0; l < l1; l++) row[cols[l]] = lanes[l * row_count + r];                                     \
            }                                                                                                                  \
        }                                                                                                                      \
    }                                                                                                                          \
    static void scatter_cols_##SUFFIX(TYPE *data, int64_t ld, const uint32_t *rows, int64_t row_count, const uint32_t *cols,   \
                                      int64_t lane_count, const TYPE *lanes)                                                   \
    {                                                                                                                          \
        for (int64_t l = 0; l < lane_count; l++) {                                                                             \
            TYPE *col = data + (int64_t)cols[l] * ld;                                                                          \
            for (int64_t r = 0; r < row_count; r++) col[rows[r]] = lanes[l * row_count + r];                                   \
        }                                                                                                                      \
    }                                                                                                                          \
    static void copy_##SUFFIX(const TYPE *from, int64_t from_stride, TYPE *to, int64_t to_stride, int64_t count)               \
    {                                                                                                                          \
        for (int64_t i = 0; i < count; i++) to[i * to_stride] = from[i * from_stride];                                         \
    }

LAC_VALUES_BODY(16, uint16_t)
LAC_VALUES_BODY(32, uint32_t)
LAC_VALUES_BODY(64, uint64_t)

#define LAC_VALUES_CALL(OPERATION, SIZE, ...)                                                                                  \
    switch (SIZE) {                                                                                                            \
    case 2:                                                                                                                    \
        OPERATION##_16(__VA_ARGS__);                                                                                           \
        break;                                                                                                                 \
    case 4:                                                                                                                    \
        OPERATION##_32(__VA_ARGS__);                                                                                           \
        break;                                                                                                                 \
    default:                                                                                                                   \
        OPERATION##_64(__VA_ARGS__);                                                                                           \
        break;                                                                                                                 \
    }

void lac_values_gather(const lac_matrix *dense, const uint32_t *rows, int64_t row_count, const uint32_t *cols,
                       int64_t lane_count, void *lanes)
{
    size_t size = lac_dtype_size(dense->dtype);
    if (dense->layout == LAC_LAYOUT_ROW_MAJOR) {
        LAC_VALUES_CALL(gather_rows, size, dense->data, dense->ld, rows, row_count, cols, lane_count, lanes)
    } else {
        LAC_VALUES_CALL(gather_cols, size, dense->data, dense->ld, rows, row_count, cols, lane_count, lanes)
    }
}

void lac_values_scatter(const lac_matrix *dense, const uint32_t *rows, int64_t row_count, const uint32_t *cols,
                        int64_t lane_count, const void *lanes)
{
    size_t size = lac_dtype_size(dense->dtype);
    if (dense->layout == LAC_LAYOUT_ROW_MAJOR) {
        LAC_VALUES_CALL(scatter_rows, size, dense->data, dense->ld, rows, row_count, cols, lane_count, lanes)
    } else {
        LAC_VALUES_CALL(scatter_cols, size, dense->data, dense->ld, rows, row_count, cols, lane_count, lanes)
    }
}

void lac_values_copy(const void *from, int64_t from_stride, void *to, int64_t to_stride, int64_t count, size_t size)
{
    LAC_VALUES_CALL(copy, size, from, from_stride, to, to_stride, count)
}
