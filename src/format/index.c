/* index.c - packing and unpacking of the index; its sizes, its checks. Called by compress, weight, validate and shard. */
#include "format/index.h"

#include <string.h>

#include "core/status.h"

/* Bytes are stored as they lie in memory, and the format is little-endian. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Lacuna needs a little-endian machine"
#endif

lac_index_encoding lac_index_choose(const lac_geometry *geometry)
{
    if (geometry->is_free) return LAC_INDEX_ENCODING_COLUMNS;
    if (geometry->group_n == geometry->group_m) return LAC_INDEX_ENCODING_IMPLICIT;
    int64_t packed = lac_index_group_bytes(geometry, LAC_INDEX_ENCODING_PACKED);
    int64_t bitmask = lac_index_group_bytes(geometry, LAC_INDEX_ENCODING_BITMASK);
    return packed <= bitmask ? LAC_INDEX_ENCODING_PACKED : LAC_INDEX_ENCODING_BITMASK;
}

lac_status lac_index_check_encoding(const lac_geometry *geometry, lac_index_encoding encoding)
{
    switch (encoding) {
    case LAC_INDEX_ENCODING_IMPLICIT:
        if (!geometry->is_free && geometry->group_n == geometry->group_m) return LAC_STATUS_OK;
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "encoding is implicit, which needs a pattern that keeps every unit (N = M)");
    case LAC_INDEX_ENCODING_PACKED:
    case LAC_INDEX_ENCODING_BITMASK:
        if (!geometry->is_free) return LAC_STATUS_OK;
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "encoding is %s, but a free distribution needs columns",
                        encoding == LAC_INDEX_ENCODING_PACKED ? "packed" : "bitmask");
    case LAC_INDEX_ENCODING_COLUMNS:
        if (geometry->is_free) return LAC_STATUS_OK;
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "encoding is columns, but the pattern is N:M: packed, bitmask or auto");
    case LAC_INDEX_ENCODING_AUTO:
        break;
    }
    return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "encoding is %d, which is none", (int)encoding);
}

int64_t lac_index_group_bytes(const lac_geometry *geometry, lac_index_encoding encoding)
{
    if (encoding == LAC_INDEX_ENCODING_PACKED) return (geometry->selected * geometry->index_bits + 7) / 8;
    if (encoding == LAC_INDEX_ENCODING_BITMASK) return (geometry->units + 7) / 8;
    return 0;
}

static inline int64_t group_keeps(const lac_geometry *geometry, int64_t group)
{
    int64_t units = lac_geometry_group_units(geometry, group);
    return units < geometry->group_n ? units : geometry->group_n;
}

static void encode_packed(const lac_geometry *geometry, const uint32_t *units, uint8_t *out)
{
    int bits = geometry->index_bits;
    uint64_t pending = 0;
    int filled = 0;
    for (int64_t q = 0, e = 0; q < geometry->groups; q++) {
        uint32_t base = (uint32_t)(q * geometry->group_m);
        for (int64_t end = e + group_keeps(geometry, q); e < end; e++) {
            pending |= (uint64_t)(units[e] - base) << filled;
            filled += bits;
            if (filled >= 32) {
                memcpy(out, &pending, 4);
                out += 4;
                pending >>= 32;
                filled -= 32;
            }
        }
    }
    memcpy(out, &pending, (size_t)(filled + 7) / 8);
}

/* Entry e of packed bytes; `bytes` of them may be read. */
static inline uint32_t packed_entry(const uint8_t *from, int64_t bytes, int bits, int64_t e)
{
    int64_t bit = e * bits, byte = bit >> 3;
    uint32_t value = byte < bytes ? from[byte] : 0; /* bits may be 0, and then there are no bytes */
    if (byte + 1 < bytes) value |= (uint32_t)from[byte + 1] << 8;
    return (value >> (bit & 7)) & ((1u << bits) - 1);
}

/* Bits from number `bit` on, at least 57 of them; 8 bytes are read. */
static inline uint64_t bits_at(const uint8_t *from, int64_t bit)
{
    uint64_t word;
    memcpy(&word, from + (bit >> 3), sizeof word);
    return word >> (bit & 7);
}

/* Groups whose bits fit one word are read by one load each, as long as 8 bytes are left; returns how many. */
static int64_t decode_packed_groups(const lac_geometry *geometry, const uint8_t *from, int64_t bytes, uint32_t *units)
{
    const int bits = geometry->index_bits, count = geometry->group_n;
    const int64_t m = geometry->group_m, whole = geometry->units / m, width = (int64_t)count * bits;
    const uint32_t mask = (1u << bits) - 1;
    if (width > 57) return 0;
    int64_t q = 0;
    for (; q < whole && (q * width >> 3) + 8 <= bytes; ++q) {
        uint64_t entries = bits_at(from, q * width);
        for (int i = 0; i < count; ++i, entries >>= bits) *units++ = (uint32_t)(q * m) + ((uint32_t)entries & mask);
    }
    return q;
}

static void decode_packed(const lac_geometry *geometry, const uint8_t *from, uint32_t *units)
{
    int64_t bytes = lac_index_group_bytes(geometry, LAC_INDEX_ENCODING_PACKED);
    int64_t q = decode_packed_groups(geometry, from, bytes, units);
    for (int64_t e = q * geometry->group_n; q < geometry->groups; q++) {
        uint32_t base = (uint32_t)(q * geometry->group_m);
        for (int64_t end = e + group_keeps(geometry, q); e < end; e++) {
            units[e] = base + packed_entry(from, bytes, geometry->index_bits, e);
        }
    }
}

