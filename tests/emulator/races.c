/* races.c - accesses to shared memory that nothing orders. One warp runs at a time here, so a missing barrier shows only where chance lets
 * a warp run ahead; this finds it whatever the order was. For each 16 bytes it keeps who has accessed them since they were last written,
 * and at which tick of his warp's clock; for each thread, which ticks of every other it knows of: those that were told at a barrier
 * that it has waited for (vector clocks). An access must know of every earlier one if either writes.
 *
 * Threads count by themselves: what lane 0 has waited for, the others know only behind bar.warp.sync or, but where EMULATOR_RACES is
 * strict, another instruction that the whole warp comes together for. What goes on by itself is under way, and known to nobody, until it
 * is waited for: wgmma's reads at wgmma.wait_group, a box that is stored at cp.async.bulk.wait_group, cp.async at its wait_group; or until
 * it is told of at its mbarrier, like a bulk copy, and cp.async that arrives there. Called by those who access memory and by those who
 * wait. Global memory is not looked at, nor the scope of what is told at an mbarrier. */
#include "races.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 16,
    MOST_NOTES = 256,
    ENGINE =
        0xffff /* in a warp's place: the copy engine, as if it were one of the block. Each lane is for every 32nd mbarrier */
};
static const uint32_t UNDER_WAY = UINT32_MAX; /* a tick that nobody is told of */

struct emu_past {
    emu_past *made_before; /* of the cluster: all go with it */
    emu_past *spare;
    uint32_t holders;
    uint32_t tick[]; /* of each thread of the cluster, of each block's engine, and of the kernel before: 1 when it has ended */
};

typedef struct note {
    const emu_instruction *in;
    uint32_t lanes, tick;
    uint16_t bytes; /* of the 16 */
    uint16_t warp;
    uint16_t rank;
    uint16_t access;
} note;

typedef struct chunk {
    note *notes;
    uint16_t count, room;
} chunk;

/* A block's book. */
struct emu_races {
    chunk *chunk;    /* of each 16 bytes of its shared memory */
    emu_told *told;  /* of each 8 */
    uint32_t copies; /* that tell an mbarrier of its */
    size_t chunks;
};

struct emu_pasts { /* a cluster's */
    emu_past *made, *spare;
    size_t threads;
};

emu_races_kind emu_races_wanted(void)
{
    const char *wanted = getenv("EMULATOR_RACES");
    if (!wanted || !*wanted || !strcmp(wanted, "0")) return EMU_RACES_NONE;
    return strcmp(wanted, "strict") ? EMU_RACES_LAX : EMU_RACES_STRICT;
}

/* ---- what threads know */

static emu_past *past_new(emu_cluster *cluster)
{
    struct emu_pasts *pasts = cluster->pasts;
    emu_past *past = pasts->spare;
    if (past) {
        pasts->spare = past->spare;
    } else {
        past = malloc(sizeof *past + pasts->threads * sizeof *past->tick);
        if (!past) abort();
        past->made_before = pasts->made;
        pasts->made = past;
    }
    past->holders = 1;
    return past;
}

static void past_drop(emu_cluster *cluster, emu_past *past)
{
    if (!past || --past->holders) return;
    past->spare = cluster->pasts->spare;
    cluster->pasts->spare = past;
}

/* *past becomes one that nobody else holds. */
static void past_own(emu_cluster *cluster, emu_past **past)
{
    if (*past && (*past)->holders == 1) return;
    emu_past *own = past_new(cluster);
    size_t bytes = cluster->pasts->threads * sizeof *own->tick;
    if (*past)
        memcpy(own->tick, (*past)->tick, bytes);
    else
        memset(own->tick, 0, bytes);
    past_drop(cluster, *past);
    *past = own;
}

static bool knows_all(const emu_past *past, const emu_past *of, size_t threads)
{
    uint32_t missing = 0;
    for (size_t i = 0; i < threads; ++i) missing |= past->tick[i] < of->tick[i];
    return !missing;
}

