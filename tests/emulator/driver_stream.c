/* driver_stream.c - what is done in order: streams, events, and captures, which write work down instead of doing it. There
 * is no queue: work is done when it is asked for, in the caller's thread, so whoever waits for a stream finds nothing left to wait for.
 * A real GPU may be late, and finds missing waits that this one does not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver.h"

enum { CAPTURE_GLOBAL, CAPTURE_THREAD, CAPTURE_RELAXED, CAPTURE_MODES };
enum { STREAM_NON_BLOCKING = 1, EVENT_WITHOUT_TIME = 2 };

typedef struct graph { /* CUgraph, and what executables of it hold */
    emu_object object;
    int holders;
    emu_work *first, **end;
} graph;

typedef struct executable { /* CUgraphExec */
    emu_object object;
    graph *graph;
} executable;

typedef struct stream { /* CUstream */
    emu_object object;
    unsigned flags;
    graph *captured; /* NULL: it is not being captured */
    int mode;
    pthread_t owner;
    bool invalid;
} stream;

typedef struct event { /* CUevent */
    emu_object object;
    unsigned flags;
    bool is_recorded, is_captured;
    double milliseconds;
} event;

pthread_mutex_t emu_driver_gpu = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int capture_mode = CAPTURE_GLOBAL;

static void lock_objects(void) { pthread_mutex_lock(&emu_driver_objects); }
static void unlock_objects(void) { pthread_mutex_unlock(&emu_driver_objects); }

/* Those without a handle of their own: the legacy stream, and the thread's, which here is the same. */
static bool is_default(const void *handle) { return (uintptr_t)handle <= 2; }

/* ---- what a capture forbids */

int emu_driver_enter_unsafe(void)
{
    int result = emu_driver_enter();
    if (result || capture_mode == CAPTURE_RELAXED) return result;
    lock_objects();
    for (emu_object *object = emu_driver_alive[EMU_STREAMS]; object; object = object->next) {
        stream *s = (stream *)object;
        bool own = s->captured && pthread_equal(s->owner, pthread_self());
        if (!s->captured || (own ? s->mode == CAPTURE_RELAXED : capture_mode != CAPTURE_GLOBAL || s->mode != CAPTURE_GLOBAL))
            continue;
        s->invalid = true;
        result = CAPTURE_UNSUPPORTED;
    }
    unlock_objects();
    return result;
}

EXPORT int cuThreadExchangeStreamCaptureMode(int *mode)
{
    if (!mode || *mode < 0 || *mode >= CAPTURE_MODES) return INVALID_VALUE;
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return OK;
}

/* The legacy stream waits for all streams but those that said otherwise: it cannot, while one is captured. */
static int check_implicit(void)
{
    int result = OK;
    for (emu_object *object = emu_driver_alive[EMU_STREAMS]; object; object = object->next) {
        stream *s = (stream *)object;
        if (!s->captured || (s->flags & STREAM_NON_BLOCKING)) continue;
        s->invalid = true;
        result = CAPTURE_IMPLICIT;
    }
    return result;
}

/* ---- work */

static void free_works(emu_work *first)
{
    for (emu_work *next; first; first = next) {
        next = first->next;
        free(first);
    }
}

/* Under emu_driver_gpu. What was right when a graph was made need not be so any more. */
static int do_work(const emu_work *work)
{
    char why[2048] = "";
    int result = emu_driver_enter();
    if (result) return result;
    if (work->kind == EMU_LAUNCH) {
        lock_objects();
        bool loaded = emu_driver_function_is_loaded(work->launch.function);
        unlock_objects();
        if (!loaded) return emu_driver_lose(LAUNCH_FAILED, "a kernel is launched whose module is unloaded");
        return emu_run_launch(&work->launch, why, sizeof why) ? OK : emu_driver_lose(LAUNCH_FAILED, why);
    }
    if ((work->to_device && !emu_allocated(work->to, work->bytes)) ||
        (work->from_device && !emu_allocated(work->from, work->bytes)))
        return emu_driver_lose(ILLEGAL_ADDRESS, "a copy or a fill of memory that is no more");
    void *to = (void *)(uintptr_t)work->to;
    if (work->kind == EMU_COPY)
        memmove(to, (const void *)(uintptr_t)work->from, work->bytes);
    else
        memset(to, work->value, work->bytes);
    return OK;
}

