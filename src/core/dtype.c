/* dtype.c - element types: names, sizes, limits and conversions, all from one table. */
#include "core/dtype.h"

#include <ctype.h>

#include "core/status.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian and is read in place");

typedef struct dtype_row {
    const char *name;
    size_t size;
    bool storage, input;
    int mantissa;     /* bits behind the point: the roundoff is 2^-(mantissa + 1)      */
    int min_exponent; /* of the smallest normal number; the tiniest is 2^(that - mantissa) */
    double max;
} dtype_row;

static const dtype_row dtypes[] = {
    [LAC_DTYPE_NONE] = {"none", 0, false, false, 0, 0, 0.0},
    [LAC_DTYPE_F32] = {"f32", 4, true, true, 23, -126, 0x1.fffffep127},
    [LAC_DTYPE_F16] = {"f16", 2, true, true, 10, -14, 65504.0},
    [LAC_DTYPE_BF16] = {"bf16", 2, true, true, 7, -126, 0x1.fep127},
    [LAC_DTYPE_F64] = {"f64", 8, false, true, 52, -1022, 0x1.fffffffffffffp1023},
    [LAC_DTYPE_I8] = {"i8", 1, false, false, 0, 0, 127.0},
    [LAC_DTYPE_E4M3] = {"e4m3", 1, false, false, 3, -6, 448.0},
    [LAC_DTYPE_E5M2] = {"e5m2", 1, false, false, 2, -14, 57344.0},
};
enum { DTYPE_COUNT = sizeof dtypes / sizeof *dtypes };

/* Anything that is no dtype reads as NONE. */
static const dtype_row *row_of(lac_dtype dtype)
{
    return &dtypes[(unsigned)dtype < DTYPE_COUNT ? (unsigned)dtype : LAC_DTYPE_NONE];
}

const char *lac_dtype_name(lac_dtype dtype) { return row_of(dtype)->name; }
size_t lac_dtype_size(lac_dtype dtype) { return row_of(dtype)->size; }
bool lac_dtype_is_storage(lac_dtype dtype) { return row_of(dtype)->storage; }
bool lac_dtype_is_input(lac_dtype dtype) { return row_of(dtype)->input; }
double lac_dtype_max(lac_dtype dtype) { return row_of(dtype)->max; }
double lac_dtype_roundoff(lac_dtype dtype) { return ldexp(1.0, -(row_of(dtype)->mantissa + 1)); }
double lac_dtype_tiny(lac_dtype dtype) { return ldexp(1.0, row_of(dtype)->min_exponent - row_of(dtype)->mantissa); }

lac_status lac_dtype_parse(const char *text, lac_dtype *out)
{
    static const struct {
        const char *alias;
        lac_dtype dtype;
    } aliases[] = {{"fp32", LAC_DTYPE_F32},     {"float32", LAC_DTYPE_F32}, {"float", LAC_DTYPE_F32},
                   {"fp16", LAC_DTYPE_F16},     {"float16", LAC_DTYPE_F16}, {"half", LAC_DTYPE_F16},
                   {"fp64", LAC_DTYPE_F64},     {"float64", LAC_DTYPE_F64}, {"double", LAC_DTYPE_F64},
                   {"bfloat16", LAC_DTYPE_BF16}};
    if (!text) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "text is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    char lower[16] = "";
    for (size_t i = 0; text[i] && i + 1 < sizeof lower; ++i) lower[i] = (char)tolower((unsigned char)text[i]);
    if (strlen(text) < sizeof lower) {
        for (int i = LAC_DTYPE_F32; i < DTYPE_COUNT; ++i)
            if (!strcmp(lower, dtypes[i].name)) return *out = (lac_dtype)i, LAC_STATUS_OK;
        for (size_t i = 0; i < sizeof aliases / sizeof *aliases; ++i)
            if (!strcmp(lower, aliases[i].alias)) return *out = aliases[i].dtype, LAC_STATUS_OK;
    }
    return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "dtype is '%.40s'; it is one of f32, f16, bf16, f64", text);
}

/* ---- 16-bit floats */

float lac_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 31u;
    uint32_t mantissa = bits & 0x3ffu;
    uint32_t wide;
    if (exponent == 31) {
        wide = sign | 0x7f800000u | mantissa << 13;
    } else if (exponent) {
        wide = sign | (exponent + 112) << 23 | mantissa << 13;
    } else { /* subnormal: mantissa * 2^-24 is exact in fp32 */
        float magnitude = (float)mantissa * 0x1p-24f;
        memcpy(&wide, &magnitude, sizeof wide);
        wide |= sign;
    }
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Rounds the double `value` to a 16-bit float with `mantissa` bits behind the point. One rounding: the double's own 52
 * bits are cut at the right place, to nearest, ties to even; a carry runs into the exponent as it should. */
static uint16_t narrow(double value, int mantissa, int min_exponent)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 48 & 0x8000u);
    uint64_t magnitude = bits & 0x7fffffffffffffffu;
    int exponent_bits = 15 - mantissa;
    uint16_t infinity = (uint16_t)(((1u << exponent_bits) - 1) << mantissa);
    if (magnitude > 0x7ff0000000000000u) /* NaN: keep the payload's top, make it quiet */
        return (uint16_t)(sign | infinity | 1u << (mantissa - 1) | (magnitude >> (52 - mantissa) & ((1u << mantissa) - 1)));
    if (magnitude == 0x7ff0000000000000u) return (uint16_t)(sign | infinity);

    int exponent = (int)(magnitude >> 52) - 1023;
    uint64_t significand = (magnitude & 0xfffffffffffffu) | (UINT64_C(1) << 52);
    int drop = 52 - mantissa;
    int biased = exponent - min_exponent + 1;
    if (biased < 1) { /* subnormal here: the exponent stays at its least, more bits drop */
        drop += 1 - biased;
        biased = 1;
        if (drop > 54) return sign; /* less than half of the tiniest; doubles that are subnormal land here too */
    }
    if (exponent > 1 - min_exponent) return (uint16_t)(sign | infinity);
    uint64_t half = UINT64_C(1) << (drop - 1);
    uint64_t rest = significand & ((half << 1) - 1);
    uint64_t kept = significand >> drop;
    kept += rest > half || (rest == half && (kept & 1));
    /* kept still carries its leading bit, which adds 1 to the exponent field: start one lower. */
    uint64_t result = ((uint64_t)(biased - 1) << mantissa) + kept;
    return (uint16_t)(sign | (result > infinity ? infinity : result));
}

