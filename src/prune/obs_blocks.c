/* obs_blocks.c - which blocks second-order pruning lets go: one after the other, always the cheapest, with weights and F brought up to date in between, over groups of up to
 * LAC_OBS_BLOCKS_MOST inputs. A block of rows and inputs Q costs the sum over its rows of w_Q^T (F_QQ)^-1 w_Q. Called by obs.c and obs_select.c. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/arithmetic.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "prune/linear.h"
#include "prune/obs.h"

typedef struct blocks_state {
    lac_obs *obs;
    const double *inverse; /* [count][count] */
    int64_t first;
    int count, kept; /* kept < 0: as many as the mask keeps now */
} blocks_state;

/* sum over the rows of w_Q^T (F_QQ)^-1 w_Q, Q the `width` inputs from `first` on. */
static double price_of_block(const double *inverse, const double *w, int count, int64_t rows, int first, int width)
{
    double factor[LAC_OBS_JOINT_MOST * LAC_OBS_JOINT_MOST], sum = 0;
    for (int i = 0; i < width; i++)
        for (int j = 0; j <= i; j++) factor[i * width + j] = inverse[(first + i) * count + first + j];
    bool sound = lac_linear_cholesky_small(factor, width, width);
    for (int64_t r = 0; r < rows; r++) {
        const double *v = w + r * count + first;
        double x[LAC_OBS_JOINT_MOST];
        for (int i = 0; i < width; i++) {
            x[i] = v[i];
            for (int p = 0; sound && p < i; p++) x[i] -= factor[i * width + p] * x[p];
            /* rounding left no factor: each input for itself */
            x[i] /= sound ? factor[i * width + i] : sqrt(fabs(inverse[(first + i) * count + first + i]) + DBL_MIN);
            sum += x[i] * x[i];
        }
    }
    return sum;
}

/* Lets the cheapest block go, again and again, with weights and F brought up to date in between. */
static void select_blocks(void *state, int thread, int64_t group)
{
    const blocks_state *s = state;
    const lac_geometry *g = &s->obs->geometry;
    int64_t row = group * g->unit_n, rows = lac_geometry_rows(g, group);
    int count = s->count, wide = (int)g->unit_k, units = (count + wide - 1) / wide, kept = s->kept;
    double *inverse = s->obs->scratch + thread * s->obs->scratch_count, *w = inverse + count * count; /* [rows][count] */
    uint64_t left = units < 64 ? (UINT64_C(1) << units) - 1 : UINT64_MAX, gone = 0;
    memcpy(inverse, s->inverse, (size_t)(count * count) * sizeof *inverse);
    for (int64_t r = 0; r < rows; r++)
        for (int c = 0; c < count; c++) w[r * count + c] = s->obs->w[(row + r) * s->obs->k + s->first + c];
    if (kept < 0) {
        kept = 0;
        for (int u = 0; u < units; u++) kept += lac_mask_test(s->obs->mask, row, s->first + u * wide);
    }
    for (int u = 0; s->obs->within && u < units; u++) {
        bool any = false;
        for (int64_t r = row; r < row + rows; r++) any = any || lac_mask_test(s->obs->within, r, s->first + u * wide);
        if (!any) gone |= UINT64_C(1) << u;
    }
    for (int drops = units - kept; drops > 0; drops--) {
        uint64_t choice = left & gone ? left & gone : left;
        int best = -1;
        double least = INFINITY;
        for (int u = units - 1; u >= 0; u--) { /* the last among equals goes */
            if (!(choice >> u & 1)) continue;
            double price = price_of_block(inverse, w, count, rows, u * wide, u * wide + wide < count ? wide : count - u * wide);
            if (price < least || best < 0) least = price, best = u;
        }
        left &= ~(UINT64_C(1) << best);
        for (int c = best * wide; c < count && c < (best + 1) * wide; c++) {
            double pivot = inverse[c * count + c];
            if (!(pivot > 0)) continue; /* rounding: nothing is left to make up with */
            for (int64_t r = 0; r < rows; r++) {
                double factor = w[r * count + c] / pivot;
                for (int j = 0; j < count; j++) w[r * count + j] -= factor * inverse[c * count + j];
            }
            for (int i = 0; i < count; i++) {
                if (i == c || !((left >> i / wide & 1) || (i / wide == best && i > c))) continue;
                double factor = inverse[i * count + c] / pivot;
                for (int j = 0; j < count; j++) inverse[i * count + j] -= factor * inverse[c * count + j];
            }
        }
    }
    for (int64_t r = row; r < row + rows; r++) {
        uint64_t *words = lac_mask_row_writable(s->obs->mask, r);
        for (int c = 0; c < count; c++) {
            int64_t at = s->first + c;
            uint64_t bit = UINT64_C(1) << (at & 63);
            words[at >> 6] = left >> c / wide & 1 ? words[at >> 6] | bit : words[at >> 6] & ~bit;
        }
    }
}

bool lac_obs_blocks_are_joint(const lac_geometry *g, int64_t count)
{
    return g->unit_k > 1 && g->unit_k <= LAC_OBS_JOINT_MOST && count <= LAC_OBS_BLOCKS_MOST &&
           (count + g->unit_k - 1) / g->unit_k <= 64;
}

lac_status lac_obs_select_blocks(lac_obs *obs, int64_t first, int64_t count, bool as_many)
{
    const lac_geometry *g = &obs->geometry;
    uint64_t bytes = (uint64_t)count * (uint64_t)count * sizeof(double);
    double *inverse = lac_allocate(bytes);
    if (!inverse) return lac_fail_memory("the moments of a group", bytes);
    int64_t units = (count + g->unit_k - 1) / g->unit_k;
    blocks_state s = {.obs = obs, .inverse = inverse, .first = first, .count = (int)count};
    s.kept = as_many ? -1 : (int)lac_smaller(g->group_n, units);
    lac_obs_inverse(obs, first, first, count, inverse);
    lac_parallel_for_each(g->row_groups, lac_parallel_threads_for(obs->threads, g->row_groups, obs->n * count), select_blocks,
                          &s);
    lac_release(inverse);
    return LAC_STATUS_OK;
}
