/* engine.c - copies that go on by themselves, and how they tell that they are done: cp.async and its groups, bulk and tensor copies, sums
 * sent to another block, and mbarriers. Found by parse.c; machine.c calls emu_engine_advance when all threads wait.
 *
 * A copy may land at any time after it was started. With EMU_LATE it lands when nobody can go on without it, those that are under way in
 * any order, and its destination is all ones until then: who reads too early, or starts a copy into what others still read, gets NaNs
 * (wgmma's operands are compared besides, matrix.c). What a copy reads, it reads when it lands. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

/* ---- mbarriers: 64 bits of shared memory that nobody but these instructions reads */

enum { COUNT_BITS = 20, BYTES_BITS = 23 };
static const uint32_t most_count = (1u << COUNT_BITS) - 1;

typedef struct barrier {
    uint32_t left, expected, parity;
    int32_t bytes;
} barrier;

static barrier read_barrier(const unsigned char *at)
{
    uint64_t bits;
    memcpy(&bits, at, sizeof bits);
    uint32_t bytes = (uint32_t)(bits >> 2 * COUNT_BITS) & ((1u << BYTES_BITS) - 1);
    return (barrier){(uint32_t)bits & most_count, (uint32_t)(bits >> COUNT_BITS) & most_count, (uint32_t)(bits >> 63),
                     (int32_t)bytes - (1 << (BYTES_BITS - 1))};
}

static void write_barrier(unsigned char *at, barrier b)
{
    if (b.left == 0 && b.bytes == 0) b.left = b.expected, b.parity ^= 1;
    uint64_t bits = (uint64_t)b.left | (uint64_t)b.expected << COUNT_BITS |
                    (uint64_t)(uint32_t)(b.bytes + (1 << (BYTES_BITS - 1))) << 2 * COUNT_BITS | (uint64_t)b.parity << 63;
    memcpy(at, &bits, sizeof bits);
}

static unsigned char *barrier_at(emu_warp *warp, const emu_instruction *in, uint64_t address)
{
    if (address % 8)
        emu_fail(warp, in, -1, "an mbarrier at 0x%llx, which is not aligned to 8 bytes", (unsigned long long)address);
    return emu_shared(warp, in, address, 8, "asks an mbarrier in");
}

/* Memory that nobody wrote is all ones, and so are what a copy will land in and stages. */
static barrier known_barrier(emu_warp *warp, const emu_instruction *in, const unsigned char *at)
{
    barrier b = read_barrier(at);
    if (b.expected == 0 || b.expected == most_count) emu_fail(warp, in, -1, "an mbarrier that was not initialised");
    return b;
}

/* What was told at it goes to those who wait, where this was the last that its phase waited for. */
static void change_barrier(const emu_block *owner, unsigned char *at, barrier b)
{
    emu_told *told = emu_race_told(owner, at);
    if (told && b.left == 0 && b.bytes == 0) {
        emu_race_move(owner->cluster, &told->ended, &told->coming);
        emu_race_move(owner->cluster, &told->far_ended, &told->far_coming);
    }
    write_barrier(at, b);
}

static void arrive_at(emu_warp *warp, const emu_instruction *in, const emu_block *owner, unsigned char *at, uint32_t count,
                      uint32_t expects)
{
    barrier b = known_barrier(warp, in, at);
    if (b.left < count)
        emu_fail(warp, in, -1, "%u arrive at an mbarrier where %u of %u are to come", count, b.left, b.expected);
    b.left -= count;
    b.bytes += (int32_t)expects;
    change_barrier(owner, at, b);
}

/* Bytes have landed. The barrier was there when the copy was started. */
static void complete(emu_warp *warp, const emu_instruction *in, const emu_block *owner, unsigned char *at, uint32_t bytes)
{
    barrier b = known_barrier(warp, in, at);
    b.bytes -= (int32_t)bytes;
    change_barrier(owner, at, b);
}

