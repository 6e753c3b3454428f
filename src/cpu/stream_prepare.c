/* stream_prepare.c - re-tiles a weight for dataflow "stream" (stream_state.h). k is cut into blocks of columns whose packed
 * activations fit the first-level cache, and the rows of W into strips of 4 rows where row groups share their columns, of 2
 * rows elsewhere (stream_pairs.c). Threads take items of strips, twice: to count the slots, and, once it is known where each
 * item's begin, to write them. Called by the planner through the kernel's entry in kernels.c. */
#include "core/arithmetic.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "cpu/stream_pairs.h"
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

/* What a thread has for itself: the rows of one strip, decoded. All have the columns of row[0]. */
typedef struct decoder {
    lac_weight_row row[4];
    uint32_t *units; /* [geometry.selected] */
} decoder;

static decoder *decoders_make(const lac_weight *w, int threads)
{
    uint64_t capacity = (uint64_t)lac_weight_row_capacity(w), selected = (uint64_t)w->geometry.selected;
    lac_rooms of;
    decoder *decoders = lac_allocate_rooms(threads, sizeof *decoders, (5 * capacity + selected) * sizeof(uint32_t), &of);
    if (!decoders) return NULL;
    for (int i = 0; i < threads; ++i) {
        decoder *d = &decoders[i];
        float *values = (float *)(void *)(of.first + (uint64_t)i * of.each);
        uint32_t *columns = (uint32_t *)(void *)(values + 4 * capacity);
        for (int r = 0; r < 4; ++r) d->row[r] = (lac_weight_row){values + (uint64_t)r * capacity, columns, 0};
        d->units = columns + capacity;
    }
    return decoders;
}

/* Rows that the strip has not are empty. */
static void decode_strip(const lac_weight *w, const lac_cpu_stream_state *s, int64_t strip, decoder *d)
{
    int rows;
    int64_t first = strip_begin(&w->geometry, s, strip, &rows);
    for (int r = 0; r < 4; ++r) {
        d->row[r].count = 0;
        if (r < rows) lac_weight_decode_row(w, first + r, r ? &d->row[0] : NULL, d->units, &d->row[r]);
    }
}

/* The entries of a strip below column `end`, from entry `from` on. */
static int64_t entries_below(const decoder *d, int64_t from, int64_t end)
{
    int64_t i = from;
    while (i < d->row[0].count && d->row[0].columns[i] < end) ++i;
    return i - from;
}

/* A strip's part of a block: `count` entries of each row from `from` on. */
static void write_piece(const lac_cpu_stream_state *s, const decoder *d, int64_t from, int64_t count, int64_t first_column,
                        lac_cpu_stream_place at)
{
    float *values = s->values + at.slot * 4;
    uint16_t *columns = s->columns + at.column;
    for (int64_t i = 0; i < count; ++i) columns[i] = (uint16_t)(d->row[0].columns[from + i] - first_column);
    for (int r = 0; r < 4; ++r)
        for (int64_t i = 0; i < count; ++i) values[i * 4 + r] = d->row[r].count ? d->row[r].values[from + i] : 0.0f;
}

/* Strips of 4 rows. */
typedef struct fours {
    const lac_weight *weight;
    lac_cpu_stream_state *state;
    decoder *decoders;             /* [thread]                                                 */
    lac_cpu_stream_place *cursors; /* [thread][blocks], to write the slots; NULL: to count them */
} fours;

/* All strips of an item, block by block. */
static void go_through_item(void *opaque, int thread, int64_t item)
{
    const fours *f = opaque;
    lac_cpu_stream_state *s = f->state;
    decoder *d = &f->decoders[thread];
    lac_cpu_stream_place *cursor = f->cursors ? f->cursors + thread * s->blocks : NULL;
    for (int64_t b = 0; cursor && b < s->blocks; ++b) cursor[b] = s->first[b * s->items + item];
    for (int64_t strip = item * s->item_strips; strip < lac_smaller((item + 1) * s->item_strips, s->strips); ++strip) {
        decode_strip(f->weight, s, strip, d);
        int64_t from = 0;
        for (int64_t b = 0; b < s->blocks; ++b) {
            int64_t first_column = b * s->block_columns, entries = entries_below(d, from, first_column + s->block_columns);
            lac_cpu_stream_strip *slots = &s->strip[b * s->strips + strip];
            if (cursor) {
                write_piece(s, d, from, entries, first_column, cursor[b]);
                lac_cpu_stream_move_on(*slots, &cursor[b]);
            } else {
                *slots = (lac_cpu_stream_strip){.shared = (uint16_t)entries};
            }
            from += entries;
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
            lac_cpu_stream_move_on(s->strip[b * s->strips + strip], &total);
        }
    }
    return total;
}

static uint64_t rounded_up(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Room for the slots that were counted, with where each item's begin. */
static bool make_slots(lac_cpu_stream_state *s, uint64_t *bytes)
{
    lac_cpu_stream_place end = find_places(s);
    uint64_t value_bytes = rounded_up((uint64_t)end.slot * (uint64_t)s->rows * sizeof(float));
    *bytes = value_bytes + (uint64_t)end.column * sizeof(uint16_t);
    char *storage = lac_allocate(*bytes);
    if (!storage) return false;
    s->values = (float *)(void *)storage;
    s->columns = (uint16_t *)(void *)(storage + value_bytes);
    return true;
}

static bool build_fours(const lac_problem *problem, lac_cpu_stream_state *s, int threads, uint64_t *bytes)
{
    fours f = {.weight = problem->weight, .state = s, .decoders = decoders_make(problem->weight, threads)};
    lac_cpu_stream_place *cursors = lac_allocate((uint64_t)threads * (uint64_t)s->blocks * sizeof *cursors);
    bool done = false;
    if (f.decoders && cursors) {
        lac_parallel_for_each(s->items, threads, go_through_item, &f);
        done = make_slots(s, bytes);
        f.cursors = cursors;
        if (done) lac_parallel_for_each(s->items, threads, go_through_item, &f);
    }
    lac_release(f.decoders);
    lac_release(cursors);
    return done;
}

static bool build_pairs(const lac_problem *problem, lac_cpu_stream_state *s, int threads, uint64_t *bytes)
{
    lac_cpu_stream_pairs *pairs = lac_cpu_stream_pairs_make(problem, s, threads);
    bool done = false;
    if (pairs) {
        lac_parallel_for_each(s->items, threads, lac_cpu_stream_pairs_choose, pairs);
        done = make_slots(s, bytes);
        if (done) lac_parallel_for_each(s->items, threads, lac_cpu_stream_pairs_write, pairs);
    }
    lac_cpu_stream_pairs_release(pairs);
    return done;
}

static lac_status build(const lac_problem *problem, lac_cpu_stream_state *s, int threads)
{
    uint64_t bytes = (uint64_t)(s->blocks * s->strips) * sizeof *s->strip;
    s->strip = lac_allocate_zeroed(bytes);
    s->first = lac_allocate((uint64_t)(s->blocks * s->items) * sizeof *s->first);
    bool done = s->strip && s->first &&
                (s->rows == 4 ? build_fours(problem, s, threads, &bytes) : build_pairs(problem, s, threads, &bytes));
    return done ? LAC_STATUS_OK : lac_fail_memory("re-tiled weight", bytes);
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
    lac_status status = build(problem, s, lac_parallel_threads_for(problem->options.threads, s->items, w->kept));
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
    lac_release(s->strip);
    lac_release(s->first);
    lac_release(s->values);
    lac_release(s);
}
