/* races_flag.c - how threads tell each other by memory itself: releases and acquires of words of global or shared memory, at the scope that
 * they name, and fences, which make a release or an acquire of what is relaxed. Called by those who access memory and by threads.c.
 *
 * A word that was written so has what its writers told: to their block, to their cluster, to all. A release goes to its own scope and those
 * within; who acquires hears what was told to his block and, as far as his own scope goes, to his cluster and to all. Sums go on where the
 * last left off, stores begin anew: what they replace tells nothing more. */
#include "races_past.h"

#include <stdlib.h>

enum { LEVELS = 3 }; /* to the block, to the cluster, to all: a scope's bits, less one */

typedef struct flag {
    uint64_t address; /* 0: none */
    struct told {
        int level;
        uint32_t whom; /* the block's number in the grid, the cluster's, 0 */
        emu_known known;
    } * told;
    size_t count, room;
} flag;

struct emu_flags {
    flag *flag; /* a table, by address */
    size_t count, size;
};

/* A warp's. */
struct emu_fences {
    emu_past *done[LEVELS][EMU_LANES];  /* what each lane had done when it last fenced */
    emu_known heard[LEVELS][EMU_LANES]; /* what it has read without acquiring */
};

static int level_of(emu_access access) { return (int)(access & EMU_SCOPE) / EMU_CTA - 1; }

emu_access emu_scope_of(const emu_instruction *in, emu_access otherwise)
{
    static const struct {
        const char *name;
        emu_access scope;
    } scopes[] = {{"cta", EMU_CTA}, {"cluster", EMU_CLUSTER}, {"gpu", EMU_GPU}, {"gl", EMU_GPU}, {"sys", EMU_GPU}};
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes; ++i)
        if (emu_has_part(in, scopes[i].name)) return scopes[i].scope;
    return otherwise;
}

/* ---- the table */

static flag *place_of(const struct emu_flags *flags, uint64_t address)
{
    size_t at = (size_t)(address / 4 * UINT64_C(0x9e3779b97f4a7c15) >> 32) % flags->size;
    while (flags->flag[at].address && flags->flag[at].address != address) at = (at + 1) % flags->size;
    return &flags->flag[at];
}

static flag *find(const struct emu_flags *flags, uint64_t address)
{
    flag *found = flags ? place_of(flags, address) : NULL;
    return found && found->address ? found : NULL;
}

static void grow(struct emu_flags *flags)
{
    struct emu_flags larger = {.count = flags->count, .size = flags->size ? 2 * flags->size : 64};
    larger.flag = calloc(larger.size, sizeof *larger.flag);
    if (!larger.flag) abort();
    for (size_t i = 0; i < flags->size; ++i)
        if (flags->flag[i].address) *place_of(&larger, flags->flag[i].address) = flags->flag[i];
    free(flags->flag);
    *flags = larger;
}

static flag *find_or_make(struct emu_flags **flags, uint64_t address)
{
    if (!*flags) *flags = calloc(1, sizeof **flags);
    if (!*flags) abort();
    if (2 * ((*flags)->count + 1) > (*flags)->size) grow(*flags);
    flag *f = place_of(*flags, address);
    if (!f->address) (*flags)->count++;
    f->address = address;
    return f;
}

/* The known worlds go with the launch. */
void emu_flags_free(struct emu_flags *flags)
{
    if (!flags) return;
    for (size_t i = 0; i < flags->size; ++i) free(flags->flag[i].told);
    free(flags->flag);
    free(flags);
}

/* ---- telling and hearing */

static uint32_t whom_of(const emu_block *block, int level)
{
    const emu_cluster *cluster = block->cluster;
    return level == 0 ? cluster->number * cluster->blocks + block->rank : level == 1 ? cluster->number : 0;
}

static void tell(flag *f, const emu_block *block, int level, const emu_known *known)
{
    uint32_t whom = whom_of(block, level);
    size_t i = 0;
    while (i < f->count && (f->told[i].level != level || f->told[i].whom != whom)) ++i;
    if (i == f->room) {
        f->room = f->room ? 2 * f->room : 4;
        f->told = realloc(f->told, f->room * sizeof *f->told);
        if (!f->told) abort();
    }
    if (i == f->count) f->told[f->count++] = (struct told){.level = level, .whom = whom};
    emu_known_add(block->cluster, &f->told[i].known, known);
}