/* A lane asks an mbarrier: it must know that it is initialised. */
static unsigned char *barrier_of(emu_warp *warp, const emu_instruction *in, uint64_t address, int lane, emu_block **owner)
{
    unsigned char *at = barrier_at(warp, in, address);
    address = (uint32_t)address;
    *owner = emu_shared_owner(warp, in, &address);
    emu_race_check(warp, in, lane, *owner, at, 8, EMU_READS);
    return at;
}

static emu_outcome run_init(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        unsigned char *at = barrier_at(warp, in, emu_address(warp, &in->operand[0], lane));
        uint32_t count = emu_u32(warp, in->operand[1].slot)[lane];
        if (!count || count >= most_count) emu_fail(warp, in, lane, "an mbarrier for %u arrivals", count);
        write_barrier(at, (barrier){.left = count, .expected = count});
        emu_saw_write(warp, warp->block, at, 8);
        emu_race_check(warp, in, lane, warp->block, at, 8, EMU_WRITES);
        emu_race_note(warp, in, 1u << lane, warp->block, at, 8, EMU_WRITES);
        emu_told *told = emu_race_told(warp->block, at);
        if (!told) continue;
        emu_race_forget(warp->block->cluster, &told->coming);
        emu_race_forget(warp->block->cluster, &told->ended);
        emu_race_forget(warp->block->cluster, &told->far_coming);
        emu_race_forget(warp->block->cluster, &told->far_ended);
    }
    return EMU_STEP;
}

/* Arrivals release to their own block unless they say more. Beyond that they tell only what was read: a value that a thread has, it has
 * whatever others see. Kernels give stages back so, as CUTLASS does; what they wrote would need .release.cluster, and .acquire.cluster of who
 * waits. */
static void release_arrival(emu_warp *warp, const emu_instruction *in, int lane, const emu_block *owner, emu_told *told)
{
    emu_cluster *cluster = owner->cluster;
    if (emu_has_part(in, "relaxed")) return;
    if (owner == warp->block) {
        emu_race_release(warp, 1u << lane, &told->coming);
    } else if (emu_scope_of(in, EMU_CTA) > EMU_CTA) {
        emu_race_release(warp, 1u << lane, &told->far_coming);
    } else {
        emu_past *done = NULL;
        emu_race_release(warp, 1u << lane, &done);
        emu_race_add_reads(cluster, &told->coming, done);
        emu_race_forget(cluster, &done);
    }
}

static void acquire_far(emu_warp *warp, const emu_instruction *in, uint32_t lanes, emu_past *far)
{
    emu_past *reads = NULL;
    if (!far) return;
    if (emu_scope_of(in, EMU_CTA) > EMU_CTA) {
        emu_race_acquire(warp, lanes, far);
        return;
    }
    emu_race_add_reads(warp->block->cluster, &reads, far);
    emu_race_acquire(warp, lanes, reads);
    emu_race_forget(warp->block->cluster, &reads);
}

/* mbarrier.arrive(.expect_tx): number[0] where the address stands, number[1] whether bytes are announced; slot[0] how many bytes, slot[1]
 * how many arrive. */
static emu_outcome run_arrive(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        emu_block *owner;
        unsigned char *at = barrier_of(warp, in, emu_address(warp, &in->operand[in->number[0]], lane), lane, &owner);
        uint32_t bytes = in->slot[0] == EMU_NONE ? 0 : emu_u32(warp, in->slot[0])[lane];
        uint32_t count = in->slot[1] == EMU_NONE ? 1 : emu_u32(warp, in->slot[1])[lane];
        if (in->number[0] && in->operand[0].kind == EMU_REGISTER)
            emu_u64(warp, in->operand[0].slot)[lane] = read_barrier(at).parity;
        if (owner->races) release_arrival(warp, in, lane, owner, emu_race_told(owner, at));
        arrive_at(warp, in, owner, at, count, bytes);
    }
    return EMU_STEP;
}

