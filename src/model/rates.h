/* rates.h - what this machine does at most, measured once in a process. cpu/device.c measures when a CPU is first opened;
 * model/cpu.c divides by these numbers. */
#ifndef LAC_MODEL_RATES_H
#define LAC_MODEL_RATES_H

#include "lacuna.h"

/* Vector units by the logarithm of their lanes: 1, 2, 4, 8, 16. */
enum { LAC_CPU_RATES_UNITS = 5 };

/* All a second. */
typedef struct lac_cpu_rates {
    double fma[LAC_CPU_RATES_UNITS];   /* vector FMAs of one core, operands in registers; 0: no such unit here */
    double loads[LAC_CPU_RATES_UNITS]; /* vector loads of one core from its first-level cache                 */
    double l2;                         /* bytes that one core reads again from a block of 256 KiB             */
    double l3;                         /* bytes that one core reads again from a block of 4 MiB               */
    double core;                       /* bytes that one core reads from memory                               */
    double memory;                     /* bytes that all cores of the process read from memory together       */
    double together;                   /* of its own rate, that a core keeps when all cores of the process work: at most 1 */
} lac_cpu_rates;

/* Measures, unless it is done, in about 20 ms; `cores` is how many the process may use. The environment variable
 * LAC_CPU_RATES ("fma,loads,l2,l3,core,memory", each in 10^9 a second, for every vector unit alike) replaces the
 * measurement, and `together` is 1. Any thread may call it. Fails with OUT_OF_MEMORY, or with INVALID_ARGUMENT when the variable makes no sense;
 * it can then be called again. */
lac_status lac_cpu_rates_prepare(int cores);
/* The number of the unit with so many lanes. */
int lac_cpu_rates_unit(int lanes);
/* What lac_cpu_rates_prepare found; it must have succeeded. */
const lac_cpu_rates *lac_cpu_rates_get(void);

#endif
