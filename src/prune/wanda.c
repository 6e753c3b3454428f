/* wanda.c - Wanda's score: a weight times the norm of its input over the samples. The columns of a copy are scaled, and the copy is
 * pruned by magnitude, so that every family and every rule of lac_prune holds here too. Called by prune.c. */
#include <math.h>

#include "core/dtype.h"
#include "core/matrix.h"
#include "core/memory.h"
#include "core/status.h"
#include "prune/calibration.h"
#include "prune/prune.h"

lac_status lac_wanda_scale(const lac_matrix *dense, const lac_calibration *calibration, double **out)
{
    int64_t n = dense->rows, k = dense->cols;
    uint64_t bytes;
    for (int64_t c = 0; c < k; c++)
        if (!isfinite(calibration->moments[c * k + c]))
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                            "calibration: the sum of the squares of input %lld is more than a float holds; scale the samples",
                            (long long)c);
    if (!lac_multiply_u64((uint64_t)n * sizeof(double), (uint64_t)k, &bytes)) bytes = UINT64_MAX;
    double *scaled = bytes == UINT64_MAX ? NULL : lac_allocate(bytes);
    if (!scaled) return lac_fail_memory("the weights times their inputs' norms", bytes);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < k; c++)
            scaled[r * k + c] = lac_load_f64(dense->data, dense->dtype, lac_matrix_at(dense, r, c)) *
                                sqrt((double)calibration->moments[c * k + c]);
    *out = scaled;
    return LAC_STATUS_OK;
}

lac_status lac_prune_wanda(const lac_prune_job *job, const lac_calibration *calibration, lac_mask **out)
{
    const lac_matrix *dense = &job->source.matrix;
    double *scaled = NULL;
    lac_status status = lac_wanda_scale(dense, calibration, &scaled);
    if (status != LAC_STATUS_OK) return status;
    lac_matrix matrix = {.data = scaled, .dtype = LAC_DTYPE_F64, .rows = dense->rows, .cols = dense->cols};
    lac_prune_options options = {
        .size = sizeof options, .score = job->score, .threads = job->threads, .transposable = job->transposable};
    status = lac_prune(&matrix, &job->pattern, &options, out);
    lac_release(scaled);
    return status;
}