void emu_race_add(emu_cluster *cluster, emu_past **into, emu_past *from)
{
    size_t threads = cluster->pasts->threads;
    if (!from || *into == from) return;
    if (!*into || knows_all(from, *into, threads)) {
        from->holders++;
        past_drop(cluster, *into);
        *into = from;
        return;
    }
    if (knows_all(*into, from, threads)) return;
    past_own(cluster, into);
    for (size_t i = 0; i < threads; ++i)
        if ((*into)->tick[i] < from->tick[i]) (*into)->tick[i] = from->tick[i];
}

static size_t first_thread(const emu_block *block, uint32_t rank, uint32_t warp)
{
    size_t warps = (size_t)block->warps;
    return (warp == ENGINE ? block->cluster->blocks * warps + rank : rank * warps + warp) * EMU_LANES;
}

void emu_race_release(emu_warp *warp, uint32_t lanes, emu_past **to)
{
    emu_cluster *cluster = warp->block->cluster;
    if (!cluster->pasts) return;
    const emu_past *before = NULL; /* what the lane before knew, which is mostly the same */
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(lanes >> lane & 1) || warp->past[lane] == before) continue;
        emu_race_add(cluster, to, warp->past[lane]);
        before = warp->past[lane];
    }
    past_own(cluster, to);
    uint32_t *own = (*to)->tick + first_thread(warp->block, warp->block->rank, (uint32_t)warp->index);
    for (int lane = 0; lane < EMU_LANES; ++lane)
        if (lanes >> lane & 1) own[lane] = warp->tick;
    warp->tick++;
}

/* Of neighbours each has its own, so that a copy's end tells nothing of another's that goes on. */
static uint32_t lane_of_barrier(const emu_block *owner, const unsigned char *barrier)
{
    return (uint32_t)(barrier - owner->shared) / 8 % EMU_LANES;
}

void emu_race_release_copy(const emu_block *told, const unsigned char *barrier, uint32_t number, emu_past **to)
{
    if (!number) return;
    past_own(told->cluster, to);
    uint32_t *known = (*to)->tick + first_thread(told, told->rank, ENGINE) + lane_of_barrier(told, barrier);
    if (*known < number) *known = number;
}

void emu_race_acquire(emu_warp *warp, uint32_t lanes, emu_past *from)
{
    emu_cluster *cluster = warp->block->cluster;
    const emu_past *before = NULL; /* likewise */
    emu_past *after = NULL;
    if (!cluster->pasts || !from) return;
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(lanes >> lane & 1)) continue;
        if (after && warp->past[lane] == before) {
            after->holders++;
            past_drop(cluster, warp->past[lane]);
            warp->past[lane] = after;
            continue;
        }
        before = warp->past[lane];
        emu_race_add(cluster, &warp->past[lane], from);
        after = warp->past[lane];
    }
}

void emu_race_meet(emu_warp *warp, uint32_t lanes)
{
    emu_past *all = NULL;
    if (!warp->block->cluster->pasts) return;
    emu_race_release(warp, lanes, &all);
    emu_race_acquire(warp, lanes, all);
    past_drop(warp->block->cluster, all);
}

void emu_race_move(emu_cluster *cluster, emu_past **into, emu_past **from)
{
    if (!cluster->pasts) return;
    emu_race_add(cluster, into, *from);
    emu_race_forget(cluster, from);
}

void emu_race_forget(emu_cluster *cluster, emu_past **past)
{
    past_drop(cluster, *past);
    *past = NULL;
}

void emu_race_hear_end(emu_warp *warp, uint32_t lanes)
{
    emu_cluster *cluster = warp->block->cluster;
    emu_past *end = NULL;
    if (!cluster->pasts) return;
    past_own(cluster, &end);
    end->tick[cluster->pasts->threads - 1] = 1;
    emu_race_acquire(warp, lanes, end);
    past_drop(cluster, end);
}

bool emu_race_heard_end(const emu_warp *warp, int lane)
{
    const emu_past *past = warp->past[lane];
    return past && past->tick[warp->block->cluster->pasts->threads - 1];
}

emu_told *emu_race_told(const emu_block *owner, const unsigned char *barrier)
{
    return owner->races ? &owner->races->told[(size_t)(barrier - owner->shared) / 8] : NULL;
}

/* ---- who has accessed what */

/* The 16 bytes, one after the other, that an access touches. */
typedef struct walk {
    struct emu_races *races;
    size_t at, end;
    chunk *book;
    uint16_t bytes; /* of these 16 */
} walk;

