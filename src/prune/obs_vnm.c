/* obs_vnm.c - which 4 of a V:N:M group's inputs second-order pruning selects for V rows, and which N of them each row keeps, with regard to how they stand in for each other.
 *
 * A row that keeps the set S of the group gains g(S) = b_S^T (A_SS)^-1 b_S over one that keeps nothing, with A the moments of the group once all that comes later makes up for it, and
 * b = A w (obs_sets.c). A selection of 4 is worth the sum over the rows of the most that N of them gain. To price input d beside three others, every P of N - 1 of the three
 * is tried with it: g(P + d) = g(P) + (b_d - A_dP (A_PP)^-1 b_P)^2 / (A_dd - A_dP (A_PP)^-1 A_Pd), the coefficients of which are the same for all rows.
 *
 * Of up to 12 inputs every selection is priced. Of more it begins as that by each weight's own cost, and once more as one that
 * grew input by input, and inputs are exchanged one by one while that gains. Then each row takes its best N. Called by obs_select.c. */
#include <math.h>
#include <string.h>

#include "core/arithmetic.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "prune/linear.h"
#include "prune/obs.h"

enum { PICKED = LAC_VNM_SELECTED, FIXED = PICKED - 1, LANES = 8, SWEEPS_MOST = 8 };
/* Groups of up to so many inputs try every selection: 495 of 12. */
enum { EXACT_MOST = 12 };
/* What an exchange must gain, as a share, so that rounding cannot lead in circles; a share of its diagonal that a pivot must keep. */
#define LEAST_GAIN  1e-9
#define LEAST_PIVOT 1e-13

typedef struct vnm_state {
    lac_obs *obs;
    const lac_mask *by_cost; /* [n][count]: the selection to begin with */
    const double *a;         /* [count][count] */
    int64_t first;
    int count, n; /* inputs; how many a row keeps */
} vnm_state;

typedef struct vnm_panel {
    const double *a; /* [count][count] */
    int count, n;
    int64_t stride; /* rows, rounded up to LANES; b of those past the last is 0 */
    double *b;      /* [count][stride] */
    double *part;   /* [FIXED][stride]: g(P) of every P of the three that are fixed */
    double *most;   /* [stride]: the most that N of the three gain */
    double *price;  /* [stride]: or of them and another one */
    int parts, of[FIXED][FIXED];
} vnm_panel;

static int64_t stride_of(int64_t rows) { return (rows + LANES - 1) / LANES * LANES; }

int64_t lac_obs_vnm_scratch(const lac_geometry *g)
{
    return (lac_smaller(g->group_m, LAC_OBS_VNM_MOST) + FIXED + 2) * stride_of(g->unit_n);
}

/* With which the inputs p[size] explain input d: coefficient[size], and 1 / what is left of its moment. */
static double explain(const vnm_panel *s, const int *p, int size, int d, double *coefficient)
{
    double factor[FIXED * FIXED], left = s->a[d * s->count + d], least = LEAST_PIVOT * left;
    for (int i = 0; i < size; i++) {
        for (int j = 0; j <= i; j++) factor[i * size + j] = s->a[p[i] * s->count + p[j]];
        coefficient[i] = s->a[p[i] * s->count + d];
    }
    if (!lac_linear_cholesky_small(factor, size, size)) return 0; /* rounding: it gains nothing beside these */
    lac_linear_solve_small(factor, size, size, coefficient);
    for (int i = 0; i < size; i++) left -= coefficient[i] * s->a[p[i] * s->count + d];
    return left > least ? 1 / left : 0;
}

/* to = from + what d gains beside p[size]; from may be NULL, for nothing. */
static void add_gain(const vnm_panel *s, const int *p, int size, int d, const double *from, double *to)
{
    double coefficient[FIXED], scale = explain(s, p, size, d, coefficient);
    for (int64_t r = 0; r < s->stride; r += LANES) {
        double x[LANES];
        for (int l = 0; l < LANES; l++) x[l] = s->b[d * s->stride + r + l];
        for (int i = 0; i < size; i++)
            for (int l = 0; l < LANES; l++) x[l] -= coefficient[i] * s->b[p[i] * s->stride + r + l];
        for (int l = 0; l < LANES; l++) to[r + l] = (from ? from[r + l] : 0) + x[l] * x[l] * scale;
    }
}

/* g of the inputs p[size], of every row. */
static void gain_of(const vnm_panel *s, const int *p, int size, double *to)
{
    if (size == 0) memset(to, 0, (size_t)s->stride * sizeof *to);
    for (int i = 0; i < size; i++) add_gain(s, p, i, p[i], i > 0 ? to : NULL, to);
}

