/* scalar.h - how the handlers of scalar instructions are made. An operation on a type is one line of a list (scalar.c,
 * scalar_float.c): the opcode, the types of its result and sources, and an expression in a, b, c. The list is expanded
 * twice: into handlers, and into the rows of a table that emu_scalar_take searches. Only the scalar*.c include this.
 *
 * A type T of a list is: lane_T, what a register's lane is; value_T, what the expression sees; get_T and put_T between the
 * two; shape_T, which says to emu_scalar_take how to find its slot. `how` is in->number[] of that operand: whether a
 * predicate is negated, whether an f32x (an f32 of an instruction with modifiers) flushes subnormals. Lanes are always read
 * and written as integers, never through a pointer to float: a register may be one of each to two operands of the same
 * instruction. */
#ifndef LAC_EMULATOR_SCALAR_H
#define LAC_EMULATOR_SCALAR_H

#include "emulator.h"

#include <fenv.h>
#include <string.h>

__extension__ typedef __int128 emu_s128;
__extension__ typedef unsigned __int128 emu_u128;

typedef struct emu_scalar_row {
    const char *opcode; /* without what emu_scalar_take leaves out */
    const char *shape;  /* a letter for each operand: n 32 bits, w 64, p a predicate, x an f32 with modifiers */
    emu_run *run;
} emu_scalar_row;

/* The lists of scalar_float.c, and what is not in lists: conversions of unusual forms, and exchange among lanes. */
extern const emu_scalar_row emu_scalar_float_rows[];
extern const int emu_scalar_float_count;
emu_run *emu_scalar_faster(emu_run *run);
bool emu_scalar_take_convert(emu_instruction *in);
bool emu_scalar_take_exchange(emu_instruction *in);

enum {
    EMU_SCALAR_FLUSH = 1,
    EMU_SCALAR_SATURATE = 2
}; /* number[0] of an instruction whose result is an f32x; number[5] is its rounding */

/* A loop over the lanes of a mask. Lanes do not depend on each other even where a destination is a source, which the
 * compiler must be told to vectorise the loop over all of them. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* some operations have no vector form */
#define EMU_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define EMU_INDEPENDENT _Pragma("GCC ivdep")
#endif
#define EMU_EACH_LANE(mask, l, ...)                                                                                            \
    do {                                                                                                                       \
        if ((mask) == UINT32_MAX) {                                                                                            \
            EMU_INDEPENDENT                                                                                                    \
            for (int l = 0; l < EMU_LANES; l++) {                                                                              \
                __VA_ARGS__                                                                                                    \
            }                                                                                                                  \
        } else {                                                                                                               \
            for (uint32_t left_ = (mask); left_; left_ &= left_ - 1) {                                                         \
                const int l = __builtin_ctz(left_);                                                                            \
                __VA_ARGS__                                                                                                    \
            }                                                                                                                  \
        }                                                                                                                      \
    } while (0)

/* ---- types */
#define EMU_INTEGER_TYPE(T, lane, value, shrink)                                                                               \
    typedef lane lane_##T;                                                                                                     \
    typedef value value_##T;                                                                                                   \
    static inline value get_##T(lane x, int how) { return (void)how, (value)x; }                                               \
    static inline lane put_##T(lane x, int how) { return (void)how, (shrink)x; }                                               \
    static inline void enter_##T(const emu_instruction *in) { (void)in; }                                                      \
    static inline void leave_##T(void) {}
EMU_INTEGER_TYPE(u8, uint32_t, uint8_t, uint8_t)
EMU_INTEGER_TYPE(s8, uint32_t, int8_t, uint8_t) /* a source only: where it goes to, only the register knows how wide it is */
EMU_INTEGER_TYPE(u16, uint32_t, uint16_t, uint16_t)
EMU_INTEGER_TYPE(s16, uint32_t, int16_t, uint16_t)
EMU_INTEGER_TYPE(u32, uint32_t, uint32_t, uint32_t)
EMU_INTEGER_TYPE(s32, uint32_t, int32_t, uint32_t)
EMU_INTEGER_TYPE(u64, uint64_t, uint64_t, uint64_t)
EMU_INTEGER_TYPE(s64, uint64_t, int64_t, uint64_t)

#define shape_u8   "n"
#define shape_s8   "n"
#define shape_u16  "n"
#define shape_s16  "n"
#define shape_u32  "n"
#define shape_s32  "n"
#define shape_u64  "w"
#define shape_s64  "w"
#define shape_f16  "n"
#define shape_bf16 "n"
#define shape_f32  "n"
#define shape_f32x "x"
#define shape_f64  "w"
#define shape_pred "p"

