/* observe.c - what can be seen from outside while a kernel runs. Two things: who reads by the async proxy (wgmma, the copy engine) what
 * threads wrote by ordinary stores, with no fence.proxy.async between, which hardware forgives most of the time; and, where EMULATOR_COUNT
 * names a file, how often shared memory's banks turn and how many sectors of global memory are touched. Called by those who access memory. */
#include "observe.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- fences: for each 16 bytes of shared memory the number of the last ordinary write, and whose it was */

enum { CHUNK = 16 };

static size_t chunk_of(const emu_block *block, const unsigned char *at) { return (size_t)(at - block->shared) / CHUNK; }

void emu_saw_write(emu_warp *warp, emu_block *owner, const unsigned char *at, size_t bytes)
{
    uint32_t number = ++owner->writes;
    for (size_t i = chunk_of(owner, at); i <= chunk_of(owner, at + bytes - 1); ++i)
        owner->write[i] = (emu_write){number, (uint16_t)warp->index, (uint16_t)warp->block->rank};
}

void emu_saw_landing(emu_block *owner, const unsigned char *at, size_t bytes)
{
    for (size_t i = chunk_of(owner, at); i <= chunk_of(owner, at + bytes - 1); ++i) owner->write[i] = (emu_write){0};
}

void emu_saw_fence(emu_warp *warp) { warp->fenced = warp->block->writes; }

/* A fence counts behind the write, by the warp that wrote or by the one that reads: what orders the two is not looked at. */
void emu_check_fence(emu_warp *warp, const emu_instruction *in, const emu_block *block, const unsigned char *at, size_t bytes,
                     const char *what)
{
    for (size_t i = chunk_of(block, at); i <= chunk_of(block, at + bytes - 1); ++i) {
        emu_write write = block->write[i];
        if (!write.number || (warp->block == block && warp->fenced >= write.number)) continue;
        if (write.rank == block->rank && block->warp[write.warp].fenced >= write.number) continue;
        emu_fail(warp, in, -1,
                 "%s at 0x%zx was written by warp %u of block %u of the cluster, with no fence.proxy.async or, an mbarrier, "
                 "fence.mbarrier_init since",
                 what, EMU_SHARED_FIRST + i * CHUNK, (unsigned)write.warp, (unsigned)write.rank);
    }
}

/* ---- kernels that begin before the one before has ended */

void emu_saw_global(emu_warp *warp, const emu_instruction *in, int lane, uint64_t address, bool writes)
{
    emu_grid *grid = warp->block->grid;
    bool unsure = grid->early && warp->block->races && !emu_race_heard_end(warp, lane);
    if (unsure && (writes || emu_kernel_wrote(address)))
        emu_fail(warp, in, lane, "it %s 0x%llx, and no griddepcontrol.wait has told it that the kernel before has ended",
                 writes ? "writes" : "reads what a kernel wrote, or the caller, at", (unsigned long long)address);
    if (!writes || address / 256 == grid->wrote) return; /* mostly there again; no two blocks of memory share so many bytes */
    grid->wrote = address / 256;
    emu_kernel_writes(address);
}

void emu_check_waited(emu_warp *warp)
{
    const emu_grid *grid = warp->block->grid;
    if (grid->early && warp->block->races && !warp->block->waited)
        emu_fail(warp, grid->function->code, -1,
                 "the launch may begin early, and the block has ended with no griddepcontrol.wait: who waits for this kernel "
                 "would not wait for the one before");
}

/* ---- counters */

bool emu_counts_wanted(void)
{
    const char *file = getenv("EMULATOR_COUNT");
    return file && *file;
}

/* Lanes are served together as far as their bytes are no more than 128: all of 4 bytes, halves of 8, quarters of 16. A bank has a word
 * at a time, and whoever asks for the same word gets it too. */