/* `most` rises to what part i gains with d, where that is more. */
static void raise_most(const vnm_panel *s, int i, int d, double *most)
{
    double coefficient[FIXED], scale = explain(s, s->of[i], s->n - 1, d, coefficient);
    const double *part = s->part + i * s->stride;
    for (int64_t r = 0; r < s->stride; r += LANES) {
        double x[LANES];
        for (int l = 0; l < LANES; l++) x[l] = s->b[d * s->stride + r + l];
        for (int j = 0; j < s->n - 1; j++)
            for (int l = 0; l < LANES; l++) x[l] -= coefficient[j] * s->b[s->of[i][j] * s->stride + r + l];
        for (int l = 0; l < LANES; l++) {
            double gain = part[r + l] + x[l] * x[l] * scale;
            most[r + l] = gain > most[r + l] ? gain : most[r + l];
        }
    }
}

/* Fixes three inputs: their parts of N - 1, and the most that N of them gain. */
static void fix_three(vnm_panel *s, const int *three)
{
    s->parts = 0;
    for (int set = 0; set < 1 << FIXED; set++) {
        if (__builtin_popcount((unsigned)set) != s->n - 1) continue;
        int *of = s->of[s->parts], size = 0;
        for (int i = 0; i < FIXED; i++)
            if (set >> i & 1) of[size++] = three[i];
        gain_of(s, of, size, s->part + s->parts++ * s->stride);
    }
    memset(s->most, 0, (size_t)s->stride * sizeof *s->most);
    for (int i = 0; i < s->parts; i++) /* an input above all of the part: every set of N once */
        for (int j = 0; j < FIXED; j++) {
            bool above = true;
            for (int p = 0; p < s->n - 1; p++)
                for (int q = j; q < FIXED; q++) above = above && s->of[i][p] != three[q];
            if (above) raise_most(s, i, three[j], s->most);
        }
}

static double sum_of(const vnm_panel *s, const double *values)
{
    double lanes[LANES] = {0}, sum = 0;
    for (int64_t r = 0; r < s->stride; r += LANES)
        for (int l = 0; l < LANES; l++) lanes[l] += values[r + l];
    for (int l = 0; l < LANES; l++) sum += lanes[l];
    return sum;
}

/* What the three that were fixed last and input d are worth. */
static double price(const vnm_panel *s, int d)
{
    memcpy(s->price, s->most, (size_t)s->stride * sizeof *s->price);
    for (int i = 0; i < s->parts; i++) raise_most(s, i, d, s->price);
    return sum_of(s, s->price);
}

/* Every selection in lexicographic order; the first of the best stays. */
static void pick_exact(vnm_panel *s, int chosen[PICKED])
{
    double top = -1;
    for (int a = 0; a < s->count; a++)
        for (int b = a + 1; b < s->count; b++)
            for (int c = b + 1; c < s->count - 1; c++) {
                fix_three(s, (const int[FIXED]){a, b, c});
                for (int d = c + 1; d < s->count; d++) {
                    double worth = price(s, d);
                    if (worth <= top) continue;
                    top = worth;
                    chosen[0] = a, chosen[1] = b, chosen[2] = c, chosen[3] = d;
                }
            }
}

/* Exchanges one input at a time until none gains. Returns what the selection is worth. */
static double exchange(vnm_panel *s, int chosen[PICKED])
{
    int unchanged = 0;
    double worth = 0;
    for (int step = 0; unchanged < PICKED && step < PICKED * SWEEPS_MOST; step++) {
        int place = step % PICKED, three[FIXED], size = 0, best = chosen[place];
        for (int i = 0; i < PICKED; i++)
            if (i != place) three[size++] = chosen[i];
        fix_three(s, three);
        worth = price(s, best);
        for (int d = 0; d < s->count; d++) {
            if (d == three[0] || d == three[1] || d == three[2] || d == chosen[place]) continue;
            double then = price(s, d);
            if (then > worth * (1 + (best == chosen[place] ? LEAST_GAIN : 0))) worth = then, best = d;
        }
        unchanged = best == chosen[place] ? unchanged + 1 : 1;
        chosen[place] = best;
    }
    return worth;
}

/* One input after the other, always the one that gains most beside those before it when all rows keep all. */
static void grow(const vnm_panel *s, int chosen[PICKED])
{
    uint8_t had[LAC_OBS_VNM_MOST] = {0};
    for (int size = 0; size < PICKED; size++) {
        double top = -1;
        chosen[size] = -1;
        gain_of(s, chosen, size, s->most);
        for (int d = 0; d < s->count; d++) {
            if (had[d]) continue;
            add_gain(s, chosen, size, d, s->most, s->price);
            double worth = sum_of(s, s->price);
            if (worth > top || chosen[size] < 0) top = worth, chosen[size] = d;
        }
        had[chosen[size]] = 1;
    }
}

