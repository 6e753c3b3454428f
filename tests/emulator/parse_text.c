/* parse_text.c - the text of a PTX module as words, numbers and names; and how a parse fails. The other parse files call it. */
#include "parse.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void emu_ptx_fail(parser *p, int line, const char *format, ...)
{
    if (p->why_size > 0) {
        int written = snprintf(p->why, p->why_size, "line %d: ", line);
        if (written > 0 && (size_t)written < p->why_size) {
            va_list arguments;
            va_start(arguments, format);
            vsnprintf(p->why + written, p->why_size - (size_t)written, format, arguments);
            va_end(arguments);
        }
    }
    longjmp(p->failed, 1);
}

/* The array, with room for one more; it stays whole where there is no memory. */
void *emu_ptx_grown(parser *p, void *array, size_t *room, size_t count, size_t size)
{
    if (count < *room) return array;
    size_t more = *room ? 2 * *room : 16;
    void *larger = realloc(array, more * size);
    if (!larger) emu_ptx_fail(p, p->line, "out of memory");
    *room = more;
    return larger;
}

void *emu_ptx_scratch(parser *p, size_t count, size_t size)
{
    void *memory = p->scratches < SCRATCHES ? calloc(count + 1, size) : NULL;
    if (!memory) emu_ptx_fail(p, p->line, "out of memory");
    return p->scratch[p->scratches++] = memory;
}

void emu_ptx_free_scratch(parser *p)
{
    while (p->scratches > 0) free(p->scratch[--p->scratches]);
}

bool emu_ptx_is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%'; }

void emu_ptx_skip(parser *p)
{
    for (;; p->at++) {
        if (*p->at == '\n') {
            p->line++;
        } else if (p->at[0] == '/' && p->at[1] == '/') {
            while (p->at[1] && p->at[1] != '\n') p->at++;
        } else if (p->at[0] == '/' && p->at[1] == '*') {
            int line = p->line;
            for (p->at += 2; *p->at && !(p->at[0] == '*' && p->at[1] == '/'); p->at++) p->line += *p->at == '\n';
            if (!*p->at) emu_ptx_fail(p, line, "a comment without an end");
            p->at++;
        } else if (!isspace((unsigned char)*p->at)) {
            return;
        }
    }
}

bool emu_ptx_accept(parser *p, char c)
{
    emu_ptx_skip(p);
    if (*p->at != c) return false;
    p->at++;
    return true;
}

_Noreturn void emu_ptx_fail_here(parser *p, const char *wanted)
{
    int length = (int)strcspn(p->at, "\n");
    emu_ptx_fail(p, p->line, "%s is missing before '%.*s'", wanted, length < 60 ? length : 60, p->at);
}

void emu_ptx_expect(parser *p, char c)
{
    char wanted[] = {'\'', c, '\'', 0};
    if (!emu_ptx_accept(p, c)) emu_ptx_fail_here(p, wanted);
}

name emu_ptx_word(parser *p)
{
    emu_ptx_skip(p);
    name word = {p->at, 0};
    while (emu_ptx_is_word(*p->at)) p->at++;
    word.length = (size_t)(p->at - word.at);
    if (!word.length) emu_ptx_fail_here(p, "a name");
    return word;
}

name emu_ptx_directive(parser *p)
{
    emu_ptx_expect(p, '.');
    return emu_ptx_word(p);
}

bool emu_ptx_is(name word, const char *text) { return strlen(text) == word.length && memcmp(word.at, text, word.length) == 0; }

void emu_ptx_skip_line(parser *p) { p->at += strcspn(p->at, "\n"); }

void emu_ptx_skip_string(parser *p)
{
    emu_ptx_expect(p, '"');
    p->at += strcspn(p->at, "\"\n");
    if (*p->at != '"') emu_ptx_fail_here(p, "the end of a string");
    p->at++;
}

/* A copy in the pool, which is twice as long as the text: an opcode is there twice (whole, and in parts), everything else once. */
char *emu_ptx_kept(parser *p, name text)
{
    char *copy = p->pool;
    memcpy(copy, text.at, text.length);
    copy[text.length] = 0;
    p->pool += text.length + 1;
    return copy;
}

bool emu_ptx_at_number(const parser *p)
{
    return isdigit((unsigned char)*p->at) || (*p->at == '-' && isdigit((unsigned char)p->at[1]));
}

