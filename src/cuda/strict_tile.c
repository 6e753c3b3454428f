/* strict_tile.c - cuts each block's columns into steps and writes them in the order in which strict.cu copies them.
 *
 * A block's vectors walk their columns together, from the lowest to the highest. A step takes the next column of any vector
 * until a vector has used up its slots or the rows of X in a stage are full: with N:M and a step of whole groups all vectors
 * fill their slots at the same column, with a free distribution (uneven) each runs through as many as it has. An empty slot
 * has a weight of zero and reads the step's first row, which is always there.
 *
 * The column that a step ends before follows from one look at each vector: where it would need a slot more than it has. So
 * each vector's columns are walked through by themselves, and nothing is compared column by column. */
#include "cuda/strict_tile.h"

#include <stdbool.h>
#include <string.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"

enum { MOST_LISTS = 128 };

static const uint32_t no_column = UINT32_MAX;

/* Of the packed path: the columns that a block's vectors keep together. */
typedef struct kept_columns {
    uint32_t *column; /* [k] the first `count` of them, ascending             */
    uint32_t *number; /* [k] the place of a kept column there; others nowhere */
    int64_t count;
} kept_columns;

/* One block on its way through its columns. A step takes what the vectors have before column `end`. */
typedef struct walk {
    const lac_strict_source *source;
    const lac_strict_shape *shape;
    const lac_strict_list *lists; /* of the block's vectors                                    */
    int64_t vector;               /* its first                                                 */
    int vectors;                  /* those past the last one left out                          */
    const kept_columns *kept;     /* packed, else NULL                                         */
    int64_t next;                 /* packed: the first one of `kept` that no step has taken    */
    uint32_t start;               /* row 0 of the stage: direct a column, packed one of `kept` */
    int shift;                    /* every: the row of the step's first slot                   */
    int taken[MOST_LISTS];        /* columns of each vector in this step                       */
    lac_strict_cursor cursor[MOST_LISTS];
} walk;

/* Marks the columns, then numbers them. */
static void collect(const walk *w, kept_columns *kept)
{
    memset(kept->number, 0, (size_t)w->source->k * sizeof *kept->number);
    for (int v = 0; v < w->vectors; ++v) {
        const lac_strict_list *list = &w->lists[v];
        if (v && list->columns == list[-1].columns) continue;
        for (int64_t i = 0; i < list->count; ++i) kept->number[list->columns[i]] = 1;
    }
    uint32_t count = 0;
    for (uint32_t column = 0; column < w->source->k; ++column) {
        const uint32_t is_kept = kept->number[column];
        kept->column[count] = column;
        kept->number[column] = count;
        count += is_kept;
    }
    kept->count = count;
}

/* `kept` is scratch for the packed path, else NULL. */
static void walk_begin(walk *w, const lac_strict_source *source, const lac_strict_shape *shape, int64_t block,
                       kept_columns *kept)
{
    *w = (walk){.source = source, .shape = shape, .vector = block * lac_strict_lists(shape), .kept = kept};
    const int64_t left = source->vectors - w->vector;
    w->vectors = left < lac_strict_lists(shape) ? (int)left : lac_strict_lists(shape);
    w->lists = source->lists + w->vector;
    if (kept) collect(w, kept);
}

/* The lowest column that a vector of the block still has; no_column at the end. */
static uint32_t lowest_column(const walk *w)
{
    if (w->kept) return w->next < w->kept->count ? w->kept->column[w->next] : no_column;
    uint32_t lowest = no_column;
    for (int v = 0; v < w->vectors; ++v) {
        const int64_t slot = w->cursor[v].slot;
        if (slot < w->lists[v].count && w->lists[v].columns[slot] < lowest) lowest = w->lists[v].columns[slot];
    }
    return lowest;
}

/* The column before which the step ends: the stage is full, or a vector has a column more than it has slots for. */
static uint32_t step_end(const walk *w)
{
    const lac_strict_shape *s = w->shape;
    uint32_t end = w->start + (uint32_t)s->rows;
    if (w->kept) end = end < w->kept->count ? w->kept->column[end] : no_column;
    for (int v = 0; v < w->vectors; ++v) {
        const int64_t beyond = w->cursor[v].slot + s->slots;
        if (beyond < w->lists[v].count && w->lists[v].columns[beyond] < end) end = w->lists[v].columns[beyond];
    }
    return end;
}

/* How many of the `most` next columns lie before `end`. They ascend, but counting them all has no branch to guess. */
static int count_before(const uint32_t *columns, int most, uint32_t end)
{
    int count = 0;
    for (int i = 0; i < most; ++i) count += columns[i] < end;
    return count;
}

