/* timing.c - times contenders side by side. cell.c calls it after everybody's result was found right.
 *
 * Contenders take turns, so that a machine that slows down slows all of them down; who begins moves on with every round.
 * A turn is about ten milliseconds of calls, each on the next copy of X, Y and weight. One untimed call opens a turn of
 * quick calls: it wakes the threads. A turn on a CPU ends when they sleep again; the baseline's is taken by child.c. Rounds go on until every median and every spread stand still, or time is up. */
#include <math.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "harness.h"

#define TURN_SECONDS  0.01 /* or half of the least time */
#define LEAD_BELOW    0.02 /* waking threads up is nothing against longer calls     */
#define BATCH_BELOW   5e-6 /* shorter calls are timed by the turn, not one by one   */
#define RECORD_BELOW  2e-4 /* on a GPU: shorter calls are recorded and replayed; marks would be felt in them */
#define WAKE_SECONDS  0.03 /* on a GPU: until its clocks are up                     */
#define AWAKE_SECONDS 0.3  /* they stay up so long after the last timing ...        */
#define STIR_SECONDS  3e-3 /* ... and need but this                                 */
#define LEAST_SAMPLES 9    /* that a spread can be told from; fewer where a call takes longer than all the time */
#define MOST_SAMPLES  20000
#define PATIENCE      6.0 /* gives up waiting after so many times the least time   */
#define STILL_MEDIAN  0.005
#define STILL_SPREAD  0.02

static int compare_numbers(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* The value below which a share of the sorted numbers lies. */
static double quantile(const double *sorted, size_t count, double share)
{
    double at = share * (double)(count - 1);
    size_t low = (size_t)at;
    if (low + 1 >= count) return sorted[count - 1];
    return sorted[low] + (at - (double)low) * (sorted[low + 1] - sorted[low]);
}

static void summarise(bench_contender *c)
{
    double *sorted = malloc(c->count * sizeof *sorted);
    if (!sorted) return; /* keeps the last summary */
    for (size_t i = 0; i < c->count; i++) sorted[i] = c->samples[i];
    qsort(sorted, c->count, sizeof *sorted, compare_numbers);
    c->median = quantile(sorted, c->count, 0.5);
    c->spread = (quantile(sorted, c->count, 0.75) - quantile(sorted, c->count, 0.25)) / c->median;
    free(sorted);
}

/* Looks again whenever there are a quarter more samples: has anything moved? */
static void judge(bench_contender *c)
{
    if (c->count < LEAST_SAMPLES || 4 * c->count < 5 * c->last_count) return;
    summarise(c);
    c->stable = c->last_count && fabs(c->median - c->last_median) <= STILL_MEDIAN * c->median &&
                fabs(c->spread - c->last_spread) <= STILL_SPREAD;
    c->last_median = c->median;
    c->last_spread = c->spread;
    c->last_count = c->count;
}

static int add_sample(bench_contender *c, double seconds)
{
    if (c->count == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 64;
        double *samples = realloc(c->samples, capacity * sizeof *samples);
        if (!samples) return -1;
        c->samples = samples;
        c->capacity = capacity;
    }
    c->samples[c->count++] = seconds;
    return 0;
}

static double turn_seconds(const bench_session *session)
{
    double half = session->options->min_seconds / 2;
    return half < TURN_SECONDS ? half : TURN_SECONDS;
}

static int calls_a_turn(const bench_contender *c, int sweep)
{
    double calls = turn_seconds(c->problem->session) / c->estimate;
    int most = BENCH_MOST_MARKS - 1;
    /* After a sweep each copy is cold once. */
    if (sweep) {
        size_t copies = c->copies < c->ring->count ? c->copies : c->ring->count;
        most = copies > 2 ? (int)copies - 1 : 1;
        if (most > BENCH_MOST_MARKS - 1) most = BENCH_MOST_MARKS - 1;
    }
    return calls < 1 ? 1 : calls > most ? most : (int)calls;
}

/* A turn of replays: a sample is a replay's time over its calls. After a sweep each copy is cold once. */
static int take_recorded_turn(bench_session *session, bench_contender *c, int sweep)
{
    const bench_backend *backend = session->backend;
    int replays = sweep ? 1 : (int)(turn_seconds(session) / (c->estimate * c->recorded)) + 1;
    if (replays > BENCH_MOST_MARKS - 1) replays = BENCH_MOST_MARKS - 1;
    if (sweep)
        backend->sweep((size_t)(2 * session->cache_bytes));
    else
        backend->replay(c->recording); /* the first one after another contender finds their traces */
    backend->mark(0);
    for (int i = 0; i < replays; i++) {
        backend->replay(c->recording);
        backend->mark(i + 1);
    }
    backend->watch();
    backend->finish();
    if (backend->trouble()) return -1;
    for (int i = 0; i < replays; i++)
        if (add_sample(c, backend->elapsed(i, i + 1) / c->recorded)) return -1;
    double seconds = backend->elapsed(0, replays);
    c->timed += seconds;
    c->runs += (int64_t)replays * c->recorded;
    c->estimate = seconds / replays / c->recorded;
    judge(c);
    return 0;
}

/* How often a thread of this process had to give its core to somebody else. */
static int64_t count_preemptions(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) ? 0 : (int64_t)usage.ru_nivcsw;
}

