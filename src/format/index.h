/* index.h - which units a row group keeps, as bytes: packed entries or a bit a unit (docs/format.md). */
#ifndef LAC_FORMAT_INDEX_H
#define LAC_FORMAT_INDEX_H

#include <stdbool.h>

#include "core/pattern.h"
#include "lacuna.h"

/* The encoding that AUTO stands for. */
lac_index_encoding lac_index_choose(const lac_geometry *geometry);
/* INVALID_ARGUMENT, unless `encoding` (not AUTO) can hold the units of this pattern. */
lac_status lac_index_check_encoding(const lac_geometry *geometry, lac_index_encoding encoding);
/* Bytes of the index of one row group. */
int64_t lac_index_group_bytes(const lac_geometry *geometry, lac_index_encoding encoding);
/* Bytes of the positions of a row group of `rows` rows. */
static inline int64_t lac_positions_group_bytes(const lac_geometry *geometry, int64_t rows)
{
    return (2 * geometry->slots * rows + 7) / 8;
}

/* units[geometry->selected], ascending, exactly min(group_n, r) in each group -> the index bytes of a row group. */
void lac_index_encode(const lac_geometry *geometry, lac_index_encoding encoding, const uint32_t *units, uint8_t *out);
/* The way back; the bytes are valid. */
void lac_index_decode(const lac_geometry *geometry, lac_index_encoding encoding, const uint8_t *from, uint32_t *units);
/* Whether units[count] are just what an N:M row group keeps: exactly min(group_n, r) in each group, ascending. */
bool lac_index_is_exact(const lac_geometry *geometry, const uint32_t *units, int64_t count);
/* Index bytes of row group `group` from elsewhere: INVALID_ARGUMENT, naming the group and the value, unless valid. */
lac_status lac_index_validate(const lac_geometry *geometry, lac_index_encoding encoding, int64_t group, const uint8_t *from);

/* Value `number` of a row group's positions. */
static inline int lac_position_get(const uint8_t *from, int64_t number)
{
    return (from[number >> 2] >> (2 * (number & 3))) & 3;
}
/* The bits must be clear. */
static inline void lac_position_set(uint8_t *to, int64_t number, int position)
{
    to[number >> 2] = (uint8_t)(to[number >> 2] | position << (2 * (number & 3)));
}

#endif
