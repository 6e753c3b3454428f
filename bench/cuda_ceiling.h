/* cuda_ceiling.h - what this GPU does at most: small kernels of its own, in PTX, which the driver compiles. */
#ifndef LACUNA_BENCH_CUDA_CEILING_H
#define LACUNA_BENCH_CUDA_CEILING_H

#include "cuda_driver.h"
#include "machine.h"

typedef struct bench_cuda_probe {
    const bench_cuda_driver *driver;
    void *stream;
    int arch; /* 90 for 9.0 */
    int multiprocessors;
} bench_cuda_probe;

/* Compiles the kernel that reads a block of memory and keeps nothing of it. NULL: it failed. */
void *bench_cuda_reader_open(const bench_cuda_probe *probe, void **module);
/* Puts it on the stream: reads `bytes` from `address`. Nonzero: the driver's error. */
int bench_cuda_reader_run(const bench_cuda_probe *probe, void *reader, uint64_t address, size_t bytes);

/* Measures for about 20 ms. Rates of units that the GPU lacks, or that are not wanted, stay 0. Nonzero: the driver's error, after
 * `why`. */
int bench_cuda_ceiling_measure(const bench_cuda_probe *probe, int want_f16, int want_tf32, bench_ceiling *out, char *why,
                               size_t why_size);

#endif
