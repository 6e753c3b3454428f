/* obs.c - second-order pruning of one layer, after Optimal Brain Surgeon. Columns are settled from left to right; what a column loses
 * is made up for by those that come later, as SparseGPT does, and within a step of up to 64 columns also by those that stay and
 * stand before it: their change is the exact least-squares one. The choice of what goes is in obs_select.c.
 *
 * With H the damped moments of the inputs, all that is needed of H^-1 is its upper Cholesky factor U, U^T U = H^-1: row j of it
 * tells how the columns after j make up for a change in column j when all before j are settled. U comes without an inverse: turn the
 * inputs round, J H J = L L^T, and U = J L^-1 J; on a row-major square, J . J is the array read backwards.
 * Called by prune.c. */
#include "prune/obs.h"

#include <math.h>
#include <string.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/kernel.h"
#include "core/matrix.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "prune/calibration.h"
#include "prune/linear.h"
#include "prune/obs_device.h"
#include "prune/prune.h"

/* Columns whose changes are passed on to all later ones by one product. */
enum { BLOCK = 128 };
/* A damping that does not do is raised tenfold, so often at most. */
enum { ATTEMPTS = 6 };
enum { TASK_ROWS = 8 };

/* ---------------------------------------------------------------- the factor */

/* u of the moments with `added` on their diagonal; *pivot = k, or the input whose pivot was not positive. */
static void factor_here(const lac_calibration *calibration, float added, int threads, float *u, float *scratch, int64_t *pivot)
{
    int64_t k = calibration->k, elements = k * k;
    *pivot = k;
    for (int64_t i = 0; i < elements; i++) u[i] = calibration->moments[elements - 1 - i];
    for (int64_t c = 0; c < k; c++) u[c * k + c] += added;
    int64_t done = lac_linear_cholesky(u, k, threads);
    if (done < k) {
        *pivot = k - 1 - done;
        return;
    }
    lac_linear_invert_lower(u, k, scratch, threads);
    for (int64_t i = 0, j = elements - 1; i < j; i++, j--) {
        float kept = u[i];
        u[i] = u[j], u[j] = kept;
    }
}

static lac_status factor_moments(const lac_calibration *calibration, double damping, lac_obs_device *gpu, int threads, float *u,
                                 float *scratch)
{
    int64_t k = calibration->k;
    double mean = 0;
    for (int64_t c = 0; c < k; c++) mean += calibration->moments[c * k + c];
    mean /= (double)k;
    if (!(mean > 0) || !isfinite(mean))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "calibration: the mean square of its inputs is %g over %lld samples; it must be positive", mean,
                        (long long)calibration->samples);
    if (calibration->samples < k)
        lac_log(LAC_LOG_LEVEL_WARNING,
                "calibration: %lld samples for %lld inputs; the damping of %g decides where they say nothing",
                (long long)calibration->samples, (long long)k, damping);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++, damping *= 10) {
        int64_t pivot = k;
        float added = (float)(damping * mean);
        lac_status status = LAC_STATUS_OK;
        if (gpu)
            status = lac_obs_device_factor(gpu, calibration->moments, added, u, &pivot);
        else
            factor_here(calibration, added, threads, u, scratch, &pivot);
        if (status != LAC_STATUS_OK || pivot == k) return status;
        lac_log(LAC_LOG_LEVEL_WARNING,
                "calibration: with a damping of %g the moments are singular at input %lld; ten times as much is tried", damping,
                (long long)pivot);
    }
    return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "calibration: its moments are singular even with a damping of %g",
                    damping / 10);
}

/* ---------------------------------------------------------------- the correction */

typedef struct correct_state {
    const lac_obs *obs;
    const double *inverse; /* [count][count]: F of the step's columns */
    float *changes;        /* [n][BLOCK]: what later columns have to make up for */
    int64_t first, count, block_first, block_end;
} correct_state;

/* What stays of a step's weights once those that go are zero: t_K = w_K - F_KQ (F_QQ)^-1 w_Q. `factor` holds the factor of F_QQ
 * of the set *last, which rows of a vector have in common. */
