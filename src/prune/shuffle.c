/* shuffle.c - Shfl-BW: groups rows that want the same inputs, so that sharing the inputs costs little.
 *
 *   1. Each row marks its largest weights, as many as the density or N:M allows.
 *   2. Groups are gathered one by one: the first free row, and the free rows whose marks overlap its marks most.
 *   3. A k-means of equal-sized groups on the scores: each group keeps its best columns, then pairs of rows change places
 *      between groups while both together gain; again, until nothing moves or the budget is spent.
 *   4. The result stands only when it keeps more than the rows in order do.
 * Called by prune.c, and by permute.c for vectors that keep N of M; docs/pruning.md tells the rest. */
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "prune/prune.h"
#include "prune/select.h"

/* LANES rows share one read of a group's columns. */
enum { LANES = 16, ROUNDS_MAX = 12 };
/* Below this a step of the gathering is done before threads have started. */
enum { SERIAL_WORDS = 1 << 20 };
/* Additions that the refinement may spend before it starts another round, additions that its first round may take, and
 * bytes of its table of gains. */
static const double WORK_MAX = 16e9;
static const double ROUND_WORK_MAX = 100e9;
static const double GAIN_BYTES_MAX = 1024.0 * 1024 * 1024;

typedef struct shuffle_state {
    const lac_prune_job *job;
    lac_mask *marks; /* step 1 */
    uint32_t *perm;  /* [n] */
    int64_t seed;    /* step 2: the row that gathers */
    uint32_t *free;  /* [n] the rows not in a group yet, ascending */
    int64_t free_count;
    int32_t *overlap;  /* [n] marks that each free row shares with the seed */
    uint8_t *keep;     /* [n] */
    uint32_t *columns; /* [row_groups][selected]: the columns each group keeps */
    float *gain;       /* [n][row_groups]: the score of row i of W in the columns of group g */
    double scale;      /* brings the largest score near 2^40, so that sums in float neither overflow nor vanish */
    uint8_t *block;
    uint64_t thread_bytes, lanes_at;
} shuffle_state;

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void count_overlap(void *state, int thread, int64_t task)
{
    const shuffle_state *s = state;
    (void)thread;
    const uint64_t *a = lac_mask_row(s->marks, s->seed), *b = lac_mask_row(s->marks, s->free[task]);
    int32_t shared = 0;
    for (int64_t w = 0; w < s->marks->words; w++) shared += __builtin_popcountll(a[w] & b[w]);
    s->overlap[task] = shared;
}

static void gather_groups(shuffle_state *s)
{
    const lac_geometry *g = &s->job->geometry;
    int64_t placed = 0;
    s->free_count = g->n;
    for (int64_t i = 0; i < g->n; i++) s->free[i] = (uint32_t)i;
    while (s->free_count > 0) {
        int64_t rows = s->free_count < g->unit_n ? s->free_count : g->unit_n;
        s->seed = s->free[0];
        int threads = s->free_count * s->marks->words < SERIAL_WORDS ? 1 : lac_parallel_threads(s->job->threads, s->free_count);
        lac_parallel_for_each(s->free_count, threads, count_overlap, s);
        s->overlap[0] = INT32_MAX; /* a row without marks gathers itself too */
        lac_select_top_32(s->overlap, s->free_count, rows, s->keep);
        int64_t left = 0;
        for (int64_t i = 0; i < s->free_count; i++) {
            if (s->keep[i])
                s->perm[placed++] = s->free[i];
            else
                s->free[left++] = s->free[i];
        }
        s->free_count = left;
    }
}

/* The columns that each group keeps, read back from the mask. */
static void list_columns(shuffle_state *s)
{
    const lac_prune_job *job = s->job;
    const lac_geometry *g = &job->geometry;
    for (int64_t group = 0; group < g->row_groups; group++) {
        const uint64_t *bits = lac_mask_row(job->mask, s->perm[group * g->unit_n]);
        uint32_t *columns = s->columns + group * g->selected;
        for (int64_t w = 0; w < job->mask->words; w++)
            for (uint64_t word = bits[w]; word; word &= word - 1) *columns++ = (uint32_t)(w * 64 + __builtin_ctzll(word));
    }
}