/* mbarrier.try_wait and test_wait .parity: whether the phase of that parity has ended. The first waits. */
static emu_outcome run_wait(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    uint32_t ended = 0, told = 0; /* told: lanes that have what was said at a barrier */
    emu_told *of[EMU_LANES];
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        emu_block *owner;
        unsigned char *at = barrier_of(warp, in, emu_address(warp, &in->operand[1], lane), lane, &owner);
        if (known_barrier(warp, in, at).parity == (emu_u32(warp, in->operand[2].slot)[lane] & 1)) continue;
        ended |= 1u << lane;
        of[lane] = emu_race_told(owner, at);
    }
    for (int first = 0; first < EMU_LANES; ++first) {
        if (!((ended & ~told) >> first & 1) || !of[first]) continue;
        uint32_t alike = 0;
        for (int lane = first; lane < EMU_LANES; ++lane)
            if (ended >> lane & 1 && of[lane] == of[first]) alike |= 1u << lane;
        emu_race_acquire(warp, alike, of[first]->ended);
        acquire_far(warp, in, alike, of[first]->far_ended);
        told |= alike;
    }
    if (!ended && in->number[0]) return EMU_STALL;
    for (int lane = 0; lane < EMU_LANES; ++lane)
        if (mask >> lane & 1) emu_u32(warp, in->operand[0].slot)[lane] = ended >> lane & 1;
    return ended == mask ? EMU_STEP : EMU_YIELD;
}

/* ---- copies under way */

emu_copies *emu_copies_of(emu_warp *warp)
{
    if (!warp->copies) {
        warp->copies = calloc(1, sizeof *warp->copies);
        if (!warp->copies) abort();
        warp->copies->end = &warp->copies->first;
    }
    return warp->copies;
}

static void poison(const emu_warp *warp, unsigned char *at, size_t bytes)
{
    if (warp->block->grid->order != EMU_EARLY) memset(at, 0xff, bytes);
}

#define EIGHT UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX
static const uint32_t every_group[EMU_LANES] = {EIGHT, EIGHT, EIGHT, EIGHT};

/* Lands what a lane's cp.async brings. */
static void land_lane(emu_warp *warp, const emu_lane_copy *copy, int lane)
{
    emu_saw_write(warp, warp->block, copy->to[lane], copy->bytes);
    if (copy->from[lane])
        memcpy(copy->to[lane], copy->from[lane], copy->bytes);
    else
        memset(copy->to[lane], 0, copy->bytes);
}

/* Lands a warp's cp.async that `lanes` started in groups before the one that each lane's `before` names, and before `stamp`. What was
 * `waited` for is written by now, as far as the lane may tell others. */
static void land_lanes(emu_warp *warp, uint32_t lanes, const uint32_t *before, uint64_t stamp, bool waited)
{
    emu_copies *copies = warp->copies;
    if (!copies) return;
    for (emu_lane_copy **at = &copies->first; *at;) {
        emu_lane_copy *copy = *at;
        for (int lane = 0; lane < EMU_LANES; ++lane) {
            if (!(copy->lanes & lanes & 1u << lane) || copy->group[lane] >= before[lane] || copy->stamp >= stamp) continue;
            if (!copy->landed) land_lane(warp, copy, lane);
            copy->lanes &= ~(1u << lane);
            if (waited && !(copy->told >> lane & 1))
                emu_race_note(warp, copy->in, 1u << lane, warp->block, copy->to[lane], copy->bytes, EMU_WRITES);
        }
        if (copy->lanes) {
            at = &copy->next;
        } else {
            *at = copy->next;
            free(copy);
        }
    }
    copies->end = &copies->first;
    while (*copies->end) copies->end = &(*copies->end)->next;
}

