/* behind.h - a tensor of a checkpoint is written while the next one is worked on. Used by checkpoint.c. */
#ifndef LAC_PRUNE_BEHIND_H
#define LAC_PRUNE_BEHIND_H

#include <pthread.h>
#include <stdbool.h>

#include "lacuna.h"

enum { LAC_BEHIND_MESSAGE = 1024 };

typedef struct lac_behind {
    pthread_t thread;
    bool running;
    lac_writer *writer;
    const char *name;
    const lac_weight *weight; /* or NULL: `bytes` of data */
    const void *data;
    uint64_t bytes;
    lac_status status;
    char message[LAC_BEHIND_MESSAGE]; /* of that status: messages belong to a thread */
} lac_behind;

/* Begins to write what was declared as `name`; at once and to its end where no thread can be had. What began before must have ended. All that is given must stay
 * until lac_behind_end, and the writer must have begun: then nothing is allocated by the thread. */
void lac_behind_begin(lac_behind *behind, lac_writer *writer, const char *name, const lac_weight *weight, const void *data,
                      uint64_t bytes);
/* Waits until all is written, and fails as the writing did. */
lac_status lac_behind_end(lac_behind *behind);

#endif
