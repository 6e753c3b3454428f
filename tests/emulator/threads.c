/* threads.c - instructions by which threads wait for each other: barriers of a block, of a cluster and of a warp, fences, sleep; and those
 * that need no doing here. Found by parse.c; machine.c tells when a warp has ended. */
#include "observe.h"

#include <string.h>

static uint32_t threads_wanted(const emu_warp *warp, const emu_instruction *in)
{
    return in->slot[1] == EMU_NONE ? (uint32_t)warp->block->running * EMU_LANES : emu_u32(warp, in->slot[1])[0];
}

static int barrier_number(emu_warp *warp, const emu_instruction *in)
{
    uint32_t number = emu_u32(warp, in->slot[0])[0];
    if (number > 15) emu_fail(warp, in, -1, "barrier %u: there are 16", number);
    return (int)number;
}

static void complete_barrier(emu_block *block, int number)
{
    block->barrier[number].result = block->barrier[number].any;
    block->barrier[number].arrived = block->barrier[number].any = 0;
    block->barrier[number].phase++;
    emu_race_move(block->cluster, &block->barrier[number].ended, &block->barrier[number].coming);
}

static void arrive(emu_warp *warp, const emu_instruction *in, int number)
{
    uint32_t wanted = threads_wanted(warp, in), arrived = warp->block->barrier[number].arrived += EMU_LANES;
    warp->block->barrier[number].counted = in->slot[1] != EMU_NONE;
    if (wanted % EMU_LANES) emu_fail(warp, in, -1, "barrier %d for %u threads, which are no whole warps", number, wanted);
    if (arrived > wanted) emu_fail(warp, in, -1, "barrier %d has %u threads where %u are to come", number, arrived, wanted);
    emu_race_release(warp, warp->alive, &warp->block->barrier[number].coming);
    if (arrived == wanted) complete_barrier(warp->block, number);
}

/* bar.sync, bar.arrive and bar.red: slot[0] the barrier, slot[1] how many threads; of bar.red slot[2] the result, slot[3] what is asked. */
static emu_outcome run_barrier(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    int number = barrier_number(warp, in);
    bool is_red = in->number[0];
    if (!warp->barrier_waiting) {
        warp->barrier_waiting = 1 + number;
        warp->barrier_phase = warp->block->barrier[number].phase;
        for (int lane = 0; is_red && lane < EMU_LANES; ++lane)
            if (mask >> lane & 1 && emu_u32(warp, in->slot[3])[lane] != (uint32_t)in->number[1])
                warp->block->barrier[number].any = 1;
        arrive(warp, in, number);
    }
    if (warp->block->barrier[number].phase == warp->barrier_phase) return EMU_STALL;
    warp->barrier_waiting = 0;
    emu_race_acquire(warp, warp->alive, warp->block->barrier[number].ended);
    for (int lane = 0; is_red && lane < EMU_LANES; ++lane)
        if (mask >> lane & 1) emu_u32(warp, in->slot[2])[lane] = warp->block->barrier[number].result;
    return EMU_STEP;
}

static emu_outcome run_barrier_arrive(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    (void)mask;
    arrive(warp, in, barrier_number(warp, in));
    return EMU_STEP;
}

static void complete_cluster(emu_cluster *cluster)
{
    uint32_t running = cluster->arrived_and_gone;
    for (uint32_t i = 0; i < cluster->blocks; ++i) running += (uint32_t)cluster->block[i].running;
    if (!running || cluster->arrived < running) return;
    cluster->arrived = cluster->arrived_and_gone = 0;
    cluster->phase++;
    emu_race_move(cluster, &cluster->ended, &cluster->coming);
}

static emu_outcome run_cluster_arrive(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    (void)mask;
    if (warp->cluster_arrived) emu_fail(warp, in, -1, "the warp has arrived at the cluster's barrier and has not waited");
    warp->cluster_arrived = true;
    warp->cluster_phase = warp->block->cluster->phase;
    warp->block->cluster->arrived++;
    if (emu_has_part(in, "relaxed"))
        emu_flag_release_fenced(warp, warp->alive, EMU_CLUSTER, &warp->block->cluster->coming);
    else
        emu_race_release(warp, warp->alive, &warp->block->cluster->coming);
    complete_cluster(warp->block->cluster);
    return EMU_STEP;
}

static emu_outcome run_cluster_wait(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    (void)mask;
    if (!warp->cluster_arrived) emu_fail(warp, in, -1, "the warp waits at the cluster's barrier and has not arrived");
    if (warp->block->cluster->phase == warp->cluster_phase) return EMU_STALL;
    warp->cluster_arrived = false;
    emu_race_acquire(warp, warp->alive, warp->block->cluster->ended);
    return EMU_STEP;
}

