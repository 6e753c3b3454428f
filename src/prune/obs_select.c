/* obs_select.c - which weights second-order pruning lets go. A set Q of a row's weights costs w_Q^T (F_QQ)^-1 w_Q, where F is the
 * inverse of the inputs' moments: the error that stays after all others have made up for it as well as they can.
 *
 * Element- and vector-wise groups of up to 32 inputs: every set where they are few (obs_sets.c), else by exchanges (obs_exchange.c). V:N:M: each weight by its own
 * cost and the choice by score that lac_prune makes, and from there jointly (obs_vnm.c). Wider groups: by score alone. Blocks: obs_blocks.c.
 * Free distributions: first how many inputs of each step a row group keeps, in one of three ways (lac_obs_share); which ones is decided by exchanges when the
 * step is reached. Called by obs.c. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/arithmetic.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "prune/linear.h"
#include "prune/obs.h"

void lac_obs_inverse(const lac_obs *obs, int64_t from, int64_t first, int64_t count, double *out)
{
    int64_t k = obs->k;
    memset(out, 0, (size_t)(count * count) * sizeof *out);
    for (int64_t p = from; p < first + count; p++) {
        const float *row = obs->u + p * k + first;
        int64_t begin = p > first ? p - first : 0; /* u has zeros before its diagonal */
        for (int64_t i = begin; i < count; i++)
            for (int64_t j = begin; j <= i; j++) out[i * count + j] += (double)row[i] * row[j];
    }
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = i + 1; j < count; j++) out[i * count + j] = out[j * count + i];
}

/* ---------------------------------------------------------------- groups */

int64_t lac_obs_group_row(const lac_obs_group *g, int64_t i) { return g->perm ? g->perm[i] : i; }

uint64_t lac_obs_group_gone(const lac_obs_group *g, int64_t row, int64_t rows)
{
    const lac_mask *within = g->obs->within;
    uint64_t gone = within ? (UINT64_C(1) << g->count) - 1 : 0;
    for (int64_t r = row; r < row + rows && gone; r++)
        for (uint64_t left = gone; left; left &= left - 1) {
            int c = __builtin_ctzll(left);
            if (lac_mask_test(within, lac_obs_group_row(g, r), g->first + c)) gone &= ~(UINT64_C(1) << c);
        }
    return gone;
}

int lac_obs_group_kept(const lac_obs_group *g, int64_t group)
{
    int kept = 0;
    int64_t row = lac_obs_group_row(g, group * g->obs->geometry.unit_n);
    for (int c = 0; c < g->count; c++) kept += lac_mask_test(g->obs->mask, row, g->first + c);
    return kept;
}

void lac_obs_group_keep(const lac_obs_group *g, int64_t group, uint64_t kept)
{
    int64_t row = group * g->obs->geometry.unit_n, rows = lac_geometry_rows(&g->obs->geometry, group);
    for (int64_t r = row; r < row + rows; r++) {
        uint64_t *words = lac_mask_row_writable(g->obs->mask, lac_obs_group_row(g, r));
        for (int c = 0; c < g->count; c++) {
            int64_t at = g->first + c;
            uint64_t bit = UINT64_C(1) << (at & 63);
            words[at >> 6] = kept >> c & 1 ? words[at >> 6] | bit : words[at >> 6] & ~bit;
        }
    }
}

void lac_obs_moments(const lac_obs *obs, int64_t first, int count, double *v, double *out)
{
    for (int j = 0; j < count; j++)
        for (int i = j; i >= 0; i--) {
            const float *u = obs->u + (first + i) * obs->k + first;
            double sum = i == j;
            for (int p = i + 1; p <= j; p++) sum -= (double)u[p] * v[p * count + j];
            v[i * count + j] = sum / u[i];
        }
    for (int i = 0; i < count; i++)
        for (int j = i; j < count; j++) {
            double sum = 0;
            for (int p = j; p < count; p++) sum += v[i * count + p] * v[j * count + p];
            out[i * count + j] = out[j * count + i] = sum;
        }
}

void lac_obs_select_step(lac_obs *obs, int64_t first, int64_t count)
{
    double inverse[LAC_OBS_JOINT_MOST * LAC_OBS_JOINT_MOST], moments[LAC_OBS_JOINT_MOST * LAC_OBS_JOINT_MOST];
    double scratch[LAC_OBS_JOINT_MOST * LAC_OBS_JOINT_MOST];
    if (obs->geometry.unit_k > 1 || count > LAC_OBS_JOINT_MOST) return;
    lac_obs_group g = {.obs = obs,
                       .perm = obs->mask->row_perm,
                       .inverse = inverse,
                       .moments = moments,
                       .first = first,
                       .count = (int)count,
                       .kept = -1};
    lac_obs_inverse(obs, first, first, count, inverse);
    lac_obs_moments(obs, first, (int)count, scratch, moments);
    lac_obs_exchange_select(&g);
}

