/* races_global.c - accesses to global memory that nothing orders, within a launch: what races.c does for shared memory, with books for the
 * pages that the launch touches. Blocks know of each other's accesses by flags alone (races_flag.c), those of a cluster by its barriers
 * too. Launches of a stream are in order; observe.c sees to those that begin early. Called by those who access memory.
 *
 * Two rules more than shared memory has here. What threads wrote, the copy engine reads only behind a fence.proxy.async that stands between
 * the two, with whoever it may be. What ld.global.nc reads, nobody may have written in this launch: no order makes it see that. */
#include "races_note.h"

#include <stdlib.h>
#include <string.h>

enum {
    PAGE = 4096,
    CACHED = 64,
    MOST_NOTES = 256,
    MOST_READS = 16, /* of 16 bytes: behind so many, any of them gives way to the next one */
    ARENA = 1 << 16  /* malloc keeps such blocks at hand */
};

typedef struct page {
    uint64_t number; /* of all pages of the address space, plus 1; 0: none */
    bool written;    /* by this launch */
    emu_chunk chunk[PAGE / EMU_CHUNK];
} page;

typedef struct arena {
    struct arena *next;
    size_t used;
    unsigned char data[ARENA];
} arena;

struct emu_globals {
    page **page; /* a table, by number */
    size_t count, size;
    page *cache[CACHED];
    arena *arenas; /* notes, which all go with the launch */
    uint32_t turn;
};

/* ---- books */

static page **place_of(page **table, size_t size, uint64_t number)
{
    size_t at = (size_t)(number * UINT64_C(0x9e3779b97f4a7c15) >> 32) % size;
    while (table[at] && table[at]->number != number) at = (at + 1) % size;
    return &table[at];
}

static page *open_page(struct emu_globals *globals, uint64_t number)
{
    if (2 * (globals->count + 1) > globals->size) {
        size_t size = globals->size ? 2 * globals->size : 1024;
        page **larger = calloc(size, sizeof *larger);
        if (!larger) abort();
        for (size_t i = 0; i < globals->size; ++i)
            if (globals->page[i]) *place_of(larger, size, globals->page[i]->number) = globals->page[i];
        free(globals->page);
        globals->page = larger;
        globals->size = size;
    }
    page **place = place_of(globals->page, globals->size, number);
    if (!*place) {
        *place = calloc(1, sizeof **place);
        if (!*place) abort();
        (*place)->number = number;
        globals->count++;
    }
    return *place;
}

static inline page *page_of(struct emu_globals *globals, uint64_t address)
{
    uint64_t number = address / PAGE + 1;
    page **cached = &globals->cache[number % CACHED];
    if (!*cached || (*cached)->number != number) *cached = open_page(globals, number);
    return *cached;
}

static emu_note *notes_new(struct emu_globals *globals, size_t count)
{
    size_t bytes = count * sizeof(emu_note);
    if (!globals->arenas || globals->arenas->used + bytes > ARENA) {
        arena *fresh = malloc(sizeof *fresh);
        if (!fresh) abort();
        fresh->used = 0;
        fresh->next = globals->arenas;
        globals->arenas = fresh;
    }
    void *notes = globals->arenas->data + globals->arenas->used;
    globals->arenas->used += bytes;
    return notes;
}

void emu_races_begin(emu_grid *grid)
{
    bool of_global;
    grid->races = emu_races_wanted(&of_global);
    if (!grid->races) return;
    emu_pasts_open(grid);
    grid->globals = of_global ? calloc(1, sizeof *grid->globals) : NULL;
    if (of_global && !grid->globals) abort();
}

void emu_races_end(emu_grid *grid)
{
    struct emu_globals *globals = grid->globals;
    emu_pasts_close(grid);
    emu_flags_free(grid->flags);
    if (!globals) return;
    for (size_t i = 0; i < globals->size; ++i) free(globals->page[i]);
    for (arena *a = globals->arenas, *next; a; a = next) {
        next = a->next;
        free(a);
    }
    free(globals->page);
    free(globals);
}

/* ---- notes */

/* Where many read, not all are kept: who overwrites what they read would have to be in order with all of them, and is told of by one. */
static void add_note(struct emu_globals *globals, emu_chunk *book, const emu_note *n)
{
    bool reads = (n->access & EMU_DOES) == EMU_READS;
    if (reads && book->count >= MOST_READS) {
        emu_note *place = &book->notes[globals->turn++ % book->count];
        if ((place->access & EMU_DOES) == EMU_READS) *place = *n;
        return;
    }
    if (emu_chunk_settle(book, n) || book->count == MOST_NOTES) return;
    if (book->count == book->room) {
        uint16_t room = (uint16_t)(book->room ? 2 * book->room : 2);
        emu_note *notes = notes_new(globals, room);
        if (book->count) memcpy(notes, book->notes, book->count * sizeof *notes);
        book->notes = notes;
        book->room = room;
    }
    book->notes[book->count++] = *n;
}

