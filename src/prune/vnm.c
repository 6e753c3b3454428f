/* vnm.c - V:N:M: which 4 inputs each group of V rows x M inputs selects, then which N of them each row keeps.
 *
 * A selection is worth the sum over the rows of the N best of its 4 scores. Given 3 of the inputs, a row's N best with a
 * fourth score u are base + max(floor, u), where base and floor depend on the 3 alone: so one pass over a column of
 * scores prices it as the fourth. Groups of up to EXACT_MAX inputs try every selection; larger ones run a beam search and
 * then exchange inputs one by one. Called by prune.c. */
#include <math.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "prune/prune.h"
#include "prune/select.h"

/* LANES partial sums keep the order of additions fixed and let the loop run in vector lanes. */
enum { EXACT_MAX = 16, LANES = 8, PICKED = LAC_VNM_SELECTED, SWEEPS_MAX = 64 };
/* Sets that go on at each step of the beam search, and from how many of the last ones exchanges start. */
enum { BEAM = 16, EXCHANGED = 4 };

typedef struct vnm_state {
    const lac_prune_job *job;
    uint8_t *picked; /* [row_groups][groups][4]: numbers within the group, ascending */
    uint8_t *block;
    uint64_t thread_bytes, panel_at;
    int64_t stride; /* unit_n rounded up to LANES: from one column of scores to the next */
} vnm_state;

/* The scores of one group, and room for the price of three fixed inputs. */
typedef struct vnm_panel {
    int32_t n;      /* N */
    int64_t cols;   /* inputs in this group: M, or fewer at the end of k */
    int64_t stride; /* rows, rounded up to LANES; the scores past the last row are 0 */
    double *score;  /* [cols][stride] */
    double *none;   /* [stride] zeros: the column of an input not chosen yet */
    double *floor;  /* [stride] */
} vnm_panel;

static double sum_lanes(const double lanes[LANES])
{
    double sum = 0;
    for (int l = 0; l < LANES; l++) sum += lanes[l];
    return sum;
}

static const double *column(const vnm_panel *p, int c) { return c < 0 ? p->none : p->score + c * p->stride; }

/* Fixes three inputs (a negative one: none): fills floor, returns the sum of base. */
static double fix_three(const vnm_panel *p, int a, int b, int c)
{
    const double *x = column(p, a), *y = column(p, b), *z = column(p, c);
    double lanes[LANES] = {0};
    for (int64_t r = 0; r < p->stride; r += LANES) {
        for (int l = 0; l < LANES; l++) {
            double i = x[r + l], j = y[r + l], k = z[r + l];
            double high = i > j ? i : j, low = i > j ? j : i;
            double most = high > k ? high : k, rest = high > k ? k : high;
            double middle = low > rest ? low : rest, least = low > rest ? rest : low;
            lanes[l] += p->n == 1 ? 0 : p->n == 2 ? most : p->n == 3 ? most + middle : most + middle + least;
            p->floor[r + l] = p->n == 1 ? most : p->n == 2 ? middle : p->n == 3 ? least : 0;
        }
    }
    return sum_lanes(lanes);
}

/* What input d adds to the three that were fixed last. */
static double price(const vnm_panel *p, int d)
{
    const double *u = column(p, d), *floor = p->floor;
    double lanes[LANES] = {0};
    for (int64_t r = 0; r < p->stride; r += LANES)
        for (int l = 0; l < LANES; l++) lanes[l] += u[r + l] > floor[r + l] ? u[r + l] : floor[r + l];
    return sum_lanes(lanes);
}

/* Every selection in lexicographic order; the first of the best stays. */
static void pick_exact(const vnm_panel *p, int best[PICKED])
{
    int cols = (int)p->cols;
    double top = -1;
    for (int a = 0; a < cols; a++) {
        for (int b = a + 1; b < cols; b++) {
            for (int c = b + 1; c < cols - 1; c++) {
                double base = fix_three(p, a, b, c);
                for (int d = c + 1; d < cols; d++) {
                    double worth = base + price(p, d);
                    if (worth <= top) continue;
                    top = worth;
                    best[0] = a, best[1] = b, best[2] = c, best[3] = d;
                }
            }
        }
    }
}

/* The best input for place `place` with the other three as they are; the present one stays on a tie. Returns the worth. */
static double pick_place(const vnm_panel *p, int chosen[PICKED], int place)
{
    int others[3], count = 0;
    for (int i = 0; i < PICKED; i++)
        if (i != place) others[count++] = chosen[i];
    double base = fix_three(p, others[0], others[1], others[2]);
    int best = chosen[place];
    double top = best < 0 ? -1 : base + price(p, best);
    for (int d = 0; d < (int)p->cols; d++) {
        if (d == others[0] || d == others[1] || d == others[2] || d == chosen[place]) continue;
        double worth = base + price(p, d);
        /* Sums in another order differ in their last bits: a gain must be more than that. */
        if (worth > top + (best < 0 ? 0 : top * 1e-12)) top = worth, best = d;
    }
    chosen[place] = best;
    return top;
}

