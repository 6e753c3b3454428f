/* memory.c - loads, stores and atomic sums, and which addresses are whose: every byte of every access is looked up, and one that is
 * nobody's, or not aligned, ends the launch. Found by parse.c; emu_shared and emu_global serve engine.c and matrix.c as well. */
#include "observe.h"

#include <string.h>

typedef enum space { GENERIC, GLOBAL, SHARED, PARAM, LOCAL } space;
enum { NUMBER_SPACE, NUMBER_BYTES, NUMBER_SIGNED, NUMBER_COUNT, NUMBER_YIELDS, NUMBER_ACCESS /* an emu_access */ };

/* ---- whose addresses */

emu_block *emu_shared_owner(emu_warp *warp, const emu_instruction *in, uint64_t *address)
{
    uint32_t rank = (uint32_t)(*address >> 24 & 0xff);
    *address &= 0xffffff;
    if (!rank) return warp->block;
    if (rank > warp->block->cluster->blocks)
        emu_fail(warp, in, -1, "shared memory of block %u of a cluster of %u", rank - 1, warp->block->cluster->blocks);
    return &warp->block->cluster->block[rank - 1];
}

unsigned char *emu_shared(emu_warp *warp, const emu_instruction *in, uint64_t address, size_t bytes, const char *what)
{
    address = (uint32_t)address; /* of a register of 64 bits the lower half counts */
    uint64_t asked = address;
    emu_block *block = address >> 24 ? emu_shared_owner(warp, in, &address) : warp->block;
    uint64_t end = EMU_SHARED_FIRST + (uint64_t)block->grid->shared_bytes;
    if (address < EMU_SHARED_FIRST || bytes > end - EMU_SHARED_FIRST || address > end - bytes)
        emu_fail(warp, in, -1, "%s %zu bytes of shared memory at 0x%llx, which ends at 0x%llx", what, bytes,
                 (unsigned long long)asked, (unsigned long long)end);
    if (!block->running) emu_fail(warp, in, -1, "%s shared memory of block %u, which has ended", what, block->id[0]);
    if (!block->begun) emu_fail(warp, in, -1, "%s shared memory of block %u, which has not begun", what, block->id[0]);
    return block->shared + (address - EMU_SHARED_FIRST);
}

static bool is_variable(const emu_warp *warp, uint64_t address, size_t bytes)
{
    const emu_function *function = warp->block->grid->function;
    for (int i = 0; i < function->variables; ++i) {
        uint64_t begin = (uint64_t)(uintptr_t)function->variable[i].data;
        if (address >= begin && bytes <= function->variable[i].bytes && address - begin <= function->variable[i].bytes - bytes)
            return true;
    }
    return false;
}

unsigned char *emu_global(emu_warp *warp, const emu_instruction *in, uint64_t address, size_t bytes, const char *what)
{
    if (!emu_allocated(address, bytes) && !is_variable(warp, address, bytes))
        emu_fail(warp, in, -1, "%s %zu bytes of global memory at 0x%llx, which are in no block", what, bytes,
                 (unsigned long long)address);
    return (unsigned char *)(uintptr_t)address;
}

const unsigned char *emu_generic(emu_warp *warp, const emu_instruction *in, uint64_t address, size_t bytes, const char *what)
{
    const emu_grid *grid = warp->block->grid;
    if (address < EMU_PARAM_BASE || address >= EMU_LOCAL_BASE) return emu_global(warp, in, address, bytes, what);
    uint64_t at = address - EMU_PARAM_BASE;
    if (at > grid->function->param_bytes || bytes > grid->function->param_bytes - at)
        emu_fail(warp, in, -1, "%s %zu bytes at %llu of %u of parameters", what, bytes, (unsigned long long)at,
                 grid->function->param_bytes);
    return grid->params + at;
}

static unsigned char *local(emu_warp *warp, const emu_instruction *in, uint64_t address, size_t bytes, int lane)
{
    uint32_t most = warp->block->grid->function->local_bytes;
    uint64_t at = address - EMU_LOCAL_BASE;
    if (address < EMU_LOCAL_BASE || at > most || bytes > most - at)
        emu_fail(warp, in, lane, "%zu bytes of local memory at %llu of %u", bytes, (unsigned long long)at, most);
    return warp->local + (size_t)lane * most + at;
}

static void look_for_races(emu_warp *warp, const emu_instruction *in, uint32_t mask, const uint64_t *address,
                           unsigned char **place)
{
    size_t bytes = (size_t)in->number[NUMBER_BYTES] * (size_t)in->number[NUMBER_COUNT];
    emu_access access = (emu_access)in->number[NUMBER_ACCESS];
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        uint64_t at = (uint32_t)address[lane];
        const emu_block *owner = emu_shared_owner(warp, in, &at);
        emu_race_check(warp, in, lane, owner, place[lane], bytes, access);
        emu_race_note(warp, in, 1u << lane, owner, place[lane], bytes, access);
    }
}

