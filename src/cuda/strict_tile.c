/* strict_tile.c - cuts each block's columns into steps and writes them in the order in which strict.cu copies them.
 *
 * A block's vectors walk their columns together, from the lowest to the highest. A step takes the next column of any vector
 * until a vector has used up its slots or the rows of X in a stage are full: with N:M and a step of whole groups all vectors
 * fill their slots at the same column, with a free distribution (uneven) each runs through as many as it has. An empty slot
 * has a weight of zero and reads the step's first row, which is always there. */
#include "cuda/strict_tile.h"

#include <stdbool.h>
#include <string.h>

#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"

enum { MOST_LISTS = 128, MOST_SLOTS = 64 };

/* One block on its way through its columns. */
typedef struct walk {
    const lac_strict_source *source;
    const lac_strict_shape *shape;
    int vectors;                     /* of the block, those past the last one left out */
    int64_t vector;                  /* its first                                      */
    int64_t at[MOST_LISTS];          /* each vector's next column                      */
    int64_t begin[MOST_LISTS];       /* ... and where that stood when the step began   */
    int row[MOST_LISTS][MOST_SLOTS]; /* of the stage, for each slot of the step        */
    int shift;                       /* every: the row of the step's first slot        */
} walk;

static const uint32_t no_column = UINT32_MAX;

