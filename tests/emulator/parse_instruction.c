/* parse_instruction.c - a line of PTX -> an emu_instruction whose registers are still ids. parse.c calls it. */
#include "parse.h"

#include <string.h>

/* In the order of emu_special. */
static const char *const special_names[] = {
    "%tid.x",   "%tid.y",    "%tid.z",    "%ntid.x",   "%ntid.y",          "%ntid.z",           "%ctaid.x", "%ctaid.y",
    "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z", "%cluster_ctarank", "%cluster_nctarank", "%laneid",  "%warpid"};
_Static_assert(sizeof special_names / sizeof *special_names == SPECIALS, "one of each");

/* The id of a special register, which is one from where it is first read. */
static uint32_t special_register(parser *p, name text)
{
    for (int i = 0; i < SPECIALS; i++) {
        if (!emu_ptx_is(text, special_names[i])) continue;
        uint32_t *special = &p->function->special[i];
        if (*special == EMU_NONE) *special = emu_ptx_new_registers(p, 1, WIDTH_NARROW | WIDTH_ALONE);
        return *special;
    }
    emu_ptx_fail(p, p->line, "nobody knows the name '%.*s'", (int)text.length, text.at);
}

/* What is added to a base: + 16, +-4, -8. */
static int64_t displacement(parser *p)
{
    uint64_t sum = 0;
    for (;;) {
        emu_ptx_skip(p);
        if (*p->at != '-' && !emu_ptx_accept(p, '+')) return (int64_t)sum;
        sum += (uint64_t)emu_ptx_number(p);
    }
}

/* A name that is not a label: a register, or a symbol's address and what is added to it. */
static emu_operand named(parser *p)
{
    name text = emu_ptx_word(p);
    if (text.at[0] == '%' && p->at[0] == '.' && p->at[1] >= 'x' && p->at[1] <= 'z' && !emu_ptx_is_word(p->at[2])) {
        p->at += 2;
        text.length += 2;
    }
    int64_t value;
    const symbol *s = emu_ptx_look_up(p, text, p->scope, &value);
    if (!s) return (emu_operand){.kind = EMU_REGISTER, .slot = special_register(p, text)};
    if (s->kind == SYMBOL_REGISTER || s->kind == SYMBOL_RANGE)
        return (emu_operand){.kind = EMU_REGISTER,
                             .slot = (uint32_t)value,
                             .wide = p->width[value] == WIDTH_WIDE,
                             .is_predicate = p->width[value] & WIDTH_PREDICATE};
    emu_operand operand = {.kind = EMU_IMMEDIATE, .slot = EMU_NONE, .value = value};
    if (s->kind == SYMBOL_LABEL) emu_ptx_fail(p, p->line, "the label '%.*s' is no operand here", (int)text.length, text.at);
    if (s->kind == SYMBOL_DYNAMIC) {
        if (p->dynamic_align < value) p->dynamic_align = (uint32_t)value;
        operand.slot = DYNAMIC;
        operand.value = 0;
    }
    operand.value = (int64_t)((uint64_t)operand.value + (uint64_t)displacement(p));
    return operand;
}

static emu_operand plain(parser *p)
{
    bool negated = emu_ptx_accept(p, '!');
    emu_ptx_skip(p);
    if (emu_ptx_at_number(p))
        return (emu_operand){.kind = EMU_IMMEDIATE, .slot = EMU_NONE, .value = emu_ptx_number(p), .negated = negated};
    if (*p->at == '_' && !emu_ptx_is_word(p->at[1])) {
        p->at++;
        return (emu_operand){.kind = EMU_SINK, .slot = EMU_NONE};
    }
    emu_operand operand = named(p);
    operand.negated = negated;
    return operand;
}

/* {a, b}, after its brace. */
static void elements(parser *p, emu_operand *to)
{
    to->first = (uint32_t)p->elements;
    do {
        emu_operand element = plain(p);
        p->function->element = emu_ptx_grown(p, p->function->element, &p->element_room, p->elements, sizeof element);
        p->function->element[p->elements++] = element;
        to->count++;
    } while (emu_ptx_accept(p, ','));
    emu_ptx_expect(p, '}');
}

