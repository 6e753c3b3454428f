/* races.h - what races*.c are told of: who accesses shared and global memory, and what orders accesses. Every call returns at once where
 * nobody asks. */
#ifndef LAC_EMULATOR_RACES_H
#define LAC_EMULATOR_RACES_H

#include "emulator.h"

/* What a thread knows to have happened. */
typedef struct emu_past emu_past;

/* What is done, and how. Accesses with a scope are strong: relaxed, acquire, release, volatile, atomic. Two of them are no race where each
 * one's scope has the other's thread. */
typedef unsigned emu_access;
enum {
    EMU_READS,
    EMU_WRITES,
    EMU_ADDS,
    EMU_DOES = 3, /* which of these */
    EMU_CTA = 1 << 2,
    EMU_CLUSTER = 2 << 2,
    EMU_GPU = 3 << 2,
    EMU_SCOPE = 3 << 2,
    EMU_ORDERS = 1 << 4,       /* an acquire or a release */
    EMU_NOT_COHERENT = 1 << 5, /* ld.global.nc: of what nobody writes */
    EMU_ASYNC = 1 << 6         /* by the async proxy */
};

/* Whether EMULATOR_RACES asks for it. A launch's books are opened before it runs, a cluster's before it does. */
emu_races_kind emu_races_wanted(bool *of_global);
void emu_races_begin(emu_grid *grid);
void emu_races_end(emu_grid *grid);
void emu_races_open(emu_cluster *cluster);
void emu_races_close(emu_cluster *cluster);

/* ---- shared memory (races.c) */

/* Fails where an access of `lane` to memory of a block, or one that any lane of the warp could vouch for (EMU_ANY_LANE), is not ordered
 * behind one that was noted, and one of the two writes. */
enum { EMU_ANY_LANE = -1 };
void emu_race_check(emu_warp *warp, const emu_instruction *in, int lane, const emu_block *owner, const unsigned char *at,
                    size_t bytes, emu_access access);
/* What `lanes` have done by now. */
void emu_race_note(emu_warp *warp, const emu_instruction *in, uint32_t lanes, const emu_block *owner, const unsigned char *at,
                   size_t bytes, emu_access access);
/* What they have started and not waited for: it is noted once more then. */
void emu_race_begin(emu_warp *warp, const emu_instruction *in, uint32_t lanes, const emu_block *owner, const unsigned char *at,
                    size_t bytes, emu_access access);
/* The copy engine's accesses, from now on until it tells an mbarrier. A copy has a number of the block that is `told`; 0: nobody asks. */
uint32_t emu_race_number_copy(const emu_block *told);
void emu_race_note_copy(const emu_instruction *in, uint32_t number, const emu_block *told, const unsigned char *barrier,
                        const emu_block *owner, const unsigned char *at, size_t bytes, emu_access access);
void emu_race_release_copy(const emu_block *told, const unsigned char *barrier, uint32_t number, emu_past **to);

/* ---- global memory (races_global.c): each fails as emu_race_check does, and notes */

void emu_global_access(emu_warp *warp, const emu_instruction *in, int lane, uint64_t address, size_t bytes, emu_access access);
/* It goes on until the lane has waited for it, and is done then. */
void emu_global_begin(emu_warp *warp, const emu_instruction *in, int lane, uint64_t address, size_t bytes, emu_access access);
void emu_global_done(emu_warp *warp, const emu_instruction *in, int lane, uint64_t address, size_t bytes, emu_access access);
/* The copy engine reads, for this lane, until it tells the mbarrier: as emu_race_note_copy. */
void emu_global_copy(emu_warp *warp, const emu_instruction *in, int lane, uint64_t address, size_t bytes, uint32_t number,
                     const emu_block *told, const unsigned char *barrier);

/* ---- what orders accesses (races_past.c) */

/* Lanes know that the kernel before has ended; whether a lane does. */
void emu_race_hear_end(emu_warp *warp, uint32_t lanes);
bool emu_race_heard_end(const emu_warp *warp, int lane);

/* Lanes tell what they have done, and know, to whoever looks there next. */
void emu_race_release(emu_warp *warp, uint32_t lanes, emu_past **to);
/* What was told there, lanes know now. NULL: nothing was. */
void emu_race_acquire(emu_warp *warp, uint32_t lanes, emu_past *from);
/* Lanes tell each other. */
void emu_race_meet(emu_warp *warp, uint32_t lanes);
/* Lanes have exchanged registers (shfl, vote, ...). */
void emu_race_exchange(emu_warp *warp, uint32_t lanes);
/* What is told in `from` is told in *into too; or moves there; or what it says of reads is. */
void emu_race_add(emu_cluster *cluster, emu_past **into, emu_past *from);
void emu_race_move(emu_cluster *cluster, emu_past **into, emu_past **from);
void emu_race_add_reads(emu_cluster *cluster, emu_past **into, const emu_past *from);
void emu_race_forget(emu_cluster *cluster, emu_past **past);
/* The engine of a block has come to this tick of a lane's. */
void emu_race_release_tick(const emu_block *told, uint32_t lane, uint32_t tick, emu_past **to);
/* fence.proxy.async, for global memory: what lanes know, the copy engine may read from here on. */
void emu_race_fence_proxy(emu_warp *warp, uint32_t lanes);

/* What is told at an mbarrier: by arrivals of this phase, and of those that have ended; and by threads of other blocks that released it to
 * the cluster. NULL where nobody asks. */
typedef struct emu_told {
    emu_past *coming, *ended, *far_coming, *far_ended;
} emu_told;
emu_told *emu_race_told(const emu_block *owner, const unsigned char *barrier);

/* A launch's clocks; a cluster that uses them. */
void emu_pasts_open(emu_grid *grid);
void emu_pasts_join(emu_cluster *cluster);
void emu_pasts_close(emu_grid *grid);

/* ---- flags in memory, and fences (races_flag.c) */

struct emu_flags;
/* A lane has read or written there. Whoever acquires learns what those told who wrote what he reads. */
void emu_flag_read(emu_warp *warp, int lane, struct emu_flags *flags, uint64_t address, emu_access access);
void emu_flag_write(emu_warp *warp, int lane, struct emu_flags **flags, uint64_t address, size_t bytes, emu_access access);
/* fence.acq_rel or fence.sc of that scope. What lanes had done before their last, told by what is relaxed behind it. */
void emu_flag_fence(emu_warp *warp, uint32_t lanes, emu_access scope);
void emu_flag_release_fenced(emu_warp *warp, uint32_t lanes, emu_access scope, emu_past **to);
void emu_flags_free(struct emu_flags *flags);
void emu_fences_free(emu_warp *warp);

/* The scope that an instruction names, or `otherwise`. */
emu_access emu_scope_of(const emu_instruction *in, emu_access otherwise);

#endif
