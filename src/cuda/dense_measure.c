/* dense_measure.c - times the library's algorithms for one product: which of them is the fastest its own heuristics do not
 * know. dense_choice.c calls it, once for a problem.
 *
 * Calls of a few microseconds are told apart by a percent, so the queue must not run empty: while the GPU sweeps its caches, which
 * takes longer than the host needs to put a batch of calls behind it, the batch is queued; two events around it tell its time.
 * Each call of a batch has operands of its own, so that it finds none of them in L2, as in a model of many layers. */
#include <math.h>
#include <stdlib.h>

#include "core/dtype.h"
#include "core/memory.h"
#include "core/status.h"
#include "cuda/clock.h"
#include "cuda/dense_product.h"
#include "cuda/state.h"

enum { ALIGNMENT = 256, MOST_SLOTS = 32, LEAST_CALLS = 4, PASSES = 2, ROUNDS = 9, MOST_FINALISTS = 6, PATTERN_BYTES = 1 << 20 };
enum { MOST_CANDIDATES = 2 * LAC_DENSE_MOST_ANSWERS, AT_LEAST = 2 };
static const double BATCH_SECONDS = 200e-6; /* against which an event's half microsecond is little                   */
static const double LONG_SECONDS = 1e-3;    /* that LEAST_CALLS may take: one alone runs at a higher clock than several   */
static const double HOST_SECONDS = 8e-6;    /* that the host may need to queue a call                                */
static const double MOST_SECONDS = 30e-3;   /* of calls in each part of a timing; long ones are tried fewer times    */
static const double WARM_SECONDS = 5e-3;    /* of calls, until the clock is what it is under load */
static const double LEAST_SECONDS = 5e-6;   /* that a batch counts for, though a coarse clock may see none           */
static const double CLOSE = 1.1;            /* of the fastest: who is timed again                                    */
static const double EQUAL = 1.005;          /* the library's own order decides                                       */
static const double STEADY = 0.03;          /* between the least and the median of the fastest one's times             */

/* What calls run on: slots of W, X, D (which is C too) and a bias, and a workspace for all. */
typedef struct test_bed {
    const lac_device *device;
    const lac_cuda_driver *driver;
    lac_cuda_clock clock;
    lac_cu_pointer block;
    uint64_t x_at, d_at, bias_at, slot_bytes, sweep_bytes;
    int slots, next;
    int calls, sweeps; /* of a batch */
} test_bed;

static uint64_t aligned(uint64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static uint64_t w_bytes(const lac_dense_product *p)
{
    return (uint64_t)p->ldw * (uint64_t)(p->w_by_inputs ? p->k : p->n) * lac_dtype_size(p->operand);
}

static uint64_t bytes_of_slots(const test_bed *bed) { return (uint64_t)bed->slots * bed->slot_bytes; }
static lac_cu_pointer workspace_of(const test_bed *bed) { return bed->block + bytes_of_slots(bed); }
static lac_cu_pointer sweep_of(const test_bed *bed) { return workspace_of(bed) + LAC_DENSE_MOST_WORKSPACE; }

/* ---- the bed */

/* As many slots as fill L2 twice, which go round, or as many as there may be calls in a batch. */
static void lay_out(const lac_dense_product *p, double expected, test_bed *bed)
{
    lac_dense_product other = *p;
    lac_dense_product_lay(&other, !p->w_by_inputs);
    uint64_t w = w_bytes(p) > w_bytes(&other) ? w_bytes(p) : w_bytes(&other), l2 = bed->device->info.l2_bytes;
    bed->x_at = aligned(w);
    bed->d_at = bed->x_at + aligned((uint64_t)lac_dense_usual_ldx(p) * (uint64_t)(p->x_by_tokens ? p->m : p->k) *
                                    lac_dtype_size(p->operand));
    bed->bias_at = bed->d_at + aligned((uint64_t)lac_dense_usual_ldd(p) * (uint64_t)(p->y_by_tokens ? p->m : p->n) *
                                       lac_dtype_size(p->result));
    bed->slot_bytes = bed->bias_at + aligned((uint64_t)p->n * lac_dtype_size(p->result));
    uint64_t slots = 2 * l2 / bed->slot_bytes + 1;
    bed->slots = slots < MOST_SLOTS ? (int)slots : MOST_SLOTS;
    double calls = fmax(BATCH_SECONDS / expected, fmin(LEAST_CALLS, LONG_SECONDS / expected));
    bed->calls = calls < 1.0 ? 1 : calls > MOST_SLOTS ? MOST_SLOTS : (int)calls;
    bed->sweep_bytes = 2 * l2;
    double behind = (double)bed->calls * (HOST_SECONDS - expected); /* that the host falls behind the GPU */
    double sweep_seconds = (double)bed->sweep_bytes / lac_cuda_rates_of(bed->device)->memory;
    bed->sweeps = bed->sweep_bytes ? 1 + (behind > 0.0 ? (int)(behind / sweep_seconds) + 1 : 0) : 0;
}

/* Numbers of which none is zero, infinite or NaN in any dtype: zeros would run cooler, and so faster, than real data. */
static void fill_pattern(uint16_t *words, int count)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < count; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        words[i] = (uint16_t)((state >> 48 & 0x83ffu) | 0x3800u);
    }
}

