/* units.c - the exact choice of units: element-wise, vector-wise, block-wise, N:M and free. A unit's score is a sum in
 * double, down the rows first and then across its columns, always in that order. Called by prune.c and shuffle.c. */
#include <math.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "prune/prune.h"
#include "prune/select.h"

typedef struct units_state {
    const lac_prune_job *job;
    const uint32_t *perm; /* [n] or NULL */
    lac_worth *worth;     /* [row_groups] or NULL */
    int64_t panel_rows;   /* element-wise: rows a task */
    /* Each thread's part of one block, as offsets in bytes. */
    uint8_t *block;
    uint64_t thread_bytes, sums_at, keys_at, unit_keep_at, keep_at;
} units_state;

int lac_worth_compare(const lac_worth *a, const lac_worth *b)
{
    if (a->not_finite != b->not_finite) return a->not_finite > b->not_finite ? 1 : -1;
    return (a->sum > b->sum) - (a->sum < b->sum);
}

/* Row-major 16-bit weights are ranked as they lie. */
static bool is_narrow(const lac_source *source)
{
    const lac_matrix *m = &source->matrix;
    return m->layout == LAC_LAYOUT_ROW_MAJOR && (m->dtype == LAC_DTYPE_F16 || m->dtype == LAC_DTYPE_BF16);
}

static void select_narrow(const lac_source *source, const lac_geometry *g, int64_t row, int16_t *keys, uint8_t *keep)
{
    const uint16_t *bits = (const uint16_t *)source->matrix.data + row * source->matrix.ld;
    const int16_t infinity = source->matrix.dtype == LAC_DTYPE_F16 ? 0x7c00 : 0x7f80;
    for (int64_t c = 0; c < g->k; c++) keys[c] = lac_key_16(bits[c], infinity);
    lac_select_units_16(keys, g, keep);
}

static bool is_element_wise(const lac_geometry *g) { return g->unit_n == 1 && g->unit_k == 1; }

/* A single weight needs no score: its magnitude orders it under L1 and L2 alike. */
static void prune_elements(void *state, int thread, int64_t task)
{
    const units_state *s = state;
    const lac_prune_job *job = s->job;
    const lac_geometry *g = &job->geometry;
    uint8_t *scratch = s->block + (uint64_t)thread * s->thread_bytes;
    uint8_t *keep = scratch + s->keep_at;
    int64_t first = task * s->panel_rows;
    int64_t count = g->n - first < s->panel_rows ? g->n - first : s->panel_rows;
    const void *row[LAC_PANEL_ROWS];
    bool narrow = is_narrow(&job->source);
    if (!narrow) lac_source_read(&job->source, s->perm, first, count, 0, g->k, scratch, row);
    for (int64_t i = 0; i < count; i++) {
        int64_t to = s->perm ? s->perm[first + i] : first + i;
        if (narrow) {
            select_narrow(&job->source, g, to, (int16_t *)(scratch + s->keys_at), keep);
        } else if (job->source.wide) {
            const double *values = row[i];
            int64_t *keys = (int64_t *)(scratch + s->keys_at);
            for (int64_t c = 0; c < g->k; c++) keys[c] = lac_key_f64(values[c]);
            lac_select_units_64(keys, g, keep);
        } else {
            const float *values = row[i];
            int32_t *keys = (int32_t *)(scratch + s->keys_at);
            for (int64_t c = 0; c < g->k; c++) keys[c] = lac_key_f32(values[c]);
            lac_select_units_32(keys, g, keep);
        }
        lac_pack_bits(keep, job->mask->words, lac_mask_row_writable(job->mask, to));
    }
}

/* The score of each unit of a row group: sums[k] by column, folded in place into sums[units]. */
static void sum_units(const units_state *s, int64_t group, uint8_t *scratch, double *sums)
{
    const lac_prune_job *job = s->job;
    const lac_geometry *g = &job->geometry;
    int64_t rows = lac_geometry_rows(g, group);
    memset(sums, 0, (size_t)g->k * sizeof *sums);
    for (int64_t done = 0; done < rows; done += LAC_PANEL_ROWS) {
        const void *row[LAC_PANEL_ROWS];
        int64_t count = rows - done < LAC_PANEL_ROWS ? rows - done : LAC_PANEL_ROWS;
        lac_source_read(&job->source, s->perm, group * g->unit_n + done, count, 0, g->k, scratch, row);
        for (int64_t i = 0; i < count; i++) lac_source_add_scores(&job->source, job->score, row[i], g->k, sums);
    }
    if (g->unit_k == 1) return;
    for (int64_t u = 0; u < g->units; u++) {
        int64_t first = u * g->unit_k, inputs = lac_geometry_inputs(g, u);
        double sum = 0;
        for (int64_t c = 0; c < inputs; c++) sum += sums[first + c];
        sums[u] = sum;
    }
}

