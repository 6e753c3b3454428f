/* scalar.c - scalar instructions: what each lane does for itself. Here are integers, logic, selection and moves, and
 * emu_scalar_take, which parse.c asks about every instruction; scalar_float.c has arithmetic on floats and the usual
 * conversions, scalar_convert.c the other ones, scalar_exchange.c what lanes of a warp tell each other. scalar.h says how a
 * line of a list becomes a handler.
 *
 * Arithmetic is done in lane_T, which is unsigned, so that it wraps. */
#include "scalar.h"

#include <stdio.h>

/* ---- what is more than an expression */
static inline uint64_t bits_below(uint32_t count) { return count > 63 ? UINT64_MAX : (UINT64_C(1) << count) - 1; }

/* bfe: positions and lengths are bytes, and may reach past the end, where the sign goes on. */
static inline uint64_t extract(uint64_t a, bool is_signed, uint32_t bits, uint32_t position, uint32_t length)
{
    position &= 255;
    length &= 255;
    if (!length) return 0;
    uint32_t last = position + length - 1;
    bool sign = is_signed && (a >> (last < bits ? last : bits - 1) & 1);
    uint64_t field = position < bits ? a >> position : 0;
    uint32_t kept = position >= bits ? 0 : length < bits - position ? length : bits - position;
    return (field & bits_below(kept)) | (sign ? ~bits_below(kept) : 0);
}
static inline uint64_t insert(uint64_t a, uint64_t b, uint32_t position, uint32_t length)
{
    position &= 255;
    if (position > 63) return b;
    uint64_t field = bits_below(length & 255) << position;
    return (b & ~field) | (a << position & field);
}
static inline uint32_t leading_zeros(uint64_t a, uint32_t bits)
{
    return a ? (uint32_t)__builtin_clzll(a) - (64 - bits) : bits;
}
static inline uint64_t reverse(uint64_t a, uint32_t bits)
{
    uint64_t reversed = 0;
    for (uint32_t i = 0; i < bits; i++) reversed |= (a >> i & 1) << (bits - 1 - i);
    return reversed;
}

/* prmt: which byte of the eight, and whether its sign alone is taken. */
static inline uint32_t permuted(uint32_t a, uint32_t b, uint32_t selector)
{
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t wanted = selector >> 4 * i & 15;
        uint32_t byte = (uint32_t)(both >> 8 * (wanted & 7)) & 255;
        if (wanted & 8) byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * i;
    }
    return result;
}
/* The selectors that its modes stand for, by the low two bits of the third source. */
static const uint32_t forward_4[4] = {0x3210, 0x4321, 0x5432, 0x6543}, backward_4[4] = {0x5670, 0x6701, 0x7012, 0x0123},
                      repeat_8[4] = {0x0000, 0x1111, 0x2222, 0x3333}, clamp_left[4] = {0x3210, 0x3211, 0x3222, 0x3333},
                      clamp_right[4] = {0x0000, 0x1110, 0x2210, 0x3210}, repeat_16[4] = {0x1010, 0x3232, 0x1010, 0x3232};

