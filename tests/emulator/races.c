/* races.c - accesses to shared memory that nothing orders. One warp runs at a time here, so a missing barrier shows only where chance lets
 * a warp run ahead; this finds it whatever the order was. For each 16 bytes it keeps who has accessed them since they were last written,
 * and at which tick of his warp's clock; races_past.c has, for each thread, which ticks of every other it knows of: those that were told at
 * a barrier that it has waited for (vector clocks). An access must know of every earlier one if either writes.
 *
 * What goes on by itself is under way, and known to nobody, until it is waited for: wgmma's reads at wgmma.wait_group, a box that is
 * stored at cp.async.bulk.wait_group, cp.async at its wait_group; or until it is told of at its mbarrier, like a bulk copy, and cp.async
 * that arrives there. Called by those who access memory. races_global.c does the same for global memory. */
#include "races_note.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NOTES = 256 };

/* A block's book. */
struct emu_races {
    emu_chunk *chunk; /* of each 16 bytes of its shared memory */
    emu_told *told;   /* of each 8 */
    uint32_t copies;  /* that tell an mbarrier of its */
    size_t chunks, barriers;
};

emu_races_kind emu_races_wanted(bool *of_global)
{
    const char *wanted = getenv("EMULATOR_RACES");
    *of_global = false;
    if (!wanted || !*wanted || !strcmp(wanted, "0")) return EMU_RACES_NONE;
    *of_global = strcmp(wanted, "shared") != 0;
    return strcmp(wanted, "strict") ? EMU_RACES_LAX : EMU_RACES_STRICT;
}

emu_told *emu_race_told(const emu_block *owner, const unsigned char *barrier)
{
    return owner->races ? &owner->races->told[(size_t)(barrier - owner->shared) / 8] : NULL;
}

/* Of neighbours each has its own, so that a copy's end tells nothing of another's that goes on. */
static uint32_t lane_of_barrier(const emu_block *owner, const unsigned char *barrier)
{
    return (uint32_t)(barrier - owner->shared) / 8 % EMU_LANES;
}

void emu_race_release_copy(const emu_block *told, const unsigned char *barrier, uint32_t number, emu_past **to)
{
    if (number) emu_race_release_tick(told, lane_of_barrier(told, barrier), number, to);
}

/* ---- notes */

emu_note emu_note_of_copy(const emu_instruction *in, uint32_t number, const emu_block *told, const unsigned char *barrier,
                          emu_access access)
{
    return (emu_note){.in = in,
                      .lanes = 1u << lane_of_barrier(told, barrier),
                      .tick = number,
                      .cluster = told->cluster->number,
                      .warp = EMU_ENGINE,
                      .rank = (uint16_t)told->rank,
                      .access = (uint16_t)access};
}

bool emu_note_agrees(const emu_note *n, const emu_block *block, emu_access access)
{
    unsigned one = n->access & EMU_SCOPE, other = access & EMU_SCOPE, least = one < other ? one : other;
    if ((n->access & EMU_DOES) == EMU_READS && (access & EMU_DOES) == EMU_READS) return true;
    if (!least || n->cluster != block->cluster->number) return least == EMU_GPU;
    return n->rank == block->rank || least >= EMU_CLUSTER;
}

bool emu_note_known(const emu_warp *warp, int lane, const emu_note *n)
{
    const emu_past *past = warp->past[lane];
    uint32_t own = warp->block->cluster->number, others = n->lanes;
    bool apart = n->access & EMU_ASYNC && n->tick == EMU_UNDER_WAY; /* even from the lane that started it */
    if (n->warp == warp->index && n->rank == warp->block->rank && n->cluster == own && !apart) {
        others &= ~(1u << lane);
        if ((n->access & EMU_DOES) == EMU_READS && n->tick <= warp->exchanged[lane].tick)
            others &= ~warp->exchanged[lane].lanes;
    }
    if (!others || !past) return !others;
    const uint32_t *known = n->cluster == own ? past->tick : emu_world_ticks(past->far, n->cluster), *reads = NULL;
    if (past->reads && ((n->access & EMU_DOES) == EMU_READS || n->warp == EMU_ENGINE)) /* what has landed has done so for all */
        reads = emu_world_ticks(past->reads, n->cluster);
    size_t first = emu_past_first(warp->block, n->rank, n->warp);
    for (; others; others &= others - 1) {
        size_t thread = first + (size_t)__builtin_ctz(others);
        if ((!known || known[thread] < n->tick) && (!reads || reads[thread] < n->tick)) return false;
    }
    return true;
}

