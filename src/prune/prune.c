/* prune.c - lac_prune: checks the arguments and hands the work to the pattern's family. docs/pruning.md describes what
 * each one does. Called by users and by checkpoint.c. */
#include "prune/prune.h"

#include "core/matrix.h"
#include "core/status.h"

/* Fewer elements than these are pruned on one thread unless the caller says otherwise. */
enum { LEAST_SCANNED = 65536, LEAST_SEARCHED = 4096 };

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
    /* Waking threads costs more than a small matrix does; the searches do more work an element. */
    bool searches = pattern->family == LAC_FAMILY_VNM || pattern->family == LAC_FAMILY_SHUFFLED;
    if (job.threads == 0 && matrix.rows * matrix.cols < (searches ? LEAST_SEARCHED : LEAST_SCANNED)) job.threads = 1;
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