static walk walk_of(const emu_block *owner, const unsigned char *at, size_t bytes)
{
    size_t begin = (size_t)(at - owner->shared);
    return (walk){.races = owner->races, .at = begin, .end = begin + bytes};
}

static bool walk_on(walk *w)
{
    if (w->at >= w->end) return false;
    size_t first = w->at % CHUNK, last = w->at - first + CHUNK <= w->end ? CHUNK : w->end % CHUNK;
    w->book = &w->races->chunk[w->at / CHUNK];
    w->bytes = (uint16_t)((1u << last) - (1u << first));
    w->at += CHUNK - first;
    return true;
}

static bool lane_knows(const emu_warp *warp, int lane, const note *n)
{
    const emu_past *past = warp->past[lane];
    bool same_warp = n->warp == warp->index && n->rank == warp->block->rank;
    uint32_t others = same_warp ? n->lanes & ~(1u << lane) : n->lanes;
    const uint32_t *tick = past ? past->tick + first_thread(warp->block, n->rank, n->warp) : NULL;
    for (; others; others &= others - 1)
        if (!tick || tick[__builtin_ctz(others)] < n->tick) return false;
    return true;
}

static bool any_lane_knows(const emu_warp *warp, const note *n)
{
    for (int lane = 0; lane < EMU_LANES; ++lane)
        if ((!lane || warp->past[lane] != warp->past[lane - 1] || n->warp == warp->index) && lane_knows(warp, lane, n))
            return true;
    return false;
}

_Noreturn static void tell_race(emu_warp *warp, const emu_instruction *in, int lane, const emu_block *owner, size_t chunk_index,
                                const note *n, emu_access access)
{
    static const char *const done[] = {"read", "written", "added to"}, *const doing[] = {"reads", "writes", "adds to"};
    char who[64] = "the copy engine";
    if (n->warp != ENGINE)
        snprintf(who, sizeof who, "lanes 0x%x of warp %u of block %u", n->lanes, (unsigned)n->warp, (unsigned)n->rank);
    emu_fail(warp, in, lane == EMU_ANY_LANE ? -1 : lane,
             "a race: it %s 0x%zx of block %u of the cluster, which was %s at line %d (%s) by %s, and nothing orders the two",
             doing[access], EMU_SHARED_FIRST + chunk_index * CHUNK, (unsigned)owner->rank, done[n->access], n->in->line,
             n->in->opcode, who);
}

void emu_race_check(emu_warp *warp, const emu_instruction *in, int lane, const emu_block *owner, const unsigned char *at,
                    size_t bytes, emu_access access)
{
    if (!owner->races) return;
    for (walk w = walk_of(owner, at, bytes); walk_on(&w);)
        for (uint16_t i = 0; i < w.book->count; ++i) {
            const note *n = &w.book->notes[i];
            bool agree = access != EMU_WRITES && n->access == access; /* reads, or sums */
            if (!(n->bytes & w.bytes) || agree) continue;
            if (lane == EMU_ANY_LANE ? !any_lane_knows(warp, n) : !lane_knows(warp, lane, n))
                tell_race(warp, in, lane, owner, (size_t)(w.book - owner->races->chunk), n, access);
        }
}

/* Behind a write nobody need ask for what came before: he would have to know of the write, and who wrote knew of that. Behind a thread's
 * read the same holds for its earlier ones; but what is under way ends by its own instruction. Whether nothing is left of it. */
static bool cover(note *before, const note *by)
{
    bool same = before->access == by->access && before->warp == by->warp && before->rank == by->rank &&
                (before->tick != UNDER_WAY || before->in == by->in);
    if (by->access == EMU_WRITES || (same && !(before->lanes & ~by->lanes)))
        before->bytes &= (uint16_t)~by->bytes;
    else if (same && !(before->bytes & ~by->bytes))
        before->lanes &= ~by->lanes;
    return !before->bytes || !before->lanes;
}