/* What the lanes of an arrival had done when they started it, and what they had copied there. */
static void tell_barriers(emu_pending *copy)
{
    for (int lane = 0; copy->told && lane < EMU_LANES; ++lane) {
        if (!(copy->lanes >> lane & 1) || (lane && copy->barriers[lane] == copy->barriers[lane - 1])) continue;
        emu_past **coming = &emu_race_told(copy->owner, copy->barriers[lane])->coming;
        emu_race_add(copy->owner->cluster, coming, copy->told);
        emu_race_release_copy(copy->owner, copy->barriers[lane], copy->number, coming);
    }
    emu_race_forget(copy->owner->cluster, &copy->told);
}

static void land(emu_pending *copy)
{
    emu_warp *warp = copy->warp;
    if (!copy->owner->running)
        emu_fail(warp, copy->in, -1, "it lands in block %u of the grid, which has ended", copy->owner->id[0]);
    if (copy->kind == EMU_ARRIVAL) {
        land_lanes(warp, copy->lanes, every_group, copy->stamp, false);
        tell_barriers(copy);
        for (int lane = 0; lane < EMU_LANES; ++lane)
            if (copy->lanes >> lane & 1) arrive_at(warp, copy->in, copy->owner, copy->barriers[lane], 1, 0);
        return;
    }
    if (copy->kind == EMU_BOX)
        emu_box_load(copy);
    else
        memcpy(copy->to, copy->kind == EMU_SENT ? copy->data : copy->from, copy->bytes);
    emu_saw_landing(copy->owner, copy->to, copy->bytes);
    warp->block->grid->counts.async_bytes += copy->bytes;
    if (copy->number)
        emu_race_release_copy(copy->owner, copy->barrier, copy->number, &emu_race_told(copy->owner, copy->barrier)->coming);
    complete(warp, copy->in, copy->owner, copy->barrier, copy->bytes);
}

void emu_engine_start(emu_warp *warp, emu_pending copy)
{
    emu_grid *grid = warp->block->grid;
    copy.warp = warp;
    if (copy.kind != EMU_ARRIVAL) poison(warp, copy.to, copy.bytes);
    if (grid->order == EMU_EARLY || (grid->order == EMU_RANDOM && emu_random(grid) % 4 == 0)) {
        land(&copy);
        return;
    }
    emu_pending *kept = malloc(sizeof *kept);
    if (!kept) abort();
    *kept = copy;
    kept->next = grid->engine;
    grid->engine = kept;
    grid->engine_count++;
}

static void land_and_free(emu_grid *grid, emu_pending **at)
{
    emu_pending *kept = *at, copy = *kept; /* landing may fail, and nobody would free it */
    *at = kept->next;
    grid->engine_count--;
    free(kept);
    land(&copy);
}

bool emu_engine_advance(emu_grid *grid)
{
    if (!grid->engine_count) return false;
    emu_pending **at = &grid->engine;
    for (uint64_t skip = emu_random(grid) % (uint64_t)grid->engine_count; skip; --skip) at = &(*at)->next;
    land_and_free(grid, at);
    return true;
}

/* ---- what a warp or a cluster leaves behind */

void emu_engine_end_warp(emu_warp *warp)
{
    emu_grid *grid = warp->block->grid;
    for (emu_pending **at = &grid->engine; *at;) {
        if ((*at)->warp == warp && (*at)->kind == EMU_ARRIVAL)
            land_and_free(grid, at);
        else
            at = &(*at)->next;
    }
    land_lanes(warp, ~0u, every_group, UINT64_MAX, false);
    emu_stores_end(warp);
}

void emu_engine_end_cluster(emu_cluster *cluster)
{
    emu_grid *grid = cluster->grid;
    for (emu_pending **at = &grid->engine; *at;) {
        if ((*at)->warp->block->cluster == cluster)
            /* Its blocks have ended: nobody reads what it brings, and its memory goes with them. */
            emu_fail((*at)->warp, (*at)->in, -1, "a copy was under way when the last block of its cluster ended");
        at = &(*at)->next;
    }
}

