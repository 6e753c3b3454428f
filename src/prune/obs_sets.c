/* obs_sets.c - second-order pruning prices every set of inputs that a row, or a vector of rows, could let go of a group.
 *
 * Of the group's inputs Q goes and S stays. With F the inverse of their moments and A = F^-1, what is lost is
 *
 *     w_Q^T (F_QQ)^-1 w_Q  =  w^T A w  -  b_S^T (A_SS)^-1 b_S,    b = A w:
 *
 * the first form needs systems as large as Q, the second, where w^T A w is the same for all sets, as large as S. Both ask for the set T that makes
 * q_T^T (M_TT)^-1 q_T least (M = F, q = w) or most (M = A, q = b); the one with the smaller T is taken: of 1:16 one number is
 * priced for each of 16 sets, not 15 x 15 systems. A comes of the factor that F came of (A = V V^T, V the inverse of the triangle of u at the group), so
 * its error is that of F; what cancels in the second form is w^T A w, and damped moments leave it digits enough in double.
 *
 * Sets are visited as a tree, the highest input first. To take input i with what was taken before: the sum rises by q_i^2 / m_ii, and M and q of the inputs below i lose
 * what i explains of them (m_jk -= m_ij m_ik / m_ii, q_j -= m_ij q_i / m_ii). So a set costs one step from the set without its last input, and M is the same for all
 * rows: ROWS of them go side by side. Rows of a vector add up, and are known by B = sum of q q^T alone, of which vectors go side by side; it costs the same for any length.
 * Called by obs_select.c. */
#include <math.h>
#include <string.h>

#include "core/arithmetic.h"
#include "core/parallel.h"
#include "prune/obs.h"

/* Single rows, or vectors, side by side. */
enum { LANES = 16 };
/* Sets for each weight of a row group, at most, a set of a vector counted as 5/2: what 4096 x 11008 then takes for it is 15 s on two cores (docs/pruning.md). And of any group, since
 * LANES go together, however few rows there are. */
enum { SETS_PER_WEIGHT = 320, SETS_MOST = 20000 };
/* A pivot that lost so much of its diagonal is rounding. */
#define LEAST_PIVOT 1e-13

/* Two lanes at a time. Compilers do not make vector code of "keep the lesser, and which it was" by themselves. */
typedef double two_lanes __attribute__((vector_size(16), aligned(8), may_alias));
typedef int64_t two_marks __attribute__((vector_size(16), aligned(8), may_alias));
enum { PAIRS = LANES / 2 };

typedef struct sets_walk {
    int count, take;
    bool vectors;                     /* q holds B, its lower triangle */
    bool keep;                        /* T is what stays; else what goes */
    bool bound;                       /* some lane is not free in its choice: (T & test) == want */
    bool unsound;                     /* a pivot was rounding */
    double least[LAC_OBS_JOINT_MOST]; /* of pivots */
    uint64_t test[LANES], want[LANES];
    uint64_t set[LANES]; /* the best T so far */
    double value[LANES]; /* its value, of which less is better */
    double *m;           /* [take][count][count]: of each level of the tree */
    double *q;           /* [take][elements][LANES] */
} sets_walk;

static int elements_of(int count, bool vectors) { return vectors ? count * (count + 1) / 2 : count; }
static int at(const sets_walk *s, int i, int j) { return s->vectors ? i * (i + 1) / 2 + j : j; } /* j <= i */
static const two_lanes *lanes(const sets_walk *s, const double *q, int i, int j)
{
    return (const two_lanes *)(q + at(s, i, j) * LANES);
}

static int64_t choices(int m, int n, int64_t limit)
{
    int64_t result = 1;
    for (int i = 1; i <= n && result <= limit; i++) result = result * (m - n + i) / i;
    return result;
}

bool lac_obs_sets_are_few(int count, int kept, int64_t rows)
{
    int take = 2 * kept < count ? kept : count - kept;
    int64_t sets = choices(count, take, SETS_MOST);
    if (take == 0 || count > LAC_OBS_JOINT_MOST || sets > SETS_MOST) return false;
    return (rows > 1 ? 5 * sets : 2 * sets) <= 2 * SETS_PER_WEIGHT * count * rows;
}

int64_t lac_obs_sets_scratch(const lac_geometry *g)
{
    int64_t most = 0;
    for (int count = 1; count <= LAC_OBS_JOINT_MOST && count <= g->group_m; count++) {
        int kept = g->group_n < count ? g->group_n : count, take = 2 * kept < count ? kept : count - kept;
        int64_t needed = (int64_t)take * (count * count + elements_of(count, g->unit_n > 1) * LANES);
        if (lac_obs_sets_are_few(count, kept, g->unit_n) && needed > most) most = needed;
    }
    return most;
}