/* Exchanges from two selections: that by cost, which `chosen` holds, and one that is grown. */
static void pick_exchanged(vnm_panel *s, int chosen[PICKED])
{
    int grown[PICKED];
    double worth = exchange(s, chosen);
    grow(s, grown);
    if (exchange(s, grown) > worth * (1 + LEAST_GAIN)) memcpy(chosen, grown, sizeof grown);
}

/* The inputs that these rows keep by cost, up to 4, ascending; made up to `size` by the first of the others. */
static void begin(const vnm_state *s, int64_t row, int64_t rows, int size, int *chosen)
{
    int found = 0;
    for (int turn = 0; turn < 2; turn++)
        for (int c = 0; c < s->count && found < size; c++) {
            bool any = false, had = false;
            for (int64_t r = row; r < row + rows && !any; r++) any = lac_mask_test(s->by_cost, r, c);
            for (int i = 0; i < found; i++) had = had || chosen[i] == c;
            if (any == (turn == 0) && !had) chosen[found++] = c;
        }
}

static void keep(const vnm_state *s, int64_t row, unsigned set, const int *chosen, int size)
{
    uint64_t *words = lac_mask_row_writable(s->obs->mask, row);
    for (int i = 0; i < size; i++) {
        int64_t at = s->first + chosen[i];
        if (set >> i & 1) words[at >> 6] |= UINT64_C(1) << (at & 63);
    }
}

/* Each row keeps the best n of chosen[size]; among equals the lower. */
static void keep_best(const vnm_state *s, vnm_panel *panel, int64_t row, int64_t rows, const int *chosen, int size)
{
    unsigned *best = (unsigned *)(void *)panel->part; /* [rows]: not in use any more */
    for (int64_t r = 0; r < panel->stride; r++) panel->most[r] = -1;
    for (unsigned set = 0; set < 1u << size; set++) {
        int p[PICKED], kept = 0;
        if (__builtin_popcount(set) != s->n) continue;
        for (int i = 0; i < size; i++)
            if (set >> i & 1) p[kept++] = chosen[i];
        gain_of(panel, p, kept, panel->price);
        for (int64_t r = 0; r < rows; r++)
            if (panel->price[r] > panel->most[r]) panel->most[r] = panel->price[r], best[r] = set;
    }
    for (int64_t r = 0; r < rows; r++) keep(s, row + r, panel->most[r] < 0 ? (1u << s->n) - 1 : best[r], chosen, size);
}

static void select_panel(void *state, int thread, int64_t group)
{
    const vnm_state *s = state;
    const lac_geometry *g = &s->obs->geometry;
    int64_t row = group * g->unit_n, rows = lac_geometry_rows(g, group);
    int size = s->count < PICKED ? s->count : PICKED, chosen[PICKED];
    vnm_panel panel = {.a = s->a, .count = s->count, .n = s->n, .stride = stride_of(rows)};
    panel.b = s->obs->scratch + thread * s->obs->scratch_count;
    panel.part = panel.b + s->count * panel.stride;
    panel.most = panel.part + FIXED * panel.stride;
    panel.price = panel.most + panel.stride;
    memset(panel.b, 0, (size_t)(s->count * panel.stride) * sizeof *panel.b);
    for (int64_t r = 0; r < rows; r++) {
        const float *w = s->obs->w + (row + r) * s->obs->k + s->first;
        for (int i = 0; i < s->count; i++)
            for (int j = 0; j < s->count; j++) panel.b[i * panel.stride + r] += s->a[i * s->count + j] * w[j];
    }
    begin(s, row, rows, size, chosen);
    if (s->count > EXACT_MOST)
        pick_exchanged(&panel, chosen);
    else if (s->count > PICKED)
        pick_exact(&panel, chosen);
    for (int i = 1; i < size; i++) /* ascending, for equals */
        for (int j = i; j > 0 && chosen[j] < chosen[j - 1]; j--) {
            int other = chosen[j];
            chosen[j] = chosen[j - 1], chosen[j - 1] = other;
        }
    keep_best(s, &panel, row, rows, chosen, size);
}

lac_status lac_obs_select_vnm(lac_obs *obs, int64_t first, int count, const lac_mask *by_cost)
{
    vnm_state s = {.obs = obs, .by_cost = by_cost, .first = first, .count = count, .n = obs->geometry.slot_n};
    uint64_t bytes = 2 * (uint64_t)count * (uint64_t)count * sizeof(double);
    double *a = lac_allocate(bytes);
    if (!a) return lac_fail_memory("the moments of a group", bytes);
    if (s.n > count) s.n = count;
    lac_obs_moments(obs, first, count, a + count * count, a);
    s.a = a;
    int64_t tasks = obs->geometry.row_groups;
    lac_parallel_for_each(tasks, lac_parallel_threads_for(obs->threads, tasks, obs->n * count), select_panel, &s);
    lac_release(a);
    return LAC_STATUS_OK;
}
