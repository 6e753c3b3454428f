/* check.c - pattern conformity: nonzero bits -> units -> at most N of M -> filled up to exactly N of M.
 * lac_pattern_check, lac_mask_from_matrix and lac_mask_with_pattern all end here; compress uses the steps. */
#include "format/check.h"

#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "format/bits.h"

void lac_group_columns(const lac_mask *mask, const lac_geometry *geometry, int64_t group, uint64_t *columns)
{
    int64_t first = group * geometry->unit_n, rows = lac_geometry_rows(geometry, group);
    if (!mask->words) return;
    memcpy(columns, lac_mask_row(mask, lac_mask_stored_row(mask, first)), (size_t)mask->words * 8);
    for (int64_t r = 1; r < rows; r++) {
        const uint64_t *row = lac_mask_row(mask, lac_mask_stored_row(mask, first + r));
        for (int64_t w = 0; w < mask->words; w++) columns[w] |= row[w];
    }
}

void lac_columns_to_stored(const lac_mask *mask, const uint64_t *from, uint64_t *to)
{
    if (!mask->words) return;
    if (!mask->col_perm) {
        memcpy(to, from, (size_t)mask->words * 8);
        return;
    }
    memset(to, 0, (size_t)mask->words * 8);
    for (int64_t j = 0; j < mask->k; j++) to[j >> 6] |= (uint64_t)lac_bits_test(from, mask->col_perm[j]) << (j & 63);
}

/* The way back: stored order to W's order. */
static void columns_from_stored(const lac_mask *mask, const uint64_t *from, uint64_t *to)
{
    if (!mask->words) return;
    if (!mask->col_perm) {
        memcpy(to, from, (size_t)mask->words * 8);
        return;
    }
    memset(to, 0, (size_t)mask->words * 8);
    for (int64_t j = 0; j < mask->k; j++) {
        if (lac_bits_test(from, j)) lac_bits_set(to, mask->col_perm[j]);
    }
}

void lac_columns_to_units(const lac_geometry *geometry, const uint64_t *columns, uint64_t *units)
{
    int64_t words = (geometry->units + 63) / 64;
    if (geometry->unit_k == 1) {
        if (words && units != columns) memcpy(units, columns, (size_t)words * 8);
        return;
    }
    if (words) memset(units, 0, (size_t)words * 8);
    for (int64_t u = 0; u < geometry->units; u++) {
        int64_t start = u * geometry->unit_k, left = lac_geometry_inputs(geometry, u);
        bool any = false;
        for (; left > 0 && !any; start += 64, left -= 64) any = lac_bits_get(columns, start, left < 64 ? left : 64) != 0;
        if (any) lac_bits_set(units, u);
    }
}

/* The way back: every column of a kept unit. */
static void units_to_columns(const lac_geometry *geometry, const uint64_t *units, uint64_t *columns, int64_t words)
{
    if (!words) return;
    memset(columns, 0, (size_t)words * 8);
    for (int64_t u = 0; u < geometry->units; u++) {
        if (!lac_bits_test(units, u)) continue;
        int64_t start = u * geometry->unit_k, left = lac_geometry_inputs(geometry, u);
        for (; left > 0; start += 64, left -= 64) {
            int64_t step = left < 64 ? left : 64;
            lac_bits_or(columns, start, step, lac_bits_low(step));
        }
    }
}

/* Sets the `missing` lowest clear bits of [start, start + length). */
static void fill_lowest(uint64_t *words, int64_t start, int64_t length, int64_t missing)
{
    for (; missing > 0 && length > 0; start += 64, length -= 64) {
        int64_t step = length < 64 ? length : 64;
        uint64_t field = lac_bits_get(words, start, step), added = 0;
        uint64_t clear = ~field & lac_bits_low(step);
        for (; clear && missing > 0; missing--, clear &= clear - 1) added |= clear & (~clear + 1);
        lac_bits_or(words, start, step, added);
    }
}

int64_t lac_units_fill(const lac_geometry *geometry, uint64_t *units)
{
    if (geometry->is_free) return lac_bits_count(units, 0, geometry->units) > geometry->selected ? 0 : -1;
    for (int64_t q = 0; q < geometry->groups; q++) {
        int64_t start = q * geometry->group_m, length = lac_geometry_group_units(geometry, q);
        int64_t wanted = geometry->group_n < length ? geometry->group_n : length;
        int64_t count = lac_bits_count(units, start, length);
        if (count > wanted) return q;
        if (count < wanted) fill_lowest(units, start, length, wanted - count);
    }
    return -1;
}

