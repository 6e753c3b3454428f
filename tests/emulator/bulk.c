/* bulk.c - the copy engine of sm_90: bulk copies of bytes and of boxes of a tensor, into one block of a cluster or several, boxes out of
 * shared memory, and st.async. Found through engine.c, which knows when they land.
 *
 * Two things that an H200 does and the manual does not say, found by tests (docs/testing.md, docs/kernels/choose.md): a box that is
 * stored is written in whole 16 bytes, also where a row ends within them; a box that begins within 16 bytes is an illegal instruction. */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

/* ---- boxes */

static uint32_t swizzled(uint32_t address, int swizzle)
{
    static const uint32_t chunks[] = {0, 1, 3, 7}; /* of 16 bytes in a span, less one */
    return address ^ (address >> 7 & chunks[swizzle]) << 4;
}

/* Calls `visit` for every 16 bytes of a box: where they are in shared memory, and where in the tensor; NULL: outside of it. `inside` is how
 * many of their bytes are in the row. */
typedef void visit_chunk(void *user, uint32_t shared_address, unsigned char *global, uint32_t inside);

static void walk_box(const emu_tensor_map *map, const int *at, uint32_t shared_address, visit_chunk *visit, void *user)
{
    const uint32_t row_bytes = (uint32_t)map->box[0] * map->element_bytes;
    uint32_t rows = 1;
    for (int d = 1; d < map->rank; ++d) rows *= map->box[d];
    for (uint32_t row = 0; row < rows; ++row) {
        uint64_t offset = 0;
        bool is_there = true;
        for (uint32_t d = 1, left = row; d < map->rank; left /= map->box[d], ++d) {
            int64_t place = (int64_t)at[d] + left % map->box[d];
            is_there = is_there && place >= 0 && place < (int64_t)map->sizes[d];
            offset += (uint64_t)place * map->strides[d - 1];
        }
        for (uint32_t byte = 0; byte < row_bytes; byte += 16) {
            int64_t first = (int64_t)at[0] * map->element_bytes + byte, end = (int64_t)map->sizes[0] * map->element_bytes;
            int64_t inside = !is_there || first < 0 || first >= end ? 0 : end - first < 16 ? end - first : 16;
            unsigned char *global = inside ? (unsigned char *)(uintptr_t)(map->address + offset + (uint64_t)first) : NULL;
            visit(user, swizzled(shared_address + row * row_bytes + byte, map->swizzle), global, (uint32_t)inside);
        }
    }
}

typedef struct box_walk {
    emu_warp *warp;
    const emu_instruction *in;
    unsigned char *shared; /* at EMU_SHARED_FIRST */
} box_walk;

static void load_chunk(void *user, uint32_t shared_address, unsigned char *global, uint32_t inside)
{
    box_walk *walk = user;
    unsigned char *to = walk->shared + (shared_address - EMU_SHARED_FIRST);
    memset(to, 0, 16); /* what is outside is zero */
    if (inside) memcpy(to, emu_global(walk->warp, walk->in, (uint64_t)(uintptr_t)global, inside, "brings"), inside);
}

static void store_chunk(void *user, uint32_t shared_address, unsigned char *global, uint32_t inside)
{
    box_walk *walk = user;
    if (!inside) return;
    memcpy(emu_global(walk->warp, walk->in, (uint64_t)(uintptr_t)global, 16, "stores"),
           walk->shared + (shared_address - EMU_SHARED_FIRST), 16);
}

/* What a box reads is accessed from here on, until the mbarrier is told. */
typedef struct box_read {
    emu_warp *warp;
    const emu_pending *copy;
    int lane;
} box_read;

static void read_chunk(void *user, uint32_t shared_address, unsigned char *global, uint32_t inside)
{
    const box_read *r = user;
    (void)shared_address;
    if (inside)
        emu_global_copy(r->warp, r->copy->in, r->lane, (uint64_t)(uintptr_t)global, inside, r->copy->number, r->copy->owner,
                        r->copy->barrier);
}

/* What a box is stored to: from when it is started until the thread has waited for more than that it was read. */
typedef struct box_write {
    emu_warp *warp;
    const emu_store *store;
    bool done;
} box_write;

static void write_chunk(void *user, uint32_t shared_address, unsigned char *global, uint32_t inside)
{
    const box_write *w = user;
    uint64_t address = (uint64_t)(uintptr_t)global;
    (void)shared_address;
    if (inside)
        (w->done ? emu_global_done : emu_global_begin)(w->warp, w->store->in, w->store->lane, address, 16,
                                                       EMU_WRITES | EMU_ASYNC);
}

