/* race.c - times works on a GPU against each other: what lac_device_ops.race does. A work counts for what it adds to a stream of
 * other work: calls alternate with sweeps of L2, and the time of as many sweeps alone is taken off. So each call finds L2 full of
 * something else, as in a model of many layers; what a launch can do under the end of the kernel before it is done there; and the
 * queue never runs empty, for a sweep takes longer than the host needs to put a call behind it. Works take turns, and what others do
 * on the GPU only adds: of a work's times the lower quartile counts. */
#include <math.h>

#include "cuda/clock.h"
#include "cuda/race.h"
#include "cuda/state.h"

enum { ROUNDS = 16, LEAST_ROUNDS = 4, WARM_UPS = 3, MOST_CALLS = 8, SWEEP_THREADS = 256, SWEEPS_OF_L2 = 2, LINE = 16 };
static const double BATCH_SECONDS = 300e-6; /* of calls: an event's half microsecond is little against it */
static const double MOST_SECONDS = 30e-3;   /* of a race: long works run fewer times                       */
static const char what[] = "timing kernels";

typedef struct track {
    const lac_device *device;
    lac_cuda_clock clock;
    lac_cu_function sweep;
    lac_cu_pointer block; /* what is swept, then where the sweep would write */
    int64_t lines;
} track;

void lac_cuda_sweep_request(lac_cuda_request *request) { lac_cuda_request_begin(request, "sweep.cu", "lac_sweep"); }

static lac_status make_track(track *t)
{
    lac_cuda_request request;
    lac_cuda_sweep_request(&request);
    uint64_t bytes = SWEEPS_OF_L2 * t->device->info.l2_bytes / LINE * LINE;
    t->lines = (int64_t)(bytes / LINE);
    lac_status status = lac_cuda_program_get(t->device, &request, &t->sweep);
    if (!status) status = lac_cuda_allocate(t->device, what, bytes + LINE, &t->block);
    if (!status) status = lac_cuda_clock_make(t->device, &t->clock);
    if (status) return status;
    return lac_cuda_check(t->clock.driver->cuMemsetD8Async(t->block, 0, bytes + LINE, t->clock.stream), what);
}

static lac_status sweep(const track *t)
{
    lac_cu_pointer out = t->block + (uint64_t)t->lines * LINE;
    unsigned blocks = 8 * (unsigned)lac_cuda_target_of(t->device)->multiprocessors;
    lac_cuda_launch launch = {.function = t->sweep, .grid = {blocks, 1, 1}, .block = SWEEP_THREADS};
    return lac_cuda_launch_on(t->device, &launch, t->clock.stream, (void *[]){(void *)&t->block, (void *)&t->lines, &out});
}

/* So many calls, a sweep before each; without a work the sweeps alone. */
static lac_status run(const track *t, const lac_work *work, int calls, double *seconds)
{
    lac_status status = lac_cuda_clock_start(&t->clock);
    for (int i = 0; i < calls && !status; ++i) {
        status = sweep(t);
        if (!status && work) status = work->run(work->user, t->clock.stream);
    }
    if (!status) status = lac_cuda_clock_stop(&t->clock, seconds);
    if (!status) *seconds /= calls;
    return status;
}

/* A round: the sweeps alone, then every work. */
static lac_status run_round(const track *t, const lac_work *works, int count, int calls, double *seconds)
{
    lac_status status = run(t, NULL, calls, &seconds[0]);
    for (int i = 0; i < count && !status; ++i) status = run(t, &works[i], calls, &seconds[1 + i]);
    return status;
}

/* How many calls make a batch, and how many rounds there is time for. A GPU at rest is slow, and a first call loads its kernel: what
 * the last of a few rounds took is what counts. */
static lac_status warm_up(const track *t, const lac_work *works, int count, int *calls, int *rounds)
{
    double seconds[1 + LAC_MOST_ENTRANTS], longest = 0.0, all = 0.0;
    for (int i = 0; i < WARM_UPS; ++i) {
        lac_status status = run_round(t, works, count, i ? 2 : 1, seconds);
        if (status) return status;
    }
    for (int i = 0; i <= count; ++i) {
        longest = fmax(longest, seconds[i]);
        all += seconds[i];
    }
    *calls = (int)fmax(1.0, fmin(MOST_CALLS, BATCH_SECONDS / longest));
    *rounds = (int)fmax(LEAST_ROUNDS, fmin(ROUNDS, MOST_SECONDS / (all * *calls)));
    return LAC_STATUS_OK;
}

static lac_status run_race(const track *t, const lac_work *works, int count, double *seconds)
{
    double times[1 + LAC_MOST_ENTRANTS][ROUNDS], round_seconds[1 + LAC_MOST_ENTRANTS] = {0};
    int calls = 1, rounds = 0;
    lac_status status = warm_up(t, works, count, &calls, &rounds);
    for (int round = 0; round < rounds && !status; ++round) {
        status = run_round(t, works, count, calls, round_seconds);
        for (int i = 0; i <= count; ++i) times[i][round] = round_seconds[i];
    }
    if (status) return status;
    for (int i = 0; i <= count; ++i) lac_sort_seconds(times[i], rounds);
    for (int i = 0; i < count; ++i) seconds[i] = fmax(times[1 + i][rounds / 4] - times[0][rounds / 4], 1e-9);
    return LAC_STATUS_OK;
}

lac_status lac_cuda_race(const lac_device *device, const lac_work *works, int count, double *seconds)
{
    lac_cuda_state *state = lac_cuda_state_of(device);
    track t = {.device = device};
    bool entered;
    lac_status status = lac_cuda_enter(device, what, &entered);
    if (status) return status;
    pthread_mutex_lock(&state->programs->notes_lock); /* one timing at a time */
    int mode = lac_cuda_relax_capture(state->driver);
    status = make_track(&t);
    if (!status) status = run_race(&t, works, count, seconds);
    lac_status ended =
        t.clock.stream ? lac_cuda_check(state->driver->cuStreamSynchronize(t.clock.stream), what) : LAC_STATUS_OK;
    lac_cuda_clock_remove(&t.clock);
    lac_cuda_free(device, t.block);
    lac_cuda_restore_capture(state->driver, mode);
    pthread_mutex_unlock(&state->programs->notes_lock);
    lac_cuda_leave(device, entered);
    return status ? status : ended;
}