static lac_worth weigh(const double *sums, const uint8_t *keep, int64_t units)
{
    lac_worth worth = {0};
    for (int64_t u = 0; u < units; u++) {
        if (!keep[u]) continue;
        if (isfinite(sums[u]))
            worth.sum += sums[u];
        else
            worth.not_finite++;
    }
    return worth;
}

static void prune_group(void *state, int thread, int64_t group)
{
    const units_state *s = state;
    const lac_prune_job *job = s->job;
    const lac_geometry *g = &job->geometry;
    uint8_t *scratch = s->block + (uint64_t)thread * s->thread_bytes;
    double *sums = (double *)(scratch + s->sums_at);
    int64_t *keys = (int64_t *)(scratch + s->keys_at);
    uint8_t *unit_keep = scratch + s->unit_keep_at, *keep = scratch + s->keep_at;

    sum_units(s, group, scratch, sums);
    for (int64_t u = 0; u < g->units; u++) keys[u] = lac_key_f64(sums[u]);
    lac_select_units_64(keys, g, unit_keep);
    if (s->worth) s->worth[group] = weigh(sums, unit_keep, g->units);
    if (g->unit_k > 1)
        for (int64_t u = 0; u < g->units; u++) memset(keep + u * g->unit_k, unit_keep[u], (size_t)lac_geometry_inputs(g, u));

    int64_t first = group * g->unit_n, rows = lac_geometry_rows(g, group);
    const uint64_t *bits = NULL;
    for (int64_t i = 0; i < rows; i++) {
        uint64_t *to = lac_mask_row_writable(job->mask, s->perm ? s->perm[first + i] : first + i);
        if (bits)
            memcpy(to, bits, (size_t)job->mask->words * sizeof *to);
        else
            lac_pack_bits(keep, job->mask->words, to);
        bits = bits ? bits : to;
    }
}

static uint64_t round_up(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Lays out a thread's scratch: rows, sums, keys, kept units, kept columns (rounded up to whole words, zeros past k). */
static void lay_out(units_state *s, bool elements)
{
    const lac_prune_job *job = s->job;
    const lac_geometry *g = &job->geometry;
    uint64_t k = (uint64_t)g->k, words = (uint64_t)job->mask->words;
    int64_t panel = elements ? s->panel_rows : g->unit_n;
    s->sums_at = round_up(lac_source_buffer_bytes(&job->source, panel, g->k));
    s->keys_at = s->sums_at + (elements ? 0 : round_up(k * sizeof(double)));
    s->unit_keep_at = s->keys_at + round_up((uint64_t)g->units * (elements && !job->source.wide ? 4 : 8));
    s->keep_at = s->unit_keep_at + (g->unit_k > 1 ? round_up((uint64_t)g->units) : 0);
    s->thread_bytes = s->keep_at + words * 64;
}

lac_status lac_prune_units(const lac_prune_job *job, const uint32_t *perm, lac_worth *worth)
{
    const lac_geometry *g = &job->geometry;
    if (g->n == 0 || g->k == 0) {
        if (worth) *worth = (lac_worth){0};
        return LAC_STATUS_OK;
    }
    units_state s = {.job = job, .perm = perm};
    bool elements = is_element_wise(g) && !worth;
    /* Long rows are taken one by one: a panel is to stay small. */
    s.panel_rows = g->k > (1 << 16) ? 1 : LAC_PANEL_ROWS;
    lay_out(&s, elements);

    int64_t tasks = elements ? (g->n + s.panel_rows - 1) / s.panel_rows : g->row_groups;
    int threads = lac_parallel_threads(job->threads, tasks);
    uint64_t bytes = s.thread_bytes * (uint64_t)threads;
    uint64_t worth_bytes = worth ? (uint64_t)g->row_groups * sizeof *worth : 0;
    s.block = lac_allocate_zeroed(bytes);
    if (!s.block) return lac_fail_memory("the scratch of pruning", bytes);
    if (worth && !(s.worth = lac_allocate(worth_bytes))) {
        lac_release(s.block);
        return lac_fail_memory("the scores of row groups", worth_bytes);
    }
    lac_parallel_for_each(tasks, threads, elements ? prune_elements : prune_group, &s);
    if (worth) {
        *worth = (lac_worth){0};
        for (int64_t i = 0; i < g->row_groups; i++) {
            worth->not_finite += s.worth[i].not_finite;
            worth->sum += s.worth[i].sum;
        }
    }
    lac_release(s.worth);
    lac_release(s.block);
    return LAC_STATUS_OK;
}
