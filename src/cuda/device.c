/* device.c - the GPUs of this machine as devices: what they are, opening and closing them, and targets to compile for that
 * have no GPU behind them. core/device.c calls it through the registry. A device is the primary context that a CUDA runtime
 * in the same process uses too; nothing in it is changed that others could see. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "cuda/backend.h"
#include "cuda/cache.h"
#include "cuda/cublas.h"
#include "cuda/cublaslt.h"
#include "cuda/nvrtc.h"
#include "cuda/state.h"

/* ---- what an architecture is */

/* Per multiprocessor and clock: fp32 FMAs of a warp, and floating-point operations of the tensor cores on 16 bits. */
typedef struct arch_facts {
    int arch;
    const char *name;
    double warp_fmas;
    double tensor_operations;
    unsigned shared_per_block;
    int multiprocessors; /* of a usual GPU of its kind, for targets without one */
} arch_facts;

static const arch_facts known_archs[] = {
    {75, "sm_75", 2, 1024, 65536, 40},      {80, "sm_80", 2, 2048, 166912, 108},    {86, "sm_86", 4, 1024, 101376, 84},
    {87, "sm_87", 4, 1024, 166912, 16},     {89, "sm_89", 4, 1024, 101376, 142},    {90, "sm_90a", 4, 4096, 232448, 132},
    {100, "sm_100a", 4, 8192, 232448, 148}, {103, "sm_103a", 4, 8192, 232448, 148}, {110, "sm_110a", 4, 8192, 232448, 20},
    {120, "sm_120", 4, 1024, 101376, 170},  {121, "sm_121", 4, 1024, 101376, 48}};

static const arch_facts *find_arch(int arch)
{
    for (size_t i = 0; i < sizeof known_archs / sizeof *known_archs; ++i)
        if (known_archs[i].arch == arch) return &known_archs[i];
    return NULL;
}

/* ---- looking */

static int attribute_of(const lac_cuda_driver *driver, lac_cu_device device, int attribute)
{
    int value = 0;
    return driver->cuDeviceGetAttribute(&value, attribute, device) ? 0 : value;
}

static int arch_of(const lac_cuda_driver *driver, lac_cu_device device)
{
    return 10 * attribute_of(driver, device, LAC_CU_DEVICE_MAJOR) + attribute_of(driver, device, LAC_CU_DEVICE_MINOR);
}

/* Whether it can be used, and in words what was found or is missing. */
static void judge(const lac_cuda_driver *driver, lac_cu_device device, lac_device_info *info)
{
    const char *driver_note, *compiler_note;
    lac_cuda_driver_get(&driver_note);
    const lac_nvrtc *nvrtc = lac_nvrtc_get(&compiler_note);
    int arch = arch_of(driver, device);
    if (!find_arch(arch))
        snprintf(info->note, sizeof info->note, "architecture sm_%d is none that Lacuna compiles for", arch);
    else if (attribute_of(driver, device, LAC_CU_DEVICE_COMPUTE_MODE) == 2)
        snprintf(info->note, sizeof info->note, "its compute mode is 'prohibited'");
    else {
        info->available = 1; /* without NVRTC too, when the cache holds what a plan needs */
        if (nvrtc)
            snprintf(info->note, sizeof info->note, "%.120s; %.120s", driver_note, compiler_note);
        else
            snprintf(info->note, sizeof info->note, "only kernels from the cache: %.200s", compiler_note);
    }
}

