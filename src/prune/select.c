/* select.c - the largest keys of each group, for keys of 16 and 32 bits (single weights) and of 64 (sums, F64 weights).
 * Small groups are ranked by counting, many groups side by side; large ones by a search for the threshold. Both are
 * plain loops that the compiler turns into vector code. Called by units.c, shuffle.c. */
#include "prune/select.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "lac_pack_bits reads eight bytes as one little-endian word");

/* Groups of up to RANK_MAX keys are ranked, LANES groups at a time. */
enum { RANK_MAX = 16, LANES = 16 };

typedef int16_t eight_keys __attribute__((vector_size(16)));
typedef uint64_t two_groups __attribute__((vector_size(16)));
typedef uint8_t eight_bytes __attribute__((vector_size(8)));

/* Which keys their neighbours `by` places on, round the group of four, go before: those round the end stand lower, and win ties. */
static inline eight_keys goes_before(eight_keys mine, int by, eight_keys round)
{
    two_groups groups = (two_groups)mine;
    eight_keys other = (eight_keys)(groups >> 16 * by | groups << (64 - 16 * by));
    return (other > mine) | ((other == mine) & round);
}

/* Groups of four keys of 16 bits, two at a time: the commonest pattern of large checkpoints. Returns how many groups are done. */
static int64_t select_fours(const int16_t *keys, int32_t n, int64_t groups, uint8_t *keep)
{
    int64_t group = 0;
    for (; group + 2 <= groups; group += 2) {
        eight_keys mine;
        memcpy(&mine, keys + group * 4, sizeof mine);
        eight_keys before = goes_before(mine, 1, (eight_keys){0, 0, 0, -1, 0, 0, 0, -1}) +
                            goes_before(mine, 2, (eight_keys){0, 0, -1, -1, 0, 0, -1, -1}) +
                            goes_before(mine, 3, (eight_keys){0, -1, -1, -1, 0, -1, -1, -1}); /* each counts -1 */
        eight_bytes kept = __builtin_convertvector((before > (int16_t)-n) & 1, eight_bytes);
        memcpy(keep + group * 4, &kept, sizeof kept);
    }
    return group;
}

#define KEY      int16_t
#define KEY_BITS 16
#define NAME(x)  x##_16
#include "prune/select_body.h"
#undef KEY
#undef KEY_BITS
#undef NAME

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
