/* races.h - what races.c is told of: who accesses shared memory, and what orders accesses. Every call returns at once where nobody asks. */
#ifndef LAC_EMULATOR_RACES_H
#define LAC_EMULATOR_RACES_H

#include "emulator.h"

/* What a thread knows to have happened. */
typedef struct emu_past emu_past;

typedef enum emu_access { EMU_READS, EMU_WRITES, EMU_ADDS } emu_access;

/* Whether EMULATOR_RACES asks for it. A cluster's books are opened before it runs and closed when it is dropped. */
emu_races_kind emu_races_wanted(void);
void emu_races_open(emu_cluster *cluster);
void emu_races_close(emu_cluster *cluster);

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

/* Lanes know that the kernel before has ended; whether a lane does. */
void emu_race_hear_end(emu_warp *warp, uint32_t lanes);
bool emu_race_heard_end(const emu_warp *warp, int lane);

/* Lanes tell what they have done, and know, to whoever looks there next. */
void emu_race_release(emu_warp *warp, uint32_t lanes, emu_past **to);
/* What was told there, lanes know now. NULL: nothing was. */
void emu_race_acquire(emu_warp *warp, uint32_t lanes, emu_past *from);
/* Lanes tell each other. */
void emu_race_meet(emu_warp *warp, uint32_t lanes);
/* What is told in `from` is told in *into too; or moves there. */
void emu_race_add(emu_cluster *cluster, emu_past **into, emu_past *from);
void emu_race_move(emu_cluster *cluster, emu_past **into, emu_past **from);
void emu_race_forget(emu_cluster *cluster, emu_past **past);

/* What is told at an mbarrier: by arrivals of this phase, and of those that have ended. NULL where nobody asks. */
typedef struct emu_told {
    emu_past *coming, *ended;
} emu_told;
emu_told *emu_race_told(const emu_block *owner, const unsigned char *barrier);

#endif
