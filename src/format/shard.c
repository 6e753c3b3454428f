/* shard.c - rows or columns [begin, end) of a weight as a weight of their own, cut from the compressed form: index entries
 * are shifted, values and positions copied, nothing is decompressed. Called by users for tensor parallelism. */
#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"
#include "format/index.h"
#include "format/weight.h"

/* What of the whole the shard holds. */
typedef struct cut {
    const lac_weight *whole;
    lac_weight *shard;
    int64_t first_group;             /* row group of the whole that comes first                     */
    int64_t first_unit, end_unit;    /* units along k                                               */
    int64_t first_entry, first_slot; /* N:M: entry of lac_weight_units, slot of a row, that come first */
    int64_t first_row, first_col;
} cut;

static lac_status check_cut(const char *name, int64_t at, int64_t step, int64_t end)
{
    if (at % step == 0 || at == end) return LAC_STATUS_OK;
    int64_t below = at / step * step, above = below + step < end ? below + step : end;
    return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s is %lld, which is no boundary: the nearest are %lld and %lld", name,
                    (long long)at, (long long)below, (long long)above);
}

/* The columns entries of row group `group` of the whole that lie in the shard: the first, and how many. */
static int64_t find_entries(const cut *c, int64_t group, int64_t *first)
{
    const uint32_t *columns = c->whole->part[LAC_PART_COLUMNS].data;
    int64_t low = c->whole->first_slot[group], end = c->whole->first_slot[group + 1];
    while (low < end && columns[low] < c->first_unit) low++;
    while (end > low && columns[end - 1] >= c->end_unit) end--;
    *first = low;
    return end - low;
}

/* A cut along k may take more than the density's share of a row group. The shard's pattern then has the density, of as
 * few decimals as will do, that allows just the `most` units that a row group has. */
static double raise_density(int64_t most, int64_t units)
{
    double scale = 100; /* whole percents first; a pattern's text has at most 12 decimals of a percent */
    for (int decimals = 0; decimals <= 12; decimals++, scale *= 10) {
        double density = floor((double)most / (double)units * scale + 0.5) / scale;
        if (density > 0 && density <= 1 && (int64_t)floor(density * (double)units + 0.5) == most) return density;
    }
    return 1;
}

/* Sums the counts of the shard's row groups; raises the density of info's pattern where they need it. */
static lac_status size_free(const cut *c, lac_weight_info *info, lac_geometry *geometry, int64_t *slots, int64_t *last)
{
    int64_t most = 0, ignored;
    *slots = *last = 0;
    for (int64_t group = 0; group < geometry->row_groups; group++) {
        *last = find_entries(c, c->first_group + group, &ignored);
        *slots += *last;
        if (*last > most) most = *last;
    }
    if (most <= geometry->selected) return LAC_STATUS_OK;
    info->pattern.density = raise_density(most, geometry->units);
    return lac_geometry_make(&info->pattern, info->n, info->k, geometry);
}

/* slots of the shard's row group from slot `slot` of the whole's, whose units may be wider than the shard's. */
static void copy_values(const cut *c, int64_t group, int64_t slot, int64_t slots)
{
    const lac_geometry *from = &c->whole->geometry, *to = &c->shard->geometry;
    int64_t rows = lac_geometry_rows(to, group), source_group = c->first_group + group;
    size_t size = lac_dtype_size(c->shard->dtype), width = (size_t)(from->unit_k * rows) * size,
           kept = (size_t)(to->unit_k * rows) * size;
    const char *source = (const char *)c->whole->part[LAC_PART_VALUES].data +
                         (size_t)lac_weight_first_value(c->whole, source_group) * size + (size_t)slot * width;
    char *target =
        (char *)lac_weight_writable(c->shard, LAC_PART_VALUES) + (size_t)lac_weight_first_value(c->shard, group) * size;
    for (int64_t s = 0; s < slots; s++) memcpy(target + (size_t)s * kept, source + (size_t)s * width, kept);
}

static void copy_positions(const cut *c, int64_t group)
{
    const lac_geometry *g = &c->shard->geometry;
    int64_t rows = lac_geometry_rows(g, group);
    uint8_t *to = (uint8_t *)(uintptr_t)lac_weight_group_positions(c->shard, group);
    const uint8_t *from = lac_weight_group_positions(c->whole, c->first_group + group);
    if (!to) return;
    memset(to, 0, (size_t)lac_positions_group_bytes(g, rows));
    for (int64_t i = 0; i < g->slots * rows; i++) lac_position_set(to, i, lac_position_get(from, c->first_slot * rows + i));
}

