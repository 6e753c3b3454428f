/* strict_source.c - cuts row groups into vectors of list_n outputs, or joins those that are shorter. A row group whose outputs are no multiple of that ends in a
 * padded vector, its missing outputs with weights of zero. V:N:M is taken as its selected inputs, with zeros where a row
 * keeps fewer of them. */
#include "cuda/strict_source.h"

#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/row.h"

/* A vector's row group, its first row in that, and how many rows it really has. */
typedef struct vector_place {
    int64_t group, row;
    int rows;
} vector_place;

static vector_place place_of(const lac_strict_rows *r, int64_t vector)
{
    int64_t per_group = (r->facts->vector + r->list_n - 1) / r->list_n;
    vector_place p = {.group = vector / per_group, .row = vector % per_group * r->list_n};
    int64_t left = r->facts->rows - p.group * r->facts->vector;
    if (left > r->facts->vector) left = r->facts->vector;
    left -= p.row;
    p.rows = (int)(left < r->list_n ? left : r->list_n);
    return p;
}

/* ---- weights of one column of a vector */

static void sparse_values(const void *user, int64_t vector, int64_t slot, float *out)
{
    const lac_strict_rows *r = user;
    const lac_weight *w = r->weight;
    vector_place p = place_of(r, vector);
    int64_t rows = lac_geometry_rows(&w->geometry, p.group), first = lac_weight_first_value(w, p.group) + p.row;
    lac_load_run_f32(w->part[LAC_PART_VALUES].data, w->dtype, first + slot * rows, 1, p.rows, out);
}

/* Input `slot` of the selected ones is number slot % 4 of its group; a row has a value for it, or a zero. */
static void vnm_values(const void *user, int64_t vector, int64_t slot, float *out)
{
    const lac_strict_rows *r = user;
    const lac_weight *w = r->weight;
    vector_place p = place_of(r, vector);
    const int64_t rows = lac_geometry_rows(&w->geometry, p.group), slots = lac_weight_slots(w, p.group);
    const int64_t first = lac_weight_first_value(w, p.group) + p.row;
    const int64_t begin = slot / LAC_VNM_SELECTED * w->geometry.slot_n;
    for (int64_t s = begin; s < begin + w->geometry.slot_n && s < slots; ++s)
        for (int i = 0; i < p.rows; ++i)
            if (lac_weight_position(w, p.group, s, p.row + i) == slot % LAC_VNM_SELECTED)
                lac_load_run_f32(w->part[LAC_PART_VALUES].data, w->dtype, first + s * rows + i, 1, 1, out + i);
}

/* Row i of a joined vector has a value for the vector's column `slot`, or a zero. */
static void joined_values(const void *user, int64_t vector, int64_t slot, float *out)
{
    const lac_strict_rows *r = user;
    const lac_weight *w = r->weight;
    const uint32_t column = r->source.columns[r->source.first[vector] + slot];
    for (int i = 0; i < place_of(r, vector).rows; ++i) {
        const int64_t stored = vector * r->list_n + i, group = stored / w->geometry.unit_n, row = stored % w->geometry.unit_n;
        int64_t low = r->row_first[group], high = r->row_first[group + 1];
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (r->row_columns[middle] < column)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == r->row_first[group + 1] || r->row_columns[low] != column) continue;
        const int64_t first = lac_weight_first_value(w, group) + row, rows = lac_geometry_rows(&w->geometry, group);
        lac_load_run_f32(w->part[LAC_PART_VALUES].data, w->dtype, first + (low - r->row_first[group]) * rows, 1, 1, out + i);
    }
}

static void dense_values(const void *user, int64_t vector, int64_t slot, float *out)
{
    const lac_strict_rows *r = user;
    for (int i = 0; i < place_of(r, vector).rows; ++i) out[i] = r->dense[(vector * r->list_n + i) * r->facts->k + slot];
}

/* ---- making it */

