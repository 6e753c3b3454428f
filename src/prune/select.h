/* select.h - picks the largest keys of a group, ties to the lower index. Used by src/prune only.
 *
 * A key is the bit pattern of a non-negative number, of 16, 32 or 64 bits, read as an integer: it orders as the number does. All
 * infinities and NaNs share the key of infinity, so among them the lower index wins. */
#ifndef LAC_PRUNE_SELECT_H
#define LAC_PRUNE_SELECT_H

#include <stdint.h>
#include <string.h>

#include "core/pattern.h"

static inline int32_t lac_key_f32(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= 0x7fffffff;
    return bits < 0x7f800000 ? bits : 0x7f800000;
}

/* Of an F16 or BF16, whose infinity has these bits. */
static inline int16_t lac_key_16(uint16_t bits, int16_t infinity)
{
    int16_t key = (int16_t)(bits & 0x7fff);
    return key < infinity ? key : infinity;
}

static inline int64_t lac_key_f64(double value)
{
    const int64_t infinity = INT64_C(0x7ff0000000000000);
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= INT64_MAX;
    return bits < infinity ? bits : infinity;
}

/* keep[i] = 1 for the `want` largest of keys[count], else 0; 0 <= want <= count, all keys >= 0. */
void lac_select_top_16(const int16_t *keys, int64_t count, int64_t want, uint8_t *keep);
void lac_select_top_32(const int32_t *keys, int64_t count, int64_t want, uint8_t *keep);
void lac_select_top_64(const int64_t *keys, int64_t count, int64_t want, uint8_t *keep);

/* The units of one row group under N:M or a free distribution: keys[units] -> keep[units]. */
void lac_select_units_16(const int16_t *keys, const lac_geometry *geometry, uint8_t *keep);
void lac_select_units_32(const int32_t *keys, const lac_geometry *geometry, uint8_t *keep);
void lac_select_units_64(const int64_t *keys, const lac_geometry *geometry, uint8_t *keep);

/* keep[words * 64], each 0 or 1, to bits. */
void lac_pack_bits(const uint8_t *keep, int64_t words, uint64_t *bits);

#endif
