/* cpu.h - the performance model of the CPU kernels: how long a call takes, level by level. Called by their cost();
 * docs/model.md explains it. */
#ifndef LAC_MODEL_CPU_H
#define LAC_MODEL_CPU_H

#include "core/kernel.h"

/* What a call asks of each level, over all threads. */
typedef struct lac_cpu_work {
    int threads;
    int lanes;       /* of the vector unit                                                     */
    double bytes;    /* from and to memory: weight, X, Y, C                                    */
    double l3_bytes; /* read again, from beyond the second-level cache                         */
    double l2_bytes; /* read again, from beyond the first-level cache                          */
    double loads;    /* vector loads and broadcasts                                            */
    double fmas;     /* vector FMAs, and those that could have run while one waits for another */
    double packing;  /* loads' worth of moving X in and Y out                                  */
    double reach;    /* of the rates of the core, that the dataflow reaches                     */
    bool runs_ahead; /* asks memory for operands so early that it hardly waits: nearly all of the shorter side is hidden */
} lac_cpu_work;

/* Independent FMAs that it takes to keep the pipes busy: two pipes, four cycles, less what running ahead hides. */
enum { LAC_CPU_FMAS_UNDER_WAY = 5 };

lac_cost lac_model_cpu_cost(const lac_device_info *device, const lac_cpu_work *work);

#endif