static void select_jointly(lac_obs *obs, int64_t first, int count)
{
    int kept = obs->geometry.group_n < count ? obs->geometry.group_n : count;
    double inverse[LAC_OBS_JOINT_MOST * LAC_OBS_JOINT_MOST], moments[LAC_OBS_JOINT_MOST * LAC_OBS_JOINT_MOST];
    double scratch[LAC_OBS_JOINT_MOST * LAC_OBS_JOINT_MOST];
    lac_obs_group g = {.obs = obs, .inverse = inverse, .moments = moments, .first = first, .count = count, .kept = kept};
    lac_obs_inverse(obs, first, first, count, inverse);
    lac_obs_moments(obs, first, count, scratch, moments);
    if (lac_obs_sets_are_few(count, kept, obs->geometry.unit_n))
        lac_obs_sets_select(&g);
    else
        lac_obs_exchange_select(&g);
}

/* ---------------------------------------------------------------- by score */

typedef struct score_state {
    const lac_obs *obs;
    bool alone;                 /* what a unit does by itself, not what it costs after the others made up for it */
    const double *factor;       /* [width][width]: L with L L^T = F of a unit, or H; [width] when units have one input */
    int64_t col, width, ld, to; /* columns of W; leading dimension and first column of the scores */
} score_state;

/* L^T w_Q: its squares add up to w_Q^T H_QQ w_Q. */
static void score_row_alone(void *state, int thread, int64_t row)
{
    const score_state *s = state;
    const float *w = s->obs->w + row * s->obs->k + s->col;
    float *out = s->obs->scores + row * s->ld + s->to;
    (void)thread;
    for (int64_t i = 0; i < s->width; i++) {
        double sum = 0;
        for (int64_t p = i; p < s->width; p++) sum += s->factor[p * s->width + i] * (double)w[p];
        out[i] = (float)sum;
    }
}

/* L^-1 w_Q: its squares add up to the unit's cost. */
static void score_row(void *state, int thread, int64_t row)
{
    const score_state *s = state;
    const float *w = s->obs->w + row * s->obs->k + s->col;
    float *out = s->obs->scores + row * s->ld + s->to;
    double *x = s->obs->scratch + thread * s->obs->scratch_count;
    for (int64_t i = 0; i < s->width; i++) {
        double sum = w[i];
        for (int64_t p = 0; p < i; p++) sum -= s->factor[i * s->width + p] * x[p];
        x[i] = sum / s->factor[i * s->width + i];
        out[i] = (float)x[i];
    }
}

/* Units of one input need the diagonal of F alone: one pass over the rows of u. */
static void diagonal_roots(const lac_obs *obs, int64_t from, int64_t first, int64_t count, double *out)
{
    memset(out, 0, (size_t)count * sizeof *out);
    for (int64_t p = from; p < first + count; p++) {
        const float *row = obs->u + p * obs->k + first;
        for (int64_t c = p > first ? p - first : 0; c < count; c++) out[c] += (double)row[c] * row[c];
    }
    for (int64_t c = 0; c < count; c++) out[c] = sqrt(out[c]);
}

static void score_inputs(void *state, int thread, int64_t row)
{
    const score_state *s = state;
    const float *w = s->obs->w + row * s->obs->k + s->col;
    float *out = s->obs->scores + row * s->ld;
    (void)thread;
    for (int64_t c = 0; c < s->width; c++) out[c] = (float)(s->alone ? w[c] * s->factor[c] : w[c] / s->factor[c]);
}

/* F of a unit, or its moments. */
static void unit_matrix(const lac_obs *obs, bool alone, int64_t from, int64_t first, int64_t width, double *out)
{
    if (!alone) {
        lac_obs_inverse(obs, from, first, width, out);
        return;
    }
    for (int64_t i = 0; i < width; i++)
        for (int64_t j = 0; j < width; j++) out[i * width + j] = (double)obs->moments[(first + i) * obs->k + first + j];
}

static void factor_unit(const lac_obs *obs, bool alone, int64_t from, int64_t first, int64_t width, double *factor)
{
    unit_matrix(obs, alone, from, first, width, factor);
    if (lac_linear_cholesky_small(factor, (int)width, (int)width)) return;
    /* Too near to singular: each input for itself. */
    unit_matrix(obs, alone, from, first, width, factor);
    for (int64_t i = 0; i < width; i++)
        for (int64_t j = 0; j <= i; j++) factor[i * width + j] = i == j ? sqrt(factor[i * width + i]) : 0;
}

void lac_obs_rank_within(float *scores, const lac_mask *within, int64_t first, int64_t count)
{
    for (int64_t r = 0; r < within->n; r++)
        for (int64_t c = 0; c < count; c++) {
            float *score = scores + r * count + c;
            if (!lac_mask_test(within, r, first + c))
                *score = 0;
            else if (fabsf(*score) < FLT_MIN)
                *score = FLT_MIN;
        }
}

/* Scores of all units in columns [first, first + count), with the inputs before `from` settled or each unit `alone`, and lac_prune's choice by
 * them under `pattern`. */