void emu_box_load(const emu_pending *copy)
{
    box_walk walk = {copy->warp, copy->in, copy->owner->shared};
    walk_box(&copy->map, copy->at, copy->to_address, load_chunk, &walk);
}

static uint32_t box_bytes(const emu_tensor_map *map)
{
    uint32_t bytes = map->element_bytes;
    for (int d = 0; d < map->rank; ++d) bytes *= map->box[d];
    return bytes;
}

/* The map and the coordinates of a lane's [map, {x, y}]. */
static void read_box(emu_warp *warp, const emu_instruction *in, const emu_operand *operand, int lane, emu_tensor_map *map,
                     int *at)
{
    uint64_t address = emu_address(warp, operand, lane);
    if (address % 64)
        emu_fail(warp, in, lane, "a tensor map at 0x%llx, which is not aligned to 64 bytes", (unsigned long long)address);
    memcpy(map, emu_generic(warp, in, address, 128, "takes a tensor map of"), sizeof *map);
    if (map->magic != EMU_TENSOR_MAGIC) emu_fail(warp, in, lane, "no tensor map at 0x%llx", (unsigned long long)address);
    if (operand->count != map->rank)
        emu_fail(warp, in, lane, "%u coordinates for a tensor of %u dimensions", operand->count, map->rank);
    for (uint32_t d = 0; d < operand->count; ++d)
        at[d] = (int)emu_u32(warp, warp->block->grid->function->element[operand->first + d].slot)[lane];
    if ((int64_t)at[0] * map->element_bytes % 16) emu_fail(warp, in, lane, "a box from element %d on, within 16 bytes", at[0]);
}

/* ---- into shared memory */

static void check_multiple(emu_warp *warp, const emu_instruction *in, int lane, uint64_t value, uint32_t of, const char *what)
{
    if (value % of) emu_fail(warp, in, lane, "%s is 0x%llx, no multiple of %u", what, (unsigned long long)value, of);
}

/* Starts a copy to one block, or to each of the cluster that `blocks` has a bit for: the same place and the same barrier in each. */
static void start(emu_warp *warp, const emu_instruction *in, int lane, emu_pending copy, uint64_t to, uint64_t barrier,
                  uint32_t blocks)
{
    emu_cluster *cluster = warp->block->cluster;
    copy.in = in;
    if (blocks >> cluster->blocks) emu_fail(warp, in, -1, "blocks 0x%x of a cluster of %u", blocks, cluster->blocks);
    for (uint32_t rank = 0; rank < cluster->blocks; ++rank) {
        if (blocks && !(blocks >> rank & 1)) continue;
        uint64_t there = blocks ? (to & 0xffffff) | (uint64_t)(rank + 1) << 24 : to;
        uint64_t told = blocks ? (barrier & 0xffffff) | (uint64_t)(rank + 1) << 24 : barrier;
        copy.to = emu_shared(warp, in, there, copy.bytes, "copies to");
        copy.barrier = emu_shared(warp, in, told, 8, "tells an mbarrier in");
        copy.owner = emu_shared_owner(warp, in, &there);
        copy.to_address = (uint32_t)there;
        if (emu_shared_owner(warp, in, &told) != copy.owner)
            emu_fail(warp, in, -1, "bytes go to one block, and another's mbarrier is told");
        emu_check_fence(warp, in, copy.owner, copy.barrier, 8, "the mbarrier");
        emu_race_check(warp, in, lane, copy.owner, copy.barrier, 8, EMU_READS);
        emu_race_check(warp, in, lane, copy.owner, copy.to, copy.bytes, EMU_WRITES);
        copy.number = emu_race_number_copy(copy.owner);
        emu_race_note_copy(in, copy.number, copy.owner, copy.barrier, copy.owner, copy.to, copy.bytes, EMU_WRITES);
        if (copy.kind == EMU_BYTES && in->number[0])
            emu_race_note_copy(in, copy.number, copy.owner, copy.barrier, warp->block, copy.from, copy.bytes, EMU_READS);
        else if (copy.kind == EMU_BYTES)
            emu_global_copy(warp, in, lane, (uint64_t)(uintptr_t)copy.from, copy.bytes, copy.number, copy.owner, copy.barrier);
        if (copy.kind == EMU_BOX && warp->block->grid->globals)
            walk_box(&copy.map, copy.at, copy.to_address, read_chunk, &(box_read){warp, &copy, lane});
        emu_engine_start(warp, copy);
        if (!blocks) return;
    }
}

