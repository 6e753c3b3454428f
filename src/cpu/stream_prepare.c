/* stream_prepare.c - re-tiles a weight for dataflow "stream" (stream_state.h). k is cut into blocks of columns whose packed
 * activations fit the first-level cache, and the rows of W into strips of 4 rows where row groups share their columns, of 2
 * rows elsewhere. What two rows happen to have in common becomes shared slots; the rest of one is put beside the rest of the
 * other. Threads take items of strips, twice: to count the slots, and, once it is known where each item's begin, to write them.
 * Called by the planner through the kernel's entry in kernels.c. */
#include <string.h>

#include "core/arithmetic.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "cpu/stream_state.h"
#include "format/row.h"

static int64_t strips_of(const lac_cpu_stream_state *s, int64_t rows) { return lac_ceil_divide(rows, s->rows); }

static int64_t strip_count(const lac_geometry *g, const lac_cpu_stream_state *s)
{
    return g->n / s->group_rows * strips_of(s, s->group_rows) + strips_of(s, g->n % s->group_rows);
}

/* The first row of a strip; *rows tells how many it has. */
static int64_t strip_begin(const lac_geometry *g, const lac_cpu_stream_state *s, int64_t strip, int *rows)
{
    int64_t of_group = strips_of(s, s->group_rows), first = strip / of_group * s->group_rows;
    int64_t end = lac_smaller(g->n, first + s->group_rows);
    first += strip % of_group * s->rows;
    *rows = (int)lac_smaller(s->rows, end - first);
    return first;
}

/* What a thread has for itself: the rows of one strip, decoded. With 4 rows all have the columns of row[0]. */
typedef struct decoder {
    lac_weight_row row[4];
    uint32_t *units;    /* [geometry.selected]                                    */
    uint8_t *common[2]; /* [capacity] 2 rows: 1 where the other one has the column too */
    uint64_t *has[2];   /* [words] 2 rows: a bit for each column; zeros between strips */
} decoder;

static decoder *decoders_make(const lac_weight *w, int rows, int threads)
{
    uint64_t capacity = (uint64_t)lac_weight_row_capacity(w), selected = (uint64_t)w->geometry.selected;
    uint64_t words = ((uint64_t)w->geometry.k + 63) / 64, in_rows = (uint64_t)rows * capacity;
    lac_rooms of;
    decoder *decoders =
        lac_allocate_rooms(threads, sizeof *decoders,
                           2 * words * sizeof(uint64_t) + (2 * in_rows + selected) * sizeof(uint32_t) + 2 * capacity, &of);
    if (!decoders) return NULL;
    for (int i = 0; i < threads; ++i) {
        decoder *d = &decoders[i];
        d->has[0] = (uint64_t *)(void *)(of.first + (uint64_t)i * of.each);
        d->has[1] = d->has[0] + words;
        float *values = (float *)(void *)(d->has[1] + words);
        uint32_t *columns = (uint32_t *)(void *)(values + in_rows);
        for (int r = 0; r < rows; ++r)
            d->row[r] = (lac_weight_row){values + (uint64_t)r * capacity, columns + (uint64_t)r * capacity, 0};
        d->units = columns + in_rows;
        d->common[0] = (uint8_t *)(d->units + selected);
        d->common[1] = d->common[0] + capacity;
    }
    return decoders;
}

/* Marks the columns that two rows have in common. */
static void mark_common(decoder *d)
{
    for (int r = 0; r < 2; ++r)
        for (int64_t i = 0; i < d->row[r].count; ++i)
            d->has[r][d->row[r].columns[i] >> 6] |= UINT64_C(1) << (d->row[r].columns[i] & 63);
    for (int r = 0; r < 2; ++r)
        for (int64_t i = 0; i < d->row[r].count; ++i)
            d->common[r][i] = d->has[!r][d->row[r].columns[i] >> 6] >> (d->row[r].columns[i] & 63) & 1;
    for (int r = 0; r < 2; ++r)
        for (int64_t i = 0; i < d->row[r].count; ++i) d->has[r][d->row[r].columns[i] >> 6] = 0;
}

/* Rows that the strip has not are empty. */
static void decode_strip(const lac_weight *w, const lac_cpu_stream_state *s, int64_t strip, decoder *d)
{
    int rows;
    int64_t first = strip_begin(&w->geometry, s, strip, &rows);
    for (int r = 0; r < s->rows; ++r) {
        d->row[r].count = 0;
        if (r < rows) lac_weight_decode_row(w, first + r, r && s->rows == 4 ? &d->row[0] : NULL, d->units, &d->row[r]);
    }
    if (s->rows == 2) mark_common(d);
}

