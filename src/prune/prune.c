/* prune.c - lac_prune and lac_prune_and_correct: they check the arguments and hand the work to the method, and within
 * magnitude to the pattern's family. docs/pruning.md describes what each one does. Called by users and by checkpoint.c. */
#include "prune/prune.h"

#include <math.h>

#include "core/dtype.h"
#include "core/kernel.h"
#include "core/matrix.h"
#include "core/memory.h"
#include "core/status.h"
#include "prune/calibration.h"
#include "prune/permute.h"

/* Fewer elements than these are pruned on one thread unless the caller says otherwise. */
enum { LEAST_SCANNED = 65536, LEAST_SEARCHED = 4096 };

static lac_status check_gradients(const lac_gradients *given)
{
    lac_gradients g;
    if (!given)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: gradients is NULL; method fisher judges weights by them");
    lac_status status = lac_read_struct("options: gradients", given, &g, sizeof g);
    if (status != LAC_STATUS_OK) return status;
    if (g.samples < 1)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: gradients holds %lld samples; at least 1 is needed",
                        (long long)g.samples);
    if (!lac_dtype_is_input(g.dtype))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: gradients are of dtype %s; f32, f16, bf16 or f64 is needed",
                        lac_dtype_name(g.dtype));
    if (!g.data || (uintptr_t)g.data % lac_dtype_size(g.dtype))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: gradients->data is %p; it must be aligned to its elements",
                        g.data);
    return LAC_STATUS_OK;
}

static lac_status check_calibration(const lac_prune_options *o, int64_t k)
{
    if (o->method == LAC_METHOD_MAGNITUDE) return LAC_STATUS_OK;
    if (o->method == LAC_METHOD_FISHER) return check_gradients(o->gradients);
    const char *method = o->method == LAC_METHOD_OBS ? "obs" : "wanda";
    if (!o->calibration)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: calibration is NULL; method %s judges weights by their inputs",
                        method);
    if (o->calibration->k != k)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: calibration is for k = %lld, but dense has %lld columns",
                        (long long)o->calibration->k, (long long)k);
    if (o->calibration->samples == 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: calibration holds no samples; method %s needs some", method);
    return LAC_STATUS_OK;
}

static lac_status resolve_options(const lac_prune_options *options, int64_t k, lac_prune_options *out)
{
    lac_prune_options o;
    lac_status status = lac_read_struct("options", options, &o, sizeof o);
    if (status != LAC_STATUS_OK) return status;
    if (o.score != LAC_SCORE_DEFAULT && o.score != LAC_SCORE_L1 && o.score != LAC_SCORE_L2)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: score is %d, which is none of lac_score", (int)o.score);
    if (o.threads < 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: threads is %d; it must be 0 or more", (int)o.threads);
    if (o.method < LAC_METHOD_DEFAULT || o.method > LAC_METHOD_FISHER)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: method is %d, which is none of lac_method", (int)o.method);
    if (!(o.damping >= 0) || o.damping > 1e6)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: damping is %g; it must be 0 (for 0.01) or positive", o.damping);
    if (o.permute & ~(LAC_PERMUTE_ROWS | LAC_PERMUTE_COLUMNS))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "options: permute is %u; it is made of LAC_PERMUTE_ROWS and LAC_PERMUTE_COLUMNS", (unsigned)o.permute);
    if (o.permute_rounds < 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: permute_rounds is %d; it must be 0 or more",
                        (int)o.permute_rounds);
    if (o.transposable != 0 && o.transposable != 1)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: transposable is %d; it must be 0 or 1", (int)o.transposable);
    if (o.transposable && (o.permute || o.method == LAC_METHOD_OBS || o.method == LAC_METHOD_FISHER))
        return lac_fail(LAC_STATUS_UNSUPPORTED,
                        "options: transposable goes with methods magnitude and wanda, and without permute");
    if (o.device && o.device->info.kind != LAC_DEVICE_KIND_CPU && o.method != LAC_METHOD_OBS)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "options: device is %s; only method obs has work for it", o.device->info.name);
    if (o.schedule_count > 0 && !o.schedule)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "options: schedule is NULL but schedule_count is %zu", o.schedule_count);
    if (o.schedule_count > 0 && o.transposable)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "options: transposable does not go with a schedule");
    for (size_t i = 0; i < o.schedule_count; i++)
        if ((status = lac_pattern_validate(&o.schedule[i])) != LAC_STATUS_OK)
            return lac_fail_in(status, "options: schedule[%zu]", i);
    if (o.permute_rounds == 0) o.permute_rounds = 100;
    if (o.score == LAC_SCORE_DEFAULT) o.score = LAC_SCORE_L2;
    if (o.method == LAC_METHOD_DEFAULT) o.method = LAC_METHOD_MAGNITUDE;
    if (o.damping == 0) o.damping = 0.01;
    *out = o;
    return check_calibration(&o, k);
}

