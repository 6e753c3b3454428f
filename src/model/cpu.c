/* cpu.c - the performance model of the CPU kernels: time = max(compute, memory) + start. Few constants, fitted on
 * one core of a 2.8 GHz Ice Lake server and its memory; on another machine the absolute times shift, the ranking of dense
 * against gather, which is what the planner asks, hardly does. Called by cpu/kernels.c. */
#include "model/cpu.h"

/* Seconds on one core. */
static const double PRODUCT_TILE_1 = 0.45e-9, PRODUCT_TILE_4 = 0.33e-9, PRODUCT_TILE_16 = 0.16e-9;
static const double GATHER = 0.5e-9; /* looking up a column: for each tile of tokens, not for each product */
static const double DECODE = 2.0e-9; /* a weight: unpacking its index, converting and moving its value    */
static const double PACK = 0.6e-9;   /* an element of X                                                   */
static const double STORE = 4.0e-9;  /* an element of Y through the epilogue                              */
static const double START = 0.5e-6;  /* a call                                                            */
static const double FORK = 5.0e-6;   /* waking the other threads                                          */

/* The vector kernels on one lane. */
static const double SCALAR_PRODUCT = 0.8e-9;
/* Vector FMAs a second of one core: two pipes, most of the time. */
static const double VECTOR_FMA_RATE = 4.5e9;
static const double VECTOR_STORE = 0.7e-9; /* an element of Y through the unit's finishing loop */

/* Bytes a second: one core cannot draw all that the memory gives, a few together can. */
static const double CORE_BANDWIDTH = 9e9, MEMORY_BANDWIDTH = 300e9;
/* From the last-level cache, when all of it fits there. */
static const double CACHE_SPEEDUP = 3.0;

/* The larger of the two times, and what it takes to begin. */
static lac_cost bounded(const lac_device_info *device, const lac_cpu_work *work, double core_seconds)
{
    int cores = work->threads < device->cores || device->cores < 1 ? work->threads : device->cores;
    double compute = core_seconds / cores;
    double bandwidth = cores * CORE_BANDWIDTH;
    if (bandwidth > MEMORY_BANDWIDTH) bandwidth = MEMORY_BANDWIDTH;
    if (device->l3_bytes && work->bytes < (double)device->l3_bytes) bandwidth *= CACHE_SPEEDUP;
    double memory = work->bytes / bandwidth;
    double start = START + (work->threads > 1 ? FORK : 0.0);
    return (lac_cost){(compute > memory ? compute : memory) + start, compute > memory ? "compute" : "memory"};
}

lac_cost lac_model_cpu_cost(const lac_device_info *device, const lac_cpu_work *work)
{
    double product = work->tile == 1 ? PRODUCT_TILE_1 : work->tile == 4 ? PRODUCT_TILE_4 : PRODUCT_TILE_16;
    double compute = work->products * product + work->products / work->tile * GATHER + work->decoded * DECODE +
                     work->packed * PACK + work->stored * STORE;
    return bounded(device, work, compute);
}

lac_cost lac_model_cpu_vector_cost(const lac_device_info *device, const lac_cpu_work *work)
{
    /* Two FMAs or two loads a cycle, whichever there is more of. */
    double busy = work->loads > 1.0 ? work->loads : 1.0;
    double product = work->lanes > 1 ? busy / (VECTOR_FMA_RATE * work->lanes) : SCALAR_PRODUCT;
    return bounded(device, work, work->products * product + work->packed * PACK + work->stored * VECTOR_STORE);
}
