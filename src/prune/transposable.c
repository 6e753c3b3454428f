/* transposable.c - masks that obey N:M along rows and along columns, so that training can multiply by W and by its transpose alike. In each M x M
 * block every row and every column keeps N weights. The best such choice is a flow of least cost from rows to columns: it is found exactly, one
 * shortest path after the other. Blocks know nothing of each other. Called by prune.c. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "prune/prune.h"

typedef struct transposable {
    const lac_prune_job *job;
    int m, n;
    uint8_t *block; /* each thread's [thread_bytes] */
    uint64_t thread_bytes, rows_at;
} transposable;

/* A block in hand: which weights stay, what each costs, and the paths of the step. */
typedef struct flow {
    int m, n;
    double slack;  /* what sums of costs may be off by: a path must be shorter by more */
    double *cost;  /* [m][m]: how much less than the most that a weight can be worth, as a share of the block's largest score */
    uint8_t *keep; /* [m][m] */
    double *row, *col;        /* [m]: cost of the shortest path to each */
    int *row_from, *col_from; /* [m]: where that path comes from; a row's is -1 when it starts there */
    int *row_kept, *col_kept; /* [m] */
} flow;

static const double NO_WAY = 1e300;

/* Shortens paths until none can be: from a row to a column by taking a weight, back by giving one up. Costs never form a cycle that gains, since
 * each step before was a shortest path. */
static void find_paths(flow *f)
{
    int m = f->m;
    for (int i = 0; i < m; i++) {
        f->row[i] = f->row_kept[i] < f->n ? 0 : NO_WAY;
        f->row_from[i] = -1;
        f->col[i] = NO_WAY;
    }
    for (bool shorter = true; shorter;) {
        shorter = false;
        for (int i = 0; i < m; i++)
            for (int j = 0; j < m; j++) {
                double step = f->cost[i * m + j];
                if (!f->keep[i * m + j] && f->row[i] < NO_WAY && f->row[i] + step < f->col[j] - f->slack) {
                    f->col[j] = f->row[i] + step, f->col_from[j] = i;
                    shorter = true;
                }
            }
        for (int j = 0; j < m; j++)
            for (int i = 0; i < m; i++) {
                double step = f->cost[i * m + j];
                if (f->keep[i * m + j] && f->col[j] < NO_WAY && f->col[j] - step < f->row[i] - f->slack) {
                    f->row[i] = f->col[j] - step, f->row_from[i] = j;
                    shorter = true;
                }
            }
    }
}

/* One more weight for the row and the column at the ends of the shortest path; what lies between changes hands. */
static void take_path(flow *f)
{
    int m = f->m, end = -1;
    for (int j = 0; j < m; j++)
        if (f->col_kept[j] < f->n && f->col[j] < NO_WAY && (end < 0 || f->col[j] < f->col[end])) end = j;
    f->col_kept[end]++;
    for (int j = end;;) {
        int i = f->col_from[j];
        f->keep[i * m + j] = 1;
        if (f->row_from[i] < 0) {
            f->row_kept[i]++;
            return;
        }
        j = f->row_from[i];
        f->keep[i * m + j] = 0;
    }
}

static void lay_out(uint8_t *at, int m, int n, flow *f)
{
    *f = (flow){.m = m, .n = n};
    f->cost = (double *)at;
    f->row = f->cost + m * m, f->col = f->row + m;
    f->row_from = (int *)(f->col + m), f->col_from = f->row_from + m, f->row_kept = f->col_from + m,
    f->col_kept = f->row_kept + m;
    f->keep = (uint8_t *)(f->col_kept + m);
}

static uint64_t flow_bytes(uint64_t m) { return (m * m * 9 + 2 * m * 8 + 4 * m * 4 + 63) / 64 * 64; }

static void choose_block(const transposable *t, flow *f, int64_t band, int64_t first, const double *scores, int64_t ld)
{
    int m = t->m;
    double most = 0;
    bool all_finite = true;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++) {
            double score = scores[i * ld + first + j];
            if (!isfinite(score))
                all_finite = false;
            else if (score > most)
                most = score;
        }
    /* Shares of the largest score, so that weights of any size are told apart. What is not finite is worth more than all of these together. */
    double beyond = all_finite ? 1 : 2.0 * m * m;
    f->slack = 2 * m * DBL_EPSILON * beyond;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++) {
            double score = scores[i * ld + first + j];
            f->cost[i * m + j] = beyond - (!isfinite(score) ? beyond : most > 0 ? score / most : 0);
        }
    memset(f->keep, 0, (size_t)(m * m));
    memset(f->row_kept, 0, (size_t)m * sizeof *f->row_kept);
    memset(f->col_kept, 0, (size_t)m * sizeof *f->col_kept);
    for (int step = 0; step < m * t->n; step++) {
        find_paths(f);
        take_path(f);
    }
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++)
            if (f->keep[i * m + j]) lac_mask_set(t->job->mask, band * m + i, first + j);
}

/* M rows of W, all their blocks: the bits of a row are written by one thread. */
static void choose_band(void *state, int thread, int64_t band)
{
    const transposable *t = state;
    const lac_prune_job *job = t->job;
    int64_t k = job->geometry.k;
    uint8_t *scratch = t->block + (uint64_t)thread * t->thread_bytes;
    double *scores = (double *)(scratch + t->rows_at); /* [m][k], then the rows as they are read */
    flow f;
    lay_out(scratch, t->m, t->n, &f);
    memset(scores, 0, (size_t)(t->m * k) * sizeof *scores);
    for (int64_t done = 0; done < t->m; done += LAC_PANEL_ROWS) {
        const void *row[LAC_PANEL_ROWS];
        int64_t count = t->m - done < LAC_PANEL_ROWS ? t->m - done : LAC_PANEL_ROWS;
        lac_source_read(&job->source, NULL, band * t->m + done, count, 0, k, scores + t->m * k, row);
        for (int64_t i = 0; i < count; i++) lac_source_add_scores(&job->source, job->score, row[i], k, scores + (done + i) * k);
    }
    for (int64_t first = 0; first < k; first += t->m) choose_block(t, &f, band, first, scores, k);
}

lac_status lac_prune_transposable(const lac_prune_job *job)
{
    const lac_geometry *g = &job->geometry;
    if (job->pattern.family != LAC_FAMILY_ELEMENT || job->pattern.m == 0)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "options: transposable goes with N:M of single weights only");
    transposable t = {.job = job, .m = job->pattern.m, .n = job->pattern.n};
    if (g->n % t.m || g->k % t.m)
        return lac_fail(LAC_STATUS_UNSUPPORTED,
                        "options: transposable needs n and k to be multiples of M = %d; they are %lld and %lld", t.m,
                        (long long)g->n, (long long)g->k);
    if (g->n == 0 || g->k == 0) return LAC_STATUS_OK;
    int64_t bands = g->n / t.m;
    int threads = lac_parallel_threads(job->threads, bands);
    t.rows_at = flow_bytes((uint64_t)t.m);
    t.thread_bytes = t.rows_at + (uint64_t)t.m * (uint64_t)g->k * sizeof(double) +
                     lac_source_buffer_bytes(&job->source, LAC_PANEL_ROWS, g->k);
    t.thread_bytes = (t.thread_bytes + 63) / 64 * 64;
    t.block = lac_allocate(t.thread_bytes * (uint64_t)threads);
    if (!t.block) return lac_fail_memory("blocks of a transposable mask", t.thread_bytes * (uint64_t)threads);
    lac_parallel_for_each(bands, threads, choose_band, &t);
    lac_release(t.block);
    return LAC_STATUS_OK;
}
