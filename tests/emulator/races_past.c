/* races_past.c - what threads know to have happened: vector clocks, which barriers, flags and fences join. A past is the ticks of every
 * thread of one cluster. What goes from cluster to cluster, by global memory alone, is in worlds beside it: few kernels have any.
 *
 * Threads count by themselves: what lane 0 has waited for, the others know only behind bar.warp.sync or, but where EMULATOR_RACES is
 * strict, another instruction that the whole warp comes together for. Used by races.c, races_flag.c and races_global.c, and by those who
 * wait. */
#include "races_past.h"

#include <stdlib.h>
#include <string.h>

struct emu_pasts { /* a launch's */
    emu_past *made, *spare;
    emu_world *worlds, *spare_worlds;
    size_t threads; /* of a cluster */
};

/* ---- pasts and worlds, which are counted by their holders */

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
    past->far = past->reads = past->fenced = NULL;
    return past;
}

static void past_drop(emu_cluster *cluster, emu_past *past);

static void world_drop(emu_cluster *cluster, emu_world *world)
{
    if (!world || --world->holders) return;
    for (uint32_t i = 0; i < world->count; ++i) past_drop(cluster, world->of[i].past);
    world->spare = cluster->pasts->spare_worlds;
    cluster->pasts->spare_worlds = world;
}

static void past_drop(emu_cluster *cluster, emu_past *past)
{
    if (!past || --past->holders) return;
    world_drop(cluster, past->far);
    world_drop(cluster, past->reads);
    world_drop(cluster, past->fenced);
    past->spare = cluster->pasts->spare;
    cluster->pasts->spare = past;
}

static emu_world *world_hold(emu_world *world)
{
    if (world) world->holders++;
    return world;
}

static emu_world *world_new(emu_cluster *cluster, uint32_t room)
{
    struct emu_pasts *pasts = cluster->pasts;
    emu_world *world = pasts->spare_worlds;
    if (world && world->room >= room) {
        pasts->spare_worlds = world->spare;
    } else {
        room = (room + 7) / 8 * 8;
        world = malloc(sizeof *world + room * sizeof *world->of);
        if (!world) abort();
        world->room = room;
        world->made_before = pasts->worlds;
        pasts->worlds = world;
    }
    world->holders = 1;
    world->count = 0;
    return world;
}

static void world_put(emu_world *world, uint32_t number, emu_past *past)
{
    past->holders++;
    world->of[world->count].cluster = number;
    world->of[world->count++].past = past;
}

static void max_ticks(uint32_t *into, const uint32_t *from, size_t threads)
{
    for (size_t i = 0; i < threads; ++i)
        if (into[i] < from[i]) into[i] = from[i];
}

static bool ticks_cover(const uint32_t *ticks, const uint32_t *of, size_t threads)
{
    uint32_t missing = 0;
    for (size_t i = 0; i < threads; ++i) missing |= ticks[i] < of[i];
    return !missing;
}

static bool world_covers(const emu_world *world, const emu_world *of, size_t threads)
{
    if (!of || world == of) return true;
    if (!world || world->count < of->count) return false;
    for (uint32_t i = 0, j = 0; i < of->count; ++i, ++j) {
        while (j < world->count && world->of[j].cluster < of->of[i].cluster) ++j;
        if (j == world->count || world->of[j].cluster != of->of[i].cluster) return false;
        const emu_past *has = world->of[j].past, *wants = of->of[i].past;
        if (has != wants && !ticks_cover(has->tick, wants->tick, threads)) return false;
    }
    return true;
}

