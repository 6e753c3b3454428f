/* scalar_convert.c - cvt in full: roundings to integers, saturation, registers wider than the type. The forms that occur
 * often and need none of these are rows of scalar_float.c; emu_scalar_take comes here for the rest.
 *
 * number[0] and number[1] are the types of the result and the source, number[2] the rounding (an integer_rounding, or
 * fesetround's), number[3] flags, number[4] whether the registers are of 64 bits: 1 the result's, 2 the source's. */
#include "scalar.h"

#include <math.h>

typedef enum number_type { U8, S8, U16, S16, U32, S32, U64, S64, F16, BF16, F32, F64, TYPES } number_type;
static const char *const type_names[TYPES] = {"u8",  "s8",  "u16", "s16",  "u32", "s32",
                                              "u64", "s64", "f16", "bf16", "f32", "f64"};
static const int type_bits[TYPES] = {8, 8, 16, 16, 32, 32, 64, 64, 16, 16, 32, 64};

enum { FLUSH = EMU_SCALAR_FLUSH, SATURATE = EMU_SCALAR_SATURATE, TO_WHOLE = 4 };
typedef enum integer_rounding { WHOLE_NEAREST, WHOLE_ZERO, WHOLE_DOWN, WHOLE_UP } integer_rounding;

static bool is_float(number_type type) { return type >= F16; }
static bool is_signed(number_type type) { return !is_float(type) && type & 1; }

static emu_s128 least(number_type type) { return is_signed(type) ? -((emu_s128)1 << (type_bits[type] - 1)) : 0; }
static emu_s128 most(number_type type) { return ((emu_s128)1 << (type_bits[type] - (is_signed(type) ? 1 : 0))) - 1; }
static emu_s128 clamped(emu_s128 value, number_type type)
{
    return value < least(type) ? least(type) : value > most(type) ? most(type) : value;
}

static emu_s128 read_integer(uint64_t lane, number_type type)
{
    emu_s128 value = lane & (uint64_t)most(type - (type & 1)); /* the unsigned type of as many bits is the one before */
    return value > most(type) ? value - ((emu_s128)1 << type_bits[type]) : value;
}
static double read_float(uint64_t lane, number_type type, int flags)
{
    if (type == F16) return emu_from_f16((uint16_t)lane);
    if (type == BF16) return emu_from_bf16((uint16_t)lane);
    if (type == F32) return get_f32x((uint32_t)lane, flags);
    return get_f64(lane, 0);
}
/* In the rounding that is set. */
static uint64_t write_float(double value, number_type type, int flags)
{
    if (flags & SATURATE) value = value > 0 ? value < 1 ? value : 1 : 0;
    if (type == F16) return emu_to_f16((float)value);
    if (type == BF16) return emu_to_bf16((float)value);
    if (type == F32) return put_f32x((float)value, flags);
    return put_f64(value, 0);
}
/* A signed result fills the register, as far as it can be told how wide that is: s16 is taken to be in a register of 16
 * bits. */
static uint64_t write_integer(emu_s128 value, number_type type)
{
    uint64_t bits = (uint64_t)value & (uint64_t)most(type - (type & 1));
    return type_bits[type] < 64 && is_signed(type) ? (uint64_t)read_integer(bits, type) : bits;
}
static double whole(double value, integer_rounding rounding)
{
    switch (rounding) {
    case WHOLE_NEAREST:
        return nearbyint(value);
    case WHOLE_ZERO:
        return trunc(value);
    case WHOLE_DOWN:
        return floor(value);
    default:
        return ceil(value);
    }
}
/* A float that is no number of the type becomes the nearest that is; a NaN 0, or the sign alone where 64 bits are about. */
static emu_s128 to_integer(double value, number_type to, number_type from)
{
    if (isnan(value)) return from != F64 && type_bits[to] < 64 ? 0 : (emu_s128)1 << (type_bits[to] - 1);
    if (value >= 0x1p64) return most(to);
    if (value <= -0x1p64) return least(to);
    return clamped((emu_s128)value, to);
}

