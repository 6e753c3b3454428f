/* parallel.c - whether this process is a child of fork(), where OpenMP's threads of the parent are not. See parallel.h. */
#include "core/parallel.h"

#include <pthread.h>
#include <stdbool.h>

static bool forked; /* written once, in the child, while it has one thread */

static void note_fork(void) { forked = true; }

/* When the library is loaded, since the parent may have used threads before it calls anything here. */
#if defined(__GNUC__)
__attribute__((constructor))
#endif
static void
watch_forks(void)
{
    (void)pthread_atfork(NULL, NULL, note_fork);
}

int32_t lac_parallel_unsaid(void) { return forked ? 1 : 0; }
