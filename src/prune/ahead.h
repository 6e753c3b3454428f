/* ahead.h - the next tensor of a checkpoint is read from the disk, and its checksum taken, while one is worked on. Used by checkpoint.c. */
#ifndef LAC_PRUNE_AHEAD_H
#define LAC_PRUNE_AHEAD_H

#include <pthread.h>
#include <stdbool.h>

#include "lacuna.h"

typedef struct lac_ahead {
    pthread_t thread;
    bool running;
    const void *data; /* what is read, or was last; its bytes and digest */
    uint64_t bytes, digest;
} lac_ahead;

/* Begins to read `bytes` of a mapped file; does nothing where no thread can be had. What began before must have ended. */
void lac_ahead_begin(lac_ahead *ahead, const void *data, uint64_t bytes);
/* Waits until all is read. */
void lac_ahead_end(lac_ahead *ahead);
/* The digest of these bytes: as it was found ahead, or found now. */
uint64_t lac_ahead_digest(lac_ahead *ahead, const void *data, uint64_t bytes);

#endif
