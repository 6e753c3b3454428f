/* nvml.c - clock, power and temperature from NVML. A clock that sank under load explains a time; it must stand beside it.
 * backend_cuda.c calls it. */
#include "nvml.h"

#include <stdio.h>

#include "library.h"

/* The numbers of nvml.h. */
enum { CLOCK_SM = 1, TEMPERATURE_GPU = 0, FIELD_POWER_NOW = 186 };

/* nvmlFieldValue_t. */
typedef struct field_value {
    unsigned field, scope;
    long long timestamp, latency;
    int type, status;
    union {
        unsigned number;
        unsigned long long wide;
    } value;
} field_value;

static struct {
    void *device;
    char driver[80];
    int (*init)(void);
    int (*find)(const char *bus, void **device);
    int (*version)(char *text, unsigned size);
    int (*clock)(void *device, int which, unsigned *mhz);
    int (*power)(void *device, unsigned *milliwatts);
    int (*fields)(void *device, int count, field_value *values); /* NULL: an old driver's */
    int (*power_limit)(void *device, unsigned *milliwatts);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
    double clock_sum, power_sum, temperature_sum;
    int looks;
} nvml;

#define FUNCTION(field, symbol)                                                                                                \
    {                                                                                                                          \
        .pointer = &nvml.field, .name = "nvml" symbol                                                                          \
    }
#define OPTIONAL(field, symbol)                                                                                                \
    {                                                                                                                          \
        .pointer = &nvml.field, .name = "nvml" symbol, .is_optional = 1                                                        \
    }
static const bench_function functions[] = {FUNCTION(init, "Init_v2"),
                                           FUNCTION(find, "DeviceGetHandleByPciBusId_v2"),
                                           FUNCTION(version, "SystemGetDriverVersion"),
                                           FUNCTION(clock, "DeviceGetClockInfo"),
                                           FUNCTION(power, "DeviceGetPowerUsage"),
                                           FUNCTION(power_limit, "DeviceGetEnforcedPowerLimit"),
                                           FUNCTION(temperature, "DeviceGetTemperature"),
                                           OPTIONAL(fields, "DeviceGetFieldValues"),
                                           {.name = NULL}};

int bench_nvml_open(const char *bus)
{
    static const char *const names[] = {"libnvidia-ml.so.1", "libnvidia-ml.so", NULL};
    char why[128];
    if (!bench_library_load(names, functions, why, sizeof why) || nvml.init()) return -1;
    if (nvml.version(nvml.driver, sizeof nvml.driver)) nvml.driver[0] = 0;
    if (nvml.find(bus, &nvml.device)) nvml.device = NULL;
    return nvml.device ? 0 : -1;
}

const char *bench_nvml_driver(void) { return nvml.driver; }

double bench_nvml_power_limit(void)
{
    unsigned milliwatts = 0;
    return nvml.device && !nvml.power_limit(nvml.device, &milliwatts) ? 1e-3 * milliwatts : 0;
}

void bench_nvml_forget(void)
{
    nvml.clock_sum = nvml.power_sum = nvml.temperature_sum = 0;
    nvml.looks = 0;
}

/* This moment's where the driver tells it: the usual number is a mean over the last second, longer than most timings. */
static int power_now(unsigned *milliwatts)
{
    field_value now = {.field = FIELD_POWER_NOW};
    if (nvml.fields && !nvml.fields(nvml.device, 1, &now) && !now.status && now.value.number > 0) {
        *milliwatts = now.value.number;
        return 0;
    }
    return nvml.power(nvml.device, milliwatts);
}

void bench_nvml_look(void)
{
    unsigned mhz, milliwatts, celsius;
    if (!nvml.device || nvml.clock(nvml.device, CLOCK_SM, &mhz) || power_now(&milliwatts) ||
        nvml.temperature(nvml.device, TEMPERATURE_GPU, &celsius))
        return;
    nvml.clock_sum += mhz;
    nvml.power_sum += 1e-3 * milliwatts;
    nvml.temperature_sum += celsius;
    nvml.looks++;
}

void bench_nvml_tell(char *buffer, size_t size)
{
    double looks = nvml.looks;
    if (!nvml.looks)
        snprintf(buffer, size, "%s", "");
    else
        snprintf(buffer, size, " sm_clock_mhz=%.0f; power_w=%.0f; temperature_c=%.0f;", nvml.clock_sum / looks,
                 nvml.power_sum / looks, nvml.temperature_sum / looks);
}