/* W with its zeros, [n][k_in] in the order of X's inputs. */
static lac_status expand(const lac_weight *w, float **out)
{
    const uint32_t *col_perm = w->part[LAC_PART_COL_PERM].data;
    uint64_t capacity = (uint64_t)lac_weight_row_capacity(w), bytes, all;
    if (!lac_multiply_u64((uint64_t)w->geometry.n, (uint64_t)w->k_in, &all) || !lac_multiply_u64(all, sizeof(float), &bytes))
        return lac_fail(LAC_STATUS_OUT_OF_MEMORY, "the weight does not fit memory with its zeros");
    float *dense = lac_allocate_zeroed(bytes);
    uint64_t scratch_bytes = capacity * (sizeof(float) + sizeof(uint32_t)) + (uint64_t)w->geometry.selected * sizeof(uint32_t);
    char *scratch = lac_allocate(scratch_bytes);
    if (!dense || !scratch) {
        lac_release(dense);
        lac_release(scratch);
        return lac_fail_memory("weight with its zeros", bytes + scratch_bytes);
    }
    lac_weight_row row = {(float *)(void *)scratch, (uint32_t *)(void *)(scratch + capacity * sizeof(float)), 0};
    uint32_t *units = row.columns + capacity;
    for (int64_t r = 0; r < w->geometry.n; ++r) {
        lac_weight_decode_row(w, r, NULL, units, &row);
        float *to = dense + r * w->k_in;
        for (int64_t i = 0; i < row.count; ++i) to[col_perm ? col_perm[row.columns[i]] : row.columns[i]] = row.values[i];
    }
    lac_release(scratch);
    *out = dense;
    return LAC_STATUS_OK;
}

/* Columns of row group `group`, ascending; returns how many. */
static int64_t group_columns(const lac_weight *w, int64_t group, uint32_t *units, uint32_t *columns)
{
    int64_t count = lac_weight_units(w, group, units), total = 0;
    for (int64_t i = 0; i < count; ++i)
        for (int64_t j = 0; j < lac_geometry_inputs(&w->geometry, units[i]); ++j)
            columns[total++] = (uint32_t)(units[i] * w->geometry.unit_k + j);
    return total;
}

/* Every row group's own columns, for joined vectors. */
static lac_status list_rows(lac_strict_rows *r)
{
    const lac_weight *w = r->weight;
    const int64_t groups = (r->facts->rows + w->geometry.unit_n - 1) / w->geometry.unit_n;
    const uint64_t each = (uint64_t)lac_weight_row_capacity(w), scratch = (uint64_t)w->geometry.selected;
    uint64_t bytes = ((uint64_t)groups + 1) * sizeof(int64_t) + ((uint64_t)groups * each + scratch) * sizeof(uint32_t);
    r->row_storage = lac_allocate(bytes);
    if (!r->row_storage) return lac_fail_memory("columns of the weight's rows", bytes);
    int64_t *first = r->row_storage, total = 0;
    uint32_t *columns = (uint32_t *)(void *)(first + groups + 1), *units = columns + (uint64_t)groups * each;
    for (int64_t g = 0; g < groups; ++g) {
        first[g] = total;
        total += group_columns(w, g, units, columns + total);
    }
    first[groups] = total;
    r->row_first = first;
    r->row_columns = columns;
    return LAC_STATUS_OK;
}

/* The columns that a row of joined vector `vector` keeps, ascending; returns how many. */
static int64_t join_columns(const lac_strict_rows *r, int64_t vector, uint32_t *columns)
{
    const int64_t unit_n = r->weight->geometry.unit_n;
    const int64_t from = vector * r->list_n / unit_n, to = (vector * r->list_n + place_of(r, vector).rows - 1) / unit_n;
    int64_t at[LAC_STRICT_MOST_JOINED], total = 0;
    for (int64_t g = from; g <= to; ++g) at[g - from] = r->row_first[g];
    for (;;) {
        uint32_t lowest = UINT32_MAX;
        for (int64_t g = from; g <= to; ++g)
            if (at[g - from] < r->row_first[g + 1] && r->row_columns[at[g - from]] < lowest)
                lowest = r->row_columns[at[g - from]];
        if (lowest == UINT32_MAX) return total;
        for (int64_t g = from; g <= to; ++g)
            if (at[g - from] < r->row_first[g + 1] && r->row_columns[at[g - from]] == lowest) ++at[g - from];
        columns[total++] = lowest;
    }
}