int emu_driver_submit(void *handle, emu_work *work)
{
    work->next = NULL;
    lock_objects();
    stream *s = is_default(handle) ? NULL : emu_driver_find(EMU_STREAMS, handle);
    int result = s ? OK : is_default(handle) ? check_implicit() : INVALID_HANDLE;
    bool captured = s && s->captured;
    if (captured && s->invalid) result = CAPTURE_INVALIDATED;
    if (captured && !result) {
        *s->captured->end = work;
        s->captured->end = &work->next;
    }
    unlock_objects();
    if (captured && !result) return OK;
    if (!result) {
        pthread_mutex_lock(&emu_driver_gpu);
        result = do_work(work);
        pthread_mutex_unlock(&emu_driver_gpu);
    }
    free(work);
    return result;
}

/* ---- graphs */

/* Under emu_driver_objects. */
static void release_graph(graph *g)
{
    if (!g || --g->holders) return;
    free_works(g->first);
    free(g);
}

EXPORT int cuStreamBeginCapture_v2(void *handle, int mode)
{
    int result = emu_driver_enter();
    if (result) return result;
    if (mode < 0 || mode >= CAPTURE_MODES) return INVALID_VALUE;
    if (is_default(handle)) return CAPTURE_UNSUPPORTED;
    graph *g = calloc(1, sizeof *g);
    if (!g) return OUT_OF_MEMORY;
    *g = (graph){.holders = 1, .end = &g->first};
    lock_objects();
    stream *s = emu_driver_find(EMU_STREAMS, handle);
    result = !s ? INVALID_HANDLE : s->captured ? ILLEGAL_STATE : OK;
    if (!result) {
        s->captured = g;
        s->mode = mode;
        s->owner = pthread_self();
        s->invalid = false;
    }
    unlock_objects();
    if (result) free(g);
    return result;
}

EXPORT int cuStreamEndCapture(void *handle, void **out)
{
    int result = emu_driver_enter();
    if (result) return result;
    *out = NULL;
    lock_objects();
    stream *s = is_default(handle) ? NULL : emu_driver_find(EMU_STREAMS, handle);
    if (!s)
        result = is_default(handle) ? ILLEGAL_STATE : INVALID_HANDLE;
    else if (!s->captured)
        result = ILLEGAL_STATE;
    else if (s->mode != CAPTURE_RELAXED && !pthread_equal(s->owner, pthread_self()))
        result = CAPTURE_WRONG_THREAD;
    else {
        graph *g = s->captured;
        s->captured = NULL;
        if (s->invalid) {
            release_graph(g);
            result = CAPTURE_INVALIDATED;
        } else {
            emu_driver_add(EMU_GRAPHS, &g->object);
            *out = g;
        }
    }
    unlock_objects();
    return result;
}

EXPORT int cuGraphInstantiateWithFlags(void **out, void *handle, unsigned long long flags)
{
    (void)flags; /* where memory of its nodes goes, and when it is uploaded */
    int result = emu_driver_enter();
    if (result) return result;
    executable *e = calloc(1, sizeof *e);
    if (!e) return OUT_OF_MEMORY;
    lock_objects();
    e->graph = emu_driver_find(EMU_GRAPHS, handle);
    if (e->graph) {
        ++e->graph->holders;
        emu_driver_add(EMU_EXECUTABLES, &e->object);
    }
    result = e->graph ? OK : INVALID_HANDLE;
    unlock_objects();
    if (result)
        free(e);
    else
        *out = e;
    return result;
}

EXPORT int cuGraphLaunch(void *handle, void *stream_handle)
{
    int result = emu_driver_enter();
    if (result) return result;
    lock_objects();
    const executable *e = emu_driver_find(EMU_EXECUTABLES, handle);
    const stream *s = is_default(stream_handle) ? NULL : emu_driver_find(EMU_STREAMS, stream_handle);
    graph *g = e ? e->graph : NULL;
    if (!g || (!s && !is_default(stream_handle)))
        result = INVALID_HANDLE;
    else if (!s)
        result = check_implicit();
    else if (s->captured)
        result = NOT_SUPPORTED; /* a graph in a graph */
    if (!result) ++g->holders;
    unlock_objects();
    if (result) return result;
    pthread_mutex_lock(&emu_driver_gpu);
    for (const emu_work *work = g->first; work && !result; work = work->next) result = do_work(work);
    pthread_mutex_unlock(&emu_driver_gpu);
    lock_objects();
    release_graph(g);
    unlock_objects();
    return result;
}

