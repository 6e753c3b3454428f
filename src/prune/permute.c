/* permute.c - pruning in a better order. Rows that want the same inputs come together, columns move to groups that can afford them; the
 * matrix in that order is pruned like any other, and the mask carries the order, which compression keeps and kernels undo when they
 * read X and write Y. What stays is never worth less than without: the plain choice is made too, and stands unless it is beaten.
 * Called by prune.c; the search over columns is in permute_columns.c, that over rows is Shfl-BW's, in shuffle.c. */
#include "prune/permute.h"

#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "core/matrix.h"
#include "core/memory.h"
#include "core/status.h"
#include "prune/calibration.h"

uint32_t lac_permute_possible(const lac_pattern *pattern)
{
    bool has_groups = pattern->m > 0 && pattern->unit_k == 1;
    bool has_vectors = pattern->family == LAC_FAMILY_VECTOR || pattern->family == LAC_FAMILY_VNM;
    return (has_groups ? LAC_PERMUTE_COLUMNS : 0) | (has_vectors ? LAC_PERMUTE_ROWS : 0);
}

lac_status lac_permute_check(const lac_permute *permute, const lac_pattern *pattern)
{
    uint32_t possible = lac_permute_possible(pattern);
    if (permute->columns && !(possible & LAC_PERMUTE_COLUMNS))
        return lac_fail(
            LAC_STATUS_UNSUPPORTED,
            "options: permute asks for columns, but the pattern has no groups of single inputs for them to move between");
    if (permute->rows && !(possible & LAC_PERMUTE_ROWS))
        return lac_fail(LAC_STATUS_UNSUPPORTED,
                        "options: permute asks for rows; only vwL and V:N:M patterns gain by it (shflL does it by itself)");
    return LAC_STATUS_OK;
}

lac_status lac_permute_rows(const lac_prune_job *job, uint32_t *perm)
{
    lac_prune_job vectors = *job; /* V:N:M is taken for vectors that keep 4 of M */
    vectors.pattern.family = LAC_FAMILY_VECTOR;
    vectors.pattern.n = job->pattern.m ? job->geometry.group_n : 0;
    lac_status status = lac_geometry_make(&vectors.pattern, job->geometry.n, job->geometry.k, &vectors.geometry);
    if (status == LAC_STATUS_OK) status = lac_mask_create(job->geometry.n, job->geometry.k, &vectors.pattern, &vectors.mask);
    if (status != LAC_STATUS_OK) return status;
    status = lac_prune_shuffled(&vectors);
    if (status == LAC_STATUS_OK) memcpy(perm, vectors.mask->row_perm, (size_t)job->geometry.n * sizeof *perm);
    lac_mask_free(vectors.mask);
    return status;
}

/* ---------------------------------------------------------------- the matrix in another order */

/* Everything in the order that was found; all of it is freed together. */
typedef struct reordered {
    uint32_t *rows, *columns; /* [n], [k]; NULL: in order */
    lac_matrix dense, corrected;
    lac_calibration *calibration; /* NULL without one */
    lac_mask *mask;
} reordered;

static void release(reordered *r)
{
    lac_release(r->rows);
    lac_release(r->columns);
    lac_release(r->dense.data);
    lac_release(r->corrected.data);
    lac_calibration_free(r->calibration);
    lac_mask_free(r->mask);
}

static int64_t at(const uint32_t *perm, int64_t i) { return perm ? perm[i] : i; }

static lac_status allocate_numbers(int64_t count, uint32_t **out)
{
    *out = lac_allocate((uint64_t)count * sizeof **out);
    return *out ? LAC_STATUS_OK : lac_fail_memory("a permutation", (uint64_t)count * sizeof **out);
}

static lac_status copy_matrix(const lac_matrix *from, const reordered *order, lac_matrix *to)
{
    size_t element = lac_dtype_size(from->dtype);
    uint64_t bytes = (uint64_t)from->rows * (uint64_t)from->cols * element;
    *to = (lac_matrix){.dtype = from->dtype, .rows = from->rows, .cols = from->cols, .ld = from->cols};
    to->data = lac_allocate(bytes);
    if (!to->data) return lac_fail_memory("the weights in another order", bytes);
    for (int64_t r = 0; r < from->rows; r++)
        for (int64_t c = 0; c < from->cols; c++)
            memcpy((char *)to->data + (size_t)(r * to->cols + c) * element,
                   (const char *)from->data + (size_t)lac_matrix_at(from, at(order->rows, r), at(order->columns, c)) * element,
                   element);
    return LAC_STATUS_OK;
}

