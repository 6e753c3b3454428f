/* scalar_exchange.c - what lanes of a warp tell each other: shfl, vote, redux and match, all .sync, and activemask.
 * emu_scalar_take asks here first.
 *
 * The last operand of each names its members: a lane waits until all of them that are alive have come to the instruction. It
 * is an error to run it without being a member, or to name others than a member does. slot[0] is the result's, slot[1] the
 * predicate's that some have (EMU_NONE: not wanted), slot[2] the source's, slot[3] the members'; number[0] says which
 * operation, number[1] whether the source is negated. */
#include "races.h"
#include "scalar.h"

/* What a lane gets from one that does not take part: of no meaning on hardware, and a NaN that is easy to see here. */
static const uint32_t nobodys = 0xffffdeadu;

enum { EXCHANGE_D, EXCHANGE_P, EXCHANGE_A, EXCHANGE_MEMBERS, EXCHANGE_B, EXCHANGE_C };

static bool all_are_here(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    const uint32_t *members = emu_u32(warp, in->slot[EXCHANGE_MEMBERS]);
    uint32_t wanted = 0;
    for (uint32_t left = mask; left; left &= left - 1) {
        int l = __builtin_ctz(left);
        if (!(members[l] >> l & 1)) emu_fail(warp, in, l, "the lane is not among its own members, 0x%08x", members[l]);
        wanted |= members[l] & warp->alive;
    }
    if (wanted & ~mask) return false;
    emu_race_exchange(warp, mask);
    return true;
}
/* The lanes that do it together with the first of `left`. */
static uint32_t group_of(emu_warp *warp, const emu_instruction *in, uint32_t mask, uint32_t left)
{
    const uint32_t *members = emu_u32(warp, in->slot[EXCHANGE_MEMBERS]);
    int first = __builtin_ctz(left);
    uint32_t group = members[first] & mask;
    for (uint32_t others = group; others; others &= others - 1) {
        int l = __builtin_ctz(others);
        if (members[l] == members[first]) continue;
        emu_fail(warp, in, l, "its members are 0x%08x, but lane %d, one of them, has 0x%08x", members[l], first,
                 members[first]);
    }
    return group;
}
/* The second result, where there is one. */
static void tell(const emu_warp *warp, const emu_instruction *in, int lane, bool is)
{
    if (in->slot[EXCHANGE_P] != EMU_NONE) emu_u32(warp, in->slot[EXCHANGE_P])[lane] = is;
}

/* shfl: number[0] is 'u', 'd', 'b' or 'i'. */
static emu_outcome shuffle(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    if (!all_are_here(warp, in, mask)) return EMU_STALL;
    for (uint32_t left = mask; left;) left &= ~group_of(warp, in, mask, left);
    uint32_t *d = emu_u32(warp, in->slot[EXCHANGE_D]), a[EMU_LANES];
    const uint32_t *b = emu_u32(warp, in->slot[EXCHANGE_B]), *c = emu_u32(warp, in->slot[EXCHANGE_C]);
    const uint32_t *members = emu_u32(warp, in->slot[EXCHANGE_MEMBERS]);
    uint32_t from[EMU_LANES], inside = 0;
    memcpy(a, emu_u32(warp, in->slot[EXCHANGE_A]), sizeof a);
    for (uint32_t left = mask; left; left &= left - 1) {
        int l = __builtin_ctz(left);
        int by = (int)(b[l] & 31), clamp = (int)(c[l] & 31), segment = (int)(c[l] >> 8 & 31);
        int lowest = l & segment, limit = lowest | (clamp & ~segment);
        int j = in->number[0] == 'u'   ? l - by
                : in->number[0] == 'd' ? l + by
                : in->number[0] == 'b' ? l ^ by
                                       : lowest | (by & ~segment);
        bool is_inside = in->number[0] == 'u' ? j >= limit : j <= limit;
        from[l] = (uint32_t)(is_inside ? j : l);
        inside |= (uint32_t)is_inside << l;
    }
    for (uint32_t left = mask; left; left &= left - 1) {
        int l = __builtin_ctz(left);
        d[l] = (mask & members[l]) >> from[l] & 1 ? a[from[l]] : nobodys;
        tell(warp, in, l, inside >> l & 1);
    }
    return EMU_STEP;
}

