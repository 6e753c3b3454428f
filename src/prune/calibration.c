/* calibration.c - the second moments of a layer's inputs, summed batch by batch, so that only k x k numbers stay however many
 * samples there are. wanda.c reads their diagonal, obs.c factors them. */
#include "prune/calibration.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/matrix.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "prune/linear.h"

/* Samples that are converted at a time, and columns of a strip of the moments. */
enum { BATCH = 256, STRIP = 512 };

lac_status lac_calibration_create(int64_t k, lac_calibration **out)
{
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    if (k < 1 || k > LAC_MAX_DIMENSION)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "k is %lld; it must be between 1 and %d", (long long)k, LAC_MAX_DIMENSION);
    uint64_t bytes;
    if (!lac_multiply_u64((uint64_t)k * sizeof(float), (uint64_t)k, &bytes)) return lac_fail_memory("the moments", UINT64_MAX);
    lac_calibration *made = lac_allocate_zeroed(sizeof *made);
    if (!made) return lac_fail_memory("a calibration", sizeof *made);
    made->k = k;
    made->moments = lac_allocate_zeroed(bytes);
    if (!made->moments) {
        lac_release(made);
        return lac_fail_memory("the moments", bytes);
    }
    *out = made;
    return LAC_STATUS_OK;
}

/* Rows [first, first + count) of x as floats; a value that is not finite is reported and nothing else happens. */
static lac_status read_samples(const lac_matrix *x, int64_t first, int64_t count, float *to)
{
    int64_t stride = lac_matrix_col_stride(x);
    for (int64_t i = 0; i < count; i++) {
        float *row = to + i * x->cols;
        lac_load_run_f32(x->data, x->dtype, lac_matrix_at(x, first + i, 0), stride, x->cols, row);
        for (int64_t c = 0; c < x->cols; c++)
            if (!isfinite(row[c]))
                return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                                "x: sample %lld, input %lld is %g; calibration needs finite numbers", (long long)(first + i),
                                (long long)c, (double)row[c]);
    }
    return LAC_STATUS_OK;
}

static void add_batch(float *moments, int64_t k, const float *batch, int64_t count, int threads)
{
    for (int64_t c = 0; c < k; c += STRIP) {
        lac_product strip = {.turn_a = true,
                             .rows = k - c,
                             .cols = lac_smaller(STRIP, k - c),
                             .depth = count,
                             .alpha = 1,
                             .a = batch + c,
                             .lda = k,
                             .b = batch + c,
                             .ldb = k,
                             .c = moments + c * k + c,
                             .ldc = k,
                             .threads = threads};
        lac_linear_multiply(&strip);
    }
}

lac_status lac_calibration_add(lac_calibration *calibration, const lac_matrix *x, int32_t threads)
{
    lac_matrix matrix;
    if (!calibration) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "calibration is NULL");
    lac_status status = lac_matrix_check("x", x, 1, &matrix);
    if (status != LAC_STATUS_OK) return status;
    if (threads < 0) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "threads is %d; it must be 0 or more", (int)threads);
    int64_t k = calibration->k;
    if (matrix.cols != k)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "x has %lld columns; the calibration was made for k = %lld",
                        (long long)matrix.cols, (long long)k);
    if (matrix.rows > INT64_MAX - calibration->samples)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "x has %lld rows; with the %lld samples before that is more than can be counted",
                        (long long)matrix.rows, (long long)calibration->samples);
    uint64_t bytes = (uint64_t)lac_smaller(BATCH, matrix.rows) * (uint64_t)k * sizeof(float);
    float *batch = lac_allocate(bytes);
    if (!batch) return lac_fail_memory("a batch of samples", bytes);
    /* All of x is looked at before the first sum, so that a bad sample leaves the moments as they were. */
    for (int64_t first = 0; first < matrix.rows && status == LAC_STATUS_OK; first += BATCH)
        status = read_samples(&matrix, first, lac_smaller(BATCH, matrix.rows - first), batch);
    for (int64_t first = 0; first < matrix.rows && status == LAC_STATUS_OK; first += BATCH) {
        int64_t count = lac_smaller(BATCH, matrix.rows - first);
        if (matrix.rows > BATCH) status = read_samples(&matrix, first, count, batch);
        add_batch(calibration->moments, k, batch, count, threads);
    }
    lac_release(batch);
    if (status != LAC_STATUS_OK) return status;
    for (int64_t r = 1; r < k; r++) /* the strips fill the lower triangle */
        for (int64_t c = 0; c < r; c++) calibration->moments[c * k + r] = calibration->moments[r * k + c];
    calibration->samples += matrix.rows;
    return LAC_STATUS_OK;
}

