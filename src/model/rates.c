/* rates.c - measures what the machine does at most: vector FMAs, loads, and bytes from memory and from the caches.
 *
 * One loop serves for all of them, lac_cpu_unit.peak, compiled for the widest vector unit. Reading from memory needs no
 * block larger than the caches: a block of 512 KiB is flushed out of them, line by line, and then read. Each rate is the best
 * of a few short runs, so that other work on the machine hardly shows, and is rounded to a quarter of an octave, so that
 * the planner decides alike in one process and the next. */
#include "model/rates.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/memory.h"
#include "core/number.h"
#include "core/status.h"
#include "cpu/unit.h"

enum { MOST_THREADS = 64 };
/* Short runs for so long: a unit of 512 bits runs at a fraction of its rate until its power is up. */
static const double OPERATIONS_SECONDS = 5e-3;
enum { LEAST_RUNS = 10, MOST_RUNS = 1000, L2_RUNS = 20, MEMORY_RUNS = 3 };
enum { REGISTER_ROUNDS = 1000, TEAM_ROUNDS = 300000, TEAM_RUNS = 6 };
static const size_t BLOCK_BYTES = (size_t)1 << 19; /* of one thread; flushed, then read */
static const size_t L2_BYTES = (size_t)256 << 10;  /* read again: past first-level caches ... */
static const size_t L3_BYTES = (size_t)4 << 20;    /* ... and past second-level ones        */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_ready; /* behind the lock; the rates never change once it is set */
static lac_cpu_rates rates;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const lac_cpu_unit *const units[] = {
    &lac_cpu_unit_scalar,
#if defined(__x86_64__)
    &lac_cpu_unit_avx2,
    &lac_cpu_unit_avx512,
#elif defined(__aarch64__)
    &lac_cpu_unit_neon,
#endif
};
enum { UNITS = sizeof units / sizeof *units };

static const lac_cpu_unit *widest_unit(void)
{
    const lac_cpu_unit *widest = units[0];
    for (int i = 1; i < UNITS; ++i)
        if (units[i]->is_supported()) widest = units[i];
    return widest;
}

int lac_cpu_rates_unit(int lanes)
{
    int number = 0;
    while (lanes > 1) lanes /= 2, ++number;
    return number;
}

/* Out of all caches, where the architecture has an instruction for it. Elsewhere the memory seems as fast as the cache. */
static void flush(const char *block, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
#if defined(__x86_64__)
        __builtin_ia32_clflush(block + i);
#elif defined(__aarch64__)
        __asm__ volatile("dc civac, %0" : : "r"(block + i) : "memory");
#else
        (void)block;
#endif
    }
#if defined(__x86_64__)
    __builtin_ia32_mfence();
#elif defined(__aarch64__)
    __asm__ volatile("dsb ish" : : : "memory");
#endif
}

/* Bytes a round of `peak` reads, and how many rounds a block is. */
static size_t round_bytes(const lac_cpu_unit *unit) { return (size_t)LAC_CPU_PEAK_FMAS * (size_t)unit->lanes * sizeof(float); }

static void read_block(const lac_cpu_unit *unit, const char *block, size_t bytes)
{
    int64_t step = (int64_t)LAC_CPU_PEAK_FMAS * unit->lanes;
    unit->peak((int64_t)(bytes / round_bytes(unit)), (const float *)(const void *)block, step);
}

/* ---- one core */

static void keep_best(double *best, double rate)
{
    if (rate > *best) *best = rate;
}

static double operations_rate(const lac_cpu_unit *unit, const float *from)
{
    double start = now();
    unit->peak(REGISTER_ROUNDS, from, 0);
    return (double)REGISTER_ROUNDS * LAC_CPU_PEAK_FMAS / (now() - start);
}

