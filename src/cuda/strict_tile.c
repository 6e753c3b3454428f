/* strict_tile.c - cuts each block's columns into steps and writes them in the order in which strict.cu copies them.
 *
 * A block's vectors walk their columns together, from the lowest to the highest. A step takes the next column of any vector
 * until a vector has used up its slots or the rows of X in a stage are full: with N:M and a step of whole groups all vectors
 * fill their slots at the same column, with a free distribution some slots stay empty. An empty slot has a weight of zero and
 * reads the step's first row, which is always there. */
#include "cuda/strict_tile.h"

#include <stdbool.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

enum { MOST_WARPS_N = 32 };

/* One block on its way through its columns. */
typedef struct walk {
    const lac_strict_source *source;
    const lac_strict_shape *shape;
    int vectors;                 /* of the block, those past the last one left out */
    int64_t vector;              /* its first                                      */
    int64_t at[MOST_WARPS_N];    /* each vector's next column                      */
    int64_t begin[MOST_WARPS_N]; /* ... and where that stood when the step began   */
} walk;

static const uint32_t no_column = UINT32_MAX;

static walk walk_begin(const lac_strict_source *source, const lac_strict_shape *shape, int64_t block)
{
    walk w = {.source = source, .shape = shape, .vector = block * shape->warps_n};
    int64_t left = source->vectors - w.vector;
    w.vectors = left < shape->warps_n ? (int)left : shape->warps_n;
    for (int v = 0; v < w.vectors; ++v) w.at[v] = source->first[w.vector + v];
    return w;
}

/* The lowest column that a vector of the block still has; no_column at the end. */
static uint32_t next_column(const walk *w)
{
    uint32_t lowest = no_column;
    for (int v = 0; v < w->vectors; ++v)
        if (w->at[v] < w->source->first[w->vector + v + 1] && w->source->columns[w->at[v]] < lowest)
            lowest = w->source->columns[w->at[v]];
    return lowest;
}

/* Where the offset of a vector's slot stands: [warps_n][slices][slots / slices + 4]. */
static int offset_at(const lac_strict_shape *s, int vector, int64_t slot)
{
    int share = s->slots / s->slices;
    return (int)((vector * s->slices + slot / share) * (share + 4) + slot % share);
}

/* Takes one step's columns; false when there are none left. Where they are not NULL, `columns` gets the step's part of the
 * tiled columns, `offsets` the number of each slot's row. */
static bool walk_step(walk *w, uint32_t *columns, uint32_t *offsets)
{
    const lac_strict_shape *s = w->shape;
    uint32_t start = next_column(w);
    if (start == no_column) return false;
    if (!s->packed && start > w->source->k - (uint32_t)s->rows) start = w->source->k - (uint32_t)s->rows;
    memcpy(w->begin, w->at, sizeof w->at);
    int used = 0;
    for (uint32_t column = next_column(w); column != no_column; column = next_column(w)) {
        int row = s->packed ? used : (int)(column - start);
        if (s->packed ? used == s->rows : column - start >= (uint32_t)s->rows) break;
        bool full = false;
        for (int v = 0; v < w->vectors; ++v)
            full = full || (w->at[v] < w->source->first[w->vector + v + 1] && w->source->columns[w->at[v]] == column &&
                            w->at[v] - w->begin[v] == s->slots);
        if (full) break;
        for (int v = 0; v < w->vectors; ++v)
            if (w->at[v] < w->source->first[w->vector + v + 1] && w->source->columns[w->at[v]] == column) {
                if (offsets) offsets[offset_at(s, v, w->at[v] - w->begin[v])] = (uint32_t)row;
                ++w->at[v];
            }
        if (columns && s->packed) columns[used] = w->source->input ? w->source->input[column] : column;
        ++used;
    }
    if (columns && s->packed)
        for (; used < s->rows; ++used) columns[used] = no_column;
    if (columns && !s->packed) columns[0] = start;
    return true;
}

