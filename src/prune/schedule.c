/* schedule.c - pruning in steps: each pattern of a schedule prunes what the last one left. What went stays out wherever the next pattern allows it: by scores,
 * because it scores nothing; by second order, because it is the first to go (`within`), with the others making up for it. The moments of the inputs are factored once
 * for all steps. Called by prune.c. */
#include <math.h>

#include "core/dtype.h"
#include "core/matrix.h"
#include "core/memory.h"
#include "core/status.h"
#include "prune/prune.h"

static const lac_pattern *pattern_of(const lac_prune_job *job, const lac_prune_options *options, size_t step)
{
    return step < options->schedule_count ? &options->schedule[step] : &job->pattern;
}

static lac_status copy_weights(const lac_matrix *dense, lac_dtype dtype, lac_matrix *out)
{
    uint64_t bytes = (uint64_t)dense->rows * (uint64_t)dense->cols * lac_dtype_size(dtype);
    *out = (lac_matrix){.dtype = dtype, .rows = dense->rows, .cols = dense->cols, .ld = dense->cols};
    out->data = lac_allocate(bytes);
    if (!out->data) return lac_fail_memory("a copy of the weights", bytes);
    for (int64_t r = 0; r < dense->rows; r++)
        for (int64_t c = 0; c < dense->cols; c++)
            lac_store_f64(out->data, dtype, r * dense->cols + c,
                          lac_load_f64(dense->data, dense->dtype, lac_matrix_at(dense, r, c)));
    return LAC_STATUS_OK;
}

/* ---------------------------------------------------------------- by scores */

/* What went scores nothing; what stays scores something, be it ever so little, so that it goes before what went. */
static void rank_within(double *scores, const lac_mask *within)
{
    double largest = 0;
    for (int64_t i = 0; i < within->n * within->k; i++)
        if (isfinite(scores[i])) largest = fmax(largest, fabs(scores[i]));
    double least = largest > 0 ? fmax(largest * 0x1p-800, 0x1p-1000) : 1;
    for (int64_t r = 0; r < within->n; r++)
        for (int64_t c = 0; c < within->k; c++) {
            double *score = scores + r * within->k + c;
            if (!lac_mask_test(within, r, c))
                *score = 0;
            else if (fabs(*score) < least)
                *score = least;
        }
}

static lac_status score_steps(const lac_prune_job *job, const lac_prune_options *options, lac_mask **out)
{
    const lac_matrix *dense = &job->source.matrix;
    lac_matrix scores = {.dtype = LAC_DTYPE_F64, .rows = dense->rows, .cols = dense->cols, .ld = dense->cols};
    lac_prune_options plain = {.size = sizeof plain, .score = options->score, .threads = options->threads};
    lac_mask *mask = NULL;
    double *scaled = NULL;
    lac_status status;
    if (options->method == LAC_METHOD_WANDA) {
        status = lac_wanda_scale(dense, options->calibration, &scaled);
        scores.data = scaled;
    } else {
        status = copy_weights(dense, LAC_DTYPE_F64, &scores);
    }
    for (size_t step = 0; step <= options->schedule_count && status == LAC_STATUS_OK; step++) {
        if (mask) rank_within(scores.data, mask);
        lac_mask_free(mask);
        mask = NULL;
        status = lac_prune(&scores, pattern_of(job, options, step), &plain, &mask);
    }
    lac_release(scores.data);
    if (status == LAC_STATUS_OK) *out = mask;
    return status;
}

/* ---------------------------------------------------------------- second order */

static lac_status take_step(const lac_prune_job *job, const lac_prune_options *options, const lac_pattern *pattern,
                            const lac_matrix *weights, const lac_mask *within, lac_obs_factor *factor, lac_mask **out)
{
    lac_prune_job step = {
        .pattern = *pattern, .score = job->score, .threads = job->threads, .within = within, .factor = factor};
    step.source.matrix = *weights;
    step.row_order = job->row_order, step.col_order = job->col_order;
    lac_status status = lac_geometry_make(pattern, weights->rows, weights->cols, &step.geometry);
    if (status != LAC_STATUS_OK) return status;
    if (options->method == LAC_METHOD_OBS) return lac_prune_obs(&step, options, weights, out);
    return lac_prune_fisher(&step, options->gradients, options->damping, weights, out);
}

static lac_status store(const lac_matrix *from, const lac_matrix *to)
{
    const float *w = from->data;
    lac_status status = lac_prune_check_range(from, NULL, to->dtype);
    for (int64_t r = 0; r < from->rows && status == LAC_STATUS_OK; r++)
        for (int64_t c = 0; c < from->cols; c++)
            lac_store_f64(to->data, to->dtype, lac_matrix_at(to, r, c), w[r * from->cols + c]);
    return status;
}

static lac_status correct_steps(const lac_prune_job *job, const lac_prune_options *options, const lac_matrix *corrected,
                                lac_mask **out)
{
    lac_matrix weights;
    lac_obs_factor factor = {0};
    lac_mask *mask = NULL;
    lac_status status = copy_weights(&job->source.matrix, LAC_DTYPE_F32, &weights);
    for (size_t step = 0; step <= options->schedule_count && status == LAC_STATUS_OK; step++) {
        lac_mask *next = NULL;
        status =
            take_step(job, options, pattern_of(job, options, step), &weights, mask, job->factor ? job->factor : &factor, &next);
        if (status != LAC_STATUS_OK) break;
        lac_mask_free(mask);
        mask = next;
    }
    if (status == LAC_STATUS_OK) status = store(&weights, corrected);
    lac_release(weights.data);
    lac_release(factor.u);
    if (status != LAC_STATUS_OK) {
        lac_mask_free(mask);
        return status;
    }
    *out = mask;
    return LAC_STATUS_OK;
}

lac_status lac_prune_schedule(const lac_prune_job *job, const lac_prune_options *options, const lac_matrix *corrected,
                              lac_mask **out)
{
    if (options->method == LAC_METHOD_OBS || options->method == LAC_METHOD_FISHER)
        return correct_steps(job, options, corrected, out);
    return score_steps(job, options, out);
}