static lac_status copy_calibration(const lac_calibration *from, const uint32_t *columns, lac_calibration **out)
{
    lac_status status = lac_calibration_create(from->k, out);
    if (status != LAC_STATUS_OK) return status;
    (*out)->samples = from->samples;
    for (int64_t r = 0; r < from->k; r++)
        for (int64_t c = 0; c < from->k; c++)
            (*out)->moments[r * from->k + c] = from->moments[at(columns, r) * from->k + at(columns, c)];
    return LAC_STATUS_OK;
}

/* The mask for W as it stands, with the order beside it. */
static lac_status restore_mask(const lac_mask *mask, reordered *order, lac_mask **out)
{
    lac_mask *made = NULL;
    lac_status status = lac_mask_create(mask->n, mask->k, &mask->pattern, &made);
    if (status != LAC_STATUS_OK) return status;
    for (int64_t r = 0; r < mask->n; r++)
        for (int64_t c = 0; c < mask->k; c++)
            if (lac_mask_test(mask, r, c)) lac_mask_set(made, at(order->rows, r), at(order->columns, c));
    made->row_perm = order->rows, made->col_perm = order->columns; /* the mask's from here on */
    order->rows = order->columns = NULL;
    *out = made;
    return LAC_STATUS_OK;
}

/* The sum of the scores of what stays. */
static double worth_of(const lac_source *source, lac_score score, const lac_mask *mask)
{
    const lac_matrix *scores = &source->matrix;
    double sum = 0;
    for (int64_t r = 0; r < mask->n; r++)
        for (int64_t c = 0; c < mask->k; c++) {
            if (!lac_mask_test(mask, r, c)) continue;
            double value = fabs(lac_load_f64(scores->data, scores->dtype, lac_matrix_at(scores, r, c)) * source->scale);
            sum += score == LAC_SCORE_L1 ? value : value * value;
        }
    return sum;
}

static lac_status copy_order(const uint32_t *from, int64_t count, uint32_t **out)
{
    lac_status status = allocate_numbers(count, out);
    for (int64_t i = 0; status == LAC_STATUS_OK && i < count; i++) (*out)[i] = from ? from[i] : (uint32_t)i;
    return status;
}

static lac_status find_order(const lac_prune_job *job, const lac_permute *permute, reordered *order)
{
    lac_status status = LAC_STATUS_OK;
    if (permute->row_order) {
        status = copy_order(permute->row_order, job->geometry.n, &order->rows);
    } else if (permute->rows) {
        status = allocate_numbers(job->geometry.n, &order->rows);
        if (status == LAC_STATUS_OK) status = lac_permute_rows(job, order->rows);
    }
    if (status != LAC_STATUS_OK) return status;
    if (permute->col_order) return copy_order(permute->col_order, job->geometry.k, &order->columns);
    if (!permute->columns) return LAC_STATUS_OK;
    status = allocate_numbers(job->geometry.k, &order->columns);
    return status == LAC_STATUS_OK ? lac_permute_columns(job, order->rows, permute->rounds, order->columns) : status;
}

/* What the order that was found has to beat: what is settled, and the rest as it stands. A mask that was asked for an order has one all the same, so that its
 * parts are known beforehand. */
static lac_status plain_order(const lac_prune_job *job, const lac_permute *permute, reordered *order)
{
    lac_status status = LAC_STATUS_OK;
    if (permute->row_order || permute->rows) status = copy_order(permute->row_order, job->geometry.n, &order->rows);
    if (status == LAC_STATUS_OK && (permute->col_order || permute->columns))
        status = copy_order(permute->col_order, job->geometry.k, &order->columns);
    return status;
}

static lac_status prune_in_order(const reordered *order, const lac_pattern *pattern, const lac_prune_options *options,
                                 bool corrects, lac_mask **out)
{
    lac_prune_options plain = *options;
    plain.permute = 0;
    if (order->calibration) plain.calibration = order->calibration;
    if (!corrects) return lac_prune(&order->dense, pattern, &plain, out);
    lac_prune_extras extras = {.row_order = order->rows, .col_order = order->columns};
    return lac_prune_and_correct_with(&order->dense, pattern, &plain, &order->corrected, &extras, out);
}

