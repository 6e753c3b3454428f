/* fisher.c - second-order pruning by gradients, as VENOM does it: the Hessian of the loss is taken to be the empirical Fisher matrix, the mean of
 * g g^T over samples of the gradient, cut to blocks of up to 64 columns of one row. Its inverse is built one sample after the other (Woodbury):
 * F^-1 -= (F^-1 g)(F^-1 g)^T / (samples + g^T F^-1 g), from 1 / damping on. Blocks know nothing of each other, so every row group and block is a task of its own.
 * Called by prune.c; fisher_choose.c has the choice. */
#include "prune/fisher.h"

#include <math.h>
#include <string.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/matrix.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "prune/linear.h"
#include "prune/obs.h"

/* Gradients of W[row][first ..] in sample s. */
static void read_gradient(const lac_fisher *f, int64_t sample, int64_t row, int64_t first, int64_t count, float *out)
{
    if (f->row_order) row = f->row_order[row];
    int64_t at = (sample * f->n + row) * f->k;
    if (!f->col_order) lac_load_run_f32(f->gradients->data, f->gradients->dtype, at + first, 1, count, out);
    for (int64_t i = 0; f->col_order && i < count; i++)
        lac_load_run_f32(f->gradients->data, f->gradients->dtype, at + f->col_order[first + i], 1, 1, &out[i]);
}

/* ---------------------------------------------------------------- the inverse */

static void invert_block(const lac_fisher *f, int64_t row, int64_t first, int width, double *inverse)
{
    double samples = (double)f->gradients->samples, v[LAC_FISHER_BLOCK];
    float g[LAC_FISHER_BLOCK];
    for (int i = 0; i < width; i++)
        for (int j = 0; j < width; j++) inverse[i * width + j] = i == j ? 1 / f->damping : 0;
    for (int64_t s = 0; s < f->gradients->samples; s++) {
        double scale = samples;
        read_gradient(f, s, row, first, width, g);
        for (int i = 0; i < width; i++) {
            v[i] = 0;
            for (int j = 0; j < width; j++) v[i] += inverse[i * width + j] * g[j];
            scale += v[i] * g[i];
        }
        for (int i = 0; i < width; i++) {
            double factor = v[i] / scale;
            for (int j = 0; j < width; j++) inverse[i * width + j] -= factor * v[j];
        }
    }
}

/* ---------------------------------------------------------------- blocks */

static int64_t row_of(const lac_fisher *f, int64_t i) { return f->mask->row_perm ? f->mask->row_perm[i] : i; }

static void load_rows(const lac_fisher *f, int64_t group, int64_t first, double *scratch, lac_fisher_rows *out)
{
    out->rows = lac_geometry_rows(&f->geometry, group);
    out->width = (int)lac_smaller(f->width, f->k - first);
    out->w = scratch;
    out->inverse = scratch + out->rows * out->width;
    for (int64_t r = 0; r < out->rows; r++) {
        int64_t row = row_of(f, group * f->geometry.unit_n + r);
        for (int c = 0; c < out->width; c++) out->w[r * out->width + c] = f->w[row * f->k + first + c];
        invert_block(f, row, first, out->width, out->inverse + r * out->width * out->width);
        for (int c = 0; f->within && c < out->width; c++)
            if (!lac_mask_test(f->within, row, first + c)) lac_fisher_drop(out, r, c);
    }
}

static void store_rows(const lac_fisher *f, int64_t group, int64_t first, const lac_fisher_rows *rows)
{
    for (int64_t r = 0; r < rows->rows; r++) {
        int64_t row = row_of(f, group * f->geometry.unit_n + r);
        for (int c = 0; c < rows->width; c++)
            f->w[row * f->k + first + c] = lac_mask_test(f->mask, row, first + c) ? (float)rows->w[r * rows->width + c] : 0;
    }
}

/* One row group, all its blocks: chooses where groups are chosen one by one, and corrects. Bits of a row are written by one
 * thread only. */