/* V:N:M, one row: at most N in a group, filled up with the lowest of the selected inputs. Returns false on too many. */
static bool fill_vnm_row(const lac_geometry *geometry, const uint64_t *selected, uint64_t *row)
{
    for (int64_t q = 0; q < geometry->groups; q++) {
        int64_t start = q * geometry->group_m, left = lac_geometry_group_units(geometry, q);
        int64_t wanted = geometry->slot_n < left ? geometry->slot_n : left;
        int64_t missing = wanted - lac_bits_count(row, start, left);
        if (missing < 0) return false;
        for (; missing > 0 && left > 0; start += 64, left -= 64) {
            int64_t step = left < 64 ? left : 64;
            uint64_t open = lac_bits_get(selected, start, step) & ~lac_bits_get(row, start, step), added = 0;
            for (; open && missing > 0; missing--, open &= open - 1) added |= open & (~open + 1);
            lac_bits_or(row, start, step, added);
        }
    }
    return true;
}

/* Scratch of one pass over the row groups: three rows of bits. */
typedef struct conform_scratch {
    uint64_t *raw;    /* [words] W's order     */
    uint64_t *stored; /* [words] stored order  */
    uint64_t *units;  /* [words] a bit a unit  */
} conform_scratch;

/* Checks and fills one row group; false when it breaks the pattern. */
static bool conform_group(lac_mask *mask, const lac_geometry *geometry, int64_t group, const conform_scratch *scratch)
{
    int64_t first = group * geometry->unit_n, rows = lac_geometry_rows(geometry, group);
    size_t bytes = (size_t)mask->words * 8;
    bool vnm = mask->pattern.family == LAC_FAMILY_VNM;
    lac_group_columns(mask, geometry, group, scratch->raw);
    lac_columns_to_stored(mask, scratch->raw, scratch->stored);
    lac_columns_to_units(geometry, scratch->stored, scratch->units);
    if (lac_units_fill(geometry, scratch->units) >= 0) return false;
    if (vnm) {
        for (int64_t r = 0; r < rows; r++) {
            uint64_t *row = lac_mask_row_writable(mask, lac_mask_stored_row(mask, first + r));
            lac_columns_to_stored(mask, row, scratch->stored);
            if (!fill_vnm_row(geometry, scratch->units, scratch->stored)) return false;
            columns_from_stored(mask, scratch->stored, row);
        }
        return true;
    }
    uint64_t *columns = scratch->units;
    if (geometry->unit_k > 1) {
        columns = scratch->stored;
        units_to_columns(geometry, scratch->units, columns, mask->words);
    }
    columns_from_stored(mask, columns, scratch->raw);
    for (int64_t r = 0; r < rows && bytes; r++) {
        memcpy(lac_mask_row_writable(mask, lac_mask_stored_row(mask, first + r)), scratch->raw, bytes);
    }
    return true;
}

/* Where row group `group` first breaks the pattern: goes through its elements in row order and stops at the one that
 * would be one unit too many. */
static void find_violation(const lac_mask *mask, const lac_geometry *geometry, int64_t group, const conform_scratch *scratch,
                           lac_pattern_violation *found)
{
    int64_t first = group * geometry->unit_n, rows = lac_geometry_rows(geometry, group);
    int64_t length = geometry->is_free ? geometry->units : geometry->group_m;
    int64_t allowed = geometry->is_free ? geometry->selected : geometry->group_n;
    uint64_t *touched = scratch->units;
    memset(touched, 0, (size_t)mask->words * 8);
    for (int64_t r = 0; r < rows; r++) {
        lac_columns_to_stored(mask, lac_mask_row(mask, lac_mask_stored_row(mask, first + r)), scratch->stored);
        int64_t row_group = -1, row_count = 0;
        for (int64_t j = 0; j < mask->k; j++) {
            if (!lac_bits_test(scratch->stored, j)) continue;
            int64_t unit = j / geometry->unit_k, q = unit / length, start = q * length;
            int64_t here = geometry->units - start < length ? geometry->units - start : length;
            if (q != row_group) row_group = q, row_count = 0;
            row_count++;
            bool crowded = !lac_bits_test(touched, unit) && lac_bits_count(touched, start, here) == allowed;
            bool row_full = mask->pattern.family == LAC_FAMILY_VNM && row_count > geometry->slot_n;
            if (!crowded && !row_full) {
                lac_bits_set(touched, unit);
                continue;
            }
            found->row = lac_mask_stored_row(mask, first + r);
            found->col = lac_mask_stored_col(mask, j);
            found->allowed = row_full ? geometry->slot_n : allowed;
            if (row_full) {
                found->kept = lac_bits_count(scratch->stored, start, here);
            } else {
                lac_group_columns(mask, geometry, group, scratch->raw);
                lac_columns_to_stored(mask, scratch->raw, scratch->stored);
                lac_columns_to_units(geometry, scratch->stored, touched);
                found->kept = lac_bits_count(touched, start, here);
            }
            return;
        }
    }
}