/* Floats are their bits: 0f3F800000, 0d3FF0000000000000. */
int64_t emu_ptx_number(parser *p)
{
    bool minus = emu_ptx_accept(p, '-');
    emu_ptx_skip(p);
    if (!isdigit((unsigned char)*p->at)) emu_ptx_fail_here(p, "a number");
    const char *from = p->at;
    char kind = *from == '0' ? (char)tolower((unsigned char)from[1]) : 0, *end;
    errno = 0;
    uint64_t value;
    if (kind == 'f' || kind == 'd') {
        char digits[17] = {0};
        size_t length = kind == 'f' ? 8 : 16, span = strspn(from + 2, "0123456789abcdefABCDEF");
        if (span != length || minus) emu_ptx_fail_here(p, "a float's digits");
        memcpy(digits, from + 2, length);
        value = strtoull(digits, NULL, 16);
        end = (char *)(uintptr_t)from + 2 + length;
    } else {
        value = strtoull(from, &end, 0);
        if (*end == 'U') end++;
    }
    if (errno || emu_ptx_is_word(*end)) emu_ptx_fail_here(p, "a number that is understood");
    p->at = end;
    return (int64_t)(minus ? 0 - value : value);
}

uint64_t emu_ptx_count_of(parser *p, const char *what, uint64_t most)
{
    int64_t value = emu_ptx_number(p);
    if (value < 0 || (uint64_t)value > most) emu_ptx_fail(p, p->line, "%s of %lld", what, (long long)value);
    return (uint64_t)value;
}

/* ---- names */

static uint32_t hash_of(uint32_t hash, name text)
{
    for (size_t i = 0; i < text.length; i++) hash = (hash ^ (unsigned char)text.at[i]) * 16777619u;
    return hash;
}

/* The place of a name in a scope, where it is or would be. A range has a name of its own: %r<4> does not hide %r. */
static symbol *place(const parser *p, name text, uint32_t hash, int scope, bool range)
{
    size_t at = (hash ^ ((uint32_t)scope * 2u + range) * 0x9e3779b1u) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
    for (;; at++) {
        symbol *s = &p->symbol[at & (p->symbol_room - 1)];
        if (s->kind == SYMBOL_NOTHING) return s;
        if (s->scope == scope && (s->kind == SYMBOL_RANGE) == range && s->name.length == text.length &&
            memcmp(s->name.at, text.at, text.length) == 0)
            return s;
    }
}

void emu_ptx_define(parser *p, name text, symbol_kind kind, int64_t value, uint32_t count)
{
    if (2 * p->symbols >= p->symbol_room) {
        symbol *old = p->symbol;
        size_t room = p->symbol_room;
        symbol *larger = calloc(room ? 2 * room : 256, sizeof *larger);
        if (!larger) emu_ptx_fail(p, p->line, "out of memory");
        p->symbol = larger;
        p->symbol_room = room ? 2 * room : 256;
        for (size_t i = 0; i < room; i++)
            if (old[i].kind)
                *place(p, old[i].name, hash_of(0, old[i].name), old[i].scope, old[i].kind == SYMBOL_RANGE) = old[i];
        free(old);
    }
    symbol *s = place(p, text, hash_of(0, text), p->scope, kind == SYMBOL_RANGE);
    if (s->kind) emu_ptx_fail(p, p->line, "'%.*s' is declared twice", (int)text.length, text.at);
    *s = (symbol){text, p->scope, kind, count, value};
    p->symbols++;
}

/* The innermost declaration of a name; *value is the id of a range's register, else the symbol's. NULL: none. */
const symbol *emu_ptx_look_up(const parser *p, name text, int scope, int64_t *value)
{
    name stem = text;
    while (stem.length > 0 && text.length - stem.length < 8 && isdigit((unsigned char)stem.at[stem.length - 1])) stem.length--;
    name digits = {text.at + stem.length, text.length - stem.length};
    bool numbered = digits.length > 0 && stem.length > 0 && (digits.length == 1 || digits.at[0] != '0');
    uint32_t index = 0, stem_hash = hash_of(0, stem), hash = hash_of(stem_hash, digits);
    for (size_t i = 0; i < digits.length; i++) index = index * 10 + (uint32_t)(digits.at[i] - '0');
    for (; p->symbol_room && scope >= 0; scope = p->parent[scope]) {
        const symbol *s = place(p, text, hash, scope, false);
        if (s->kind) {
            *value = s->value;
            return s;
        }
        s = numbered ? place(p, stem, stem_hash, scope, true) : s;
        if (s->kind && index < s->count) {
            *value = s->value + index;
            return s;
        }
    }
    return NULL;
}

void emu_ptx_open_scope(parser *p)
{
    if (++p->depth > MOST_DEPTH) emu_ptx_fail(p, p->line, "more than %d scopes in each other", MOST_DEPTH);
    p->parent = emu_ptx_grown(p, p->parent, &p->scope_room, p->scopes, sizeof *p->parent);
    p->parent[p->scopes] = p->scope;
    p->scope = (int)p->scopes++;
}

void emu_ptx_close_scope(parser *p)
{
    p->depth--;
    p->scope = p->parent[p->scope];
}