/* Those of both, where neither has all. */
static emu_world *world_merge(emu_cluster *cluster, const emu_world *a, const emu_world *b)
{
    size_t threads = cluster->pasts->threads;
    emu_world *both = world_new(cluster, a->count + b->count);
    for (uint32_t i = 0, j = 0; i < a->count || j < b->count;) {
        uint32_t in_a = i < a->count ? a->of[i].cluster : UINT32_MAX, in_b = j < b->count ? b->of[j].cluster : UINT32_MAX;
        emu_past *first = in_a <= in_b ? a->of[i++].past : NULL, *second = in_b <= in_a ? b->of[j++].past : NULL;
        uint32_t number = in_a < in_b ? in_a : in_b;
        if (!second || (first && (first == second || ticks_cover(first->tick, second->tick, threads)))) {
            world_put(both, number, first);
        } else if (!first || ticks_cover(second->tick, first->tick, threads)) {
            world_put(both, number, second);
        } else {
            emu_past *joined = past_new(cluster);
            memcpy(joined->tick, first->tick, threads * sizeof *joined->tick);
            max_ticks(joined->tick, second->tick, threads);
            world_put(both, number, joined);
            joined->holders--; /* the world's alone */
        }
    }
    return both;
}

static void world_add(emu_cluster *cluster, emu_world **into, emu_world *from)
{
    size_t threads = cluster->pasts->threads;
    if (world_covers(*into, from, threads)) return;
    emu_world *both = world_covers(from, *into, threads) ? world_hold(from) : world_merge(cluster, *into, from);
    world_drop(cluster, *into);
    *into = both;
}