typedef uint32_t lane_pred, value_pred, lane_f16, lane_bf16, lane_f32, lane_f32x;
typedef uint64_t lane_f64;
typedef float value_f16, value_bf16, value_f32, value_f32x;
typedef double value_f64;

static inline uint32_t get_pred(uint32_t x, int how) { return (uint32_t)(x != 0) ^ (uint32_t)how; }
static inline uint32_t put_pred(uint32_t x, int how) { return (void)how, x & 1; }

/* Arithmetic makes one NaN only, as the hardware does. */
static inline float get_f32(uint32_t x, int how)
{
    float value;
    (void)how;
    memcpy(&value, &x, sizeof value);
    return value;
}
static inline uint32_t put_f32(float x, int how)
{
    uint32_t bits;
    (void)how;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? 0x7fffffffu : bits;
}
static inline double get_f64(uint64_t x, int how)
{
    double value;
    (void)how;
    memcpy(&value, &x, sizeof value);
    return value;
}
static inline uint64_t put_f64(double x, int how)
{
    uint64_t bits;
    (void)how;
    memcpy(&bits, &x, sizeof bits);
    return x != x ? UINT64_C(0xfff8000000000000) : bits;
}
static inline float get_f16(uint32_t x, int how) { return (void)how, emu_from_f16((uint16_t)x); }
static inline uint32_t put_f16(float x, int how) { return (void)how, emu_to_f16(x); }
static inline float get_bf16(uint32_t x, int how) { return (void)how, emu_from_bf16((uint16_t)x); }
static inline uint32_t put_bf16(float x, int how) { return (void)how, emu_to_bf16(x); }

static inline uint32_t emu_scalar_flush(uint32_t bits) { return bits & 0x7f800000u ? bits : bits & 0x80000000u; }
static inline float get_f32x(uint32_t x, int how) { return get_f32(how & EMU_SCALAR_FLUSH ? emu_scalar_flush(x) : x, 0); }
static inline uint32_t put_f32x(float x, int how)
{
    if (how & EMU_SCALAR_SATURATE) x = x > 0 ? x < 1 ? x : 1 : 0; /* a NaN becomes 0 */
    return how & EMU_SCALAR_FLUSH ? emu_scalar_flush(put_f32(x, 0)) : put_f32(x, 0);
}

static inline void enter_pred(const emu_instruction *in) { (void)in; }
static inline void leave_pred(void) {}
static inline void enter_f16(const emu_instruction *in) { (void)in; }
static inline void leave_f16(void) {}
static inline void enter_bf16(const emu_instruction *in) { (void)in; }
static inline void leave_bf16(void) {}
static inline void enter_f32(const emu_instruction *in) { (void)in; }
static inline void leave_f32(void) {}
static inline void enter_f64(const emu_instruction *in) { (void)in; }
static inline void leave_f64(void) {}
/* The compiler knows nothing of rounding modes, but calls keep their place among loads and stores of registers, so that what
 * is computed from one and goes to the other is computed between them. */
static inline void enter_f32x(const emu_instruction *in) { fesetround(in->number[5]); }
static inline void leave_f32x(void) { fesetround(FE_TONEAREST); }

/* ---- handlers of one to four sources, and their rows */
#define EMU_HANDLER(id) static emu_outcome id(emu_warp *warp, const emu_instruction *in, uint32_t mask)
#define EMU_SOURCE(T, name, place)                                                                                             \
    const lane_##T *const name##_ = emu_lanes(warp, in->slot[place]);                                                          \
    const int name##_how = in->number[place];