static void fill(lac_strict_rows *r, int64_t *first, uint32_t *columns, uint32_t *units)
{
    const uint32_t *row_perm = r->weight->part[LAC_PART_ROW_PERM].data;
    int64_t total = 0, before = -1;
    for (int64_t v = 0; v < r->source.vectors; ++v) {
        vector_place p = place_of(r, v);
        first[v] = total;
        if (r->dense) {
            for (int64_t i = 0; i < r->facts->k; ++i) columns[total++] = (uint32_t)i;
        } else if (r->facts->joined) {
            total += join_columns(r, v, columns + total);
        } else if (p.group == before) {
            int64_t count = first[v] - first[v - 1];
            memcpy(columns + total, columns + first[v - 1], (uint64_t)count * sizeof *columns);
            total += count;
        } else {
            total += group_columns(r->weight, p.group, units, columns + total);
        }
        before = p.group;
        for (int i = 0; i < r->list_n; ++i) {
            int64_t stored = p.group * r->facts->vector + p.row + i;
            r->outputs[v * r->list_n + i] = i >= p.rows ? UINT32_MAX : row_perm ? row_perm[stored] : (uint32_t)stored;
        }
    }
    first[r->source.vectors] = total;
}

lac_status lac_strict_rows_make(const lac_weight *weight, const lac_strict_facts *facts, int list_n, bool dense,
                                lac_strict_rows *out)
{
    lac_strict_rows r = {.weight = weight, .facts = facts, .list_n = list_n};
    const uint64_t vectors = (uint64_t)lac_strict_vectors(facts, list_n);
    uint64_t each = dense ? (uint64_t)facts->k : (uint64_t)lac_weight_row_capacity(weight);
    if (facts->joined) each = each * (uint64_t)list_n < (uint64_t)facts->k ? each * (uint64_t)list_n : (uint64_t)facts->k;
    const uint64_t units = (uint64_t)weight->geometry.selected;
    uint64_t bytes = (vectors + 1) * sizeof(int64_t) + (vectors * (each + (uint64_t)list_n) + units) * sizeof(uint32_t);
    lac_status status = dense ? expand(weight, &r.dense) : facts->joined ? list_rows(&r) : LAC_STATUS_OK;
    if (status) return status;
    r.storage = lac_allocate(bytes);
    if (!r.storage) {
        lac_strict_rows_release(&r);
        return lac_fail_memory("vectors of the weight", bytes);
    }
    int64_t *first = r.storage;
    uint32_t *columns = (uint32_t *)(void *)(first + vectors + 1);
    r.outputs = columns + vectors * each;
    r.source = (lac_strict_source){.vectors = (int64_t)vectors,
                                   .k = (uint32_t)facts->k,
                                   .first = first,
                                   .columns = columns,
                                   .input = dense ? NULL : weight->part[LAC_PART_COL_PERM].data,
                                   .values = dense                                      ? dense_values
                                             : facts->joined                            ? joined_values
                                             : weight->pattern.family == LAC_FAMILY_VNM ? vnm_values
                                                                                        : sparse_values};
    fill(&r, first, columns, r.outputs + vectors * (uint64_t)list_n);
    *out = r;
    out->source.user = out;
    return LAC_STATUS_OK;
}

void lac_strict_rows_release(lac_strict_rows *rows)
{
    lac_release(rows->dense);
    lac_release(rows->storage);
    lac_release(rows->row_storage);
    *rows = (lac_strict_rows){0};
}