bool emu_note_fenced(const emu_warp *warp, int lane, const emu_note *n)
{
    const emu_past *past = warp->past[lane];
    const uint32_t *fenced = past ? emu_world_ticks(past->fenced, n->cluster) : NULL;
    if (!fenced) return false;
    fenced += emu_past_first(warp->block, n->rank, n->warp);
    for (uint32_t lanes = n->lanes; lanes; lanes &= lanes - 1)
        if (fenced[__builtin_ctz(lanes)] < n->tick) return false;
    return true;
}

/* Behind a write nobody need ask for what came before: he would have to know of the write, and who wrote knew of that. Behind a thread's
 * read the same holds for its earlier ones; but what is under way ends by its own instruction. Whether nothing is left of it. */
static bool cover(emu_note *before, const emu_note *by)
{
    bool same = before->access == by->access && before->warp == by->warp && before->rank == by->rank &&
                before->cluster == by->cluster && (before->tick != EMU_UNDER_WAY || before->in == by->in);
    if ((by->access & EMU_DOES) == EMU_WRITES || (same && !(before->lanes & ~by->lanes)))
        before->bytes &= (uint16_t)~by->bytes;
    else if (same && !(before->bytes & ~by->bytes))
        before->lanes &= ~by->lanes;
    return !before->bytes || !before->lanes;
}

bool emu_chunk_settle(emu_chunk *chunk, const emu_note *n)
{
    uint16_t kept = 0;
    for (uint16_t i = 0; i < chunk->count; ++i)
        if (!cover(&chunk->notes[i], n)) chunk->notes[kept++] = chunk->notes[i];
    chunk->count = kept;
    for (uint16_t i = 0; i < kept; ++i) {
        emu_note *other = &chunk->notes[i];
        if (other->in != n->in || other->tick != n->tick || other->warp != n->warp || other->rank != n->rank ||
            other->cluster != n->cluster || other->access != n->access)
            continue;
        if (other->bytes == n->bytes) {
            other->lanes |= n->lanes;
            return true;
        }
        if (other->lanes == n->lanes) {
            other->bytes |= n->bytes;
            return true;
        }
    }
    return false;
}

void emu_note_tell(const emu_note *n, const emu_grid *grid, char *text, size_t size)
{
    static const char *const done[] = {"read", "written", "added to"};
    char who[96];
    uint32_t block = n->cluster % (grid->grid[0] / grid->cluster) * grid->cluster + n->rank; /* along x */
    if (n->warp == EMU_ENGINE)
        snprintf(who, sizeof who, "the copy engine for block %u", block);
    else
        snprintf(who, sizeof who, "lanes 0x%x of warp %u of block %u", n->lanes, (unsigned)n->warp, block);
    snprintf(text, size, "%s at line %d (%s) by %s", done[n->access & EMU_DOES], n->in->line, n->in->opcode, who);
}

/* ---- who has accessed what */

static bool any_lane_knows(const emu_warp *warp, const emu_note *n)
{
    for (int lane = 0; lane < EMU_LANES; ++lane)
        if ((!lane || warp->past[lane] != warp->past[lane - 1] || n->warp == warp->index) && emu_note_known(warp, lane, n))
            return true;
    return false;
}

_Noreturn static void tell_race(emu_warp *warp, const emu_instruction *in, int lane, const emu_block *owner, uint64_t chunk,
                                const emu_note *n, emu_access access)
{
    static const char *const doing[] = {"reads", "writes", "adds to"};
    char before[256];
    emu_note_tell(n, warp->block->grid, before, sizeof before);
    emu_fail(warp, in, lane == EMU_ANY_LANE ? -1 : lane,
             "a race: it %s 0x%llx of block %u of the cluster, which was %s, and nothing orders the two",
             doing[access & EMU_DOES], (unsigned long long)(EMU_SHARED_FIRST + chunk * EMU_CHUNK), (unsigned)owner->rank,
             before);
}

static emu_walk walk_of(const emu_block *owner, const unsigned char *at, size_t bytes)
{
    uint64_t begin = (uint64_t)(at - owner->shared);
    return (emu_walk){.at = begin, .end = begin + bytes};
}

void emu_race_check(emu_warp *warp, const emu_instruction *in, int lane, const emu_block *owner, const unsigned char *at,
                    size_t bytes, emu_access access)
{
    if (!owner->races) return;
    for (emu_walk w = walk_of(owner, at, bytes); emu_walk_on(&w);) {
        const emu_chunk *book = &owner->races->chunk[w.chunk];
        for (uint16_t i = 0; i < book->count; ++i) {
            const emu_note *n = &book->notes[i];
            if (!(n->bytes & w.bytes) || emu_note_agrees(n, warp->block, access)) continue;
            if (lane == EMU_ANY_LANE ? !any_lane_knows(warp, n) : !emu_note_known(warp, lane, n))
                tell_race(warp, in, lane, owner, w.chunk, n, access);
        }
    }
}

