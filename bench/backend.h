/* backend.h - where a benchmark's buffers lie and how its time is taken. The rest of the benchmark goes through this table,
 * so a GPU needs one more of them: device memory, copies, a sweep of its L2, events on a stream as marks. */
#ifndef LACUNA_BENCH_BACKEND_H
#define LACUNA_BENCH_BACKEND_H

#include <lacuna.h>

/* The most marks between two calls of finish. */
#define BENCH_MOST_MARKS 1025

typedef struct bench_backend {
    lac_device_kind kind;
    void *stream; /* for execute and peers; NULL on a CPU */
    void *(*allocate)(size_t bytes);
    void (*release)(void *block, size_t bytes);
    void (*upload)(void *to, const void *from_host, size_t bytes);
    void (*download)(void *to_host, const void *from, size_t bytes);
    /* Replaces what the last-level cache holds. */
    void (*sweep)(size_t bytes);
    /* mark(i) notes the moment at which the work handed over so far is done; finish() waits until it is; then
     * elapsed(i, j) gives the seconds between two marks. */
    void (*mark)(int index);
    void (*finish)(void);
    double (*elapsed)(int from, int to);
} bench_backend;

/* NULL for a kind of device that the benchmark cannot time. */
const bench_backend *bench_backend_find(lac_device_kind kind);

/* Seconds on a clock that only moves forward. */
double bench_seconds(void);

#endif
