/* obs_device.c - the large products of second-order pruning on a GPU: the factor of the moments, and passing a block's changes on
 * to all later columns. Nine tenths of a layer's arithmetic is here. What is chosen, and how a block's own columns change, stays on the host
 * (obs_select.c, obs.c), block by block: 128 columns go down, their changes come up.
 *
 * The factor is found without turning the inputs round: the moments are V V^T with V upper, from the last block of columns
 * to the first, and u = V^-1. Diagonal blocks are factored on the host, in double. Called by obs.c. */
#include "prune/obs_device.h"

#include <string.h>

#include "core/arithmetic.h"
#include "core/kernel.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/status.h"
#include "prune/linear.h"

struct lac_obs_device {
    const lac_device *device;
    const lac_linear_ops *ops;
    void *engine;
    int64_t n, k, block;
    float *w, *v, *u;    /* the device's: [n][k], [k][k], [k][k] */
    float *small, *ones; /* the device's: [n or block][widest or block] for what goes down, [k] */
    float *host;         /* as `small` */
};

static void release_block(const lac_obs_device *d, float *block)
{
    if (block) d->device->ops->release(d->device, block);
}

void lac_obs_device_close(lac_obs_device *d)
{
    if (!d) return;
    if (d->engine) d->ops->close(d->engine);
    release_block(d, d->w);
    release_block(d, d->v);
    release_block(d, d->u);
    release_block(d, d->small);
    release_block(d, d->ones);
    lac_release(d->host);
    lac_release(d);
}

static lac_status reserve(const lac_obs_device *d, const char *what, int64_t rows, int64_t cols, float **out)
{
    uint64_t bytes;
    void *block = NULL;
    if (!lac_multiply_u64((uint64_t)rows * sizeof(float), (uint64_t)cols, &bytes)) return lac_fail_memory(what, UINT64_MAX);
    lac_status status = d->device->ops->allocate(d->device, what, bytes, &block);
    *out = block;
    return status;
}

static lac_status reserve_all(lac_obs_device *d, int64_t widest)
{
    int64_t most = lac_smaller(widest > d->block ? widest : d->block, d->k), rows = d->n > d->block ? d->n : d->block;
    uint64_t bytes = (uint64_t)(rows * most > d->k ? rows * most : d->k) * sizeof(float);
    lac_status status = d->ops->open(d->device, &d->engine);
    if (status == LAC_STATUS_OK) status = reserve(d, "the weights", d->n, d->k, &d->w);
    if (status == LAC_STATUS_OK) status = reserve(d, "the moments", d->k, d->k, &d->v);
    if (status == LAC_STATUS_OK) status = reserve(d, "the factor of the moments", d->k, d->k, &d->u);
    if (status == LAC_STATUS_OK) status = reserve(d, "a block of columns", rows, most, &d->small);
    if (status == LAC_STATUS_OK) status = reserve(d, "ones", d->k, 1, &d->ones);
    if (status != LAC_STATUS_OK) return status;
    d->host = lac_allocate(bytes);
    if (!d->host) return lac_fail_memory("a block of columns", bytes);
    for (int64_t i = 0; i < d->k; i++) d->host[i] = 1;
    return d->device->ops->upload(d->device, d->ones, d->host, (uint64_t)d->k * sizeof(float));
}

lac_status lac_obs_device_open(const lac_device *device, int64_t n, int64_t k, int64_t block, int64_t widest,
                               lac_obs_device **out)
{
    if (!device->ops->linear)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "options: device is %s, which has no linear algebra of its own",
                        device->info.name);
    lac_obs_device *d = lac_allocate(sizeof *d);
    if (!d) return lac_fail_memory("a device's part", sizeof *d);
    *d = (lac_obs_device){.device = device, .ops = device->ops->linear, .n = n, .k = k, .block = block};
    lac_status status = reserve_all(d, widest);
    if (status != LAC_STATUS_OK) {
        lac_obs_device_close(d);
        return status;
    }
    *out = d;
    return LAC_STATUS_OK;
}

/* ---------------------------------------------------------------- the factor */

static void turn_round(float *a, int64_t count)
{
    for (int64_t i = 0, j = count - 1; i < j; i++, j--) {
        float kept = a[i];
        a[i] = a[j], a[j] = kept;
    }
}

