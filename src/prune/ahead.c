/* ahead.c - one thread that reads the next tensor of a mapped file. Taking its checksum touches every byte, so all of it is in memory afterwards; the thread waits
 * for the disk most of the time, and the threads that prune have the cores. Called by checkpoint.c. */
#include "prune/ahead.h"

#include <sys/mman.h>
#include <unistd.h>

#include "core/digest.h"

static uint64_t digest_of(const void *data, uint64_t bytes)
{
    lac_digest digest = lac_digest_begin();
    lac_digest_add(&digest, data, bytes);
    return lac_digest_value(&digest);
}

static void *read_all(void *state)
{
    lac_ahead *ahead = state;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)ahead->data / page * page;
    /* The system may decline; then the pages come one by one. */
    posix_madvise((void *)first, (uintptr_t)ahead->data + ahead->bytes - first, POSIX_MADV_WILLNEED);
    ahead->digest = digest_of(ahead->data, ahead->bytes);
    return NULL;
}

/* A thread that needs next to no stack, where the usual one of megabytes would count against a limit on memory. */
static bool start(lac_ahead *ahead)
{
    enum { STACK = 256 << 10 };
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    bool started =
        pthread_attr_setstacksize(&attributes, STACK) == 0 && pthread_create(&ahead->thread, &attributes, read_all, ahead) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

void lac_ahead_begin(lac_ahead *ahead, const void *data, uint64_t bytes)
{
    lac_ahead_end(ahead);
    ahead->data = data, ahead->bytes = bytes;
    ahead->running = bytes > 0 && start(ahead);
    if (!ahead->running) ahead->data = NULL;
}

void lac_ahead_end(lac_ahead *ahead)
{
    if (ahead->running) pthread_join(ahead->thread, NULL);
    ahead->running = false;
}

uint64_t lac_ahead_digest(lac_ahead *ahead, const void *data, uint64_t bytes)
{
    if (!ahead->data || ahead->data != data || ahead->bytes != bytes) return digest_of(data, bytes);
    lac_ahead_end(ahead);
    return ahead->digest;
}
