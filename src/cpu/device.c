/* device.c - what the CPU is: its name, the cores this process may use, its vector unit, caches and memory. Called by
 * core/device.c through the registry. Everything that the system will not tell stays 0. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/status.h"
#include "cpu/backend.h"
#include "model/rates.h"

/* The text behind the first of the usual names in /proc/cpuinfo; the architecture's name where there is none. */
static void read_model(char *model, size_t size)
{
#if defined(__x86_64__)
    snprintf(model, size, "x86-64");
#elif defined(__aarch64__)
    snprintf(model, size, "arm64");
#else
    snprintf(model, size, "unknown");
#endif
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file) return;
    char line[512];
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "model name", 10) != 0 && strncmp(line, "Hardware", 8) != 0) continue;
        char *text = strchr(line, ':');
        if (!text) continue;
        text += 1 + strspn(text + 1, " \t");
        text[strcspn(text, "\n")] = '\0';
        if (*text) snprintf(model, size, "%.*s", (int)size - 1, text);
        break;
    }
    fclose(file);
}

/* Cores in this process's affinity mask, which taskset and containers narrow; machines beyond the mask's size fall back
 * to the number that are online. */
static int32_t count_cores(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int32_t)online : 1;
}

static const char *vector_unit(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
    return "scalar";
#elif defined(__aarch64__)
    return "neon";
#else
    return "scalar";
#endif
}

static uint64_t system_bytes(int name)
{
    long bytes = sysconf(name);
    return bytes > 0 ? (uint64_t)bytes : 0;
}

static lac_status probe(size_t index, lac_device_info *info)
{
    if (index > 0) return lac_fail(LAC_STATUS_NOT_FOUND, "index is %zu; there is one CPU device", index);
    *info = (lac_device_info){.size = sizeof *info, .kind = LAC_DEVICE_KIND_CPU, .available = 1};
    snprintf(info->name, sizeof info->name, "cpu");
    read_model(info->model, sizeof info->model);
    info->cores = count_cores();
    snprintf(info->vector_unit, sizeof info->vector_unit, "%s", vector_unit());
#ifdef _OPENMP
    snprintf(info->note, sizeof info->note, "threads by OpenMP");
#else
    snprintf(info->note, sizeof info->note, "built without OpenMP: one thread");
#endif
    info->memory_bytes = system_bytes(_SC_PHYS_PAGES) * system_bytes(_SC_PAGESIZE);
#ifdef _SC_LEVEL1_DCACHE_SIZE
    info->l1_bytes = system_bytes(_SC_LEVEL1_DCACHE_SIZE);
    info->l2_bytes = system_bytes(_SC_LEVEL2_CACHE_SIZE);
    info->l3_bytes = system_bytes(_SC_LEVEL3_CACHE_SIZE);
#endif
    return LAC_STATUS_OK;
}

static lac_status open_device(const lac_device_info *info, void **state)
{
    *state = NULL; /* a CPU needs none */
    return lac_cpu_rates_prepare(info->cores);
}

static void close_device(void *state) { (void)state; }

const lac_device_ops lac_cpu_device_ops = {
    .kind = LAC_DEVICE_KIND_CPU, .prefix = "cpu", .probe = probe, .open = open_device, .close = close_device};
