/* select.c - the largest keys of each group, for 32-bit keys (single weights) and 64-bit ones (sums, F64 weights).
 * Small groups are ranked by counting, many groups side by side; large ones by a search for the threshold. Both are
 * plain loops that the compiler turns into vector code. Called by units.c, shuffle.c. */
#include "prune/select.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "lac_pack_bits reads eight bytes as one little-endian word");

/* Groups of up to RANK_MAX keys are ranked, LANES groups at a time. */
enum { RANK_MAX = 16, LANES = 16 };

#define KEY      int32_t
#define KEY_BITS 32
#define NAME(x)  x##_32
#include "prune/select_body.h"
#undef KEY
#undef KEY_BITS
#undef NAME

#define KEY      int64_t
#define KEY_BITS 64
#define NAME(x)  x##_64
#include "prune/select_body.h"

void lac_pack_bits(const uint8_t *keep, int64_t words, uint64_t *bits)
{
    for (int64_t w = 0; w < words; w++) {
        uint64_t word = 0;
        for (int i = 0; i < 8; i++) {
            uint64_t eight;
            memcpy(&eight, keep + w * 64 + i * 8, sizeof eight);
            /* Byte b holds 0 or 1; the product brings it to bit 56 + b. */
            word |= (eight * UINT64_C(0x0102040810204080) >> 56) << (8 * i);
        }
        bits[w] = word;
    }
}
