/* parse_slots.c - which slots the registers of a function have. parse.c calls it where a function ends.
 *
 * NVRTC numbers thousands of registers of which some hundred hold something at a time; with a slot for each a warp would not stay in a
 * cache. Two registers may share a slot where no instruction lies in both of their spans, from the first to the last at which a thread
 * may still read what it wrote there (the usual liveness, per thread: a lane's values are its own, whichever way other lanes went). A
 * result counts as read before where it has a guard, and never has the slot of an operand of its own instruction: handlers write lanes
 * while they read. Special registers share with nobody, nor does what wgmma reads or writes until it is waited for. */
#include "parse.h"

#include <string.h>

typedef struct flow {
    int *block;    /* the first instruction of each; then the function's length */
    int *block_at; /* the block of an instruction, where it is the first of one */
    int blocks;
    int *first, *last;     /* the span of each register; first > last: there is none */
    int *made_in;          /* the pass and block that last wrote it */
    uint32_t *number, *id; /* of registers that live from one block into another: numbers in sets, from 1, and back */
    uint32_t numbers;
    uint64_t *live, *made;  /* sets of each block: live where it begins; written in it */
    size_t words;           /* of a set */
    uint32_t *use, *result; /* ids of an instruction */
    size_t uses, results;
} flow;

static void touch(flow *w, uint32_t id, bool is_result, bool is_use)
{
    if (is_result) w->result[w->results++] = id;
    if (is_use) w->use[w->uses++] = id;
}

/* Fills use and result. Counting a result as a use is always safe, the other way round never: hence those whose first is read. */
static void touch_all(flow *w, const emu_function *f, const emu_instruction *in)
{
    static const char *const readers[] = {"bar", "barrier", "nanosleep", "tcgen05"};
    int results = in->number[0];
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (strcmp(in->part[0], readers[i]) == 0 && !emu_has_part(in, "red")) results = 0;
    w->uses = w->results = 0;
    if (in->guard != EMU_NONE) touch(w, in->guard, false, true);
    for (int i = 0; i < in->operands; i++) {
        const emu_operand *o = &in->operand[i];
        bool is_result = i < results && o->kind != EMU_ADDRESS, is_use = !is_result || in->guard != EMU_NONE;
        if (o->kind == EMU_REGISTER || (o->kind == EMU_ADDRESS && o->slot < DYNAMIC)) touch(w, o->slot, is_result, is_use);
        for (uint32_t e = o->first; e < o->first + o->count; e++)
            if (f->element[e].kind == EMU_REGISTER) touch(w, f->element[e].slot, is_result, is_use);
    }
}

static int next_blocks(const emu_function *f, const flow *w, int b, int next[2])
{
    int last = w->block[b + 1] - 1, count = 0;
    const emu_instruction *in = &f->code[last];
    bool is_branch = strcmp(in->part[0], "bra") == 0,
         is_end = strcmp(in->part[0], "ret") == 0 || strcmp(in->part[0], "exit") == 0;
    if (is_branch) next[count++] = w->block_at[in->operand[0].value];
    if ((!(is_branch || is_end) || in->guard != EMU_NONE) && b + 1 < w->blocks) next[count++] = b + 1;
    return count;
}

static void find_blocks(parser *p, flow *w)
{
    const emu_function *f = p->function;
    w->block = emu_ptx_scratch(p, (size_t)f->length + 1, sizeof *w->block);
    w->block_at = emu_ptx_scratch(p, (size_t)f->length + 1, sizeof *w->block_at);
    w->block_at[0] = 1;
    for (int i = 0; i < f->length; i++) {
        const char *part = f->code[i].part[0];
        bool is_branch = strcmp(part, "bra") == 0;
        if (is_branch) w->block_at[f->code[i].operand[0].value] = 1;
        if (is_branch || strcmp(part, "ret") == 0 || strcmp(part, "exit") == 0) w->block_at[i + 1] = 1;
    }
    for (int i = 0; i < f->length; i++)
        if (w->block_at[i]) {
            w->block_at[i] = w->blocks;
            w->block[w->blocks++] = i;
        }
    w->block[w->blocks] = f->length;
}

static void span(flow *w, uint32_t id, int at)
{
    if (at < w->first[id]) w->first[id] = at;
    if (at > w->last[id]) w->last[id] = at;
}

/* First finds spans within blocks, and numbers what a block reads before it writes it; then, with numbers known, fills the sets. */
static void walk_blocks(const emu_function *f, flow *w, bool filling)
{
    for (int b = 0; b < w->blocks; b++) {
        uint64_t *live = filling ? w->live + (size_t)b * w->words : NULL,
                 *made = filling ? w->made + (size_t)b * w->words : NULL;
        int mark = 1 + b + (filling ? w->blocks : 0);
        for (int i = w->block[b]; i < w->block[b + 1]; i++) {
            touch_all(w, f, &f->code[i]);
            for (size_t u = 0; u < w->uses; u++) {
                uint32_t id = w->use[u];
                span(w, id, i);
                if (w->made_in[id] == mark) continue;
                if (!w->number[id]) w->id[w->number[id] = ++w->numbers] = id;
                if (filling) live[w->number[id] / 64] |= UINT64_C(1) << w->number[id] % 64;
            }
            for (size_t r = 0; r < w->results; r++) {
                uint32_t id = w->result[r];
                span(w, id, i);
                w->made_in[id] = mark;
                if (filling) made[w->number[id] / 64] |= UINT64_C(1) << w->number[id] % 64; /* bit 0 is nobody's */
            }
        }
    }
}