/* Where each lane's access goes. */
static void find_places(emu_warp *warp, const emu_instruction *in, uint32_t mask, const emu_operand *operand, const char *what,
                        unsigned char **place)
{
    size_t bytes = (size_t)in->number[NUMBER_BYTES] * (size_t)in->number[NUMBER_COUNT];
    space space = in->number[NUMBER_SPACE];
    uint64_t address[EMU_LANES];
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        warp->asking = 1 + lane;
        address[lane] = emu_address(warp, operand, lane);
        if (address[lane] % bytes)
            emu_fail(warp, in, lane, "%s %zu bytes at 0x%llx, which is not aligned to them", what, bytes,
                     (unsigned long long)address[lane]);
        if (space == SHARED)
            place[lane] = emu_shared(warp, in, address[lane], bytes, what);
        else if (space == LOCAL || (space == GENERIC && address[lane] >= EMU_LOCAL_BASE))
            place[lane] = local(warp, in, address[lane], bytes, lane);
        else if (space == GLOBAL)
            place[lane] = emu_global(warp, in, address[lane], bytes, what);
        else
            place[lane] = (unsigned char *)emu_generic(warp, in, address[lane], bytes, what);
        if (in->part[0][0] != 'l' && address[lane] >= EMU_PARAM_BASE && address[lane] < EMU_LOCAL_BASE)
            emu_fail(warp, in, lane, "%s parameters, which are read only", what);
    }
    warp->asking = 0;
    if (space == SHARED && warp->block->races) look_for_races(warp, in, mask, address, place);
    for (int lane = 0; (space == GLOBAL || space == GENERIC) && lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1) || address[lane] >= EMU_PARAM_BASE) continue;
        emu_saw_global(warp, in, lane, address[lane], in->part[0][0] != 'l');
        emu_global_access(warp, in, lane, address[lane], bytes, (emu_access)in->number[NUMBER_ACCESS]);
    }
    if (!warp->block->grid->counting) return;
    if (space == SHARED) emu_count_shared(warp->block->grid, address, mask, (int)bytes, in->part[0][0] == 's');
    if (space == GLOBAL) emu_count_global(warp->block->grid, address, mask, (int)bytes);
}

/* Who reads or writes as one who tells others, or hears; and who overwrites what was told. */
static void look_at_flags(emu_warp *warp, const emu_instruction *in, uint32_t mask, unsigned char **place)
{
    size_t bytes = (size_t)in->number[NUMBER_BYTES] * (size_t)in->number[NUMBER_COUNT];
    emu_access access = (emu_access)in->number[NUMBER_ACCESS];
    space space = in->number[NUMBER_SPACE];
    struct emu_flags **flags = space == SHARED ? &warp->block->cluster->flags : &warp->block->grid->flags;
    if (space == PARAM || space == LOCAL || (!*flags && (access & EMU_DOES) == EMU_READS)) return;
    if (!(access & EMU_SCOPE) && ((access & EMU_DOES) == EMU_READS || !*flags)) return;
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        uint64_t at = (uint64_t)(uintptr_t)place[lane];
        if ((access & EMU_DOES) == EMU_READS)
            emu_flag_read(warp, lane, *flags, at, access);
        else
            emu_flag_write(warp, lane, flags, at, bytes, access);
    }
}

/* ---- loads, stores, sums */

static void load_element(emu_warp *warp, const emu_instruction *in, const emu_operand *to, const unsigned char *from, int lane)
{
    int bytes = in->number[NUMBER_BYTES];
    uint64_t value = 0;
    memcpy(&value, from, (size_t)bytes);
    if (in->number[NUMBER_SIGNED] && bytes < 8 && value >> (8 * bytes - 1)) value |= ~UINT64_C(0) << 8 * bytes;
    if (to->kind == EMU_SINK) return;
    if (to->wide)
        emu_u64(warp, to->slot)[lane] = value;
    else
        emu_u32(warp, to->slot)[lane] = (uint32_t)value;
}

static emu_outcome run_load(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    const emu_operand *element =
        in->operand[0].kind == EMU_VECTOR ? warp->block->grid->function->element + in->operand[0].first : in->operand;
    int count = in->number[NUMBER_COUNT], bytes = in->number[NUMBER_BYTES];
    unsigned char *from[EMU_LANES];
    /* All addresses before any result: the base may be among the results. */
    find_places(warp, in, mask, &in->operand[1], "reads", from);
    for (int i = 0; i < count; ++i)
        for (int lane = 0; lane < EMU_LANES; ++lane)
            if (mask >> lane & 1) load_element(warp, in, &element[i], from[lane] + i * bytes, lane);
    look_at_flags(warp, in, mask, from);
    return in->number[NUMBER_YIELDS] ? EMU_YIELD : EMU_STEP;
}