/* Checks everything that a job needs, and fills it in but for the mask. */
static lac_status start_job(const lac_matrix *dense, const lac_pattern *pattern, const lac_prune_options *options,
                            lac_matrix *matrix, lac_prune_options *resolved, lac_prune_job *job)
{
    if (!pattern) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern is NULL");
    lac_status status = lac_matrix_check("dense", dense, 1, matrix);
    if (status == LAC_STATUS_OK) status = resolve_options(options, matrix->cols, resolved);
    if (status == LAC_STATUS_OK) status = lac_geometry_make(pattern, matrix->rows, matrix->cols, &job->geometry);
    if (status != LAC_STATUS_OK) return status;
    job->pattern = *pattern;
    job->score = resolved->score;
    job->threads = resolved->threads;
    job->transposable = resolved->transposable;
    job->source.matrix = *matrix;
    return LAC_STATUS_OK;
}

static lac_status prune_by_magnitude(lac_prune_job *job, const lac_matrix *matrix, lac_mask **out)
{
    lac_status status = lac_mask_create(matrix->rows, matrix->cols, &job->pattern, &job->mask);
    if (status != LAC_STATUS_OK) return status;
    /* Waking threads costs more than a small matrix does; the searches do more work an element. */
    lac_family family = job->pattern.family;
    bool searches = family == LAC_FAMILY_VNM || family == LAC_FAMILY_SHUFFLED;
    if (job->threads == 0 && matrix->rows * matrix->cols < (searches ? LEAST_SEARCHED : LEAST_SCANNED)) job->threads = 1;
    lac_source_make(matrix, job->threads, &job->source);
    if (job->transposable)
        status = lac_prune_transposable(job);
    else if (family == LAC_FAMILY_VNM)
        status = lac_prune_vnm(job);
    else if (family == LAC_FAMILY_SHUFFLED)
        status = lac_prune_shuffled(job);
    else
        status = lac_prune_units(job, NULL, NULL);
    if (status != LAC_STATUS_OK) {
        lac_mask_free(job->mask);
        return status;
    }
    *out = job->mask;
    return LAC_STATUS_OK;
}

/* Permutations are searched for on what the method judges weights by. */
static lac_status prune_permuted(lac_prune_job *job, const lac_matrix *matrix, const lac_prune_options *options,
                                 const lac_prune_extras *extras, const lac_matrix *corrected, lac_mask **out)
{
    lac_permute permute = {.rows = options->permute & LAC_PERMUTE_ROWS && !extras->settled_rows,
                           .columns = options->permute & LAC_PERMUTE_COLUMNS && !extras->settled_cols,
                           .rounds = options->permute_rounds,
                           .row_order = extras->settled_rows,
                           .col_order = extras->settled_cols};
    double *scaled = NULL;
    lac_matrix scores = *matrix;
    lac_status status = lac_permute_check(&permute, &job->pattern);
    if (status == LAC_STATUS_OK && options->method != LAC_METHOD_MAGNITUDE) {
        status = options->method == LAC_METHOD_FISHER ? lac_fisher_scale(matrix, options->gradients, &scaled)
                                                      : lac_wanda_scale(matrix, options->calibration, &scaled);
        scores = (lac_matrix){
            .data = scaled, .dtype = LAC_DTYPE_F64, .rows = matrix->rows, .cols = matrix->cols, .ld = matrix->cols};
    }
    if (status != LAC_STATUS_OK) return status;
    lac_source_make(&scores, job->threads, &job->source);
    status = lac_prune_permuted(job, matrix, options, &permute, corrected, out);
    lac_release(scaled);
    return status;
}

static bool in_another_order(const lac_prune_options *options, const lac_prune_extras *extras)
{
    return options->permute || extras->settled_rows || extras->settled_cols;
}

lac_status lac_prune(const lac_matrix *dense, const lac_pattern *pattern, const lac_prune_options *options, lac_mask **out)
{
    return lac_prune_with(dense, pattern, options, &(lac_prune_extras){0}, out);
}

