/* row.c - one stored row of the compressed weight as fp32 values and columns. Kernels read rows this way when they are
 * prepared, the plainest of them when they run. */
#include "format/row.h"

#include "core/dtype.h"
#include "core/memory.h"
#include "format/index.h"

int64_t lac_weight_row_capacity(const lac_weight *weight) { return weight->geometry.selected * weight->geometry.unit_k; }

/* Columns of the units, in the order of the values. Returns how many: a partial last unit has fewer than unit_k, and they
 * are the last ones, so the values beside them are cut at the same place. */
static int64_t expand_units(const lac_geometry *g, const uint32_t *units, int64_t count, uint32_t *columns)
{
    if (g->unit_k == 1) {
        for (int64_t i = 0; i < count; ++i) columns[i] = units[i];
        return count;
    }
    int64_t total = 0;
    for (int64_t i = 0; i < count; ++i) {
        int64_t inputs = lac_geometry_inputs(g, units[i]);
        for (int64_t j = 0; j < inputs; ++j) columns[total++] = (uint32_t)(units[i] * g->unit_k + j);
    }
    return total;
}

void lac_weight_decode_row(const lac_weight *weight, int64_t stored, const lac_weight_row *neighbour, uint32_t *units,
                           lac_weight_row *row)
{
    const lac_geometry *g = &weight->geometry;
    int64_t group = stored / g->unit_n;
    int64_t row_in_group = stored - group * g->unit_n;
    int64_t rows = lac_geometry_rows(g, group);
    if (weight->pattern.family == LAC_FAMILY_VNM) {
        /* Rows of a group share the selected inputs only; each has positions of its own. */
        if (!neighbour) lac_weight_units(weight, group, units);
        const uint8_t *positions = lac_weight_group_positions(weight, group); /* NULL when N is 4 */
        row->count = lac_weight_slots(weight, group);
        int64_t slot = 0;
        for (const uint32_t *selected = units; slot < row->count; selected += LAC_VNM_SELECTED) {
            for (int i = 0; i < g->slot_n && slot < row->count; ++i, ++slot) {
                row->columns[slot] = selected[positions ? lac_position_get(positions, slot * rows + row_in_group) : i];
            }
        }
    } else if (neighbour) {
        row->columns = neighbour->columns;
        row->count = neighbour->count;
    } else {
        int64_t count = lac_weight_units(weight, group, units);
        row->count = expand_units(g, units, count, row->columns);
    }
    int64_t first = lac_weight_first_value(weight, group) + row_in_group;
    lac_load_run_f32(weight->part[LAC_PART_VALUES].data, weight->dtype, first, rows, row->count, row->values);
}

lac_row_room *lac_row_rooms_make(const lac_weight *weight, int threads)
{
    uint64_t capacity = (uint64_t)lac_weight_row_capacity(weight), selected = (uint64_t)weight->geometry.selected;
    lac_rooms of;
    lac_row_room *rooms = lac_allocate_rooms(threads, sizeof *rooms, (2 * capacity + selected) * sizeof(uint32_t), &of);
    if (!rooms) return NULL;
    for (int i = 0; i < threads; ++i) {
        char *own = of.first + (uint64_t)i * of.each;
        rooms[i].row = (lac_weight_row){(void *)own, (void *)(own + capacity * sizeof(float)), 0};
        rooms[i].units = (void *)(own + 2 * capacity * sizeof(float));
    }
    return rooms;
}