static void settle(const correct_state *s, const float *w, uint64_t dropped, double *factor, uint64_t *last, double *target)
{
    int count = (int)s->count, size = 0, index[LAC_OBS_STEP_MOST];
    double y[LAC_OBS_STEP_MOST];
    for (int i = 0; i < count; i++)
        if (dropped >> i & 1) index[size++] = i;
    for (int i = 0; i < count; i++) target[i] = dropped >> i & 1 ? 0 : w[i];
    if (size == 0 || size == count) return;
    if (*last != dropped) {
        for (int i = 0; i < size; i++)
            for (int j = 0; j <= i; j++) factor[i * size + j] = s->inverse[index[i] * count + index[j]];
        if (!lac_linear_cholesky_small(factor, size, size)) { /* rounding: then later columns alone make up for it */
            *last = 0;
            return;
        }
        *last = dropped;
    }
    for (int i = 0; i < size; i++) y[i] = w[index[i]];
    lac_linear_solve_small(factor, size, size, y);
    for (int c = 0; c < count; c++) {
        if (dropped >> c & 1) continue;
        for (int i = 0; i < size; i++) target[c] -= s->inverse[c * count + index[i]] * y[i];
    }
}

static void correct_rows(void *state, int thread, int64_t task)
{
    const correct_state *s = state;
    const lac_obs *obs = s->obs;
    double *factor = obs->scratch + thread * obs->scratch_count; /* [count][count] */
    uint64_t last = 0;
    for (int64_t r = task * TASK_ROWS; r < lac_smaller((task + 1) * TASK_ROWS, obs->n); r++) {
        float *w = obs->w + r * obs->k, *change = s->changes + r * BLOCK;
        double target[LAC_OBS_STEP_MOST];
        uint64_t dropped = 0;
        for (int64_t c = 0; c < s->count; c++)
            if (!lac_mask_test(obs->mask, r, s->first + c)) dropped |= UINT64_C(1) << c;
        settle(s, w + s->first, dropped, factor, &last, target);
        for (int64_t c = 0; c < s->count; c++) {
            int64_t j = s->first + c;
            const float *u = obs->u + j * obs->k;
            float moved = (w[j] - (float)target[c]) / u[j];
            change[j - s->block_first] = moved;
            w[j] = (float)target[c];
            if (moved == 0) continue;
            obs->losses[r] += (double)moved * (double)moved; /* U H U^T is the identity: changes add up squared */
            for (int64_t l = j + 1; l < s->block_end; l++) w[l] -= moved * u[l];
        }
    }
}

static void correct_step(lac_obs *obs, int64_t first, int64_t count, int64_t block_first, int64_t block_end, float *changes)
{
    correct_state s = {.obs = obs,
                       .inverse = obs->inverse,
                       .changes = changes,
                       .first = first,
                       .count = count,
                       .block_first = block_first,
                       .block_end = block_end};
    lac_obs_inverse(obs, first, first, count, obs->inverse);
    int64_t tasks = (obs->n + TASK_ROWS - 1) / TASK_ROWS;
    lac_parallel_for_each(tasks, (int)lac_smaller(obs->threads, tasks), correct_rows, &s);
}

/* Passes what a block changed on to all columns after it. */
static lac_status pass_on(lac_obs *obs, lac_obs_device *gpu, int64_t first, int64_t end, const float *changes)
{
    if (gpu) return lac_obs_device_pass_on(gpu, first, end, changes);
    lac_product later = {.rows = obs->n,
                         .cols = obs->k - end,
                         .depth = end - first,
                         .alpha = -1,
                         .a = changes,
                         .lda = BLOCK,
                         .b = obs->u + first * obs->k + end,
                         .ldb = obs->k,
                         .c = obs->w + end,
                         .ldc = obs->k,
                         .threads = obs->threads};
    lac_linear_multiply(&later);
    return LAC_STATUS_OK;
}

/* All columns, from left to right. A block begins where a group does, so that a group is chosen by weights that know of all changes
 * before it; several small groups share a block, a large one has several. */