static void compute_gains(void *state, int thread, int64_t task)
{
    const shuffle_state *s = state;
    const lac_prune_job *job = s->job;
    const lac_geometry *g = &job->geometry;
    uint8_t *scratch = s->block + (uint64_t)thread * s->thread_bytes;
    float *lanes = (float *)(scratch + s->lanes_at); /* [k][LANES] */
    double *score = (double *)(lanes + g->k * LANES);
    int64_t first = task * LANES, count = g->n - first < LANES ? g->n - first : LANES;
    const void *row[LAC_PANEL_ROWS];
    lac_source_read(&job->source, NULL, first, count, 0, g->k, scratch, row);
    for (int64_t i = 0; i < LANES; i++) {
        memset(score, 0, (size_t)g->k * sizeof *score);
        if (i < count) lac_source_add_scores(&job->source, job->score, row[i], g->k, score);
        for (int64_t c = 0; c < g->k; c++) {
            double scaled = score[c] * s->scale;
            lanes[c * LANES + i] = isfinite(scaled) ? (float)scaled : 0x1p60f; /* outranks any finite score */
        }
    }
    for (int64_t group = 0; group < g->row_groups; group++) {
        const uint32_t *columns = s->columns + group * g->selected;
        float sum[LANES] = {0};
        for (int64_t j = 0; j < g->selected; j++) {
            const float *from = lanes + (int64_t)columns[j] * LANES;
            for (int l = 0; l < LANES; l++) sum[l] += from[l];
        }
        for (int64_t i = 0; i < count; i++) s->gain[(first + i) * g->row_groups + group] = sum[i];
    }
}

/* The row of group `from` that gains most, or loses least, by going to group `to`. */
static double best_mover(const shuffle_state *s, int64_t from, int64_t to, int64_t *place)
{
    const lac_geometry *g = &s->job->geometry;
    int64_t first = from * g->unit_n, rows = lac_geometry_rows(g, from);
    double best = -INFINITY;
    for (int64_t i = first; i < first + rows; i++) {
        const float *gain = s->gain + (int64_t)s->perm[i] * g->row_groups;
        double change = (double)gain[to] - (double)gain[from];
        if (change > best) best = change, *place = i;
    }
    return best;
}

/* Exchanges rows between each two groups while that gains; returns how many pairs moved. */
static int64_t exchange_rows(shuffle_state *s)
{
    const lac_geometry *g = &s->job->geometry;
    int64_t moved = 0;
    for (int64_t a = 0; a < g->row_groups; a++) {
        for (int64_t b = a + 1; b < g->row_groups; b++) {
            for (int64_t tries = 0; tries < g->unit_n; tries++) {
                int64_t x = 0, y = 0;
                if (!(best_mover(s, a, b, &x) + best_mover(s, b, a, &y) > 0)) break;
                uint32_t row = s->perm[x];
                s->perm[x] = s->perm[y];
                s->perm[y] = row;
                moved++;
            }
        }
    }
    return moved;
}

/* Rows ascend within a group, and full groups by their first row; a partial group stays last. */
static void order_groups(shuffle_state *s, uint32_t *copy)
{
    const lac_geometry *g = &s->job->geometry;
    for (int64_t group = 0; group < g->row_groups; group++)
        qsort(s->perm + group * g->unit_n, (size_t)lac_geometry_rows(g, group), sizeof *s->perm, by_number);
    int64_t full = g->n / g->unit_n;
    /* The first row of a group names it: sorting those names sorts the groups. */
    for (int64_t group = 0; group < full; group++) s->free[group] = s->perm[group * g->unit_n];
    qsort(s->free, (size_t)full, sizeof *s->free, by_number);
    for (int64_t group = 0; group < full; group++) s->overlap[s->perm[group * g->unit_n]] = (int32_t)group;
    memcpy(copy, s->perm, (size_t)g->n * sizeof *copy);
    for (int64_t group = 0; group < full; group++)
        memcpy(s->perm + group * g->unit_n, copy + s->overlap[s->free[group]] * g->unit_n, (size_t)g->unit_n * sizeof *copy);
}

