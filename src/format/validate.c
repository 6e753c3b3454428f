/* validate.c - a weight from bytes of unknown origin: every size, entry and number is checked before it is used.
 * Called by users and by the container reader. The bytes are copied first and checked in the copy, so that a file that
 * changes meanwhile cannot slip past. */
#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/index.h"
#include "format/weight.h"

/* Units kept in all and in the last row group, from the bytes of `counts`, which may be unaligned. */
static lac_status sum_counts(const lac_geometry *geometry, const lac_span *span, int64_t *slots, int64_t *last)
{
    uint64_t wanted = (uint64_t)geometry->row_groups * 4;
    if (span->bytes != wanted) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "counts: has %llu bytes, but must have %llu, 4 a row group",
                        (unsigned long long)span->bytes, (unsigned long long)wanted);
    }
    *slots = *last = 0;
    for (int64_t group = 0; group < geometry->row_groups; group++) {
        uint32_t count;
        memcpy(&count, (const char *)span->data + group * 4, 4);
        if (count > geometry->selected) {
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "counts: row group %lld keeps %llu units, but the pattern allows %lld",
                            (long long)group, (unsigned long long)count, (long long)geometry->selected);
        }
        *last = count;
        *slots += count;
    }
    return LAC_STATUS_OK;
}

/* Every part has just its bytes, and no part is there that should not be. */
static lac_status check_parts(const lac_weight_info *info, const lac_geometry *geometry, const lac_span parts[LAC_PART_COUNT],
                              const uint64_t bytes[LAC_PART_COUNT])
{
    for (int i = 0; i < LAC_PART_COUNT; i++) {
        const char *name = lac_part_name((lac_part)i);
        bool wanted = lac_weight_has_part(info, geometry, (lac_part)i);
        if (!wanted && (parts[i].data || parts[i].bytes)) {
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: must be absent for this pattern and encoding, but has %llu bytes",
                            name, (unsigned long long)parts[i].bytes);
        }
        if (wanted && !parts[i].data && bytes[i]) {
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: is absent, but must have %llu bytes", name,
                            (unsigned long long)bytes[i]);
        }
        if (wanted && parts[i].bytes != bytes[i]) {
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: has %llu bytes, but must have %llu", name,
                            (unsigned long long)parts[i].bytes, (unsigned long long)bytes[i]);
        }
    }
    return LAC_STATUS_OK;
}

static lac_status check_columns(const lac_weight *w, int64_t group)
{
    const uint32_t *columns = w->part[LAC_PART_COLUMNS].data;
    int64_t previous = -1;
    for (int64_t i = w->first_slot[group]; i < w->first_slot[group + 1]; i++) {
        if (columns[i] >= w->geometry.units) {
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "columns: row group %lld, entry %lld is %lu, but there are %lld units",
                            (long long)group, (long long)(i - w->first_slot[group]), (unsigned long)columns[i],
                            (long long)w->geometry.units);
        }
        if (columns[i] <= previous) {
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                            "columns: row group %lld, entry %lld is %lu after %lld: entries must ascend", (long long)group,
                            (long long)(i - w->first_slot[group]), (unsigned long)columns[i], (long long)previous);
        }
        previous = columns[i];
    }
    return LAC_STATUS_OK;
}

static lac_status check_positions(const lac_weight *w, int64_t group)
{
    const lac_geometry *g = &w->geometry;
    const uint8_t *positions = lac_weight_group_positions(w, group);
    int64_t rows = lac_geometry_rows(g, group);
    for (int64_t r = 0; r < rows; r++) {
        int64_t slot = 0;
        for (int64_t q = 0; q < g->groups; q++) {
            int64_t units = lac_geometry_group_units(g, q), selected = units < g->group_n ? units : g->group_n;
            int previous = -1;
            for (int64_t end = slot + (units < g->slot_n ? units : g->slot_n); slot < end; slot++) {
                int position = lac_position_get(positions, slot * rows + r);
                if (position >= selected) {
                    return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                                    "positions: row group %lld, slot %lld, row %lld is %d, but its group selects %lld inputs",
                                    (long long)group, (long long)slot, (long long)r, position, (long long)selected);
                }
                if (position <= previous) {
                    return lac_fail(
                        LAC_STATUS_INVALID_ARGUMENT,
                        "positions: row group %lld, slot %lld, row %lld is %d after %d: positions must ascend in a group",
                        (long long)group, (long long)slot, (long long)r, position, previous);
                }
                previous = position;
            }
        }
    }
    int64_t values = g->slots * rows, bytes = lac_positions_group_bytes(g, rows);
    if ((values & 3) && positions[bytes - 1] >> (2 * (values & 3))) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "positions: row group %lld, its last byte is 0x%02x, but the %d spare bits must be zero",
                        (long long)group, positions[bytes - 1], (int)(8 - 2 * (values & 3)));
    }
    return LAC_STATUS_OK;
}