/* All units in turns, so that a moment in which the core is slowed down does not hit one of them alone. */
static void measure_operations(const float *from, lac_cpu_rates *out)
{
    double begin = now();
    for (int run = 0; run < MOST_RUNS && (run < LEAST_RUNS || now() - begin < OPERATIONS_SECONDS); ++run) {
        for (int i = 0; i < UNITS; ++i) {
            if (!units[i]->is_supported()) continue;
            int number = lac_cpu_rates_unit(units[i]->lanes);
            keep_best(&out->fma[number], operations_rate(units[i], NULL));
            keep_best(&out->loads[number], operations_rate(units[i], from));
        }
    }
}

static double cache_rate(const lac_cpu_unit *unit, const char *block, size_t bytes, int runs)
{
    double best = 0.0;
    for (int run = 0; run < runs; ++run) {
        double start = now();
        read_block(unit, block, bytes);
        keep_best(&best, (double)bytes / (now() - start));
    }
    return best;
}

/* ---- several threads at once: memory, and what is left of a core's rate while the others work */

typedef struct team {
    const lac_cpu_unit *unit;
    bool reads;           /* its members read from memory; else they multiply in registers */
    pthread_mutex_t gate; /* held until it is known how many threads there are */
    pthread_barrier_t barrier;
} team;

typedef struct member {
    team *team;
    char *block; /* [BLOCK_BYTES], its own */
    double begin, end;
} member;

static void *member_run(void *argument)
{
    member *me = argument;
    pthread_mutex_lock(&me->team->gate);
    pthread_mutex_unlock(&me->team->gate);
    if (me->team->reads) flush(me->block, BLOCK_BYTES);
    pthread_barrier_wait(&me->team->barrier);
    me->begin = now();
    if (me->team->reads)
        read_block(me->team->unit, me->block, BLOCK_BYTES);
    else
        me->team->unit->peak(TEAM_ROUNDS, NULL, 0);
    me->end = now();
    return NULL;
}

/* The time of a team's work: where it reads, from the first that begins to the last that ends, since what one leaves of the
 * memory's rate another may take; else the longest that a member takes, so that one who is woken late does not count as slow. */
static double team_seconds(const member *members, int count, bool reads)
{
    double begin = members[0].begin, end = members[0].end, longest = end - begin;
    for (int i = 1; i < count; ++i) {
        begin = fmin(begin, members[i].begin);
        end = fmax(end, members[i].end);
        longest = fmax(longest, members[i].end - members[i].begin);
    }
    return reads ? end - begin : longest;
}

/* Members' work a second of up to `threads` threads, the caller among them; fewer when the system gives no more. */
static double team_rate(const lac_cpu_unit *unit, bool reads, char *blocks, int threads)
{
    team all = {.unit = unit, .reads = reads};
    member members[MOST_THREADS];
    pthread_t ids[MOST_THREADS];
    for (int i = 0; i < threads; ++i) members[i] = (member){.team = &all, .block = blocks + (size_t)i * BLOCK_BYTES};
    pthread_mutex_init(&all.gate, NULL);
    pthread_mutex_lock(&all.gate);
    int started = 1;
    while (started < threads && !pthread_create(&ids[started], NULL, member_run, &members[started])) ++started;
    pthread_barrier_init(&all.barrier, NULL, (unsigned)started);
    pthread_mutex_unlock(&all.gate);
    member_run(&members[0]);
    for (int i = 1; i < started; ++i) pthread_join(ids[i], NULL);
    pthread_barrier_destroy(&all.barrier);
    pthread_mutex_destroy(&all.gate);
    return (double)started / team_seconds(members, started, reads);
}

static double best_memory_rate(const lac_cpu_unit *unit, char *blocks, int threads)
{
    double best = 0.0;
    for (int run = 0; run < MEMORY_RUNS; ++run) keep_best(&best, (double)BLOCK_BYTES * team_rate(unit, true, blocks, threads));
    return best;
}