/* How many rounds of refinement are worth it; 0 where a round would take too much time or memory, which is no failure,
 * or where it could gain nothing. */
static int count_rounds(const lac_geometry *g)
{
    double work = (double)g->n * (double)g->row_groups * (double)g->selected;
    double bytes = (double)g->n * (double)g->row_groups * sizeof(float);
    if (g->selected == g->units || work > ROUND_WORK_MAX || bytes > GAIN_BYTES_MAX) return 0;
    if (work * ROUNDS_MAX <= WORK_MAX) return ROUNDS_MAX;
    return work >= WORK_MAX ? 1 : (int)(WORK_MAX / work);
}

/* Step 3. On entry the mask belongs to s->perm and is worth *worth; on return again, and no less. */
static lac_status refine(shuffle_state *s, int rounds, uint32_t *copy, lac_worth *worth)
{
    const lac_prune_job *job = s->job;
    const lac_geometry *g = &job->geometry;
    int64_t tasks = (g->n + LANES - 1) / LANES;
    for (int round = 0; round < rounds; round++) {
        list_columns(s);
        lac_parallel_for_each(tasks, lac_parallel_threads(job->threads, tasks), compute_gains, s);
        memcpy(copy, s->perm, (size_t)g->n * sizeof *copy);
        if (exchange_rows(s) == 0) return LAC_STATUS_OK;
        lac_worth after;
        lac_status status = lac_prune_units(job, s->perm, &after);
        if (status != LAC_STATUS_OK) return status;
        if (lac_worth_compare(&after, worth) <= 0) {
            memcpy(s->perm, copy, (size_t)g->n * sizeof *copy);
            return lac_prune_units(job, s->perm, worth);
        }
        *worth = after;
    }
    return LAC_STATUS_OK;
}

/* The largest finite score, for the scale. */
static double find_scale(const lac_prune_job *job, uint8_t *scratch, double *score)
{
    const lac_geometry *g = &job->geometry;
    double peak = 0;
    for (int64_t first = 0; first < g->n; first += LAC_PANEL_ROWS) {
        const void *row[LAC_PANEL_ROWS];
        int64_t count = g->n - first < LAC_PANEL_ROWS ? g->n - first : LAC_PANEL_ROWS;
        lac_source_read(&job->source, NULL, first, count, 0, g->k, scratch, row);
        for (int64_t i = 0; i < count; i++) {
            memset(score, 0, (size_t)g->k * sizeof *score);
            lac_source_add_scores(&job->source, job->score, row[i], g->k, score);
            for (int64_t c = 0; c < g->k; c++)
                if (isfinite(score[c]) && score[c] > peak) peak = score[c];
        }
    }
    if (peak == 0) return 1.0;
    int exponent = 40 - ilogb(peak);
    return ldexp(1.0, exponent > 1023 ? 1023 : exponent);
}

static lac_status mark_rows(shuffle_state *s)
{
    const lac_prune_job *job = s->job;
    lac_prune_job marking = *job;
    lac_pattern pattern = {.family = LAC_FAMILY_ELEMENT, .unit_n = 1, .unit_k = 1, .density = job->pattern.density};
    pattern.n = job->pattern.n, pattern.m = job->pattern.m; /* vectors in groups: each row marks what it would keep of each */
    lac_status status = lac_geometry_make(&pattern, job->geometry.n, job->geometry.k, &marking.geometry);
    if (status == LAC_STATUS_OK) status = lac_mask_create(job->geometry.n, job->geometry.k, NULL, &s->marks);
    marking.mask = s->marks;
    if (status == LAC_STATUS_OK) status = lac_prune_units(&marking, NULL, NULL);
    return status;
}