void emu_engine_free_warp(emu_warp *warp)
{
    if (!warp->copies) return;
    while (warp->copies->first) {
        emu_lane_copy *next = warp->copies->first->next;
        free(warp->copies->first);
        warp->copies->first = next;
    }
    emu_stores_free(warp);
    free(warp->copies);
    warp->copies = NULL;
}

void emu_engine_free(emu_grid *grid)
{
    while (grid->engine) {
        emu_pending *next = grid->engine->next;
        free(grid->engine);
        grid->engine = next;
    }
    grid->engine_count = 0;
}

/* ---- cp.async */

/* cp.async [to], [from], bytes, and behind it how many of them are read (slot[0]) or whether none is (slot[1]). */
static emu_outcome run_copy(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    emu_copies *copies = emu_copies_of(warp);
    emu_lane_copy *copy = calloc(1, sizeof *copy);
    if (!copy) abort();
    copy->in = in;
    copy->bytes = (uint32_t)in->operand[2].value;
    copy->lanes = mask;
    copy->stamp = copies->stamp++;
    *copies->end = copy; /* at once: whoever fails below leaves it to be freed with the warp */
    copies->end = &copy->next;
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        uint64_t to = emu_address(warp, &in->operand[0], lane), from = emu_address(warp, &in->operand[1], lane);
        bool none = in->slot[1] != EMU_NONE && emu_u32(warp, in->slot[1])[lane];
        uint32_t read = in->slot[0] == EMU_NONE ? copy->bytes : emu_u32(warp, in->slot[0])[lane];
        if (read && read != copy->bytes)
            emu_fail(warp, in, lane, "it reads %u of %u bytes, which is not emulated", read, copy->bytes);
        none = none || !read;
        if (to % copy->bytes || (!none && from % copy->bytes))
            emu_fail(warp, in, lane, "0x%llx from 0x%llx, not both aligned", (unsigned long long)to, (unsigned long long)from);
        copy->to[lane] = emu_shared(warp, in, to, copy->bytes, "copies to");
        copy->from[lane] = none ? NULL : emu_global(warp, in, from, copy->bytes, "copies from");
        if (!none) emu_saw_global(warp, in, lane, from, false);
        if (!none) emu_global_access(warp, in, lane, from, copy->bytes, EMU_READS);
        copy->group[lane] = copies->committed[lane];
        emu_race_check(warp, in, lane, warp->block, copy->to[lane], copy->bytes, EMU_WRITES);
        emu_race_begin(warp, in, 1u << lane, warp->block, copy->to[lane], copy->bytes, EMU_WRITES);
        poison(warp, copy->to[lane], copy->bytes);
    }
    copy->landed = warp->block->grid->order == EMU_EARLY; /* and is still to be waited for */
    for (int lane = 0; copy->landed && lane < EMU_LANES; ++lane)
        if (mask >> lane & 1) land_lane(warp, copy, lane);
    return EMU_STEP;
}

static emu_outcome run_commit(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    emu_copies *copies = emu_copies_of(warp);
    uint32_t *counter = in->number[0] ? copies->stores_committed : copies->committed;
    for (int lane = 0; lane < EMU_LANES; ++lane)
        if (mask >> lane & 1) counter[lane]++;
    return EMU_STEP;
}

/* cp.async.wait_group N: number[0] is N, -1 for wait_all. */
static emu_outcome run_wait_group(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    emu_copies *copies = emu_copies_of(warp);
    uint32_t before[EMU_LANES];
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        uint32_t done = copies->committed[lane], left = (uint32_t)in->number[0];
        before[lane] = in->number[0] < 0 ? UINT32_MAX : done > left ? done - left : 0;
    }
    land_lanes(warp, mask, before, UINT64_MAX, true);
    emu_race_acquire(warp, mask, copies->told); /* maybe more than these groups: what is told twice is rarely the fault */
    return EMU_STEP;
}

