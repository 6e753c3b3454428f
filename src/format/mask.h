/* mask.h - a mask inside: a bit an element, in the order of W (permutations do not move the bits). */
#ifndef LAC_FORMAT_MASK_H
#define LAC_FORMAT_MASK_H

#include <stdbool.h>

#include "core/pattern.h"
#include "lacuna.h"

struct lac_mask {
    int64_t n, k;
    bool has_pattern;
    lac_pattern pattern;
    int64_t words;      /* 64-bit words a row: ceil(k / 64)                                          */
    uint64_t *bits;     /* [n][words]: bit (c & 63) of word c >> 6 of row r says that W[r][c] stays; bits past k are 0 */
    uint32_t *row_perm; /* [n] or NULL: the row of W that stands i-th. Row groups count i             */
    uint32_t *col_perm; /* [k] or NULL: the column of W that stands j-th. Units count j               */
};

/* An empty mask without permutations; pattern may be NULL. */
lac_status lac_mask_create(int64_t n, int64_t k, const lac_pattern *pattern, lac_mask **out);

static inline const uint64_t *lac_mask_row(const lac_mask *mask, int64_t row) { return mask->bits + row * mask->words; }
static inline uint64_t *lac_mask_row_writable(lac_mask *mask, int64_t row) { return mask->bits + row * mask->words; }

static inline bool lac_mask_test(const lac_mask *mask, int64_t row, int64_t col)
{
    return (lac_mask_row(mask, row)[col >> 6] >> (col & 63)) & 1;
}

static inline void lac_mask_set(lac_mask *mask, int64_t row, int64_t col)
{
    lac_mask_row_writable(mask, row)[col >> 6] |= UINT64_C(1) << (col & 63);
}

/* lac_mask_energy by several threads; arguments are known to be there. */
lac_status lac_mask_energy_by(const lac_mask *mask, const lac_matrix *dense, int threads, double *kept, double *total);

#endif
