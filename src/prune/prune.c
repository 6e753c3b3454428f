/* prune.c - lac_prune: checks the arguments and hands the work to the pattern's family. docs/pruning.md describes what
 * each one does. Called by users and by checkpoint.c. */
#include "prune/prune.h"

#include "core/matrix.h"
#include "core/status.h"

static lac_status resolve_options(const lac_prune_options *options, lac_prune_job *job)
{
    lac_prune_options o;
    lac_status status = lac_read_struct("options", options, &o, sizeof o);
    if (status != LAC_STATUS_OK) return status;
    if (o.score != LAC_SCORE_DEFAULT && o.score != LAC_SCORE_L1 && o.score != LAC_SCORE_L2)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: score is %d, which is none of lac_score", (int)o.score);
    if (o.threads < 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: threads is %d; it must be 0 or more", (int)o.threads);
    job->score = o.score == LAC_SCORE_DEFAULT ? LAC_SCORE_L2 : o.score;
    job->threads = o.threads;
    return LAC_STATUS_OK;
}

lac_status lac_prune(const lac_matrix *dense, const lac_pattern *pattern, const lac_prune_options *options, lac_mask **out)
{
    lac_prune_job job = {0};
    lac_matrix matrix;
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    if (!pattern) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern is NULL");
    lac_status status = lac_matrix_check("dense", dense, 1, &matrix);
    if (status == LAC_STATUS_OK) status = resolve_options(options, &job);
    if (status == LAC_STATUS_OK) status = lac_geometry_make(pattern, matrix.rows, matrix.cols, &job.geometry);
    if (status == LAC_STATUS_OK) status = lac_mask_create(matrix.rows, matrix.cols, pattern, &job.mask);
    if (status != LAC_STATUS_OK) return status;

    job.pattern = *pattern;
    lac_source_make(&matrix, job.threads, &job.source);
    if (pattern->family == LAC_FAMILY_VNM)
        status = lac_prune_vnm(&job);
    else if (pattern->family == LAC_FAMILY_SHUFFLED)
        status = lac_prune_shuffled(&job);
    else
        status = lac_prune_units(&job, NULL, NULL);
    if (status != LAC_STATUS_OK) {
        lac_mask_free(job.mask);
        return status;
    }
    *out = job.mask;
    return LAC_STATUS_OK;
}
