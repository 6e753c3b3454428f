/* behind.c - one thread that writes a finished tensor: taking the checksum, copying into the system's memory and waiting for a slow disk cost the threads that
 * prune nothing. One tensor at a time, so memory stays bounded and the file grows in order. Called by checkpoint.c. */
#include "prune/behind.h"

#include <stdio.h>

#include "core/status.h"

static void *write_all(void *state)
{
    lac_behind *b = state;
    b->status = b->weight ? lac_writer_write_weight(b->writer, b->name, b->weight)
                          : lac_writer_write_tensor(b->writer, b->name, b->data, b->bytes);
    if (b->status != LAC_STATUS_OK) snprintf(b->message, sizeof b->message, "%s", lac_last_error());
    return NULL;
}

/* The stack holds a message or two; the usual one of megabytes would count against a limit on memory. */
static bool start(lac_behind *behind)
{
    enum { STACK = 256 << 10 };
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) return false;
    bool started = pthread_attr_setstacksize(&attributes, STACK) == 0 &&
                   pthread_create(&behind->thread, &attributes, write_all, behind) == 0;
    pthread_attr_destroy(&attributes);
    return started;
}

void lac_behind_begin(lac_behind *behind, lac_writer *writer, const char *name, const lac_weight *weight, const void *data,
                      uint64_t bytes)
{
    /* Small tensors are many, and written before a thread would have begun. */
    enum { LEAST = 1 << 20 };
    *behind = (lac_behind){.writer = writer, .name = name, .weight = weight, .data = data, .bytes = bytes};
    behind->running = (weight || bytes >= LEAST) && start(behind);
    if (!behind->running) write_all(behind);
}

lac_status lac_behind_end(lac_behind *behind)
{
    if (behind->running) pthread_join(behind->thread, NULL);
    behind->running = false;
    return behind->status == LAC_STATUS_OK ? LAC_STATUS_OK : lac_fail(behind->status, "%s", behind->message);
}