/* A kept last unit that reaches past k holds +0.0 there. Only the last slot of a row group can be that unit. */
static lac_status check_padding(const lac_weight *w, int64_t group, uint32_t *units /* N:M: room for a row group's */)
{
    const lac_geometry *g = &w->geometry;
    const uint32_t *columns = w->part[LAC_PART_COLUMNS].data;
    int64_t inputs = lac_geometry_inputs(g, g->units - 1), count = lac_weight_slots(w, group);
    if (!g->is_free) lac_weight_units(w, group, units);
    if (!count || (g->is_free ? columns[w->first_slot[group] + count - 1] : units[count - 1]) != g->units - 1)
        return LAC_STATUS_OK;
    int64_t rows = lac_geometry_rows(g, group);
    size_t size = lac_dtype_size(w->dtype);
    int64_t start = lac_weight_first_value(w, group) + ((count - 1) * g->unit_k + inputs) * rows;
    const char *values = (const char *)w->part[LAC_PART_VALUES].data + (size_t)start * size;
    int64_t bytes = (g->unit_k - inputs) * rows * (int64_t)size;
    for (int64_t i = 0; i < bytes; i++) {
        if (!values[i]) continue;
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "values: row group %lld, value %lld lies past column %lld and must be zero", (long long)group,
                        (long long)(start + i / (int64_t)size), (long long)(g->k - 1));
    }
    return LAC_STATUS_OK;
}

/* Heap sort: in place and never slow, whatever the numbers are. */
static void sort_numbers(uint32_t *numbers, int64_t count)
{
    for (int64_t end = count, start = count / 2; end > 1;) {
        if (start > 0) {
            start--;
        } else {
            end--;
            uint32_t top = numbers[0];
            numbers[0] = numbers[end];
            numbers[end] = top;
        }
        int64_t parent = start;
        uint32_t moved = numbers[parent];
        for (int64_t child = 2 * parent + 1; child < end; child = 2 * parent + 1) {
            if (child + 1 < end && numbers[child + 1] > numbers[child]) child++;
            if (numbers[child] <= moved) break;
            numbers[parent] = numbers[child];
            parent = child;
        }
        numbers[parent] = moved;
    }
}

static lac_status check_permutation(const lac_weight *w, lac_part part, int64_t count, int64_t limit)
{
    const uint32_t *numbers = w->part[part].data;
    const char *name = lac_part_name(part);
    if (!numbers || !count) return LAC_STATUS_OK;
    for (int64_t i = 0; i < count; i++) {
        if (numbers[i] < limit) continue;
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: entry %lld is %lu, but must be below %s, %lld", name, (long long)i,
                        (unsigned long)numbers[i], part == LAC_PART_ROW_PERM ? "n_out" : "k_in", (long long)limit);
    }
    uint32_t *sorted = lac_allocate((uint64_t)count * 4);
    if (!sorted) return lac_fail_memory("check of a permutation", (uint64_t)count * 4);
    memcpy(sorted, numbers, (size_t)count * 4);
    sort_numbers(sorted, count);
    lac_status status = LAC_STATUS_OK;
    for (int64_t i = 1; i < count && !status; i++) {
        if (sorted[i] == sorted[i - 1]) {
            status = lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: %lu occurs twice", name, (unsigned long)sorted[i]);
        }
    }
    lac_release(sorted);
    return status;
}

