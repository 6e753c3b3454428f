/* strict_source.c - cuts row groups into vectors of list_n outputs, or joins those that are shorter. A row group whose outputs are no multiple of that ends in a
 * padded vector, its missing outputs with weights of zero. V:N:M is taken as its selected inputs, with zeros where a row
 * keeps fewer of them. */
#include "cuda/strict_source.h"

#include <string.h>

#include "core/arithmetic.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "format/index.h"
#include "format/row.h"

static int64_t vectors_of_group(const lac_strict_rows *r) { return lac_ceil_divide(r->facts->vector, r->list_n); }

static lac_strict_place place_of(const lac_strict_rows *r, int64_t vector)
{
    int64_t per_group = vectors_of_group(r);
    lac_strict_place p = {.group = vector / per_group, .row = vector % per_group * r->list_n};
    int64_t left = r->facts->rows - p.group * r->facts->vector;
    if (left > r->facts->vector) left = r->facts->vector;
    left -= p.row;
    p.rows = (int)(left < r->list_n ? left : r->list_n);
    return p;
}

/* ---- weights of the next columns of a vector */

static void sparse_values(const void *user, int64_t vector, int count, lac_strict_cursor *cursor, float *out, int64_t stride)
{
    const lac_strict_rows *r = user;
    const lac_weight *w = r->weight;
    const lac_strict_place *p = &r->places[vector];
    const int64_t rows = lac_geometry_rows(&w->geometry, p->group);
    const int64_t first = lac_weight_first_value(w, p->group) + p->row + cursor->slot * rows;
    const void *values = w->part[LAC_PART_VALUES].data;
    cursor->slot += count;
    if (r->list_n == 1) {
        lac_load_run_f32(values, w->dtype, first, rows, count, out);
        return;
    }
    for (int i = 0; i < count; ++i) lac_load_run_f32(values, w->dtype, first + i * rows, 1, p->rows, out + i * stride);
}

/* Input `slot` of the selected ones is number slot % 4 of its group; a row has a value for it, or a zero. */
static void vnm_values(const void *user, int64_t vector, int count, lac_strict_cursor *cursor, float *out, int64_t stride)
{
    const lac_strict_rows *r = user;
    const lac_weight *w = r->weight;
    const lac_strict_place *p = &r->places[vector];
    const int64_t rows = lac_geometry_rows(&w->geometry, p->group), slots = lac_weight_slots(w, p->group);
    const int64_t first = lac_weight_first_value(w, p->group) + p->row, slot_n = w->geometry.slot_n;
    const int64_t begin = cursor->slot, end = begin + count;
    const int64_t last = lac_smaller(lac_ceil_divide(end, LAC_VNM_SELECTED) * slot_n, slots);
    const uint8_t *positions = lac_weight_group_positions(w, p->group); /* NULL when N is 4 */
    for (int64_t s = begin / LAC_VNM_SELECTED * slot_n; s < last; ++s) {
        const int64_t selected = s / slot_n * LAC_VNM_SELECTED - begin;
        float values[LAC_STRICT_MOST_LIST_N];
        lac_load_run_f32(w->part[LAC_PART_VALUES].data, w->dtype, first + s * rows, 1, p->rows, values);
        for (int i = 0; i < p->rows; ++i) {
            const int64_t at =
                selected + (positions ? lac_position_get(positions, s * rows + p->row + i) : s % LAC_VNM_SELECTED);
            if (at >= 0 && at < count) out[at * stride + i] = values[i]; /* a step may end within a group */
        }
    }
    cursor->slot = end;
}

/* The values of one row of a joined vector from the cursor on, into values[1] and up; values[0] is what it has where it keeps
 * nothing. Up to `most`, fewer where it has no more. A block walks through more rows at a time than a CPU fetches ahead
 * for by itself, so what the next step needs is asked for here. */
