/* stream_prepare.c - re-tiles a weight for dataflow "stream" (stream_state.h). k is cut into blocks of columns whose packed
 * activations fit the first-level cache, and the rows of W into strips of 4 rows where row groups share their columns, of 2
 * rows elsewhere. What two rows happen to have in common becomes shared slots; the rest of one is put beside the rest of the
 * other. Called by the planner through the kernel's entry in kernels.c. */
#include <string.h>

#include "core/arithmetic.h"
#include "core/memory.h"
#include "core/status.h"
#include "cpu/stream_state.h"
#include "format/row.h"

/* Strips of the group of rows that begins at `first_row`. */
static int64_t group_strips(const lac_geometry *g, const lac_cpu_stream_state *s, int64_t first_row)
{
    return lac_ceil_divide(lac_smaller(g->n - first_row, s->group_rows), s->rows);
}

static int64_t strip_count(const lac_geometry *g, const lac_cpu_stream_state *s)
{
    int64_t whole = g->n / s->group_rows;
    return whole * lac_ceil_divide(s->group_rows, s->rows) + group_strips(g, s, whole * s->group_rows);
}

/* Rows of one strip, decoded. With 4 rows all have the columns of row[0]. */
typedef struct decoder {
    const lac_weight *weight;
    int64_t next;    /* row                                              */
    uint32_t *units; /* [geometry.selected]                              */
    lac_weight_row row[4];
    uint8_t *is_shared[2]; /* [capacity] 2 rows: the other one has the column too */
    void *storage;
} decoder;

static lac_status decoder_make(const lac_weight *w, int rows, decoder *d)
{
    uint64_t capacity = (uint64_t)lac_weight_row_capacity(w);
    uint64_t bytes = (uint64_t)w->geometry.selected * sizeof(uint32_t) +
                     (uint64_t)rows * capacity * (sizeof(float) + sizeof(uint32_t)) + 2 * capacity;
    *d = (decoder){.weight = w, .storage = lac_allocate(bytes)};
    if (!d->storage) return lac_fail_memory("decoding a weight", bytes);
    d->units = d->storage;
    uint32_t *columns = d->units + w->geometry.selected;
    float *values = (float *)(void *)(columns + (uint64_t)rows * capacity);
    for (int r = 0; r < rows; ++r)
        d->row[r] = (lac_weight_row){values + (uint64_t)r * capacity, columns + (uint64_t)r * capacity, 0};
    d->is_shared[0] = (uint8_t *)(values + (uint64_t)rows * capacity);
    d->is_shared[1] = d->is_shared[0] + capacity;
    return LAC_STATUS_OK;
}

/* Decodes the next strip; rows that it has not are empty. */
static void decoder_next(decoder *d, const lac_cpu_stream_state *s)
{
    const lac_geometry *g = &d->weight->geometry;
    int64_t end = lac_smaller(g->n, (d->next / s->group_rows + 1) * s->group_rows);
    for (int r = 0; r < s->rows; ++r) {
        d->row[r].count = 0;
        if (d->next == end) continue;
        lac_weight_decode_row(d->weight, d->next++, r && s->rows == 4 ? &d->row[0] : NULL, d->units, &d->row[r]);
    }
}

/* The entries of row `r` below column `end`, from entry `from` on. */
static int64_t entries_below(const decoder *d, int r, int64_t from, int64_t end)
{
    int64_t i = from;
    while (i < d->row[r].count && d->row[r].columns[i] < end) ++i;
    return i - from;
}

/* Marks what two rows have in common between their entries `from` and `from + count`, a multiple of four of them, so that
 * the inner loop goes without a rest. */
static lac_cpu_stream_count match(const decoder *d, const int64_t from[2], const int64_t count[2])
{
    const uint32_t *a = d->row[0].columns + from[0], *b = d->row[1].columns + from[1];
    uint8_t *a_shared = d->is_shared[0] + from[0], *b_shared = d->is_shared[1] + from[1];
    int64_t common = 0;
    for (int64_t i = 0, j = 0; i < count[0] && j < count[1];) {
        if (a[i] == b[j]) ++common;
        a[i]<b[j] ? ++i : a[i]> b[j] ? ++j : (++i, ++j);
    }
    common = common / 4 * 4;
    for (int64_t i = 0; i < count[0]; ++i) a_shared[i] = 0;
    for (int64_t j = 0; j < count[1]; ++j) b_shared[j] = 0;
    int64_t left = common;
    for (int64_t i = 0, j = 0; left > 0;) {
        if (a[i] == b[j]) a_shared[i] = b_shared[j] = 1, --left;
        a[i]<b[j] ? ++i : a[i]> b[j] ? ++j : (++i, ++j);
    }
    int64_t most = count[0] > count[1] ? count[0] : count[1];
    return (lac_cpu_stream_count){(uint32_t)common, (uint32_t)(most - common)};
}

/* One strip's part of one block: entries from[r] to from[r] + count[r] of each row. */
typedef struct piece {
    int64_t from[2], count[2];
    int64_t first_column; /* of the block */
} piece;