static lac_status count_steps(const lac_strict_source *source, const lac_strict_shape *shape, lac_strict_tiled *t)
{
    uint64_t steps = 0;
    for (int64_t b = 0; b < t->blocks; ++b) {
        t->first_step[b] = (uint32_t)steps;
        walk w = walk_begin(source, shape, b);
        while (walk_step(&w, NULL, NULL)) ++steps;
        if (steps >= INT32_MAX)
            return lac_fail(LAC_STATUS_UNSUPPORTED, "weight: more than 2^31 steps of %d slots", shape->slots);
    }
    t->first_step[t->blocks] = (uint32_t)steps;
    t->steps = (int64_t)steps;
    return LAC_STATUS_OK;
}

/* The weights of one step, and its offsets in bytes. The 4 offsets past a vector's own are copied from the next step. */
static void write_step(const walk *w, char *record, char *before)
{
    const lac_strict_shape *s = w->shape;
    const int block_n = lac_strict_block_n(s), warp_n = lac_strict_warp_n(s);
    const uint64_t offsets_at = (uint64_t)s->slots * (uint64_t)block_n * sizeof(float);
    float *weights = (float *)(void *)record;
    uint32_t *offsets = (uint32_t *)(void *)(record + offsets_at);
    for (int v = 0; v < w->vectors; ++v)
        for (int64_t slot = w->begin[v]; slot < w->at[v]; ++slot)
            w->source->values(w->source->user, w->vector + v, slot - w->source->first[w->vector + v],
                              weights + (slot - w->begin[v]) * block_n + (int64_t)v * warp_n);
    const int share = s->slots / s->slices, runs = s->warps_n * s->slices;
    for (int i = 0; i < runs * (share + 4); ++i) offsets[i] *= (uint32_t)lac_strict_block_m(s) * 4;
    if (!before) return;
    uint32_t *earlier = (uint32_t *)(void *)(before + offsets_at);
    for (int r = 0; r < runs; ++r) memcpy(earlier + r * (share + 4) + share, offsets + r * (share + 4), 4 * sizeof *offsets);
}

lac_status lac_strict_tile(const lac_strict_source *source, const lac_strict_shape *shape, lac_strict_tiled *out)
{
    lac_strict_tiled t = {.blocks = (source->vectors + shape->warps_n - 1) / shape->warps_n};
    uint64_t first_bytes = ((uint64_t)t.blocks + 1) * sizeof *t.first_step;
    t.first_step = lac_allocate(first_bytes);
    if (!t.first_step) return lac_fail_memory("re-tiled weight", first_bytes);
    lac_status status = count_steps(source, shape, &t);
    const uint64_t record = lac_strict_record_bytes(shape), entries = shape->packed ? (uint64_t)shape->rows : 1;
    if (!status) {
        t.records = lac_allocate_zeroed((uint64_t)t.steps * record);
        t.columns = lac_allocate_zeroed(((uint64_t)t.steps + 1) * entries * sizeof *t.columns);
        if (!t.records || !t.columns)
            status = lac_fail_memory("re-tiled weight", (uint64_t)t.steps * (record + entries * sizeof *t.columns));
    }
    if (status) {
        lac_strict_tiled_release(&t);
        return status;
    }
    const uint64_t offsets_at = (uint64_t)shape->slots * (uint64_t)lac_strict_block_n(shape) * sizeof(float);
    for (int64_t b = 0; b < t.blocks; ++b) {
        walk w = walk_begin(source, shape, b);
        for (uint64_t step = t.first_step[b]; step < t.first_step[b + 1]; ++step) {
            char *to = (char *)t.records + step * record;
            walk_step(&w, t.columns + step * entries, (uint32_t *)(void *)(to + offsets_at));
            write_step(&w, to, step > t.first_step[b] ? to - record : NULL);
        }
    }
    *out = t;
    return LAC_STATUS_OK;
}

void lac_strict_tiled_release(lac_strict_tiled *tiled)
{
    lac_release(tiled->first_step);
    lac_release(tiled->columns);
    lac_release(tiled->records);
    *tiled = (lac_strict_tiled){0};
}