static void load_joined(const lac_weight *w, int64_t stored, int64_t given, int most, float *values)
{
    const int64_t group = stored / w->geometry.unit_n, rows = lac_geometry_rows(&w->geometry, group);
    const int64_t left = lac_weight_slots(w, group) * w->geometry.unit_k - given;
    const int64_t first = lac_weight_first_value(w, group) + given * rows + stored - group * w->geometry.unit_n;
    const char *data = w->part[LAC_PART_VALUES].data;
    values[0] = 0.0f;
    lac_load_run_f32(data, w->dtype, first, rows, lac_smaller(most, left), values + 1);
    if (left > most) __builtin_prefetch(data + (first + most * rows) * (int64_t)lac_dtype_size(w->dtype));
}

/* A row of a joined vector has a value for a column, or a zero: its values, in their order, go where it keeps one. */
static void joined_values(const void *user, int64_t vector, int count, lac_strict_cursor *cursor, float *out, int64_t stride)
{
    const lac_strict_rows *r = user;
    const uint8_t *keepers = r->keepers + (uint64_t)vector * r->stride + cursor->slot;
    float values[LAC_STRICT_JOINED][1 + LAC_STRICT_MOST_SLOTS];
    unsigned given[LAC_STRICT_JOINED] = {0};
    for (int i = 0; i < r->places[vector].rows; ++i)
        load_joined(r->weight, vector * r->list_n + i, cursor->given[i], count, values[i]);
    for (int i = r->places[vector].rows; i < LAC_STRICT_JOINED; ++i) values[i][0] = 0.0f;
    for (int slot = 0; slot < count; ++slot)
        for (int i = 0; i < LAC_STRICT_JOINED; ++i) {
            const unsigned keeps = keepers[slot] >> i & 1u;
            given[i] += keeps;
            out[slot * stride + i] = values[i][given[i] & (0u - keeps)];
        }
    for (int i = 0; i < LAC_STRICT_JOINED; ++i) cursor->given[i] += given[i];
    cursor->slot += count;
}

static void dense_values(const void *user, int64_t vector, int count, lac_strict_cursor *cursor, float *out, int64_t stride)
{
    const lac_strict_rows *r = user;
    for (int i = 0; i < r->places[vector].rows; ++i) {
        const float *from = r->dense + (vector * r->list_n + i) * r->facts->k + cursor->slot;
        for (int slot = 0; slot < count; ++slot) out[slot * stride + i] = from[slot];
    }
    cursor->slot += count;
}

/* ---- making it */

/* What the threads that expand the weight share. */
typedef struct expansion {
    const lac_weight *weight;
    lac_row_room *rooms; /* [threads] */
    float *dense;        /* [n][k_in] */
} expansion;

static void expand_row(void *state, int thread, int64_t stored)
{
    const expansion *e = state;
    const uint32_t *col_perm = e->weight->part[LAC_PART_COL_PERM].data;
    const int64_t k = e->weight->k_in;
    lac_weight_row *row = &e->rooms[thread].row;
    float *to = e->dense + stored * k;
    memset(to, 0, (size_t)k * sizeof *to);
    lac_weight_decode_row(e->weight, stored, NULL, e->rooms[thread].units, row);
    for (int64_t i = 0; i < row->count; ++i) to[col_perm ? col_perm[row->columns[i]] : row->columns[i]] = row->values[i];
}

/* W with its zeros, [n][k_in] in the order of X's inputs. */
static lac_status expand(const lac_weight *w, float **out)
{
    uint64_t bytes, all;
    if (!lac_multiply_u64((uint64_t)w->geometry.n, (uint64_t)w->k_in, &all) || !lac_multiply_u64(all, sizeof(float), &bytes))
        return lac_fail(LAC_STATUS_OUT_OF_MEMORY, "the weight does not fit memory with its zeros");
    const int threads = lac_parallel_threads_for(0, w->geometry.n, (int64_t)all);
    expansion e = {w, lac_row_rooms_make(w, threads), lac_allocate(bytes)};
    lac_status status = LAC_STATUS_OK;
    if (e.rooms && e.dense)
        lac_parallel_for_each(w->geometry.n, threads, expand_row, &e);
    else
        status = lac_fail_memory("weight with its zeros", bytes);
    lac_release(e.rooms);
    if (status)
        lac_release(e.dense);
    else
        *out = e.dense;
    return status;
}

