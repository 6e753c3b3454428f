/* permute_columns.c - the search for an order of columns. Groups of M columns are paired at random, all pairs at once, and each pair exchanges columns
 * as long as both groups together keep more. The pairs of a round are disjoint, and what is drawn depends on nothing but the round, so the
 * result is the same for every number of threads.
 *
 * A row group that loses column i and gets column j keeps `base + max(floor, score of j)`, where base and floor follow from the
 * group without i; so a pair is priced by one pass of maxima for each exchange, over row groups that lie side by side. Called by
 * permute.c. */
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "prune/permute.h"

/* More row groups than these tell nothing new: every so many-th is looked at. */
enum { SAMPLED_MOST = 2048 };
/* Exchanges of a pair before it waits for another round. */
enum { EXCHANGES = 4 };

typedef struct column_search {
    const lac_prune_job *job;
    const uint32_t *row_perm;
    int64_t stride, sampled; /* row groups */
    int64_t groups;          /* full ones, which alone take part */
    int m, n;
    double scale;    /* brings the largest score near 1, so that sums in float neither overflow nor vanish */
    double *peaks;   /* each thread's: the largest finite score */
    float *score;    /* [k][sampled] */
    uint32_t *perm;  /* [k] */
    uint32_t *order; /* [groups]: neighbours are a pair */
    uint8_t *block;  /* each thread's [thread_bytes] */
    uint64_t thread_bytes;
} column_search;

/* A group of a pair: its columns, what it keeps, and what it would keep without each of them. */
typedef struct side {
    const float *score[LAC_MAX_GROUP]; /* [sampled] of each column */
    float *floor;                      /* [m][sampled] */
    double base[LAC_MAX_GROUP], kept;
} side;

/* The scores of a row group's columns, [k], in the thread's block. */
static const double *add_up(const column_search *s, int thread, int64_t index)
{
    const lac_geometry *g = &s->job->geometry;
    uint8_t *scratch = s->block + (uint64_t)thread * s->thread_bytes;
    double *sums = (double *)scratch; /* [k], then the rows */
    int64_t group = index * s->stride, first = group * g->unit_n, rows = lac_geometry_rows(g, group);
    memset(sums, 0, (size_t)g->k * sizeof *sums);
    for (int64_t done = 0; done < rows; done += LAC_PANEL_ROWS) {
        const void *row[LAC_PANEL_ROWS];
        int64_t count = rows - done < LAC_PANEL_ROWS ? rows - done : LAC_PANEL_ROWS;
        lac_source_read(&s->job->source, s->row_perm, first + done, count, 0, g->k, sums + (g->k + 7) / 8 * 8, row);
        for (int64_t i = 0; i < count; i++) lac_source_add_scores(&s->job->source, s->job->score, row[i], g->k, sums);
    }
    return sums;
}

static void find_peak(void *state, int thread, int64_t index)
{
    const column_search *s = state;
    const double *sums = add_up(s, thread, index);
    for (int64_t c = 0; c < s->job->geometry.k; c++)
        if (isfinite(sums[c]) && sums[c] > s->peaks[thread]) s->peaks[thread] = sums[c];
}

static double find_scale(column_search *s, int threads)
{
    double peak = 0;
    for (int t = 0; t < threads; t++) s->peaks[t] = 0;
    lac_parallel_for_each(s->sampled, threads, find_peak, s);
    for (int t = 0; t < threads; t++) peak = fmax(peak, s->peaks[t]);
    if (peak == 0) return 1.0;
    int exponent = -ilogb(peak);
    return ldexp(1.0, exponent > 1023 ? 1023 : exponent);
}

static void read_scores(void *state, int thread, int64_t index)
{
    const column_search *s = state;
    const double *sums = add_up(s, thread, index);
    for (int64_t c = 0; c < s->job->geometry.k; c++) {
        double sum = sums[c] * s->scale;
        s->score[c * s->sampled + index] = isfinite(sum) ? (float)sum : 1e30f; /* outranks any finite score */
    }
}

/* Sorts the group's scores in each row group, largest first, and reads off what it keeps without each column. */
static void weigh(const column_search *s, int64_t group, side *out)
{
    int m = s->m, n = s->n;
    const uint32_t *columns = s->perm + group * m;
    for (int i = 0; i < m; i++) {
        out->score[i] = s->score + (int64_t)columns[i] * s->sampled;
        out->base[i] = 0;
    }
    out->kept = 0;
    for (int64_t r = 0; r < s->sampled; r++) {
        float value[LAC_MAX_GROUP] = {0};
        int rank[LAC_MAX_GROUP]; /* rank[p]: the column that stands p-th */
        for (int i = 0; i < m; i++) {
            float v = out->score[i][r];
            int p = i;
            for (; p > 0 && value[p - 1] < v; p--) value[p] = value[p - 1], rank[p] = rank[p - 1];
            value[p] = v, rank[p] = i;
        }
        double top = 0; /* of the n - 1 largest */
        for (int p = 0; p < n - 1; p++) top += value[p];
        double all = top + value[n - 1];
        out->kept += all;
        for (int p = 0; p < m; p++) {
            out->base[rank[p]] += p < n - 1 ? all - value[p] : top;
            out->floor[(int64_t)rank[p] * s->sampled + r] = p < n ? value[n] : value[n - 1];
        }
    }
}

