/* obs_select.c - which weights second-order pruning lets go. A set Q of a row's weights costs w_Q^T (F_QQ)^-1 w_Q, where F is the
 * inverse of the inputs' moments: the error that stays after all others have made up for it as well as they can.
 *
 * Element- and vector-wise groups of up to 32 inputs: every set of groups of up to 8, else one input after the other, always the
 * cheapest, with weights and F brought up to date in between. Wider groups, blocks and V:N:M: each unit by its own cost, and then
 * the choice by score that lac_prune makes. Blocks: obs_blocks.c. Free distributions: first how many inputs of each step a row group
 * keeps, in one of three ways (lac_obs_share); which ones is decided one by one when the step is reached. Called by obs.c. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/arithmetic.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "prune/linear.h"
#include "prune/obs.h"

/* 4 of 8; and doubles of the inverses of as many sets: 56 of 5 x 5, for 3 of 8, are the most. */
enum { SETS_MOST = 70, SET_DOUBLES = 1400 };

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

static void set_bits(lac_mask *mask, int64_t row, int64_t first, int64_t count, uint64_t kept)
{
    uint64_t *words = lac_mask_row_writable(mask, row);
    for (int64_t c = 0; c < count; c++) {
        int64_t at = first + c;
        uint64_t bit = UINT64_C(1) << (at & 63);
        words[at >> 6] = kept >> c & 1 ? words[at >> 6] | bit : words[at >> 6] & ~bit;
    }
}

/* ---------------------------------------------------------------- every set */

typedef struct joint_state {
    lac_obs *obs;
    const uint32_t *perm;  /* [n]: the rows in the order of row groups, or NULL when that is theirs */
    const double *inverse; /* [count][count] */
    int64_t first;
    int count, kept;             /* kept < 0: as many as the mask keeps now */
    int sets;                    /* 0: one after the other */
    uint64_t dropped[SETS_MOST]; /* bits of the inputs that a set lets go */
    const double *set_inverse;   /* [sets][size][size]: the inverse of F_QQ */
} joint_state;

static int64_t choices(int m, int n, int64_t limit)
{
    int64_t result = 1;
    for (int i = 1; i <= n; i++) {
        result = result * (m - n + i) / i;
        if (result > limit) return limit + 1;
    }
    return result;
}

/* All sets of `size` of `count` inputs, those that drop the last inputs first: among equals the lower input stays. */
static int list_sets(int count, int size, uint64_t *sets)
{
    int found = 0;
    for (uint64_t set = (UINT64_C(1) << count) - 1; set > 0; set--)
        if (__builtin_popcountll(set) == size) sets[found++] = set;
    return found;
}

static void gather_indices(uint64_t set, int *index)
{
    for (int i = 0; set; set &= set - 1) index[i++] = __builtin_ctzll(set);
}

/* inverse(F_QQ) of each set, by solving for the columns of the identity. */
static bool invert_sets(const joint_state *s, double *out)
{
    int size = s->count - s->kept, index[LAC_OBS_JOINT_MOST];
    for (int q = 0; q < s->sets; q++) {
        double factor[8 * 8], *to = out + q * size * size;
        gather_indices(s->dropped[q], index);
        for (int i = 0; i < size; i++)
            for (int j = 0; j < size; j++) factor[i * size + j] = s->inverse[index[i] * s->count + index[j]];
        if (!lac_linear_cholesky_small(factor, size, size)) return false;
        for (int c = 0; c < size; c++) {
            for (int i = 0; i < size; i++) to[c * size + i] = i == c;
            lac_linear_solve_small(factor, size, size, to + c * size);
        }
    }
    return true;
}

static int64_t row_of(const joint_state *s, int64_t i) { return s->perm ? s->perm[i] : i; }

/* The inputs that an earlier step let go in all of these rows. */
static uint64_t gone_before(const joint_state *s, int64_t row, int64_t rows)
{
    const lac_mask *within = s->obs->within;
    uint64_t gone = within ? (UINT64_C(1) << s->count) - 1 : 0;
    for (int64_t r = row; r < row + rows && gone; r++)
        for (uint64_t left = gone; left; left &= left - 1) {
            int c = __builtin_ctzll(left);
            if (lac_mask_test(within, row_of(s, r), s->first + c)) gone &= ~(UINT64_C(1) << c);
        }
    return gone;
}

static uint64_t cheapest_set(const joint_state *s, int64_t row, int64_t rows, uint64_t gone)
{
    bool more = __builtin_popcountll(gone) > s->count - s->kept; /* then some of them come back, as zeros */
    int size = s->count - s->kept, best = -1;
    double least = INFINITY;
    for (int q = 0; q < s->sets; q++) {
        int index[LAC_OBS_JOINT_MOST];
        double cost = 0;
        if ((s->dropped[q] & gone) != (more ? s->dropped[q] : gone)) continue;
        gather_indices(s->dropped[q], index);
        for (int64_t r = row; r < row + rows; r++) {
            const float *w = s->obs->w + r * s->obs->k + s->first;
            const double *inverse = s->set_inverse + q * size * size;
            for (int i = 0; i < size; i++) {
                double sum = 0;
                for (int j = 0; j < size; j++) sum += inverse[i * size + j] * w[index[j]];
                cost += sum * w[index[i]];
            }
        }
        if (cost < least || best < 0) least = cost, best = q;
    }
    return s->dropped[best];
}