lac_status lac_prune_with(const lac_matrix *dense, const lac_pattern *pattern, const lac_prune_options *options,
                          const lac_prune_extras *extras, lac_mask **out)
{
    lac_prune_job job = {0};
    lac_matrix matrix;
    lac_prune_options resolved = {0};
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_status status = start_job(dense, pattern, options, &matrix, &resolved, &job);
    if (status != LAC_STATUS_OK) return status;
    if (resolved.method == LAC_METHOD_OBS || resolved.method == LAC_METHOD_FISHER)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "options: method is %s, which changes the weights that stay; call lac_prune_and_correct",
                        resolved.method == LAC_METHOD_OBS ? "obs" : "fisher");
    if (in_another_order(&resolved, extras)) return prune_permuted(&job, &matrix, &resolved, extras, NULL, out);
    if (resolved.schedule_count > 0) return lac_prune_schedule(&job, &resolved, NULL, out);
    if (resolved.method == LAC_METHOD_WANDA) return lac_prune_wanda(&job, resolved.calibration, out);
    return prune_by_magnitude(&job, &matrix, out);
}

/* What the mask keeps of `from`, the rest zero; `to` may lie on `from` when both are laid out alike. */
static void copy_kept(const lac_matrix *from, const lac_mask *mask, const lac_matrix *to)
{
    for (int64_t r = 0; r < from->rows; r++)
        for (int64_t c = 0; c < from->cols; c++) {
            double value = lac_mask_test(mask, r, c) ? lac_load_f64(from->data, from->dtype, lac_matrix_at(from, r, c)) : 0;
            lac_store_f64(to->data, to->dtype, lac_matrix_at(to, r, c), value);
        }
}

lac_status lac_prune_check_range(const lac_matrix *from, const lac_mask *mask, lac_dtype dtype)
{
    double most = lac_dtype_max(dtype);
    for (int64_t r = 0; r < from->rows && (!mask || from->dtype != dtype); r++)
        for (int64_t c = 0; c < from->cols; c++) {
            double value = lac_load_f64(from->data, from->dtype, lac_matrix_at(from, r, c));
            if (fabs(value) <= most || (mask && (!isfinite(value) || !lac_mask_test(mask, r, c)))) continue;
            return lac_fail(LAC_STATUS_VALUE_OUT_OF_RANGE, "corrected: W[%lld][%lld] %s %g, which %s cannot hold", (long long)r,
                            (long long)c, mask ? "is" : "became", value, lac_dtype_name(dtype));
        }
    return LAC_STATUS_OK;
}

lac_status lac_prune_and_correct(const lac_matrix *dense, const lac_pattern *pattern, const lac_prune_options *options,
                                 const lac_matrix *corrected, lac_mask **out)
{
    return lac_prune_and_correct_with(dense, pattern, options, corrected, &(lac_prune_extras){0}, out);
}

lac_status lac_prune_and_correct_with(const lac_matrix *dense, const lac_pattern *pattern, const lac_prune_options *options,
                                      const lac_matrix *corrected, const lac_prune_extras *extras, lac_mask **out)
{
    lac_prune_job job = {.factor = extras->factor, .row_order = extras->row_order, .col_order = extras->col_order};
    lac_matrix matrix, target;
    lac_prune_options resolved = {0};
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_status status = start_job(dense, pattern, options, &matrix, &resolved, &job);
    if (status == LAC_STATUS_OK) status = lac_matrix_check("corrected", corrected, 1, &target);
    if (status != LAC_STATUS_OK) return status;
    if (target.rows != matrix.rows || target.cols != matrix.cols)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "corrected is %lld x %lld, but dense is %lld x %lld",
                        (long long)target.rows, (long long)target.cols, (long long)matrix.rows, (long long)matrix.cols);
    if (target.data == matrix.data &&
        (target.dtype != matrix.dtype || target.layout != matrix.layout || target.ld != matrix.ld))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "corrected lies on dense, but has another dtype, layout or ld");
    if (in_another_order(&resolved, extras)) return prune_permuted(&job, &matrix, &resolved, extras, &target, out);
    if (resolved.schedule_count > 0 && resolved.method >= LAC_METHOD_OBS)
        return lac_prune_schedule(&job, &resolved, &target, out);
    if (resolved.method == LAC_METHOD_OBS) return lac_prune_obs(&job, &resolved, &target, out);
    if (resolved.method == LAC_METHOD_FISHER) return lac_prune_fisher(&job, resolved.gradients, resolved.damping, &target, out);
    lac_mask *mask = NULL;
    if (resolved.schedule_count > 0)
        status = lac_prune_schedule(&job, &resolved, NULL, &mask);
    else if (resolved.method == LAC_METHOD_WANDA)
        status = lac_prune_wanda(&job, resolved.calibration, &mask);
    else
        status = prune_by_magnitude(&job, &matrix, &mask);
    if (status == LAC_STATUS_OK) status = lac_prune_check_range(&matrix, mask, target.dtype);
    if (status != LAC_STATUS_OK) {
        lac_mask_free(mask);
        return status;
    }
    copy_kept(&matrix, mask, &target);
    *out = mask;
    return LAC_STATUS_OK;
}