static uint32_t turns_of(const uint64_t *address, uint32_t mask, int bytes)
{
    int words = bytes < 4 ? 1 : bytes / 4, together = EMU_LANES / words;
    uint32_t turns = 0;
    for (int first = 0; first < EMU_LANES; first += together) {
        uint32_t asked[32][32], count[32] = {0}, most = 0;
        for (int lane = first; lane < first + together; ++lane) {
            for (int word = 0; word < words && mask >> lane & 1; ++word) {
                uint32_t at = (uint32_t)(address[lane] / 4) + (uint32_t)word, bank = at % 32, i = 0;
                while (i < count[bank] && asked[bank][i] != at) ++i;
                if (i == count[bank]) asked[bank][count[bank]++] = at;
                if (count[bank] > most) most = count[bank];
            }
        }
        turns += most;
    }
    return turns;
}

/* The turns that as many bytes would take without a conflict. */
static uint32_t least_turns(uint32_t mask, int bytes)
{
    int words = bytes < 4 ? 1 : bytes / 4, together = EMU_LANES / words;
    uint32_t turns = 0;
    for (int first = 0; first < EMU_LANES; first += together)
        turns += (mask >> first & (together == 32 ? ~0u : (1u << together) - 1)) != 0;
    return turns;
}

void emu_count_shared(emu_grid *grid, const uint64_t *address, uint32_t mask, int bytes, bool writes)
{
    emu_counts *c = &grid->counts;
    uint32_t turns = turns_of(address, mask, bytes), least = least_turns(mask, bytes);
    *(writes ? &c->shared_stores : &c->shared_loads) += 1;
    *(writes ? &c->store_turns : &c->load_turns) += turns;
    *(writes ? &c->store_turns_least : &c->load_turns_least) += least;
}

void emu_count_global(emu_grid *grid, const uint64_t *address, uint32_t mask, int bytes)
{
    uint64_t seen[EMU_LANES * 2];
    int sectors = 0;
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        for (uint64_t sector = address[lane] / 32; sector <= (address[lane] + (uint64_t)bytes - 1) / 32; ++sector) {
            int i = 0;
            while (i < sectors && seen[i] != sector) ++i;
            if (i == sectors) seen[sectors++] = sector;
        }
    }
    grid->counts.global_sectors += (uint64_t)sectors;
    grid->counts.global_bytes += (uint64_t)(__builtin_popcount(mask) * bytes);
}

/* A line for each launch; several processes may write to the file, hence by one call. */
void emu_counts_write(const emu_grid *grid)
{
    const emu_counts *c = &grid->counts;
    char line[640],
        head[] = "kernel,blocks,threads,cluster,warp_instructions,shared_loads,load_turns,load_turns_least,shared_stores,"
                 "store_turns,store_turns_least,global_bytes,global_sectors,async_bytes,matrix_products\n";
    int length = snprintf(
        line, sizeof line, "%s,%llu,%u,%u,%llu,%llu,%llu,%llu,%llu,%llu,%llu,%llu,%llu,%llu,%llu\n", grid->function->name,
        (unsigned long long)grid->grid[0] * grid->grid[1] * grid->grid[2], grid->block[0] * grid->block[1] * grid->block[2],
        grid->cluster, (unsigned long long)grid->instructions, (unsigned long long)c->shared_loads,
        (unsigned long long)c->load_turns, (unsigned long long)c->load_turns_least, (unsigned long long)c->shared_stores,
        (unsigned long long)c->store_turns, (unsigned long long)c->store_turns_least, (unsigned long long)c->global_bytes,
        (unsigned long long)c->global_sectors, (unsigned long long)c->async_bytes, (unsigned long long)c->products);
    int file = open(getenv("EMULATOR_COUNT"), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (file < 0) return;
    if (lseek(file, 0, SEEK_END) == 0 && write(file, head, sizeof head - 1) < 0) length = 0;
    if (length > 0 && write(file, line, (size_t)length) < 0) fprintf(stderr, "emulator: EMULATOR_COUNT's file takes no more\n");
    close(file);
}