static lac_status sweep(lac_obs *obs, lac_obs_device *gpu, float *changes)
{
    const lac_geometry *g = &obs->geometry;
    int64_t group = g->is_free ? 0 : g->group_m * g->unit_k;
    int64_t span = group == 0 || group > BLOCK ? BLOCK : BLOCK / group * group;
    int64_t step = group > 0 && group <= LAC_OBS_STEP_MOST ? group : LAC_OBS_STEP_FREE;
    int64_t selected = g->is_free ? obs->k : 0; /* columns whose mask is known */
    lac_status status = gpu ? lac_obs_device_begin(gpu, obs->w) : LAC_STATUS_OK;
    memset(obs->losses, 0, (size_t)obs->n * sizeof *obs->losses);
    for (int64_t first = 0, end; first < obs->k && status == LAC_STATUS_OK; first = end) {
        end = lac_smaller(first + span, obs->k);
        if (group > BLOCK) end = lac_smaller(end, (first / group + 1) * group);
        if (gpu) { /* a group that is chosen here may be wider than the block */
            int64_t seen = first < selected ? end : lac_smaller(first + (group > span ? group : span), obs->k);
            status = lac_obs_device_fetch(gpu, first, seen - first, obs->threads, obs->w);
        }
        /* Blocks of a free distribution are chosen anew where these columns are whole ones. */
        bool whole = first % g->unit_k == 0 && (end % g->unit_k == 0 || end == obs->k);
        if (status == LAC_STATUS_OK && g->is_free && whole && lac_obs_blocks_are_joint(g, end - first))
            status = lac_obs_select_blocks(obs, first, end - first, true);
        for (int64_t c = first, next; c < end && status == LAC_STATUS_OK; c = next) {
            if (c >= selected) {
                int64_t wide = lac_smaller(group, obs->k - c);
                status = lac_obs_select_group(obs, c, wide);
                if (status != LAC_STATUS_OK) return status;
                selected = c + wide;
            }
            next = lac_smaller(lac_smaller(c + step, end), selected);
            if (g->is_free) lac_obs_select_step(obs, c, next - c);
            correct_step(obs, c, next - c, first, end, changes);
        }
        if (status == LAC_STATUS_OK) status = pass_on(obs, gpu, first, end, changes);
    }
    return status;
}

/* ---------------------------------------------------------------- free distributions */

/* The best that was found of each row group so far. */
typedef struct best_rows {
    float *original, *w; /* [n][k] */
    double *losses;      /* [n] */
    lac_mask *mask;
} best_rows;

static double loss_of_rows(const double *losses, int64_t first, int64_t rows)
{
    double sum = 0;
    for (int64_t r = first; r < first + rows; r++) sum += losses[r];
    return sum;
}

/* Takes the row groups over that came out better; `whole`: all or none, since the groups of the two differ. */
static void take_better(const lac_obs *obs, bool whole, best_rows *best)
{
    int64_t rows = whole ? obs->n : obs->geometry.unit_n;
    for (int64_t first = 0; first < obs->n; first += rows) {
        int64_t count = lac_smaller(rows, obs->n - first);
        if (!(loss_of_rows(obs->losses, first, count) < loss_of_rows(best->losses, first, count))) continue;
        memcpy(best->w + first * obs->k, obs->w + first * obs->k, (size_t)(count * obs->k) * sizeof *best->w);
        memcpy(best->losses + first, obs->losses + first, (size_t)count * sizeof *best->losses);
        memcpy(lac_mask_row_writable(best->mask, first), lac_mask_row(obs->mask, first),
               (size_t)(count * obs->mask->words) * 8);
        if (whole) memcpy(best->mask->row_perm, obs->mask->row_perm, (size_t)obs->n * sizeof *best->mask->row_perm);
    }
}

/* The first that was found is the best so far. One of shuffled rows that stand in order says so. */
static lac_status take_first(lac_obs *obs, best_rows *best)
{
    best->mask = obs->mask;
    obs->mask = NULL;
    memcpy(best->w, obs->w, (size_t)(obs->n * obs->k) * sizeof *best->w);
    memcpy(best->losses, obs->losses, (size_t)obs->n * sizeof *best->losses);
    if (obs->pattern.family != LAC_FAMILY_SHUFFLED) return LAC_STATUS_OK;
    uint64_t bytes = (uint64_t)obs->n * sizeof *best->mask->row_perm;
    best->mask->pattern = obs->pattern;
    best->mask->row_perm = lac_allocate(bytes);
    if (!best->mask->row_perm) return lac_fail_memory("the order of rows", bytes);
    for (int64_t r = 0; r < obs->n; r++) best->mask->row_perm[r] = (uint32_t)r;
    return LAC_STATUS_OK;
}