static walk walk_begin(const lac_strict_source *source, const lac_strict_shape *shape, int64_t block)
{
    walk w = {.source = source, .shape = shape, .vector = block * lac_strict_lists(shape)};
    int64_t left = source->vectors - w.vector;
    w.vectors = left < lac_strict_lists(shape) ? (int)left : lac_strict_lists(shape);
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

/* Takes one step's columns; false when there are none left. `columns`, unless NULL, gets the step's part of the tiled ones. */
static bool walk_step(walk *w, uint32_t *columns)
{
    const lac_strict_shape *s = w->shape;
    uint32_t start = next_column(w);
    if (start == no_column) return false;
    if (!s->packed && start > w->source->k - (uint32_t)s->rows) start = w->source->k - (uint32_t)s->rows;
    memcpy(w->begin, w->at, sizeof w->at);
    w->shift = s->every ? (int)(next_column(w) - start) : 0;
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
                w->row[v][w->at[v] - w->begin[v]] = row;
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

/* What the threads share. */
typedef struct tiling {
    const lac_strict_source *source;
    const lac_strict_shape *shape;
    lac_strict_tiled *tiled;
} tiling;

/* Into first_step[block + 1]; a block has no more steps than columns, and these fit. */
static void count_block(void *state, int thread, int64_t block)
{
    (void)thread;
    const tiling *t = state;
    uint32_t steps = 0;
    walk w = walk_begin(t->source, t->shape, block);
    while (walk_step(&w, NULL)) ++steps;
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
static int slots_taken(const walk *w, int vector)
{
    const lac_strict_shape *s = w->shape;
    if (!s->uneven) return s->slots / s->slices;
    int64_t used = vector < w->vectors ? w->at[vector] - w->begin[vector] : 0;
    int each = (int)((used + s->slices - 1) / s->slices + 3) / 4 * 4;
    return each ? each : 4;
}

/* The weights of one step and its offsets, in bytes. Behind the offsets of the step before go this one's first 4. */
static void write_step(const walk *w, char *record, char *before)
{
    const lac_strict_shape *s = w->shape;
    const int block_n = lac_strict_block_n(s), warp_n = lac_strict_warp_n(s), share = s->slots / s->slices;
    const uint64_t offsets_at = (uint64_t)s->slots * (uint64_t)block_n * sizeof(float);
    for (int v = 0; v < s->warps_n; ++v) {
        const int taken = slots_taken(w, v), used = v < w->vectors ? (int)(w->at[v] - w->begin[v]) : 0;
        const uint64_t first = (uint64_t)(v * s->slices * lac_strict_slice_offsets(s)) * sizeof(uint32_t);
        for (int slice = 0; slice < s->slices; ++slice) {
            const uint64_t at = offsets_at + first + (uint64_t)(slice * lac_strict_slice_offsets(s)) * sizeof(uint32_t);
            uint32_t *offsets = (uint32_t *)(void *)(record + at);
            for (int i = 0; i < taken && slice * taken + i < used; ++i) {
                const int slot = slice * taken + i;
                offsets[i] = (uint32_t)(w->row[v][slot] * lac_strict_block_m(s)) * 4;
                w->source->values(w->source->user, w->vector + v, w->begin[v] + slot - w->source->first[w->vector + v],
                                  (float *)(void *)record + (slice * share + i + w->shift) * block_n + v * warp_n);
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
static void write_rows(const walk *w, char *record)
{
    const lac_strict_shape *s = w->shape;
    float *weights = (float *)(void *)record;
    uint32_t *offsets = (uint32_t *)(void *)(record + (uint64_t)(s->slots * lac_strict_block_n(s)) * sizeof(float));
    for (int v = 0; v < w->vectors; ++v)
        for (int64_t slot = 0; slot < w->at[v] - w->begin[v]; ++slot) {
            offsets[v * s->slots + slot] = (uint32_t)(w->row[v][slot] * lac_strict_block_m(s)) * 4;
            w->source->values(w->source->user, w->vector + v, w->begin[v] + slot - w->source->first[w->vector + v],
                              weights + v * s->slots + slot);
        }
}

static void tile_block(void *state, int thread, int64_t block)
{
    (void)thread;
    const tiling *t = state;
    const lac_strict_tiled *out = t->tiled;
    const uint64_t record = lac_strict_record_bytes(t->shape), entries = t->shape->packed ? (uint64_t)t->shape->rows : 1;
    walk w = walk_begin(t->source, t->shape, block);
    for (uint64_t step = out->first_step[block]; step < out->first_step[block + 1]; ++step) {
        char *to = (char *)out->records + step * record;
        walk_step(&w, out->columns + step * entries);
        if (t->shape->rowwise)
            write_rows(&w, to);
        else
            write_step(&w, to, step > out->first_step[block] ? to - record : NULL);
    }
}

lac_status lac_strict_tile(const lac_strict_source *source, const lac_strict_shape *shape, lac_strict_tiled *out)
{
    lac_strict_tiled tiled = {.blocks = (source->vectors + lac_strict_lists(shape) - 1) / lac_strict_lists(shape)};
    tiling t = {source, shape, &tiled};
    int threads = lac_parallel_threads_for(0, tiled.blocks, source->first[source->vectors] * lac_strict_list_n(shape));
    uint64_t first_bytes = ((uint64_t)tiled.blocks + 1) * sizeof *tiled.first_step;
    tiled.first_step = lac_allocate(first_bytes);
    if (!tiled.first_step) return lac_fail_memory("re-tiled weight", first_bytes);
    lac_status status = count_steps(&t, threads);
    const uint64_t record = lac_strict_record_bytes(shape), entries = shape->packed ? (uint64_t)shape->rows : 1;
    if (!status) {
        tiled.records = lac_allocate_zeroed((uint64_t)tiled.steps * record);
        tiled.columns = lac_allocate_zeroed(((uint64_t)tiled.steps + LAC_STRICT_READ_AHEAD) * entries * sizeof *tiled.columns);
        if (!tiled.records || !tiled.columns)
            status = lac_fail_memory("re-tiled weight", (uint64_t)tiled.steps * (record + entries * sizeof *tiled.columns));
    }
    if (status) {
        lac_strict_tiled_release(&tiled);
        return status;
    }
    lac_parallel_for_each(tiled.blocks, threads, tile_block, &t);
    *out = tiled;
    return LAC_STATUS_OK;
}

void lac_strict_tiled_release(lac_strict_tiled *tiled)
{
    lac_release(tiled->first_step);
    lac_release(tiled->columns);
    lac_release(tiled->records);
    *tiled = (lac_strict_tiled){0};
}