/* The running sum of the copied counts, which must still be what the sizes were made from. */
static lac_status fill_first_slot(lac_weight *w)
{
    const uint32_t *counts = w->part[LAC_PART_COUNTS].data;
    w->first_slot[0] = 0;
    for (int64_t group = 0; group < w->geometry.row_groups; group++) {
        if (counts[group] > w->geometry.selected)
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "counts: changed while being read");
        w->first_slot[group + 1] = w->first_slot[group] + counts[group];
    }
    if ((uint64_t)w->first_slot[w->geometry.row_groups] * 4 != w->part[LAC_PART_COLUMNS].bytes ||
        w->kept != lac_weight_first_value(w, w->geometry.row_groups) -
                       (w->geometry.row_groups
                            ? lac_weight_slots(w, w->geometry.row_groups - 1) * w->geometry.unit_k *
                                  (w->geometry.unit_n - lac_geometry_rows(&w->geometry, w->geometry.row_groups - 1))
                            : 0)) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "counts: changed while being read");
    }
    return LAC_STATUS_OK;
}

static lac_status check_contents(lac_weight *w)
{
    const lac_geometry *g = &w->geometry;
    lac_status status = g->is_free ? fill_first_slot(w) : LAC_STATUS_OK;
    if (!status) status = check_permutation(w, LAC_PART_ROW_PERM, g->n, w->n_out);
    if (!status) status = check_permutation(w, LAC_PART_COL_PERM, g->k, w->k_in);
    if (status || !g->units || !g->row_groups) return status; /* no inputs: row groups without a byte, and maybe very many */
    bool has_index = w->part[LAC_PART_INDEX].data != NULL, has_positions = w->part[LAC_PART_POSITIONS].data != NULL;
    bool padded = g->k % g->unit_k != 0;
    /* No more than the weight's own bytes call for: what a free pattern allows may be far more than it keeps. */
    uint64_t room = padded && !g->is_free ? (uint64_t)g->selected * 4 : 0;
    uint32_t *units = lac_allocate(room);
    if (!units) return lac_fail_memory("check of a weight", room);
    for (int64_t group = 0; group < g->row_groups && !status && (g->is_free || has_index || has_positions || padded); group++) {
        if (g->is_free) status = check_columns(w, group);
        if (!status && has_index) status = lac_index_validate(g, w->encoding, group, lac_weight_group_index(w, group));
        if (!status && has_positions) status = check_positions(w, group);
        if (!status && padded) status = check_padding(w, group, units);
    }
    lac_release(units);
    return status;
}

lac_status lac_weight_from_parts(const lac_weight_info *info, const lac_span parts[LAC_PART_COUNT], lac_weight **out)
{
    lac_weight_info full;
    lac_geometry geometry;
    uint64_t bytes[LAC_PART_COUNT];
    int64_t kept, slots = 0, last = 0;
    if (!info) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "info is NULL");
    if (!parts) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "parts is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_status status = lac_read_struct("info", info, &full, sizeof full);
    if (status) return status;
    for (int i = 0; i < LAC_PART_COUNT; i++) {
        if (!parts[i].data && parts[i].bytes) {
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: data is NULL, but bytes is %llu", lac_part_name((lac_part)i),
                            (unsigned long long)parts[i].bytes);
        }
    }
    full.has_row_perm = parts[LAC_PART_ROW_PERM].data != NULL;
    full.has_col_perm = parts[LAC_PART_COL_PERM].data != NULL;
    status = lac_weight_resolve(&full, &geometry);
    if (!status && geometry.is_free) status = sum_counts(&geometry, &parts[LAC_PART_COUNTS], &slots, &last);
    if (!status) status = lac_weight_sizes(&full, &geometry, slots, last, bytes, &kept);
    if (!status) status = check_parts(&full, &geometry, parts, bytes);
    lac_weight *w = NULL;
    if (!status) status = lac_weight_create(&full, &geometry, bytes, kept, &w);
    if (status) return status;
    for (int i = 0; i < LAC_PART_COUNT; i++) {
        if (bytes[i]) memcpy(lac_weight_writable(w, (lac_part)i), parts[i].data, (size_t)bytes[i]);
    }
    status = check_contents(w);
    if (status) {
        lac_weight_free(w);
        return status;
    }
    *out = w;
    return LAC_STATUS_OK;
}