/* Columns of row group `group`, ascending; returns how many. */
static int64_t group_columns(const lac_weight *w, int64_t group, uint32_t *units, uint32_t *columns)
{
    if (w->geometry.unit_k == 1) return lac_weight_units(w, group, columns);
    int64_t count = lac_weight_units(w, group, units), total = 0;
    for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < lac_geometry_inputs(&w->geometry, units[i]); ++j)
            columns[total++] = (uint32_t)(units[i] * w->geometry.unit_k + j);
    return total;
}

/* Scratch of a thread. */
typedef struct scratch {
    uint32_t *units; /* [selected]                                                       */
    uint8_t *marks;  /* [k] joined: the rows of a vector that keep a column; left cleared */
} scratch;

/* Sets `bits` in the marks of the columns that row group `group` keeps. */
static void mark_columns(const lac_weight *w, int64_t group, uint8_t bits, uint32_t *units, uint8_t *marks)
{
    const int64_t count = lac_weight_units(w, group, units), unit_k = w->geometry.unit_k;
    if (unit_k == 1) {
        for (int64_t i = 0; i < count; ++i) marks[units[i]] |= bits;
        return;
    }
    for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < lac_geometry_inputs(&w->geometry, units[i]); ++j) marks[units[i] * unit_k + j] |= bits;
}

/* The columns that a row of joined vector `vector` keeps, ascending, and which rows do; returns how many. Writes one entry more, so
 * that no branch need be guessed. */
static int64_t join_columns(const lac_strict_rows *r, int64_t vector, const scratch *own, uint32_t *columns, uint8_t *keepers)
{
    const int64_t first = vector * r->list_n, unit_n = r->weight->geometry.unit_n, k = r->facts->k;
    uint8_t *marks = own->marks;
    for (int64_t row = 0, next, rows = r->places[vector].rows; row < rows; row = next) {
        const int64_t group = (first + row) / unit_n;
        next = lac_smaller((group + 1) * unit_n - first, rows);
        mark_columns(r->weight, group, (uint8_t)((1u << next) - (1u << row)), own->units, marks);
    }
    int64_t total = 0;
    for (int64_t column = 0; column < k; ++column) {
        const uint8_t mark = marks[column];
        columns[total] = (uint32_t)column;
        keepers[total] = mark;
        total += mark != 0;
    }
    memset(marks, 0, (size_t)k);
    return total;
}

/* What the threads that list the columns share. */
typedef struct listing {
    lac_strict_rows *rows;
    scratch *own; /* [threads] */
} listing;

/* A row group's columns and its vectors, which share them. */
static void list_group(void *state, int thread, int64_t group)
{
    const listing *l = state;
    const lac_strict_rows *r = l->rows;
    const uint32_t *row_perm = r->weight->part[LAC_PART_ROW_PERM].data;
    const int64_t begin = group * vectors_of_group(r), end = lac_smaller(begin + vectors_of_group(r), r->source.vectors);
    for (int64_t v = begin; v < end; ++v) r->places[v] = place_of(r, v);
    uint32_t *columns = r->columns + (uint64_t)group * r->stride;
    lac_strict_list list = {columns, r->facts->k};
    if (r->dense)
        for (int64_t i = 0; i < list.count; ++i) columns[i] = (uint32_t)i;
    else if (r->facts->joined)
        list.count = join_columns(r, group, &l->own[thread], columns, r->keepers + (uint64_t)group * r->stride);
    else
        list.count = group_columns(r->weight, group, l->own[thread].units, columns);
    for (int64_t v = begin; v < end; ++v) {
        r->lists[v] = list;
        for (int i = 0; i < r->list_n; ++i) {
            int64_t stored = group * r->facts->vector + r->places[v].row + i;
            r->outputs[v * r->list_n + i] = i >= r->places[v].rows ? UINT32_MAX
                                            : row_perm             ? row_perm[stored]
                                                                   : (uint32_t)stored;
        }
    }
}

