/* obs_device.h - second-order pruning with a GPU for the large products. obs.c keeps choosing and correcting on the host. */
#ifndef LAC_PRUNE_OBS_DEVICE_H
#define LAC_PRUNE_OBS_DEVICE_H

#include "core/linear.h"
#include "prune/obs.h"

typedef struct lac_obs_device lac_obs_device;

/* For a layer whose blocks have `block` columns and whose groups at most `widest`. `changes` of lac_obs_device_pass_on is
 * [n][block]. */
lac_status lac_obs_device_open(const lac_device *device, int64_t n, int64_t k, int64_t block, int64_t widest,
                               lac_obs_device **out);
void lac_obs_device_close(lac_obs_device *d); /* takes NULL */

/* u[k][k] = the upper factor with u^T u = the inverse of the moments with `added` on their diagonal, on the device and on the host.
 * *pivot = k, or the input whose pivot was not positive: then there is no factor. */
lac_status lac_obs_device_factor(lac_obs_device *d, const float *moments, float added, float *u, int64_t *pivot);
/* The weights as they are before the first block. */
lac_status lac_obs_device_begin(lac_obs_device *d, const float *w);
/* Columns [first, first + count) of w[n][k] as all changes so far have left them. */
lac_status lac_obs_device_fetch(lac_obs_device *d, int64_t first, int64_t count, int threads, float *w);
/* Passes the changes of columns [first, end) on to all columns after them. */
lac_status lac_obs_device_pass_on(lac_obs_device *d, int64_t first, int64_t end, const float *changes);

#endif