/* ---------------------------------------------------------------- one after the other */

/* The input of `choice` that is cheapest to let go, the last among equals; its row of F goes out of that of all that are `left`. */
static int eliminate(double *inverse, double *w, int count, int64_t rows, uint64_t left, uint64_t choice)
{
    int best = -1;
    double least = INFINITY;
    for (int i = count - 1; i >= 0; i--) {
        if (!(choice >> i & 1)) continue;
        double sum = 0;
        for (int64_t r = 0; r < rows; r++) sum += w[r * count + i] * w[r * count + i];
        double cost = sum / inverse[i * count + i];
        if (cost < least || best < 0) least = cost, best = i;
    }
    double pivot = inverse[best * count + best];
    for (int64_t r = 0; r < rows; r++) {
        double factor = w[r * count + best] / pivot;
        for (int j = 0; j < count; j++) w[r * count + j] -= factor * inverse[best * count + j];
    }
    for (int i = 0; i < count; i++) {
        if (i == best || !(left >> i & 1)) continue;
        double factor = inverse[i * count + best] / pivot;
        for (int j = 0; j < count; j++)
            if (j != best) inverse[i * count + j] -= factor * inverse[best * count + j];
    }
    return best;
}

static uint64_t drop_one_by_one(const joint_state *s, int64_t row, int64_t rows, int kept, uint64_t gone, double *scratch)
{
    int count = s->count;
    double *inverse = scratch, *w = scratch + count * count; /* [rows][count] */
    memcpy(inverse, s->inverse, (size_t)(count * count) * sizeof *inverse);
    for (int64_t r = 0; r < rows; r++)
        for (int c = 0; c < count; c++) w[r * count + c] = s->obs->w[row_of(s, row + r) * s->obs->k + s->first + c];
    uint64_t left = (UINT64_C(1) << count) - 1, dropped = 0;
    for (int i = kept; i < count; i++) {
        uint64_t bit = UINT64_C(1) << eliminate(inverse, w, count, rows, left, left & gone ? left & gone : left);
        dropped |= bit;
        left &= ~bit;
    }
    return dropped;
}

static int kept_now(const joint_state *s, int64_t row)
{
    int kept = 0;
    for (int c = 0; c < s->count; c++) kept += lac_mask_test(s->obs->mask, row, s->first + c);
    return kept;
}

static void select_joint(void *state, int thread, int64_t group)
{
    const joint_state *s = state;
    const lac_geometry *g = &s->obs->geometry;
    int64_t row = group * g->unit_n, rows = lac_geometry_rows(g, group);
    double *scratch = s->obs->scratch + thread * s->obs->scratch_count;
    int kept = s->kept < 0 ? kept_now(s, row_of(s, row)) : s->kept;
    uint64_t gone = gone_before(s, row, rows);
    uint64_t dropped = s->sets ? cheapest_set(s, row, rows, gone) : drop_one_by_one(s, row, rows, kept, gone, scratch);
    for (int64_t r = row; r < row + rows; r++) set_bits(s->obs->mask, row_of(s, r), s->first, s->count, ~dropped);
}

void lac_obs_select_step(lac_obs *obs, int64_t first, int64_t count)
{
    double inverse[LAC_OBS_JOINT_MOST * LAC_OBS_JOINT_MOST];
    if (obs->geometry.unit_k > 1 || count > LAC_OBS_JOINT_MOST) return;
    joint_state s = {
        .obs = obs, .perm = obs->mask->row_perm, .inverse = inverse, .first = first, .count = (int)count, .kept = -1};
    lac_obs_inverse(obs, first, first, count, inverse);
    lac_parallel_for_each(obs->geometry.row_groups, (int)lac_smaller(obs->threads, obs->geometry.row_groups), select_joint, &s);
}

static void select_jointly(lac_obs *obs, int64_t first, int count)
{
    int kept = obs->geometry.group_n < count ? obs->geometry.group_n : count, size = count - kept;
    double inverse[LAC_OBS_JOINT_MOST * LAC_OBS_JOINT_MOST], set_inverse[SET_DOUBLES];
    joint_state s = {.obs = obs, .inverse = inverse, .first = first, .count = count, .kept = kept};
    lac_obs_inverse(obs, first, first, count, inverse);
    if (size > 0 && count <= 8 && choices(count, kept, SETS_MOST) <= SETS_MOST) {
        s.sets = list_sets(count, size, s.dropped);
        s.set_inverse = set_inverse;
        if (!invert_sets(&s, set_inverse)) s.sets = 0;
    }
    int64_t tasks = obs->geometry.row_groups;
    int threads = lac_parallel_threads_for(obs->threads, tasks, obs->n * count);
    lac_parallel_for_each(tasks, threads, select_joint, &s);
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

int64_t lac_obs_select_scratch(const lac_geometry *g)
{
    int64_t most = g->unit_k > 1 ? LAC_OBS_BLOCKS_MOST : LAC_OBS_JOINT_MOST, joint = most * (most + g->unit_n);
    return joint > g->unit_k ? joint : g->unit_k;
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
    for (int64_t r = 0; r < obs->n; r++)
        for (int64_t c = 0; c < count; c++)
            if (lac_mask_test(chosen, r, c)) lac_mask_set(obs->mask, r, first + c);
    lac_mask_free(chosen);
    return LAC_STATUS_OK;
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
