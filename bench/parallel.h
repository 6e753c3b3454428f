/* parallel.h - the benchmark's own work on large arrays, by all cores: drawing numbers, converting, checking. Never while
 * something is timed. */
#ifndef LACUNA_BENCH_PARALLEL_H
#define LACUNA_BENCH_PARALLEL_H

#include <stdint.h>

typedef void (*bench_range_fn)(void *user, int64_t begin, int64_t end);

/* Calls `body` on ranges that make up [0, count), each `least` long or longer but for the last, at the same time. */
void bench_parallel(int64_t count, int64_t least, bench_range_fn body, void *user);

#endif