static lac_status select_by_score(lac_obs *obs, const lac_pattern *pattern, bool alone, int64_t from, int64_t first,
                                  int64_t count, lac_mask **out)
{
    int64_t unit_k = obs->geometry.unit_k;
    uint64_t bytes = (uint64_t)(unit_k == 1 ? count : unit_k * unit_k) * sizeof(double);
    double *factor = lac_allocate(bytes);
    if (!factor) return lac_fail_memory("the moments of a unit", bytes);
    score_state s = {.obs = obs, .alone = alone, .factor = factor, .col = first, .width = count, .ld = count};
    if (unit_k == 1) {
        if (alone)
            for (int64_t c = 0; c < count; c++) factor[c] = sqrt((double)obs->moments[(first + c) * (obs->k + 1)]);
        else
            diagonal_roots(obs, from, first, count, factor);
        lac_parallel_for_each(obs->n, lac_parallel_threads_for(obs->threads, obs->n, obs->n * count), score_inputs, &s);
    } else {
        for (s.col = first; s.col < first + count; s.col += unit_k) {
            s.width = unit_k < first + count - s.col ? unit_k : first + count - s.col;
            s.to = s.col - first;
            factor_unit(obs, alone, from, s.col, s.width, factor);
            lac_parallel_for_each(obs->n, lac_parallel_threads_for(obs->threads, obs->n, obs->n * s.width),
                                  alone ? score_row_alone : score_row, &s);
        }
    }
    lac_release(factor);
    if (obs->within) lac_obs_rank_within(obs->scores, obs->within, first, count);
    lac_matrix matrix = {.data = obs->scores, .dtype = LAC_DTYPE_F32, .rows = obs->n, .cols = count};
    lac_prune_options options = {.size = sizeof options, .threads = obs->threads};
    return lac_prune(&matrix, pattern, &options, out);
}

/* Whether the choice by cost of a V:N:M group so wide is improved on. What an earlier step let go scores nothing: that choice knows it. */
static bool improves_vnm(const lac_obs *obs, int64_t count)
{
    return obs->pattern.family == LAC_FAMILY_VNM && !obs->within && count <= LAC_OBS_VNM_MOST;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t lac_obs_select_scratch(const lac_obs *obs)
{
    const lac_geometry *g = &obs->geometry;
    if (g->unit_k > 1) return larger(LAC_OBS_BLOCKS_MOST * (LAC_OBS_BLOCKS_MOST + g->unit_n), g->unit_k);
    if (obs->pattern.family == LAC_FAMILY_VNM) return lac_obs_vnm_scratch(g);
    return larger(lac_obs_sets_scratch(g), lac_obs_exchange_scratch(g));
}

lac_status lac_obs_select_group(lac_obs *obs, int64_t first, int64_t count)
{
    bool joint = obs->geometry.unit_k == 1 && obs->pattern.family != LAC_FAMILY_VNM && count <= LAC_OBS_JOINT_MOST;
    if (joint) {
        select_jointly(obs, first, (int)count);
        return LAC_STATUS_OK;
    }
    if (lac_obs_blocks_are_joint(&obs->geometry, count)) return lac_obs_select_blocks(obs, first, count, false);
    lac_mask *chosen = NULL;
    lac_status status = select_by_score(obs, &obs->pattern, false, first, first, count, &chosen);
    if (status != LAC_STATUS_OK) return status;
    if (improves_vnm(obs, count))
        status = lac_obs_select_vnm(obs, first, (int)count, chosen);
    else
        for (int64_t r = 0; r < obs->n; r++)
            for (int64_t c = 0; c < count; c++)
                if (lac_mask_test(chosen, r, c)) lac_mask_set(obs->mask, r, first + c);
    lac_mask_free(chosen);
    return status;
}

/* The same share of every stretch of a row group: the first units of it, for now. */
static lac_status select_evenly(const lac_obs *obs, lac_mask **out)
{
    const lac_geometry *g = &obs->geometry;
    lac_status status = lac_mask_create(obs->n, obs->k, &obs->pattern, out);
    for (int64_t u = 0; status == LAC_STATUS_OK && u < g->units; u++) {
        if (g->selected * (u + 1) / g->units == g->selected * u / g->units) continue;
        for (int64_t r = 0; r < obs->n; r++)
            for (int64_t c = 0; c < lac_geometry_inputs(g, u); c++) lac_mask_set(*out, r, u * g->unit_k + c);
    }
    return status;
}

lac_status lac_obs_select_all(lac_obs *obs, lac_obs_share share, bool shuffled)
{
    lac_mask *chosen = NULL;
    lac_pattern pattern = obs->pattern;
    if (pattern.family == LAC_FAMILY_SHUFFLED && !shuffled) pattern.family = LAC_FAMILY_VECTOR;
    lac_status status = share == LAC_OBS_SHARE_EVEN
                            ? select_evenly(obs, &chosen)
                            : select_by_score(obs, &pattern, share == LAC_OBS_SHARE_EFFECT, 0, 0, obs->k, &chosen);
    if (status != LAC_STATUS_OK) return status;
    lac_mask_free(obs->mask);
    obs->mask = chosen;
    return LAC_STATUS_OK;
}