/* V of the diagonal block at `first`, in place on the device. On the host a lower factor is found: of the block turned round. */
static lac_status factor_block(lac_obs_device *d, int64_t first, int64_t width, float added, int64_t *pivot)
{
    float *at = d->v + first * d->k + first;
    uint64_t bytes = (uint64_t)(width * width) * sizeof(float);
    lac_status status = d->ops->copy(d->engine, width, width, at, d->k, d->small, width);
    if (status == LAC_STATUS_OK) status = d->device->ops->download(d->device, d->host, d->small, bytes);
    if (status != LAC_STATUS_OK) return status;
    for (int64_t i = 0; i < width; i++) d->host[i * width + i] += added;
    turn_round(d->host, width * width);
    int64_t done = lac_linear_cholesky(d->host, width, 1);
    if (done < width) {
        *pivot = first + width - 1 - done;
        return LAC_STATUS_OK;
    }
    turn_round(d->host, width * width);
    for (int64_t r = 0; r < width; r++) memset(d->host + r * width, 0, (size_t)r * sizeof(float));
    status = d->device->ops->upload(d->device, d->small, d->host, bytes);
    return status == LAC_STATUS_OK ? d->ops->copy(d->engine, width, width, d->small, width, at, d->k) : status;
}

lac_status lac_obs_device_factor(lac_obs_device *d, const float *moments, float added, float *u, int64_t *pivot)
{
    int64_t k = d->k;
    uint64_t bytes = (uint64_t)(k * k) * sizeof(float);
    *pivot = k;
    lac_status status = d->device->ops->upload(d->device, d->v, moments, bytes);
    for (int64_t end = k, first; end > 0 && status == LAC_STATUS_OK; end = first) {
        first = end > d->block ? end - d->block : 0;
        status = factor_block(d, first, end - first, added, pivot);
        if (status != LAC_STATUS_OK || *pivot < k) return status;
        status = d->ops->solve_rows(d->engine, end - first, d->v + first * k + first, k, first, d->v + first, k);
        if (status == LAC_STATUS_OK) status = d->ops->subtract_square(d->engine, first, end - first, d->v + first, k, d->v, k);
    }
    if (status == LAC_STATUS_OK) status = d->ops->invert_upper(d->engine, k, d->v, d->ones, d->u);
    return status == LAC_STATUS_OK ? d->device->ops->download(d->device, u, d->u, bytes) : status;
}

/* ---------------------------------------------------------------- the weights */

lac_status lac_obs_device_begin(lac_obs_device *d, const float *w)
{
    return d->device->ops->upload(d->device, d->w, w, (uint64_t)(d->n * d->k) * sizeof(float));
}

typedef struct put_state {
    const float *from; /* [n][count] */
    float *to;         /* [n][ld] */
    int64_t count, ld;
} put_state;

static void put_row(void *state, int thread, int64_t row)
{
    const put_state *s = state;
    (void)thread;
    memcpy(s->to + row * s->ld, s->from + row * s->count, (size_t)s->count * sizeof(float));
}

lac_status lac_obs_device_fetch(lac_obs_device *d, int64_t first, int64_t count, int threads, float *w)
{
    lac_status status = d->ops->copy(d->engine, d->n, count, d->w + first, d->k, d->small, count);
    if (status == LAC_STATUS_OK)
        status = d->device->ops->download(d->device, d->host, d->small, (uint64_t)(d->n * count) * sizeof(float));
    if (status != LAC_STATUS_OK) return status;
    put_state s = {.from = d->host, .to = w + first, .count = count, .ld = d->k};
    lac_parallel_for_each(d->n, lac_parallel_threads_for(threads, d->n, d->n * count), put_row, &s);
    return LAC_STATUS_OK;
}

lac_status lac_obs_device_pass_on(lac_obs_device *d, int64_t first, int64_t end, const float *changes)
{
    if (end == d->k) return LAC_STATUS_OK;
    lac_status status = d->device->ops->upload(d->device, d->small, changes, (uint64_t)(d->n * d->block) * sizeof(float));
    if (status != LAC_STATUS_OK) return status;
    lac_product later = {.rows = d->n,
                         .cols = d->k - end,
                         .depth = end - first,
                         .alpha = -1,
                         .a = d->small,
                         .lda = d->block,
                         .b = d->u + first * d->k + end,
                         .ldb = d->k,
                         .c = d->w + end,
                         .ldc = d->k};
    return d->ops->multiply(d->engine, &later);
}