static void prune_row_group(void *state, int thread, int64_t group)
{
    const lac_fisher *f = state;
    double *scratch = f->scratch + thread * f->scratch_count;
    uint64_t *kept = (uint64_t *)(void *)(scratch + f->scratch_count - f->geometry.unit_n);
    for (int64_t first = 0; first < f->k; first += f->width) {
        lac_fisher_rows rows;
        load_rows(f, group, first, scratch, &rows);
        if (f->group > 0) {
            for (int c = 0; c < rows.width; c += (int)f->group) {
                int count = (int)lac_smaller(f->group, rows.width - c);
                lac_fisher_choose(f, &rows, c, count, kept);
                for (int64_t r = 0; r < rows.rows; r++)
                    for (uint64_t left = kept[r]; left; left &= left - 1)
                        lac_mask_set(f->mask, row_of(f, group * f->geometry.unit_n + r), first + c + __builtin_ctzll(left));
            }
        } else {
            for (int64_t r = 0; r < rows.rows; r++)
                for (int c = 0; c < rows.width; c++)
                    if (!lac_mask_test(f->mask, row_of(f, group * f->geometry.unit_n + r), first + c))
                        lac_fisher_drop(&rows, r, c);
        }
        store_rows(f, group, first, &rows);
    }
}

/* The score of each unit by itself: L^-1 w_Q, whose squares add up to its cost. */
static void score_row(void *state, int thread, int64_t row)
{
    const lac_fisher *f = state;
    double *inverse = f->scratch + thread * f->scratch_count, *factor = inverse + LAC_FISHER_BLOCK * LAC_FISHER_BLOCK;
    int64_t unit_k = f->geometry.unit_k;
    for (int64_t first = 0; first < f->k; first += f->width) {
        int width = (int)lac_smaller(f->width, f->k - first);
        invert_block(f, row, first, width, inverse);
        for (int from = 0; from < width; from += (int)unit_k) { /* a unit wider than a block is scored piece by piece */
            int size = (int)lac_smaller(unit_k, width - from);
            const float *w = f->w + row * f->k + first + from;
            float *out = f->scores + row * f->k + first + from;
            double x[LAC_FISHER_BLOCK];
            for (int i = 0; i < size; i++)
                for (int j = 0; j <= i; j++) factor[i * size + j] = inverse[(from + i) * width + from + j];
            bool sound = lac_linear_cholesky_small(factor, size, size);
            for (int i = 0; i < size; i++) {
                x[i] = w[i];
                for (int p = 0; sound && p < i; p++) x[i] -= factor[i * size + p] * x[p];
                x[i] /= sound ? factor[i * size + i] : sqrt(inverse[(from + i) * width + from + i]);
                out[i] = (float)x[i];
            }
        }
    }
}

static lac_status choose_all(lac_fisher *f)
{
    lac_matrix scores = {.data = f->scores, .dtype = LAC_DTYPE_F32, .rows = f->n, .cols = f->k};
    lac_prune_options options = {.size = sizeof options, .threads = f->threads};
    lac_mask *chosen = NULL;
    lac_parallel_for_each(f->n, (int)lac_smaller(f->threads, f->n), score_row, f);
    if (f->within) lac_obs_rank_within(f->scores, f->within, 0, f->k); /* a zero that stayed comes before what went */
    lac_status status = lac_prune(&scores, &f->pattern, &options, &chosen);
    if (status != LAC_STATUS_OK) return status;
    lac_mask_free(f->mask);
    f->mask = chosen;
    return LAC_STATUS_OK;
}

/* ---------------------------------------------------------------- the whole */

/* The mean square of all gradients; a number that is not finite is reported. */
static lac_status mean_square(const lac_fisher *f, double *out)
{
    double sum = 0;
    float g[LAC_FISHER_BLOCK];
    for (int64_t s = 0; s < f->gradients->samples; s++)
        for (int64_t r = 0; r < f->n; r++)
            for (int64_t c = 0; c < f->k; c += LAC_FISHER_BLOCK) {
                int64_t count = lac_smaller(LAC_FISHER_BLOCK, f->k - c);
                read_gradient(f, s, r, c, count, g);
                for (int64_t i = 0; i < count; i++) {
                    if (!isfinite(g[i]))
                        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                                        "gradients: sample %lld, W[%lld][%lld] is %g; they must be finite", (long long)s,
                                        (long long)r, (long long)(c + i), (double)g[i]);
                    sum += (double)g[i] * g[i];
                }
            }
    double mean = sum / ((double)f->gradients->samples * (double)f->n * (double)f->k);
    if (f->n > 0 && f->k > 0 && !(mean > 0))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "gradients: all of %lld samples are zero",
                        (long long)f->gradients->samples);
    *out = mean;
    return LAC_STATUS_OK;
}

