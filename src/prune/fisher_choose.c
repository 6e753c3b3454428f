/* fisher_choose.c - which weights of a group go, by gradients. Every row has an inverse Fisher matrix of its own; a unit costs the sum over its
 * rows of w_Q^T (F^-1_QQ)^-1 w_Q, half of which is what the loss rises by. Small groups of single inputs are decided by trying every set, all others
 * by letting the cheapest unit go, again and again, with weights and matrices brought up to date. Called by fisher.c. */
#include <math.h>
#include <string.h>

#include "prune/fisher.h"
#include "prune/linear.h"

enum { SETS_MOST = 70, SET_SIZE_MOST = 8 };

void lac_fisher_drop(lac_fisher_rows *s, int64_t row, int column)
{
    int width = s->width;
    double *w = s->w + row * width, *inverse = s->inverse + row * width * width, *from = inverse + column * width;
    double pivot = from[column];
    if (!(pivot > 0)) { /* dropped before */
        w[column] = 0;
        return;
    }
    double change = w[column] / pivot;
    for (int j = 0; j < width; j++) w[j] -= change * from[j];
    w[column] = 0;
    for (int i = 0; i < width; i++) {
        double factor = inverse[i * width + column] / pivot;
        if (i == column || factor == 0) continue;
        for (int j = 0; j < width; j++) inverse[i * width + j] -= factor * from[j];
        inverse[i * width + column] = 0;
    }
    for (int j = 0; j < width; j++) from[j] = 0; /* it takes no part any more */
}

/* w_Q^T (F^-1_QQ)^-1 w_Q of a row for the columns in index[size]; those that are gone already cost nothing. */
static double cost_of(const lac_fisher_rows *s, int64_t row, const int *index, int size)
{
    const double *w = s->w + row * s->width, *inverse = s->inverse + row * s->width * s->width;
    int here[LAC_FISHER_BLOCK], still = 0;
    for (int i = 0; i < size; i++)
        if (inverse[index[i] * s->width + index[i]] > 0) here[still++] = index[i];
    index = here, size = still;
    if (size == 0) return 0;
    if (size == 1) return w[index[0]] * w[index[0]] / inverse[index[0] * s->width + index[0]];
    double factor[LAC_FISHER_BLOCK * LAC_FISHER_BLOCK], y[LAC_FISHER_BLOCK], cost = 0;
    for (int i = 0; i < size; i++) {
        for (int j = 0; j <= i; j++) factor[i * size + j] = inverse[index[i] * s->width + index[j]];
        y[i] = w[index[i]];
    }
    if (!lac_linear_cholesky_small(factor, size, size)) return INFINITY;
    lac_linear_solve_small(factor, size, size, y);
    for (int i = 0; i < size; i++) cost += y[i] * w[index[i]];
    return cost;
}

static double cost_of_rows(const lac_fisher_rows *s, int64_t first, int64_t count, const int *index, int size)
{
    double cost = 0;
    for (int64_t r = first; r < first + count; r++) cost += cost_of(s, r, index, size);
    return cost;
}

/* How many of these weights an earlier step let go: among equals they go first. */
static int64_t gone_before(const lac_fisher_rows *s, int64_t first, int64_t count, const int *index, int size)
{
    int64_t gone = 0;
    for (int64_t r = first; r < first + count; r++)
        for (int i = 0; i < size; i++) gone += !(s->inverse[(r * s->width + index[i]) * s->width + index[i]] > 0);
    return gone;
}

static int64_t choices(int m, int n)
{
    int64_t result = 1;
    for (int i = 1; i <= n && result <= SETS_MOST; i++) result = result * (m - n + i) / i;
    return result;
}

/* Every set of `size` of the `count` columns from `first` on; the cheapest is dropped in all rows. Returns its bits. */
static uint64_t drop_best_set(lac_fisher_rows *s, int64_t row, int64_t rows, int first, int count, int size)
{
    uint64_t best = 0;
    int64_t best_gone = 0;
    double least = INFINITY;
    for (uint64_t set = (UINT64_C(1) << count) - 1; set > 0; set--) {
        int index[SET_SIZE_MOST], found = 0;
        if (__builtin_popcountll(set) != size) continue;
        for (uint64_t left = set; left; left &= left - 1) index[found++] = first + __builtin_ctzll(left);
        double cost = cost_of_rows(s, row, rows, index, size);
        int64_t gone = gone_before(s, row, rows, index, size);
        if (cost < least || !best || (cost == least && gone > best_gone)) least = cost, best = set, best_gone = gone;
    }
    for (int64_t r = row; r < row + rows; r++)
        for (uint64_t left = best; left; left &= left - 1) lac_fisher_drop(s, r, first + __builtin_ctzll(left));
    return best;
}

/* Units of unit_k columns; the cheapest goes until `kept` of those in `left` stay. Returns what went, a bit a column. */
static uint64_t drop_units(lac_fisher_rows *s, int64_t row, int64_t rows, int first, int count, int unit_k, int kept,
                           uint64_t left)
{
    uint64_t dropped = 0;
    int units = (count + unit_k - 1) / unit_k, staying = __builtin_popcountll(left);
    for (; staying > kept; staying--) {
        int best = -1;
        int64_t best_gone = 0;
        double least = INFINITY;
        for (int u = units - 1; u >= 0; u--) {
            int index[LAC_FISHER_BLOCK], size = 0;
            if (!(left >> u & 1)) continue;
            for (int c = u * unit_k; c < count && c < (u + 1) * unit_k; c++) index[size++] = first + c;
            double cost = cost_of_rows(s, row, rows, index, size);
            int64_t gone = gone_before(s, row, rows, index, size);
            if (cost < least || best < 0 || (cost == least && gone > best_gone)) least = cost, best = u, best_gone = gone;
        }
        left &= ~(UINT64_C(1) << best);
        for (int c = best * unit_k; c < count && c < (best + 1) * unit_k; c++) {
            dropped |= UINT64_C(1) << c;
            for (int64_t r = row; r < row + rows; r++) lac_fisher_drop(s, r, first + c);
        }
    }
    return dropped;
}

void lac_fisher_choose(const lac_fisher *fisher, lac_fisher_rows *s, int first, int count, uint64_t *kept)
{
    const lac_geometry *g = &fisher->geometry;
    int unit_k = (int)g->unit_k, units = (count + unit_k - 1) / unit_k;
    int staying = g->group_n < units ? g->group_n : units, size = units - staying;
    uint64_t all = count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << count) - 1, dropped;
    uint64_t unit_bits = units == 64 ? ~UINT64_C(0) : (UINT64_C(1) << units) - 1;
    if (unit_k == 1 && count <= SET_SIZE_MOST && size > 0 && choices(count, staying) <= SETS_MOST)
        dropped = drop_best_set(s, 0, s->rows, first, count, size);
    else
        dropped = drop_units(s, 0, s->rows, first, count, unit_k, staying, unit_bits);
    for (int64_t r = 0; r < s->rows; r++) kept[r] = all & ~dropped;
    if (fisher->pattern.family != LAC_FAMILY_VNM) return;
    for (int64_t r = 0; r < s->rows; r++) /* of the selected columns each row keeps its own */
        kept[r] &= ~drop_units(s, r, 1, first, count, 1, g->slot_n < staying ? g->slot_n : staying, kept[r]);
}
