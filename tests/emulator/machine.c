/* machine.c - runs a grid: clusters of blocks of warps, one warp at a time until it waits. driver.c calls emu_run_launch.
 *
 * Blocks come in one cluster at a time, another one whenever all that are there wait: a kernel whose blocks wait for each other gets
 * them all, and one whose blocks do not never has more than one cluster in memory. A warp is groups of lanes that stand at the same
 * instruction; the group that stands first in the program goes first, so lanes that parted meet again where their ways do. */
#include "observe.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TURN = 4096, MOST_IDLE_ROUNDS = 200000 };

typedef struct machine {
    emu_grid grid; /* first: emu_fail finds the machine by it */
    jmp_buf out;
    emu_cluster *first, **end;
    int64_t clusters, admitted;
} machine;

static emu_order order_wanted(void)
{
    const char *wanted = getenv("EMULATOR_ORDER");
    return !wanted || !strcmp(wanted, "late") ? EMU_LATE : !strcmp(wanted, "early") ? EMU_EARLY : EMU_RANDOM;
}

uint64_t emu_random(emu_grid *grid)
{
    uint64_t z = grid->random += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void emu_fail(emu_warp *warp, const emu_instruction *in, int lane, const char *format, ...)
{
    const emu_block *block = warp->block;
    machine *m = (machine *)block->grid;
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(m->grid.why, sizeof m->grid.why, "%s, line %d (%s), block %u,%u,%u, thread %d: %s", m->grid.function->name,
             in->line, in->opcode, block->id[0], block->id[1], block->id[2],
             warp->index * EMU_LANES + (lane >= 0      ? lane
                                        : warp->asking ? warp->asking - 1
                                                       : 0),
             text);
    longjmp(m->out, 1);
}

/* ---- a warp's turn */

static uint32_t guarded(const emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    const uint32_t *value = emu_u32(warp, in->guard);
    uint32_t holds = 0;
    for (int lane = 0; lane < EMU_LANES; ++lane)
        holds |= (value[lane] & 1) << lane; /* lanes that are elsewhere may have anything */
    return mask & (in->guard_negated ? ~holds : holds);
}

static void end_warp(emu_warp *warp)
{
    emu_block *block = warp->block;
    emu_engine_end_warp(warp);
    emu_matrix_end_warp(warp);
    block->running--;
    emu_threads_end_warp(warp);
    if (!block->running) emu_check_waited(warp);
    if (!block->running) block->cluster->running--;
}

/* Groups that stand at one place become one, which may go on; the one that stands first becomes group[0]. */
static void merge_groups(emu_warp *warp)
{
    for (int i = 0; i < warp->groups; ++i) {
        for (int j = i + 1; j < warp->groups;) {
            if (warp->group[j].at != warp->group[i].at) {
                ++j;
                continue;
            }
            warp->group[i].mask |= warp->group[j].mask;
            warp->group[i].stalled = warp->group[i].behind = false;
            warp->group[j] = warp->group[--warp->groups];
        }
    }
}

static emu_group *next_group(emu_warp *warp)
{
    emu_group *next = NULL;
    if (warp->groups > 1) merge_groups(warp);
    for (int i = 0; i < warp->groups; ++i)
        if (!warp->group[i].stalled && (!next || warp->group[i].at < next->at)) next = &warp->group[i];
    return next;
}

static void branch(emu_warp *warp, emu_group *group, int target, uint32_t taken)
{
    if (taken == group->mask) {
        group->at = target;
    } else if (taken) {
        warp->group[warp->groups++] = (emu_group){.mask = taken, .at = target};
        group->mask &= ~taken;
        group->at++;
    } else {
        group->at++;
    }
}

static void end_lanes(emu_warp *warp, emu_group *group, uint32_t ended)
{
    warp->alive &= ~ended;
    group->mask &= ~ended;
    group->at++;
    if (!group->mask) *group = warp->group[--warp->groups];
    if (!warp->alive) end_warp(warp);
}

/* One instruction of a group. */
static inline emu_outcome step(emu_warp *warp, emu_group *group, const emu_instruction *code)
{
    const emu_instruction *in = &code[group->at];
    uint32_t mask = in->guard == EMU_NONE ? group->mask : guarded(warp, in, group->mask);
    if (!in->run) {
        if (in->operands)
            branch(warp, group, (int)in->operand[0].value, mask);
        else if (mask)
            end_lanes(warp, group, mask);
        else
            group->at++;
        return EMU_STEP;
    }
    if (!mask) {
        group->at++;
        return EMU_STEP;
    }
    if (in->is_aligned && group->mask != warp->alive) return EMU_STALL;
    emu_outcome outcome = in->run(warp, in, mask);
    if (outcome != EMU_STALL) group->at++;
    if (in->is_aligned && outcome != EMU_STALL && warp->block->grid->races == EMU_RACES_LAX) emu_race_meet(warp, mask);
    return outcome;
}

/* Lanes of a warp need not go together: some stay behind until the others wait. */
static void part_lanes(emu_warp *warp, emu_group *group)
{
    emu_grid *grid = warp->block->grid;
    uint32_t behind = group->mask & (uint32_t)emu_random(grid);
    if (!behind || behind == group->mask || warp->groups == EMU_LANES) return;
    group->mask &= ~behind;
    warp->group[warp->groups++] = (emu_group){.mask = behind, .at = group->at, .stalled = true, .behind = true};
}

/* The others wait: those that stayed behind go on. */
static bool let_go(emu_warp *warp)
{
    bool any = false;
    for (int i = 0; i < warp->groups; ++i) {
        any |= warp->group[i].behind;
        if (warp->group[i].behind) warp->group[i].behind = warp->group[i].stalled = false;
    }
    return any;
}

/* All lanes wait, and some of them where the whole warp must come together: nothing brings the others there at the same time. */
static void check_together(emu_warp *warp, const emu_instruction *code)
{
    for (int i = 0; i < warp->groups && warp->groups > 1; ++i) {
        const emu_instruction *in = &code[warp->group[i].at];
        if (in->is_aligned)
            emu_fail(warp, in, __builtin_ctz(warp->group[i].mask),
                     "lanes 0x%x are here, and others of the warp wait elsewhere: no __syncwarp brings them together",
                     warp->group[i].mask);
    }
}

/* Until all its lanes wait, or for a while. Whether it came forward, by more than looking again at what it waits for. */
static bool run_turn(emu_warp *warp, int most)
{
    const emu_instruction *code = warp->block->grid->function->code;
    int done = 0;
    bool stepped = false, yielded = false;
    warp->block->begun = true;
    for (int i = 0; i < warp->groups; ++i) warp->group[i].stalled = warp->group[i].behind = false;
    while (warp->alive && done < most) {
        emu_group *group = next_group(warp);
        if (!group && let_go(warp)) continue;
        if (!group) check_together(warp, code);
        if (!group) break;
        emu_outcome outcome;
        do {
            if (warp->block->grid->order == EMU_RANDOM && !code[group->at].is_aligned &&
                emu_random(warp->block->grid) % 64 == 0)
                part_lanes(warp, group);
            outcome = step(warp, group, code);
            stepped |= outcome == EMU_STEP;
            ++done;
        } while (outcome == EMU_STEP && done < most && warp->groups == 1 && group == warp->group);
        yielded |= outcome == EMU_YIELD;
        if (outcome != EMU_STEP) group->stalled = true;
    }
    warp->block->grid->instructions += (uint64_t)done;
    return stepped && !yielded;
}

/* ---- blocks */

static void fill_lanes(emu_warp *warp, emu_special which, uint32_t value)
{
    uint32_t slot = warp->block->grid->function->special[which];
    for (int lane = 0; slot != EMU_NONE && lane < EMU_LANES; ++lane) emu_u32(warp, slot)[lane] = value;
}

static void fill_specials(emu_warp *warp)
{
    const emu_block *block = warp->block;
    const emu_grid *grid = block->grid;
    for (int i = 0; i < 3; ++i) {
        fill_lanes(warp, EMU_NTID_X + i, grid->block[i]);
        fill_lanes(warp, EMU_CTAID_X + i, block->id[i]);
        fill_lanes(warp, EMU_NCTAID_X + i, grid->grid[i]);
    }
    fill_lanes(warp, EMU_CLUSTER_RANK, block->rank);
    fill_lanes(warp, EMU_CLUSTER_SIZE, grid->cluster);
    fill_lanes(warp, EMU_WARP, (uint32_t)warp->index);
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        uint32_t thread = (uint32_t)(warp->index * EMU_LANES + lane);
        const uint32_t tid[] = {thread % grid->block[0], thread / grid->block[0] % grid->block[1],
                                thread / grid->block[0] / grid->block[1]};
        for (int i = 0; i < 3; ++i)
            if (grid->function->special[EMU_TID_X + i] != EMU_NONE)
                emu_u32(warp, grid->function->special[EMU_TID_X + i])[lane] = tid[i];
        if (grid->function->special[EMU_LANE] != EMU_NONE)
            emu_u32(warp, grid->function->special[EMU_LANE])[lane] = (uint32_t)lane;
    }
}