/* What a choice loses: under OBS of the outputs, under FISHER of the loss, else of the scores. */
static lac_status loss_of(const lac_prune_job *job, const lac_prune_options *options, const lac_matrix *dense,
                          const lac_matrix *corrected, const lac_mask *mask, double *loss)
{
    double total = 0;
    if (options->method == LAC_METHOD_OBS)
        return lac_calibration_error_by(options->calibration, dense, corrected, job->threads, loss, &total);
    if (options->method == LAC_METHOD_FISHER)
        return lac_fisher_rise(dense, corrected, options->gradients, options->damping, job->threads, loss);
    *loss = -worth_of(&job->source, job->score, mask);
    return LAC_STATUS_OK;
}

static void write_back(const lac_matrix *from, const reordered *order, const lac_matrix *to)
{
    for (int64_t r = 0; r < from->rows; r++)
        for (int64_t c = 0; c < from->cols; c++)
            lac_store_f64(to->data, to->dtype, lac_matrix_at(to, at(order->rows, r), at(order->columns, c)),
                          lac_load_f64(from->data, from->dtype, r * from->cols + c));
}

/* Prunes W in the order of r. Of moments in that order there may be some already. */
static lac_status prune_candidate(const lac_prune_job *job, const lac_matrix *dense, const lac_prune_options *options,
                                  bool corrects, reordered *r)
{
    lac_status status = copy_matrix(dense, r, &r->dense);
    if (status == LAC_STATUS_OK && corrects) status = copy_matrix(dense, r, &r->corrected);
    return status == LAC_STATUS_OK ? prune_in_order(r, &job->pattern, options, corrects, &r->mask) : status;
}

/* Brings what was pruned back into the order of W: the mask, with the order beside it, and the values into r->corrected. */
static lac_status turn_back(reordered *r, bool corrects)
{
    lac_mask *restored = NULL;
    lac_matrix turned = r->corrected;
    lac_release(r->dense.data);
    r->dense.data = NULL;
    if (corrects) {
        uint64_t bytes = (uint64_t)turned.rows * (uint64_t)turned.cols * lac_dtype_size(turned.dtype);
        turned.data = lac_allocate(bytes);
        if (!turned.data) return lac_fail_memory("the corrected weights", bytes);
        write_back(&r->corrected, r, &turned);
        lac_release(r->corrected.data);
        r->corrected = turned;
    }
    lac_status status = restore_mask(r->mask, r, &restored);
    if (status != LAC_STATUS_OK) return status;
    lac_mask_free(r->mask);
    r->mask = restored;
    return LAC_STATUS_OK;
}

/* Which of the two loses less. */
static lac_status compare(const lac_prune_job *job, const lac_prune_options *options, const lac_matrix *dense,
                          const reordered *plain, const reordered *moved, bool *better)
{
    double without = 0, with = 0;
    lac_status status = loss_of(job, options, dense, &plain->corrected, plain->mask, &without);
    if (status == LAC_STATUS_OK) status = loss_of(job, options, dense, &moved->corrected, moved->mask, &with);
    *better = with < without;
    return status;
}

lac_status lac_prune_permuted(const lac_prune_job *job, const lac_matrix *dense, const lac_prune_options *options,
                              const lac_permute *permute, const lac_matrix *corrected, lac_mask **out)
{
    reordered plain = {0}, moved = {0};
    bool corrects = corrected != NULL, searches = permute->rows || permute->columns, better = true;
    lac_status status = find_order(job, permute, &moved);
    if (status == LAC_STATUS_OK && options->calibration && moved.columns)
        status = copy_calibration(options->calibration, moved.columns, &moved.calibration);
    if (status == LAC_STATUS_OK) status = prune_candidate(job, dense, options, corrects, &moved);
    if (status == LAC_STATUS_OK) status = turn_back(&moved, corrects);
    if (status == LAC_STATUS_OK && searches) status = plain_order(job, permute, &plain);
    if (status == LAC_STATUS_OK && searches) {
        if (permute->col_order) plain.calibration = moved.calibration; /* the same order; moved's owns it */
        status = prune_candidate(job, dense, options, corrects, &plain);
        plain.calibration = NULL;
    }
    if (status == LAC_STATUS_OK && searches) status = turn_back(&plain, corrects);
    if (status == LAC_STATUS_OK && searches) status = compare(job, options, dense, &plain, &moved, &better);
    reordered *best = better ? &moved : &plain, in_order = {0};
    if (status == LAC_STATUS_OK && corrects) status = lac_prune_check_range(&best->corrected, best->mask, corrected->dtype);
    if (status == LAC_STATUS_OK) {
        if (corrects) write_back(&best->corrected, &in_order, corrected);
        *out = best->mask;
        best->mask = NULL;
    }
    release(&plain);
    release(&moved);
    return status;
}