/* ---------------------------------------------------------------- the tree */

/* A set's value in two lanes: those that it is better in take it. */
static inline void consider(sets_walk *s, bool bound, int pair, two_lanes value, uint64_t set)
{
    two_lanes *least = (two_lanes *)s->value + pair;
    two_marks *best = (two_marks *)s->set + pair, this = {(int64_t)set, (int64_t)set};
    two_marks better = value < *least;
    if (bound) better &= (this & ((two_marks *)s->test)[pair]) == ((two_marks *)s->want)[pair];
    *best = (better & this) | (~better & *best);
    *least = (two_lanes)((better & (two_marks)value) | (~better & (two_marks)*least));
}

/* 1 / a pivot, with the sign that makes less better. */
static double scale_of(sets_walk *s, double pivot, int input)
{
    if (!(pivot > s->least[input])) s->unsound = true;
    return (s->keep ? -1 : 1) / pivot;
}

/* The i-th input to visit of those from `low` to `limit` - 1. Sets that let the last inputs go come first: among equals the lower input stays. */
static int visited(const sets_walk *s, int low, int limit, int i) { return s->keep ? low + i : limit - 1 - i; }

/* The sets of `set`, whose last input is p, and one input below p more. */
static void visit_leaves(sets_walk *s, const double *m, const double *q, int p, const double *ratio, const two_lanes *sum,
                         uint64_t set)
{
    bool bound = s->bound, vectors = s->vectors; /* writing to lanes could change these, for all that compilers know */
    for (int i = 0; i < p; i++) {
        int j = visited(s, 0, p, i);
        double l = ratio[j], scale = scale_of(s, m[j * s->count + j] - l * m[p * s->count + j], j);
        const two_lanes *own = lanes(s, q, j, j), *both = lanes(s, q, p, j), *pivot = lanes(s, q, p, p);
        uint64_t with = set | UINT64_C(1) << j;
        if (vectors) {
            for (int c = 0; c < PAIRS; c++)
                consider(s, bound, c, sum[c] + (own[c] - l * (2 * both[c] - l * pivot[c])) * scale, with);
        } else {
            for (int c = 0; c < PAIRS; c++) {
                two_lanes left = own[c] - l * pivot[c];
                consider(s, bound, c, sum[c] + left * left * scale, with);
            }
        }
    }
}

/* M and q of the inputs below p without what p explains of them. */
static void explain(const sets_walk *s, const double *m, const double *q, int p, const double *ratio, double *next_m,
                    double *next_q)
{
    int count = s->count;
    for (int j = 0; j < p; j++) {
        for (int k = 0; k <= j; k++) next_m[j * count + k] = m[j * count + k] - ratio[j] * m[p * count + k];
        for (int k = s->vectors ? 0 : j; k <= j; k++) {
            const two_lanes *own = lanes(s, q, j, k), *pj = lanes(s, q, p, j), *pk = lanes(s, q, p, k), *pp = lanes(s, q, p, p);
            two_lanes *to = (two_lanes *)(next_q + at(s, j, k) * LANES);
            double lj = ratio[j], lk = ratio[k];
            if (s->vectors)
                for (int c = 0; c < PAIRS; c++) to[c] = own[c] - lj * (pk[c] - lk * pp[c]) - lk * pj[c];
            else
                for (int c = 0; c < PAIRS; c++) to[c] = own[c] - lj * pp[c];
        }
    }
}

/* All sets that go on from `set`, of `level` inputs and worth `sum`, with inputs below `limit`. */
static void visit(sets_walk *s, int level, int limit, const two_lanes *sum, uint64_t set)
{
    int count = s->count, low = s->take - level - 1;
    bool bound = s->bound;
    const double *m = s->m + level * count * count, *q = s->q + level * elements_of(count, s->vectors) * LANES;
    for (int i = 0; i < limit - low; i++) {
        int p = visited(s, low, limit, i);
        uint64_t with = set | UINT64_C(1) << p;
        double pivot = m[p * count + p], scale = scale_of(s, pivot, p), ratio[LAC_OBS_JOINT_MOST];
        const two_lanes *own = lanes(s, q, p, p);
        two_lanes value[PAIRS], one = {1, 1};
        for (int c = 0; c < PAIRS; c++) value[c] = sum[c] + own[c] * (s->vectors ? one : own[c]) * scale;
        if (low == 0) {
            for (int c = 0; c < PAIRS; c++) consider(s, bound, c, value[c], with);
            continue;
        }
        for (int j = 0; j < p; j++) ratio[j] = m[p * count + j] / pivot;
        if (low == 1) {
            visit_leaves(s, m, q, p, ratio, value, with);
            continue;
        }
        double *next_q = s->q + (level + 1) * elements_of(count, s->vectors) * LANES;
        explain(s, m, q, p, ratio, s->m + (level + 1) * count * count, next_q);
        visit(s, level + 1, p, value, with);
    }
}

