/* shuffle.c - SHUFFLED: gathers rows into groups of unit_n that together keep few enough columns. Called by check.c for
 * matrices whose permutation is not known.
 *
 * Rows with identical columns are gathered first: a hash finds them, so a pruned matrix costs one pass and a sort. What
 * is left is gathered greedily: the row with the most columns opens a group, and the row that shares the most columns with
 * the group (then: adds the fewest, then: comes first) joins it while the union fits. Groups stand in the order of their
 * first row, rows ascend within a group, and the one group that may be short (n mod unit_n rows) stands last. */
#include <stdbool.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "format/bits.h"
#include "format/check.h"

typedef struct shuffle {
    const lac_mask *mask;
    int64_t n, words, size; /* size: rows of a group */
    int64_t cap;            /* columns a group may keep */
    int64_t group_count;    /* groups made so far */
    int64_t short_group;    /* the one with n mod size rows, or -1 */
    uint64_t *hash;         /* [n] of a row's bits */
    uint32_t *order;        /* [n] rows, identical ones side by side */
    uint32_t *buffer;       /* [n] for sorting; then the rows of the group in the making */
    uint32_t *group_of;     /* [n] the group of each row, UINT32_MAX while it has none */
    uint32_t *width;        /* [n] columns of each row */
    uint64_t *joined;       /* [words] the columns of the group in the making */
} shuffle;

static int compare_rows(const shuffle *s, uint32_t a, uint32_t b)
{
    if (s->hash[a] != s->hash[b]) return s->hash[a] < s->hash[b] ? -1 : 1;
    int order = memcmp(lac_mask_row(s->mask, a), lac_mask_row(s->mask, b), (size_t)s->words * 8);
    if (order) return order;
    return a < b ? -1 : a > b;
}

/* Merge sort: in the library's own memory, with the same order everywhere. */
static void sort_rows(shuffle *s)
{
    for (int64_t width = 1; width < s->n; width *= 2) {
        for (int64_t start = 0; start < s->n; start += 2 * width) {
            int64_t middle = start + width < s->n ? start + width : s->n;
            int64_t end = middle + width < s->n ? middle + width : s->n;
            for (int64_t i = start, j = middle, at = start; at < end; at++) {
                bool left = i < middle && (j >= end || compare_rows(s, s->order[i], s->order[j]) < 0);
                s->buffer[at] = left ? s->order[i++] : s->order[j++];
            }
        }
        uint32_t *sorted = s->buffer;
        s->buffer = s->order;
        s->order = sorted;
    }
}

/* Whole groups out of rows with the very same columns. */
static void gather_identical(shuffle *s)
{
    for (int64_t start = 0, end; start < s->n; start = end) {
        const uint64_t *first = lac_mask_row(s->mask, s->order[start]);
        for (end = start + 1; end < s->n; end++) {
            if (s->hash[s->order[end]] != s->hash[s->order[start]]) break;
            if (memcmp(first, lac_mask_row(s->mask, s->order[end]), (size_t)s->words * 8) != 0) break;
        }
        for (int64_t at = start; at + s->size <= end; at += s->size) {
            for (int64_t i = at; i < at + s->size; i++) s->group_of[s->order[i]] = (uint32_t)s->group_count;
            s->group_count++;
        }
    }
}

/* The row without a group that fits best into s->joined, or -1. */
static int64_t best_row(const shuffle *s, int64_t joined_width)
{
    int64_t best = -1, best_shared = -1, best_added = 0;
    for (int64_t r = 0; r < s->n; r++) {
        if (s->group_of[r] != UINT32_MAX || (int64_t)s->width[r] < best_shared) continue;
        const uint64_t *row = lac_mask_row(s->mask, r);
        int64_t shared = 0;
        for (int64_t w = 0; w < s->words; w++) shared += lac_bits_popcount(row[w] & s->joined[w]);
        int64_t added = (int64_t)s->width[r] - shared;
        if (joined_width + added > s->cap) continue;
        if (shared > best_shared || (shared == best_shared && added < best_added)) {
            best = r;
            best_shared = shared;
            best_added = added;
        }
    }
    return best;
}

/* The first row that is left over and does not fit, and its first column that is too many. */
static void report_left_over(const shuffle *s, int64_t joined_width, lac_pattern_violation *violation)
{
    for (int64_t r = 0; r < s->n; r++) {
        if (s->group_of[r] != UINT32_MAX) continue;
        const uint64_t *row = lac_mask_row(s->mask, r);
        int64_t total = joined_width, col = -1;
        for (int64_t c = 0; c < s->mask->k; c++) {
            if (!lac_bits_test(row, c) || lac_bits_test(s->joined, c)) continue;
            if (++total == s->cap + 1) col = c;
        }
        if (col < 0) continue;
        violation->row = r;
        violation->col = col;
        violation->kept = total;
        violation->allowed = s->cap;
        return;
    }
}

