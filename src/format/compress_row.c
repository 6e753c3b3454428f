/* compress_row.c - the quick way from a mask to a compressed row, for single weights under N:M with groups of 2, 4 or 8: a table says for each byte of the
 * mask which columns stay and what the index is, so there is no list of units in between. Large checkpoints are pruned to 2:4 as fast as the disk gives
 * them by this. Called by compress.c; the bytes are those of the general way, which the tests compare. */
#include "format/compress_row.h"

#include <string.h>

#include "format/bits.h"

bool lac_row_table_make(const lac_geometry *g, lac_index_encoding encoding, lac_row_table *out)
{
    int m = g->group_m, n = g->group_n;
    bool packed = encoding == LAC_INDEX_ENCODING_PACKED;
    if (g->is_free || g->unit_n != 1 || g->unit_k != 1 || g->k % 8 != 0) return false;
    if ((m != 2 && m != 4 && m != 8) || n >= m || (!packed && encoding != LAC_INDEX_ENCODING_BITMASK)) return false;
    *out = (lac_row_table){.values = 8 / m * n, .bits = packed ? 8 / m * n * g->index_bits : 0};
    for (int byte = 0; byte < 256; byte++) {
        int count = 0;
        for (int first = 0; first < 8; first += m) {
            int kept = 0;
            for (int c = first; c < first + m; c++) {
                if (!(byte >> c & 1)) continue;
                if (kept++ < n && count < out->values) {
                    out->of[byte].place[count] = (uint8_t)c;
                    out->of[byte].index |= (uint32_t)(c - first) << (count * g->index_bits);
                    count++;
                }
            }
            if (kept != n) out->of[byte].wrong = 1;
        }
    }
    return true;
}

/* The places of the kept columns of a byte, `values` of them, which the callers below make a constant. */
#define PLACE_VALUES(NAME, TYPE)                                                                                               \
    static inline uint32_t NAME(const lac_row_table *table, const uint8_t *bytes, int64_t count, const TYPE *row, int values,  \
                                TYPE *out)                                                                                     \
    {                                                                                                                          \
        uint32_t wrong = 0;                                                                                                    \
        for (int64_t i = 0; i < count; i++) {                                                                                  \
            const uint8_t *place = table->of[bytes[i]].place;                                                                  \
            wrong |= table->of[bytes[i]].wrong;                                                                                \
            for (int v = 0; v < values; v++) out[i * values + v] = row[i * 8 + place[v]];                                      \
        }                                                                                                                      \
        return wrong;                                                                                                          \
    }                                                                                                                          \
    static uint32_t NAME##_any(const lac_row_table *table, const uint8_t *bytes, int64_t count, const TYPE *row, TYPE *out)    \
    {                                                                                                                          \
        if (table->values == 4) return NAME(table, bytes, count, row, 4, out);                                                 \
        if (table->values == 2) return NAME(table, bytes, count, row, 2, out);                                                 \
        return NAME(table, bytes, count, row, table->values, out);                                                             \
    }

PLACE_VALUES(place_16, uint16_t)
PLACE_VALUES(place_32, uint32_t)

static void pack_index(const lac_row_table *table, const uint8_t *bytes, int64_t count, uint8_t *out)
{
    uint64_t pending = 0;
    int filled = 0;
    for (int64_t i = 0; i < count; i++) {
        pending |= (uint64_t)table->of[bytes[i]].index << filled;
        filled += table->bits;
        if (filled >= 32) {
            memcpy(out, &pending, 4);
            out += 4;
            pending >>= 32;
            filled -= 32;
        }
    }
    memcpy(out, &pending, (size_t)(filled + 7) / 8);
}

bool lac_row_compress(const lac_row_table *table, const uint64_t *mask, int64_t k, const void *row, size_t element,
                      void *values, uint8_t *index)
{
    const uint8_t *bytes = (const uint8_t *)mask; /* little-endian: byte i is columns 8 i to 8 i + 7 */
    int64_t count = k / 8;
    uint32_t wrong =
        element == 2 ? place_16_any(table, bytes, count, row, values) : place_32_any(table, bytes, count, row, values);
    if (wrong) return false;
    if (table->bits > 0)
        pack_index(table, bytes, count, index);
    else
        memcpy(index, bytes, (size_t)count);
    return true;
}