/* What is live where a block begins: what it reads first, and what is live behind it and not written in it. False: not found in time. */
static bool find_live(const emu_function *f, flow *w)
{
    bool changed = true;
    for (int pass = 0; changed && pass < FLOW_PASSES; pass++) {
        changed = false;
        for (int b = w->blocks - 1; b >= 0; b--) {
            int next[2], count = next_blocks(f, w, b, next);
            uint64_t *live = w->live + (size_t)b * w->words, *made = w->made + (size_t)b * w->words;
            for (int n = 0; n < count; n++) {
                const uint64_t *behind = w->live + (size_t)next[n] * w->words;
                for (size_t i = 0; i < w->words; i++) {
                    uint64_t more = behind[i] & ~made[i] & ~live[i];
                    live[i] |= more;
                    changed |= more != 0;
                }
            }
        }
    }
    return !changed;
}

static void span_set(flow *w, const uint64_t *set, int at)
{
    for (size_t i = 0; i < w->words; i++)
        for (uint64_t bits = set[i]; bits; bits &= bits - 1) span(w, w->id[i * 64 + (size_t)__builtin_ctzll(bits)], at);
}

static void find_spans(parser *p, flow *w)
{
    const emu_function *f = p->function;
    find_blocks(p, w);
    w->first = emu_ptx_scratch(p, p->registers, sizeof *w->first);
    w->last = emu_ptx_scratch(p, p->registers, sizeof *w->last);
    w->made_in = emu_ptx_scratch(p, p->registers, sizeof *w->made_in);
    w->number = emu_ptx_scratch(p, p->registers, sizeof *w->number);
    w->id = emu_ptx_scratch(p, p->registers + 1, sizeof *w->id);
    w->use = emu_ptx_scratch(p, p->elements + 2 * EMU_OPERANDS, sizeof *w->use);
    w->result = emu_ptx_scratch(p, p->elements + 2 * EMU_OPERANDS, sizeof *w->result);
    for (size_t r = 0; r < p->registers; r++) w->first[r] = f->length, w->last[r] = -1;
    walk_blocks(f, w, false);
    w->words = w->numbers / 64 + 1;
    bool known = w->words * (size_t)w->blocks <= FLOW_WORDS;
    if (known) {
        w->live = emu_ptx_scratch(p, w->words * (size_t)w->blocks, sizeof *w->live);
        w->made = emu_ptx_scratch(p, w->words * (size_t)w->blocks, sizeof *w->made);
        walk_blocks(f, w, true);
        known = find_live(f, w);
    }
    for (int b = 0; known && b < w->blocks; b++) {
        int next[2], count = next_blocks(f, w, b, next);
        span_set(w, w->live + (size_t)b * w->words, w->block[b]);
        for (int n = 0; n < count; n++) span_set(w, w->live + (size_t)next[n] * w->words, w->block[b + 1] - 1);
    }
    for (size_t r = 0; !known && r < p->registers; r++)
        if (w->last[r] >= 0) w->first[r] = 0, w->last[r] = f->length - 1;
}

/* Goes along the code: where a span begins its register takes a slot that is free, and leaves it behind the span's end. */
static void share_slots(parser *p, const flow *w)
{
    emu_function *f = p->function;
    int *begins = emu_ptx_scratch(p, (size_t)f->length, sizeof *begins),
        *ends = emu_ptx_scratch(p, (size_t)f->length, sizeof *ends);
    int *begins_next = emu_ptx_scratch(p, p->registers, sizeof *begins_next),
        *ends_next = emu_ptx_scratch(p, p->registers, sizeof *ends_next);
    uint32_t *unused[2] = {emu_ptx_scratch(p, p->registers, sizeof **unused),
                           emu_ptx_scratch(p, p->registers, sizeof **unused)};
    size_t free_slots[2] = {0, 0};
    p->slot = emu_ptx_scratch(p, p->registers, sizeof *p->slot);
    for (size_t r = p->registers; r-- > 0;) {
        if (w->last[r] < 0) continue;
        if (p->width[r] & WIDTH_ALONE) {
            p->slot[r] = f->slots;
            f->slots += p->width[r] & WIDTH_SLOTS;
            continue;
        }
        begins_next[r] = begins[w->first[r]]; /* lists of registers' numbers plus 1 */
        begins[w->first[r]] = (int)r + 1;
        ends_next[r] = ends[w->last[r]];
        ends[w->last[r]] = (int)r + 1;
    }
    for (int i = 0; i < f->length; i++) {
        for (int r = i > 0 ? ends[i - 1] - 1 : -1; r >= 0; r = ends_next[r] - 1) {
            int wide = p->width[r] == WIDTH_WIDE;
            unused[wide][free_slots[wide]++] = p->slot[r];
        }
        for (int r = begins[i] - 1; r >= 0; r = begins_next[r] - 1) {
            int wide = p->width[r] == WIDTH_WIDE;
            if (free_slots[wide]) {
                p->slot[r] = unused[wide][--free_slots[wide]];
            } else {
                p->slot[r] = f->slots;
                f->slots += p->width[r] & WIDTH_SLOTS;
            }
        }
    }
}

static void keep_alone(parser *p, flow *w)
{
    const emu_function *f = p->function;
    for (int i = 0; i < f->length; i++) {
        const emu_instruction *in = &f->code[i];
        if (in->parts < 2 || strcmp(in->part[0], "wgmma") != 0 || strcmp(in->part[1], "mma_async") != 0) continue;
        touch_all(w, f, in);
        for (size_t u = 0; u < w->uses; u++) p->width[w->use[u]] |= WIDTH_ALONE;
        for (size_t r = 0; r < w->results; r++) p->width[w->result[r]] |= WIDTH_ALONE;
    }
}

/* Finds p->slot and function->slots. */
void emu_ptx_assign_slots(parser *p)
{
    flow w = {0};
    find_spans(p, &w);
    keep_alone(p, &w);
    share_slots(p, &w);
}