/* [base + 16], [symbol], [base, {x, y}], after its bracket. */
static emu_operand address(parser *p)
{
    emu_ptx_skip(p);
    emu_operand base =
        emu_ptx_at_number(p) ? (emu_operand){.kind = EMU_IMMEDIATE, .slot = EMU_NONE, .value = emu_ptx_number(p)} : named(p);
    base.kind = EMU_ADDRESS;
    base.value = (int64_t)((uint64_t)base.value + (uint64_t)displacement(p));
    if (emu_ptx_accept(p, ',')) {
        emu_ptx_expect(p, '{');
        elements(p, &base);
    }
    emu_ptx_expect(p, ']');
    return base;
}

static emu_operand operand_of(parser *p, const emu_instruction *in)
{
    if (strcmp(in->part[0], "bra") == 0) {
        p->reference = emu_ptx_grown(p, p->reference, &p->reference_room, p->references, sizeof *p->reference);
        p->reference[p->references++] = (reference){p->function->length, p->scope, p->line, emu_ptx_word(p)};
        return (emu_operand){.kind = EMU_TARGET, .slot = EMU_NONE};
    }
    if (emu_ptx_accept(p, '{')) {
        emu_operand vector = {.kind = EMU_VECTOR, .slot = EMU_NONE};
        elements(p, &vector);
        return vector;
    }
    return emu_ptx_accept(p, '[') ? address(p) : plain(p);
}

static void opcode(parser *p, emu_instruction *in)
{
    emu_ptx_skip(p);
    name text = {p->at, 0};
    while (emu_ptx_is_word(*p->at) || *p->at == '.' || *p->at == ':') p->at++;
    text.length = (size_t)(p->at - text.at);
    if (!text.length) emu_ptx_fail_here(p, "an opcode");
    in->opcode = emu_ptx_kept(p, text);
    for (char *part = emu_ptx_kept(p, text); part; in->parts++) {
        if (in->parts == EMU_PARTS) emu_ptx_fail(p, in->line, "'%s' has more than %d parts", in->opcode, EMU_PARTS);
        in->part[in->parts] = part;
        part = strchr(part, '.');
        if (part) *part++ = 0;
        if (!*in->part[in->parts]) emu_ptx_fail(p, in->line, "'%s' has an empty part", in->opcode);
    }
}

/* Those that name the lanes they wait for see to it themselves. */
static bool is_aligned(const emu_instruction *in)
{
    static const char *const masked[] = {"vote", "shfl", "redux", "match"};
    for (size_t i = 0; i < sizeof masked / sizeof *masked; i++)
        if (strcmp(in->part[0], masked[i]) == 0) return false;
    if (strcmp(in->part[0], "bar") == 0) return !emu_has_part(in, "warp");
    return strcmp(in->part[0], "barrier") == 0 || emu_has_part(in, "sync") || emu_has_part(in, "aligned");
}

emu_instruction *emu_ptx_new_instruction(parser *p)
{
    emu_function *f = p->function;
    f->code = emu_ptx_grown(p, f->code, &p->code_room, (size_t)f->length, sizeof *f->code);
    f->code[f->length] = (emu_instruction){.guard = EMU_NONE, .line = p->line};
    return &f->code[f->length];
}

/* number[0] holds how many results it has until its slots are known. */
void emu_ptx_instruction(parser *p)
{
    emu_instruction *in = emu_ptx_new_instruction(p);
    if (emu_ptx_accept(p, '@')) {
        in->guard_negated = emu_ptx_accept(p, '!');
        emu_operand guard = named(p);
        if (guard.kind != EMU_REGISTER || !guard.is_predicate) emu_ptx_fail(p, p->line, "a guard that is no predicate");
        in->guard = guard.slot;
    }
    opcode(p, in);
    in->number[0] = 1;
    if (!emu_ptx_accept(p, ';')) {
        do {
            if (in->operands == EMU_OPERANDS)
                emu_ptx_fail(p, in->line, "'%s' has more than %d operands", in->opcode, EMU_OPERANDS);
            in->operand[in->operands++] = operand_of(p, in);
            if (in->operands == 1 && emu_ptx_accept(p, '|')) {
                in->operand[in->operands++] = operand_of(p, in);
                in->number[0] = 2;
            }
        } while (emu_ptx_accept(p, ','));
        emu_ptx_expect(p, ';');
    }
    if (strcmp(in->part[0], "bra") == 0 && in->operands != 1) emu_ptx_fail(p, in->line, "'bra' has one label");
    in->is_aligned = is_aligned(in);
    p->function->length++;
}
