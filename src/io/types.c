/* types.c - the table of element types. Used by the readers, the writer and lac_file_read_matrix. */
#include "io/types.h"

#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "core/memory.h"

static const lac_type types[] = {
    {"F32", 32, LAC_DTYPE_F32, LAC_NUMBER_FLOAT},         {"F16", 16, LAC_DTYPE_F16, LAC_NUMBER_FLOAT},
    {"BF16", 16, LAC_DTYPE_BF16, LAC_NUMBER_FLOAT},       {"F64", 64, LAC_DTYPE_F64, LAC_NUMBER_FLOAT},
    {"I8", 8, LAC_DTYPE_I8, LAC_NUMBER_SIGNED},           {"F8_E4M3", 8, LAC_DTYPE_E4M3, LAC_NUMBER_FLOAT},
    {"F8_E5M2", 8, LAC_DTYPE_E5M2, LAC_NUMBER_FLOAT},     {"U8", 8, LAC_DTYPE_NONE, LAC_NUMBER_UNSIGNED},
    {"BOOL", 8, LAC_DTYPE_NONE, LAC_NUMBER_BOOL},         {"I16", 16, LAC_DTYPE_NONE, LAC_NUMBER_SIGNED},
    {"U16", 16, LAC_DTYPE_NONE, LAC_NUMBER_UNSIGNED},     {"I32", 32, LAC_DTYPE_NONE, LAC_NUMBER_SIGNED},
    {"U32", 32, LAC_DTYPE_NONE, LAC_NUMBER_UNSIGNED},     {"I64", 64, LAC_DTYPE_NONE, LAC_NUMBER_SIGNED},
    {"U64", 64, LAC_DTYPE_NONE, LAC_NUMBER_UNSIGNED},     {"C64", 64, LAC_DTYPE_NONE, LAC_NUMBER_OTHER},
    {"F4", 4, LAC_DTYPE_NONE, LAC_NUMBER_OTHER},          {"F6_E2M3", 6, LAC_DTYPE_NONE, LAC_NUMBER_OTHER},
    {"F6_E3M2", 6, LAC_DTYPE_NONE, LAC_NUMBER_OTHER},     {"F8_E8M0", 8, LAC_DTYPE_NONE, LAC_NUMBER_OTHER},
    {"F8_E4M3FNUZ", 8, LAC_DTYPE_NONE, LAC_NUMBER_OTHER}, {"F8_E5M2FNUZ", 8, LAC_DTYPE_NONE, LAC_NUMBER_OTHER},
};

enum { TYPE_COUNT = sizeof types / sizeof types[0] };

const lac_type *lac_type_find(const char *name)
{
    for (int i = 0; i < TYPE_COUNT; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

const lac_type *lac_type_of_dtype(lac_dtype dtype)
{
    for (int i = 0; i < TYPE_COUNT; i++)
        if (dtype != LAC_DTYPE_NONE && types[i].dtype == dtype) return &types[i];
    return NULL;
}

bool lac_type_bytes(const lac_type *type, const int64_t *shape, int rank, uint64_t *out)
{
    /* Zeros are left out of the product, so that a shape whose other dimensions overflow never passes. */
    uint64_t bits = (uint64_t)type->bits;
    bool empty = false;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0) return false;
        if (shape[i] == 0)
            empty = true;
        else if (!lac_multiply_u64(bits, (uint64_t)shape[i], &bits))
            return false;
    }
    if (empty) bits = 0;
    *out = bits / 8;
    return bits % 8 == 0;
}

static double load_e4m3(uint8_t bits)
{
    int exponent = bits >> 3 & 15, fraction = bits & 7;
    double value;
    if (exponent == 15 && fraction == 7)
        value = NAN; /* the only NaN; there is no infinity */
    else if (exponent == 0)
        value = ldexp(fraction, -9);
    else
        value = ldexp(8 + fraction, exponent - 10);
    return bits & 0x80 ? -value : value;
}

static double load_float(lac_dtype dtype, const uint8_t *p)
{
    uint16_t half;
    float single;
    double wide;
    switch (dtype) {
    case LAC_DTYPE_F32:
        memcpy(&single, p, sizeof single);
        return single;
    case LAC_DTYPE_F16:
        memcpy(&half, p, sizeof half);
        return lac_f16_to_f32(half);
    case LAC_DTYPE_BF16:
        memcpy(&half, p, sizeof half);
        return lac_bf16_to_f32(half);
    case LAC_DTYPE_E5M2:
        return lac_f16_to_f32((uint16_t)(*p << 8)); /* half precision with a shorter fraction */
    case LAC_DTYPE_E4M3:
        return load_e4m3(*p);
    default:
        memcpy(&wide, p, sizeof wide);
        return wide;
    }
}

static double load_integer(const lac_type *type, const uint8_t *p)
{
    uint64_t raw = 0;
    for (int i = 0; i < type->bits / 8; i++) raw |= (uint64_t)p[i] << 8 * i;
    if (type->number == LAC_NUMBER_BOOL) return raw != 0;
    if (type->number == LAC_NUMBER_UNSIGNED) return (double)raw;
    uint64_t sign = UINT64_C(1) << (type->bits - 1);
    return (double)(int64_t)((raw ^ sign) - sign);
}

void lac_type_load(const lac_type *type, const void *data, int64_t count, double *out)
{
    const uint8_t *p = data;
    const int bytes = type->bits / 8;
    if (type->number == LAC_NUMBER_FLOAT)
        for (int64_t i = 0; i < count; i++) out[i] = load_float(type->dtype, p + i * bytes);
    else
        for (int64_t i = 0; i < count; i++) out[i] = load_integer(type, p + i * bytes);
}