/* Memory that nobody has written is all ones: NaN for every type of float, and no address. */
static void *poisoned(size_t bytes)
{
    void *memory = aligned_alloc(128, (bytes + 128) / 128 * 128);
    if (!memory) abort();
    return memset(memory, 0xff, bytes);
}

static void free_cluster(emu_cluster *cluster)
{
    emu_races_close(cluster);
    for (uint32_t b = 0; b < cluster->blocks; ++b) {
        emu_block *block = &cluster->block[b];
        for (int w = 0; w < block->warps; ++w) {
            emu_matrix_free(&block->warp[w]);
            emu_engine_free_warp(&block->warp[w]);
            free(block->warp[w].registers);
            free(block->warp[w].local);
        }
        free(block->warp);
        free(block->shared);
        free(block->write);
    }
    free(cluster->block);
    free(cluster);
}

static void make_warp(emu_warp *warp, emu_block *block, int index, uint32_t threads)
{
    const emu_function *function = block->grid->function;
    uint32_t left = threads - (uint32_t)index * EMU_LANES;
    *warp = (emu_warp){.block = block, .index = index, .alive = left >= EMU_LANES ? ~0u : (1u << left) - 1};
    warp->registers = poisoned((size_t)(function->slots + 1) * EMU_SLOT);
    warp->local = function->local_bytes ? poisoned((size_t)function->local_bytes * EMU_LANES) : NULL;
    warp->group[0] = (emu_group){.mask = warp->alive};
    warp->groups = 1;
    fill_specials(warp);
}