/* Finds what the next step takes; false when no columns are left. */
static bool walk_step(walk *w)
{
    const lac_strict_shape *s = w->shape;
    const uint32_t lowest = lowest_column(w);
    if (lowest == no_column) return false;
    const uint32_t last_start = w->source->k - (uint32_t)s->rows;
    w->start = w->kept ? (uint32_t)w->next : lowest < last_start ? lowest : last_start;
    w->shift = s->every ? (int)(lowest - w->start) : 0;
    const uint32_t end = step_end(w);
    for (int v = 0; v < w->vectors; ++v) {
        const int64_t slot = w->cursor[v].slot, left = w->lists[v].count - slot;
        w->taken[v] = count_before(w->lists[v].columns + slot, left < s->slots ? (int)left : s->slots, end);
    }
    if (w->kept) w->next = end == no_column ? w->kept->count : w->kept->number[end];
    return true;
}

/* The step's part of the tiled columns. */
static void write_columns(const walk *w, uint32_t *columns)
{
    if (!w->kept) {
        columns[0] = w->start;
        return;
    }
    const uint32_t *kept = w->kept->column + w->start, *input = w->source->input;
    const int used = (int)(w->next - w->start);
    for (int row = 0; row < used; ++row) columns[row] = input ? input[kept[row]] : kept[row];
    for (int row = used; row < w->shape->rows; ++row) columns[row] = no_column;
}

/* Where the rows of X lie in the stage, in bytes, for the next `count` columns of a vector. */
static void write_offsets(const walk *w, int vector, int count, uint32_t *offsets)
{
    const uint32_t *columns = w->lists[vector].columns + w->cursor[vector].slot;
    const uint32_t row_bytes = (uint32_t)lac_strict_block_m(w->shape) * 4;
    for (int i = 0; i < count; ++i) offsets[i] = ((w->kept ? w->kept->number[columns[i]] : columns[i]) - w->start) * row_bytes;
}

/* What the threads share. */
typedef struct tiling {
    const lac_strict_source *source;
    const lac_strict_shape *shape;
    kept_columns *kept; /* [threads] packed, else NULL */
    lac_strict_tiled *tiled;
} tiling;

/* Into first_step[block + 1]; a block has no more steps than columns, and these fit. */
static void count_block(void *state, int thread, int64_t block)
{
    const tiling *t = state;
    uint32_t steps = 0;
    walk w;
    walk_begin(&w, t->source, t->shape, block, t->kept ? &t->kept[thread] : NULL);
    for (; walk_step(&w); ++steps)
        for (int v = 0; v < w.vectors; ++v) w.cursor[v].slot += w.taken[v];
    t->tiled->first_step[block + 1] = steps;
}

static lac_status count_steps(tiling *t, int threads)
{
    uint64_t steps = 0;
    lac_parallel_for_each(t->tiled->blocks, threads, count_block, t);
    t->tiled->first_step[0] = 0;
    for (int64_t b = 1; b <= t->tiled->blocks; ++b) {
        steps += t->tiled->first_step[b];
        if (steps >= INT32_MAX)
            return lac_fail(LAC_STATUS_UNSUPPORTED, "weight: more than 2^31 steps of %d slots", t->shape->slots);
        t->tiled->first_step[b] = (uint32_t)steps;
    }
    t->tiled->steps = (int64_t)steps;
    return LAC_STATUS_OK;
}

/* How many of its slots a vector runs through in each slice: all of them, or no more than it needs, by fours. */
static int slots_taken(const lac_strict_shape *s, int used)
{
    if (!s->uneven) return s->slots / s->slices;
    const int each = ((used + s->slices - 1) / s->slices + 3) / 4 * 4;
    return each ? each : 4;
}

/* The weights of one step and its offsets, in bytes. Behind the offsets of the step before go this one's first 4. */
static void write_step(walk *w, char *record, char *before)
{
    const lac_strict_shape *s = w->shape;
    const int block_n = lac_strict_block_n(s), warp_n = lac_strict_warp_n(s), share = s->slots / s->slices;
    const uint64_t offsets_at = (uint64_t)s->slots * (uint64_t)block_n * sizeof(float);
    for (int v = 0; v < s->warps_n; ++v) {
        int left = v < w->vectors ? w->taken[v] : 0;
        const int taken = slots_taken(s, left);
        const uint64_t first = (uint64_t)(v * s->slices * lac_strict_slice_offsets(s)) * sizeof(uint32_t);
        for (int slice = 0; slice < s->slices; ++slice) {
            const uint64_t at = offsets_at + first + (uint64_t)(slice * lac_strict_slice_offsets(s)) * sizeof(uint32_t);
            uint32_t *offsets = (uint32_t *)(void *)(record + at);
            const int count = left < taken ? left : taken;
            if (count) {
                write_offsets(w, v, count, offsets);
                w->source->values(w->source->user, w->vector + v, count, &w->cursor[v],
                                  (float *)(void *)record + (slice * share + w->shift) * block_n + v * warp_n, block_n);
                left -= count;
            }
            if (s->uneven) offsets[share + 5] = (uint32_t)taken;
            if (!before) continue;
            uint32_t *earlier = (uint32_t *)(void *)(before + at);
            memcpy(earlier + (s->uneven ? (int)earlier[share + 5] : share), offsets, 4 * sizeof *offsets);
            if (s->uneven) earlier[share + 4] = (uint32_t)taken;
        }
    }
}

