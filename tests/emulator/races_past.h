/* races_past.h - what threads know to have happened, for those parts of races*.c that ask: vector clocks of a cluster's threads, and beside
 * them, where there is any, what is known of other clusters. */
#ifndef LAC_EMULATOR_RACES_PAST_H
#define LAC_EMULATOR_RACES_PAST_H

#include "races.h"

enum {
    EMU_ENGINE =
        0xffff /* in a warp's place: the copy engine, as if it were one of the block. Each lane is for every 32nd mbarrier */
};

/* Clocks of several clusters, by their numbers. Never changed once it is made. */
typedef struct emu_world {
    struct emu_world *made_before, *spare;
    uint32_t holders, count, room;
    struct {
        uint32_t cluster;
        emu_past *past; /* of which only the ticks count */
    } of[];
} emu_world;

struct emu_past {
    emu_past *made_before; /* of the launch: all go with it */
    emu_past *spare;
    uint32_t holders;
    emu_world *far;    /* what is known of other clusters; NULL: nothing */
    emu_world *reads;  /* what is known of reads alone: told at an mbarrier, and not in the scope that writes need */
    emu_world *fenced; /* of what is known, what a proxy fence came behind */
    uint32_t tick[]; /* of each thread of the cluster, of each block's engine, and of the kernel before: 1 when it has ended */
};

/* What anybody may be told, of whatever cluster he is: the same three. */
typedef struct emu_known {
    emu_world *all, *reads, *fenced;
} emu_known;

/* Who a thread is among those of its cluster; the engine of block `rank`. */
size_t emu_past_first(const emu_block *block, uint32_t rank, uint32_t warp);
/* The ticks of a cluster that a world has; NULL: none. */
const uint32_t *emu_world_ticks(const emu_world *world, uint32_t cluster);

/* *into knows what `more` does, too. */
void emu_known_add(emu_cluster *cluster, emu_known *into, const emu_known *more);
void emu_known_forget(emu_cluster *cluster, emu_known *known);
/* What a past says, to be forgotten by whoever asked. */
emu_known emu_known_of(emu_cluster *cluster, const emu_past *past);
/* Lanes know it now. */
void emu_known_acquire(emu_warp *warp, uint32_t lanes, const emu_known *known);

#endif
