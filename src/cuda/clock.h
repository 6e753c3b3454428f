/* clock.h - how long the GPU takes over what is put on a stream: two events round it. For race.c and dense_measure.c. */
#ifndef LAC_CUDA_CLOCK_H
#define LAC_CUDA_CLOCK_H

#include "cuda/runtime.h"

typedef struct lac_cuda_clock {
    const lac_cuda_driver *driver;
    lac_cu_stream stream; /* of its own */
    lac_cu_event from, to;
} lac_cuda_clock;

/* In the device's context. What was made is there to be removed when it fails. */
lac_status lac_cuda_clock_make(const lac_device *device, lac_cuda_clock *out);
void lac_cuda_clock_remove(lac_cuda_clock *clock);
lac_status lac_cuda_clock_start(const lac_cuda_clock *clock);
/* Waits for what was put on the stream since the start. */
lac_status lac_cuda_clock_stop(const lac_cuda_clock *clock, double *seconds);

/* Upwards. What others do on the GPU only adds to a time, so that times[count / 4] is a better one than the median. */
void lac_sort_seconds(double *times, int count);

#endif