static void add_note(chunk *book, note n)
{
    uint16_t kept = 0;
    for (uint16_t i = 0; i < book->count; ++i)
        if (!cover(&book->notes[i], &n)) book->notes[kept++] = book->notes[i];
    book->count = kept;
    for (uint16_t i = 0; i < kept; ++i) {
        note *other = &book->notes[i];
        if (other->in != n.in || other->tick != n.tick || other->warp != n.warp || other->rank != n.rank ||
            other->access != n.access)
            continue;
        if (other->bytes == n.bytes) {
            other->lanes |= n.lanes;
            return;
        }
        if (other->lanes == n.lanes) {
            other->bytes |= n.bytes;
            return;
        }
    }
    if (kept == MOST_NOTES) { /* the oldest is not looked for any more */
        memmove(book->notes, book->notes + 1, (size_t)--book->count * sizeof *book->notes);
    } else if (kept == book->room) {
        book->room = (uint16_t)(book->room ? 2 * book->room : 4);
        book->notes = realloc(book->notes, book->room * sizeof *book->notes);
        if (!book->notes) abort();
    }
    book->notes[book->count++] = n;
}

static void note_all(const emu_block *owner, const unsigned char *at, size_t bytes, note n)
{
    for (walk w = walk_of(owner, at, bytes); walk_on(&w);) {
        n.bytes = w.bytes;
        add_note(w.book, n);
    }
}

static void note_at(emu_warp *warp, const emu_instruction *in, uint32_t lanes, const emu_block *owner, const unsigned char *at,
                    size_t bytes, emu_access access, uint32_t tick)
{
    if (!owner->races) return;
    note n = {.in = in,
              .lanes = lanes,
              .tick = tick,
              .warp = (uint16_t)warp->index,
              .rank = (uint16_t)warp->block->rank,
              .access = (uint16_t)access};
    note_all(owner, at, bytes, n);
}

void emu_race_note(emu_warp *warp, const emu_instruction *in, uint32_t lanes, const emu_block *owner, const unsigned char *at,
                   size_t bytes, emu_access access)
{
    note_at(warp, in, lanes, owner, at, bytes, access, warp->tick);
}

void emu_race_begin(emu_warp *warp, const emu_instruction *in, uint32_t lanes, const emu_block *owner, const unsigned char *at,
                    size_t bytes, emu_access access)
{
    note_at(warp, in, lanes, owner, at, bytes, access, UNDER_WAY);
}

uint32_t emu_race_number_copy(const emu_block *owner) { return owner->races ? ++owner->races->copies : 0; }

void emu_race_note_copy(const emu_instruction *in, uint32_t number, const emu_block *told, const unsigned char *barrier,
                        const emu_block *owner, const unsigned char *at, size_t bytes, emu_access access)
{
    if (!number) return;
    note n = {.in = in,
              .lanes = 1u << lane_of_barrier(told, barrier),
              .tick = number,
              .warp = ENGINE,
              .rank = (uint16_t)told->rank,
              .access = (uint16_t)access};
    note_all(owner, at, bytes, n);
}

/* ---- books */

void emu_races_open(emu_cluster *cluster)
{
    cluster->pasts = calloc(1, sizeof *cluster->pasts);
    if (!cluster->pasts) abort();
    cluster->pasts->threads = first_thread(&cluster->block[0], cluster->blocks, ENGINE) + 1;
    for (uint32_t b = 0; b < cluster->blocks; ++b) {
        emu_block *block = &cluster->block[b];
        size_t bytes = cluster->grid->shared_bytes;
        struct emu_races *races = calloc(1, sizeof *races);
        if (!races) abort();
        races->chunks = bytes / CHUNK + 1;
        races->chunk = calloc(races->chunks, sizeof *races->chunk);
        races->told = calloc(bytes / 8 + 1, sizeof *races->told);
        if (!races->chunk || !races->told) abort();
        block->races = races;
        for (int w = 0; w < block->warps; ++w) block->warp[w].tick = 1;
    }
}

void emu_races_close(emu_cluster *cluster)
{
    if (!cluster->pasts) return;
    for (emu_past *past = cluster->pasts->made; past;) {
        emu_past *before = past->made_before;
        free(past);
        past = before;
    }
    for (uint32_t b = 0; b < cluster->blocks; ++b) {
        struct emu_races *races = cluster->block[b].races;
        for (size_t i = 0; i < races->chunks; ++i) free(races->chunk[i].notes);
        free(races->chunk);
        free(races->told);
        free(races);
    }
    free(cluster->pasts);
    cluster->pasts = NULL;
}