/* Exchanges one input at a time until none helps. */
static double exchange(const vnm_panel *p, int chosen[PICKED])
{
    double worth = -1;
    int unchanged = 0;
    for (int step = 0; unchanged < PICKED && step < PICKED * SWEEPS_MAX; step++) {
        int before = chosen[step % PICKED];
        worth = pick_place(p, chosen, step % PICKED);
        unchanged = chosen[step % PICKED] == before ? unchanged + 1 : 0;
    }
    return worth;
}

/* A set of inputs under construction; places not filled yet hold -1. */
typedef struct vnm_set {
    int chosen[PICKED]; /* ascending, the filled ones */
    double worth;
} vnm_set;

static bool same_inputs(const vnm_set *a, const vnm_set *b) { return memcmp(a->chosen, b->chosen, sizeof a->chosen) == 0; }

/* `set` with input d put into place `place`, sorted in. */
static vnm_set with_input(const vnm_set *set, int place, int d, double worth)
{
    vnm_set out = *set;
    int i = place;
    for (; i > 0 && out.chosen[i - 1] > d; i--) out.chosen[i] = out.chosen[i - 1];
    out.chosen[i] = d;
    out.worth = worth;
    return out;
}

/* Puts `set` into the best[*count], best first, when it is new and among the BEAM best; the earlier wins a tie. */
static void offer(vnm_set best[BEAM], int *count, const vnm_set *set)
{
    if (*count == BEAM && set->worth <= best[BEAM - 1].worth) return;
    for (int i = 0; i < *count; i++)
        if (same_inputs(&best[i], set)) return;
    int i = *count < BEAM ? (*count)++ : BEAM - 1;
    for (; i > 0 && best[i - 1].worth < set->worth; i--) best[i] = best[i - 1];
    best[i] = *set;
}

/* Beam search: sets grow by one input at a time, the BEAM best of each size go on. Then exchanges from each of them. */
static void pick_greedy(const vnm_panel *p, int best[PICKED])
{
    vnm_set beam[BEAM] = {{.chosen = {-1, -1, -1, -1}}}, next[BEAM];
    int count = 1;
    for (int place = 0; place < PICKED; place++) {
        int grown = 0;
        for (int i = 0; i < count; i++) {
            const int *c = beam[i].chosen;
            double base = fix_three(p, c[0], c[1], c[2]);
            for (int d = 0; d < (int)p->cols; d++) {
                if (d == c[0] || d == c[1] || d == c[2]) continue;
                vnm_set set = with_input(&beam[i], place, d, base + price(p, d));
                offer(next, &grown, &set);
            }
        }
        memcpy(beam, next, (size_t)grown * sizeof *beam);
        count = grown;
    }
    double top = -1;
    for (int i = 0; i < count && i < EXCHANGED; i++) {
        double worth = exchange(p, beam[i].chosen);
        if (worth <= top) continue;
        top = worth;
        memcpy(best, beam[i].chosen, sizeof beam[i].chosen);
    }
    for (int i = 1; i < PICKED; i++)
        for (int j = i; j > 0 && best[j] < best[j - 1]; j--) {
            int other = best[j];
            best[j] = best[j - 1];
            best[j - 1] = other;
        }
}

/* Scores that are not finite become one number larger than all finite ones together, so that selections that keep more
 * of them win, and the finite ones decide among equals. */
static void tame(const vnm_panel *p)
{
    double total = 0;
    bool all_finite = true;
    for (int64_t i = 0; i < p->cols * p->stride; i++) {
        if (isfinite(p->score[i]))
            total += p->score[i];
        else
            all_finite = false;
    }
    if (all_finite) return;
    double large = total > 0 ? ldexp(1.0, ilogb(total) + 2) : 1.0;
    for (int64_t i = 0; i < p->cols * p->stride; i++)
        if (!isfinite(p->score[i])) p->score[i] = large;
}

static void load_panel(const vnm_state *s, int64_t group, int64_t first_col, uint8_t *scratch, const vnm_panel *p)
{
    const lac_prune_job *job = s->job;
    int64_t rows = lac_geometry_rows(&job->geometry, group);
    memset(p->score, 0, (size_t)(p->cols * p->stride) * sizeof *p->score);
    for (int64_t done = 0; done < rows; done += LAC_PANEL_ROWS) {
        const void *row[LAC_PANEL_ROWS];
        int64_t count = rows - done < LAC_PANEL_ROWS ? rows - done : LAC_PANEL_ROWS;
        lac_source_read(&job->source, NULL, group * job->geometry.unit_n + done, count, first_col, p->cols, scratch, row);
        for (int64_t i = 0; i < count; i++) {
            double score[LAC_MAX_GROUP] = {0};
            lac_source_add_scores(&job->source, job->score, row[i], p->cols, score);
            for (int64_t c = 0; c < p->cols; c++) p->score[c * p->stride + done + i] = score[c];
        }
    }
    tame(p);
}

