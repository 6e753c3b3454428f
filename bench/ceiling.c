/* ceiling.c - measures what the machine can do at most: multiply-adds from registers, bytes from memory and from a core's
 * own cache. The columns ceiling_us and share_of_ceiling and the roof of the report come from these three numbers.
 * run.c calls it once, with the threads of the benchmark.
 *
 * Each number is the best of several short runs: a ceiling is what was reached once, not what is usual. */
#include "machine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/* Twelve independent chains hide the latency of two pipes of up to 6 cycles. */
#define CHAINS 12

/* Each body does `rounds` times CHAINS vector multiply-adds and returns a number that depends on all of them. */
typedef float (*fma_body)(int64_t rounds, float x);
/* Adds up `count` words, a multiple of 64. */
typedef uint64_t (*read_body)(const uint64_t *from, size_t count);

/* Compiled once for each vector unit: narrow loads would not reach what a cache can give. */
#define READ_BODY(name, attributes)                                                                                            \
    attributes static uint64_t name(const uint64_t *from, size_t count)                                                        \
    {                                                                                                                          \
        uint64_t sums[64] = {0}, all = 0;                                                                                      \
        for (size_t i = 0; i < count; i += 64)                                                                                 \
            for (size_t j = 0; j < 64; j++) sums[j] += from[i + j];                                                            \
        for (size_t j = 0; j < 64; j++) all += sums[j];                                                                        \
        return all;                                                                                                            \
    }
READ_BODY(read_plain, )

static float fma_scalar(int64_t rounds, float x)
{
    float sum[CHAINS];
    for (int c = 0; c < CHAINS; c++) sum[c] = (float)c;
    for (int64_t i = 0; i < rounds; i++)
        for (int c = 0; c < CHAINS; c++) sum[c] = sum[c] * x + x;
    float all = 0;
    for (int c = 0; c < CHAINS; c++) all += sum[c];
    return all;
}

#if defined(__x86_64__)
#define FMA_BODY(name, target_text, vector, set1, fmadd)                                                                       \
    __attribute__((target(target_text))) static float name(int64_t rounds, float x)                                            \
    {                                                                                                                          \
        vector a0 = set1(0), a1 = set1(1), a2 = set1(2), a3 = set1(3), a4 = set1(4), a5 = set1(5), a6 = set1(6), a7 = set1(7), \
               a8 = set1(8), a9 = set1(9), a10 = set1(10), a11 = set1(11), v = set1(x);                                        \
        for (int64_t i = 0; i < rounds; i++) {                                                                                 \
            a0 = fmadd(a0, v, v), a1 = fmadd(a1, v, v), a2 = fmadd(a2, v, v), a3 = fmadd(a3, v, v);                            \
            a4 = fmadd(a4, v, v), a5 = fmadd(a5, v, v), a6 = fmadd(a6, v, v), a7 = fmadd(a7, v, v);                            \
            a8 = fmadd(a8, v, v), a9 = fmadd(a9, v, v), a10 = fmadd(a10, v, v), a11 = fmadd(a11, v, v);                        \
        }                                                                                                                      \
        vector chains[CHAINS] = {a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11};                                            \
        float lanes[CHAINS * (sizeof(vector) / sizeof(float))], all = 0;                                                       \
        memcpy(lanes, chains, sizeof lanes);                                                                                   \
        for (size_t i = 0; i < sizeof lanes / sizeof *lanes; i++) all += lanes[i];                                             \
        return all;                                                                                                            \
    }
FMA_BODY(fma_avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps)
FMA_BODY(fma_avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps)
READ_BODY(read_avx2, __attribute__((target("avx2"))))
READ_BODY(read_avx512, __attribute__((target("avx512f"))))
#elif defined(__aarch64__)
static float fma_neon(int64_t rounds, float x)
{
    float32x4_t sum[CHAINS], v = vdupq_n_f32(x);
    for (int c = 0; c < CHAINS; c++) sum[c] = vdupq_n_f32((float)c);
    for (int64_t i = 0; i < rounds; i++)
        for (int c = 0; c < CHAINS; c++) sum[c] = vfmaq_f32(v, sum[c], v);
    float all = 0;
    for (int c = 0; c < CHAINS; c++) all += vaddvq_f32(sum[c]);
    return all;
}
#endif

/* The bodies of the vector unit that the device names, and how many lanes it has. */
typedef struct unit {
    fma_body multiply;
    read_body read;
    int lanes;
} unit;

