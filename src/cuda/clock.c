/* clock.c - see clock.h. */
#include "cuda/clock.h"

#include <stdlib.h>

#include "cuda/state.h"

static const char what[] = "timing";

lac_status lac_cuda_clock_make(const lac_device *device, lac_cuda_clock *out)
{
    const lac_cuda_driver *driver = lac_cuda_state_of(device)->driver;
    *out = (lac_cuda_clock){.driver = driver};
    lac_status status = lac_cuda_check(driver->cuStreamCreate(&out->stream, LAC_CU_STREAM_NON_BLOCKING), what);
    if (!status) status = lac_cuda_check(driver->cuEventCreate(&out->from, 0), what);
    return status ? status : lac_cuda_check(driver->cuEventCreate(&out->to, 0), what);
}

void lac_cuda_clock_remove(lac_cuda_clock *clock)
{
    if (clock->from) clock->driver->cuEventDestroy(clock->from);
    if (clock->to) clock->driver->cuEventDestroy(clock->to);
    if (clock->stream) clock->driver->cuStreamDestroy(clock->stream);
}

lac_status lac_cuda_clock_start(const lac_cuda_clock *clock)
{
    return lac_cuda_check(clock->driver->cuEventRecord(clock->from, clock->stream), what);
}

lac_status lac_cuda_clock_stop(const lac_cuda_clock *clock, double *seconds)
{
    float milliseconds = 0;
    lac_status status = lac_cuda_check(clock->driver->cuEventRecord(clock->to, clock->stream), what);
    if (!status) status = lac_cuda_check(clock->driver->cuEventSynchronize(clock->to), what);
    if (!status) status = lac_cuda_check(clock->driver->cuEventElapsedTime(&milliseconds, clock->from, clock->to), what);
    *seconds = 1e-3 * (double)milliseconds;
    return status;
}

static int compare_seconds(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

void lac_sort_seconds(double *times, int count) { qsort(times, (size_t)count, sizeof *times, compare_seconds); }