/* cp.async.mbarrier.arrive.noinc: each lane arrives when all that it has started before has landed. */
static emu_outcome run_arrive_behind(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    emu_copies *copies = emu_copies_of(warp);
    emu_pending arrival = {.kind = EMU_ARRIVAL, .in = in, .lanes = mask, .stamp = copies->stamp, .owner = warp->block};
    for (int lane = 0; lane < EMU_LANES; ++lane)
        if (mask >> lane & 1)
            arrival.barriers[lane] = barrier_of(warp, in, emu_address(warp, &in->operand[0], lane), lane, &arrival.owner);
    arrival.number = emu_race_number_copy(arrival.owner);
    for (emu_lane_copy *copy = copies->first; arrival.number && copy; copy = copy->next)
        for (int lane = 0; lane < EMU_LANES; ++lane) {
            if (!(copy->lanes & ~copy->told & mask & 1u << lane)) continue;
            copy->told |= 1u << lane;
            emu_race_note_copy(copy->in, arrival.number, arrival.owner, arrival.barriers[lane], warp->block, copy->to[lane],
                               copy->bytes, EMU_WRITES);
            emu_race_release_copy(arrival.owner, arrival.barriers[lane], arrival.number, &copies->told);
        }
    emu_race_release(warp, mask, &arrival.told);
    emu_engine_start(warp, arrival);
    return EMU_STEP;
}

/* ---- which instructions */

static bool take_barrier(emu_instruction *in)
{
    const char *what = in->part[1];
    if (!strcmp(what, "init")) return in->run = run_init, in->operands == 2;
    if (!strcmp(what, "try_wait") || !strcmp(what, "test_wait")) {
        in->number[0] = !strcmp(what, "try_wait");
        in->run = run_wait;
        return emu_has_part(in, "parity") && in->operands >= 3;
    }
    if (strcmp(what, "arrive") != 0) return false;
    in->number[0] = in->operand[0].kind == EMU_ADDRESS ? 0 : 1;
    bool announces = emu_has_part(in, "expect_tx");
    uint32_t last = in->operands > in->number[0] + 1 ? in->operand[in->number[0] + 1].slot : EMU_NONE;
    in->slot[0] = announces ? last : EMU_NONE;
    in->slot[1] = announces ? EMU_NONE : last;
    in->run = run_arrive;
    return true;
}

static bool take_copy(emu_instruction *in)
{
    in->slot[0] = in->slot[1] = EMU_NONE;
    if (in->parts > 3 && !strcmp(in->part[2], "mbarrier")) return in->run = run_arrive_behind, emu_has_part(in, "noinc");
    if (!strcmp(in->part[2], "commit_group")) return in->run = run_commit, true;
    if (!strcmp(in->part[2], "wait_all")) return in->number[0] = -1, in->run = run_wait_group, true;
    if (!strcmp(in->part[2], "wait_group")) {
        in->number[0] = (int)in->operand[0].value;
        return in->run = run_wait_group, true;
    }
    int64_t bytes = in->operand[2].value;
    if (in->operands < 3 || in->operand[2].kind != EMU_IMMEDIATE || in->operand[3].negated) return false;
    if (bytes != 4 && bytes != 8 && bytes != 16) return false;
    if (in->operands > 3) in->slot[in->operand[3].is_predicate] = in->operand[3].slot;
    in->run = run_copy;
    return true;
}

bool emu_engine_take(const emu_function *function, emu_instruction *in)
{
    if (!strcmp(in->part[0], "mbarrier") && in->parts > 1) return take_barrier(in);
    if (!strcmp(in->part[0], "mapa") || (!strcmp(in->part[0], "st") && emu_has_part(in, "async")))
        return emu_bulk_take(function, in);
    if (strcmp(in->part[0], "cp") || in->parts < 3 || strcmp(in->part[1], "async")) return false;
    if (strcmp(in->part[2], "bulk")) return take_copy(in);
    if (in->parts > 3 && !strcmp(in->part[3], "commit_group")) return in->number[0] = 1, in->run = run_commit, true;
    return emu_bulk_take(function, in);
}