/* ---------------------------------------------------------------- row groups */

/* `size` inputs that may go, the last ones: what is chosen where no price is a number. */
static uint64_t last_inputs(int count, int size, uint64_t gone)
{
    uint64_t all = (UINT64_C(1) << count) - 1, set = 0;
    for (int i = 0; i < size; i++) {
        uint64_t from = gone & ~set ? gone & ~set : all & ~set;
        set |= UINT64_C(1) << (63 - __builtin_clzll(from));
    }
    return set;
}

/* q of a row: its weights, or A times them. */
static void load_row(const lac_obs_group *g, bool keep, int64_t row, double *q)
{
    const float *w = g->obs->w + row * g->obs->k + g->first;
    for (int i = 0; i < g->count; i++) {
        double sum = 0;
        for (int j = 0; keep && j < g->count; j++) sum += g->moments[i * g->count + j] * w[j];
        q[i] = keep ? sum : w[i];
    }
}

static void load_lane(const lac_obs_group *g, sets_walk *s, int lane, int64_t group)
{
    const lac_geometry *geometry = &g->obs->geometry;
    int64_t row = group * geometry->unit_n, rows = lac_geometry_rows(geometry, group);
    double q[LAC_OBS_JOINT_MOST];
    for (int64_t r = row; r < row + rows; r++) {
        load_row(g, s->keep, lac_obs_group_row(g, r), q);
        for (int i = 0; i < s->count; i++)
            for (int j = s->vectors ? 0 : i; j <= i; j++) s->q[at(s, i, j) * LANES + lane] += s->vectors ? q[i] * q[j] : q[i];
    }
    int size = s->count - g->kept;
    uint64_t all = (UINT64_C(1) << s->count) - 1, gone = lac_obs_group_gone(g, row, rows), dropped;
    bool more = __builtin_popcountll(gone) > size; /* then some of them come back, as zeros, and nothing else goes */
    s->test[lane] = more ? all & ~gone : gone;
    s->want[lane] = more == s->keep ? s->test[lane] : 0;
    s->bound = s->bound || gone;
    dropped = last_inputs(s->count, size, gone);
    s->set[lane] = s->keep ? all & ~dropped : dropped;
}

static void select_lanes(void *state, int thread, int64_t task)
{
    const lac_obs_group *g = state;
    const lac_geometry *geometry = &g->obs->geometry;
    int count = g->count, busy = (int)lac_smaller(LANES, geometry->row_groups - task * LANES);
    sets_walk s = {.count = count, .vectors = geometry->unit_n > 1, .keep = 2 * g->kept < count};
    const double *m = s.keep ? g->moments : g->inverse;
    two_lanes none[PAIRS] = {{0}};
    uint64_t all = (UINT64_C(1) << count) - 1;
    s.take = s.keep ? g->kept : count - g->kept;
    s.m = g->obs->scratch + thread * g->obs->scratch_count;
    s.q = s.m + s.take * count * count;
    memcpy(s.m, m, (size_t)(count * count) * sizeof *m);
    memset(s.q, 0, (size_t)(elements_of(count, s.vectors) * LANES) * sizeof *s.q);
    for (int i = 0; i < count; i++) s.least[i] = LEAST_PIVOT * m[i * count + i];
    for (int l = 0; l < LANES; l++) s.value[l] = INFINITY;
    for (int l = 0; l < busy; l++) load_lane(g, &s, l, task * LANES + l);
    visit(&s, 0, count, none, 0);
    for (int l = 0; l < busy; l++) {
        int64_t group = task * LANES + l;
        if (s.unsound) /* M is as good as singular, and with it what the sets are worth */
            lac_obs_exchange_group(g, thread, group);
        else
            lac_obs_group_keep(g, group, s.keep ? s.set[l] : all & ~s.set[l]);
    }
}

void lac_obs_sets_select(const lac_obs_group *group)
{
    const lac_obs *obs = group->obs;
    lac_obs_group copy = *group;
    int64_t tasks = (obs->geometry.row_groups + LANES - 1) / LANES;
    int threads = lac_parallel_threads_for(obs->threads, tasks, obs->n * group->count);
    lac_parallel_for_each(tasks, threads, select_lanes, &copy);
}
