/* obs_exchange.c - second-order pruning chooses what goes of a group that has too many sets to price each (obs_sets.c): inputs go, or come, one after the other, always the best, and then
 * one that stays and one that went change places as long as that gains.
 *
 * All prices are read off a tableau T, symmetric, over the group's inputs, with what goes (Q) swept out of F: T_QQ = -(F_QQ)^-1, T_KQ = F_KQ (F_QQ)^-1,
 * T_KK = F_KK - F_KQ (F_QQ)^-1 F_QK; and beside it, of every row, y_K = w_K - F_KQ (F_QQ)^-1 w_Q, the weights that stay as they would be, and y_Q = (F_QQ)^-1 w_Q. Then
 *
 *     one more goes, k:      y_k^2 / T_kk                       one comes back, q:      y_q^2 / T_qq, which is negative
 *     k for q, both at once: y_q^2 / T_qq + (y_k - g y_q)^2 / (T_kk - g T_kq),  g = T_kq / T_qq
 *
 * One sweep brings T and y up to date. Nothing went: T = F, y = w. All went: T = -A, y = A w, with A = F^-1. Both are begun with, and what lost less is taken: so it never loses more
 * than letting one after the other go.
 * Rows of a vector add up their prices; of them only R = sum of y y^T is known. Called by obs_select.c and obs_sets.c. */
#include <math.h>
#include <string.h>

#include "core/arithmetic.h"
#include "core/parallel.h"
#include "prune/obs.h"

/* An exchange must gain so much of what is lost, so that rounding cannot lead in circles; and no more than so many for each input. */
#define LEAST_GAIN 1e-9
enum { EXCHANGES_PER_INPUT = 2 };

typedef struct tableau {
    int count;
    bool vectors;
    uint64_t dropped;
    double lost;
    double *t; /* [count][count] */
    double *y; /* [count], or R [count][count] */
} tableau;

static double product(const tableau *s, int i, int j) { return s->vectors ? s->y[i * s->count + j] : s->y[i] * s->y[j]; }
static bool is_dropped(const tableau *s, int i) { return s->dropped >> i & 1; }

/* What letting input i go, or having it back, adds to what is lost. Where rounding left no pivot: what goes last, and comes back last. */
static double price(const tableau *s, int i)
{
    double pivot = s->t[i * s->count + i];
    if (is_dropped(s, i)) return pivot < 0 ? product(s, i, i) / pivot : 0;
    return pivot > 0 ? product(s, i, i) / pivot : INFINITY;
}

/* Input p goes, or comes back. */
static void sweep(tableau *s, int p)
{
    int count = s->count;
    double *t = s->t, *y = s->y, pivot = t[p * count + p], sign = is_dropped(s, p) ? -1 : 1, ratio[LAC_OBS_JOINT_MOST];
    bool sound = sign * pivot > 0;
    if (sound) s->lost += price(s, p);
    s->dropped ^= UINT64_C(1) << p;
    if (!sound) return;
    for (int j = 0; j < count; j++) ratio[j] = j == p ? 0 : t[p * count + j] / pivot;
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) t[i * count + j] -= ratio[i] * t[p * count + j];
    for (int j = 0; j < count; j++) t[p * count + j] = t[j * count + p] = sign * ratio[j];
    t[p * count + p] = -1 / pivot;
    if (!s->vectors) {
        for (int j = 0; j < count; j++) y[j] -= ratio[j] * y[p];
        y[p] *= sign / pivot;
        return;
    }
    double row[LAC_OBS_JOINT_MOST], own = y[p * count + p];
    for (int j = 0; j < count; j++) row[j] = y[p * count + j] - ratio[j] * own;
    for (int i = 0; i < count; i++) {
        double with = y[i * count + p];
        for (int j = 0; i != p && j < count; j++) y[i * count + j] -= ratio[i] * row[j] + ratio[j] * with;
    }
    for (int j = 0; j < count; j++) y[p * count + j] = y[j * count + p] = row[j] * sign / pivot;
    y[p * count + p] = own / (pivot * pivot);
}

/* The cheapest of `choice` goes, or comes back; among equals the lower stays. */
static void move_best(tableau *s, uint64_t choice)
{
    int best = -1;
    double least = INFINITY;
    for (int i = 0; i < s->count; i++) {
        if (!(choice >> i & 1)) continue;
        double cost = price(s, i);
        if (best < 0 || cost < least || (cost == least && !is_dropped(s, i))) least = cost, best = i;
    }
    sweep(s, best);
}

