/* machine.c - describes the machine for the device_info column. */
#include "machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "commit.h"

uint64_t bench_machine_cache_bytes(const lac_device_info *device)
{
    uint64_t bytes = device->l3_bytes > device->l2_bytes ? device->l3_bytes : device->l2_bytes;
#ifdef _SC_LEVEL3_CACHE_SIZE
    if (!bytes && device->kind == LAC_DEVICE_KIND_CPU) {
        long level3 = sysconf(_SC_LEVEL3_CACHE_SIZE), level2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
        if (level3 > 0 || level2 > 0) bytes = (uint64_t)(level3 > level2 ? level3 : level2);
    }
#endif
    return bytes ? bytes : (uint64_t)32 << 20;
}

double bench_ceiling_flops(const bench_ceiling *ceiling, lac_dtype dtype, lac_precision precision)
{
    double tensor = ceiling->tensor_f16;
    if (dtype == LAC_DTYPE_F32)
        tensor = precision == LAC_PRECISION_TF32   ? ceiling->tensor_tf32
                 : precision == LAC_PRECISION_FAST ? ceiling->tensor_f16 / 3
                                                   : 0;
    return tensor > ceiling->flops ? tensor : ceiling->flops;
}

/* The fastest clock that a core shows now, in MHz; 0 when the system does not tell. */
static double current_clock(void)
{
    FILE *from = fopen("/proc/cpuinfo", "r");
    double best = 0;
    char line[256];
    while (from && fgets(line, sizeof line, from)) {
        double value;
        if (sscanf(line, "cpu MHz : %lf", &value) == 1 && value > best) best = value;
    }
    if (from) fclose(from);
    return best;
}

static void huge_pages(char *buffer, size_t size)
{
    char line[128] = "";
    FILE *from = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    if (from && !fgets(line, sizeof line, from)) line[0] = 0;
    if (from) fclose(from);
    const char *open = strchr(line, '[');
    snprintf(buffer, size, "%.*s", open ? (int)strcspn(open + 1, "]") : 7, open ? open + 1 : "unknown");
}

/* Separators would break the column. */
static void copy_model(const lac_device_info *device, char model[128])
{
    snprintf(model, 128, "%s", device->model);
    for (char *c = model; *c; c++)
        if (*c == ';' || *c == ',') *c = ' ';
}

void bench_machine_describe_gpu(const lac_device_info *device, const bench_ceiling *ceiling, const char *more, char *buffer,
                                size_t size)
{
    char model[128];
    copy_model(device, model);
    snprintf(
        buffer, size,
        "model=%s; cores=%d; vector=%s; cache_bytes=%llu; fma_gflops=%.0f; tensor_f16_gflops=%.0f; tensor_tf32_gflops=%.0f; "
        "memory_gbytes=%.0f; cache_gbytes=%.0f; lacuna=%s; %s",
        model, (int)device->cores, device->vector_unit, (unsigned long long)bench_machine_cache_bytes(device),
        ceiling->flops / 1e9, ceiling->tensor_f16 / 1e9, ceiling->tensor_tf32 / 1e9, ceiling->memory_bytes / 1e9,
        ceiling->cache_bytes / 1e9, lac_version(), more);
}

void bench_machine_describe(const lac_device_info *device, const bench_ceiling *ceiling, const char *baseline, char *buffer,
                            size_t size)
{
    struct utsname system;
    char pages[16], clock[48] = "", model[128];
    double load = 0;
    if (uname(&system)) memset(&system, 0, sizeof system);
    huge_pages(pages, sizeof pages);
    double mhz = device->kind == LAC_DEVICE_KIND_CPU ? current_clock() : 0;
    const char *waiting = getenv("OMP_WAIT_POLICY"); /* passive threads wake up late: that must show */
    if (mhz > 0) snprintf(clock, sizeof clock, " clock_mhz=%.0f;", mhz);
    if (getloadavg(&load, 1) != 1) load = 0;
    copy_model(device, model);
    snprintf(buffer, size,
             "model=%s; cores=%d; vector=%s;%s cache_bytes=%llu; peak_gflops=%.1f; memory_gbytes=%.1f; cache_gbytes=%.1f; "
             "%shuge_pages=%s; omp_wait=%s; load=%.2f; lacuna=%s; system=%s %s %s%s%s",
             model, (int)device->cores, device->vector_unit, clock, (unsigned long long)bench_machine_cache_bytes(device),
             ceiling->flops / 1e9, ceiling->memory_bytes / 1e9, ceiling->cache_bytes / 1e9,
             ceiling->is_told ? "ceilings=told; " : "", pages, waiting && *waiting ? waiting : "unset", load, lac_version(),
             system.sysname, system.release, system.machine, *baseline ? "; " : "", baseline);
}

const char *bench_machine_commit(void)
{
    const char *told = getenv("LAC_COMMIT");
    return told && *told ? told : LAC_BUILD_COMMIT;
}
