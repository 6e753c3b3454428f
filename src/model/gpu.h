/* gpu.h - the performance model of the GPU kernels: bytes and time at device memory, L2, shared memory and issue slots,
 * occupancy and waves. Called by their cost(); docs/model.md explains it. */
#ifndef LAC_MODEL_GPU_H
#define LAC_MODEL_GPU_H

#include "core/kernel.h"

/* What a GPU does at most, all multiprocessors together, a second. */
typedef struct lac_gpu_rates {
    double memory;     /* bytes from and to device memory                         */
    double l2;         /* bytes from L2 to shared memory                          */
    double shared;     /* bytes from shared memory to registers: 128 a clock      */
    double issue;      /* warp instructions: 4 a clock (FFMA counts as one)       */
    double mma_f16;    /* floating-point operations by tensor cores on 16 bits    */
    double launch;     /* seconds that a launch takes at least                    */
    uint64_t l2_bytes; /* the size of L2                                          */
    int multiprocessors;
} lac_gpu_rates;

/* What a call asks of each level, over the whole grid. */
typedef struct lac_gpu_work {
    double memory_bytes;   /* operands once, and again what L2 cannot keep                    */
    double l2_bytes;       /* what blocks pull out of L2                                      */
    double shared_bytes;   /* what warps read from and write to shared memory                 */
    double instructions;   /* warp instructions, the arithmetic among them                    */
    double mma_flops;      /* by tensor cores                                                 */
    double blocks;         /* of the grid ...                                                 */
    double blocks_at_once; /* ... and how many run at once on the whole GPU                 */
    double fill_seconds;   /* pipelines that fill and drain, over all waves                   */
    double chain_seconds;  /* what stages that wait for each other take at least, over all waves */
    double exposed;        /* of the shorter of device memory's time and the chip's, what the longer one does not hide       */
    double efficiency;     /* of the rate of the chip's longest level, what it reaches; 0: as most do */
    int launches;
    int early; /* of them, those that begin while the kernel before them ends */
} lac_gpu_work;

/* The clock falls under long work: of its fall, what a call shows whose products take so many seconds; 0 to 1. */
double lac_model_gpu_heat(double seconds);

/* Seconds for `bytes` of sums that parts of k leave behind, and that so many blocks of a kernel after them add up. */
double lac_model_gpu_parts(const lac_gpu_rates *rates, double bytes, double blocks);

/* Adds a kernel before or after it, begun early, that reads and writes so many bytes in all and does nothing else. */
void lac_model_gpu_pass(const lac_gpu_rates *rates, double bytes, lac_cost *cost);

lac_cost lac_model_gpu_cost(const lac_gpu_rates *rates, const lac_gpu_work *work);

#endif