/* One way to share out, with the rows in order or, for patterns that may, shuffled. */
static lac_status sweep_share(lac_obs *obs, lac_obs_device *gpu, float *changes, lac_obs_share share, bool shuffled,
                              best_rows *best)
{
    if (best->mask) memcpy(obs->w, best->original, (size_t)(obs->n * obs->k) * sizeof *obs->w);
    lac_status status = lac_obs_select_all(obs, share, shuffled);
    if (status == LAC_STATUS_OK) status = sweep(obs, gpu, changes);
    if (status != LAC_STATUS_OK) return status;
    if (!best->mask) return take_first(obs, best);
    take_better(obs, shuffled, best);
    return LAC_STATUS_OK;
}

static lac_status sweep_best(lac_obs *obs, lac_obs_device *gpu, float *changes, best_rows *best)
{
    size_t bytes = (size_t)(obs->n * obs->k) * sizeof(float);
    memcpy(best->original, obs->w, bytes);
    for (int shuffled = 0; shuffled <= (obs->pattern.family == LAC_FAMILY_SHUFFLED); shuffled++) {
        for (int share = 0; share < LAC_OBS_SHARES; share++) {
            /* Even shares know no order of rows, and nothing of an earlier step of a schedule. */
            if (!(LAC_OBS_SHARES_TRIED >> share & 1) || (share == LAC_OBS_SHARE_EVEN && (shuffled || obs->within))) continue;
            lac_status status = sweep_share(obs, gpu, changes, (lac_obs_share)share, shuffled, best);
            if (status != LAC_STATUS_OK) return status;
        }
    }
    memcpy(obs->w, best->w, bytes);
    lac_mask_free(obs->mask);
    obs->mask = best->mask;
    best->mask = NULL;
    return LAC_STATUS_OK;
}

/* ---------------------------------------------------------------- the whole */

static lac_status read_weights(const lac_matrix *dense, float *w)
{
    for (int64_t r = 0; r < dense->rows; r++) {
        lac_load_run_f32(dense->data, dense->dtype, lac_matrix_at(dense, r, 0), lac_matrix_col_stride(dense), dense->cols,
                         w + r * dense->cols);
        for (int64_t c = 0; c < dense->cols; c++)
            if (!isfinite(w[r * dense->cols + c]))
                return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                                "dense: W[%lld][%lld] is %g; second-order pruning needs finite weights", (long long)r,
                                (long long)c, (double)w[r * dense->cols + c]);
    }
    return LAC_STATUS_OK;
}

/* The blocks of memory that a layer takes, allocated together so that one failure frees all. */
typedef struct obs_memory {
    float *w, *u, *scores, *changes, *scratch;
    double *threads, *inverse, *losses;
    best_rows best;
} obs_memory;

static void release(obs_memory *m)
{
    lac_release(m->w);
    lac_release(m->u);
    lac_release(m->scores);
    lac_release(m->changes);
    lac_release(m->scratch);
    lac_release(m->threads);
    lac_release(m->inverse);
    lac_release(m->losses);
    lac_release(m->best.original);
    lac_release(m->best.w);
    lac_release(m->best.losses);
    lac_mask_free(m->best.mask);
}

static lac_status reserve(const char *what, int64_t rows, int64_t cols, size_t element, void *out)
{
    uint64_t bytes = UINT64_MAX;
    void *block = lac_multiply_u64((uint64_t)rows * element, (uint64_t)cols, &bytes) ? lac_allocate(bytes) : NULL;
    if (!block) return lac_fail_memory(what, bytes);
    memcpy(out, &block, sizeof block);
    return LAC_STATUS_OK;
}

static int64_t widest_group(const lac_geometry *g)
{
    return g->is_free ? 0 : lac_smaller((int64_t)g->group_m * g->unit_k, g->k);
}