/* FMAs of one thread while the others work too: cores may share pipes, or the power for their clocks. */
static double together_rate(const lac_cpu_unit *unit, char *blocks, int threads)
{
    double best = 0.0;
    for (int run = 0; run < TEAM_RUNS; ++run) keep_best(&best, team_rate(unit, false, blocks, threads));
    return best * TEAM_ROUNDS * LAC_CPU_PEAK_FMAS / threads;
}

/* ---- all of it */

/* A clock too coarse to see a run gives infinity: taken as the most that any machine does. */
static double rounded_to(double steps, double rate) { return exp2(round(steps * log2(fmin(rate, 1e15))) / steps); }
static double rounded(double rate) { return rounded_to(4.0, rate); }

static lac_status measure(int cores, lac_cpu_rates *out)
{
    const lac_cpu_unit *unit = widest_unit();
    int threads = cores < 1 ? 1 : cores > MOST_THREADS ? MOST_THREADS : cores;
    size_t bytes = (size_t)threads * BLOCK_BYTES > L3_BYTES ? (size_t)threads * BLOCK_BYTES : L3_BYTES;
    char *blocks = lac_allocate(bytes);
    if (!blocks) return lac_fail_memory("measuring the machine", bytes);
    memset(blocks, 0, bytes);
    double core = best_memory_rate(unit, blocks, 1);
    double all = threads > 1 ? best_memory_rate(unit, blocks, threads) : core;
    *out = (lac_cpu_rates){.core = rounded(core), .memory = rounded(fmax(core, all))};
    out->l3 = rounded(fmax(core, cache_rate(unit, blocks, L3_BYTES, MEMORY_RUNS)));
    out->l2 = fmax(out->l3, rounded(cache_rate(unit, blocks, L2_BYTES, L2_RUNS)));
    measure_operations((const float *)(const void *)blocks, out);
    for (int i = 0; i < LAC_CPU_RATES_UNITS; ++i) {
        if (!(out->fma[i] > 0.0)) continue;
        out->fma[i] = rounded(out->fma[i]);
        out->loads[i] = rounded(out->loads[i]);
    }
    double alone = out->fma[lac_cpu_rates_unit(unit->lanes)];
    /* It counts for all kernels alike, so that a finer step does not make the planner waver. */
    out->together = threads > 1 ? fmin(1.0, rounded_to(16.0, together_rate(unit, blocks, threads) / alone)) : 1.0;
    lac_release(blocks);
    return LAC_STATUS_OK;
}

static lac_status read_text(const char *text, lac_cpu_rates *out)
{
    enum { COUNT = 6 };
    double value[COUNT] = {0};
    const char *at = text;
    for (int i = 0; i < COUNT; ++i) {
        char *end;
        value[i] = lac_number_read(at, &end) * 1e9;
        if (end == at || *end != (i < COUNT - 1 ? ',' : '\0') || !(value[i] >= 1.0 && value[i] <= 1e15))
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                            "the environment's LAC_CPU_RATES is '%.60s'; it takes six numbers from 1e-9 to 1e6, "
                            "fma,loads,l2,l3,core,memory, in 10^9 a second",
                            text);
        at = end + 1;
    }
    *out = (lac_cpu_rates){.l2 = value[2], .l3 = value[3], .core = value[4], .memory = value[5], .together = 1.0};
    for (int i = 0; i < LAC_CPU_RATES_UNITS; ++i) out->fma[i] = value[0], out->loads[i] = value[1];
    out->fma[0] /= 2.0; /* one lane has no FMA: it multiplies and adds */
    return LAC_STATUS_OK;
}

lac_status lac_cpu_rates_prepare(int cores)
{
    lac_status status = LAC_STATUS_OK;
    pthread_mutex_lock(&lock);
    if (!is_ready) {
        const char *text = getenv("LAC_CPU_RATES");
        lac_cpu_rates found;
        status = text && *text ? read_text(text, &found) : measure(cores, &found);
        if (!status) {
            rates = found;
            is_ready = true;
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

const lac_cpu_rates *lac_cpu_rates_get(void) { return &rates; }