EXPORT int cuGraphDestroy(void *handle)
{
    lock_objects();
    graph *g = emu_driver_take(EMU_GRAPHS, handle);
    release_graph(g);
    unlock_objects();
    return g ? OK : INVALID_HANDLE;
}

EXPORT int cuGraphExecDestroy(void *handle)
{
    lock_objects();
    executable *e = emu_driver_take(EMU_EXECUTABLES, handle);
    if (e) release_graph(e->graph);
    unlock_objects();
    free(e);
    return e ? OK : INVALID_HANDLE;
}

/* ---- streams */

EXPORT int cuStreamCreate(void **out, unsigned flags)
{
    int result = emu_driver_enter();
    if (result) return result;
    if (flags > STREAM_NON_BLOCKING) return INVALID_VALUE;
    stream *s = calloc(1, sizeof *s);
    if (!s) return OUT_OF_MEMORY;
    s->flags = flags;
    lock_objects();
    emu_driver_add(EMU_STREAMS, &s->object);
    unlock_objects();
    *out = s;
    return OK;
}

EXPORT int cuStreamDestroy_v2(void *handle)
{
    lock_objects();
    stream *s = emu_driver_take(EMU_STREAMS, handle);
    if (s) release_graph(s->captured);
    unlock_objects();
    free(s);
    return s ? OK : INVALID_HANDLE;
}

EXPORT int cuStreamSynchronize(void *handle)
{
    int result = emu_driver_enter_unsafe();
    if (result) return result;
    lock_objects();
    stream *s = is_default(handle) ? NULL : emu_driver_find(EMU_STREAMS, handle);
    if (!s) result = is_default(handle) ? check_implicit() : INVALID_HANDLE;
    if (s && s->captured) {
        s->invalid = true;
        result = CAPTURE_UNSUPPORTED;
    }
    unlock_objects();
    return result;
}

/* ---- events: all work is done when it is asked for, so an event's time is the time it is recorded at */

EXPORT int cuEventCreate(void **out, unsigned flags)
{
    int result = emu_driver_enter();
    if (result) return result;
    event *e = calloc(1, sizeof *e);
    if (!e) return OUT_OF_MEMORY;
    e->flags = flags;
    lock_objects();
    emu_driver_add(EMU_EVENTS, &e->object);
    unlock_objects();
    *out = e;
    return OK;
}

EXPORT int cuEventDestroy_v2(void *handle)
{
    lock_objects();
    event *e = emu_driver_take(EMU_EVENTS, handle);
    unlock_objects();
    free(e);
    return e ? OK : INVALID_HANDLE;
}

EXPORT int cuEventRecord(void *handle, void *stream_handle)
{
    int result = emu_driver_enter();
    if (result) return result;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    lock_objects();
    event *e = emu_driver_find(EMU_EVENTS, handle);
    const stream *s = is_default(stream_handle) ? NULL : emu_driver_find(EMU_STREAMS, stream_handle);
    if (!e || (!s && !is_default(stream_handle)))
        result = INVALID_HANDLE;
    else if (s && s->captured && s->invalid)
        result = CAPTURE_INVALIDATED;
    else if (!s)
        result = check_implicit();
    if (!result) {
        e->is_captured = s && s->captured;
        e->is_recorded = true;
        e->milliseconds = 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
    }
    unlock_objects();
    return result;
}

EXPORT int cuEventSynchronize(void *handle)
{
    int result = emu_driver_enter_unsafe();
    if (result) return result;
    lock_objects();
    const event *e = emu_driver_find(EMU_EVENTS, handle);
    result = !e ? INVALID_HANDLE : e->is_captured ? CAPTURED_EVENT : OK;
    unlock_objects();
    return result;
}

EXPORT int cuEventElapsedTime(float *milliseconds, void *from, void *to)
{
    int result = emu_driver_enter();
    if (result) return result;
    lock_objects();
    const event *a = emu_driver_find(EMU_EVENTS, from), *b = emu_driver_find(EMU_EVENTS, to);
    bool timed = a && b && a->is_recorded && b->is_recorded && !((a->flags | b->flags) & EVENT_WITHOUT_TIME);
    result = !timed ? INVALID_HANDLE : a->is_captured || b->is_captured ? CAPTURED_EVENT : OK;
    if (!result) *milliseconds = (float)(b->milliseconds - a->milliseconds);
    unlock_objects();
    return result;
}
