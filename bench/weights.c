/* weights.c - prunes and compresses the weights of a layer, the next one in a thread of its own while a GPU is busy with the
 * one before. run.c calls it: over a whole shape file the host would otherwise work while the GPU waits. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

/* Sets weight, info and held; or status and why. */
static void make(bench_weight *w)
{
    lac_matrix drawn = {.data = (float *)w->drawn, .dtype = LAC_DTYPE_F32, .rows = w->n, .cols = w->k};
    lac_matrix held = {.dtype = LAC_DTYPE_F32, .rows = w->n, .cols = w->k};
    lac_compress_options compress = {.size = sizeof compress, .dtype = w->dtype};
    lac_mask *mask = NULL;
    held.data = w->held = malloc((size_t)(w->n * w->k) * sizeof *w->held);
    lac_status status = w->held ? lac_prune(&drawn, &w->pattern, NULL, &mask) : LAC_STATUS_OUT_OF_MEMORY;
    if (!status) status = lac_weight_compress(&drawn, mask, &compress, &w->weight);
    lac_mask_free(mask);
    w->info.size = sizeof w->info;
    if (!status) status = lac_weight_get_info(w->weight, &w->info);
    if (!status) status = lac_weight_decompress(w->weight, &held);
    w->status = status;
    if (status) snprintf(w->why, sizeof w->why, "%s", status == LAC_STATUS_OUT_OF_MEMORY ? "out of memory" : lac_last_error());
}

static void *work(void *opaque)
{
    make(opaque);
    return NULL;
}

void bench_weight_start(bench_weight *w, int ahead)
{
    w->running = ahead && !pthread_create(&w->thread, NULL, work, w);
    if (!w->running) make(w);
}

void bench_weight_wait(bench_weight *w)
{
    if (w->running) pthread_join(w->thread, NULL);
    w->running = 0;
}

void bench_weight_free(bench_weight *w)
{
    bench_weight_wait(w);
    lac_weight_free(w->weight);
    free(w->held);
    *w = (bench_weight){0};
}
