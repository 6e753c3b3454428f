/* cpu.h - the performance model of the CPU kernels: how long the parts of the work take. Called by their cost(). */
#ifndef LAC_MODEL_CPU_H
#define LAC_MODEL_CPU_H

#include "core/kernel.h"

typedef struct lac_cpu_work {
    int threads;
    int lanes;       /* of the vector unit; 0 for the plain kernels              */
    int tile;        /* tokens that share one load of a weight: 1, 4 or 16       */
    double products; /* multiplications, those with padding tokens included      */
    double loads;    /* vector kernels: loads of any kind for each vector FMA    */
    double decoded;  /* weights read from the compressed form, once a panel      */
    double packed;   /* elements of X packed                                     */
    double stored;   /* elements of Y written                                    */
    double bytes;    /* that memory moves: weight, X, Y, C                       */
} lac_cpu_work;

lac_cost lac_model_cpu_cost(const lac_device_info *device, const lac_cpu_work *work);

/* The same for kernels on a vector unit. */
lac_cost lac_model_cpu_vector_cost(const lac_device_info *device, const lac_cpu_work *work);

#endif
