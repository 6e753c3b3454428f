/* bits.h - fields of bits in rows of 64-bit words, least significant first. Used by masks, checks and indices. */
#ifndef LAC_FORMAT_BITS_H
#define LAC_FORMAT_BITS_H

#include <stdbool.h>
#include <stdint.h>

/* The lowest `length` bits set, 0 <= length <= 64. */
static inline uint64_t lac_bits_low(int64_t length) { return length >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << length) - 1; }

/* In plain operations: without -mpopcnt the builtin is a call, which is several times slower. */
static inline int lac_bits_popcount(uint64_t x)
{
    x -= (x >> 1) & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + ((x >> 2) & UINT64_C(0x3333333333333333));
    x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (int)((x * UINT64_C(0x0101010101010101)) >> 56);
}

/* Bits [start, start + length), 1 <= length <= 64. Reads no word that holds none of them. */
static inline uint64_t lac_bits_get(const uint64_t *words, int64_t start, int64_t length)
{
    int64_t word = start >> 6, shift = start & 63;
    uint64_t value = words[word] >> shift;
    if (shift + length > 64) value |= words[word + 1] << (64 - shift);
    return value & lac_bits_low(length);
}

/* Sets those of the bits [start, start + length) that are set in `value`. */
static inline void lac_bits_or(uint64_t *words, int64_t start, int64_t length, uint64_t value)
{
    int64_t word = start >> 6, shift = start & 63;
    words[word] |= value << shift;
    if (shift + length > 64) words[word + 1] |= value >> (64 - shift);
}

static inline bool lac_bits_test(const uint64_t *words, int64_t bit) { return (words[bit >> 6] >> (bit & 63)) & 1; }
static inline void lac_bits_set(uint64_t *words, int64_t bit) { words[bit >> 6] |= UINT64_C(1) << (bit & 63); }

/* How many of the bits [start, start + length) are set; any length. */
static inline int64_t lac_bits_count(const uint64_t *words, int64_t start, int64_t length)
{
    int64_t count = 0;
    while (length > 0) {
        int64_t step = length < 64 ? length : 64;
        count += lac_bits_popcount(lac_bits_get(words, start, step));
        start += step;
        length -= step;
    }
    return count;
}

/* The numbers of the set bits, ascending, at most `limit` of them, into out[]; returns how many. */
static inline int64_t lac_bits_list(const uint64_t *words, int64_t word_count, int64_t limit, uint32_t *out)
{
    int64_t count = 0;
    for (int64_t w = 0; w < word_count; w++) {
        uint64_t rest = words[w];
        while (rest) {
            if (count == limit) return count;
            out[count++] = (uint32_t)((uint64_t)w * 64 + (uint64_t)__builtin_ctzll(rest));
            rest &= rest - 1;
        }
    }
    return count;
}

#endif