/* One strip's part of one block: entries from[r] to from[r] + count[r] of each row. With 4 rows row 0 stands for all. */
typedef struct piece {
    int64_t from[2], count[2];
    int64_t first_column; /* of the block */
} piece;

/* The entries of row `r` below column `end`, from entry `from` on. */
static int64_t entries_below(const decoder *d, int r, int64_t from, int64_t end)
{
    int64_t i = from;
    while (i < d->row[r].count && d->row[r].columns[i] < end) ++i;
    return i - from;
}

/* Of the columns that two rows have in common a multiple of four are shared, so that the inner loop goes without a rest. */
static lac_cpu_stream_count count_piece(const lac_cpu_stream_state *s, const decoder *d, const piece *p)
{
    if (s->rows == 4) return (lac_cpu_stream_count){.shared = (uint32_t)p->count[0]};
    int64_t common = 0, most = p->count[0] > p->count[1] ? p->count[0] : p->count[1];
    for (int64_t i = 0; i < p->count[0]; ++i) common += d->common[0][p->from[0] + i];
    common = common / 4 * 4;
    return (lac_cpu_stream_count){(uint32_t)common, (uint32_t)(most - common)};
}

/* Row `r` of two: its first `count.shared` common columns are the other one's as well, and lie first. */
static void write_own(const decoder *d, const piece *p, lac_cpu_stream_count count, int r, float *values, uint16_t *columns)
{
    const lac_weight_row *row = &d->row[r];
    int64_t shared = 0, own = 0;
    for (int64_t i = p->from[r]; i < p->from[r] + p->count[r]; ++i) {
        bool is_shared = d->common[r][i] && shared < count.shared;
        int64_t slot = is_shared ? shared : count.shared + own;
        values[slot * 2 + r] = row->values[i];
        columns[is_shared ? shared : count.shared + own * 2 + r] = (uint16_t)(row->columns[i] - p->first_column);
        shared += is_shared;
        own += !is_shared;
    }
}

/* A piece of 4 rows, which have the same columns. */
static void write_shared(const decoder *d, const piece *p, float *values, uint16_t *columns)
{
    for (int64_t i = 0; i < p->count[0]; ++i) columns[i] = (uint16_t)(d->row[0].columns[p->from[0] + i] - p->first_column);
    for (int r = 0; r < 4; ++r) {
        if (!d->row[r].count) continue;
        const float *from = d->row[r].values + p->from[0];
        for (int64_t i = 0; i < p->count[0]; ++i) values[i * 4 + r] = from[i];
    }
}

static void write_piece(const lac_cpu_stream_state *s, const decoder *d, const piece *p, lac_cpu_stream_count count,
                        lac_cpu_stream_place at)
{
    float *values = s->values + at.slot * s->rows;
    uint16_t *columns = s->columns + at.column;
    memset(values, 0, (size_t)(count.shared + count.own) * (size_t)s->rows * sizeof *values);
    memset(columns, 0, (count.shared + (size_t)s->rows * count.own) * sizeof *columns);
    if (s->rows == 4) {
        write_shared(d, p, values, columns);
    } else {
        for (int r = 0; r < 2; ++r) write_own(d, p, count, r, values, columns);
    }
}

static void move_on(const lac_cpu_stream_state *s, lac_cpu_stream_count count, lac_cpu_stream_place *at)
{
    at->slot += count.shared + count.own;
    at->column += count.shared + (int64_t)s->rows * count.own;
}

typedef struct job {
    const lac_weight *weight;
    lac_cpu_stream_state *state;
    decoder *decoders;             /* [thread]                                                 */
    lac_cpu_stream_place *cursors; /* [thread][blocks], to write the slots; NULL: to count them */
} job;

