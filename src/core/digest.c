/* digest.c - XXH64, written from its specification: four lanes take eight bytes each, a last mix makes them one number. Bytes are read
 * little-endian, so that a file means the same on every machine. Called by io/output.c and prune/resume.c. */
#include "core/digest.h"

#include <string.h>

static const uint64_t P1 = UINT64_C(0x9e3779b185ebca87), P2 = UINT64_C(0xc2b2ae3d27d4eb4f), P3 = UINT64_C(0x165667b19e3779f9),
                      P4 = UINT64_C(0x85ebca77c2b2ae63), P5 = UINT64_C(0x27d4eb2f165667c5);

enum { BLOCK = 32 };

static uint64_t rotate(uint64_t x, int bits) { return x << bits | x >> (64 - bits); }

static uint64_t load64(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    x = __builtin_bswap64(x);
#endif
    return x;
}

static uint64_t load32(const uint8_t *p) { return p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24; }

static uint64_t mix(uint64_t lane, uint64_t input) { return rotate(lane + input * P2, 31) * P1; }

lac_digest lac_digest_begin(void) { return (lac_digest){.lane = {P1 + P2, P2, 0, 0 - P1}}; }

static void add_blocks(lac_digest *d, const uint8_t *p, uint64_t blocks)
{
    uint64_t a = d->lane[0], b = d->lane[1], c = d->lane[2], e = d->lane[3];
    for (; blocks > 0; blocks--, p += BLOCK) {
        a = mix(a, load64(p));
        b = mix(b, load64(p + 8));
        c = mix(c, load64(p + 16));
        e = mix(e, load64(p + 24));
    }
    d->lane[0] = a, d->lane[1] = b, d->lane[2] = c, d->lane[3] = e;
}

void lac_digest_add(lac_digest *d, const void *data, uint64_t bytes)
{
    const uint8_t *p = data;
    uint64_t waiting = d->bytes % BLOCK;
    d->bytes += bytes;
    if (waiting > 0) {
        uint64_t taken = bytes < BLOCK - waiting ? bytes : BLOCK - waiting;
        if (taken > 0) memcpy(d->rest + waiting, p, taken);
        if (waiting + taken < BLOCK) return;
        add_blocks(d, d->rest, 1);
        p += taken, bytes -= taken;
    }
    add_blocks(d, p, bytes / BLOCK);
    if (bytes % BLOCK) memcpy(d->rest, p + bytes / BLOCK * BLOCK, bytes % BLOCK);
}

uint64_t lac_digest_value(const lac_digest *d)
{
    const uint64_t *lane = d->lane;
    uint64_t h = P5, rest = d->bytes % BLOCK;
    const uint8_t *p = d->rest;
    if (d->bytes >= BLOCK) {
        h = rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12) + rotate(lane[3], 18);
        for (int i = 0; i < 4; i++) h = (h ^ mix(0, lane[i])) * P1 + P4;
    }
    h += d->bytes;
    for (; rest >= 8; rest -= 8, p += 8) h = rotate(h ^ mix(0, load64(p)), 27) * P1 + P4;
    for (; rest >= 4; rest -= 4, p += 4) h = rotate(h ^ load32(p) * P1, 23) * P2 + P3;
    for (; rest > 0; rest--, p++) h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}