int bench_turn_run(bench_session *session, bench_contender *c, bench_turn *turn)
{
    const bench_backend *backend = session->backend;
    int64_t preempted = count_preemptions();
    if (turn->sweep_bytes) backend->sweep((size_t)turn->sweep_bytes);
    if (turn->lead && bench_contender_call(c)) return -1;
    backend->finish();
    backend->mark(0);
    for (int i = 0; i < turn->calls; i++) {
        if (bench_contender_call(c)) return -1;
        if (!turn->batch) backend->mark(i + 1);
    }
    if (turn->batch) backend->mark(turn->calls);
    if (backend->watch) backend->watch();
    backend->finish();
    if (backend->trouble()) return -1;
    if (turn->batch) turn->seconds[0] = backend->elapsed(0, turn->calls);
    for (int i = 0; !turn->batch && i < turn->calls; i++) turn->seconds[i] = backend->elapsed(i, i + 1);
    turn->preempted = count_preemptions() - preempted;
    if (backend->kind == LAC_DEVICE_KIND_CPU) turn->restless = bench_settle();
    return 0;
}

static int take_turn(bench_session *session, bench_contender *c, int sweep)
{
    if (c->recording) return take_recorded_turn(session, c, sweep);
    static bench_turn turn; /* large */
    turn = (bench_turn){.calls = calls_a_turn(c, sweep),
                        .batch = c->estimate < BATCH_BELOW,
                        .lead = (c->estimate < LEAD_BELOW || session->options->warm) && !(sweep && c->copies == 1),
                        .sweep_bytes = sweep ? 2 * session->cache_bytes : 0};
    int is_remote = c->role == BENCH_ROLE_DENSE && session->child;
    if (is_remote ? bench_child_turn(session->child, &turn) : bench_turn_run(session, c, &turn)) return -1;
    double seconds = 0;
    for (int i = 0; i < (turn.batch ? 1 : turn.calls); i++) {
        if (add_sample(c, turn.seconds[i] / (turn.batch ? turn.calls : 1))) return -1;
        seconds += turn.seconds[i];
    }
    c->timed += seconds;
    c->runs += turn.calls;
    c->estimate = seconds / turn.calls;
    if (!is_remote) session->preempted += turn.preempted; /* OpenBLAS yields, which counts as the same */
    session->restless |= turn.restless;
    judge(c);
    return 0;
}

/* Everybody is done, or has had its chance. */
static int is_enough(const bench_session *session, const bench_contender *contenders, size_t count, double elapsed)
{
    double least = session->options->min_seconds;
    int settled = 1, few = 0;
    for (size_t i = 0; i < count; i++) {
        const bench_contender *c = &contenders[i];
        settled = settled && ((c->stable && c->timed >= least) || c->count >= MOST_SAMPLES);
        few = few || c->count < BENCH_FEWEST_SAMPLES;
    }
    if (bench_seconds() > session->deadline) return 1;
    return settled || (!few && elapsed > PATIENCE * least * (double)count);
}

/* A GPU's clocks are down after a pause, and its kernels are loaded with their first call: works until neither is so, then
 * records the contenders whose calls are short. */
static int wake(bench_session *session, bench_contender *contenders, size_t count, int sweep)
{
    const bench_backend *backend = session->backend;
    double begin = bench_seconds();
    double needed = begin - session->timed_until < AWAKE_SECONDS ? STIR_SECONDS : WAKE_SECONDS;
    do
        for (size_t i = 0; i < count; i++) {
            bench_contender *c = &contenders[i];
            int calls = calls_a_turn(c, 0);
            if (calls > 20) calls = 20;
            backend->mark(0);
            for (int j = 0; j < calls; j++)
                if (bench_contender_call(c)) return -1;
            backend->mark(1);
            backend->finish();
            if (backend->trouble()) return -1;
            c->estimate = backend->elapsed(0, 1) / calls;
        }
    while (bench_seconds() - begin < needed);
    for (size_t i = 0; i < count; i++)
        if (contenders[i].estimate < RECORD_BELOW) bench_contender_record(&contenders[i], sweep);
    return backend->trouble() ? -1 : 0;
}

int bench_time(bench_session *session, bench_contender *contenders, size_t count, int sweep, const char *what)
{
    const bench_options *options = session->options;
    double begin = bench_seconds(), elapsed = 0;
    for (size_t i = 0; i < count; i++) {
        /* A first guess, which every turn corrects. */
        double start = bench_seconds();
        if (bench_contender_call(&contenders[i])) return -1;
        session->backend->finish();
        contenders[i].estimate = bench_seconds() - start;
        if (session->backend->kind == LAC_DEVICE_KIND_CPU) bench_settle();
    }
    if (session->backend->record_begin && wake(session, contenders, count, sweep)) return -1;
    for (size_t round = 0; !round || !is_enough(session, contenders, count, elapsed); round++) {
        for (size_t i = 0; i < count; i++) {
            if (options->should_stop && options->should_stop(options->user)) return -1;
            bench_contender *c = &contenders[(i + round) % count];
            if (take_turn(session, c, sweep)) return -1;
        }
        elapsed = bench_seconds() - begin;
        double share = elapsed / (PATIENCE / 2 * options->min_seconds * (double)count);
        if (options->on_progress)
            options->on_progress(options->user, session->cells_done * 100 + (uint64_t)(share < 0.95 ? share * 100 : 95),
                                 session->cells_total * 100, what);
    }
    for (size_t i = 0; i < count; i++) summarise(&contenders[i]);
    session->timed_until = bench_seconds();
    session->timed_seconds += session->timed_until - begin;
    return 0;
}
