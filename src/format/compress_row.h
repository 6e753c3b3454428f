/* compress_row.h - rows of single weights under N:M, compressed straight from the bytes of their mask. Used by compress.c. */
#ifndef LAC_FORMAT_COMPRESS_ROW_H
#define LAC_FORMAT_COMPRESS_ROW_H

#include <stdbool.h>

#include "core/pattern.h"
#include "lacuna.h"

/* What each byte of a mask stands for: whole groups, of 2, 4 or 8 columns. */
typedef struct lac_row_table {
    int values; /* that eight columns keep                           */
    int bits;   /* of the index for them; 0: the index is the mask   */
    struct {
        uint8_t place[8]; /* of the kept columns, ascending          */
        uint32_t index;   /* their entries, packed                   */
        uint32_t wrong;   /* 1: some group keeps too few or too many */
    } of[256];
} lac_row_table;

/* Whether rows of this geometry can go this way; then the table is made. */
bool lac_row_table_make(const lac_geometry *geometry, lac_index_encoding encoding, lac_row_table *out);

/* One row [k] of elements of 2 or 4 bytes and its mask [k / 8] -> values [slots] and index. False when the mask breaks the pattern. */
bool lac_row_compress(const lac_row_table *table, const uint64_t *mask, int64_t k, const void *row, size_t element,
                      void *values, uint8_t *index);

#endif