static double sum_of_larger(const float *a, const float *b, int64_t count)
{
    enum { LANES = 8 };
    float lanes[LANES] = {0};
    double sum = 0;
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int l = 0; l < LANES; l++) lanes[l] += a[i + l] > b[i + l] ? a[i + l] : b[i + l];
    for (int l = 0; l < LANES; l++) sum += lanes[l];
    for (; i < count; i++) sum += a[i] > b[i] ? a[i] : b[i];
    return sum;
}

/* The exchange that gains most; false when none gains. */
static bool exchange_best(const column_search *s, int64_t group_a, int64_t group_b, side *a, side *b)
{
    int from = -1, to = -1;
    weigh(s, group_a, a);
    weigh(s, group_b, b);
    double best = (a->kept + b->kept) * (1 + 1e-6);
    for (int i = 0; i < s->m; i++)
        for (int j = 0; j < s->m; j++) {
            double now = a->base[i] + sum_of_larger(a->floor + i * s->sampled, b->score[j], s->sampled) + b->base[j] +
                         sum_of_larger(b->floor + j * s->sampled, a->score[i], s->sampled);
            if (now > best) best = now, from = i, to = j;
        }
    if (from < 0) return false;
    uint32_t *x = s->perm + group_a * s->m + from, *y = s->perm + group_b * s->m + to, column = *x;
    *x = *y, *y = column;
    return true;
}

static void exchange_pair(void *state, int thread, int64_t pair)
{
    const column_search *s = state;
    float *floors = (float *)(s->block + (uint64_t)thread * s->thread_bytes);
    side a = {.floor = floors}, b = {.floor = floors + s->m * s->sampled};
    for (int i = 0; i < EXCHANGES; i++)
        if (!exchange_best(s, s->order[2 * pair], s->order[2 * pair + 1], &a, &b)) return;
}

static uint64_t draw(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void search(column_search *s, int rounds, int threads)
{
    uint64_t random = 1;
    for (int round = 0; round < rounds; round++) {
        for (int64_t i = s->groups - 1; i > 0; i--) {
            int64_t j = (int64_t)(draw(&random) % (uint64_t)(i + 1));
            uint32_t group = s->order[i];
            s->order[i] = s->order[j], s->order[j] = group;
        }
        lac_parallel_for_each(s->groups / 2, threads, exchange_pair, s);
    }
}

lac_status lac_permute_columns(const lac_prune_job *job, const uint32_t *row_perm, int rounds, uint32_t *perm)
{
    const lac_geometry *g = &job->geometry;
    column_search s = {.job = job, .row_perm = row_perm, .perm = perm, .m = g->group_m, .n = g->group_n};
    for (int64_t c = 0; c < g->k; c++) perm[c] = (uint32_t)c;
    s.groups = g->k / s.m;
    if (s.groups < 2 || s.n == s.m || g->n == 0) return LAC_STATUS_OK;
    s.stride = (g->row_groups + SAMPLED_MOST - 1) / SAMPLED_MOST;
    s.sampled = (g->row_groups + s.stride - 1) / s.stride;
    int threads = lac_parallel_threads(job->threads, s.groups / 2 > s.sampled ? s.groups / 2 : s.sampled);
    uint64_t reading = (uint64_t)(g->k + 7) / 8 * 64 + lac_source_buffer_bytes(&job->source, LAC_PANEL_ROWS, g->k);
    uint64_t weighing = 2 * (uint64_t)s.m * (uint64_t)s.sampled * sizeof(float);
    s.thread_bytes = ((reading > weighing ? reading : weighing) + 63) / 64 * 64;
    uint64_t scores = (uint64_t)g->k * (uint64_t)s.sampled * sizeof(float), order = (uint64_t)s.groups * sizeof(uint32_t);
    s.score = lac_allocate(scores);
    s.order = lac_allocate(order);
    s.block = lac_allocate(s.thread_bytes * (uint64_t)threads);
    s.peaks = lac_allocate((uint64_t)threads * sizeof *s.peaks);
    lac_status status = LAC_STATUS_OK;
    if (!s.score || !s.order || !s.block || !s.peaks)
        status = lac_fail_memory("the search for an order of columns", scores + order + s.thread_bytes * (uint64_t)threads);
    if (status == LAC_STATUS_OK) {
        for (int64_t i = 0; i < s.groups; i++) s.order[i] = (uint32_t)i;
        s.scale = find_scale(&s, threads);
        lac_parallel_for_each(s.sampled, threads, read_scores, &s);
        search(&s, rounds, threads);
    }
    lac_release(s.score);
    lac_release(s.order);
    lac_release(s.block);
    lac_release(s.peaks);
    return status;
}
