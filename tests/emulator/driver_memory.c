/* driver_memory.c - the emulated GPU's memory: the host's own, at the host's addresses. Each block is a NaN all over until somebody
 * writes it, and has bytes before and behind it that are nobody's: an access that leaves a block finds none (memory.c and engine.c ask
 * emu_allocated of every one), and bytes that changed all the same are told when the block is freed: then the emulator is wrong. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { ALIGNMENT = 256, POISON = 0xff, GUARD = 0xa5, CACHED = 4 };
static const size_t TOTAL_BYTES = (size_t)8 << 30;

typedef struct block {
    uint64_t begin;
    size_t bytes;
    bool written; /* by a kernel, or by the caller */
} block;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static struct {
    block *block; /* [count], by address */
    size_t count, room, used;
} table;

/* Changes when a block is freed: until then, what lay in it once does so again. */
static atomic_uint_fast64_t generation = 1;

/* The blocks that this thread found last: a kernel works on few. Accesses come here one by one, hence no call for the thread's own. */
static _Thread_local struct {
    uint64_t generation;
    unsigned next;
    block block[CACHED];
} found __attribute__((tls_model("initial-exec")));

/* ---- the table */

static bool holds(const block *b, uint64_t address, size_t bytes)
{
    return address >= b->begin && bytes <= b->bytes && address - b->begin <= b->bytes - bytes;
}

