/* matrix.c - checks of a caller's lac_matrix before anything is read through it. */
#include "core/matrix.h"

#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"

lac_status lac_matrix_check(const char *name, const lac_matrix *matrix, int allow_f64, lac_matrix *resolved)
{
    if (!matrix) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s is NULL", name);
    lac_matrix m = *matrix;
    if (!(allow_f64 ? lac_dtype_is_input(m.dtype) : lac_dtype_is_storage(m.dtype)))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s->dtype is %d (%s); it is one of f32, f16, bf16%s", name, (int)m.dtype,
                        lac_dtype_name(m.dtype), allow_f64 ? ", f64" : "");
    if (m.layout != LAC_LAYOUT_ROW_MAJOR && m.layout != LAC_LAYOUT_COLUMN_MAJOR)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s->layout is %d; it is 0 (row-major) or 1 (column-major)", name,
                        (int)m.layout);
    if (m.rows < 0 || m.rows > LAC_MAX_DIMENSION)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s->rows is %lld; it lies in 0 to 2147483647", name, (long long)m.rows);
    if (m.cols < 0 || m.cols > LAC_MAX_DIMENSION)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s->cols is %lld; it lies in 0 to 2147483647", name, (long long)m.cols);

    int64_t run = m.layout == LAC_LAYOUT_ROW_MAJOR ? m.cols : m.rows;
    int64_t runs = m.layout == LAC_LAYOUT_ROW_MAJOR ? m.rows : m.cols;
    if (m.ld == 0) m.ld = run;
    if (m.ld < run)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s->ld is %lld, less than the %lld elements of a %s", name,
                        (long long)m.ld, (long long)run, m.layout == LAC_LAYOUT_ROW_MAJOR ? "row" : "column");
    uint64_t elements, bytes;
    if (!lac_multiply_u64((uint64_t)m.ld, (uint64_t)runs, &elements) ||
        !lac_multiply_u64(elements, lac_dtype_size(m.dtype), &bytes) || bytes > PTRDIFF_MAX)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s->ld is %lld, which times %lld does not fit the address space", name,
                        (long long)m.ld, (long long)runs);
    if (!m.data && m.rows && m.cols) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s->data is NULL", name);
    if ((uintptr_t)m.data % lac_dtype_size(m.dtype))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s->data is %p, not aligned to its %zu-byte element", name, m.data,
                        lac_dtype_size(m.dtype));
    *resolved = m;
    return LAC_STATUS_OK;
}