static emu_outcome run_warp_barrier(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    for (int lane = 0; lane < EMU_LANES; ++lane)
        if (mask >> lane & 1 && emu_u32(warp, in->slot[0])[lane] & warp->alive & ~mask) return EMU_STALL;
    emu_race_meet(warp, mask);
    return EMU_STEP;
}

static emu_outcome run_nothing(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    (void)warp, (void)in, (void)mask;
    return EMU_STEP;
}

/* A proxy fence is of shared memory, of global memory or of both. */
static emu_outcome run_fence(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    bool of_proxy = emu_has_part(in, "proxy") && emu_has_part(in, "async"), of_global = emu_has_part(in, "global");
    bool of_shared = emu_has_part(in, "shared::cta") || emu_has_part(in, "shared::cluster");
    if ((of_proxy && !of_global) || emu_has_part(in, "mbarrier_init")) emu_saw_fence(warp);
    if (of_proxy && !of_shared) emu_race_fence_proxy(warp, mask);
    if (in->number[0]) emu_flag_fence(warp, mask, (emu_access)in->number[0]);
    return EMU_STEP;
}

/* griddepcontrol.wait */
static emu_outcome run_wait_for_grid(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    (void)in;
    warp->block->waited = true;
    emu_race_hear_end(warp, mask);
    return EMU_STEP;
}

static emu_outcome run_sleep(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    (void)warp, (void)in, (void)mask;
    return EMU_YIELD;
}

static bool take_barrier(emu_instruction *in)
{
    const char *what = in->parts > 1 ? in->part[1] : "";
    bool is_red = !strcmp(what, "red");
    if (!strcmp(what, "warp")) {
        in->run = run_warp_barrier;
        in->slot[0] = in->operand[0].slot;
        return in->operands == 1;
    }
    if (is_red && (!emu_has_part(in, "or") || in->operands < 3)) return false;
    if (!is_red && strcmp(what, "sync") && strcmp(what, "arrive")) return false;
    const emu_operand *operand = in->operand + is_red;
    int operands = in->operands - 2 * is_red;
    if (operands < 1 || operands > 2) return false;
    in->run = !strcmp(what, "arrive") ? run_barrier_arrive : run_barrier;
    in->slot[0] = operand[0].slot;
    in->slot[1] = operands > 1 ? operand[1].slot : EMU_NONE;
    in->number[0] = is_red;
    if (is_red) {
        const emu_operand *asked = &in->operand[in->operands - 1];
        in->slot[2] = in->operand[0].slot;
        in->slot[3] = asked->slot;
        in->number[1] = asked->negated; /* the value that does not count */
    }
    return true;
}

bool emu_threads_take(const emu_function *function, emu_instruction *in)
{
    (void)function;
    static const char *const nothing[] = {"griddepcontrol", "setmaxnreg", "prefetch", "prefetchu", "pragma"};
    const char *name = in->part[0];
    if (!strcmp(name, "bar")) return take_barrier(in);
    if (!strcmp(name, "barrier") && in->parts > 2 && !strcmp(in->part[1], "cluster")) {
        in->run = !strcmp(in->part[2], "arrive") ? run_cluster_arrive : run_cluster_wait;
        return true;
    }
    if (!strcmp(name, "griddepcontrol") && emu_has_part(in, "wait")) return in->run = run_wait_for_grid, true;
    if (!strcmp(name, "fence") || !strcmp(name, "membar")) {
        bool orders = name[0] == 'm' || emu_has_part(in, "acq_rel") || emu_has_part(in, "sc");
        in->number[0] = orders && !emu_has_part(in, "proxy") ? (int)emu_scope_of(in, EMU_GPU) : 0;
        return in->run = run_fence, true;
    }
    if (!strcmp(name, "nanosleep")) return in->run = run_sleep, true;
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; ++i)
        if (!strcmp(name, nothing[i])) return in->run = run_nothing, true;
    return false;
}

/* What waits for all that run counts one fewer. */
void emu_threads_end_warp(emu_warp *warp)
{
    emu_block *block = warp->block;
    if (warp->cluster_arrived && warp->cluster_phase == block->cluster->phase) block->cluster->arrived_and_gone++;
    /* Those who have gone are not waited for, unless it was said how many are to come. */
    for (int i = 0; i < 16; ++i)
        if (block->barrier[i].arrived && !block->barrier[i].counted &&
            block->barrier[i].arrived >= (uint32_t)block->running * EMU_LANES)
            complete_barrier(block, i);
    complete_cluster(block->cluster);
}
