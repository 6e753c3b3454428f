/* sample.c - draws the units of a weight at random, straight into its compressed form: no dense matrix, no pruning, which
 * for large shapes and shuffled rows would take long. Called by cuda/compile.c and by tests. */
#include "format/sample.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "format/index.h"

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 32) * below >> 32);
}

/* `keep` of the `count` numbers from `first` on, ascending. */
static uint32_t *choose(uint64_t *state, int64_t first, int64_t count, int64_t keep, uint32_t *out)
{
    for (int64_t i = 0; i < count && keep > 0; ++i) {
        if (draw(state, (uint32_t)(count - i)) >= (uint32_t)keep) continue;
        *out++ = (uint32_t)(first + i);
        --keep;
    }
    return out;
}

static void fill_group(lac_weight *w, int64_t group, uint64_t *state, uint32_t *units)
{
    const lac_geometry *g = &w->geometry;
    if (g->is_free) {
        uint32_t *columns = lac_weight_writable(w, LAC_PART_COLUMNS);
        choose(state, 0, g->units, g->selected, columns + w->first_slot[group]);
        return;
    }
    uint32_t *at = units;
    for (int64_t i = 0; i < g->groups; ++i) {
        int64_t count = lac_geometry_group_units(g, i);
        at = choose(state, i * g->group_m, count, count < g->group_n ? count : g->group_n, at);
    }
    uint8_t *index = lac_weight_writable(w, LAC_PART_INDEX);
    if (index) lac_index_encode(g, w->encoding, units, index + group * lac_index_group_bytes(g, w->encoding));
}

/* V:N:M: slot s of every row takes the (s mod N)-th of the selected inputs. */
static void fill_positions(lac_weight *w, int64_t group)
{
    const lac_geometry *g = &w->geometry;
    uint8_t *positions = (uint8_t *)(uintptr_t)lac_weight_group_positions(w, group);
    int64_t rows = lac_geometry_rows(g, group);
    if (!positions) return;
    memset(positions, 0, (size_t)lac_positions_group_bytes(g, rows));
    for (int64_t slot = 0; slot < g->slots; ++slot)
        for (int64_t row = 0; row < rows; ++row) lac_position_set(positions, slot * rows + row, (int)(slot % g->slot_n));
}

static void fill(lac_weight *w, uint32_t *units)
{
    const lac_geometry *g = &w->geometry;
    uint64_t state = 0x9e3779b97f4a7c15u;
    if (g->is_free) {
        uint32_t *counts = lac_weight_writable(w, LAC_PART_COUNTS);
        for (int64_t i = 0; i < g->row_groups; ++i) counts[i] = (uint32_t)g->selected;
        for (int64_t i = 0; i <= g->row_groups; ++i) w->first_slot[i] = i * g->selected;
    }
    for (int64_t group = 0; group < g->row_groups; ++group) {
        fill_group(w, group, &state, units);
        if (w->pattern.family == LAC_FAMILY_VNM) fill_positions(w, group);
    }
    uint32_t *row_perm = lac_weight_writable(w, LAC_PART_ROW_PERM);
    for (int64_t i = 0; row_perm && i < g->n; ++i) row_perm[i] = (uint32_t)i;
    memset(lac_weight_writable(w, LAC_PART_VALUES), 0, (size_t)w->part[LAC_PART_VALUES].bytes);
}

lac_status lac_weight_sample(const lac_pattern *pattern, int64_t n, int64_t k, lac_dtype dtype, lac_weight **out)
{
    lac_weight_info info = {.size = sizeof info,
                            .pattern = *pattern,
                            .n = n,
                            .k = k,
                            .dtype = dtype,
                            .has_row_perm = pattern->family == LAC_FAMILY_SHUFFLED};
    lac_geometry g;
    uint64_t bytes[LAC_PART_COUNT];
    int64_t kept;
    lac_status status = lac_weight_resolve(&info, &g);
    if (status) return status;
    int64_t slots = g.is_free ? g.row_groups * g.selected : 0, last = g.is_free && g.row_groups ? g.selected : 0;
    if ((status = lac_weight_sizes(&info, &g, slots, last, bytes, &kept))) return status;
    uint64_t unit_bytes = (uint64_t)g.selected * sizeof(uint32_t);
    uint32_t *units = lac_allocate(unit_bytes);
    if (!units) return lac_fail_memory("units of a row group", unit_bytes);
    lac_weight *weight;
    if (!(status = lac_weight_create(&info, &g, bytes, kept, &weight))) {
        fill(weight, units);
        *out = weight;
    }
    lac_release(units);
    return status;
}