_Noreturn static void tell(emu_warp *warp, const emu_instruction *in, int lane, uint64_t address, const emu_note *n,
                           emu_access access, const char *why)
{
    static const char *const doing[] = {"reads", "writes", "adds to"};
    char before[256];
    emu_note_tell(n, warp->block->grid, before, sizeof before);
    emu_fail(warp, in, lane, "a race in global memory: it %s 0x%llx, which was %s, and %s", doing[access & EMU_DOES],
             (unsigned long long)address, before, why);
}

/* Why it must not come behind what was noted; NULL: it may. */
static const char *fault_of(const emu_warp *warp, int lane, const emu_note *n, emu_access access)
{
    bool written = (n->access & EMU_DOES) != EMU_READS;
    if (access & EMU_NOT_COHERENT && written) return "ld.global.nc is for what no thread of the launch writes";
    if (emu_note_agrees(n, warp->block, access)) return NULL;
    if (!emu_note_known(warp, lane, n)) return "nothing orders the two";
    if (access & EMU_ASYNC && written && !(n->access & EMU_ASYNC) && !emu_note_fenced(warp, lane, n))
        return "no fence.proxy.async stands between the two";
    return NULL;
}

static void check(emu_warp *warp, const emu_instruction *in, int lane, emu_walk *w, const emu_chunk *book, emu_access access)
{
    for (uint16_t i = 0; i < book->count; ++i) {
        const emu_note *n = &book->notes[i];
        const char *fault = n->bytes & w->bytes ? fault_of(warp, lane, n, access) : NULL;
        if (fault) tell(warp, in, lane, w->chunk * EMU_CHUNK, n, access, fault);
    }
}

/* Checks the lane's access, and notes it as `n`. */
static void visit(emu_warp *warp, const emu_instruction *in, int lane, uint64_t address, size_t bytes, emu_access access,
                  emu_note n)
{
    struct emu_globals *globals = warp->block->grid->globals;
    bool writes = (access & EMU_DOES) != EMU_READS;
    for (emu_walk w = {.at = address, .end = address + bytes}; emu_walk_on(&w);) {
        page *p = page_of(globals, w.chunk * EMU_CHUNK);
        emu_chunk *book = &p->chunk[w.chunk % (PAGE / EMU_CHUNK)];
        if (writes || p->written) check(warp, in, lane, &w, book, access);
        p->written |= writes;
        n.bytes = w.bytes;
        add_note(globals, book, &n);
    }
}

void emu_global_access(emu_warp *warp, const emu_instruction *in, int lane, uint64_t address, size_t bytes, emu_access access)
{
    if (!warp->block->grid->globals) return;
    visit(warp, in, lane, address, bytes, access, emu_note_of(warp, in, 1u << lane, warp->tick, access));
}

void emu_global_begin(emu_warp *warp, const emu_instruction *in, int lane, uint64_t address, size_t bytes, emu_access access)
{
    if (!warp->block->grid->globals) return;
    visit(warp, in, lane, address, bytes, access, emu_note_of(warp, in, 1u << lane, EMU_UNDER_WAY, access));
}

void emu_global_done(emu_warp *warp, const emu_instruction *in, int lane, uint64_t address, size_t bytes, emu_access access)
{
    struct emu_globals *globals = warp->block->grid->globals;
    if (!globals) return;
    emu_note n = emu_note_of(warp, in, 1u << lane, warp->tick, access);
    for (emu_walk w = {.at = address, .end = address + bytes}; emu_walk_on(&w);) {
        n.bytes = w.bytes;
        add_note(globals, &page_of(globals, w.chunk * EMU_CHUNK)->chunk[w.chunk % (PAGE / EMU_CHUNK)], &n);
    }
}

void emu_global_copy(emu_warp *warp, const emu_instruction *in, int lane, uint64_t address, size_t bytes, uint32_t number,
                     const emu_block *told, const unsigned char *barrier)
{
    if (!warp->block->grid->globals) return;
    emu_access access = EMU_READS | EMU_ASYNC;
    visit(warp, in, lane, address, bytes, access, emu_note_of_copy(in, number, told, barrier, access));
}