static uint32_t blocks_of(const emu_warp *warp, const emu_instruction *in, int lane)
{
    return in->slot[0] == EMU_NONE ? 0 : emu_u32(warp, in->slot[0])[lane] & 0xffff;
}

/* cp.async.bulk [to], [from], bytes, [barrier](, blocks): number[0] whether it comes out of shared memory. */
static emu_outcome run_bulk(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        uint64_t to = emu_address(warp, &in->operand[0], lane), from = emu_address(warp, &in->operand[1], lane);
        emu_pending copy = {.kind = EMU_BYTES, .bytes = emu_u32(warp, in->operand[2].slot)[lane]};
        check_multiple(warp, in, lane, to, 16, "the destination");
        check_multiple(warp, in, lane, from, 16, "the source");
        check_multiple(warp, in, lane, copy.bytes, 16, "the count of bytes");
        copy.from = in->number[0] ? emu_shared(warp, in, from, copy.bytes, "copies from")
                                  : emu_global(warp, in, from, copy.bytes, "copies from");
        if (!in->number[0]) emu_saw_global(warp, in, lane, from, false);
        if (in->number[0]) {
            emu_check_fence(warp, in, warp->block, copy.from, copy.bytes, "what is copied");
            emu_race_check(warp, in, lane, warp->block, copy.from, copy.bytes, EMU_READS);
        }
        start(warp, in, lane, copy, to, emu_address(warp, &in->operand[3], lane), blocks_of(warp, in, lane));
    }
    return EMU_STEP;
}

/* cp.async.bulk.tensor [to], [map, {x, y}], [barrier](, blocks) */
static emu_outcome run_tensor_load(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        emu_pending copy = {.kind = EMU_BOX};
        uint64_t to = emu_address(warp, &in->operand[0], lane);
        read_box(warp, in, &in->operand[1], lane, &copy.map, copy.at);
        check_multiple(warp, in, lane, to, 128, "the destination");
        copy.bytes = box_bytes(&copy.map);
        emu_saw_global(warp, in, lane, copy.map.address, false);
        start(warp, in, lane, copy, to, emu_address(warp, &in->operand[2], lane), blocks_of(warp, in, lane));
    }
    return EMU_STEP;
}

/* st.async [to], {a, b, c, d}, [barrier] */
static emu_outcome run_send(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    const emu_operand *element = warp->block->grid->function->element + in->operand[1].first;
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        emu_pending copy = {.kind = EMU_SENT, .bytes = 4 * in->operand[1].count};
        uint64_t to = emu_address(warp, &in->operand[0], lane);
        check_multiple(warp, in, lane, to, copy.bytes, "the destination");
        for (uint32_t i = 0; i < in->operand[1].count; ++i) memcpy(copy.data + 4 * i, &emu_u32(warp, element[i].slot)[lane], 4);
        start(warp, in, lane, copy, to, emu_address(warp, &in->operand[2], lane), 0);
    }
    return EMU_STEP;
}

static emu_outcome run_mapa(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    uint32_t *to = emu_u32(warp, in->operand[0].slot);
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        uint32_t rank = emu_u32(warp, in->operand[2].slot)[lane];
        if (rank >= warp->block->cluster->blocks)
            emu_fail(warp, in, lane, "block %u of a cluster of %u", rank, warp->block->cluster->blocks);
        to[lane] = (emu_u32(warp, in->operand[1].slot)[lane] & 0xffffff) | (rank + 1) << 24;
    }
    return EMU_STEP;
}

/* ---- out of shared memory */

static void land_store(emu_warp *warp, const emu_store *store)
{
    box_walk walk = {warp, store->in, warp->block->shared};
    walk_box(&store->map, store->at, store->from, store_chunk, &walk);
}

/* Lands stores of `lanes` whose group is before the one that a lane's `before` names. `reads`: only that they have been read is waited for. */
static void land_stores(emu_warp *warp, uint32_t lanes, const uint32_t *before, bool reads)
{
    if (!warp->copies) return;
    for (emu_store **at = &warp->copies->stores; *at;) {
        emu_store *store = *at;
        if (!(lanes >> store->lane & 1) || store->group >= before[store->lane]) {
            at = &store->next;
            continue;
        }
        if (!store->landed) land_store(warp, store);
        if (!store->read)
            emu_race_note(warp, store->in, 1u << store->lane, warp->block,
                          warp->block->shared + (store->from - EMU_SHARED_FIRST), box_bytes(&store->map), EMU_READS);
        store->landed = store->read = true;
        if (reads && warp->block->grid->globals) {
            at = &store->next;
            continue;
        }
        if (warp->block->grid->globals)
            walk_box(&store->map, store->at, store->from, write_chunk, &(box_write){warp, store, true});
        *at = store->next;
        free(store);
    }
}

