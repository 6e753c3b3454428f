/* observe.h - what observe.c is told of, and asked for, by those who access memory. */
#ifndef LAC_EMULATOR_OBSERVE_H
#define LAC_EMULATOR_OBSERVE_H

#include "emulator.h"
#include "races.h"

/* An ordinary write (a thread's store, cp.async) to shared memory of a block; bytes that the copy engine brought; fence.proxy.async. */
void emu_saw_write(emu_warp *warp, emu_block *owner, const unsigned char *at, size_t bytes);
void emu_saw_landing(emu_block *owner, const unsigned char *at, size_t bytes);
void emu_saw_fence(emu_warp *warp);
/* The async proxy reads shared memory of the warp's block: what was written there must have been fenced. */
void emu_check_fence(emu_warp *warp, const emu_instruction *in, const emu_block *block, const unsigned char *at, size_t bytes,
                     const char *what);

/* A lane accesses global memory. Where the launch may begin before the kernel before has ended, and races are looked for, it must know of
 * that end if it writes, or reads what a kernel has written. And every block must have waited for it, so that who waits for this kernel has
 * waited for both. */
void emu_saw_global(emu_warp *warp, const emu_instruction *in, int lane, uint64_t address, bool writes);
void emu_check_waited(emu_warp *warp);

/* grid->counting says whether anybody asks. `bytes` are of a lane. */
bool emu_counts_wanted(void);
void emu_count_shared(emu_grid *grid, const uint64_t *address, uint32_t mask, int bytes, bool writes);
void emu_count_global(emu_grid *grid, const uint64_t *address, uint32_t mask, int bytes);
void emu_counts_write(const emu_grid *grid);

#endif
