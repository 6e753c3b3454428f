/* memory.c - Lacuna's only calls of malloc and free, replaceable by the caller.
 * A block is aligned to 64 bytes (a cache line, and the format's alignment) on top of whatever the allocator gives; the
 * word before it remembers where the allocator's own block began. */
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/status.h"

enum { ALIGNMENT = 64 };

/* Blocks of several huge pages ask for them: weights are read front to back, and with small pages the translation of
 * addresses, not the memory, would set the pace. A kernel that has none to give ignores it. */
static void *default_allocate(size_t bytes, void *user)
{
    enum { HUGE_PAGE = 2 << 20, LEAST_HUGE = 4 * HUGE_PAGE };
    (void)user;
    if (bytes < LEAST_HUGE) return malloc(bytes);
    size_t rounded = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    void *block = rounded < bytes ? NULL : aligned_alloc(HUGE_PAGE, rounded);
#ifdef MADV_HUGEPAGE
    if (block) madvise(block, rounded, MADV_HUGEPAGE);
#endif
    return block;
}

static void default_release(void *block, void *user)
{
    (void)user;
    free(block);
}

static struct {
    void *(*allocate)(size_t, void *);
    void (*release)(void *, void *);
    void *user;
} allocator = {default_allocate, default_release, NULL};

lac_status lac_set_allocator(void *(*allocate)(size_t bytes, void *user), void (*release)(void *block, void *user), void *user)
{
    if (!allocate != !release)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s is NULL but %s is not; give both or neither",
                        allocate ? "release" : "allocate", allocate ? "allocate" : "release");
    allocator.allocate = allocate ? allocate : default_allocate;
    allocator.release = release ? release : default_release;
    allocator.user = user;
    return LAC_STATUS_OK;
}

void *lac_allocate(uint64_t bytes)
{
    if (bytes > PTRDIFF_MAX - 2 * ALIGNMENT) return NULL;
    char *block = allocator.allocate((size_t)bytes + ALIGNMENT + sizeof(void *), allocator.user);
    if (!block) return NULL;
    char *aligned = block + sizeof(void *);
    aligned += (ALIGNMENT - ((uintptr_t)aligned & (ALIGNMENT - 1))) & (ALIGNMENT - 1);
    memcpy(aligned - sizeof(void *), &block, sizeof block);
    return aligned;
}

void *lac_allocate_zeroed(uint64_t bytes)
{
    void *block = lac_allocate(bytes);
    if (block) memset(block, 0, (size_t)bytes);
    return block;
}

void *lac_grow(void *block, uint64_t old_bytes, uint64_t new_bytes)
{
    void *larger = lac_allocate(new_bytes);
    if (!larger) return NULL;
    if (block) memcpy(larger, block, (size_t)(old_bytes < new_bytes ? old_bytes : new_bytes));
    lac_release(block);
    return larger;
}

void *lac_allocate_rooms(int count, uint64_t head_bytes, uint64_t room_bytes, lac_rooms *rooms)
{
    enum { LINE = 64 };
    uint64_t heads = (uint64_t)count * head_bytes / LINE * LINE + LINE, each = room_bytes / LINE * LINE + LINE;
    char *block = lac_allocate_zeroed(heads + (uint64_t)count * each);
    if (block) *rooms = (lac_rooms){block + heads, each};
    return block;
}

void lac_release(void *block)
{
    if (!block) return;
    void *own;
    memcpy(&own, (char *)block - sizeof own, sizeof own);
    allocator.release(own, allocator.user);
}

char *lac_copy_text(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = lac_allocate(bytes);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}
