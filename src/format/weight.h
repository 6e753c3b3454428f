/* weight.h - a compressed weight inside, as docs/format.md lays it out. Kernels, oracle and files read it through here. */
#ifndef LAC_FORMAT_WEIGHT_H
#define LAC_FORMAT_WEIGHT_H

#include <stdatomic.h>

#include "core/pattern.h"
#include "lacuna.h"

struct lac_weight {
    atomic_int holders;
    lac_pattern pattern;
    lac_geometry geometry;
    lac_dtype dtype;
    lac_index_encoding encoding;
    int64_t n_out, k_in;
    int64_t kept; /* values stored                                                        */
    lac_span part[LAC_PART_COUNT];
    int64_t *first_slot; /* free: [row_groups + 1] running sum of counts; NULL when N:M          */
    void *storage;       /* the one block that the parts lie in                                  */
};

/* Slots (kept units; for VNM, values of a row) of row group `group`, and the number of its first one. */
static inline int64_t lac_weight_slots(const lac_weight *w, int64_t group)
{
    return w->first_slot ? w->first_slot[group + 1] - w->first_slot[group] : w->geometry.slots;
}

static inline int64_t lac_weight_first_slot(const lac_weight *w, int64_t group)
{
    return w->first_slot ? w->first_slot[group] : group * w->geometry.slots;
}

/* Where row group `group` begins in `values`: [slot][unit_k][rows of the group], element numbers. */
static inline int64_t lac_weight_first_value(const lac_weight *w, int64_t group)
{
    return lac_weight_first_slot(w, group) * w->geometry.unit_k * w->geometry.unit_n;
}

/* The units that row group `group` keeps, ascending (VNM: the selected inputs), into units[geometry.selected].
 * Returns how many. */
int64_t lac_weight_units(const lac_weight *w, int64_t group, uint32_t *units);

/* VNM: which of the 4 selected inputs slot `slot` of row `row` (within its group) reads: 0 to 3. */
int lac_weight_position(const lac_weight *w, int64_t group, int64_t slot, int64_t row);

/* VNM: slot s of a row belongs to k-group s / geometry.slot_n, whose selected inputs begin at entry
 * (s / slot_n) * 4 of lac_weight_units. */

#endif