static void add_note(emu_chunk *book, emu_note n)
{
    if (emu_chunk_settle(book, &n)) return;
    if (book->count == MOST_NOTES) { /* the oldest is not looked for any more */
        memmove(book->notes, book->notes + 1, (size_t)--book->count * sizeof *book->notes);
    } else if (book->count == book->room) {
        book->room = (uint16_t)(book->room ? 2 * book->room : 4);
        book->notes = realloc(book->notes, book->room * sizeof *book->notes);
        if (!book->notes) abort();
    }
    book->notes[book->count++] = n;
}

static void note_all(const emu_block *owner, const unsigned char *at, size_t bytes, emu_note n)
{
    for (emu_walk w = walk_of(owner, at, bytes); emu_walk_on(&w);) {
        n.bytes = w.bytes;
        add_note(&owner->races->chunk[w.chunk], n);
    }
}

void emu_race_note(emu_warp *warp, const emu_instruction *in, uint32_t lanes, const emu_block *owner, const unsigned char *at,
                   size_t bytes, emu_access access)
{
    if (owner->races) note_all(owner, at, bytes, emu_note_of(warp, in, lanes, warp->tick, access));
}

void emu_race_begin(emu_warp *warp, const emu_instruction *in, uint32_t lanes, const emu_block *owner, const unsigned char *at,
                    size_t bytes, emu_access access)
{
    if (owner->races) note_all(owner, at, bytes, emu_note_of(warp, in, lanes, EMU_UNDER_WAY, access));
}

uint32_t emu_race_number_copy(const emu_block *owner) { return owner->races ? ++owner->races->copies : 0; }

void emu_race_note_copy(const emu_instruction *in, uint32_t number, const emu_block *told, const unsigned char *barrier,
                        const emu_block *owner, const unsigned char *at, size_t bytes, emu_access access)
{
    if (number) note_all(owner, at, bytes, emu_note_of_copy(in, number, told, barrier, access));
}

/* ---- books */

void emu_races_open(emu_cluster *cluster)
{
    emu_pasts_join(cluster);
    for (uint32_t b = 0; b < cluster->blocks; ++b) {
        emu_block *block = &cluster->block[b];
        size_t bytes = cluster->grid->shared_bytes;
        struct emu_races *races = calloc(1, sizeof *races);
        if (!races) abort();
        races->chunks = bytes / EMU_CHUNK + 1;
        races->barriers = bytes / 8 + 1;
        races->chunk = calloc(races->chunks, sizeof *races->chunk);
        races->told = calloc(races->barriers, sizeof *races->told);
        if (!races->chunk || !races->told) abort();
        block->races = races;
        for (int w = 0; w < block->warps; ++w) block->warp[w].tick = 1;
    }
}

/* What its threads knew, others of the launch may use again. */
static void forget_block(emu_block *block)
{
    emu_cluster *cluster = block->cluster;
    struct emu_races *races = block->races;
    for (int w = 0; w < block->warps; ++w) {
        for (int lane = 0; lane < EMU_LANES; ++lane) emu_race_forget(cluster, &block->warp[w].past[lane]);
        emu_fences_free(&block->warp[w]);
    }
    for (int i = 0; i < 16; ++i) {
        emu_race_forget(cluster, &block->barrier[i].coming);
        emu_race_forget(cluster, &block->barrier[i].ended);
    }
    for (size_t i = 0; i < races->barriers; ++i) {
        emu_race_forget(cluster, &races->told[i].coming);
        emu_race_forget(cluster, &races->told[i].ended);
        emu_race_forget(cluster, &races->told[i].far_coming);
        emu_race_forget(cluster, &races->told[i].far_ended);
    }
}

void emu_races_close(emu_cluster *cluster)
{
    if (!cluster->pasts) return;
    emu_race_forget(cluster, &cluster->coming);
    emu_race_forget(cluster, &cluster->ended);
    for (uint32_t b = 0; b < cluster->blocks; ++b) {
        struct emu_races *races = cluster->block[b].races;
        forget_block(&cluster->block[b]);
        for (size_t i = 0; i < races->chunks; ++i) free(races->chunk[i].notes);
        free(races->chunk);
        free(races->told);
        free(races);
    }
    emu_flags_free(cluster->flags);
    cluster->pasts = NULL;
}