static lac_status probe(size_t index, lac_device_info *info)
{
    const char *note;
    const lac_cuda_driver *driver = lac_cuda_driver_get(&note);
    *info = (lac_device_info){.size = sizeof *info, .kind = LAC_DEVICE_KIND_CUDA};
    snprintf(info->name, sizeof info->name, "cuda:%zu", index);
    if (!driver) {
        /* Shown as a device that is not usable where there is one, or a driver without one; not on every other machine. */
        if (index > 0 || !lac_cuda_driver_traced())
            return lac_fail(LAC_STATUS_NOT_FOUND, "index is %zu; there is no GPU: %s", index, note);
        snprintf(info->note, sizeof info->note, "%.255s", note);
        return LAC_STATUS_OK;
    }
    int count = 0;
    lac_cu_device device = 0;
    if (driver->cuDeviceGetCount(&count) || index >= (size_t)count)
        return lac_fail(LAC_STATUS_NOT_FOUND, "index is %zu; there are %d GPUs", index, count);
    lac_status status = lac_cuda_check(driver->cuDeviceGet(&device, (int)index), info->name);
    if (status) return status;
    size_t bytes = 0;
    driver->cuDeviceGetName(info->model, (int)sizeof info->model - 1, device);
    driver->cuDeviceTotalMem(&bytes, device);
    info->memory_bytes = bytes;
    info->cores = attribute_of(driver, device, LAC_CU_DEVICE_MULTIPROCESSORS);
    info->l1_bytes = (uint64_t)attribute_of(driver, device, LAC_CU_DEVICE_SHARED_PER_MULTIPROCESSOR);
    info->l2_bytes = (uint64_t)attribute_of(driver, device, LAC_CU_DEVICE_L2_BYTES);
    snprintf(info->vector_unit, sizeof info->vector_unit, "sm_%d", arch_of(driver, device));
    judge(driver, device, info);
    return LAC_STATUS_OK;
}

static lac_status component(size_t index, lac_component_info *info)
{
    void (*const describe[])(lac_component_info *) = {lac_cuda_driver_describe, lac_nvrtc_describe, lac_cache_describe,
                                                      lac_cublas_describe, lac_cublaslt_describe};
    if (index >= sizeof describe / sizeof *describe)
        return lac_fail(LAC_STATUS_NOT_FOUND, "index is %zu; there are %zu components of CUDA", index,
                        sizeof describe / sizeof *describe);
    describe[index](info);
    return LAC_STATUS_OK;
}

/* ---- rates */

/* Of the highest clock that the device names, what it holds under load; of the memory's peak, what a copy reaches; bytes a
 * multiprocessor pulls from L2 in a clock. Measured on an H200 and taken for all: 59.9 TFLOP/s of FFMA are 1.77 of 1.98 GHz,
 * 4.24 of 4.92 TB/s, 8.3 TB/s from L2. */
static const double CLOCK_HELD = 0.895, MEMORY_REACHED = 0.862, L2_BYTES_A_CLOCK = 35.5;

static void fill_rates(lac_cuda_state *state, const arch_facts *facts, double clock, double memory, uint64_t l2_bytes)
{
    double f = CLOCK_HELD * clock * state->target.multiprocessors; /* clocks of all multiprocessors, a second */
    state->rates = (lac_gpu_rates){.memory = MEMORY_REACHED * memory,
                                   .l2 = L2_BYTES_A_CLOCK * f,
                                   .shared = 128.0 * f,
                                   .issue = facts->warp_fmas * f,
                                   .mma_f16 = facts->tensor_operations * f,
                                   .launch = 2.5e-6,
                                   .l2_bytes = l2_bytes,
                                   .multiprocessors = state->target.multiprocessors};
}

static void fill_target(lac_cuda_state *state, const arch_facts *facts, int multiprocessors, unsigned shared_per_block)
{
    state->target = (lac_cuda_target){.arch = facts->arch,
                                      .has_wgmma = facts->arch == 90,
                                      .multiprocessors = multiprocessors,
                                      .shared_per_block = shared_per_block};
    snprintf(state->arch, sizeof state->arch, "%s", facts->name);
}

/* ---- opening and closing */

