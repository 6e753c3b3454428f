/* machine.h - what a benchmark must know of the machine: its caches, its ceilings, its name. */
#ifndef LACUNA_BENCH_MACHINE_H
#define LACUNA_BENCH_MACHINE_H

#include <lacuna.h>

/* The most that this machine did when nothing else was asked of it, with the threads of the benchmark. */
typedef struct bench_ceiling {
    double flops;                   /* fp32 multiply-adds from registers, 2 a multiply-add, a second */
    double memory_bytes;            /* read from memory a second                                     */
    double cache_bytes;             /* read from each core's own cache a second                      */
    double tensor_f16, tensor_tf32; /* operations of tensor cores a second; 0: there are none */
    int is_told;                    /* by the environment, not measured */
} bench_ceiling;

/* Measures for a few tenths of a second, unless LAC_CPU_CEILINGS in the environment tells them ("gflops,memory,cache", in 10^9 a
 * second), as they were on a machine that was not busy. Nonzero, and why, when there was no memory or no thread, or no sense in what
 * was told. */
int bench_ceiling_measure(const lac_device_info *device, int threads, bench_ceiling *out, char *why, size_t why_size);

/* Operations a second that bound a product of this dtype and precision: of the tensor cores where there are any, for `fast`
 * a third of those on 16 bits, since it takes three products for one; never less than those of the vector unit. */
double bench_ceiling_flops(const bench_ceiling *ceiling, lac_dtype dtype, lac_precision precision);

/* The last-level cache as the device tells it, or as the system does, or 32 MiB. */
uint64_t bench_machine_cache_bytes(const lac_device_info *device);

/* "model=...; cores=2; ...", keys and values as docs/benchmark.md lists them. `baseline` is more of the same, or "". */
void bench_machine_describe(const lac_device_info *device, const bench_ceiling *ceiling, const char *baseline, char *buffer,
                            size_t size);

/* The same for a GPU, without its clock, which is noted with each problem, and without peak_gflops, which depends on the dtype
 * and the precision. `more`: driver and libraries. */
void bench_machine_describe_gpu(const lac_device_info *device, const bench_ceiling *ceiling, const char *more, char *buffer,
                                size_t size);

/* The commit that was built: from LAC_COMMIT in the environment, else as of the build. */
const char *bench_machine_commit(void);

#endif