static uint64_t stored_value(const emu_warp *warp, const emu_operand *from, int lane)
{
    bool wide = from->kind == EMU_REGISTER ? from->wide : true;
    uint32_t slot = emu_slot_of(from, wide);
    return wide ? emu_u64(warp, slot)[lane] : emu_u32(warp, slot)[lane];
}

static emu_outcome run_store(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    const emu_operand *element =
        in->operand[1].kind == EMU_VECTOR ? warp->block->grid->function->element + in->operand[1].first : &in->operand[1];
    int count = in->number[NUMBER_COUNT], bytes = in->number[NUMBER_BYTES];
    unsigned char *to[EMU_LANES];
    find_places(warp, in, mask, &in->operand[0], "writes", to);
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        for (int i = 0; i < count; ++i) {
            uint64_t value = stored_value(warp, &element[i], lane);
            memcpy(to[lane] + i * bytes, &value, (size_t)bytes);
        }
        if (in->number[NUMBER_SPACE] != SHARED) continue;
        uint64_t address = (uint32_t)emu_address(warp, &in->operand[0], lane);
        emu_saw_write(warp, emu_shared_owner(warp, in, &address), to[lane], (size_t)(count * bytes));
    }
    look_at_flags(warp, in, mask, to);
    return EMU_STEP;
}

/* red.add of integers; one lane after the other, as atomics are. */
static emu_outcome run_add(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    unsigned char *to[EMU_LANES];
    find_places(warp, in, mask, &in->operand[0], "adds to", to);
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        uint64_t value = 0;
        memcpy(&value, to[lane], (size_t)in->number[NUMBER_BYTES]);
        value += stored_value(warp, &in->operand[1], lane);
        memcpy(to[lane], &value, (size_t)in->number[NUMBER_BYTES]);
    }
    look_at_flags(warp, in, mask, to);
    return EMU_STEP;
}

/* ---- which instructions */

static bool read_type(emu_instruction *in, const char *type)
{
    if (!strchr("bsuf", type[0])) return false;
    int bits = 0;
    for (const char *digit = type + 1; *digit; ++digit) {
        if (*digit < '0' || *digit > '9') return false;
        bits = bits * 10 + (*digit - '0');
    }
    if (bits != 8 && bits != 16 && bits != 32 && bits != 64) return false;
    in->number[NUMBER_BYTES] = bits / 8;
    in->number[NUMBER_SIGNED] = type[0] == 's';
    return true;
}

static void read_modifiers(emu_instruction *in)
{
    static const struct {
        const char *name;
        space space;
    } spaces[] = {{"global", GLOBAL},          {"const", GLOBAL}, {"shared", SHARED}, {"shared::cta", SHARED},
                  {"shared::cluster", SHARED}, {"param", PARAM},  {"local", LOCAL}};
    in->number[NUMBER_SPACE] = GENERIC;
    in->number[NUMBER_COUNT] = emu_has_part(in, "v4") ? 4 : emu_has_part(in, "v2") ? 2 : 1;
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; ++i)
        if (emu_has_part(in, spaces[i].name)) in->number[NUMBER_SPACE] = spaces[i].space;
    /* Who looks at what others tell by counters waits for them. */
    in->number[NUMBER_YIELDS] = emu_has_part(in, "acquire") || emu_has_part(in, "relaxed");
}

/* Volatile is relaxed, of the whole system. */
static emu_access access_of(const emu_instruction *in)
{
    emu_access does = in->part[0][0] == 'l' ? EMU_READS : in->part[0][0] == 's' ? EMU_WRITES : EMU_ADDS;
    bool orders = emu_has_part(in, "acquire") || emu_has_part(in, "release");
    bool strong = orders || does == EMU_ADDS || emu_has_part(in, "relaxed") || emu_has_part(in, "volatile");
    return does | (strong ? emu_scope_of(in, EMU_GPU) : 0) | (orders ? EMU_ORDERS : 0) |
           (emu_has_part(in, "nc") ? EMU_NOT_COHERENT : 0);
}

bool emu_memory_take(const emu_function *function, emu_instruction *in)
{
    (void)function;
    const char *name = in->part[0];
    bool loads = !strcmp(name, "ld"), stores = !strcmp(name, "st"), adds = !strcmp(name, "red");
    if (!(loads || stores || adds) || emu_has_part(in, "async") || in->operands != 2) return false;
    if (in->operand[!loads ? 0 : 1].kind != EMU_ADDRESS || !read_type(in, in->part[in->parts - 1])) return false;
    read_modifiers(in);
    in->number[NUMBER_ACCESS] = (int)access_of(in);
    const emu_operand *data = &in->operand[loads ? 0 : 1];
    if (data->kind == EMU_VECTOR ? data->count != (uint32_t)in->number[NUMBER_COUNT] : in->number[NUMBER_COUNT] != 1)
        return false;
    if (adds && (!emu_has_part(in, "add") || in->part[in->parts - 1][0] == 'f')) return false;
    in->run = loads ? run_load : stores ? run_store : run_add;
    return true;
}