uint16_t lac_f64_to_f16(double value) { return narrow(value, 10, -14); }
uint16_t lac_f64_to_bf16(double value) { return narrow(value, 7, -126); }

uint16_t lac_f32_to_f16(float value)
{
    /* After Giesen: integer rounding for the normal range, one float addition for the subnormal. */
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    bits &= 0x7fffffffu;
    if (bits >= 0x47800000u) { /* 65536 and more, infinity, NaN */
        if (bits > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x3ffu));
        return (uint16_t)(sign | 0x7c00u);
    }
    if (bits < 0x38800000u) { /* below 2^-14: adding 0.5 puts the result's unit, 2^-24, at the last bit */
        float shifted;
        memcpy(&shifted, &bits, sizeof shifted);
        shifted += 0.5f;
        memcpy(&bits, &shifted, sizeof bits);
        return (uint16_t)(sign | (bits - 0x3f000000u));
    }
    return (uint16_t)(sign | (bits - 0x38000000u + 0xfffu + (bits >> 13 & 1u)) >> 13);
}

/* ---- single elements and runs */

double lac_load_f64(const void *data, lac_dtype dtype, int64_t i)
{
    switch (dtype) {
    case LAC_DTYPE_F32:
        return ((const float *)data)[i];
    case LAC_DTYPE_F16:
        return lac_f16_to_f32(((const uint16_t *)data)[i]);
    case LAC_DTYPE_BF16:
        return lac_bf16_to_f32(((const uint16_t *)data)[i]);
    case LAC_DTYPE_F64:
        return ((const double *)data)[i];
    default:
        return NAN;
    }
}

void lac_store_f64(void *data, lac_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case LAC_DTYPE_F32:
        ((float *)data)[i] = (float)value;
        break;
    case LAC_DTYPE_F16:
        ((uint16_t *)data)[i] = lac_f64_to_f16(value);
        break;
    case LAC_DTYPE_BF16:
        ((uint16_t *)data)[i] = lac_f64_to_bf16(value);
        break;
    case LAC_DTYPE_F64:
        ((double *)data)[i] = value;
        break;
    default:
        break;
    }
}

/* lac_f16_to_f32 without branches, so that the loop becomes vector code. */
static void widen_f16(const uint16_t *from, int64_t count, float *out)
{
    for (int64_t i = 0; i < count; ++i) {
        uint32_t bits = from[i], wide = (bits & 0x7fffu) << 13, subnormal;
        float magnitude = (float)(int32_t)(bits & 0x3ffu) * 0x1p-24f; /* exact */
        memcpy(&subnormal, &magnitude, sizeof subnormal);
        uint32_t is_subnormal = 0u - (wide < 0x00800000u), is_not_finite = 0u - (wide >= 0x0f800000u);
        uint32_t normal = wide + (112u << 23) + (is_not_finite & 112u << 23);
        uint32_t value = (subnormal & is_subnormal) | (normal & ~is_subnormal) | (bits & 0x8000u) << 16;
        memcpy(out + i, &value, sizeof value);
    }
}

void lac_load_run_f32(const void *data, lac_dtype dtype, int64_t start, int64_t stride, int64_t count, float *out)
{
    if (count <= 0) return; /* data may then be NULL */
    switch (dtype) {
    case LAC_DTYPE_F32:
        if (stride == 1) {
            memcpy(out, (const float *)data + start, (size_t)count * sizeof *out);
        } else {
            for (int64_t i = 0; i < count; ++i) out[i] = ((const float *)data)[start + i * stride];
        }
        break;
    case LAC_DTYPE_F16:
        if (stride == 1) {
            widen_f16((const uint16_t *)data + start, count, out);
        } else {
            for (int64_t i = 0; i < count; ++i) out[i] = lac_f16_to_f32(((const uint16_t *)data)[start + i * stride]);
        }
        break;
    case LAC_DTYPE_BF16:
        for (int64_t i = 0; i < count; ++i) out[i] = lac_bf16_to_f32(((const uint16_t *)data)[start + i * stride]);
        break;
    default:
        for (int64_t i = 0; i < count; ++i) out[i] = (float)lac_load_f64(data, dtype, start + i * stride);
        break;
    }
}

void lac_store_run_f32(void *data, lac_dtype dtype, int64_t start, int64_t stride, int64_t count, const float *from)
{
    switch (dtype) {
    case LAC_DTYPE_F32:
        for (int64_t i = 0; i < count; ++i) ((float *)data)[start + i * stride] = from[i];
        break;
    case LAC_DTYPE_F16:
        for (int64_t i = 0; i < count; ++i) ((uint16_t *)data)[start + i * stride] = lac_f32_to_f16(from[i]);
        break;
    case LAC_DTYPE_BF16:
        for (int64_t i = 0; i < count; ++i) ((uint16_t *)data)[start + i * stride] = lac_f32_to_bf16(from[i]);
        break;
    default:
        for (int64_t i = 0; i < count; ++i) lac_store_f64(data, dtype, start + i * stride, from[i]);
        break;
    }
}