/* The same where each row has a list of its own: weights and offsets lie row by row. */
static void write_rows(walk *w, char *record)
{
    const lac_strict_shape *s = w->shape;
    float *weights = (float *)(void *)record;
    uint32_t *offsets = (uint32_t *)(void *)(record + (uint64_t)(s->slots * lac_strict_block_n(s)) * sizeof(float));
    for (int v = 0; v < w->vectors; ++v) {
        if (!w->taken[v]) continue;
        write_offsets(w, v, w->taken[v], offsets + v * s->slots);
        w->source->values(w->source->user, w->vector + v, w->taken[v], &w->cursor[v], weights + v * s->slots, 1);
    }
}

/* A record is cleared just before it is written, while it is near. */
static void tile_block(void *state, int thread, int64_t block)
{
    const tiling *t = state;
    const lac_strict_tiled *out = t->tiled;
    const uint64_t record = lac_strict_record_bytes(t->shape), entries = t->shape->packed ? (uint64_t)t->shape->rows : 1;
    walk w;
    walk_begin(&w, t->source, t->shape, block, t->kept ? &t->kept[thread] : NULL);
    for (uint64_t step = out->first_step[block]; step < out->first_step[block + 1]; ++step) {
        char *to = (char *)out->records + step * record;
        walk_step(&w);
        write_columns(&w, out->columns + step * entries);
        memset(to, 0, record);
        if (t->shape->rowwise)
            write_rows(&w, to);
        else
            write_step(&w, to, step > out->first_step[block] ? to - record : NULL);
    }
}

/* Scratch for the packed path, one for each thread; lac_release gives all of it back. */
static kept_columns *make_kept(uint32_t k, int threads)
{
    lac_rooms rooms;
    kept_columns *kept = lac_allocate_rooms(threads, sizeof *kept, 2 * (uint64_t)k * sizeof(uint32_t), &rooms);
    for (int i = 0; kept && i < threads; ++i) {
        uint32_t *own = (void *)(rooms.first + (uint64_t)i * rooms.each);
        kept[i] = (kept_columns){.column = own, .number = own + k};
    }
    return kept;
}

static lac_status allocate_steps(const lac_strict_shape *shape, lac_strict_tiled *tiled)
{
    const uint64_t record = lac_strict_record_bytes(shape), entries = shape->packed ? (uint64_t)shape->rows : 1;
    const uint64_t steps = (uint64_t)tiled->steps, columns = steps * entries, ahead = LAC_STRICT_READ_AHEAD * entries;
    tiled->records = lac_allocate(steps * record);
    tiled->columns = lac_allocate((columns + ahead) * sizeof *tiled->columns);
    if (!tiled->records || !tiled->columns)
        return lac_fail_memory("re-tiled weight", steps * (record + entries * sizeof *tiled->columns));
    memset(tiled->columns + columns, 0, ahead * sizeof *tiled->columns);
    return LAC_STATUS_OK;
}

static int threads_for(const lac_strict_source *source, const lac_strict_shape *shape, int64_t blocks)
{
    int64_t kept = 0;
    for (int64_t v = 0; v < source->vectors; ++v) kept += source->lists[v].count;
    return lac_parallel_threads_for(0, blocks, kept * lac_strict_list_n(shape));
}

/* Counts, makes room, fills: blocks have places of their own, so no result depends on the number of threads. */
lac_status lac_strict_tile(const lac_strict_source *source, const lac_strict_shape *shape, lac_strict_tiled *out)
{
    lac_strict_tiled tiled = {.blocks = (source->vectors + lac_strict_lists(shape) - 1) / lac_strict_lists(shape)};
    tiling t = {.source = source, .shape = shape, .tiled = &tiled};
    const int threads = threads_for(source, shape, tiled.blocks);
    const uint64_t first_bytes = ((uint64_t)tiled.blocks + 1) * sizeof *tiled.first_step;
    tiled.first_step = lac_allocate(first_bytes);
    if (shape->packed) t.kept = make_kept(source->k, threads);
    lac_status status = LAC_STATUS_OK;
    if (!tiled.first_step || (shape->packed && !t.kept)) status = lac_fail_memory("re-tiled weight", first_bytes);
    if (!status) status = count_steps(&t, threads);
    if (!status) status = allocate_steps(shape, &tiled);
    if (!status) lac_parallel_for_each(tiled.blocks, threads, tile_block, &t);
    lac_release(t.kept);
    if (status)
        lac_strict_tiled_release(&tiled);
    else
        *out = tiled;
    return status;
}

void lac_strict_tiled_release(lac_strict_tiled *tiled)
{
    lac_release(tiled->first_step);
    lac_release(tiled->columns);
    lac_release(tiled->records);
    *tiled = (lac_strict_tiled){0};
}