const uint32_t *emu_world_ticks(const emu_world *world, uint32_t cluster)
{
    uint32_t low = 0, high = world ? world->count : 0;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (world->of[middle].cluster == cluster) return world->of[middle].past->tick;
        if (world->of[middle].cluster < cluster)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* *past becomes one that nobody else holds. */
static void past_own(emu_cluster *cluster, emu_past **past)
{
    if (*past && (*past)->holders == 1) return;
    emu_past *own = past_new(cluster);
    size_t bytes = cluster->pasts->threads * sizeof *own->tick;
    if (*past) {
        memcpy(own->tick, (*past)->tick, bytes);
        own->far = world_hold((*past)->far);
        own->reads = world_hold((*past)->reads);
        own->fenced = world_hold((*past)->fenced);
    } else {
        memset(own->tick, 0, bytes);
    }
    past_drop(cluster, *past);
    *past = own;
}

static bool knows_all(const emu_past *past, const emu_past *of, size_t threads)
{
    return world_covers(past->far, of->far, threads) && world_covers(past->reads, of->reads, threads) &&
           world_covers(past->fenced, of->fenced, threads) && ticks_cover(past->tick, of->tick, threads);
}

void emu_race_add(emu_cluster *cluster, emu_past **into, emu_past *from)
{
    if (!from || *into == from) return;
    size_t threads = cluster->pasts->threads;
    if (!*into || knows_all(from, *into, threads)) {
        from->holders++;
        past_drop(cluster, *into);
        *into = from;
        return;
    }
    if (knows_all(*into, from, threads)) return;
    past_own(cluster, into);
    max_ticks((*into)->tick, from->tick, threads);
    world_add(cluster, &(*into)->far, from->far);
    world_add(cluster, &(*into)->reads, from->reads);
    world_add(cluster, &(*into)->fenced, from->fenced);
}

void emu_race_forget(emu_cluster *cluster, emu_past **past)
{
    past_drop(cluster, *past);
    *past = NULL;
}

void emu_race_move(emu_cluster *cluster, emu_past **into, emu_past **from)
{
    if (!cluster->pasts || !*from) return;
    emu_race_add(cluster, into, *from);
    emu_race_forget(cluster, from);
}

/* ---- telling and hearing */

size_t emu_past_first(const emu_block *block, uint32_t rank, uint32_t warp)
{
    size_t warps = (size_t)block->warps;
    return (warp == EMU_ENGINE ? block->cluster->blocks * warps + rank : rank * warps + warp) * EMU_LANES;
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
    uint32_t *own = (*to)->tick + emu_past_first(warp->block, warp->block->rank, (uint32_t)warp->index);
    for (int lane = 0; lane < EMU_LANES; ++lane)
        if (lanes >> lane & 1) own[lane] = warp->tick;
    warp->tick++;
}

void emu_race_release_tick(const emu_block *told, uint32_t lane, uint32_t tick, emu_past **to)
{
    past_own(told->cluster, to);
    uint32_t *known = (*to)->tick + emu_past_first(told, told->rank, EMU_ENGINE) + lane;
    if (*known < tick) *known = tick;
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

/* Who gives others a value has read what it was made of; of what lanes have written this tells nothing. By the manual, not even of that. */
void emu_race_exchange(emu_warp *warp, uint32_t lanes)
{
    if (warp->block->grid->races != EMU_RACES_LAX) return;
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(lanes >> lane & 1)) continue;
        warp->exchanged[lane].lanes = lanes;
        warp->exchanged[lane].tick = warp->tick;
    }
    warp->tick++;
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

/* ---- what goes beyond a cluster, or a scope, or a proxy */

void emu_known_add(emu_cluster *cluster, emu_known *into, const emu_known *more)
{
    world_add(cluster, &into->all, more->all);
    world_add(cluster, &into->reads, more->reads);
    world_add(cluster, &into->fenced, more->fenced);
}

void emu_known_forget(emu_cluster *cluster, emu_known *known)
{
    world_drop(cluster, known->all);
    world_drop(cluster, known->reads);
    world_drop(cluster, known->fenced);
    *known = (emu_known){0};
}

emu_known emu_known_of(emu_cluster *cluster, const emu_past *past)
{
    emu_past *ticks = past_new(cluster);
    memcpy(ticks->tick, past->tick, cluster->pasts->threads * sizeof *ticks->tick);
    /* The kernel before has ended for all clusters, but that is not asked of worlds. */
    emu_known known = {world_new(cluster, 1), world_hold(past->reads), world_hold(past->fenced)};
    world_put(known.all, cluster->number, ticks);
    past_drop(cluster, ticks);
    world_add(cluster, &known.all, past->far);
    return known;
}

void emu_known_acquire(emu_warp *warp, uint32_t lanes, const emu_known *known)
{
    emu_cluster *cluster = warp->block->cluster;
    const uint32_t *own = emu_world_ticks(known->all, cluster->number);
    emu_past *past = NULL;
    past_own(cluster, &past);
    if (own) memcpy(past->tick, own, cluster->pasts->threads * sizeof *own);
    past->far = world_hold(known->all);
    past->reads = world_hold(known->reads);
    past->fenced = world_hold(known->fenced);
    emu_race_acquire(warp, lanes, past);
    past_drop(cluster, past);
}

void emu_race_add_reads(emu_cluster *cluster, emu_past **into, const emu_past *from)
{
    if (!from) return;
    emu_known known = emu_known_of(cluster, from);
    past_own(cluster, into);
    world_add(cluster, &(*into)->reads, known.all);
    world_add(cluster, &(*into)->reads, known.reads);
    emu_known_forget(cluster, &known);
}

void emu_race_fence_proxy(emu_warp *warp, uint32_t lanes)
{
    emu_cluster *cluster = warp->block->cluster;
    if (!cluster->pasts) return;
    emu_past *done = NULL;
    emu_race_release(warp, lanes, &done);
    emu_known known = emu_known_of(cluster, done), fenced = {.fenced = known.all};
    emu_known_acquire(warp, lanes, &fenced);
    emu_known_forget(cluster, &known);
    past_drop(cluster, done);
}

/* ---- a launch's */

void emu_pasts_open(emu_grid *grid)
{
    grid->pasts = calloc(1, sizeof *grid->pasts);
    if (!grid->pasts) abort();
}

void emu_pasts_join(emu_cluster *cluster)
{
    cluster->pasts = cluster->grid->pasts;
    cluster->pasts->threads = emu_past_first(&cluster->block[0], cluster->blocks, EMU_ENGINE) + 1; /* of each the same */
}

void emu_pasts_close(emu_grid *grid)
{
    if (!grid->pasts) return;
    for (emu_past *past = grid->pasts->made, *before; past; past = before) {
        before = past->made_before;
        free(past);
    }
    for (emu_world *world = grid->pasts->worlds, *before; world; world = before) {
        before = world->made_before;
        free(world);
    }
    free(grid->pasts);
    grid->pasts = NULL;
}