/* By words, then by bytes. */
static void decode_bitmask(const lac_geometry *geometry, const uint8_t *from, uint32_t *units)
{
    int64_t bytes = lac_index_group_bytes(geometry, LAC_INDEX_ENCODING_BITMASK), i = 0;
    for (; i + 8 <= bytes; i += 8) {
        for (uint64_t rest = bits_at(from, i * 8); rest; rest &= rest - 1) *units++ = (uint32_t)(i * 8 + __builtin_ctzll(rest));
    }
    for (; i < bytes; i++) {
        for (unsigned rest = from[i]; rest; rest &= rest - 1) *units++ = (uint32_t)(i * 8 + __builtin_ctz(rest));
    }
}

void lac_index_encode(const lac_geometry *geometry, lac_index_encoding encoding, const uint32_t *units, uint8_t *out)
{
    if (encoding == LAC_INDEX_ENCODING_PACKED) {
        encode_packed(geometry, units, out);
    } else if (encoding == LAC_INDEX_ENCODING_BITMASK) {
        memset(out, 0, (size_t)lac_index_group_bytes(geometry, encoding));
        for (int64_t e = 0; e < geometry->selected; e++) out[units[e] >> 3] |= (uint8_t)(1u << (units[e] & 7));
    }
}

void lac_index_decode(const lac_geometry *geometry, lac_index_encoding encoding, const uint8_t *from, uint32_t *units)
{
    if (encoding == LAC_INDEX_ENCODING_PACKED) {
        decode_packed(geometry, from, units);
    } else if (encoding == LAC_INDEX_ENCODING_BITMASK) {
        decode_bitmask(geometry, from, units);
    } else {
        for (int64_t u = 0; u < geometry->units; u++) units[u] = (uint32_t)u;
    }
}

bool lac_index_is_exact(const lac_geometry *geometry, const uint32_t *units, int64_t count)
{
    if (count != geometry->selected) return false;
    for (int64_t q = 0, e = 0; q < geometry->groups; q++) {
        int64_t low = q * geometry->group_m, high = low + lac_geometry_group_units(geometry, q);
        for (int64_t end = e + group_keeps(geometry, q); e < end; e++) {
            if (units[e] < low || units[e] >= high) return false;
            low = (int64_t)units[e] + 1;
        }
    }
    return true;
}

static lac_status validate_packed(const lac_geometry *geometry, int64_t group, const uint8_t *from)
{
    int64_t bytes = lac_index_group_bytes(geometry, LAC_INDEX_ENCODING_PACKED), e = 0;
    int bits = geometry->index_bits;
    for (int64_t q = 0; q < geometry->groups; q++) {
        int64_t units = lac_geometry_group_units(geometry, q), previous = -1;
        for (int64_t end = e + group_keeps(geometry, q); e < end; e++) {
            int64_t entry = packed_entry(from, bytes, bits, e);
            if (entry >= units) {
                return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                                "index: row group %lld, entry %lld is %lld, but its group has %lld units", (long long)group,
                                (long long)e, (long long)entry, (long long)units);
            }
            if (entry <= previous) {
                return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                                "index: row group %lld, entry %lld is %lld after %lld: entries must ascend within a group",
                                (long long)group, (long long)e, (long long)entry, (long long)previous);
            }
            previous = entry;
        }
    }
    int spare = (int)(bytes * 8 - e * bits); /* at most 7, all in the last byte */
    if (spare && from[bytes - 1] >> (8 - spare)) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "index: row group %lld, its last byte is 0x%02x, but the %d spare bits must be zero", (long long)group,
                        from[bytes - 1], spare);
    }
    return LAC_STATUS_OK;
}

static lac_status validate_bitmask(const lac_geometry *geometry, int64_t group, const uint8_t *from)
{
    for (int64_t q = 0; q < geometry->groups; q++) {
        int64_t start = q * geometry->group_m, count = 0;
        for (int64_t u = start, end = start + lac_geometry_group_units(geometry, q); u < end; u++) {
            count += (from[u >> 3] >> (u & 7)) & 1;
        }
        if (count != group_keeps(geometry, q)) {
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                            "index: row group %lld, group %lld has %lld bits set, but must have %lld", (long long)group,
                            (long long)q, (long long)count, (long long)group_keeps(geometry, q));
        }
    }
    int used = (int)(geometry->units & 7);
    int64_t bytes = lac_index_group_bytes(geometry, LAC_INDEX_ENCODING_BITMASK);
    if (used && from[bytes - 1] >> used) {
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "index: row group %lld, its last byte is 0x%02x, but the %d spare bits must be zero", (long long)group,
                        from[bytes - 1], 8 - used);
    }
    return LAC_STATUS_OK;
}

lac_status lac_index_validate(const lac_geometry *geometry, lac_index_encoding encoding, int64_t group, const uint8_t *from)
{
    if (encoding == LAC_INDEX_ENCODING_PACKED) return validate_packed(geometry, group, from);
    if (encoding == LAC_INDEX_ENCODING_BITMASK) return validate_bitmask(geometry, group, from);
    return LAC_STATUS_OK;
}