/* vote: number[0] is 'a' for .all, 'y' .any, 'u' .uni, 'b' .ballot. */
static emu_outcome vote(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    if (!all_are_here(warp, in, mask)) return EMU_STALL;
    const uint32_t *a = emu_u32(warp, in->slot[EXCHANGE_A]);
    uint32_t *d = emu_u32(warp, in->slot[EXCHANGE_D]), votes = 0;
    for (uint32_t left = mask; left; left &= left - 1) {
        int l = __builtin_ctz(left);
        votes |= get_pred(a[l], in->number[1]) << l;
    }
    for (uint32_t left = mask; left;) {
        uint32_t group = group_of(warp, in, mask, left), yes = votes & group;
        uint32_t result = in->number[0] == 'a'   ? yes == group
                          : in->number[0] == 'y' ? yes != 0
                          : in->number[0] == 'u' ? yes == group || !yes
                                                 : yes;
        for (uint32_t others = group; others; others &= others - 1) d[__builtin_ctz(others)] = result;
        left &= ~group;
    }
    return EMU_STEP;
}

/* redux, in 64 bits with a sign, which has room for both types. */
typedef enum fold { FOLD_ADD, FOLD_MIN, FOLD_MAX, FOLD_AND, FOLD_OR, FOLD_XOR, FOLDS } fold;
static const char *const fold_names[FOLDS] = {"add", "min", "max", "and", "or", "xor"};

static int64_t folded(fold how, int64_t a, int64_t b)
{
    switch (how) {
    case FOLD_ADD:
        return a + b;
    case FOLD_MIN:
        return a < b ? a : b;
    case FOLD_MAX:
        return a > b ? a : b;
    case FOLD_AND:
        return a & b;
    case FOLD_OR:
        return a | b;
    default:
        return a ^ b;
    }
}
static emu_outcome reduce(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    if (!all_are_here(warp, in, mask)) return EMU_STALL;
    uint32_t *d = emu_u32(warp, in->slot[EXCHANGE_D]);
    const uint32_t *a = emu_u32(warp, in->slot[EXCHANGE_A]);
    bool is_signed = in->number[2];
    for (uint32_t left = mask; left;) {
        uint32_t group = group_of(warp, in, mask, left);
        int first = __builtin_ctz(group);
        int64_t result = is_signed ? (int32_t)a[first] : (int64_t)a[first];
        for (uint32_t others = group & (group - 1); others; others &= others - 1) {
            int l = __builtin_ctz(others);
            result = folded((fold)in->number[0], result, is_signed ? (int32_t)a[l] : (int64_t)a[l]);
        }
        for (uint32_t others = group; others; others &= others - 1) d[__builtin_ctz(others)] = (uint32_t)result;
        left &= ~group;
    }
    return EMU_STEP;
}

/* match: number[0] is whether .all, number[2] whether of 64 bits. */
static emu_outcome match(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    if (!all_are_here(warp, in, mask)) return EMU_STALL;
    uint64_t a[EMU_LANES];
    uint32_t *d = emu_u32(warp, in->slot[EXCHANGE_D]);
    for (int l = 0; l < EMU_LANES; l++) {
        a[l] = in->number[2] ? emu_u64(warp, in->slot[EXCHANGE_A])[l] : emu_u32(warp, in->slot[EXCHANGE_A])[l];
    }
    for (uint32_t left = mask; left;) {
        uint32_t group = group_of(warp, in, mask, left);
        for (uint32_t each = group; each; each &= each - 1) {
            int l = __builtin_ctz(each);
            uint32_t same = 0;
            for (uint32_t others = group; others; others &= others - 1) {
                int other = __builtin_ctz(others);
                same |= (uint32_t)(a[other] == a[l]) << other;
            }
            d[l] = in->number[0] && same != group ? 0 : same;
            tell(warp, in, l, same == group);
        }
        left &= ~group;
    }
    return EMU_STEP;
}

