/* races_note.h - who has accessed some 16 bytes, of shared memory (races.c) or of global memory (races_global.c). */
#ifndef LAC_EMULATOR_RACES_NOTE_H
#define LAC_EMULATOR_RACES_NOTE_H

#include "races_past.h"

enum { EMU_CHUNK = 16 };
#define EMU_UNDER_WAY UINT32_MAX /* a tick that nobody is told of */

typedef struct emu_note {
    const emu_instruction *in;
    uint32_t lanes, tick;
    uint32_t cluster; /* its number in the grid */
    uint16_t warp, rank;
    uint16_t bytes; /* of the 16 */
    uint16_t access;
} emu_note;

typedef struct emu_chunk {
    emu_note *notes;
    uint16_t count, room;
} emu_chunk;

/* The 16 bytes, one after the other, that an access touches: where they begin, and which of them. */
typedef struct emu_walk {
    uint64_t at, end;
    uint64_t chunk;
    uint16_t bytes;
} emu_walk;

static inline bool emu_walk_on(emu_walk *w)
{
    if (w->at >= w->end) return false;
    uint64_t first = w->at % EMU_CHUNK, last = w->at - first + EMU_CHUNK <= w->end ? EMU_CHUNK : w->end % EMU_CHUNK;
    w->chunk = w->at / EMU_CHUNK;
    w->bytes = (uint16_t)((1u << last) - (1u << first));
    w->at += EMU_CHUNK - first;
    return true;
}

static inline emu_note emu_note_of(const emu_warp *warp, const emu_instruction *in, uint32_t lanes, uint32_t tick,
                                   emu_access access)
{
    return (emu_note){.in = in,
                      .lanes = lanes,
                      .tick = tick,
                      .cluster = warp->block->cluster->number,
                      .warp = (uint16_t)warp->index,
                      .rank = (uint16_t)warp->block->rank,
                      .access = (uint16_t)access};
}
emu_note emu_note_of_copy(const emu_instruction *in, uint32_t number, const emu_block *told, const unsigned char *barrier,
                          emu_access access);

/* Whether the two need no order: both read, or both are strong for each other. */
bool emu_note_agrees(const emu_note *n, const emu_block *block, emu_access access);
/* Whether a lane knows of it; and of a proxy fence behind it. */
bool emu_note_known(const emu_warp *warp, int lane, const emu_note *n);
bool emu_note_fenced(const emu_warp *warp, int lane, const emu_note *n);
/* Takes out what need not be asked for behind the new one. True: that is in one of those that are there, and need not be added. */
bool emu_chunk_settle(emu_chunk *chunk, const emu_note *n);

/* "written at line 12 (st.global.u32) by lanes 0x1 of warp 0 of block 3" */
void emu_note_tell(const emu_note *n, const emu_grid *grid, char *text, size_t size);

#endif
