/* parse.c - PTX as NVRTC writes it -> emu_module: instructions whose operands are slots of a warp's registers, constants or addresses.
 *
 * One pass over the text makes instructions whose registers are still numbers of their own (ids); at a function's end labels are
 * looked up, ids become slots (those that never hold a value at the same time share one, see parse_slots.c), and each instruction is
 * offered to the files that run it. Whatever is not understood ends the parse by longjmp, with the line and a sentence: text may come
 * from anywhere, and a guess would be a wrong result later. driver.c calls this for each module that is loaded. */
#include "parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A constant's slot: 32 bits of each lane, then 64. */
static uint32_t constant_slot(parser *p, int64_t value)
{
    int *head = &p->constant_head[(uint64_t)value * UINT64_C(0x9e3779b97f4a7c15) >> 52];
    for (int c = *head; c > 0; c = p->constant_next[c - 1])
        if (p->constant[c - 1] == value) return (uint32_t)(c - 1) * 3 | EMU_CONSTANT;
    p->constant = emu_ptx_grown(p, p->constant, &p->constant_room, p->constants, sizeof *p->constant);
    p->constant_next = emu_ptx_grown(p, p->constant_next, &p->next_room, p->constants, sizeof *p->constant_next);
    p->constant[p->constants] = value;
    p->constant_next[p->constants] = *head;
    *head = (int)++p->constants;
    return (uint32_t)(p->constants - 1) * 3 | EMU_CONSTANT;
}

static void fill_constants(parser *p)
{
    emu_function *f = p->function;
    f->constants = calloc(3 * p->constants + 1, EMU_SLOT);
    if (!f->constants) emu_ptx_fail(p, p->line, "out of memory");
    for (size_t c = 0; c < p->constants; c++)
        for (size_t lane = 0; lane < EMU_LANES; lane++) {
            unsigned char *slot = f->constants + 3 * c * EMU_SLOT;
            memcpy(slot + 4 * lane, &p->constant[c], 4); /* little-endian, as the GPU is */
            memcpy(slot + EMU_SLOT + 8 * lane, &p->constant[c], 8);
        }
}

static void settle(parser *p, emu_operand *o)
{
    if (o->kind == EMU_REGISTER || (o->kind == EMU_ADDRESS && o->slot < DYNAMIC)) {
        o->slot = p->slot[o->slot];
    } else if (o->kind == EMU_IMMEDIATE || o->kind == EMU_ADDRESS) {
        if (o->slot == DYNAMIC) o->value = (int64_t)((uint64_t)o->value + EMU_SHARED_FIRST + p->function->shared_bytes);
        o->slot = o->kind == EMU_IMMEDIATE ? constant_slot(p, o->value) : EMU_NONE;
    }
}

static void find_labels(parser *p)
{
    for (size_t i = 0; i < p->references; i++) {
        const reference *r = &p->reference[i];
        int64_t value;
        const symbol *s = emu_ptx_look_up(p, r->name, r->scope, &value);
        if (!s || s->kind != SYMBOL_LABEL)
            emu_ptx_fail(p, r->line, "no label is called '%.*s'", (int)r->name.length, r->name.at);
        p->function->code[r->instruction].operand[0].value = value;
    }
}

static void find_handler(parser *p, emu_instruction *in)
{
    const emu_function *f = p->function;
    in->number[0] = 0;
    if (strcmp(in->part[0], "bra") == 0 || strcmp(in->part[0], "ret") == 0 || strcmp(in->part[0], "exit") == 0) return;
    if (emu_scalar_take(f, in) || emu_memory_take(f, in) || emu_engine_take(f, in) || emu_matrix_take(f, in) ||
        emu_threads_take(f, in))
        return;
    const char *text = p->module->text;
    for (int line = 1; line < in->line; line++) text = strchr(text, '\n') + 1;
    text += strspn(text, " \t");
    emu_ptx_fail(p, in->line, "nobody knows '%.*s'", (int)strcspn(text, "\r\n"), text);
}