#define EMU_ONE(id, opcode, D, A, result)                                                                                      \
    EMU_HANDLER(id)                                                                                                            \
    {                                                                                                                          \
        lane_##D *const d = emu_lanes(warp, in->slot[0]);                                                                      \
        const int how = in->number[0];                                                                                         \
        EMU_SOURCE(A, a, 1)                                                                                                    \
        enter_##D(in);                                                                                                         \
        EMU_EACH_LANE(mask, l, const value_##A a = get_##A(a_[l], a_how); d[l] = put_##D(result, how););                       \
        leave_##D();                                                                                                           \
        return EMU_STEP;                                                                                                       \
    }
#define EMU_TWO(id, opcode, D, A, B, result)                                                                                   \
    EMU_HANDLER(id)                                                                                                            \
    {                                                                                                                          \
        lane_##D *const d = emu_lanes(warp, in->slot[0]);                                                                      \
        const int how = in->number[0];                                                                                         \
        EMU_SOURCE(A, a, 1)                                                                                                    \
        EMU_SOURCE(B, b, 2)                                                                                                    \
        enter_##D(in);                                                                                                         \
        EMU_EACH_LANE(mask, l, const value_##A a = get_##A(a_[l], a_how); const value_##B b = get_##B(b_[l], b_how);           \
                      d[l] = put_##D(result, how););                                                                           \
        leave_##D();                                                                                                           \
        return EMU_STEP;                                                                                                       \
    }
#define EMU_THREE(id, opcode, D, A, B, C, result)                                                                              \
    EMU_HANDLER(id)                                                                                                            \
    {                                                                                                                          \
        lane_##D *const d = emu_lanes(warp, in->slot[0]);                                                                      \
        const int how = in->number[0];                                                                                         \
        EMU_SOURCE(A, a, 1)                                                                                                    \
        EMU_SOURCE(B, b, 2)                                                                                                    \
        EMU_SOURCE(C, c, 3)                                                                                                    \
        enter_##D(in);                                                                                                         \
        EMU_EACH_LANE(mask, l, const value_##A a = get_##A(a_[l], a_how); const value_##B b = get_##B(b_[l], b_how);           \
                      const value_##C c = get_##C(c_[l], c_how); d[l] = put_##D(result, how););                                \
        leave_##D();                                                                                                           \
        return EMU_STEP;                                                                                                       \
    }
/* Of one type but for the last two, which are u32: what instructions of four sources are. */
#define EMU_FOUR(id, opcode, T, result)                                                                                        \
    EMU_HANDLER(id)                                                                                                            \
    {                                                                                                                          \
        lane_##T *const d = emu_lanes(warp, in->slot[0]);                                                                      \
        EMU_SOURCE(T, a, 1)                                                                                                    \
        EMU_SOURCE(T, b, 2)                                                                                                    \
        const uint32_t *const c_ = emu_lanes(warp, in->slot[3]), *const e_ = emu_lanes(warp, in->slot[4]);                     \
        EMU_EACH_LANE(mask, l, const value_##T a = get_##T(a_[l], a_how); const value_##T b = get_##T(b_[l], b_how);           \
                      const uint32_t c = c_[l]; const uint32_t e = e_[l]; d[l] = put_##T(result, 0););                         \
        return EMU_STEP;                                                                                                       \
    }
/* setp. The second result and the third source are there in few of them: emu_scalar_combine sees to those. */
#define EMU_COMPARE(id, opcode, T, result)                                                                                     \
    EMU_HANDLER(id)                                                                                                            \
    {                                                                                                                          \
        uint32_t alone[EMU_LANES];                                                                                             \
        const bool simple = in->slot[3] == EMU_NONE && in->slot[4] == EMU_NONE;                                                \
        uint32_t *const d = simple ? emu_u32(warp, in->slot[0]) : alone;                                                       \
        EMU_SOURCE(T, a, 1)                                                                                                    \
        EMU_SOURCE(T, b, 2)                                                                                                    \
        EMU_EACH_LANE(mask, l, const value_##T a = get_##T(a_[l], a_how); const value_##T b = get_##T(b_[l], b_how);           \
                      d[l] = (uint32_t)(result););                                                                             \
        if (!simple) emu_scalar_combine(warp, in, mask, alone);                                                                \
        return EMU_STEP;                                                                                                       \
    }
void emu_scalar_combine(emu_warp *warp, const emu_instruction *in, uint32_t mask, const uint32_t *compared);

#define EMU_ONE_ROW(id, opcode, D, A, result)         {opcode, shape_##D shape_##A, id},
#define EMU_TWO_ROW(id, opcode, D, A, B, result)      {opcode, shape_##D shape_##A shape_##B, id},
#define EMU_THREE_ROW(id, opcode, D, A, B, C, result) {opcode, shape_##D shape_##A shape_##B shape_##C, id},
#define EMU_FOUR_ROW(id, opcode, T, result)           {opcode, shape_##T shape_##T shape_##T "nn", id},
#define EMU_COMPARE_ROW(id, opcode, T, result)        {opcode, "p" shape_##T shape_##T, id},

#endif
