/* parallel.c - see parallel.h. Threads come and go with each call, so that none is left to disturb a timing. */
#include "parallel.h"

#include <pthread.h>
#include <unistd.h>

enum { MOST_THREADS = 64 };

typedef struct part {
    bench_range_fn body;
    void *user;
    int64_t begin, end;
    pthread_t thread;
    int started;
} part;

static void *work(void *opaque)
{
    const part *p = opaque;
    p->body(p->user, p->begin, p->end);
    return NULL;
}

void bench_parallel(int64_t count, int64_t least, bench_range_fn body, void *user)
{
    part parts[MOST_THREADS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = cores < 1 ? 1 : cores > MOST_THREADS ? MOST_THREADS : cores;
    if (least < 1) least = 1;
    if (threads > (count + least - 1) / least) threads = (count + least - 1) / least;
    if (threads < 1) return;
    int64_t step = (count + threads - 1) / threads;
    for (int64_t i = threads - 1; i >= 0; i--) { /* the first part is this thread's own */
        parts[i] = (part){.body = body, .user = user, .begin = i * step, .end = (i + 1) * step};
        if (parts[i].begin > count) parts[i].begin = count;
        if (parts[i].end > count) parts[i].end = count;
        parts[i].started = i > 0 && !pthread_create(&parts[i].thread, NULL, work, &parts[i]);
        if (!parts[i].started) work(&parts[i]);
    }
    for (int64_t i = 1; i < threads; i++)
        if (parts[i].started) pthread_join(parts[i].thread, NULL);
}