/* The number of blocks that begin at or before the address. Under the lock. */
static size_t rank_of(uint64_t address)
{
    size_t low = 0, high = table.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (table.block[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool search(uint64_t address, size_t bytes)
{
    pthread_rwlock_rdlock(&lock);
    uint64_t now = atomic_load_explicit(&generation, memory_order_relaxed);
    size_t rank = rank_of(address);
    block at = rank ? table.block[rank - 1] : (block){0};
    pthread_rwlock_unlock(&lock);
    if (!rank || !holds(&at, address, bytes)) return false;
    if (found.generation != now) memset(&found, 0, sizeof found);
    found.generation = now;
    found.block[found.next++ % CACHED] = at;
    return true;
}

bool emu_allocated(uint64_t address, size_t bytes)
{
    if (found.generation == atomic_load_explicit(&generation, memory_order_acquire))
        for (int i = 0; i < CACHED; ++i)
            if (found.block[i].begin && holds(&found.block[i], address, bytes)) return true;
    return search(address, bytes);
}

/* The block of the table that the byte lies in. Under the lock. */
static block *block_of(uint64_t address)
{
    size_t rank = rank_of(address);
    return rank && holds(&table.block[rank - 1], address, 1) ? &table.block[rank - 1] : NULL;
}

void emu_kernel_writes(uint64_t address)
{
    pthread_rwlock_rdlock(&lock); /* a flag that is only ever set, by whoever comes first */
    block *b = block_of(address);
    if (b) __atomic_store_n(&b->written, true, __ATOMIC_RELAXED);
    pthread_rwlock_unlock(&lock);
}

bool emu_kernel_wrote(uint64_t address)
{
    pthread_rwlock_rdlock(&lock);
    const block *b = block_of(address);
    bool written = b && __atomic_load_n(&b->written, __ATOMIC_RELAXED);
    pthread_rwlock_unlock(&lock);
    return written;
}

static size_t rounded(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static unsigned char *memory_of(uint64_t address) { return (unsigned char *)(uintptr_t)address; }

/* What was written beside a block, nobody checked. */
static void check_guards(const block *b)
{
    const unsigned char *data = memory_of(b->begin);
    size_t behind = rounded(b->bytes) - b->bytes + ALIGNMENT;
    for (size_t i = 0; i < ALIGNMENT; ++i)
        if (data[-1 - (ptrdiff_t)i] != GUARD) {
            fprintf(stderr, "emulator: its own fault: byte %zu before a block of %zu was written\n", i + 1, b->bytes);
            break;
        }
    for (size_t i = 0; i < behind; ++i)
        if (data[b->bytes + i] != GUARD) {
            fprintf(stderr, "emulator: its own fault: byte %zu behind a block of %zu was written\n", i, b->bytes);
            break;
        }
}

static void give_back(const block *b)
{
    check_guards(b);
    free(memory_of(b->begin) - ALIGNMENT);
}

/* Under the lock. */
static bool insert(block b)
{
    if (table.count == table.room) {
        size_t room = table.room ? 2 * table.room : 64;
        block *grown = realloc(table.block, room * sizeof *grown);
        if (!grown) return false;
        table.block = grown;
        table.room = room;
    }
    size_t rank = rank_of(b.begin);
    memmove(table.block + rank + 1, table.block + rank, (table.count - rank) * sizeof b);
    table.block[rank] = b;
    ++table.count;
    table.used += b.bytes;
    return true;
}

EXPORT int cuMemAlloc_v2(uint64_t *out, size_t bytes)
{
    int result = emu_driver_enter_unsafe();
    if (result) return result;
    if (!out || !bytes) return INVALID_VALUE;
    pthread_rwlock_rdlock(&lock);
    bool full = bytes > TOTAL_BYTES - table.used;
    pthread_rwlock_unlock(&lock);
    unsigned char *memory = full ? NULL : aligned_alloc(ALIGNMENT, rounded(bytes) + 2 * ALIGNMENT);
    if (!memory) return OUT_OF_MEMORY;
    memset(memory, GUARD, ALIGNMENT);
    memset(memory + ALIGNMENT, POISON, bytes);
    memset(memory + ALIGNMENT + bytes, GUARD, rounded(bytes) - bytes + ALIGNMENT);
    block b = {.begin = (uint64_t)(uintptr_t)(memory + ALIGNMENT), .bytes = bytes};
    pthread_rwlock_wrlock(&lock);
    bool done = bytes <= TOTAL_BYTES - table.used && insert(b);
    pthread_rwlock_unlock(&lock);
    if (!done) {
        free(memory);
        return OUT_OF_MEMORY;
    }
    *out = b.begin;
    return OK;
}

/* Waits for what runs, as the driver does; and frees what a lost context left. */
EXPORT int cuMemFree_v2(uint64_t address)
{
    int result = emu_driver_enter_unsafe();
    if (result && result != LAUNCH_FAILED && result != ILLEGAL_ADDRESS) return result;
    block b = {0};
    pthread_mutex_lock(&emu_driver_gpu);
    pthread_rwlock_wrlock(&lock);
    size_t rank = rank_of(address);
    if (rank && table.block[rank - 1].begin == address) {
        b = table.block[rank - 1];
        memmove(table.block + rank - 1, table.block + rank, (table.count - rank) * sizeof b);
        --table.count;
        table.used -= b.bytes;
        atomic_fetch_add_explicit(&generation, 1, memory_order_release);
    }
    pthread_rwlock_unlock(&lock);
    if (b.begin) give_back(&b);
    pthread_mutex_unlock(&emu_driver_gpu);
    return result ? result : b.begin ? OK : INVALID_VALUE;
}

/* Pages that the GPU reaches by itself are any pages here. */
EXPORT int cuMemHostAlloc(void **out, size_t bytes, unsigned flags)
{
    int result = emu_driver_enter_unsafe();
    if (result) return result;
    if (!out || !bytes || flags & ~7u) return INVALID_VALUE;
    *out = malloc(bytes);
    return *out ? OK : OUT_OF_MEMORY;
}

EXPORT int cuMemFreeHost(void *memory)
{
    int result = emu_driver_enter_unsafe();
    if (result && result != LAUNCH_FAILED && result != ILLEGAL_ADDRESS) return result;
    if (!memory) return INVALID_VALUE;
    free(memory);
    return result;
}

void emu_driver_free_all(void)
{
    pthread_mutex_lock(&emu_driver_gpu);
    pthread_rwlock_wrlock(&lock);
    atomic_fetch_add_explicit(&generation, 1, memory_order_release);
    for (size_t i = 0; i < table.count; ++i) give_back(&table.block[i]);
    free(table.block);
    memset(&table, 0, sizeof table);
    pthread_rwlock_unlock(&lock);
    pthread_mutex_unlock(&emu_driver_gpu);
}

EXPORT int cuMemGetInfo_v2(size_t *available, size_t *total)
{
    int result = emu_driver_enter();
    if (result) return result;
    pthread_rwlock_rdlock(&lock);
    *available = TOTAL_BYTES - table.used;
    pthread_rwlock_unlock(&lock);
    *total = TOTAL_BYTES;
    return OK;
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    if (device || !emu_driver_device()) return INVALID_DEVICE;
    *bytes = TOTAL_BYTES;
    return OK;
}

/* Of an address that is no GPU's the driver says so in the same way, and returns no error. */
EXPORT int cuPointerGetAttributes(unsigned count, int *attributes, void **values, uint64_t address)
{
    enum { MEMORY_TYPE = 2, IS_MANAGED = 8, ORDINAL = 9, DEVICE = 2, NO_DEVICE_S = -2 };
    bool known = emu_allocated(address, 1);
    for (unsigned i = 0; i < count; ++i) {
        if (attributes[i] == MEMORY_TYPE)
            *(unsigned *)values[i] = known ? DEVICE : 0;
        else if (attributes[i] == IS_MANAGED)
            *(unsigned *)values[i] = 0;
        else if (attributes[i] == ORDINAL)
            *(int *)values[i] = known ? 0 : NO_DEVICE_S;
        else
            return INVALID_VALUE;
    }
    return OK;
}

/* ---- copies */

static int submit(const char *what, void *stream, const emu_work *wanted)
{
    if (!wanted->bytes) return OK;
    if (wanted->to_device && !emu_allocated(wanted->to, wanted->bytes))
        return emu_driver_refuse(INVALID_VALUE, "%s: %zu bytes from %#llx on are not in one block", what, wanted->bytes,
                                 (unsigned long long)wanted->to);
    if (wanted->from_device && !emu_allocated(wanted->from, wanted->bytes))
        return emu_driver_refuse(INVALID_VALUE, "%s: it reads %zu bytes from %#llx on, which are not in one block", what,
                                 wanted->bytes, (unsigned long long)wanted->from);
    if (!wanted->to || (wanted->kind == EMU_COPY && !wanted->from)) return INVALID_VALUE;
    emu_work *work = malloc(sizeof *work);
    if (!work) return OUT_OF_MEMORY;
    *work = *wanted;
    return emu_driver_submit(stream, work);
}

static int copy_to_device(const char *what, uint64_t to, const void *from, size_t bytes, void *stream)
{
    return submit(
        what, stream,
        &(emu_work){.kind = EMU_COPY, .to = to, .to_device = true, .from = (uint64_t)(uintptr_t)from, .bytes = bytes});
}

static int fill(const char *what, uint64_t to, unsigned char value, size_t bytes, void *stream)
{
    return submit(what, stream, &(emu_work){.kind = EMU_FILL, .to = to, .to_device = true, .bytes = bytes, .value = value});
}

/* What a caller uploads stands for what a kernel of his may have written just before: one that begins early must not read it. Lacuna
 * itself uploads what nobody changes, a plan's weight, by the asynchronous call. */
EXPORT int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    int result = emu_driver_enter_unsafe();
    if (!result) emu_kernel_writes(to);
    return result ? result : copy_to_device("cuMemcpyHtoD", to, from, bytes, NULL);
}

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream)
{
    int result = emu_driver_enter();
    return result ? result : copy_to_device("cuMemcpyHtoDAsync", to, from, bytes, stream);
}

EXPORT int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    int result = emu_driver_enter_unsafe();
    if (result) return result;
    return submit(
        "cuMemcpyDtoH", NULL,
        &(emu_work){.kind = EMU_COPY, .to = (uint64_t)(uintptr_t)to, .from = from, .from_device = true, .bytes = bytes});
}

EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    int result = emu_driver_enter();
    if (result) return result;
    return submit(
        "cuMemcpyDtoDAsync", stream,
        &(emu_work){.kind = EMU_COPY, .to = to, .to_device = true, .from = from, .from_device = true, .bytes = bytes});
}

EXPORT int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t bytes)
{
    int result = emu_driver_enter_unsafe();
    return result ? result : fill("cuMemsetD8", to, value, bytes, NULL);
}

EXPORT int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream)
{
    int result = emu_driver_enter();
    return result ? result : fill("cuMemsetD8Async", to, value, bytes, stream);
}