/* Shared memory goes with the block's last thread, and a box that is being read out of it may not. */
void emu_stores_end(emu_warp *warp)
{
    const emu_store *store = warp->copies ? warp->copies->stores : NULL;
    while (store && store->landed) store = store->next;
    if (store) emu_fail(warp, store->in, store->lane, "the thread ended before its box was read, by cp.async.bulk.wait_group");
}

void emu_stores_free(emu_warp *warp)
{
    while (warp->copies->stores) {
        emu_store *next = warp->copies->stores->next;
        free(warp->copies->stores);
        warp->copies->stores = next;
    }
}

/* cp.async.bulk.tensor [map, {x, y}], [from] */
static emu_outcome run_tensor_store(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    emu_copies *copies = emu_copies_of(warp);
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        if (!(mask >> lane & 1)) continue;
        emu_store store = {.in = in, .lane = lane, .group = copies->stores_committed[lane]};
        read_box(warp, in, &in->operand[0], lane, &store.map, store.at);
        emu_saw_global(warp, in, lane, store.map.address, true);
        store.from = (uint32_t)emu_address(warp, &in->operand[1], lane);
        check_multiple(warp, in, lane, store.from, 128, "the source");
        const unsigned char *source = emu_shared(warp, in, store.from, box_bytes(&store.map), "stores out of");
        emu_check_fence(warp, in, warp->block, source, box_bytes(&store.map), "what is stored");
        emu_race_check(warp, in, lane, warp->block, source, box_bytes(&store.map), EMU_READS);
        emu_race_begin(warp, in, 1u << lane, warp->block, source, box_bytes(&store.map), EMU_READS);
        if (warp->block->grid->globals)
            walk_box(&store.map, store.at, store.from, write_chunk, &(box_write){warp, &store, false});
        emu_order order = warp->block->grid->order;
        store.landed = order == EMU_EARLY || (order == EMU_RANDOM && emu_random(warp->block->grid) % 2);
        if (store.landed) land_store(warp, &store);
        emu_store **end = &copies->stores, *kept = malloc(sizeof *kept);
        if (!kept) abort();
        *kept = store;
        while (*end) end = &(*end)->next;
        *end = kept;
    }
    return EMU_STEP;
}

static emu_outcome run_store_wait(emu_warp *warp, const emu_instruction *in, uint32_t mask)
{
    emu_copies *copies = emu_copies_of(warp);
    uint32_t before[EMU_LANES];
    for (int lane = 0; lane < EMU_LANES; ++lane) {
        uint32_t done = copies->stores_committed[lane], left = (uint32_t)in->operand[0].value;
        before[lane] = done > left ? done - left : 0;
    }
    land_stores(warp, mask, before, emu_has_part(in, "read"));
    return EMU_STEP;
}

/* ---- which instructions */

bool emu_bulk_take(const emu_function *function, emu_instruction *in)
{
    (void)function;
    bool is_tensor = emu_has_part(in, "tensor"), loads = emu_has_part(in, "mbarrier::complete_tx::bytes");
    in->slot[0] = EMU_NONE;
    if (!strcmp(in->part[0], "mapa")) return in->run = run_mapa, in->operands == 3 && !in->operand[0].wide;
    if (!strcmp(in->part[0], "st"))
        return in->run = run_send, loads && in->operands == 3 && in->operand[1].kind == EMU_VECTOR && in->operand[1].count <= 4;
    if (emu_has_part(in, "wait_group")) return in->run = run_store_wait, in->operands == 1;
    if (is_tensor && !loads) return in->run = run_tensor_store, emu_has_part(in, "bulk_group") && in->operands == 2;
    if (!loads) return false;
    int last = is_tensor ? 3 : 4;
    if (emu_has_part(in, "multicast::cluster")) {
        if (in->operands != last + 1) return false;
        in->slot[0] = in->operand[last].slot;
    } else if (in->operands != last) {
        return false;
    }
    /* Of cp.async.bulk the destination's space stands first, the source's second. */
    in->number[0] = !is_tensor && in->parts > 4 && !strcmp(in->part[4], "shared::cta");
    in->run = is_tensor ? run_tensor_load : run_bulk;
    return true;
}
