/* weight.h - a compressed weight inside, as docs/format.md lays it out. Kernels, oracle and files read it through here. */
#ifndef LAC_FORMAT_WEIGHT_H
#define LAC_FORMAT_WEIGHT_H

#include <stdatomic.h>

#include "core/pattern.h"
#include "lacuna.h"

/* What a kernel counted over the whole weight, kept with it: the planner asks the same several times for a plan. */
typedef enum lac_weight_fact {
    LAC_FACT_PICK_MOST,   /* pick_shape.c: inputs of the fullest window */
    LAC_FACT_PICK_COMMON, /* and the most shared steps with which every pair of vectors fits */
    LAC_FACT_CHOOSE_ONE,  /* choose_shape.c: stages of a quad with one box each, in sixteenths */
    LAC_FACT_CHOOSE_TWO,  /* the same with two */
    LAC_FACT_EXPAND_MOST, /* expand_shape.c: inputs of the fullest span of a free row */
    LAC_FACT_WINDOW_MOST, /* window_shape.c: inputs of the fullest window of 32 of a free row group, of 64, 128 and 256 */
    LAC_FACT_WINDOW_LAST = LAC_FACT_WINDOW_MOST + 3,
    LAC_FACT_COUNT
} lac_weight_fact;

struct lac_weight {
    atomic_int holders;
    lac_pattern pattern;
    lac_geometry geometry;
    lac_dtype dtype;
    lac_index_encoding encoding;
    int64_t n_out, k_in;
    int64_t kept; /* values stored                                                        */
    lac_span part[LAC_PART_COUNT];
    int64_t *first_slot;             /* free: [row_groups + 1] running sum of counts; NULL when N:M          */
    void *storage;                   /* the one block that the parts lie in                                  */
    atomic_int fact[LAC_FACT_COUNT]; /* one more than the number; 0 where nobody has counted yet          */
};

/* A fact, or -1 where nobody has counted. Threads that count at once write the same number. */
static inline int lac_weight_known(const lac_weight *w, lac_weight_fact fact)
{
    return atomic_load_explicit(&w->fact[fact], memory_order_relaxed) - 1;
}

static inline void lac_weight_note(const lac_weight *weight, lac_weight_fact fact, int number)
{
    lac_weight *w = (lac_weight *)(uintptr_t)weight; /* nothing that its holders see changes */
    atomic_store_explicit(&w->fact[fact], number + 1, memory_order_relaxed);
}

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

/* What lac_weight_create needs beyond the sizes: pattern, n, k, n_out, k_in, dtype, encoding, has_row_perm and
 * has_col_perm of `info`, all resolved (no AUTO, no NONE, n_out and k_in said). */

/* The bytes of each part for `slots` kept units in all (free) or the pattern's own number (N:M, `slots` is ignored), and
 * the number of values. A `last_slots` of the last row group is needed when free, for it may have fewer rows.
 * INVALID_ARGUMENT when a size does not fit 63 bits. */
lac_status lac_weight_sizes(const lac_weight_info *info, const lac_geometry *geometry, int64_t slots, int64_t last_slots,
                            uint64_t bytes[LAC_PART_COUNT], int64_t *kept);
/* Whether a weight of `info` has this part at all, be it of zero bytes. */
int lac_weight_has_part(const lac_weight_info *info, const lac_geometry *geometry, lac_part part);
/* A weight with one holder whose parts are of those sizes, not cleared, and first_slot (when free) not filled in. */
lac_status lac_weight_create(const lac_weight_info *info, const lac_geometry *geometry, const uint64_t bytes[LAC_PART_COUNT],
                             int64_t kept, lac_weight **out);
/* For whoever has just created the weight and is filling it in. */
static inline void *lac_weight_writable(lac_weight *w, lac_part part) { return (void *)(uintptr_t)w->part[part].data; }
/* lac_weight_decompress by so many threads; 0: as many as OpenMP gives. */
lac_status lac_weight_decompress_by(const lac_weight *weight, const lac_matrix *dense, int32_t wanted);
/* Resolves AUTO, n_out and k_in of 0, and checks all fields that describe a weight; makes its geometry. */
lac_status lac_weight_resolve(lac_weight_info *info, lac_geometry *geometry);
/* The bytes of row group `group` in the index and in the positions. */
const uint8_t *lac_weight_group_index(const lac_weight *w, int64_t group);
const uint8_t *lac_weight_group_positions(const lac_weight *w, int64_t group);

/* VNM: slot s of a row belongs to k-group s / geometry.slot_n, whose selected inputs begin at entry
 * (s / slot_n) * 4 of lac_weight_units. */

#endif