static void close_device(void *opaque)
{
    lac_cuda_state *state = opaque;
    const lac_cuda_driver *driver = state->driver;
    if (driver && state->context) {
        bool current = driver->cuCtxPushCurrent(state->context) == LAC_CU_OK;
        lac_cublaslt_release(state->cublaslt);
        pthread_mutex_destroy(&state->cublaslt_lock);
        if (state->copies) driver->cuStreamDestroy(state->copies);
        lac_cuda_programs_release(driver, state->programs);
        lac_cu_context popped;
        if (current) driver->cuCtxPopCurrent(&popped);
        driver->cuDevicePrimaryCtxRelease(state->device);
    }
    lac_release(state);
}

static lac_status open_device(const lac_device_info *info, void **out)
{
    const char *note;
    const lac_cuda_driver *driver = lac_cuda_driver_get(&note);
    if (!driver) return lac_fail(LAC_STATUS_DEVICE, "name is '%s'; it cannot be used: %s", info->name, note);
    lac_cuda_state *state = lac_allocate_zeroed(sizeof *state);
    if (!state) return lac_fail_memory("device", sizeof *state);
    state->driver = driver;
    pthread_mutex_init(&state->cublaslt_lock, NULL);
    state->ordinal = atoi(info->name + strlen("cuda:"));
    lac_status status = lac_cuda_check(driver->cuDeviceGet(&state->device, state->ordinal), info->name);
    if (!status) status = lac_cuda_check(driver->cuDevicePrimaryCtxRetain(&state->context, state->device), info->name);
    bool current = false;
    if (!status) {
        status = lac_cuda_check(driver->cuCtxPushCurrent(state->context), info->name);
        current = !status;
    }
    if (!status) status = lac_cuda_check(driver->cuStreamCreate(&state->copies, LAC_CU_STREAM_NON_BLOCKING), info->name);
    if (!status) status = lac_cuda_programs_hold(state->ordinal, &state->programs);
    lac_cu_context popped;
    if (current) driver->cuCtxPopCurrent(&popped);
    const arch_facts *facts = status ? NULL : find_arch(arch_of(driver, state->device));
    if (!status && (!facts || info->cores < 1)) /* probe has looked, but a GPU may get lost at any time */
        status = lac_fail(LAC_STATUS_DEVICE, "name is '%s'; the driver does not tell its %s", info->name,
                          facts ? "multiprocessors" : "architecture");
    if (status) {
        close_device(state);
        return status;
    }
    fill_target(state, facts, info->cores, (unsigned)attribute_of(driver, state->device, LAC_CU_DEVICE_SHARED_PER_BLOCK));
    double clock = 1e3 * attribute_of(driver, state->device, LAC_CU_DEVICE_CLOCK);
    double memory = 2e3 * attribute_of(driver, state->device, LAC_CU_DEVICE_MEMORY_CLOCK) *
                    attribute_of(driver, state->device, LAC_CU_DEVICE_MEMORY_WIDTH) / 8.0;
    fill_rates(state, facts, clock > 0 ? clock : 1.5e9, memory > 0 ? memory : 5e11, info->l2_bytes);
    *out = state;
    return LAC_STATUS_OK;
}

/* ---- targets without a GPU */

/* GPUs that can be predicted for without one, by their data sheets; the H200 as it reports itself. Architectures alone get an
 * H200's clocks and memory: their model has to have some. */
typedef struct gpu_facts {
    const char *name, *model, *arch;
    int multiprocessors;
    double clock, memory; /* a second */
    uint64_t l2_bytes;
} gpu_facts;

static const gpu_facts known_gpus[] = {{"h200", "NVIDIA H200", "sm_90a", 132, 1.98e9, 4.92e12, 60u << 20},
                                       {"h100", "NVIDIA H100 SXM", "sm_90a", 132, 1.98e9, 3.35e12, 50u << 20},
                                       {"a100", "NVIDIA A100 80GB", "sm_80", 108, 1.41e9, 2.04e12, 40u << 20},
                                       {"rtx4090", "NVIDIA GeForce RTX 4090", "sm_89", 128, 2.52e9, 1.008e12, 72u << 20},
                                       {"rtx3090", "NVIDIA GeForce RTX 3090", "sm_86", 82, 1.7e9, 9.36e11, 6u << 20}};