static inline uint32_t looked_up(uint32_t a, uint32_t b, uint32_t c, uint32_t table)
{
    uint32_t result = 0;
    for (uint32_t i = 0; i < 8; i++) {
        if (table >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    }
    return result;
}
#define DOT(A, B, i) ((uint32_t)((int)(A)(a >> 8 * (i)) * (int)(B)(b >> 8 * (i))))

/* ---- the lists. T is a type, B its bits, `twice` or W a type of as many again. */
#define INTEGER(TWO, THREE, COMPARE, T, B, twice)                                                                              \
    TWO(add_##T, "add." #T, T, T, T, (lane_##T)a + (lane_##T)b)                                                                \
    TWO(sub_##T, "sub." #T, T, T, T, (lane_##T)a - (lane_##T)b)                                                                \
    TWO(mul_lo_##T, "mul.lo." #T, T, T, T, (lane_##T)a *(lane_##T)b)                                                           \
    TWO(mul_hi_##T, "mul.hi." #T, T, T, T, (lane_##T)((twice)a * (twice)b >> B))                                               \
    THREE(mad_lo_##T, "mad.lo." #T, T, T, T, T, (lane_##T)a *(lane_##T)b + (lane_##T)c)                                        \
    THREE(mad_hi_##T, "mad.hi." #T, T, T, T, T, (lane_##T)((twice)a * (twice)b >> B) + (lane_##T)c)                            \
    TWO(min_##T, "min." #T, T, T, T, (lane_##T)(a < b ? a : b))                                                                \
    TWO(max_##T, "max." #T, T, T, T, (lane_##T)(a > b ? a : b))                                                                \
    COMPARE(eq_##T, "setp.eq." #T, T, a == b)                                                                                  \
    COMPARE(ne_##T, "setp.ne." #T, T, a != b)                                                                                  \
    COMPARE(lt_##T, "setp.lt." #T, T, a < b)                                                                                   \
    COMPARE(le_##T, "setp.le." #T, T, a <= b)                                                                                  \
    COMPARE(gt_##T, "setp.gt." #T, T, a > b)                                                                                   \
    COMPARE(ge_##T, "setp.ge." #T, T, a >= b)
#define UNSIGNED(ONE, TWO, THREE, T, B)                                                                                        \
    TWO(shl_##T, "shl." #T, T, T, u32, b < B ? (lane_##T)a << b : 0)                                                           \
    TWO(shr_##T, "shr." #T, T, T, u32, b < B ? (lane_##T)a >> b : 0)                                                           \
    TWO(div_##T, "div." #T, T, T, T, b ? (lane_##T)(a / b) : ~(lane_##T)0)                                                     \
    TWO(rem_##T, "rem." #T, T, T, T, b ? (lane_##T)(a % b) : ~(lane_##T)0)                                                     \
    THREE(selp_##T, "selp." #T, T, T, T, pred, (lane_##T)(c ? a : b))                                                          \
    ONE(cnot_##T, "cnot." #T, T, T, (lane_##T)(a == 0))
/* The least number divided by -1 is no number of the type, and stays what it is. */
#define SIGNED(ONE, TWO, T, B)                                                                                                 \
    ONE(neg_##T, "neg." #T, T, T, 0 - (lane_##T)a)                                                                             \
    ONE(abs_##T, "abs." #T, T, T, a < 0 ? 0 - (lane_##T)a : (lane_##T)a)                                                       \
    TWO(shr_##T, "shr." #T, T, T, u32, (lane_##T)(a >> (b < B ? b : B - 1)))                                                   \
    TWO(div_##T, "div." #T, T, T, T, b == 0 ? ~(lane_##T)0 : b == -1 ? 0 - (lane_##T)a : (lane_##T)(a / b))                    \
    TWO(rem_##T, "rem." #T, T, T, T, b == 0 ? ~(lane_##T)0 : b == -1 ? 0 : (lane_##T)(a % b))
#define WIDE(TWO, THREE, T, W)                                                                                                 \
    TWO(mul_wide_##T, "mul.wide." #T, W, T, T, (lane_##W)((value_##W)a * (value_##W)b))                                        \
    THREE(mad_wide_##T, "mad.wide." #T, W, T, T, W, (lane_##W)((value_##W)a * (value_##W)b) + (lane_##W)c)
#define LOGIC(ONE, TWO, T)                                                                                                     \
    TWO(and_##T, "and." #T, T, T, T, (lane_##T)a &(lane_##T)b)                                                                 \
    TWO(or_##T, "or." #T, T, T, T, (lane_##T)a | (lane_##T)b)                                                                  \
    TWO(xor_##T, "xor." #T, T, T, T, (lane_##T)a ^ (lane_##T)b)                                                                \
    ONE(not_##T, "not." #T, T, T, ~(lane_##T)a)                                                                                \
    ONE(mov_##T, "mov." #T, T, T, a)
#define FIELDS(ONE, THREE, FOUR, U, S, B)                                                                                      \
    THREE(bfe_##U, "bfe." #U, U, U, u32, u32, (lane_##U)extract(a, false, B, b, c))                                            \
    THREE(bfe_##S, "bfe." #S, U, U, u32, u32, (lane_##U)extract(a, true, B, b, c))                                             \
    FOUR(bfi_##U, "bfi." #U, U, (lane_##U)insert(a, b, c, e))                                                                  \
    ONE(clz_##U, "clz." #U, u32, U, leading_zeros(a, B))                                                                       \
    ONE(popc_##U, "popc." #U, u32, U, (uint32_t)__builtin_popcountll(a))                                                       \
    ONE(brev_##U, "brev." #U, U, U, (lane_##U)reverse(a, B))                                                                   \
    ONE(bfind_##U, "bfind." #U, u32, U, B - 1 - leading_zeros(a, B))                                                           \
    ONE(bfind_##S, "bfind." #S, u32, S, B - 1 - leading_zeros((lane_##U)(a < 0 ? ~a : a), B))                                  \
    ONE(bfind_shift_##U, "bfind.shiftamt." #U, u32, U, a ? leading_zeros(a, B) : UINT32_MAX)                                   \
    ONE(bfind_shift_##S, "bfind.shiftamt." #S, u32, S, a && ~a ? leading_zeros((lane_##U)(a < 0 ? ~a : a), B) : UINT32_MAX)
#define DOTS(THREE, A, B, value_a, value_b)                                                                                    \
    THREE(dp4a_##A##_##B, "dp4a." #A "." #B, u32, u32, u32, u32,                                                               \
          c + DOT(value_a, value_b, 0) + DOT(value_a, value_b, 1) + DOT(value_a, value_b, 2) + DOT(value_a, value_b, 3))
#define ONLY_32(TWO, THREE, FOUR)                                                                                              \
    THREE(shf_l_clamp, "shf.l.clamp.u32", u32, u32, u32, u32, c < 32 ? (uint32_t)(((uint64_t)b << 32 | a) << c >> 32) : a)     \
    THREE(shf_r_clamp, "shf.r.clamp.u32", u32, u32, u32, u32, c < 32 ? (uint32_t)(((uint64_t)b << 32 | a) >> c) : b)           \
    THREE(shf_l_wrap, "shf.l.wrap.u32", u32, u32, u32, u32, (uint32_t)(((uint64_t)b << 32 | a) << (c & 31) >> 32))             \
    THREE(shf_r_wrap, "shf.r.wrap.u32", u32, u32, u32, u32, (uint32_t)(((uint64_t)b << 32 | a) >> (c & 31)))                   \
    THREE(prmt, "prmt.u32", u32, u32, u32, u32, permuted(a, b, c))                                                             \
    THREE(prmt_f4e, "prmt.u32.f4e", u32, u32, u32, u32, permuted(a, b, forward_4[c & 3]))                                      \
    THREE(prmt_b4e, "prmt.u32.b4e", u32, u32, u32, u32, permuted(a, b, backward_4[c & 3]))                                     \
    THREE(prmt_rc8, "prmt.u32.rc8", u32, u32, u32, u32, permuted(a, b, repeat_8[c & 3]))                                       \
    THREE(prmt_ecl, "prmt.u32.ecl", u32, u32, u32, u32, permuted(a, b, clamp_left[c & 3]))                                     \
    THREE(prmt_ecr, "prmt.u32.ecr", u32, u32, u32, u32, permuted(a, b, clamp_right[c & 3]))                                    \
    THREE(prmt_rc16, "prmt.u32.rc16", u32, u32, u32, u32, permuted(a, b, repeat_16[c & 3]))                                    \
    FOUR(lop3, "lop3.u32", u32, looked_up(a, b, c, e))                                                                         \
    DOTS(THREE, u32, u32, uint8_t, uint8_t)                                                                                    \
    DOTS(THREE, u32, s32, uint8_t, int8_t)                                                                                     \
    DOTS(THREE, s32, u32, int8_t, uint8_t)                                                                                     \
    DOTS(THREE, s32, s32, int8_t, int8_t)
#define ALL(ONE, TWO, THREE, FOUR, COMPARE)                                                                                    \
    INTEGER(TWO, THREE, COMPARE, u16, 16, uint32_t)                                                                            \
    INTEGER(TWO, THREE, COMPARE, s16, 16, int32_t)                                                                             \
    INTEGER(TWO, THREE, COMPARE, u32, 32, uint64_t)                                                                            \
    INTEGER(TWO, THREE, COMPARE, s32, 32, int64_t)                                                                             \
    INTEGER(TWO, THREE, COMPARE, u64, 64, emu_u128)                                                                            \
    INTEGER(TWO, THREE, COMPARE, s64, 64, emu_s128)                                                                            \
    UNSIGNED(ONE, TWO, THREE, u16, 16)                                                                                         \
    UNSIGNED(ONE, TWO, THREE, u32, 32)                                                                                         \
    UNSIGNED(ONE, TWO, THREE, u64, 64)                                                                                         \
    SIGNED(ONE, TWO, s16, 16)                                                                                                  \
    SIGNED(ONE, TWO, s32, 32)                                                                                                  \
    SIGNED(ONE, TWO, s64, 64)                                                                                                  \
    WIDE(TWO, THREE, u16, u32)                                                                                                 \
    WIDE(TWO, THREE, s16, s32)                                                                                                 \
    WIDE(TWO, THREE, u32, u64)                                                                                                 \
    WIDE(TWO, THREE, s32, s64)                                                                                                 \
    LOGIC(ONE, TWO, u16)                                                                                                       \
    LOGIC(ONE, TWO, u32)                                                                                                       \
    LOGIC(ONE, TWO, u64)                                                                                                       \
    LOGIC(ONE, TWO, pred)                                                                                                      \
    FIELDS(ONE, THREE, FOUR, u32, s32, 32)                                                                                     \
    FIELDS(ONE, THREE, FOUR, u64, s64, 64)                                                                                     \
    ONLY_32(TWO, THREE, FOUR)

ALL(EMU_ONE, EMU_TWO, EMU_THREE, EMU_FOUR, EMU_COMPARE)
static const emu_scalar_row integer_rows[] = {ALL(EMU_ONE_ROW, EMU_TWO_ROW, EMU_THREE_ROW, EMU_FOUR_ROW, EMU_COMPARE_ROW)};

/* ---- setp with a third source or a second result: number[0] is 'a', 'o' or 'x' for .and, .or and .xor, slot[3] the second
 * result's, which has the negated comparison, slot[4] the third source's. */
void emu_scalar_combine(emu_warp *warp, const emu_instruction *in, uint32_t mask, const uint32_t *compared)
{
    uint32_t *yes = emu_u32(warp, in->slot[0]);
    uint32_t *no = in->slot[3] == EMU_NONE ? NULL : emu_u32(warp, in->slot[3]);
    const uint32_t *third = in->slot[4] == EMU_NONE ? NULL : emu_u32(warp, in->slot[4]);
    for (uint32_t left = mask; left; left &= left - 1) {
        int l = __builtin_ctz(left);
        uint32_t is = compared[l], is_not = !compared[l], c = third ? get_pred(third[l], in->number[3]) : 0;
        if (third && in->number[0] == 'a') is &= c, is_not &= c;
        if (third && in->number[0] == 'o') is |= c, is_not |= c;
        if (third && in->number[0] == 'x') is ^= c, is_not ^= c;
        yes[l] = is;
        if (no) no[l] = is_not;
    }
}

/* ---- mov of several registers into one and of one into several: number[0] is how many, number[1] the bits of each,
 * number[2] whether the one has 64 bits; slot[0] is its, the others follow. */
static emu_outcome pack(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    const int count = in->number[0], bits = in->number[1];
    for (uint32_t left = mask; left; left &= left - 1) {
        int l = __builtin_ctz(left);
        uint64_t whole = 0;
        for (int i = 0; i < count; i++) whole |= (emu_u32(warp, in->slot[1 + i])[l] & bits_below((uint32_t)bits)) << i * bits;
        if (in->number[2])
            emu_u64(warp, in->slot[0])[l] = whole;
        else
            emu_u32(warp, in->slot[0])[l] = (uint32_t)whole;
    }
    return EMU_STEP;
}
static emu_outcome unpack(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    const int count = in->number[0], bits = in->number[1];
    for (uint32_t left = mask; left; left &= left - 1) {
        int l = __builtin_ctz(left);
        uint64_t whole = in->number[2] ? emu_u64(warp, in->slot[0])[l] : emu_u32(warp, in->slot[0])[l];
        for (int i = 0; i < count; i++) {
            if (in->slot[1 + i] == EMU_NONE) continue;
            emu_u32(warp, in->slot[1 + i])[l] = (uint32_t)(whole >> i * bits & bits_below((uint32_t)bits));
        }
    }
    return EMU_STEP;
}
static bool take_vector(const emu_function *function, emu_instruction *in)
{
    bool is_pack = in->operand[1].kind == EMU_VECTOR, wide = !strcmp(in->part[in->parts - 1], "b64");
    const emu_operand *one = &in->operand[is_pack ? 0 : 1], *many = &in->operand[is_pack ? 1 : 0];
    int bits = wide ? 64 : 32;
    if ((!wide && strcmp(in->part[in->parts - 1], "b32")) || (many->count != 2 && many->count != 4)) return false;
    if (one->kind == EMU_REGISTER ? one->wide != wide : is_pack || one->kind != EMU_IMMEDIATE) return false;
    in->slot[0] = emu_slot_of(one, wide);
    for (uint32_t i = 0; i < many->count; i++) {
        const emu_operand *element = &function->element[many->first + i];
        bool sink = !is_pack && element->kind == EMU_SINK, constant = is_pack && element->kind == EMU_IMMEDIATE;
        if (element->wide || (element->kind != EMU_REGISTER && !sink && !constant)) return false;
        in->slot[1 + i] = sink ? EMU_NONE : emu_slot_of(element, false);
    }
    in->number[0] = (int)many->count;
    in->number[1] = bits / (int)many->count;
    in->number[2] = wide;
    in->run = is_pack ? pack : unpack;
    return true;
}
/* mov of an address: of a variable, a symbol plus a number. */
static emu_outcome mov_address(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    for (uint32_t left = mask; left; left &= left - 1) {
        int l = __builtin_ctz(left);
        uint64_t address = emu_address(warp, &in->operand[1], l);
        if (in->number[0])
            emu_u64(warp, in->slot[0])[l] = address;
        else
            emu_u32(warp, in->slot[0])[l] = (uint32_t)address;
    }
    return EMU_STEP;
}
static bool take_address(emu_instruction *in)
{
    if (in->operand[0].kind != EMU_REGISTER) return false;
    in->number[0] = in->operand[0].wide;
    in->slot[0] = in->operand[0].slot;
    in->run = mov_address;
    return true;
}

/* ---- finding the handler */
typedef struct modifiers {
    int flags;    /* EMU_SCALAR_FLUSH, ... */
    int rounding; /* as fesetround has it */
    int combine;  /* of setp: 'a', 'o', 'x' or 0 */
} modifiers;

static bool is_one_of(const char *word, const char *const *words)
{
    while (*words && strcmp(word, *words) != 0) words++;
    return *words != NULL;
}
/* Words that are no part of a row's opcode. Approximate functions are as exact here as the others. */
static bool is_modifier(const emu_instruction *in, int i, modifiers *m)
{
    static const char *const silent[] = {"rn", "approx", "full", NULL}, *const combining[] = {"and", "or", "xor", NULL};
    const char *word = in->part[i];
    if (!strcmp(word, "ftz"))
        m->flags |= EMU_SCALAR_FLUSH;
    else if (!strcmp(word, "sat"))
        m->flags |= EMU_SCALAR_SATURATE;
    else if (!strcmp(word, "rz"))
        m->rounding = FE_TOWARDZERO;
    else if (!strcmp(word, "rm"))
        m->rounding = FE_DOWNWARD;
    else if (!strcmp(word, "rp"))
        m->rounding = FE_UPWARD;
    else if (!strcmp(in->part[0], "setp") && is_one_of(word, combining))
        m->combine = word[0];
    else
        return is_one_of(word, silent);
    return true;
}
/* The lists have one name for types that are the same to an instruction. */
static const char *plain_name(const emu_instruction *in, const char *word)
{
    static const char *const same[][2] = {{"b16", "u16"}, {"b32", "u32"}, {"b64", "u64"}, {"lo", "lt"},
                                          {"ls", "le"},   {"hi", "gt"},   {"hs", "ge"}};
    static const char *const bits[][2] = {{"s16", "u16"}, {"f16", "u16"}, {"bf16", "u16"},  {"s32", "u32"},   {"f32", "u32"},
                                          {"s64", "u64"}, {"f64", "u64"}, {"f16x2", "u32"}, {"bf16x2", "u32"}};
    bool is_setp = !strcmp(in->part[0], "setp");
    for (size_t i = 0; i < (is_setp ? 7 : 3); i++) {
        if (!strcmp(word, same[i][0])) return same[i][1];
    }
    if (strcmp(in->part[0], "mov") != 0 && strcmp(in->part[0], "selp") != 0) return word;
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        if (!strcmp(word, bits[i][0])) return bits[i][1];
    }
    return word;
}
static const emu_scalar_row *find_row(const emu_instruction *in, modifiers *m)
{
    char name[64];
    size_t length = (size_t)snprintf(name, sizeof name, "%s", in->part[0]);
    for (int i = 1; i < in->parts && length < sizeof name; i++) {
        if (is_modifier(in, i, m)) continue;
        length += (size_t)snprintf(name + length, sizeof name - length, ".%s", plain_name(in, in->part[i]));
    }
    if (m->flags || m->rounding != FE_TONEAREST) {
        if (length < sizeof name) length += (size_t)snprintf(name + length, sizeof name - length, "x");
    }
    if (length >= sizeof name) return NULL;
    for (size_t i = 0; i < sizeof integer_rows / sizeof *integer_rows; i++) {
        if (!strcmp(name, integer_rows[i].opcode)) return &integer_rows[i];
    }
    for (int i = 0; i < emu_scalar_float_count; i++) {
        if (!strcmp(name, emu_scalar_float_rows[i].opcode)) return &emu_scalar_float_rows[i];
    }
    return NULL;
}
/* An operand in its place of slot[] and number[]. */
static bool bind(emu_instruction *in, int place, const emu_operand *operand, char shape, const modifiers *m)
{
    bool is_register = operand->kind == EMU_REGISTER;
    if (!is_register && (operand->kind != EMU_IMMEDIATE || place == 0)) return false;
    if ((is_register && operand->wide != (shape == 'w')) || (operand->negated && (shape != 'p' || place == 0))) return false;
    in->slot[place] = emu_slot_of(operand, shape == 'w');
    if (place < 5) in->number[place] = shape == 'p' ? operand->negated : shape == 'x' ? m->flags : 0;
    return true;
}
/* setp p|q, a, b, c: q and c need not be. */
static bool bind_compare(emu_instruction *in, const char *shape, const modifiers *m)
{
    const emu_operand *operand = in->operand, *end = in->operand + in->operands;
    bool has_second = in->operands == (m->combine ? 5 : 4);
    if (!has_second && in->operands != (m->combine ? 4 : 3)) return false;
    in->slot[3] = in->slot[4] = EMU_NONE;
    in->number[3] = 0;
    if (operand[0].kind != EMU_REGISTER || operand[0].wide || (has_second && operand[1].wide)) return false;
    in->slot[0] = operand[0].slot;
    if (has_second && operand[1].kind == EMU_REGISTER) in->slot[3] = operand[1].slot;
    operand += has_second ? 2 : 1;
    if (!bind(in, 1, operand, shape[1], m) || !bind(in, 2, operand + 1, shape[2], m)) return false;
    in->number[0] = m->combine;
    if (!m->combine) return true;
    if (end[-1].wide || (end[-1].kind != EMU_REGISTER && end[-1].kind != EMU_IMMEDIATE)) return false;
    in->slot[4] = end[-1].slot;
    in->number[3] = end[-1].negated;
    return true;
}

bool emu_scalar_take(const emu_function *function, emu_instruction *in)
{
    if (in->parts < 2 || in->operands < 1) return false;
    if (emu_scalar_take_exchange(in)) return true;
    if (!strcmp(in->part[0], "mov") && in->operands == 2) {
        if (in->operand[0].kind == EMU_VECTOR || in->operand[1].kind == EMU_VECTOR) return take_vector(function, in);
        if (in->operand[1].kind == EMU_ADDRESS) return take_address(in);
    }
    modifiers m = {.rounding = FE_TONEAREST};
    const emu_scalar_row *row = NULL;
    emu_scalar_row convert_address = {.shape = in->operand[0].wide ? "ww" : "nn",
                                      .run = in->operand[0].wide ? mov_u64 : mov_u32};
    /* An address is the same in every space. */
    if (!strcmp(in->part[0], "cvta"))
        row = in->operand[1].kind == EMU_ADDRESS ? NULL : &convert_address;
    else
        row = find_row(in, &m);
    if (!strcmp(in->part[0], "cvta") && !row) return in->operands == 2 && take_address(in);

    bool bound = row && (!strcmp(in->part[0], "setp") || in->operands == (int)strlen(row->shape));
    if (bound && !strcmp(in->part[0], "setp"))
        bound = bind_compare(in, row->shape, &m);
    else {
        for (int i = 0; bound && i < in->operands; i++) bound = bind(in, i, &in->operand[i], row->shape[i], &m);
        if (bound) in->number[5] = m.rounding;
    }
    if (!bound) return !strcmp(in->part[0], "cvt") && emu_scalar_take_convert(in);
    in->run = emu_scalar_faster(row->run);
    return true;
}