static uint64_t converted(const emu_instruction *in, uint64_t lane)
{
    number_type to = (number_type)in->number[0], from = (number_type)in->number[1];
    int flags = in->number[3];
    if (is_float(from)) {
        double value = read_float(lane, from, flags);
        if (flags & TO_WHOLE) value = whole(value, (integer_rounding)in->number[2]);
        return is_float(to) ? write_float(value, to, flags) : write_integer(to_integer(value, to, from), to);
    }
    emu_s128 value = read_integer(lane, from);
    if (!is_float(to)) return write_integer(flags & SATURATE ? clamped(value, to) : value, to);
    /* Straight to the type: by way of double, 64 bits would be rounded twice. Whole numbers that fp16 has room for are
     * floats. */
    if (to == F64) return write_float(value < 0 ? (double)(int64_t)value : (double)(uint64_t)value, to, flags);
    return write_float(value < 0 ? (float)(int64_t)value : (float)(uint64_t)value, to, flags);
}

/* A result of 8 or 16 bits is taken to be in a register of 16, as NVRTC has it: an operand does not tell that from 32. */
static emu_outcome convert(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    bool to_wide = in->number[4] & 1, from_wide = in->number[4] & 2, narrow = type_bits[in->number[0]] < 32 && !to_wide;
    fesetround(in->number[3] & TO_WHOLE ? FE_TONEAREST : in->number[2]);
    for (uint32_t left = mask; left; left &= left - 1) {
        int l = __builtin_ctz(left);
        uint64_t result = converted(in, from_wide ? emu_u64(warp, in->slot[1])[l] : emu_u32(warp, in->slot[1])[l]);
        if (to_wide)
            emu_u64(warp, in->slot[0])[l] = result;
        else
            emu_u32(warp, in->slot[0])[l] = (uint32_t)(narrow ? result & 0xffff : result);
    }
    fesetround(FE_TONEAREST);
    return EMU_STEP;
}

static int type_of(const char *word)
{
    int type = 0;
    while (type < TYPES && strcmp(word, type_names[type]) != 0) type++;
    return type;
}
/* False: a word that is not known. */
static bool read_modifier(emu_instruction *in, const char *word)
{
    static const char *const whole_names[] = {"rni", "rzi", "rmi", "rpi"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(word, whole_names[i]) != 0) continue;
        in->number[2] = i;
        in->number[3] |= TO_WHOLE;
        return true;
    }
    if (!strcmp(word, "rn"))
        in->number[2] = FE_TONEAREST;
    else if (!strcmp(word, "rz"))
        in->number[2] = FE_TOWARDZERO;
    else if (!strcmp(word, "rm"))
        in->number[2] = FE_DOWNWARD;
    else if (!strcmp(word, "rp"))
        in->number[2] = FE_UPWARD;
    else if (!strcmp(word, "sat"))
        in->number[3] |= SATURATE;
    else if (!strcmp(word, "ftz"))
        in->number[3] |= FLUSH;
    else
        return false;
    return true;
}

/* cvt.<modifiers>.<to>.<from> d, a. */
bool emu_scalar_take_convert(emu_instruction *in)
{
    if (in->parts < 3 || in->operands != 2) return false;
    const emu_operand *d = &in->operand[0], *a = &in->operand[1];
    int to = type_of(in->part[in->parts - 2]), from = type_of(in->part[in->parts - 1]);
    if (to == TYPES || from == TYPES || d->kind != EMU_REGISTER || d->negated || a->negated) return false;
    if (a->kind != EMU_REGISTER && a->kind != EMU_IMMEDIATE) return false;
    in->number[2] = FE_TONEAREST;
    in->number[3] = 0;
    for (int i = 1; i < in->parts - 2; i++) {
        if (!read_modifier(in, in->part[i])) return false;
    }
    bool from_wide = a->kind == EMU_REGISTER ? a->wide : type_bits[from] == 64, is_whole = in->number[3] & TO_WHOLE;
    /* What no register holds; what would be rounded twice, or is not rounded to nearest by emu_to_f16; float to integer says
     * how. */
    if ((type_bits[to] == 64 && !d->wide) || (type_bits[from] == 64 && !from_wide) || (is_float(to) && d->wide != (to == F64)))
        return false;
    if ((to == F16 || to == BF16) && (from == F64 || (!is_whole && in->number[2] != FE_TONEAREST))) return false;
    if (to == BF16 && !is_float((number_type)from)) return false;
    if (is_whole ? !is_float((number_type)from) : is_float((number_type)from) && !is_float((number_type)to)) return false;
    in->number[0] = to;
    in->number[1] = from;
    in->number[4] = (d->wide ? 1 : 0) | (from_wide ? 2 : 0);
    in->slot[0] = d->slot;
    in->slot[1] = emu_slot_of(a, from_wide);
    in->run = convert;
    return true;
}