/* ---------------------------------------------------------------- what it costs */

typedef struct rise_state {
    const lac_fisher *f;
    const lac_matrix *original, *pruned;
    double *rows; /* [n] */
} rise_state;

static void rise_of_row(void *state, int thread, int64_t row)
{
    const rise_state *s = state;
    const lac_fisher *f = s->f;
    double *change = f->scratch + thread * f->scratch_count; /* [k] */
    float g[LAC_FISHER_BLOCK];
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < f->k; c++) {
        change[c] = lac_load_f64(s->pruned->data, s->pruned->dtype, lac_matrix_at(s->pruned, row, c)) -
                    lac_load_f64(s->original->data, s->original->dtype, lac_matrix_at(s->original, row, c));
        squares += change[c] * change[c];
    }
    for (int64_t sample = 0; sample < f->gradients->samples; sample++) {
        double product = 0;
        for (int64_t first = 0; first < f->k; first += LAC_FISHER_BLOCK) {
            int64_t count = lac_smaller(LAC_FISHER_BLOCK, f->k - first);
            read_gradient(f, sample, row, first, count, g);
            for (int64_t c = 0; c < count; c++) product += g[c] * change[first + c];
        }
        sum += product * product;
    }
    s->rows[row] = 0.5 * (sum / (double)f->gradients->samples + f->damping * squares);
}

lac_status lac_fisher_rise(const lac_matrix *original, const lac_matrix *pruned, const lac_gradients *gradients, double damping,
                           int threads, double *out)
{
    lac_matrix w, v;
    lac_status status = lac_matrix_check("original", original, 1, &w);
    if (status == LAC_STATUS_OK) status = lac_matrix_check("pruned", pruned, 1, &v);
    if (status != LAC_STATUS_OK) return status;
    lac_fisher f = {.n = w.rows, .k = w.cols, .gradients = gradients, .scratch_count = w.cols};
    f.threads = lac_parallel_threads(threads, f.n);
    uint64_t bytes = ((uint64_t)f.threads * (uint64_t)f.k + (uint64_t)f.n) * sizeof(double);
    double mean = 0, total = 0;
    f.scratch = lac_allocate(bytes);
    if (!f.scratch) return lac_fail_memory("the rise of the loss", bytes);
    status = mean_square(&f, &mean);
    if (status == LAC_STATUS_OK) {
        f.damping = (damping > 0 ? damping : 0.01) * mean;
        rise_state s = {.f = &f, .original = &w, .pruned = &v, .rows = f.scratch + f.threads * f.k};
        lac_parallel_for_each(f.n, (int)lac_smaller(f.threads, f.n), rise_of_row, &s);
        for (int64_t r = 0; r < f.n; r++) total += s.rows[r];
        *out = total;
    }
    lac_release(f.scratch);
    return status;
}

lac_status lac_fisher_scale(const lac_matrix *dense, const lac_gradients *gradients, double **out)
{
    int64_t n = dense->rows, k = dense->cols;
    lac_fisher f = {.n = n, .k = k, .gradients = gradients};
    float g[LAC_FISHER_BLOCK];
    double mean = 0;
    uint64_t bytes = 0;
    lac_status status = mean_square(&f, &mean);
    if (status != LAC_STATUS_OK) return status;
    double *scaled = lac_multiply_u64((uint64_t)n * sizeof *scaled, (uint64_t)k, &bytes) ? lac_allocate_zeroed(bytes) : NULL;
    if (!scaled) return lac_fail_memory("the weights times their gradients", bytes);
    for (int64_t s = 0; s < gradients->samples; s++)
        for (int64_t r = 0; r < n; r++)
            for (int64_t first = 0; first < k; first += LAC_FISHER_BLOCK) {
                int64_t count = lac_smaller(LAC_FISHER_BLOCK, k - first);
                read_gradient(&f, s, r, first, count, g);
                for (int64_t c = 0; c < count; c++) scaled[r * k + first + c] += (double)g[c] * g[c];
            }
    for (int64_t i = 0; i < n * k; i++)
        scaled[i] = sqrt(scaled[i] / (double)gradients->samples) *
                    lac_load_f64(dense->data, dense->dtype, lac_matrix_at(dense, i / k, i % k));
    *out = scaled;
    return LAC_STATUS_OK;
}