static const arch_facts *find_arch_named(const char *name)
{
    for (size_t i = 0; i < sizeof known_archs / sizeof *known_archs; ++i)
        if (!strcmp(known_archs[i].name, name)) return &known_archs[i];
    return NULL;
}

static lac_status make_target(const gpu_facts *gpu, const arch_facts *arch, lac_device **out)
{
    lac_device *device = lac_allocate_zeroed(sizeof *device);
    lac_cuda_state *state = device ? lac_allocate_zeroed(sizeof *state) : NULL;
    if (!state) {
        lac_release(device);
        return lac_fail_memory("target", sizeof *device + sizeof *state);
    }
    fill_target(state, arch, gpu->multiprocessors, arch->shared_per_block);
    fill_rates(state, arch, gpu->clock, gpu->memory, gpu->l2_bytes);
    atomic_init(&device->holders, 1);
    device->ops = &lac_cuda_device_ops;
    device->state = state;
    device->info = (lac_device_info){.size = sizeof device->info,
                                     .kind = LAC_DEVICE_KIND_CUDA,
                                     .available = 1,
                                     .cores = gpu->multiprocessors,
                                     .l2_bytes = gpu->l2_bytes};
    snprintf(device->info.name, sizeof device->info.name, "%s", gpu->name);
    snprintf(device->info.model, sizeof device->info.model, "%s", gpu->model);
    snprintf(device->info.vector_unit, sizeof device->info.vector_unit, "sm_%d", arch->arch);
    *out = device;
    return LAC_STATUS_OK;
}

lac_status lac_cuda_target_open(const char *name, lac_device **out)
{
    const arch_facts *arch = find_arch_named(name);
    if (!arch)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "arch is '%.40s'; it is one of sm_75, sm_80, sm_86, sm_87, sm_89, sm_90a, sm_100a, sm_103a, sm_110a, "
                        "sm_120, sm_121",
                        name);
    gpu_facts gpu = known_gpus[0];
    gpu.name = arch->name;
    gpu.model = "a target to compile for";
    gpu.multiprocessors = arch->multiprocessors;
    return make_target(&gpu, arch, out);
}

static lac_status open_absent(const char *name, lac_device **out)
{
    for (size_t i = 0; i < sizeof known_gpus / sizeof *known_gpus; ++i)
        if (!strcmp(known_gpus[i].name, name)) return make_target(&known_gpus[i], find_arch_named(known_gpus[i].arch), out);
    if (find_arch_named(name)) return lac_cuda_target_open(name, out);
    return lac_fail(LAC_STATUS_NOT_FOUND, "name is '%.40s'; it is no GPU that Lacuna knows", name);
}

const lac_cuda_target *lac_cuda_target_of(const lac_device *device) { return &lac_cuda_state_of(device)->target; }
const lac_gpu_rates *lac_cuda_rates_of(const lac_device *device) { return &lac_cuda_state_of(device)->rates; }

const lac_device_ops lac_cuda_device_ops = {.kind = LAC_DEVICE_KIND_CUDA,
                                            .prefix = "cuda",
                                            .probe = probe,
                                            .open = open_device,
                                            .close = close_device,
                                            .open_absent = open_absent,
                                            .allocate = lac_cuda_block_allocate,
                                            .release = lac_cuda_block_release,
                                            .upload = lac_cuda_block_upload,
                                            .download = lac_cuda_block_download,
                                            .synchronize = lac_cuda_synchronize,
                                            .race = lac_cuda_race,
                                            .recall = lac_cuda_recall,
                                            .remember = lac_cuda_remember,
                                            .component = component,
                                            .linear = &lac_cublas_linear_ops};
