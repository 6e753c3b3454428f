/* parse_declare.c - variables, parameters and registers: where each is. parse.c calls it for declarations. */
#include "parse.h"

#include <stdlib.h>
#include <string.h>

static uint32_t bits_of(name type)
{
    static const struct {
        char text[8];
        uint32_t bits;
    } known[] = {{"pred", 1},    {"b8", 8},    {"u8", 8},   {"s8", 8},   {"b16", 16}, {"u16", 16}, {"s16", 16},
                 {"f16", 16},    {"bf16", 16}, {"b32", 32}, {"u32", 32}, {"s32", 32}, {"f32", 32}, {"f16x2", 32},
                 {"bf16x2", 32}, {"tf32", 32}, {"b64", 64}, {"u64", 64}, {"s64", 64}, {"f64", 64}, {"b128", 128}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (emu_ptx_is(type, known[i].text)) return known[i].bits;
    return 0;
}

/* .align 8 .b8 name[16], after its space; .u64 .ptr .global .align 1 name: what is said of a pointer's target matters to nobody. */
static declared declaration(parser *p)
{
    declared d = {.align = 0};
    uint32_t vector = 1;
    bool target = false;
    for (emu_ptx_skip(p); *p->at == '.'; emu_ptx_skip(p)) {
        name type = emu_ptx_directive(p);
        uint32_t bits = bits_of(type);
        if (emu_ptx_is(type, "align")) {
            uint32_t align = (uint32_t)emu_ptx_count_of(p, "an alignment", 1 << 16);
            if (align == 0 || (align & (align - 1))) emu_ptx_fail(p, p->line, "an alignment of %u", align);
            d.align = target ? d.align : align;
        } else if (emu_ptx_is(type, "ptr")) {
            target = true;
        } else if (emu_ptx_is(type, "v2") || emu_ptx_is(type, "v4")) {
            vector = (uint32_t)(type.at[1] - '0');
        } else if (!target) {
            if (bits < 8) emu_ptx_fail(p, p->line, "nobody knows the type '.%.*s' of a variable", (int)type.length, type.at);
            d.size = bits / 8;
        }
    }
    if (!d.size) emu_ptx_fail_here(p, "a type");
    d.name = emu_ptx_word(p);
    d.bytes = d.size * vector;
    d.align = d.align ? d.align : d.size * vector;
    while (emu_ptx_accept(p, '[')) {
        if (emu_ptx_accept(p, ']')) {
            d.open = true;
            continue;
        }
        d.bytes *= emu_ptx_count_of(p, "an array", MOST_BYTES);
        if (d.bytes > MOST_BYTES) emu_ptx_fail(p, p->line, "'%.*s' has too many bytes", (int)d.name.length, d.name.at);
        emu_ptx_expect(p, ']');
    }
    return d;
}

/* Puts a variable of these bytes behind those that are there already; the offset from `base` is what it returns. */
uint32_t emu_ptx_laid_out(parser *p, uint32_t *used, uint32_t base, const declared *d)
{
    uint64_t at = (((uint64_t)base + *used + d->align - 1) & ~(uint64_t)(d->align - 1)) - base;
    if (at + d->bytes > MOST_BYTES) emu_ptx_fail(p, p->line, "there is no room for '%.*s'", (int)d->name.length, d->name.at);
    *used = (uint32_t)(at + d->bytes);
    return (uint32_t)at;
}

/* = 5, or = {1, {2, 3}, name}: braces may be in each other, what is in them is in order. */
static void initialise(parser *p, unsigned char *to, const declared *d)
{
    uint64_t filled = 0;
    int depth = 0;
    do {
        if (emu_ptx_accept(p, '{')) {
            depth++;
        } else if (emu_ptx_accept(p, '}')) {
            depth--;
        } else if (depth == 0 || !emu_ptx_accept(p, ',')) {
            int64_t value;
            if (emu_ptx_at_number(p)) {
                value = emu_ptx_number(p);
            } else {
                name text = emu_ptx_word(p);
                const symbol *s = emu_ptx_look_up(p, text, p->scope, &value);
                if (!s || s->kind != SYMBOL_ADDRESS)
                    emu_ptx_fail(p, p->line, "no variable is called '%.*s'", (int)text.length, text.at);
            }
            if (filled + d->size > d->bytes)
                emu_ptx_fail(p, p->line, "'%.*s' is given too many values", (int)d->name.length, d->name.at);
            memcpy(to + filled, &value, d->size < sizeof value ? d->size : sizeof value);
            filled += d->size;
        }
    } while (depth > 0);
    if (depth < 0) emu_ptx_fail_here(p, "'{'");
}

static void global_variable(parser *p, const declared *d)
{
    emu_module *module = p->module;
    size_t align = d->align < 16 ? 16 : d->align;
    module->variable =
        emu_ptx_grown(p, module->variable, &p->variable_room, (size_t)module->variables, sizeof *module->variable);
    size_t room = (d->bytes + align) & ~(align - 1);
    unsigned char *memory = aligned_alloc(align, room);
    if (!memory) emu_ptx_fail(p, p->line, "out of memory");
    module->variable[module->variables++] = (emu_variable){memory, d->bytes};
    memset(memory, 0, room);
    if (emu_ptx_accept(p, '=')) initialise(p, memory, d);
    emu_ptx_define(p, d->name, SYMBOL_ADDRESS, (int64_t)(uintptr_t)memory, 0);
}

void emu_ptx_variable(parser *p, name space, bool is_extern)
{
    declared d = declaration(p);
    emu_function *f = p->function;
    if (emu_ptx_is(space, "shared")) {
        if (is_extern || d.open)
            emu_ptx_define(p, d.name, SYMBOL_DYNAMIC, d.align, 0);
        else
            emu_ptx_define(p, d.name, SYMBOL_ADDRESS,
                           EMU_SHARED_FIRST +
                               (int64_t)emu_ptx_laid_out(p, f ? &f->shared_bytes : &p->shared_bytes, EMU_SHARED_FIRST, &d),
                           0);
    } else if (is_extern || d.open) {
        emu_ptx_fail(p, p->line, "'%.*s' is defined elsewhere", (int)d.name.length, d.name.at);
    } else if (emu_ptx_is(space, "local") && f) {
        emu_ptx_define(p, d.name, SYMBOL_ADDRESS, (int64_t)EMU_LOCAL_BASE + emu_ptx_laid_out(p, &f->local_bytes, 0, &d), 0);
    } else if (!f && (emu_ptx_is(space, "global") || emu_ptx_is(space, "const"))) {
        global_variable(p, &d);
    } else {
        emu_ptx_fail(p, p->line, "a variable in '.%.*s' is not understood here", (int)space.length, space.at);
    }
    emu_ptx_expect(p, ';');
}

void emu_ptx_parameters(parser *p)
{
    emu_function *f = p->function;
    if (!emu_ptx_accept(p, '(') || emu_ptx_accept(p, ')')) return;
    do {
        if (!emu_ptx_is(emu_ptx_directive(p), "param")) emu_ptx_fail_here(p, "'.param'");
        declared d = declaration(p);
        if (d.open) emu_ptx_fail(p, p->line, "a parameter without a size");
        f->param_offset = emu_ptx_grown(p, f->param_offset, &p->param_room, (size_t)f->params, sizeof *f->param_offset);
        f->param_size = emu_ptx_grown(p, f->param_size, &p->size_room, (size_t)f->params, sizeof *f->param_size);
        f->param_offset[f->params] = emu_ptx_laid_out(p, &f->param_bytes, 0, &d);
        f->param_size[f->params] = (uint32_t)d.bytes;
        emu_ptx_define(p, d.name, SYMBOL_ADDRESS, (int64_t)EMU_PARAM_BASE + f->param_offset[f->params++], 0);
    } while (emu_ptx_accept(p, ','));
    emu_ptx_expect(p, ')');
}

/* Ids of so many registers; the first. */
uint32_t emu_ptx_new_registers(parser *p, uint64_t count, int width)
{
    if (count > MOST_REGISTERS - p->registers) emu_ptx_fail(p, p->line, "more than %d registers", MOST_REGISTERS);
    uint32_t first = (uint32_t)p->registers;
    while (p->register_room <= first + count) p->width = emu_ptx_grown(p, p->width, &p->register_room, p->register_room, 1);
    memset(p->width + first, width, count);
    p->registers += count;
    return first;
}

void emu_ptx_register_names(parser *p)
{
    name type = emu_ptx_directive(p);
    uint32_t bits = bits_of(type);
    if (bits == 0 || bits > 64) emu_ptx_fail(p, p->line, "nobody knows registers of '.%.*s'", (int)type.length, type.at);
    int width = bits == 64 ? WIDTH_WIDE : bits == 1 ? WIDTH_NARROW | WIDTH_PREDICATE : WIDTH_NARROW;
    do {
        name text = emu_ptx_word(p);
        if (emu_ptx_accept(p, '<')) {
            uint64_t count = emu_ptx_count_of(p, "a number of registers", MOST_REGISTERS);
            emu_ptx_expect(p, '>');
            emu_ptx_define(p, text, SYMBOL_RANGE, emu_ptx_new_registers(p, count, width), (uint32_t)count);
        } else {
            emu_ptx_define(p, text, SYMBOL_REGISTER, emu_ptx_new_registers(p, 1, width), 0);
        }
    } while (emu_ptx_accept(p, ','));
    emu_ptx_expect(p, ';');
}