static unit choose_unit(const char *name)
{
#if defined(__x86_64__)
    if (strstr(name, "avx512") && __builtin_cpu_supports("avx512f")) return (unit){fma_avx512, read_avx512, 16};
    if (strstr(name, "avx2") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return (unit){fma_avx2, read_avx2, 8};
#elif defined(__aarch64__)
    if (strstr(name, "neon")) return (unit){fma_neon, read_plain, 4};
#endif
    (void)name;
    return (unit){fma_scalar, read_plain, 1};
}

/* ---- threads */

typedef struct team {
    pthread_mutex_t gate; /* held until every thread is there, so that none waits for one that never comes */
    int abandoned;
    pthread_barrier_t barrier;
    int threads;
    fma_body multiply; /* NULL when reading */
    int64_t rounds;
    read_body read;
    uint64_t *block; /* each thread has its part */
    int touched;     /* it was filled             */
    size_t words;    /* in the part of one thread */
    int passes;
    double seconds; /* until the slowest was done */
} team;

typedef struct member {
    team *team;
    int index;
    volatile double sink; /* keeps the work from being optimised away */
} member;

static void *work(void *argument)
{
    member *me = argument;
    team *all = me->team;
    pthread_mutex_lock(&all->gate);
    int abandoned = all->abandoned;
    pthread_mutex_unlock(&all->gate);
    if (abandoned) return NULL;
    uint64_t *mine = all->block ? all->block + (size_t)me->index * all->words : NULL;
    uint64_t sum = 0;
    if (mine && !all->touched) memset(mine, me->index + 1, all->words * sizeof *mine); /* so it lies near its reader */
    pthread_barrier_wait(&all->barrier);
    double begin = bench_seconds();
    if (all->multiply) me->sink = all->multiply(all->rounds, 0.5f);
    for (int i = 0; mine && i < all->passes; i++) {
        __asm__ volatile("" : "+r"(mine) : : "memory"); /* two passes must not be folded into one */
        sum += all->read(mine, all->words);
    }
    if (mine) me->sink = (double)sum;
    pthread_barrier_wait(&all->barrier);
    if (me->index == 0) all->seconds = bench_seconds() - begin;
    return NULL;
}

/* Runs the team once, the caller as its first member; nonzero when a thread could not be had. */
static int run_team(team *all)
{
    pthread_t *ids = malloc((size_t)all->threads * sizeof *ids);
    member *members = calloc((size_t)all->threads, sizeof *members);
    int failed = !ids || !members || pthread_barrier_init(&all->barrier, NULL, (unsigned)all->threads);
    if (!failed) {
        int started = 1;
        pthread_mutex_init(&all->gate, NULL);
        pthread_mutex_lock(&all->gate);
        for (int i = 0; i < all->threads; i++) members[i] = (member){.team = all, .index = i};
        while (started < all->threads && !pthread_create(&ids[started], NULL, work, &members[started])) started++;
        failed = all->abandoned = started < all->threads;
        pthread_mutex_unlock(&all->gate);
        work(&members[0]);
        for (int i = 1; i < started; i++) pthread_join(ids[i], NULL);
        pthread_mutex_destroy(&all->gate);
        pthread_barrier_destroy(&all->barrier);
    }
    free(ids);
    free(members);
    return failed;
}

/* ---- the three numbers */

static int measure_flops(const lac_device_info *device, int threads, double *flops)
{
    unit unit = choose_unit(device->vector_unit);
    team all = {.threads = threads, .multiply = unit.multiply, .rounds = 100000};
    *flops = 0;
    for (int i = 0; i < 8; i++) {
        if (run_team(&all)) return -1;
        double rate = 2.0 * CHAINS * unit.lanes * (double)all.rounds * threads / all.seconds;
        if (rate > *flops) *flops = rate;
        if (all.seconds < 0.006) all.rounds = (int64_t)((double)all.rounds * 0.008 / all.seconds) + 1;
    }
    return 0;
}

static int measure_reading(const lac_device_info *device, size_t bytes_each, int threads, int passes, double *rate)
{
    team all = {.threads = threads, .words = bytes_each / 512 * 64, .passes = passes};
    all.read = choose_unit(device->vector_unit).read;
    const bench_backend *host = bench_backend_cpu(); /* huge pages here too */
    size_t bytes = (size_t)threads * all.words * sizeof *all.block;
    all.block = host->allocate(bytes);
    *rate = 0;
    int failed = !all.block;
    for (int i = 0; !failed && i < 5; i++) {
        failed = run_team(&all);
        all.touched = 1;
        double reached = (double)threads * (double)all.words * 8 * passes / all.seconds;
        if (!failed && reached > *rate) *rate = reached;
    }
    if (all.block) host->release(all.block, bytes);
    return failed;
}

static int read_told(const char *text, bench_ceiling *out, char *why, size_t why_size)
{
    double *into[] = {&out->flops, &out->memory_bytes, &out->cache_bytes};
    const char *at = text;
    for (int i = 0; i < 3; i++) {
        char *end;
        *into[i] = strtod(at, &end) * 1e9;
        if (end == at || *end != (i < 2 ? ',' : '\0') || !(*into[i] > 0 && *into[i] <= 1e18)) {
            snprintf(why, why_size,
                     "the environment's LAC_CPU_CEILINGS is '%.60s'; it takes three positive numbers, "
                     "gflops,memory,cache, in 10^9 a second",
                     text);
            return -1;
        }
        at = end + 1;
    }
    out->is_told = 1;
    return 0;
}

int bench_ceiling_measure(const lac_device_info *device, int threads, bench_ceiling *out, char *why, size_t why_size)
{
    const char *told = getenv("LAC_CPU_CEILINGS");
    if (told && *told) return read_told(told, out, why, why_size);
    size_t cache = (size_t)bench_machine_cache_bytes(device);
    size_t own = device->l2_bytes ? (size_t)device->l2_bytes / 2 : (size_t)128 << 10;
    size_t each = 2 * cache / (size_t)threads;
    if (each < (size_t)8 << 20) each = (size_t)8 << 20;
    int failed = measure_flops(device, threads, &out->flops) || measure_reading(device, each, threads, 1, &out->memory_bytes) ||
                 measure_reading(device, own, threads, 100, &out->cache_bytes);
    if (failed) snprintf(why, why_size, "no memory or no threads to measure the machine's ceilings with");
    return failed;
}
