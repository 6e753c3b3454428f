/* engine.h - what engine.c and bulk.c share: copies under way. */
#ifndef LAC_EMULATOR_ENGINE_H
#define LAC_EMULATOR_ENGINE_H

#include "observe.h"

/* One cp.async of a warp's lanes. */
typedef struct emu_lane_copy {
    struct emu_lane_copy *next;
    const emu_instruction *in;
    uint32_t bytes, lanes; /* lanes whose copy has not landed, or was not waited for */
    uint32_t told;         /* lanes that have it tell an mbarrier */
    bool landed;
    uint64_t stamp;            /* how many its warp had started before */
    uint32_t group[EMU_LANES]; /* the group that was open */
    unsigned char *to[EMU_LANES];
    const unsigned char *from[EMU_LANES]; /* NULL: zeros */
} emu_lane_copy;

/* A box on its way out of shared memory, which is read when the thread waits for that. */
typedef struct emu_store {
    struct emu_store *next;
    const emu_instruction *in;
    int lane;
    uint32_t group;
    emu_tensor_map map;
    int at[5];
    uint32_t from; /* a shared address of the block */
    bool landed;
    bool read; /* and that was waited for */
} emu_store;

struct emu_copies {
    emu_lane_copy *first, **end;   /* in the order of their start */
    emu_store *stores;             /* likewise */
    uint64_t stamp;                /* cp.async so far */
    emu_past *told;                /* what those tell that an mbarrier is told of (races.c) */
    uint32_t committed[EMU_LANES]; /* groups of cp.async that each lane has closed */
    uint32_t stores_committed[EMU_LANES];
};

typedef enum emu_pending_kind { EMU_BYTES, EMU_SENT, EMU_BOX, EMU_ARRIVAL } emu_pending_kind;

/* A copy that tells an mbarrier when it has landed. */
struct emu_pending {
    emu_pending *next;
    emu_pending_kind kind;
    emu_warp *warp; /* whose thread started it */
    const emu_instruction *in;
    emu_block *owner; /* where it lands */
    unsigned char *to, *barrier;
    const unsigned char *from; /* BYTES */
    unsigned char data[16];    /* SENT */
    uint32_t bytes;
    uint32_t number; /* races.c's */
    /* BOX */
    emu_tensor_map map;
    int at[5];
    uint32_t to_address; /* of `to`, within its block: the swizzle goes by it */
    /* ARRIVAL, of each lane */
    uint32_t lanes;
    uint64_t stamp; /* it waits for the warp's cp.async before this one */
    unsigned char *barriers[EMU_LANES];
    emu_past *told; /* what these lanes had done when they started it (races.c) */
};

/* Starts it: it lands at once or later, as the order wants. `warp` is filled in. */
void emu_engine_start(emu_warp *warp, emu_pending copy);

/* A warp's own, made when they are first asked for. */
emu_copies *emu_copies_of(emu_warp *warp);

/* bulk.c */
bool emu_bulk_take(const emu_function *function, emu_instruction *in);
void emu_box_load(const emu_pending *copy);
void emu_stores_end(emu_warp *warp);
void emu_stores_free(emu_warp *warp);

#endif
