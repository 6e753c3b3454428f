/* backend.h - where a benchmark's buffers lie and how its time is taken. The rest of the benchmark goes through this table,
 * so a GPU needs one more of them: device memory, copies, a sweep of its L2, events on a stream as marks. */
#ifndef LACUNA_BENCH_BACKEND_H
#define LACUNA_BENCH_BACKEND_H

#include "machine.h"

/* The most marks between two calls of finish. */
#define BENCH_MOST_MARKS 1025

typedef struct bench_backend {
    lac_device_kind kind;
    void *stream; /* for execute and peers; NULL on a CPU */
    void *(*allocate)(size_t bytes);
    void (*release)(void *block, size_t bytes);
    void (*upload)(void *to, const void *from_host, size_t bytes);
    void (*download)(void *to_host, const void *from, size_t bytes);
    void (*copy)(void *to, const void *from, size_t bytes); /* within the device's memory */
    void (*fill)(void *to, unsigned char value, size_t bytes);
    /* Host memory that downloads reach quickly, the same block at every call: whoever asked before has it no more. NULL: there is
     * none left. It lives as long as the backend. */
    void *(*landing)(size_t bytes);
    /* Replaces what the last-level cache holds. */
    void (*sweep)(size_t bytes);
    /* mark(i) notes the moment at which the work handed over so far is done; finish() waits until it is; then
     * elapsed(i, j) gives the seconds between two marks. */
    void (*mark)(int index);
    void (*finish)(void);
    double (*elapsed)(int from, int to);
    /* What went wrong first, in words; NULL: nothing. A GPU fails late, so this is asked after finish. */
    const char *(*trouble)(void);
    /* Of a GPU; NULL on a CPU. What is handed over between record_begin and record_end is not done but recorded; replay
     * hands all of it over at once, so that the gaps between short calls are small and always the same. record_end gives
     * NULL when the work cannot be recorded. */
    int (*record_begin)(void);
    void *(*record_end)(void);
    void (*replay)(void *recording);
    void (*forget)(void *recording);
    /* Of a GPU; NULL on a CPU. watch looks at clock and power while work is under way; watched tells what was seen since
     * it last told: " sm_clock_mhz=1980; ..." or "". */
    void (*watch)(void);
    void (*watched)(char *buffer, size_t size);
} bench_backend;

/* backend_cpu.c. It takes nothing to open. */
const bench_backend *bench_backend_cpu(void);
/* backend_cuda.c: makes the GPU's primary context current for this thread. NULL: it failed, and `why` says why. */
const bench_backend *bench_backend_cuda_open(const lac_device_info *device, char *why, size_t why_size);
void bench_backend_cuda_close(void);
/* Bytes of the GPU's memory that nobody uses. */
uint64_t bench_backend_cuda_memory(void);
/* The most that the GPU does: vector unit and memory, and the tensor cores' rates that are wanted; the driver takes half a second
 * to compile for one. Nonzero: it failed, and `why` says why. */
int bench_backend_cuda_measure(int want_f16, int want_tf32, bench_ceiling *out, char *why, size_t why_size);
/* "driver=580.82.07; cuda=13.0; power_limit_w=700" */
void bench_backend_cuda_describe(char *buffer, size_t size);

/* Seconds on a clock that only moves forward. */
double bench_seconds(void);

#endif