static lac_status reserve_all(const lac_obs *obs, obs_memory *m)
{
    const lac_geometry *g = &obs->geometry;
    int64_t wide = g->is_free ? g->k : widest_group(g);
    lac_status status = reserve("the weights", g->n, g->k, sizeof(float), &m->w);
    if (status == LAC_STATUS_OK && !m->u) status = reserve("the factor of the moments", g->k, g->k, sizeof(float), &m->u);
    if (status == LAC_STATUS_OK) status = reserve("scores", g->n, wide, sizeof(float), &m->scores);
    if (status == LAC_STATUS_OK) status = reserve("changes", g->n, BLOCK, sizeof(float), &m->changes);
    if (status == LAC_STATUS_OK) status = reserve("a block of rows", LAC_LINEAR_BLOCK, g->k, sizeof(float), &m->scratch);
    if (status == LAC_STATUS_OK) status = reserve("scratch", obs->threads, obs->scratch_count, sizeof(double), &m->threads);
    if (status == LAC_STATUS_OK)
        status = reserve("the inverse of a step", LAC_OBS_STEP_MOST, LAC_OBS_STEP_MOST, sizeof(double), &m->inverse);
    if (status == LAC_STATUS_OK) status = reserve("losses", g->n, 1, sizeof(double), &m->losses);
    if (status != LAC_STATUS_OK || !g->is_free) return status;
    status = reserve("the weights", g->n, g->k, sizeof(float), &m->best.original);
    if (status == LAC_STATUS_OK) status = reserve("the weights", g->n, g->k, sizeof(float), &m->best.w);
    if (status == LAC_STATUS_OK) status = reserve("losses", g->n, 1, sizeof(double), &m->best.losses);
    return status;
}

lac_status lac_prune_obs(const lac_prune_job *job, const lac_prune_options *options, const lac_matrix *corrected,
                         lac_mask **out)
{
    const lac_matrix *dense = &job->source.matrix;
    bool on_gpu = options->device && options->device->info.kind == LAC_DEVICE_KIND_CUDA;
    lac_obs_factor *kept = on_gpu ? NULL : job->factor; /* a GPU has it in its own memory, and makes it quickly */
    lac_obs obs = {
        .n = dense->rows, .k = dense->cols, .pattern = job->pattern, .geometry = job->geometry, .within = job->within};
    obs_memory memory = {.u = kept ? kept->u : NULL};
    bool factored = memory.u != NULL;
    lac_obs_device *gpu = NULL;
    obs.threads = lac_parallel_threads(job->threads, obs.n);
    obs.scratch_count = lac_obs_select_scratch(&obs);
    if (obs.scratch_count < LAC_OBS_STEP_MOST * LAC_OBS_STEP_MOST) obs.scratch_count = LAC_OBS_STEP_MOST * LAC_OBS_STEP_MOST;
    lac_status status = reserve_all(&obs, &memory);
    if (status == LAC_STATUS_OK) status = lac_mask_create(obs.n, obs.k, &obs.pattern, &obs.mask);
    if (status == LAC_STATUS_OK) status = read_weights(dense, memory.w);
    if (status == LAC_STATUS_OK && on_gpu && obs.n > 0 && obs.k > 0)
        status = lac_obs_device_open(options->device, obs.n, obs.k, BLOCK, widest_group(&obs.geometry), &gpu);
    if (status == LAC_STATUS_OK && !factored)
        status = factor_moments(options->calibration, options->damping, gpu, obs.threads, memory.u, memory.scratch);
    if (status == LAC_STATUS_OK && kept) kept->u = memory.u, factored = true;
    obs.moments = options->calibration->moments;
    obs.w = memory.w, obs.u = memory.u, obs.scores = memory.scores, obs.scratch = memory.threads, obs.inverse = memory.inverse;
    obs.losses = memory.losses;
    if (status == LAC_STATUS_OK)
        status = obs.geometry.is_free ? sweep_best(&obs, gpu, memory.changes, &memory.best) : sweep(&obs, gpu, memory.changes);
    lac_obs_device_close(gpu);
    lac_matrix made = {.data = memory.w, .dtype = LAC_DTYPE_F32, .rows = obs.n, .cols = obs.k, .ld = obs.k};
    if (status == LAC_STATUS_OK) status = lac_prune_check_range(&made, NULL, corrected->dtype);
    if (status == LAC_STATUS_OK)
        for (int64_t r = 0; r < obs.n; r++)
            for (int64_t c = 0; c < obs.k; c++)
                lac_store_f64(corrected->data, corrected->dtype, lac_matrix_at(corrected, r, c), memory.w[r * obs.k + c]);
    if (factored) memory.u = NULL; /* its owner's */
    release(&memory);
    if (status != LAC_STATUS_OK) {
        lac_mask_free(obs.mask);
        return status;
    }
    *out = obs.mask;
    return LAC_STATUS_OK;
}