/* One element against its counterpart: sums in another order differ by their rounding, which is small beside the diagonal. */
static lac_status check_moment(const lac_matrix *m, int64_t r, int64_t c)
{
    double a = lac_load_f64(m->data, m->dtype, lac_matrix_at(m, r, c)),
           b = lac_load_f64(m->data, m->dtype, lac_matrix_at(m, c, r));
    double p = lac_load_f64(m->data, m->dtype, lac_matrix_at(m, r, r)),
           q = lac_load_f64(m->data, m->dtype, lac_matrix_at(m, c, c));
    if (!isfinite(a) || fabs(a) > FLT_MAX)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "moments: element (%lld, %lld) is %g; it must be finite as a float",
                        (long long)r, (long long)c, a);
    if (r == c && a < 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "moments: element (%lld, %lld) is %g; a sum of squares is not negative",
                        (long long)r, (long long)c, a);
    if (!(fabs(a - b) <= 1e-3 * sqrt(fabs(p * q))) || fabs(a) > 1.001 * sqrt(fabs(p * q))) /* b may be a NaN */
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "moments: elements (%lld, %lld) and (%lld, %lld) are %g and %g beside %g and %g on the diagonal; no "
                        "sum of x x^T is like that",
                        (long long)r, (long long)c, (long long)c, (long long)r, a, b, p, q);
    return LAC_STATUS_OK;
}

lac_status lac_calibration_add_moments(lac_calibration *calibration, const lac_matrix *moments, int64_t samples)
{
    lac_matrix m;
    if (!calibration) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "calibration is NULL");
    lac_status status = lac_matrix_check("moments", moments, 1, &m);
    if (status != LAC_STATUS_OK) return status;
    int64_t k = calibration->k;
    if (m.rows != k || m.cols != k)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "moments is %lld x %lld; the calibration was made for k = %lld",
                        (long long)m.rows, (long long)m.cols, (long long)k);
    if (samples < 1) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "samples is %lld; it must be 1 or more", (long long)samples);
    if (samples > INT64_MAX - calibration->samples)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "samples is %lld; with the %lld before that is more than can be counted",
                        (long long)samples, (long long)calibration->samples);
    for (int64_t r = 0; r < k; r++) /* the others are held against the diagonal, the upper triangle against the lower one */
        if ((status = check_moment(&m, r, r)) != LAC_STATUS_OK) return status;
    for (int64_t r = 0; r < k; r++)
        for (int64_t c = 0; c < r; c++)
            if ((status = check_moment(&m, r, c)) != LAC_STATUS_OK) return status;
    for (int64_t r = 0; r < k; r++)
        for (int64_t c = 0; c <= r; c++) {
            float sum = calibration->moments[r * k + c] + (float)lac_load_f64(m.data, m.dtype, lac_matrix_at(&m, r, c));
            calibration->moments[r * k + c] = calibration->moments[c * k + r] = sum;
        }
    calibration->samples += samples;
    return LAC_STATUS_OK;
}