static void release_state(shuffle_state *s)
{
    lac_mask_free(s->marks);
    lac_release(s->free);
    lac_release(s->overlap);
    lac_release(s->keep);
    lac_release(s->columns);
    lac_release(s->gain);
    lac_release(s->block);
}

/* Room for steps 1 and 2. */
static lac_status allocate_groups(shuffle_state *s)
{
    uint64_t n = (uint64_t)s->job->geometry.n;
    s->free = lac_allocate(n * sizeof *s->free);
    s->overlap = lac_allocate(n * sizeof *s->overlap);
    s->keep = lac_allocate(n);
    if (!s->free || !s->overlap || !s->keep) return lac_fail_memory("the grouping of rows", n * 9);
    return LAC_STATUS_OK;
}

/* Room for step 3. */
static lac_status allocate_refinement(shuffle_state *s)
{
    const lac_prune_job *job = s->job;
    const lac_geometry *g = &job->geometry;
    uint64_t groups = (uint64_t)g->row_groups, k = (uint64_t)g->k;
    uint64_t columns = groups * (uint64_t)g->selected * sizeof *s->columns, gains = (uint64_t)g->n * groups * sizeof *s->gain;
    s->lanes_at = (lac_source_buffer_bytes(&job->source, LANES, g->k) + 63) / 64 * 64;
    s->thread_bytes = s->lanes_at + k * LANES * sizeof(float) + (k + 7) / 8 * 8 * sizeof(double);
    uint64_t block = s->thread_bytes * (uint64_t)lac_parallel_threads(job->threads, (g->n + LANES - 1) / LANES);
    s->columns = lac_allocate(columns);
    s->gain = lac_allocate(gains);
    s->block = lac_allocate(block);
    if (!s->columns || !s->gain || !s->block) return lac_fail_memory("the refinement of row groups", columns + gains + block);
    s->scale = find_scale(job, s->block, (double *)(s->block + s->lanes_at));
    return LAC_STATUS_OK;
}

/* Steps 1 to 3: leaves the permutation in s->perm and its mask in the job's. */
static lac_status shuffle(shuffle_state *s, lac_worth *worth)
{
    const lac_prune_job *job = s->job;
    const lac_geometry *g = &job->geometry;
    int rounds = count_rounds(g);
    lac_status status = allocate_groups(s);
    if (status == LAC_STATUS_OK) status = mark_rows(s);
    if (status != LAC_STATUS_OK) return status;
    uint32_t *copy = lac_allocate((uint64_t)g->n * sizeof *copy);
    if (!copy) return lac_fail_memory("a permutation", (uint64_t)g->n * sizeof *copy);
    gather_groups(s);
    status = lac_prune_units(job, s->perm, worth);
    if (status == LAC_STATUS_OK && rounds > 0) {
        status = allocate_refinement(s);
        if (status == LAC_STATUS_OK) status = refine(s, rounds, copy, worth);
    }
    if (status == LAC_STATUS_OK) order_groups(s, copy);
    lac_release(copy);
    return status;
}

lac_status lac_prune_shuffled(const lac_prune_job *job)
{
    const lac_geometry *g = &job->geometry;
    uint32_t *perm = lac_allocate((uint64_t)g->n * sizeof *perm);
    if (!perm) return lac_fail_memory("a permutation", (uint64_t)g->n * sizeof *perm);
    job->mask->row_perm = perm; /* the mask's from here on: it is freed with it on failure */
    for (int64_t i = 0; i < g->n; i++) perm[i] = (uint32_t)i;

    lac_worth in_order, shuffled;
    lac_status status = lac_prune_units(job, NULL, &in_order);
    if (status != LAC_STATUS_OK || g->row_groups <= 1 || g->unit_n == 1 || g->k == 0) return status;
    shuffle_state s = {.job = job, .perm = perm};
    status = shuffle(&s, &shuffled);
    release_state(&s);
    if (status != LAC_STATUS_OK || lac_worth_compare(&shuffled, &in_order) > 0) return status;
    for (int64_t i = 0; i < g->n; i++) perm[i] = (uint32_t)i;
    return lac_prune_units(job, NULL, NULL);
}