static void admit(machine *m)
{
    emu_grid *grid = &m->grid;
    emu_cluster *cluster = calloc(1, sizeof *cluster);
    uint32_t threads = grid->block[0] * grid->block[1] * grid->block[2], wide = grid->grid[0] / grid->cluster;
    int64_t number = m->admitted++;
    cluster->grid = grid;
    cluster->number = (uint32_t)number;
    cluster->blocks = grid->cluster;
    cluster->running = (int)grid->cluster;
    cluster->block = calloc(grid->cluster, sizeof *cluster->block);
    for (uint32_t b = 0; b < grid->cluster; ++b) {
        emu_block *block = &cluster->block[b];
        *block = (emu_block){.grid = grid, .cluster = cluster, .rank = b};
        block->id[0] = (uint32_t)(number % wide) * grid->cluster + b;
        block->id[1] = (uint32_t)(number / wide % grid->grid[1]);
        block->id[2] = (uint32_t)(number / wide / grid->grid[1]);
        block->shared = poisoned(grid->shared_bytes + 1);
        block->write = calloc(grid->shared_bytes / 16 + 1, sizeof *block->write);
        block->warps = block->running = (int)((threads + EMU_LANES - 1) / EMU_LANES);
        block->warp = calloc((size_t)block->warps, sizeof *block->warp);
        for (int w = 0; w < block->warps; ++w) make_warp(&block->warp[w], block, w, threads);
        /* One warp of every second block is slow, where chance has it so: nothing but waiting for it keeps others from getting ahead. */
        block->held = -1;
        if (grid->order == EMU_RANDOM && emu_random(grid) % 2) block->held = (int)(emu_random(grid) % (uint64_t)block->warps);
    }
    if (grid->races) emu_races_open(cluster);
    *m->end = cluster;
    m->end = &cluster->next;
}

static void drop_ended(machine *m)
{
    for (emu_cluster **at = &m->first; *at;) {
        emu_cluster *cluster = *at;
        if (cluster->running) {
            at = &cluster->next;
            continue;
        }
        emu_engine_end_cluster(cluster);
        *at = cluster->next;
        free_cluster(cluster);
    }
    m->end = &m->first;
    while (*m->end) m->end = &(*m->end)->next;
}

/* Where a round begins among so many: at the first, or anywhere. */
static uint32_t begin_of(machine *m, uint32_t count)
{
    return m->grid.order == EMU_RANDOM && count > 1 ? (uint32_t)(emu_random(&m->grid) % count) : 0;
}