static void finish(parser *p)
{
    emu_function *f = p->function;
    declared dynamic = {.align = p->dynamic_align};
    find_labels(p);
    emu_ptx_laid_out(p, &f->shared_bytes, EMU_SHARED_FIRST, &dynamic);
    emu_ptx_assign_slots(p);
    for (int i = 0; i < f->length; i++) {
        emu_instruction *in = &f->code[i];
        if (in->guard != EMU_NONE) in->guard = p->slot[in->guard];
        for (int o = 0; o < in->operands; o++) settle(p, &in->operand[o]);
    }
    for (size_t e = 0; e < p->elements; e++) settle(p, &f->element[e]);
    for (int i = 0; i < SPECIALS; i++)
        if (f->special[i] != EMU_NONE) f->special[i] = p->slot[f->special[i]];
    fill_constants(p);
    for (int i = 0; i < f->length; i++) find_handler(p, &f->code[i]);
}

/* A directive in a function's body. */
static void statement(parser *p)
{
    name word = emu_ptx_directive(p);
    if (emu_ptx_is(word, "reg")) {
        emu_ptx_register_names(p);
    } else if (emu_ptx_is(word, "shared") || emu_ptx_is(word, "local")) {
        emu_ptx_variable(p, word, false);
    } else if (emu_ptx_is(word, "pragma")) {
        emu_ptx_skip_string(p);
        emu_ptx_expect(p, ';');
    } else if (emu_ptx_is(word, "loc")) {
        emu_ptx_skip_line(p);
    } else {
        emu_ptx_fail(p, p->line, "nobody knows '.%.*s' in a function", (int)word.length, word.at);
    }
}

/* name: where it is not the beginning of an instruction. */
static bool label(parser *p)
{
    const char *from = p->at;
    int line = p->line;
    if (!emu_ptx_is_word(*from)) return false;
    name text = emu_ptx_word(p);
    if (emu_ptx_accept(p, ':')) {
        emu_ptx_define(p, text, SYMBOL_LABEL, p->function->length, 0);
        return true;
    }
    p->at = from;
    p->line = line;
    return false;
}

static void body(parser *p)
{
    int outside = p->depth;
    emu_ptx_expect(p, '{');
    emu_ptx_open_scope(p);
    while (p->depth > outside) {
        if (emu_ptx_accept(p, '{'))
            emu_ptx_open_scope(p);
        else if (emu_ptx_accept(p, '}'))
            emu_ptx_close_scope(p);
        else if (!*p->at)
            emu_ptx_fail(p, p->line, "the text ends in a function");
        else if (*p->at == '.')
            statement(p);
        else if (!emu_ptx_accept(p, ';') && !label(p))
            emu_ptx_instruction(p);
    }
}

/* .maxntid 256, 1, 1 and the like, between a function's parameters and its body. */
static void hints(parser *p)
{
    for (emu_ptx_skip(p); *p->at == '.'; emu_ptx_skip(p)) {
        name hint = emu_ptx_directive(p);
        uint64_t product = 1;
        emu_ptx_skip(p);
        if (*p->at == '"') {
            emu_ptx_skip_string(p);
            emu_ptx_accept(p, ';');
        } else if (emu_ptx_at_number(p)) {
            do {
                product *= emu_ptx_count_of(p, "a size", 1 << 20);
                if (product > 1 << 20) product = 1 << 20;
            } while (emu_ptx_accept(p, ','));
        }
        if (emu_ptx_is(hint, "maxntid") || emu_ptx_is(hint, "reqntid")) p->function->most_threads = (int)product;
    }
}

static void entry(parser *p)
{
    emu_module *module = p->module;
    module->function =
        emu_ptx_grown(p, module->function, &p->function_room, (size_t)module->functions, sizeof *module->function);
    emu_function *f = p->function = &module->function[module->functions++];
    *f = (emu_function){.shared_bytes = p->shared_bytes};
    for (int i = 0; i < SPECIALS; i++) f->special[i] = EMU_NONE;
    p->code_room = p->element_room = p->elements = p->references = p->param_room = p->size_room = 0;
    p->registers = p->constants = 0;
    p->dynamic_align = 16;
    memset(p->constant_head, 0, sizeof p->constant_head);
    f->name = emu_ptx_kept(p, emu_ptx_word(p));
    emu_ptx_open_scope(p);
    emu_ptx_parameters(p);
    hints(p);
    body(p);
    emu_ptx_close_scope(p);
    emu_instruction *in = emu_ptx_new_instruction(p);
    in->opcode = emu_ptx_kept(p, (name){"ret", 3});
    in->part[in->parts++] = in->opcode;
    f->length++;
    finish(p);
    emu_ptx_free_scratch(p);
    p->function = NULL;
}