static lac_status read_weights(const lac_matrix *dense, float *w)
{
    for (int64_t r = 0; r < dense->rows; r++) {
        float *row = w + r * dense->cols;
        lac_load_run_f32(dense->data, dense->dtype, lac_matrix_at(dense, r, 0), lac_matrix_col_stride(dense), dense->cols, row);
        for (int64_t c = 0; c < dense->cols; c++)
            if (!isfinite(row[c]))
                return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                                "dense: W[%lld][%lld] is %g; second-order pruning needs finite weights", (long long)r,
                                (long long)c, (double)row[c]);
    }
    return LAC_STATUS_OK;
}

static lac_status reserve(lac_fisher *f)
{
    uint64_t weights = (uint64_t)f->n * (uint64_t)f->k * sizeof(float);
    int64_t rows = f->geometry.unit_n;
    f->scratch_count = rows * f->width * (f->width + 1) + rows;
    if (f->scratch_count < 2 * LAC_FISHER_BLOCK * LAC_FISHER_BLOCK) f->scratch_count = 2 * LAC_FISHER_BLOCK * LAC_FISHER_BLOCK;
    uint64_t scratch = (uint64_t)f->threads * (uint64_t)f->scratch_count * sizeof(double);
    f->w = lac_allocate(weights);
    f->scores = f->group > 0 ? NULL : lac_allocate(weights);
    f->scratch = lac_allocate(scratch);
    if (!f->w || (f->group == 0 && !f->scores) || !f->scratch)
        return lac_fail_memory("second-order pruning", 2 * weights + scratch);
    return lac_mask_create(f->n, f->k, &f->pattern, &f->mask);
}

static lac_status write_weights(const lac_fisher *f, const lac_matrix *to)
{
    lac_matrix made = {.data = f->w, .dtype = LAC_DTYPE_F32, .rows = f->n, .cols = f->k, .ld = f->k};
    lac_status status = lac_prune_check_range(&made, NULL, to->dtype);
    for (int64_t r = 0; r < f->n && status == LAC_STATUS_OK; r++)
        for (int64_t c = 0; c < f->k; c++) lac_store_f64(to->data, to->dtype, lac_matrix_at(to, r, c), f->w[r * f->k + c]);
    return status;
}

lac_status lac_prune_fisher(const lac_prune_job *job, const lac_gradients *gradients, double damping,
                            const lac_matrix *corrected, lac_mask **out)
{
    const lac_matrix *dense = &job->source.matrix;
    lac_fisher f = {.n = dense->rows,
                    .k = dense->cols,
                    .pattern = job->pattern,
                    .geometry = job->geometry,
                    .gradients = gradients,
                    .within = job->within,
                    .row_order = job->row_order,
                    .col_order = job->col_order};
    int64_t group = f.geometry.is_free ? 0 : f.geometry.group_m * f.geometry.unit_k;
    f.group = group <= LAC_FISHER_BLOCK ? group : 0;
    int64_t whole = f.group > 0 ? f.group : f.geometry.unit_k <= LAC_FISHER_BLOCK ? f.geometry.unit_k : 1;
    f.width = LAC_FISHER_BLOCK / whole * whole; /* a block holds whole groups, or whole units */
    f.threads = lac_parallel_threads(job->threads, f.n);
    double mean = 0;
    lac_status status = reserve(&f);
    if (status == LAC_STATUS_OK) status = read_weights(dense, f.w);
    if (status == LAC_STATUS_OK) status = mean_square(&f, &mean);
    f.damping = damping * mean;
    if (status == LAC_STATUS_OK && f.group == 0) status = choose_all(&f);
    if (status == LAC_STATUS_OK) {
        lac_parallel_for_each(f.geometry.row_groups, (int)lac_smaller(f.threads, f.geometry.row_groups), prune_row_group, &f);
        status = write_weights(&f, corrected);
    }
    lac_release(f.w);
    lac_release(f.scores);
    lac_release(f.scratch);
    if (status != LAC_STATUS_OK) {
        lac_mask_free(f.mask);
        return status;
    }
    *out = f.mask;
    return LAC_STATUS_OK;
}