/* Groups out of the rest. False when a group cannot be filled. */
static bool gather_rest(shuffle *s, lac_pattern_violation *violation)
{
    int64_t rest = s->n % s->size;
    for (;;) {
        int64_t seed = -1, count = 0;
        for (int64_t r = 0; r < s->n; r++) {
            if (s->group_of[r] == UINT32_MAX && (seed < 0 || s->width[r] > s->width[seed])) seed = r;
        }
        if (seed < 0) return true;
        memset(s->joined, 0, (size_t)s->words * 8);
        int64_t joined_width = 0, row = seed;
        while (row >= 0) {
            s->group_of[row] = (uint32_t)s->group_count;
            s->buffer[count++] = (uint32_t)row;
            const uint64_t *bits = lac_mask_row(s->mask, row);
            for (int64_t w = 0; w < s->words; w++) s->joined[w] |= bits[w];
            joined_width = lac_bits_count(s->joined, 0, s->mask->k);
            row = count < s->size ? best_row(s, joined_width) : -1;
        }
        if (count < s->size) {
            if (s->short_group >= 0 || rest == 0 || count < rest) {
                report_left_over(s, joined_width, violation);
                return false;
            }
            s->short_group = s->group_count;
            while (count > rest) s->group_of[s->buffer[--count]] = UINT32_MAX;
        }
        s->group_count++;
    }
}

/* Groups in the order of their first row, the short one last; s->order is reused for the first places. */
static void write_permutation(shuffle *s, uint32_t *row_perm)
{
    int64_t next = 0;
    uint32_t *place = s->order; /* [group] the next stored row of the group, once it is known */
    for (int64_t g = 0; g < s->group_count; g++) place[g] = UINT32_MAX;
    for (int64_t r = 0; r < s->n; r++) {
        uint32_t g = s->group_of[r];
        if (place[g] == UINT32_MAX) {
            if ((int64_t)g == s->short_group) {
                place[g] = (uint32_t)(s->n - s->n % s->size);
            } else {
                place[g] = (uint32_t)next;
                next += s->size;
            }
        }
        row_perm[place[g]++] = (uint32_t)r;
    }
}

/* A row that is too wide by itself. */
static bool report_wide_row(const shuffle *s, lac_pattern_violation *violation)
{
    for (int64_t r = 0; r < s->n; r++) {
        if ((int64_t)s->width[r] <= s->cap) continue;
        int64_t count = 0, col = 0;
        for (; count <= s->cap; col++) count += lac_bits_test(lac_mask_row(s->mask, r), col);
        violation->row = r;
        violation->col = col - 1;
        violation->kept = s->width[r];
        violation->allowed = s->cap;
        return true;
    }
    return false;
}

lac_status lac_shuffle_search(const lac_mask *mask, const lac_geometry *geometry, uint32_t *row_perm,
                              lac_pattern_violation *violation)
{
    shuffle s = {.mask = mask, .n = mask->n, .words = mask->words, .size = geometry->unit_n, .cap = geometry->selected};
    s.short_group = -1;
    for (int64_t r = 0; r < mask->n && !mask->words; r++) row_perm[r] = (uint32_t)r;
    if (!mask->n || !mask->words) return LAC_STATUS_OK;
    uint64_t count = (uint64_t)mask->n, bytes = count * 8 + (uint64_t)mask->words * 8 + count * 4 * 4;
    uint64_t *block = lac_allocate(bytes);
    if (!block) return lac_fail_memory("search for a row permutation", bytes);
    s.hash = block;
    s.joined = s.hash + count;
    s.order = (uint32_t *)(s.joined + mask->words);
    s.buffer = s.order + count;
    s.group_of = s.buffer + count;
    s.width = s.group_of + count;
    for (int64_t r = 0; r < mask->n; r++) {
        const uint64_t *row = lac_mask_row(mask, r);
        uint64_t hash = 0, width = 0;
        for (int64_t w = 0; w < mask->words; w++) {
            hash = (hash ^ row[w]) * UINT64_C(0x9e3779b97f4a7c15);
            hash ^= hash >> 29;
            width += (uint64_t)lac_bits_popcount(row[w]);
        }
        s.hash[r] = hash;
        s.width[r] = (uint32_t)width;
        s.order[r] = (uint32_t)r;
        s.group_of[r] = UINT32_MAX;
    }
    bool found = !report_wide_row(&s, violation);
    if (found) {
        sort_rows(&s);
        gather_identical(&s);
        found = gather_rest(&s, violation);
    }
    if (found) write_permutation(&s, row_perm);
    lac_release(block);
    return found ? LAC_STATUS_OK : LAC_STATUS_PATTERN_VIOLATED;
}