static void skip_section(parser *p)
{
    int from = p->line;
    p->at += strcspn(p->at, "{");
    for (int depth = 0; *p->at; p->at++) {
        p->line += *p->at == '\n';
        depth += (*p->at == '{') - (*p->at == '}');
        if (depth == 0) {
            p->at++;
            return;
        }
    }
    emu_ptx_fail(p, from, "a section without an end");
}

static void module_text(parser *p)
{
    static const char *const linkage[] = {"visible", "weak", "static", "common"};
    static const char *const lines[] = {"version", "address_size", "file", "loc"};
    bool is_extern = false;
    for (emu_ptx_skip(p); *p->at; emu_ptx_skip(p)) {
        name word = emu_ptx_directive(p);
        bool known = false;
        for (size_t i = 0; i < 4; i++) known |= emu_ptx_is(word, linkage[i]);
        for (size_t i = 0; i < 4; i++)
            if (emu_ptx_is(word, lines[i])) known = true, emu_ptx_skip_line(p);
        if (emu_ptx_is(word, "extern")) {
            is_extern = known = true;
        } else if (emu_ptx_is(word, "target")) {
            emu_ptx_skip(p);
            p->module->target = strncmp(p->at, "sm_", 3) == 0 ? (int)strtol(p->at + 3, NULL, 10) : 0;
            if (p->module->target <= 0) emu_ptx_fail_here(p, "'sm_' and a number");
            emu_ptx_skip_line(p);
        } else if (emu_ptx_is(word, "pragma")) {
            emu_ptx_skip_string(p);
            emu_ptx_expect(p, ';');
        } else if (emu_ptx_is(word, "section")) {
            skip_section(p);
        } else if (emu_ptx_is(word, "entry")) {
            entry(p);
            is_extern = false;
        } else if (emu_ptx_is(word, "global") || emu_ptx_is(word, "const") || emu_ptx_is(word, "shared")) {
            emu_ptx_variable(p, word, is_extern);
            is_extern = false;
        } else if (!known) {
            emu_ptx_fail(p, p->line, "'.%.*s' is not supported", (int)word.length, word.at);
        }
    }
    for (int i = 0; i < p->module->functions; i++) {
        p->module->function[i].variable = p->module->variable;
        p->module->function[i].variables = p->module->variables;
    }
    if (!p->module->target) emu_ptx_fail(p, p->line, "a text without '.target'");
}

void emu_module_free(emu_module *module)
{
    if (!module) return;
    for (int i = 0; i < module->functions; i++) {
        emu_function *f = &module->function[i];
        free(f->code);
        free(f->element);
        free(f->constants);
        free(f->param_offset);
        free(f->param_size);
    }
    for (int i = 0; i < module->variables; i++) free(module->variable[i].data);
    free(module->variable);
    free(module->function);
    free(module->text);
    free(module);
}

emu_module *emu_module_parse(const char *ptx, char *why, size_t why_size)
{
    size_t length = strlen(ptx);
    parser *p = calloc(1, sizeof *p);
    emu_module *module = calloc(1, sizeof *module);
    char *text = malloc(3 * length + 64); /* and the pool, see emu_ptx_kept() */
    if (!p || !module || !text) {
        if (why_size > 0) snprintf(why, why_size, "out of memory");
        free(p);
        free(module);
        free(text);
        return NULL;
    }
    memcpy(text, ptx, length + 1);
    module->text = text;
    *p = (parser){
        .module = module, .at = text, .line = 1, .pool = text + length + 1, .why = why, .why_size = why_size, .scope = -1};
    if (setjmp(p->failed) == 0) {
        emu_ptx_open_scope(p);
        module_text(p);
    } else {
        emu_module_free(p->module);
        p->module = NULL;
    }
    emu_module *parsed = p->module;
    emu_ptx_free_scratch(p);
    free(p->symbol);
    free(p->parent);
    free(p->reference);
    free(p->width);
    free(p->constant);
    free(p->constant_next);
    free(p);
    return parsed;
}

bool emu_has_part(const emu_instruction *in, const char *part)
{
    for (int i = 0; i < in->parts; i++)
        if (strcmp(in->part[i], part) == 0) return true;
    return false;
}
