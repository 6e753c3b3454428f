/* check.h - do kept elements obey a pattern? One implementation for matrices, masks and compress. */
#ifndef LAC_FORMAT_CHECK_H
#define LAC_FORMAT_CHECK_H

#include "core/pattern.h"
#include "format/mask.h"
#include "lacuna.h"

/* Checks the bits of `mask`, in the order of its permutations, against `pattern`, and fills them up to what the pattern
 * keeps; then the mask has that pattern. SHUFFLED finds a row permutation first unless the mask's own will do.
 * `name` is the argument that the message speaks of. On failure the mask's bits are undefined (free it) and
 * `violation`, unless NULL, says where; its size must be set. */
lac_status lac_mask_conform(const char *name, lac_mask *mask, const lac_pattern *pattern, lac_pattern_violation *violation);

/* shuffle.c: a row permutation under which every row group keeps at most geometry->selected columns, into
 * row_perm[n]. PATTERN_VIOLATED, without a message but with row, col, kept and allowed, when the search finds none. */
lac_status lac_shuffle_search(const lac_mask *mask, const lac_geometry *geometry, uint32_t *row_perm,
                              lac_pattern_violation *violation);

/* The row of W that stands i-th, the column that stands j-th. */
static inline int64_t lac_mask_stored_row(const lac_mask *mask, int64_t i) { return mask->row_perm ? mask->row_perm[i] : i; }
static inline int64_t lac_mask_stored_col(const lac_mask *mask, int64_t j) { return mask->col_perm ? mask->col_perm[j] : j; }

/* The columns that any row of row group `group` keeps, in W's order, into columns[mask->words]. */
void lac_group_columns(const lac_mask *mask, const lac_geometry *geometry, int64_t group, uint64_t *columns);
/* Bits in W's order to bits in stored order: from[words] -> to[words], which are different arrays. */
void lac_columns_to_stored(const lac_mask *mask, const uint64_t *from, uint64_t *to);
/* Columns (stored order) to the units that they lie in: units[ceil(geometry->units / 64)]. May be in place when
 * unit_k is 1. */
void lac_columns_to_units(const lac_geometry *geometry, const uint64_t *columns, uint64_t *units);
/* Fills each group of units up to min(group_n, r) with its lowest-numbered ones; free distributions stay as they are.
 * Returns -1, or the first group that has more than that (free: 0 when there are more than `selected`). */
int64_t lac_units_fill(const lac_geometry *geometry, uint64_t *units);

#endif
