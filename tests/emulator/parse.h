/* parse.h - what the files that read PTX share: the parser's state, its words, and who does what.
 *
 *   parse.c              functions and modules: emu_module_parse
 *   parse_text.c         the text: words, numbers, comments, failures; the names that were declared
 *   parse_declare.c      variables, parameters, registers
 *   parse_instruction.c  instructions and their operands
 *   parse_slots.c        which registers share a slot
 */
#ifndef LAC_EMULATOR_PARSE_H
#define LAC_EMULATOR_PARSE_H

#include "emulator.h"

#include <setjmp.h>

enum {
    /* Stands for a slot until the function's end: the value is counted from where dynamic shared memory begins. */
    DYNAMIC = EMU_NONE - 1,
    MOST_REGISTERS = 1 << 20,
    MOST_BYTES = 1 << 28, /* of a variable */
    MOST_DEPTH = 64,      /* of scopes: names are looked up from the innermost outwards */
    FLOW_WORDS = 1 << 22, /* of all blocks' sets of live registers: where more were needed, registers do not share slots */
    FLOW_PASSES = 256,
    HEADS = 4096,
    SCRATCHES = 24,
    SPECIALS = EMU_WARP + 1
};

typedef struct name {
    const char *at;
    size_t length;
} name;

typedef enum symbol_kind {
    SYMBOL_NOTHING,
    SYMBOL_REGISTER,
    SYMBOL_RANGE,
    SYMBOL_ADDRESS,
    SYMBOL_DYNAMIC,
    SYMBOL_LABEL
} symbol_kind;

typedef struct symbol {
    name name;
    int scope;
    symbol_kind kind;
    uint32_t count; /* RANGE: %r<count> are %r0 to the one before %rcount */
    int64_t value;  /* REGISTER, RANGE: the (first) id; ADDRESS: it; DYNAMIC: its alignment; LABEL: an instruction's number */
} symbol;

typedef struct reference { /* a branch to a label that may stand further on */
    int instruction, scope, line;
    name name;
} reference;

/* Of a register: its slots, and what else is to be known of it. ALONE: it shares them with nobody. */
enum { WIDTH_NARROW = 1, WIDTH_WIDE = 2, WIDTH_SLOTS = 3, WIDTH_PREDICATE = 4, WIDTH_ALONE = 8 };

typedef struct parser {
    emu_module *module;
    const char *at; /* in module->text */
    int line;
    char *pool; /* behind the text: names with an end */
    char *why;
    size_t why_size;
    jmp_buf failed;
    symbol *symbol; /* a hash table of a power of two places */
    size_t symbols, symbol_room, variable_room, function_room;
    int *parent; /* of each scope */
    size_t scopes, scope_room;
    int scope, depth;
    uint32_t shared_bytes; /* of the module's own static variables */
    /* Of the function that is being read. */
    emu_function *function;
    size_t code_room, element_room, elements, reference_room, references, param_room, size_room;
    reference *reference;
    unsigned char *width; /* of each id */
    uint32_t *slot;       /* of each id, once they are known */
    size_t registers, register_room;
    uint32_t dynamic_align;
    int64_t *constant;
    int *constant_next, constant_head[HEADS];
    size_t constants, constant_room, next_room;
    void *scratch[SCRATCHES]; /* freed with the function */
    int scratches;
} parser;

typedef struct declared {
    name name;
    uint32_t size, align; /* of an element; of the whole */
    uint64_t bytes;
    bool open; /* name[] */
} declared;

_Noreturn void emu_ptx_fail(parser *p, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void *emu_ptx_grown(parser *p, void *array, size_t *room, size_t count, size_t size);
void *emu_ptx_scratch(parser *p, size_t count, size_t size);
void emu_ptx_free_scratch(parser *p);
bool emu_ptx_is_word(char c);
void emu_ptx_skip(parser *p);
bool emu_ptx_accept(parser *p, char c);
_Noreturn void emu_ptx_fail_here(parser *p, const char *wanted);
void emu_ptx_expect(parser *p, char c);
name emu_ptx_word(parser *p);
name emu_ptx_directive(parser *p);
bool emu_ptx_is(name word, const char *text);
void emu_ptx_skip_line(parser *p);
void emu_ptx_skip_string(parser *p);
char *emu_ptx_kept(parser *p, name text);
bool emu_ptx_at_number(const parser *p);
int64_t emu_ptx_number(parser *p);
uint64_t emu_ptx_count_of(parser *p, const char *what, uint64_t most);
void emu_ptx_define(parser *p, name text, symbol_kind kind, int64_t value, uint32_t count);
const symbol *emu_ptx_look_up(const parser *p, name text, int scope, int64_t *value);
void emu_ptx_open_scope(parser *p);
void emu_ptx_close_scope(parser *p);
uint32_t emu_ptx_laid_out(parser *p, uint32_t *used, uint32_t base, const declared *d);
void emu_ptx_variable(parser *p, name space, bool is_extern);
void emu_ptx_parameters(parser *p);
uint32_t emu_ptx_new_registers(parser *p, uint64_t count, int width);
void emu_ptx_register_names(parser *p);
void emu_ptx_instruction(parser *p);
emu_instruction *emu_ptx_new_instruction(parser *p);
void emu_ptx_assign_slots(parser *p);

#endif