/* A turn for every warp, or for those that are held; whether any of them came forward. */
static bool run_round(machine *m, bool held)
{
    bool forward = false;
    for (emu_cluster *cluster = m->first; cluster; cluster = cluster->next) {
        uint32_t first = begin_of(m, cluster->blocks);
        for (uint32_t b = 0; b < cluster->blocks; ++b) {
            emu_block *block = &cluster->block[(first + b) % cluster->blocks];
            int begin = (int)begin_of(m, (uint32_t)block->warps);
            for (int w = 0; w < block->warps; ++w) {
                int index = (begin + w) % block->warps;
                emu_warp *warp = &block->warp[index];
                int most = m->grid.order == EMU_RANDOM ? 1 + (int)(emu_random(&m->grid) % 512) : TURN;
                if (warp->alive && (index == block->held) == held) forward |= run_turn(warp, most);
            }
        }
    }
    return forward;
}

/* Nobody can go on, and nothing is under way: who waits where. */
static void tell_deadlock(machine *m)
{
    emu_grid *grid = &m->grid;
    int length = snprintf(grid->why, sizeof grid->why, "%s: all threads wait for ever:", grid->function->name), told = 0;
    for (emu_cluster *cluster = m->first; cluster && told < 12; cluster = cluster->next)
        for (uint32_t b = 0; b < cluster->blocks && told < 12; ++b)
            for (int w = 0; w < cluster->block[b].warps && told < 12; ++w) {
                const emu_warp *warp = &cluster->block[b].warp[w];
                if (!warp->alive || length >= (int)sizeof grid->why - 80) continue;
                const emu_instruction *in = &grid->function->code[warp->group[0].at];
                length +=
                    snprintf(grid->why + length, sizeof grid->why - (size_t)length, " block %u warp %d%s at line %d (%.24s);",
                             cluster->block[b].id[0], w, warp->groups > 1 ? " in parts" : "", in->line, in->opcode);
                told++;
            }
}

static void run_all(machine *m)
{
    int idle = 0;
    while (m->first || m->admitted < m->clusters) {
        if (!m->first) admit(m);
        if (run_round(m, false)) {
            idle = 0;
            if (m->grid.order == EMU_RANDOM && emu_random(&m->grid) % 2) emu_engine_advance(&m->grid);
        } else if (emu_engine_advance(&m->grid) || run_round(m, true)) {
            idle = 0;
        } else if (m->admitted < m->clusters) {
            admit(m);
        } else if (++idle > MOST_IDLE_ROUNDS) {
            tell_deadlock(m);
            longjmp(m->out, 1);
        }
        drop_ended(m);
    }
}

bool emu_run_launch(const emu_launch *launch, char *why, size_t why_size)
{
    machine *m = calloc(1, sizeof *m);
    const emu_function *function = launch->function;
    const char *seed = getenv("EMULATOR_SEED");
    emu_grid *grid = &m->grid;
    grid->function = function;
    memcpy(grid->grid, launch->grid, sizeof grid->grid);
    memcpy(grid->block, launch->block, sizeof grid->block);
    grid->cluster = launch->cluster ? launch->cluster : 1;
    grid->shared_bytes = function->shared_bytes + launch->dynamic_shared;
    grid->random = seed ? strtoull(seed, NULL, 10) : 1;
    grid->params = aligned_alloc(64, (function->param_bytes + 64) / 64 * 64);
    for (int i = 0; i < function->params; ++i)
        memcpy(grid->params + function->param_offset[i], launch->params[i], function->param_size[i]);
    m->end = &m->first;
    grid->counting = emu_counts_wanted();
    emu_races_begin(grid);
    grid->order = order_wanted();
    grid->early = launch->early;
    m->clusters = (int64_t)(launch->grid[0] / grid->cluster) * launch->grid[1] * launch->grid[2];
    bool failed = setjmp(m->out);
    if (!failed) {
        for (int64_t i = 0; launch->together && i < m->clusters; ++i) admit(m);
        run_all(m);
    }
    if (!failed && grid->counting) emu_counts_write(grid);
    if (failed) snprintf(why, why_size, "%s", grid->why);
    while (m->first) {
        emu_cluster *next = m->first->next;
        free_cluster(m->first);
        m->first = next;
    }
    emu_engine_free(grid);
    emu_races_end(grid);
    free(grid->params);
    free(m);
    return !failed;
}