/* units[whole's selected] is scratch. */
static void copy_group(const cut *c, int64_t group, uint32_t *units)
{
    const lac_geometry *g = &c->shard->geometry;
    if (g->is_free) {
        const uint32_t *from = c->whole->part[LAC_PART_COLUMNS].data;
        uint32_t *to = lac_weight_writable(c->shard, LAC_PART_COLUMNS);
        int64_t first, count = find_entries(c, c->first_group + group, &first), at = c->shard->first_slot[group];
        for (int64_t i = 0; i < count; i++) to[at + i] = from[first + i] - (uint32_t)c->first_unit;
        copy_values(c, group, first - c->whole->first_slot[c->first_group + group], count);
        return;
    }
    lac_weight_units(c->whole, c->first_group + group, units);
    uint32_t *mine = units + c->first_entry;
    for (int64_t e = 0; e < g->selected; e++) mine[e] -= (uint32_t)c->first_unit;
    lac_index_encode(g, c->shard->encoding, mine, (uint8_t *)(uintptr_t)lac_weight_group_index(c->shard, group));
    copy_positions(c, group);
    copy_values(c, group, c->first_slot, g->slots);
}

static void fill_counts(const cut *c)
{
    uint32_t *counts = lac_weight_writable(c->shard, LAC_PART_COUNTS);
    c->shard->first_slot[0] = 0;
    for (int64_t group = 0; group < c->shard->geometry.row_groups; group++) {
        int64_t first;
        counts[group] = (uint32_t)find_entries(c, c->first_group + group, &first);
        c->shard->first_slot[group + 1] = c->shard->first_slot[group] + counts[group];
    }
}

static void copy_permutation(const cut *c, lac_part part, int64_t first, int64_t count)
{
    const uint32_t *from = c->whole->part[part].data;
    if (from && count) memcpy(lac_weight_writable(c->shard, part), from + first, (size_t)count * 4);
}

/* Checks the cuts and says what the shard is: info (resolved) and c, but for c->shard. */
static lac_status describe(const lac_weight *w, lac_axis axis, int64_t begin, int64_t end, lac_weight_info *info, cut *c)
{
    const lac_geometry *g = &w->geometry;
    int64_t whole = axis == LAC_AXIS_N ? g->n : g->k;
    int64_t step = axis == LAC_AXIS_N ? g->unit_n : g->is_free ? g->unit_k : g->unit_k * g->group_m;
    if (begin < 0 || begin > end || end > whole) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "begin is %lld and end is %lld, but they must be 0 <= begin <= end <= %lld", (long long)begin,
                        (long long)end, (long long)whole);
    }
    lac_status status = check_cut("begin", begin, step, whole);
    if (!status) status = check_cut("end", end, step, whole);
    if (!status) status = lac_weight_get_info(w, info);
    if (status) return status;
    c->whole = w;
    c->end_unit = g->units;
    if (axis == LAC_AXIS_N) {
        info->n = end - begin;
        if (!info->has_row_perm) info->n_out = info->n;
        c->first_group = (begin + step - 1) / step;
        c->first_row = begin;
    } else {
        info->k = end - begin;
        if (!info->has_col_perm) info->k_in = info->k;
        c->first_unit = (begin + g->unit_k - 1) / g->unit_k;
        c->end_unit = (end + g->unit_k - 1) / g->unit_k;
        c->first_col = begin;
        if (!g->is_free) {
            int64_t group = (begin + step - 1) / step;
            c->first_entry = group == g->groups ? g->selected : group * g->group_n;
            c->first_slot = group == g->groups ? g->slots : group * g->slot_n;
        }
    }
    return LAC_STATUS_OK;
}

lac_status lac_weight_shard(const lac_weight *weight, lac_axis axis, int64_t begin, int64_t end, lac_weight **out)
{
    if (!weight) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "weight is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    if (axis != LAC_AXIS_N && axis != LAC_AXIS_K)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "axis is %d, which is none", (int)axis);
    lac_weight_info info = {.size = sizeof info};
    cut c = {0};
    lac_geometry geometry;
    lac_status status = describe(weight, axis, begin, end, &info, &c);
    if (!status) status = lac_geometry_make(&info.pattern, info.n, info.k, &geometry);
    int64_t slots = 0, last = 0, kept;
    if (!status && geometry.is_free) status = size_free(&c, &info, &geometry, &slots, &last);
    uint64_t bytes[LAC_PART_COUNT], list = (uint64_t)weight->geometry.selected * 4;
    if (!status) status = lac_weight_sizes(&info, &geometry, slots, last, bytes, &kept);
    if (status) return status;
    uint32_t *units = lac_allocate(list);
    if (!units) return lac_fail_memory("shard", list);
    status = lac_weight_create(&info, &geometry, bytes, kept, &c.shard);
    if (!status) {
        if (geometry.is_free) fill_counts(&c);
        for (int64_t group = 0; geometry.units && group < geometry.row_groups; group++) copy_group(&c, group, units);
        copy_permutation(&c, LAC_PART_ROW_PERM, c.first_row, info.n);
        copy_permutation(&c, LAC_PART_COL_PERM, c.first_col, info.k);
        *out = c.shard;
    }
    lac_release(units);
    return status;
}