static emu_outcome activemask(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    uint32_t *d = emu_u32(warp, in->slot[EXCHANGE_D]);
    for (uint32_t left = mask; left; left &= left - 1) d[__builtin_ctz(left)] = mask;
    return EMU_STEP;
}

/* A result, perhaps a second one, and `sources` more; the first source of 64 bits if `wide`. The last is the members. */
static bool bind(emu_instruction *in, int sources, bool wide)
{
    int results = in->operands - sources;
    if (results < 1 || results > 2) return false;
    in->slot[EXCHANGE_P] = EMU_NONE;
    for (int i = 0; i < in->operands; i++) {
        const emu_operand *operand = &in->operand[i];
        int source = i - results;
        bool as_wide = wide && source == 0, is_register = operand->kind == EMU_REGISTER;
        if (i == 1 && results == 2 && operand->kind == EMU_SINK) continue;
        if (!is_register && (operand->kind != EMU_IMMEDIATE || source < 0)) return false;
        if ((is_register && operand->wide != as_wide) || (operand->negated && source != 0)) return false;
        int place = source < 0              ? i
                    : source == sources - 1 ? EXCHANGE_MEMBERS
                    : source == 0           ? EXCHANGE_A
                                            : EXCHANGE_B + source - 1;
        in->slot[place] = emu_slot_of(operand, as_wide);
    }
    in->number[1] = in->operand[results].negated;
    return true;
}

static bool take_reduce(emu_instruction *in)
{
    const char *type = in->part[3];
    int how = 0;
    while (how < FOLDS && strcmp(in->part[2], fold_names[how]) != 0) how++;
    bool is_logic = how >= FOLD_AND;
    if (how == FOLDS || in->operands != 3) return false;
    if (is_logic ? strcmp(type, "b32") != 0 : strcmp(type, "u32") != 0 && strcmp(type, "s32") != 0) return false;
    in->number[0] = how;
    in->number[2] = type[0] == 's';
    in->run = reduce;
    return bind(in, 2, false) && !in->number[1];
}
/* The mode of shfl or vote as a letter, 0 if it has none of these. */
static int mode_of(const char *word, const char *const *names, const char *letters)
{
    for (int i = 0; names[i]; i++) {
        if (!strcmp(word, names[i])) return letters[i];
    }
    return 0;
}

bool emu_scalar_take_exchange(emu_instruction *in)
{
    static const char *const shuffles[] = {"up", "down", "bfly", "idx", NULL};
    static const char *const votes[] = {"all", "any", "uni", "ballot", NULL};
    if (!strcmp(in->opcode, "activemask.b32") && in->operands == 1 && in->operand[0].kind == EMU_REGISTER &&
        !in->operand[0].wide) {
        in->slot[EXCHANGE_D] = in->operand[0].slot;
        in->run = activemask;
        return true;
    }
    if (in->parts == 4 && !strcmp(in->part[0], "match") && !strcmp(in->part[2], "sync")) {
        bool wide = !strcmp(in->part[3], "b64"), is_all = !strcmp(in->part[1], "all");
        if ((!wide && strcmp(in->part[3], "b32")) || (!is_all && strcmp(in->part[1], "any"))) return false;
        in->number[0] = is_all;
        in->number[2] = wide;
        in->run = match;
        return bind(in, 2, wide) && !in->number[1];
    }
    if (in->parts != 4 || strcmp(in->part[1], "sync") != 0) return false;
    if (!strcmp(in->part[0], "redux")) return take_reduce(in);
    if (!strcmp(in->part[0], "shfl")) {
        in->number[0] = mode_of(in->part[2], shuffles, "udbi");
        in->run = shuffle;
        return in->number[0] && !strcmp(in->part[3], "b32") && bind(in, 4, false) && !in->number[1];
    }
    if (!strcmp(in->part[0], "vote")) {
        in->number[0] = mode_of(in->part[2], votes, "ayub");
        in->run = vote;
        return in->number[0] && !strcmp(in->part[3], in->number[0] == 'b' ? "b32" : "pred") && in->operands == 3 &&
               bind(in, 2, false);
    }
    return false;
}
