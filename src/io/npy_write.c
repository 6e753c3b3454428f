/* npy_write.c - one matrix as .npy, version 1.0, in C order. bf16 has no type there and is written as f32, which holds
 * every bf16 value exactly. Behind lac_matrix_save_npy. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/dtype.h"
#include "core/matrix.h"
#include "core/memory.h"
#include "core/status.h"
#include "io/output.h"

enum { HEADER_ROOM = 128, HEADER_ALIGNMENT = 64 };

static const char *descr_of(lac_dtype dtype) { return dtype == LAC_DTYPE_F64 ? "<f8" : dtype == LAC_DTYPE_F16 ? "<f2" : "<f4"; }

static size_t make_header(const lac_matrix *matrix, char out[HEADER_ROOM])
{
    int length =
        snprintf(out + 10, HEADER_ROOM - 10, "{'descr': '%s', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }",
                 descr_of(matrix->dtype), matrix->rows, matrix->cols);
    size_t used = 10 + (size_t)length + 1; /* a newline ends it */
    size_t total = (used + HEADER_ALIGNMENT - 1) / HEADER_ALIGNMENT * HEADER_ALIGNMENT;
    memset(out + used - 1, ' ', total - used);
    out[total - 1] = '\n';
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (char)((total - 10) & 0xff);
    out[9] = (char)((total - 10) >> 8);
    return total;
}

static lac_status write_rows(lac_output *output, const lac_matrix *matrix)
{
    const lac_dtype stored = matrix->dtype == LAC_DTYPE_BF16 ? LAC_DTYPE_F32 : matrix->dtype;
    const int64_t element = (int64_t)lac_dtype_size(stored);
    if (matrix->rows == 0 || matrix->cols == 0) return LAC_STATUS_OK;
    if (stored == matrix->dtype && matrix->layout == LAC_LAYOUT_ROW_MAJOR && matrix->ld == matrix->cols)
        return lac_output_write(output, matrix->data, (uint64_t)matrix->rows * (uint64_t)matrix->cols * (uint64_t)element);
    uint64_t bytes = (uint64_t)matrix->cols * (uint64_t)element;
    uint8_t *row_data = lac_allocate(bytes);
    if (!row_data) return lac_fail_memory("a row", bytes);
    lac_status status = LAC_STATUS_OK;
    for (int64_t row = 0; row < matrix->rows && status == LAC_STATUS_OK; row++) {
        for (int64_t col = 0; col < matrix->cols; col++) {
            int64_t at = lac_matrix_at(matrix, row, col);
            if (stored == matrix->dtype) /* bit for bit: NaNs keep their payload */
                memcpy(row_data + col * element, (const uint8_t *)matrix->data + at * element, (size_t)element);
            else
                ((float *)(void *)row_data)[col] = lac_bf16_to_f32(((const uint16_t *)matrix->data)[at]);
        }
        status = lac_output_write(output, row_data, bytes);
    }
    lac_release(row_data);
    return status;
}

lac_status lac_matrix_save_npy(const lac_matrix *matrix, const char *path)
{
    lac_matrix resolved;
    lac_status status = lac_matrix_check("matrix", matrix, 1, &resolved);
    if (status != LAC_STATUS_OK) return status;
    if (!path) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "path is NULL");
    lac_output output;
    status = lac_output_open(path, &output);
    if (status != LAC_STATUS_OK) return status;
    char header[HEADER_ROOM];
    status = lac_output_write(&output, header, make_header(&resolved, header));
    if (status == LAC_STATUS_OK) status = write_rows(&output, &resolved);
    if (status == LAC_STATUS_OK) status = lac_output_commit(&output);
    lac_output_discard(&output);
    return status;
}