/* The pattern once from the host, then by doubling. */
static lac_status fill_slots(const test_bed *bed)
{
    static const char what[] = "timing cuBLASLt";
    uint64_t bytes = bytes_of_slots(bed), done = bytes < PATTERN_BYTES ? bytes : PATTERN_BYTES;
    uint16_t *pattern = lac_allocate(PATTERN_BYTES);
    if (!pattern) return lac_fail_memory(what, PATTERN_BYTES);
    fill_pattern(pattern, PATTERN_BYTES / (int)sizeof *pattern);
    lac_status status = lac_cuda_check(bed->driver->cuMemcpyHtoDAsync(bed->block, pattern, done, bed->clock.stream), what);
    if (!status) status = lac_cuda_check(bed->driver->cuStreamSynchronize(bed->clock.stream), what);
    for (uint64_t part; done < bytes && !status; done += part) {
        part = done < bytes - done ? done : bytes - done;
        status = lac_cuda_check(bed->driver->cuMemcpyDtoDAsync(bed->block + done, bed->block, part, bed->clock.stream), what);
    }
    lac_release(pattern);
    return status;
}

static lac_status make_bed(test_bed *bed)
{
    lac_status status = lac_cuda_clock_make(bed->device, &bed->clock);
    return status ? status : fill_slots(bed);
}

/* ---- batches */

static lac_status call_once(test_bed *bed, const lac_dense_candidate *c)
{
    const lac_dense_product *p = c->product;
    char *slot = (char *)(uintptr_t)(bed->block + (uint64_t)bed->next * bed->slot_bytes);
    bed->next = (bed->next + 1) % bed->slots;
    lac_dense_operands operands = {.w = slot,
                                   .x = slot + bed->x_at,
                                   .d = slot + bed->d_at,
                                   .c = p->has_residual ? slot + bed->d_at : NULL,
                                   .bias = p->has_bias ? slot + bed->bias_at : NULL,
                                   .ldx = lac_dense_usual_ldx(p),
                                   .ldc = lac_dense_usual_ldd(p),
                                   .ldd = lac_dense_usual_ldd(p),
                                   .alpha = 1.0f,
                                   .beta = p->has_residual ? 1.0f : 0.0f};
    return lac_dense_run(bed->device, p, &operands, c->answer, (void *)(uintptr_t)workspace_of(bed), bed->clock.stream);
}

/* Seconds of a call; UNSUPPORTED when the algorithm does not take the operands after all. */
static lac_status time_batch(test_bed *bed, const lac_dense_candidate *c, double *seconds)
{
    static const char what[] = "timing cuBLASLt";
    const lac_cuda_driver *driver = bed->driver;
    lac_status status = LAC_STATUS_OK;
    for (int i = 0; i < bed->sweeps && !status; ++i)
        status = lac_cuda_check(driver->cuMemsetD8Async(sweep_of(bed), 0, bed->sweep_bytes, bed->clock.stream), what);
    if (!status) status = lac_cuda_clock_start(&bed->clock);
    for (int i = 0; i < bed->calls && !status; ++i) status = call_once(bed, c);
    if (!status) status = lac_cuda_clock_stop(&bed->clock, seconds);
    if (!status) *seconds /= bed->calls;
    return status;
}

/* ---- a timing: all a few times, then the fastest ones in turns */

typedef struct contest {
    int number;
    double seconds; /* below 0: it does not take the operands */
    double times[ROUNDS];
} contest;

/* The best of some passes, for the GPU's clock may still be low in the first, and others may be at work. Those whose turn comes after MOST_SECONDS are
 * left out. A first call loads the kernel. */
static lac_status explore(test_bed *bed, const lac_dense_candidate *candidates, int count, contest *all, int *tried)
{
    double spent = 0;
    *tried = 0;
    for (int pass = 0; pass < PASSES; ++pass)
        for (int i = 0; i < count; ++i) {
            double one = 0;
            bool first = pass == 0;
            if (spent > MOST_SECONDS && (!first || i >= AT_LEAST)) break;
            if (!first && (i >= *tried || all[i].seconds < 0)) continue;
            lac_status status = first ? call_once(bed, &candidates[i]) : LAC_STATUS_OK;
            if (!status) status = time_batch(bed, &candidates[i], &one);
            if (status && status != LAC_STATUS_UNSUPPORTED) return status;
            if (first) {
                all[i] = (contest){.number = i, .seconds = status ? -1.0 : one};
                *tried = i + 1;
            } else if (!status && one < all[i].seconds) {
                all[i].seconds = one;
            }
            spent += (bed->calls + first) * one;
        }
    return LAC_STATUS_OK;
}

