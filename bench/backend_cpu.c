/* backend_cpu.c - buffers in host memory, time from the monotonic clock. timing.c and cell.c call it through its table. */
#include "backend.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

double bench_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Aligned to a cache line. Large buffers ask for huge pages, as the arrays of numpy and PyTorch do: what the baseline
 * reads must not lie worse than in its users' programs. */
static void *allocate(size_t bytes)
{
    size_t alignment = bytes >= (size_t)4 << 20 ? (size_t)2 << 20 : 64;
    size_t rounded = (bytes / alignment + 1) * alignment;
    void *block = aligned_alloc(alignment, rounded);
    if (block && alignment > 64) madvise(block, rounded, MADV_HUGEPAGE);
    return block;
}

static void release(void *block, size_t bytes)
{
    (void)bytes;
    free(block);
}

static void copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }

static void fill(void *to, unsigned char value, size_t bytes) { memset(to, value, bytes); }

static void *landing(size_t bytes)
{
    static void *block;
    static size_t size;
    if (size < bytes) {
        free(block);
        block = malloc(bytes);
        size = block ? bytes : 0;
    }
    return block;
}

/* Writes, so that no line of the buffer is left that a read could share. The block lives as long as the process. */
static void sweep(size_t bytes)
{
    static unsigned char *block;
    static size_t size;
    static unsigned char value;
    if (size < bytes) {
        free(block);
        block = malloc(bytes);
        size = block ? bytes : 0;
    }
    if (block) memset(block, ++value, bytes);
}

static double marks[BENCH_MOST_MARKS];

static void mark(int index) { marks[index] = bench_seconds(); }
static void finish(void) {}
static double elapsed(int from, int to) { return marks[to] - marks[from]; }
static const char *trouble(void) { return NULL; }

static const bench_backend cpu = {.kind = LAC_DEVICE_KIND_CPU,
                                  .allocate = allocate,
                                  .release = release,
                                  .upload = copy,
                                  .download = copy,
                                  .copy = copy,
                                  .fill = fill,
                                  .landing = landing,
                                  .sweep = sweep,
                                  .mark = mark,
                                  .finish = finish,
                                  .elapsed = elapsed,
                                  .trouble = trouble};

const bench_backend *bench_backend_cpu(void) { return &cpu; }
