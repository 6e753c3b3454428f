/* nvml.h - what the GPU tells of itself while it works: clock, power, temperature. Opened at run time; optional. */
#ifndef LACUNA_BENCH_NVML_H
#define LACUNA_BENCH_NVML_H

#include <stddef.h>

/* Opens NVML for the GPU on this PCI bus ("0000:18:00.0"). Nonzero: it is not there, and nothing is known. */
int bench_nvml_open(const char *bus);
/* "580.82.07"; "" when not known. */
const char *bench_nvml_driver(void);
/* The limit that holds now, in watts; 0: not known. */
double bench_nvml_power_limit(void);
/* Forgets what was seen; looks once; tells the means: " sm_clock_mhz=1980; power_w=512; temperature_c=48;" or "". */
void bench_nvml_forget(void);
void bench_nvml_look(void);
void bench_nvml_tell(char *buffer, size_t size);

#endif