/* Scratch for each thread; lac_release gives all of it back. */
static scratch *make_scratch(const lac_geometry *g, int threads)
{
    const uint64_t units = (uint64_t)g->selected * sizeof(uint32_t);
    lac_rooms rooms;
    scratch *own = lac_allocate_rooms(threads, sizeof *own, units + (uint64_t)g->k, &rooms);
    for (int i = 0; own && i < threads; ++i) {
        char *at = rooms.first + (uint64_t)i * rooms.each;
        own[i] = (scratch){.units = (void *)at, .marks = (void *)(at + units)};
    }
    return own;
}

static lac_status list_groups(lac_strict_rows *r, int64_t groups)
{
    const int threads = lac_parallel_threads_for(0, groups, groups * (int64_t)r->stride);
    listing l = {r, make_scratch(&r->weight->geometry, threads)};
    if (!l.own) return lac_fail_memory("columns of a vector", (uint64_t)r->weight->geometry.k);
    lac_parallel_for_each(groups, threads, list_group, &l);
    lac_release(l.own);
    return LAC_STATUS_OK;
}

/* One block for all arrays. */
static lac_status allocate_lists(lac_strict_rows *r, int64_t groups)
{
    const uint64_t vectors = (uint64_t)r->source.vectors, columns = (uint64_t)groups * r->stride;
    const uint64_t outputs = vectors * (uint64_t)r->list_n;
    const uint64_t bytes = vectors * (sizeof *r->lists + sizeof *r->places) + (outputs + columns) * sizeof(uint32_t) +
                           (r->facts->joined ? columns : 0);
    r->storage = lac_allocate(bytes);
    if (!r->storage) return lac_fail_memory("vectors of the weight", bytes);
    r->lists = r->storage;
    r->places = (void *)(r->lists + vectors);
    r->outputs = (void *)(r->places + vectors);
    r->columns = r->outputs + outputs;
    if (r->facts->joined) r->keepers = (void *)(r->columns + columns);
    return LAC_STATUS_OK;
}

lac_status lac_strict_rows_make(const lac_weight *weight, const lac_strict_facts *facts, int list_n, bool dense,
                                lac_strict_rows *out)
{
    lac_strict_rows r = {.weight = weight, .facts = facts, .list_n = list_n};
    const int64_t groups = facts->rows ? lac_ceil_divide(facts->rows, facts->vector) : 0;
    r.stride = dense ? (uint64_t)facts->k : (uint64_t)lac_weight_row_capacity(weight);
    if (facts->joined) r.stride = (uint64_t)lac_smaller((int64_t)r.stride * list_n, facts->k) + 1;
    r.source = (lac_strict_source){.vectors = lac_strict_vectors(facts, list_n),
                                   .k = (uint32_t)facts->k,
                                   .input = dense ? NULL : weight->part[LAC_PART_COL_PERM].data,
                                   .values = dense                                      ? dense_values
                                             : facts->joined                            ? joined_values
                                             : weight->pattern.family == LAC_FAMILY_VNM ? vnm_values
                                                                                        : sparse_values};
    lac_status status = dense ? expand(weight, &r.dense) : LAC_STATUS_OK;
    if (!status) status = allocate_lists(&r, groups);
    if (!status) status = list_groups(&r, groups);
    if (status) {
        lac_strict_rows_release(&r);
        return status;
    }
    *out = r;
    out->source.lists = r.lists;
    out->source.user = out;
    return LAC_STATUS_OK;
}

void lac_strict_rows_release(lac_strict_rows *rows)
{
    lac_release(rows->dense);
    lac_release(rows->storage);
    *rows = (lac_strict_rows){0};
}