/* The first row group that breaks the pattern, or -1 when all are filled. */
static int64_t conform_groups(lac_mask *mask, const lac_geometry *geometry, const conform_scratch *scratch)
{
    if (!geometry->units) return -1;
    for (int64_t group = 0; group < geometry->row_groups; group++) {
        if (!conform_group(mask, geometry, group, scratch)) return group;
    }
    return -1;
}

/* SHUFFLED: keeps the mask's permutation if it serves, else searches one. */
static lac_status settle_rows(lac_mask *mask, const lac_geometry *geometry, const conform_scratch *scratch,
                              lac_pattern_violation *found)
{
    if (mask->row_perm) {
        bool serves = true;
        for (int64_t group = 0; group < geometry->row_groups && serves; group++) {
            lac_group_columns(mask, geometry, group, scratch->raw);
            serves = lac_bits_count(scratch->raw, 0, mask->k) <= geometry->selected;
        }
        if (serves) return LAC_STATUS_OK;
    } else {
        mask->row_perm = lac_allocate((uint64_t)mask->n * sizeof *mask->row_perm);
        if (!mask->row_perm) return lac_fail_memory("row permutation", (uint64_t)mask->n * sizeof *mask->row_perm);
    }
    return lac_shuffle_search(mask, geometry, mask->row_perm, found);
}

static lac_status conform_with(const char *name, lac_mask *mask, const lac_geometry *geometry, const conform_scratch *scratch,
                               lac_pattern_violation *violation)
{
    lac_pattern_violation found = {.size = sizeof found};
    const lac_pattern *pattern = &mask->pattern;
    lac_status status = LAC_STATUS_OK;
    if (pattern->family == LAC_FAMILY_SHUFFLED) status = settle_rows(mask, geometry, scratch, &found);
    if (!status) {
        int64_t group = conform_groups(mask, geometry, scratch);
        if (group < 0) return LAC_STATUS_OK;
        find_violation(mask, geometry, group, scratch, &found);
        status = LAC_STATUS_PATTERN_VIOLATED;
    }
    if (status != LAC_STATUS_PATTERN_VIOLATED) return status;
    char text[LAC_PATTERN_TEXT_SIZE];
    status = lac_pattern_format(pattern, text, sizeof text);
    if (status) return status;
    bool shuffled = pattern->family == LAC_FAMILY_SHUFFLED;
    snprintf(found.message, sizeof found.message,
             "row %lld, column %lld is one too many: its %s keeps %lld, and %s allows %lld%s", (long long)found.row,
             (long long)found.col,
             shuffled            ? "group of gathered rows"
             : geometry->is_free ? "row group"
                                 : "group",
             (long long)found.kept, text, (long long)found.allowed, shuffled ? " (as the search gathered the rows)" : "");
    if (violation) {
        status = lac_write_struct("violation", violation, &found, sizeof found);
        if (status) return status;
    }
    return lac_fail(LAC_STATUS_PATTERN_VIOLATED, "%s does not obey %s: %s", name, text, found.message);
}

lac_status lac_mask_conform(const char *name, lac_mask *mask, const lac_pattern *pattern, lac_pattern_violation *violation)
{
    lac_geometry geometry;
    lac_status status = lac_pattern_validate(pattern);
    if (!status) status = lac_geometry_make(pattern, mask->n, mask->k, &geometry);
    if (status) return status;
    uint64_t bytes = (uint64_t)mask->words * 3 * 8;
    uint64_t *block = lac_allocate_zeroed(bytes);
    if (!block) return lac_fail_memory("pattern check", bytes);
    conform_scratch scratch = {block, block + mask->words, block + 2 * mask->words};
    mask->pattern = *pattern;
    mask->has_pattern = true;
    status = conform_with(name, mask, &geometry, &scratch, violation);
    lac_release(block);
    return status;
}

lac_status lac_pattern_check(const lac_matrix *dense, const lac_pattern *pattern, lac_pattern_violation *violation)
{
    if (!pattern) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "pattern is NULL");
    if (violation && violation->size < sizeof violation->size)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "violation->size is %zu; set it to sizeof(*violation)", violation->size);
    lac_mask *mask = NULL;
    lac_status status = lac_mask_from_nonzeros(dense, &mask);
    if (status) return status;
    status = lac_mask_conform("dense", mask, pattern, violation);
    lac_mask_free(mask);
    return status;
}