/* The best exchange among `choice`; false when none gains. */
static bool exchange(tableau *s, uint64_t choice)
{
    int count = s->count, in = -1, out = -1;
    double most = -LEAST_GAIN * s->lost;
    for (uint64_t back = choice & s->dropped; back; back &= back - 1) {
        int q = __builtin_ctzll(back);
        const double *t = s->t + q * count;
        if (!(t[q] < 0)) continue;
        double own = product(s, q, q), gained = own / t[q];
        for (uint64_t left = choice & ~s->dropped; left; left &= left - 1) {
            int k = __builtin_ctzll(left);
            double g = t[k] / t[q], pivot = s->t[k * count + k] - g * t[k];
            if (!(pivot > 0)) continue;
            double change = gained + (product(s, k, k) - g * (2 * product(s, q, k) - g * own)) / pivot;
            if (change < most) most = change, in = q, out = k;
        }
    }
    if (in < 0) return false;
    sweep(s, in);
    sweep(s, out);
    return true;
}

/* Nothing went yet, or all. */
static void begin(const lac_obs_group *g, int64_t row, int64_t rows, bool all_went, tableau *s)
{
    int count = g->count;
    s->dropped = all_went ? (UINT64_C(1) << count) - 1 : 0;
    s->lost = 0;
    for (int i = 0; i < count * count; i++) s->t[i] = all_went ? -g->moments[i] : g->inverse[i];
    if (s->vectors) memset(s->y, 0, (size_t)(count * count) * sizeof *s->y);
    for (int64_t r = row; r < row + rows; r++) {
        const float *w = g->obs->w + lac_obs_group_row(g, r) * g->obs->k + g->first;
        double y[LAC_OBS_JOINT_MOST];
        for (int i = 0; i < count; i++) {
            double sum = 0;
            for (int j = 0; all_went && j < count; j++) sum += g->moments[i * count + j] * w[j];
            y[i] = all_went ? sum : w[i];
            if (all_went) s->lost += y[i] * w[i];
            if (!s->vectors) s->y[i] = y[i];
        }
        for (int i = 0; s->vectors && i < count; i++)
            for (int j = 0; j < count; j++) s->y[i * count + j] += y[i] * y[j];
    }
}

int64_t lac_obs_exchange_scratch(const lac_geometry *g)
{
    return LAC_OBS_JOINT_MOST * (LAC_OBS_JOINT_MOST + (g->unit_n > 1 ? LAC_OBS_JOINT_MOST : 1));
}

/* From nothing went, one goes after the other, or from all went, one comes back after the other, until `size` are out; then exchanges. */
static void search(const lac_obs_group *g, int64_t row, int64_t rows, bool all_went, int size, tableau *s)
{
    uint64_t all = (UINT64_C(1) << g->count) - 1, gone = lac_obs_group_gone(g, row, rows);
    bool more = __builtin_popcountll(gone) > size; /* then some of them come back, as zeros, and nothing else goes */
    uint64_t choice = more ? gone : all & ~gone, settled = all & ~choice;
    begin(g, row, rows, all_went, s);
    for (; settled && more == all_went; settled &= settled - 1) sweep(s, __builtin_ctzll(settled));
    while (__builtin_popcountll(s->dropped) != size) move_best(s, choice & (all_went ? s->dropped : ~s->dropped));
    for (int i = 0; i < EXCHANGES_PER_INPUT * g->count && exchange(s, choice); i++) continue;
}

void lac_obs_exchange_group(const lac_obs_group *g, int thread, int64_t group)
{
    const lac_geometry *geometry = &g->obs->geometry;
    int64_t row = group * geometry->unit_n, rows = lac_geometry_rows(geometry, group);
    int count = g->count, size = count - (g->kept < 0 ? lac_obs_group_kept(g, group) : g->kept);
    tableau s = {.count = count, .vectors = geometry->unit_n > 1};
    s.t = g->obs->scratch + thread * g->obs->scratch_count;
    s.y = s.t + count * count;
    uint64_t all = (UINT64_C(1) << count) - 1, dropped = size == 0 ? 0 : all;
    if (size > 0 && size < count) {
        search(g, row, rows, false, size, &s);
        dropped = s.dropped;
        double lost = s.lost;
        search(g, row, rows, true, size, &s);
        if (s.lost < lost) dropped = s.dropped;
    }
    lac_obs_group_keep(g, group, all & ~dropped);
}

static void select_group(void *state, int thread, int64_t group) { lac_obs_exchange_group(state, thread, group); }

void lac_obs_exchange_select(const lac_obs_group *group)
{
    const lac_obs *obs = group->obs;
    lac_obs_group copy = *group;
    int threads = lac_parallel_threads_for(obs->threads, obs->geometry.row_groups, obs->n * group->count);
    lac_parallel_for_each(obs->geometry.row_groups, threads, select_group, &copy);
}