static void hear(const flag *f, const emu_block *block, int level, emu_known *known)
{
    for (size_t i = 0; i < f->count; ++i)
        if (f->told[i].level <= level && f->told[i].whom == whom_of(block, f->told[i].level))
            emu_known_add(block->cluster, known, &f->told[i].known);
}

static void forget(emu_cluster *cluster, flag *f)
{
    for (size_t i = 0; i < f->count; ++i) emu_known_forget(cluster, &f->told[i].known);
    f->count = 0;
}

static struct emu_fences *fences_of(emu_warp *warp)
{
    if (!warp->fences) warp->fences = calloc(1, sizeof *warp->fences);
    if (!warp->fences) abort();
    return warp->fences;
}

void emu_flag_read(emu_warp *warp, int lane, struct emu_flags *flags, uint64_t address, emu_access access)
{
    emu_cluster *cluster = warp->block->cluster;
    const flag *f = find(flags, address);
    if (!cluster->pasts || !f || !f->count) return;
    if (access & EMU_ORDERS) {
        emu_known known = {0};
        hear(f, warp->block, level_of(access), &known);
        if (known.all || known.reads) emu_known_acquire(warp, 1u << lane, &known);
        emu_known_forget(cluster, &known);
        return;
    }
    for (int level = 0; level <= level_of(access); ++level) hear(f, warp->block, level, &fences_of(warp)->heard[level][lane]);
}

static void write_strong(emu_warp *warp, int lane, flag *f, emu_access access)
{
    emu_cluster *cluster = warp->block->cluster;
    emu_past *done = NULL;
    if (access & EMU_ORDERS) emu_race_release(warp, 1u << lane, &done);
    for (int level = 0; level <= level_of(access); ++level) {
        const emu_past *says = done ? done : warp->fences ? warp->fences->done[level][lane] : NULL;
        if (!says) continue;
        emu_known known = emu_known_of(cluster, says);
        tell(f, warp->block, level, &known);
        emu_known_forget(cluster, &known);
    }
    emu_race_forget(cluster, &done);
}

void emu_flag_write(emu_warp *warp, int lane, struct emu_flags **flags, uint64_t address, size_t bytes, emu_access access)
{
    emu_cluster *cluster = warp->block->cluster;
    if (!cluster->pasts || (!(access & EMU_SCOPE) && !*flags)) return;
    for (uint64_t at = address; (access & EMU_DOES) == EMU_WRITES && *flags && at < address + bytes; at += 4) {
        flag *replaced = find(*flags, at);
        if (replaced) forget(cluster, replaced);
    }
    if (access & EMU_SCOPE) write_strong(warp, lane, find_or_make(flags, address), access);
}

/* ---- fences */

void emu_flag_fence(emu_warp *warp, uint32_t lanes, emu_access scope)
{
    emu_cluster *cluster = warp->block->cluster;
    if (!cluster->pasts) return;
    struct emu_fences *fences = fences_of(warp);
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(lanes >> lane & 1)) continue;
        const emu_known *heard = &fences->heard[level_of(scope)][lane];
        if (heard->all || heard->reads) emu_known_acquire(warp, 1u << lane, heard);
        emu_past *done = NULL;
        emu_race_release(warp, 1u << lane, &done);
        for (int level = 0; level <= level_of(scope); ++level) {
            emu_race_forget(cluster, &fences->done[level][lane]);
            emu_race_add(cluster, &fences->done[level][lane], done);
        }
        emu_race_forget(cluster, &done);
    }
}

void emu_flag_release_fenced(emu_warp *warp, uint32_t lanes, emu_access scope, emu_past **to)
{
    if (!warp->block->cluster->pasts || !warp->fences) return;
    for (int lane = 0; lane < EMU_LANES; ++lane)
        if (lanes >> lane & 1) emu_race_add(warp->block->cluster, to, warp->fences->done[level_of(scope)][lane]);
}

void emu_fences_free(emu_warp *warp)
{
    if (!warp->fences) return;
    for (int level = 0; level < LEVELS; ++level)
        for (int lane = 0; lane < EMU_LANES; ++lane) {
            emu_race_forget(warp->block->cluster, &warp->fences->done[level][lane]);
            emu_known_forget(warp->block->cluster, &warp->fences->heard[level][lane]);
        }
    free(warp->fences);
    warp->fences = NULL;
}