static void pick_group(void *state, int thread, int64_t task)
{
    const vnm_state *s = state;
    const lac_geometry *g = &s->job->geometry;
    uint8_t *scratch = s->block + (uint64_t)thread * s->thread_bytes;
    double *panel = (double *)(scratch + s->panel_at);
    int64_t group = task % g->groups;
    vnm_panel p = {.n = g->slot_n, .cols = lac_geometry_group_units(g, group), .stride = s->stride};
    p.none = panel;
    p.floor = panel + s->stride;
    p.score = panel + 2 * s->stride;
    int chosen[PICKED] = {0, 1, 2, 3};
    if (p.cols > PICKED) {
        load_panel(s, task / g->groups, group * g->group_m, scratch, &p);
        if (p.cols <= EXACT_MAX)
            pick_exact(&p, chosen);
        else
            pick_greedy(&p, chosen);
    }
    for (int i = 0; i < PICKED; i++) s->picked[task * PICKED + i] = (uint8_t)chosen[i];
}

static int64_t key_at(const lac_source *source, const void *row, int64_t c)
{
    return source->wide ? lac_key_f64(((const double *)row)[c]) : lac_key_f32(((const float *)row)[c]);
}

/* Each row keeps the N largest of the selected inputs. */
static void keep_rows(void *state, int thread, int64_t task)
{
    const vnm_state *s = state;
    const lac_prune_job *job = s->job;
    const lac_geometry *g = &job->geometry;
    uint8_t *scratch = s->block + (uint64_t)thread * s->thread_bytes;
    int64_t first = task * LAC_PANEL_ROWS;
    int64_t count = g->n - first < LAC_PANEL_ROWS ? g->n - first : LAC_PANEL_ROWS;
    for (int64_t group = 0; group < g->groups; group++) {
        const void *row[LAC_PANEL_ROWS];
        int64_t col = group * g->group_m, cols = lac_geometry_group_units(g, group);
        lac_source_read(&job->source, NULL, first, count, col, cols, scratch, row);
        int candidates = cols < PICKED ? (int)cols : PICKED;
        for (int64_t i = 0; i < count; i++) {
            const uint8_t *picked = s->picked + ((first + i) / g->unit_n * g->groups + group) * PICKED;
            int64_t key[PICKED];
            for (int a = 0; a < candidates; a++) key[a] = key_at(&job->source, row[i], picked[a]);
            for (int a = 0; a < candidates; a++) {
                int before = 0;
                for (int b = 0; b < candidates; b++) before += b < a ? key[b] >= key[a] : key[b] > key[a];
                if (before < g->slot_n) lac_mask_set(job->mask, first + i, col + picked[a]);
            }
        }
    }
}

lac_status lac_prune_vnm(const lac_prune_job *job)
{
    const lac_geometry *g = &job->geometry;
    if (g->n == 0 || g->k == 0) return LAC_STATUS_OK;
    vnm_state s = {.job = job};
    int64_t cols = g->units < g->group_m ? g->units : g->group_m;
    s.stride = (g->unit_n + LANES - 1) / LANES * LANES;
    s.panel_at = (lac_source_buffer_bytes(&job->source, LAC_PANEL_ROWS, cols) + 63) / 64 * 64;
    s.thread_bytes = s.panel_at + (uint64_t)(cols + 2) * (uint64_t)s.stride * sizeof(double);

    int64_t tasks = g->row_groups * g->groups;
    int64_t panels = (g->n + LAC_PANEL_ROWS - 1) / LAC_PANEL_ROWS;
    int threads = lac_parallel_threads(job->threads, tasks > panels ? tasks : panels);
    uint64_t bytes = s.thread_bytes * (uint64_t)threads, picked_bytes = (uint64_t)tasks * PICKED;
    s.block = lac_allocate_zeroed(bytes);
    if (!s.block) return lac_fail_memory("the scratch of pruning", bytes);
    s.picked = lac_allocate(picked_bytes);
    if (!s.picked) {
        lac_release(s.block);
        return lac_fail_memory("the selected inputs", picked_bytes);
    }
    lac_parallel_for_each(tasks, threads, pick_group, &s);
    lac_parallel_for_each(panels, threads, keep_rows, &s);
    lac_release(s.picked);
    lac_release(s.block);
    return LAC_STATUS_OK;
}