static lac_cpu_stream_count count_piece(const lac_cpu_stream_state *s, const decoder *d, const piece *p)
{
    if (s->rows == 2) return match(d, p->from, p->count);
    return (lac_cpu_stream_count){.shared = (uint32_t)p->count[0]};
}

/* The entries of row `r` (all rows share row 0's where there are 4), shared ones first. */
static void write_piece(const lac_cpu_stream_state *s, const decoder *d, const piece *p, lac_cpu_stream_count count,
                        lac_cpu_stream_place at)
{
    float *values = s->values + at.slot * s->rows;
    uint16_t *columns = s->columns + at.column;
    memset(values, 0, (size_t)(count.shared + count.own) * (size_t)s->rows * sizeof *values);
    memset(columns, 0, (count.shared + (size_t)s->rows * count.own) * sizeof *columns);
    for (int r = 0; r < s->rows; ++r) {
        const lac_weight_row *row = &d->row[r];
        int64_t from = p->from[s->rows == 2 ? r : 0], entries = p->count[s->rows == 2 ? r : 0], shared = 0, own = 0;
        for (int64_t i = from; i < from + entries && i < row->count; ++i) {
            uint16_t column = (uint16_t)(row->columns[i] - p->first_column);
            if (s->rows == 4 || d->is_shared[r][i]) {
                values[shared * s->rows + r] = row->values[i];
                columns[shared++] = column;
            } else {
                values[(count.shared + own) * s->rows + r] = row->values[i];
                columns[count.shared + own++ * s->rows + r] = column;
            }
        }
    }
}

/* Goes through all strips and blocks: counts the slots, or, with cursors [blocks], writes them. */
static void each_piece(lac_cpu_stream_state *s, decoder d, lac_cpu_stream_place *cursor)
{
    for (int64_t strip = 0; strip < s->strips; ++strip) {
        decoder_next(&d, s);
        piece p = {.from = {0, 0}};
        for (int64_t b = 0; b < s->blocks; ++b) {
            lac_cpu_stream_count *count = &s->counts[b * s->strips + strip];
            p.first_column = b * s->block_columns;
            for (int r = 0; r < 2; ++r) p.count[r] = entries_below(&d, r, p.from[r], p.first_column + s->block_columns);
            *count = count_piece(s, &d, &p);
            if (cursor) {
                if (strip % s->item_strips == 0) s->first[b * s->items + strip / s->item_strips] = cursor[b];
                write_piece(s, &d, &p, *count, cursor[b]);
                cursor[b].slot += count->shared + count->own;
                cursor[b].column += count->shared + (int64_t)s->rows * count->own;
            }
            for (int r = 0; r < 2; ++r) p.from[r] += p.count[r];
        }
    }
}

static uint64_t rounded_up(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Where each block begins, from the counts; returns the end of the last. */
static lac_cpu_stream_place block_starts(const lac_cpu_stream_state *s, lac_cpu_stream_place *starts)
{
    lac_cpu_stream_place total = {0, 0};
    for (int64_t b = 0; b < s->blocks; ++b) {
        starts[b] = total;
        for (int64_t i = 0; i < s->strips; ++i) {
            const lac_cpu_stream_count *count = &s->counts[b * s->strips + i];
            total.slot += count->shared + count->own;
            total.column += count->shared + (int64_t)s->rows * count->own;
        }
    }
    return total;
}

static lac_status build(const lac_weight *w, lac_cpu_stream_state *s, decoder *d)
{
    uint64_t count_bytes = rounded_up((uint64_t)(s->blocks * s->strips) * sizeof *s->counts);
    uint64_t first_bytes = rounded_up((uint64_t)(s->blocks * (s->items + 1)) * sizeof *s->first);
    s->counts = lac_allocate_zeroed(count_bytes);
    lac_cpu_stream_place *cursor = lac_allocate((uint64_t)s->blocks * sizeof *cursor);
    lac_status status = LAC_STATUS_OK;
    if (!s->counts || !cursor) {
        status = lac_fail_memory("re-tiled weight", count_bytes);
    } else if (!(status = decoder_make(w, s->rows, d))) {
        each_piece(s, *d, NULL);
        lac_cpu_stream_place end = block_starts(s, cursor);
        uint64_t value_bytes = rounded_up((uint64_t)end.slot * (uint64_t)s->rows * sizeof(float));
        uint64_t bytes = first_bytes + value_bytes + (uint64_t)end.column * sizeof(uint16_t);
        char *storage = lac_allocate(bytes);
        if (storage) {
            s->storage = storage;
            s->first = (lac_cpu_stream_place *)(void *)storage;
            s->values = (float *)(void *)(storage + first_bytes);
            s->columns = (uint16_t *)(void *)(storage + first_bytes + value_bytes);
            each_piece(s, *d, cursor);
        } else {
            status = lac_fail_memory("re-tiled weight", bytes);
        }
        lac_release(d->storage);
    }
    lac_release(cursor);
    return status;
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
    decoder d;
    lac_status status = build(w, s, &d);
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
    lac_release(s->storage);
    lac_release(s);
}