lac_status lac_calibration_get_info(const lac_calibration *calibration, lac_calibration_info *info)
{
    if (!calibration) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "calibration is NULL");
    if (!info) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "info is NULL");
    lac_calibration_info filled = {.size = info->size, .k = calibration->k, .samples = calibration->samples};
    for (int64_t c = 0; c < calibration->k; c++) filled.dead += calibration->moments[c * calibration->k + c] == 0;
    return lac_write_struct("info", info, &filled, sizeof filled);
}

/* Rows of the difference and of the original at a time. */
enum { ERROR_ROWS = 64 };

static void load_row(const lac_matrix *m, int64_t row, float *to)
{
    lac_load_run_f32(m->data, m->dtype, lac_matrix_at(m, row, 0), lac_matrix_col_stride(m), m->cols, to);
}

/* The sum over `count` rows of r H r^T; `product` is scratch of the same size. */
static double quadratic(const lac_calibration *calibration, const float *rows, int64_t count, int32_t threads, float *product)
{
    int64_t k = calibration->k;
    memset(product, 0, (size_t)(count * k) * sizeof *product);
    lac_product p = {.rows = count,
                     .cols = k,
                     .depth = k,
                     .alpha = 1,
                     .a = rows,
                     .lda = k,
                     .b = calibration->moments,
                     .ldb = k,
                     .c = product,
                     .ldc = k,
                     .threads = threads};
    lac_linear_multiply(&p);
    double sum = 0;
    for (int64_t i = 0; i < count * k; i++) sum += (double)rows[i] * product[i];
    return sum < 0 ? 0 : sum; /* rounding, where the rows do next to nothing to the outputs; a NaN stays one */
}

lac_status lac_calibration_error_by(const lac_calibration *calibration, const lac_matrix *original, const lac_matrix *pruned,
                                    int32_t threads, double *error, double *total)
{
    lac_matrix w, v;
    if (!calibration) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "calibration is NULL");
    if (!error || !total) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s is NULL", error ? "total" : "error");
    lac_status status = lac_matrix_check("original", original, 1, &w);
    if (status == LAC_STATUS_OK) status = lac_matrix_check("pruned", pruned, 1, &v);
    if (status != LAC_STATUS_OK) return status;
    int64_t k = calibration->k;
    if (w.cols != k || v.cols != k || w.rows != v.rows)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "original is %lld x %lld and pruned %lld x %lld; both must be n x %lld",
                        (long long)w.rows, (long long)w.cols, (long long)v.rows, (long long)v.cols, (long long)k);
    uint64_t floats = (uint64_t)ERROR_ROWS * (uint64_t)k, bytes = 3 * floats * sizeof(float);
    float *rows = lac_allocate(bytes);
    if (!rows) return lac_fail_memory("rows of the difference", bytes);
    float *difference = rows + floats, *product = difference + floats;
    double lost = 0, all = 0;
    for (int64_t first = 0; first < w.rows; first += ERROR_ROWS) {
        int64_t count = lac_smaller(ERROR_ROWS, w.rows - first);
        for (int64_t i = 0; i < count; i++) {
            load_row(&w, first + i, rows + i * k);
            load_row(&v, first + i, difference + i * k);
            for (int64_t c = 0; c < k; c++) difference[i * k + c] = rows[i * k + c] - difference[i * k + c];
        }
        lost += quadratic(calibration, difference, count, threads, product);
        all += quadratic(calibration, rows, count, threads, product);
    }
    lac_release(rows);
    *error = lost;
    *total = all;
    return LAC_STATUS_OK;
}

lac_status lac_calibration_error(const lac_calibration *calibration, const lac_matrix *original, const lac_matrix *pruned,
                                 double *error, double *total)
{
    return lac_calibration_error_by(calibration, original, pruned, lac_parallel_unsaid(), error, total);
}

void lac_calibration_free(lac_calibration *calibration)
{
    if (!calibration) return;
    lac_release(calibration->moments);
    lac_release(calibration);
}