/* Keeps those that ran and are close to the fastest, the fastest MOST_FINALISTS of them, in their own order. */
static int keep_finalists(contest *all, int count)
{
    double sorted[MOST_CANDIDATES];
    int ran = 0, kept = 0;
    for (int i = 0; i < count; ++i)
        if (all[i].seconds >= 0) sorted[ran++] = all[i].seconds;
    if (!ran) return 0;
    lac_sort_seconds(sorted, ran);
    double most = CLOSE * sorted[0], last = sorted[ran < MOST_FINALISTS ? ran - 1 : MOST_FINALISTS - 1];
    if (last < most) most = last;
    for (int i = 0; i < count && kept < MOST_FINALISTS; ++i)
        if (all[i].seconds >= 0 && all[i].seconds <= most) all[kept++] = all[i];
    return kept;
}

static lac_status decide(test_bed *bed, const lac_dense_candidate *candidates, contest *finalists, int count,
                         lac_dense_timing *out)
{
    double turns = MOST_SECONDS / ((double)(count * bed->calls) * finalists[0].seconds);
    int rounds = turns < 1.0 ? 1 : turns > ROUNDS ? ROUNDS : (int)turns;
    for (int round = 0; round < rounds; ++round)
        for (int i = 0; i < count; ++i) {
            lac_status status = time_batch(bed, &candidates[finalists[i].number], &finalists[i].times[round]);
            if (status) return status;
        }
    for (int i = 0; i < count; ++i) {
        double *times = finalists[i].times;
        lac_sort_seconds(times, rounds);
        double quartile = times[rounds / 4];
        if (i && quartile * EQUAL >= out->seconds) continue;
        out->fastest = finalists[i].number;
        out->seconds = quartile;
        out->steady = times[rounds / 2] - times[0] <= STEADY * quartile;
    }
    return LAC_STATUS_OK;
}

/* A GPU at rest is slow, and one that was cool is fast for a while: who comes first would gain or lose by it. */
static lac_status warm_up(test_bed *bed, const lac_dense_candidate *first)
{
    lac_status status = LAC_STATUS_OK;
    double one = 0;
    for (double spent = 0; spent < WARM_SECONDS && !status; spent += fmax(bed->calls * one, LEAST_SECONDS))
        status = time_batch(bed, first, &one);
    return status == LAC_STATUS_UNSUPPORTED ? LAC_STATUS_OK : status;
}

static lac_status hold_contest(test_bed *bed, const lac_dense_candidate *candidates, int count, lac_dense_timing *out)
{
    contest all[MOST_CANDIDATES];
    int tried;
    lac_status status = warm_up(bed, &candidates[0]);
    if (!status) status = explore(bed, candidates, count, all, &tried);
    if (status) return status;
    int finalists = keep_finalists(all, tried);
    return finalists ? decide(bed, candidates, all, finalists, out) : LAC_STATUS_OK;
}

/* In double, since it may be more than there can be. */
static bool is_too_large(const lac_device *device, const lac_dense_product *p)
{
    double m = (double)p->m, n = (double)p->n, k = (double)p->k;
    return sizeof(float) * (m * k + n * k + m * n) > (double)device->info.memory_bytes;
}

lac_status lac_dense_time(const lac_device *device, const lac_dense_candidate *candidates, int count, double expected,
                          lac_dense_timing *out)
{
    static const char what[] = "timing cuBLASLt";
    test_bed bed = {.device = device, .driver = lac_cuda_state_of(device)->driver};
    *out = (lac_dense_timing){.fastest = -1};
    if (is_too_large(device, candidates[0].product)) return LAC_STATUS_OK;
    lay_out(candidates[0].product, expected, &bed);
    lac_status status =
        lac_cuda_allocate(device, what, bytes_of_slots(&bed) + LAC_DENSE_MOST_WORKSPACE + bed.sweep_bytes, &bed.block);
    if (status == LAC_STATUS_OUT_OF_MEMORY) {
        lac_log(LAC_LOG_LEVEL_WARNING, "%s; a dense product is not timed", lac_last_error());
        return LAC_STATUS_OK;
    }
    bool entered;
    if (status || (status = lac_cuda_enter(device, what, &entered))) {
        lac_cuda_free(device, bed.block);
        return status;
    }
    int mode = lac_cuda_relax_capture(bed.driver);
    status = make_bed(&bed);
    if (!status) status = hold_contest(&bed, candidates, count, out);
    lac_status ended =
        bed.clock.stream ? lac_cuda_check(bed.driver->cuStreamSynchronize(bed.clock.stream), what) : LAC_STATUS_OK;
    lac_cuda_clock_remove(&bed.clock);
    lac_cuda_free(device, bed.block);
    lac_cuda_restore_capture(bed.driver, mode);
    lac_cuda_leave(device, entered);
    return status ? status : ended;
}