/* All strips of an item, block by block. */
static void go_through_item(void *opaque, int thread, int64_t item)
{
    const job *j = opaque;
    lac_cpu_stream_state *s = j->state;
    decoder *d = &j->decoders[thread];
    lac_cpu_stream_place *cursor = j->cursors ? j->cursors + thread * s->blocks : NULL;
    for (int64_t b = 0; cursor && b < s->blocks; ++b) cursor[b] = s->first[b * s->items + item];
    for (int64_t strip = item * s->item_strips; strip < lac_smaller((item + 1) * s->item_strips, s->strips); ++strip) {
        decode_strip(j->weight, s, strip, d);
        piece p = {.from = {0, 0}};
        for (int64_t b = 0; b < s->blocks; ++b) {
            lac_cpu_stream_count *count = &s->counts[b * s->strips + strip];
            p.first_column = b * s->block_columns;
            for (int r = 0; r < 2; ++r) p.count[r] = entries_below(d, r, p.from[r], p.first_column + s->block_columns);
            if (cursor) {
                write_piece(s, d, &p, *count, cursor[b]);
                move_on(s, *count, &cursor[b]);
            } else {
                *count = count_piece(s, d, &p);
            }
            for (int r = 0; r < 2; ++r) p.from[r] += p.count[r];
        }
    }
}

/* Where each item of each block begins, from the counts; returns the end of the last. */
static lac_cpu_stream_place find_places(lac_cpu_stream_state *s)
{
    lac_cpu_stream_place total = {0, 0};
    for (int64_t b = 0; b < s->blocks; ++b) {
        for (int64_t strip = 0; strip < s->strips; ++strip) {
            if (strip % s->item_strips == 0) s->first[b * s->items + strip / s->item_strips] = total;
            move_on(s, s->counts[b * s->strips + strip], &total);
        }
    }
    return total;
}

static uint64_t rounded_up(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

static lac_status build(const lac_weight *w, lac_cpu_stream_state *s, int threads, job *j)
{
    uint64_t count_bytes = rounded_up((uint64_t)(s->blocks * s->strips) * sizeof *s->counts);
    uint64_t first_bytes = rounded_up((uint64_t)(s->blocks * s->items) * sizeof *s->first);
    *j = (job){.weight = w, .state = s, .decoders = decoders_make(w, s->rows, threads)};
    s->counts = lac_allocate_zeroed(count_bytes);
    s->first = lac_allocate(first_bytes);
    lac_cpu_stream_place *cursors = lac_allocate((uint64_t)threads * (uint64_t)s->blocks * sizeof *cursors);
    if (!j->decoders || !s->counts || !s->first || !cursors) {
        lac_release(cursors);
        return lac_fail_memory("re-tiled weight", count_bytes + first_bytes);
    }
    lac_parallel_for_each(s->items, threads, go_through_item, j);
    lac_cpu_stream_place end = find_places(s);
    uint64_t value_bytes = rounded_up((uint64_t)end.slot * (uint64_t)s->rows * sizeof(float));
    uint64_t bytes = value_bytes + (uint64_t)end.column * sizeof(uint16_t);
    char *storage = lac_allocate(bytes);
    if (storage) {
        s->values = (float *)(void *)storage;
        s->columns = (uint16_t *)(void *)(storage + value_bytes);
        j->cursors = cursors;
        lac_parallel_for_each(s->items, threads, go_through_item, j);
    }
    lac_release(cursors);
    return storage ? LAC_STATUS_OK : lac_fail_memory("re-tiled weight", bytes);
}

lac_status lac_cpu_stream_prepare(const lac_problem *problem, void **out)
{
    const lac_weight *w = problem->weight;
    lac_cpu_stream_state *s = lac_allocate_zeroed(sizeof *s);
    if (!s) return lac_fail_memory("stream", sizeof *s);
    s->rows = lac_cpu_stream_rows(w);
    s->group_rows = s->rows == 4 ? w->geometry.unit_n : w->geometry.n > 0 ? w->geometry.n : 1;
    s->strips = strip_count(&w->geometry, s);
    s->item_strips = lac_cpu_stream_item_rows(problem) / s->rows;
    s->items = lac_ceil_divide(s->strips, s->item_strips);
    s->block_columns = lac_cpu_stream_block_columns(problem);
    s->blocks = lac_ceil_divide(w->geometry.k > 0 ? w->geometry.k : 1, s->block_columns);
    job j;
    lac_status status = build(w, s, lac_parallel_threads_for(problem->options.threads, s->items, w->kept), &j);
    lac_release(j.decoders);
    if (status) {
        lac_cpu_stream_release(s);
        return status;
    }
    *out = s;
    return LAC_STATUS_OK;
}

void lac_cpu_stream_release(void *state)
{
    lac_cpu_stream_state *s = state;
    if (!s) return;
    lac_release(s->counts);
    lac_release(s->first);
    lac_release(s->values);
    lac_release(s);
}
