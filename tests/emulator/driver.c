/* driver.c - a libcuda without a GPU: one device, whose kernels the emulator runs. Lacuna opens it where LAC_CUDA_LIBRARY names it, the
 * tests of tests/gpu where the loader finds it as libcuda.so.1. This file has the device, its context, modules and functions; see
 * driver.h for the others.
 *
 *     EMULATOR_ARCH=sm_80    what the GPU is: sm_75, sm_80, sm_86, sm_89, sm_90, sm_100 or sm_120; sm_90 unless said
 *     EMULATOR_L2=1048576    bytes of L2 that it claims; what such a GPU has unless said. Plans that time kernels read twice as much
 *                            before each call, which takes an emulator long
 *     EMULATOR_MULTIPROCESSORS=4  with few of them a small problem gives each block several tiles, one behind the other
 *
 * It is as strict as the driver is where Lacuna could be wrong, and says on stderr why it refuses something. */
#include "driver.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what can be emulated */

enum { MOST_THREADS = 1024, PLAIN_SHARED = 48 << 10, MOST_CONTEXTS = 16 };

/* A usual GPU of each kind: T4, A100, RTX 3090, RTX 4090, H200, B200, RTX 5090. */
static const emu_gpu known[] = {{75, "sm_75", 40, 1590000, 5001000, 256, 4 << 20, 65536, 65536, 0, 1024, 16},
                                {80, "sm_80", 108, 1410000, 1593000, 5120, 40 << 20, 167936, 166912, 1024, 2048, 32},
                                {86, "sm_86", 82, 1695000, 9751000, 384, 6 << 20, 102400, 101376, 1024, 1536, 16},
                                {89, "sm_89", 128, 2520000, 10501000, 384, 72 << 20, 102400, 101376, 1024, 1536, 24},
                                {90, "sm_90", 132, 1980000, 3201000, 6144, 60 << 20, 233472, 232448, 1024, 2048, 32},
                                {100, "sm_100", 148, 1965000, 3996000, 8192, 126 << 20, 233472, 232448, 1024, 2048, 32},
                                {120, "sm_120", 170, 2407000, 14001000, 512, 96 << 20, 102400, 101376, 1024, 1536, 24}};

static emu_gpu device;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose_device(void)
{
    const char *arch = getenv("EMULATOR_ARCH"), *l2 = getenv("EMULATOR_L2"), *few = getenv("EMULATOR_MULTIPROCESSORS");
    if (!arch || !*arch) arch = "sm_90";
    for (size_t i = 0; i < sizeof known / sizeof *known; ++i)
        if (!strcmp(known[i].arch, arch)) device = known[i];
    if (!device.capability) fprintf(stderr, "emulator: EMULATOR_ARCH is '%s', which it knows nothing of\n", arch);
    if (l2 && atoi(l2) > 0) device.l2_bytes = atoi(l2);
    if (few && atoi(few) > 0) device.multiprocessors = atoi(few);
}

const emu_gpu *emu_driver_device(void)
{
    pthread_once(&once, choose_device);
    return device.capability ? &device : NULL;
}

/* ---- errors */

static const struct {
    int code;
    const char *name, *text;
} errors[] = {{OK, "CUDA_SUCCESS", "no error"},
              {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
              {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
              {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "EMULATOR_ARCH names no GPU that the emulator knows"},
              {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
              {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "the image is not PTX, and the emulator runs nothing else"},
              {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "no context is current, or it is not one"},
              {NO_BINARY, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the PTX is for another architecture"},
              {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "the emulator does not understand the PTX; stderr says why"},
              {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid handle"},
              {ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "not in this state"},
              {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
              {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an address that is nobody's; stderr says which"},
              {CONTEXT_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
              {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed in the emulator; stderr says how"},
              {COOPERATIVE_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks for a cooperative launch"},
              {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
              {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted while a stream is captured"},
              {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the capture failed because of an earlier error"},
              {CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "it depends on a stream that is being captured"},
              {CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT", "the event was recorded in a capture"},
              {CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "another thread began the capture"},
              {INVALID_CLUSTER_SIZE, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "invalid cluster size"}};

EXPORT int cuGetErrorName(int error, const char **name)
{
    *name = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; ++i)
        if (errors[i].code == error) *name = errors[i].name;
    return *name ? OK : INVALID_VALUE;
}

EXPORT int cuGetErrorString(int error, const char **text)
{
    *text = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; ++i)
        if (errors[i].code == error) *text = errors[i].text;
    return *text ? OK : INVALID_VALUE;
}

static atomic_int lost; /* what all calls return */

int emu_driver_lose(int result, const char *why)
{
    fprintf(stderr, "emulator: %s\n", why);
    atomic_store(&lost, result);
    return result;
}

int emu_driver_refuse(int result, const char *format, ...)
{
    char why[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    fprintf(stderr, "emulator: %s\n", why);
    return result;
}

/* ---- objects */

pthread_mutex_t emu_driver_objects = PTHREAD_MUTEX_INITIALIZER;
emu_object *emu_driver_alive[EMU_OBJECT_KINDS];

void emu_driver_add(emu_object_kind kind, emu_object *object)
{
    object->next = emu_driver_alive[kind];
    emu_driver_alive[kind] = object;
}

void *emu_driver_find(emu_object_kind kind, const void *handle)
{
    emu_object *object = emu_driver_alive[kind];
    while (object && object != handle) object = object->next;
    return object;
}

void *emu_driver_take(emu_object_kind kind, const void *handle)
{
    emu_object **link = &emu_driver_alive[kind];
    while (*link && *link != handle) link = &(*link)->next;
    emu_object *object = *link;
    if (object) *link = object->next;
    return object;
}

/* ---- the device */

EXPORT int cuInit(unsigned flags)
{
    if (flags) return INVALID_VALUE;
    return emu_driver_device() ? OK : NO_DEVICE;
}

EXPORT int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return OK;
}

/* NVRTC asks a libcuda that it finds for tables of functions that nobody documents, and goes on where there are none. */
EXPORT int cuGetExportTable(const void **out, const void *id)
{
    (void)id;
    *out = NULL;
    return NOT_FOUND;
}

EXPORT int cuDeviceGetCount(int *count)
{
    *count = emu_driver_device() != NULL;
    return OK;
}

EXPORT int cuDeviceGet(int *out, int ordinal)
{
    if (ordinal || !emu_driver_device()) return INVALID_DEVICE;
    *out = 0;
    return OK;
}

EXPORT int cuDeviceGetName(char *name, int length, int number)
{
    const emu_gpu *gpu = emu_driver_device();
    if (number || !gpu) return INVALID_DEVICE;
    snprintf(name, (size_t)length, "Emulated GPU (%s)", gpu->arch);
    return OK;
}

/* By it the benchmark asks NVML for clocks and power, which nobody has of this one. */
EXPORT int cuDeviceGetPCIBusId(char *text, int length, int number)
{
    static const char bus[] = "0000:00:00.0";
    if (!text || length < (int)sizeof bus) return INVALID_VALUE;
    if (number || !emu_driver_device()) return INVALID_DEVICE;
    memcpy(text, bus, sizeof bus);
    return OK;
}

/* An attribute that nobody asked for yet is refused, not made up. */
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int number)
{
    const emu_gpu *gpu = emu_driver_device();
    if (number || !gpu) return INVALID_DEVICE;
    const struct {
        int attribute, value;
    } attributes[] = {{1, MOST_THREADS},
                      {2, MOST_THREADS}, /* block and grid, along x, y, z */
                      {3, MOST_THREADS},
                      {4, 64},
                      {5, 0x7fffffff},
                      {6, 65535},
                      {7, 65535},
                      {8, PLAIN_SHARED},
                      {10, EMU_LANES},
                      {12, 65536}, /* registers of a block */
                      {13, gpu->clock},
                      {16, gpu->multiprocessors},
                      {20, 0}, /* compute mode: anybody's */
                      {36, gpu->memory_clock},
                      {37, gpu->memory_width},
                      {38, gpu->l2_bytes},
                      {39, gpu->threads},
                      {41, 1}, /* unified addresses */
                      {75, gpu->capability / 10},
                      {76, gpu->capability % 10},
                      {81, gpu->shared_per_multiprocessor},
                      {82, 65536}, /* registers of a multiprocessor */
                      {95, 1},     /* cooperative launches */
                      {97, gpu->shared_per_block},
                      {106, gpu->blocks},
                      {111, gpu->shared_reserved},
                      {120, gpu->capability >= 90}}; /* clusters */
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; ++i) {
        if (attributes[i].attribute != attribute) continue;
        *value = attributes[i].value;
        return OK;
    }
    return INVALID_VALUE;
}

/* ---- contexts: there is the primary one, and each thread's stack of what is current */

static char primary;
static pthread_mutex_t holders_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int holders;
static _Thread_local void *stack[MOST_CONTEXTS];
static _Thread_local int depth;

int emu_driver_enter(void)
{
    if (!depth) return INVALID_CONTEXT;
    if (!atomic_load(&holders)) return CONTEXT_DESTROYED;
    return atomic_load(&lost);
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int number)
{
    if (number || !emu_driver_device()) return INVALID_DEVICE;
    if (atomic_load(&lost)) return atomic_load(&lost);
    pthread_mutex_lock(&holders_lock);
    atomic_fetch_add(&holders, 1);
    pthread_mutex_unlock(&holders_lock);
    *context = &primary;
    return OK;
}

/* With its last holder goes the context, and all memory with it. Other objects stay until they are destroyed. */
EXPORT int cuDevicePrimaryCtxRelease_v2(int number)
{
    if (number) return INVALID_DEVICE;
    pthread_mutex_lock(&holders_lock);
    int left = atomic_load(&holders) - 1;
    if (left >= 0) atomic_store(&holders, left);
    if (left == 0) emu_driver_free_all();
    pthread_mutex_unlock(&holders_lock);
    return left >= 0 ? OK : INVALID_CONTEXT;
}

EXPORT int cuCtxGetCurrent(void **context)
{
    *context = depth ? stack[depth - 1] : NULL;
    return OK;
}

EXPORT int cuCtxPushCurrent_v2(void *context)
{
    if (context != &primary || depth == MOST_CONTEXTS) return INVALID_CONTEXT;
    stack[depth++] = context;
    return OK;
}

EXPORT int cuCtxPopCurrent_v2(void **context)
{
    if (!depth) return INVALID_CONTEXT;
    void *top = stack[--depth];
    if (context) *context = top;
    return OK;
}

EXPORT int cuCtxSetCurrent(void *context)
{
    if (context && context != &primary) return INVALID_CONTEXT;
    if (depth) --depth;
    return context ? cuCtxPushCurrent_v2(context) : OK;
}

/* Whatever was launched has run. */
EXPORT int cuCtxSynchronize(void) { return emu_driver_enter_unsafe(); }

/* ---- modules */

typedef struct module { /* CUmodule */
    emu_object object;
    emu_module *code;
    emu_handle function[]; /* [code->functions] */
} module;

/* Behind blanks and comments; NULL: it is none. Machine code ends this at its first byte. */
static const char *find_version(const char *text)
{
    for (;;) {
        text += strspn(text, " \t\r\n");
        if (!strncmp(text, "//", 2))
            text += strcspn(text, "\n");
        else if (!strncmp(text, "/*", 2)) {
            const char *end = strstr(text, "*/");
            if (!end) return NULL;
            text = end + 2;
        } else
            return strncmp(text, ".version", 8) ? NULL : text;
    }
}

/* PTX runs on what came after its target, too; one for sm_90a, with its own instructions, on no other. */
static bool suits(const emu_gpu *gpu, const emu_module *code, const char *version)
{
    const char *target = strstr(version, ".target");
    if (target) {
        target += strlen(".target");
        target += strspn(target, " \t");
        target += strcspn(target, "0123456789,\n");
        target += strspn(target, "0123456789");
    }
    bool only_there = target && (*target == 'a' || *target == 'f');
    return only_there ? code->target == gpu->capability : code->target <= gpu->capability;
}

EXPORT int cuModuleLoadData(void **out, const void *image)
{
    static char told[1024]; /* under emu_driver_objects: a planner tries again and again */
    char why[1024] = "";
    int result = emu_driver_enter();
    if (result) return result;
    const char *version = image ? find_version(image) : NULL;
    if (!version) return INVALID_IMAGE;
    emu_module *code = emu_module_parse(image, why, sizeof why);
    pthread_mutex_lock(&emu_driver_objects);
    if (!code && strcmp(why, told)) {
        fprintf(stderr, "emulator: %s\n", why);
        memcpy(told, why, sizeof told);
    }
    pthread_mutex_unlock(&emu_driver_objects);
    if (!code) return INVALID_PTX;
    module *made = suits(emu_driver_device(), code, version)
                       ? malloc(sizeof *made + (size_t)code->functions * sizeof *made->function)
                       : NULL;
    if (!made) {
        result = suits(emu_driver_device(), code, version) ? OUT_OF_MEMORY : NO_BINARY;
        emu_module_free(code);
        return result;
    }
    made->code = code;
    for (int i = 0; i < code->functions; ++i) {
        int left = PLAIN_SHARED - (int)code->function[i].shared_bytes;
        made->function[i] = (emu_handle){&code->function[i], left > 0 ? left : 0};
    }
    pthread_mutex_lock(&emu_driver_objects);
    emu_driver_add(EMU_MODULES, &made->object);
    pthread_mutex_unlock(&emu_driver_objects);
    *out = made;
    return OK;
}

/* Waits for what runs. */
EXPORT int cuModuleUnload(void *handle)
{
    pthread_mutex_lock(&emu_driver_gpu);
    pthread_mutex_lock(&emu_driver_objects);
    module *m = emu_driver_take(EMU_MODULES, handle);
    pthread_mutex_unlock(&emu_driver_objects);
    if (m) emu_module_free(m->code);
    pthread_mutex_unlock(&emu_driver_gpu);
    free(m);
    return m ? OK : INVALID_HANDLE;
}

EXPORT int cuModuleGetFunction(void **out, void *handle, const char *name)
{
    int result = emu_driver_enter();
    if (result) return result;
    pthread_mutex_lock(&emu_driver_objects);
    module *m = emu_driver_find(EMU_MODULES, handle);
    result = m ? NOT_FOUND : INVALID_HANDLE;
    for (int i = 0; m && result && i < m->code->functions; ++i) {
        if (strcmp(m->code->function[i].name, name) != 0) continue;
        *out = &m->function[i];
        result = OK;
    }
    pthread_mutex_unlock(&emu_driver_objects);
    return result;
}

/* ---- functions */

emu_handle *emu_driver_function(const void *handle)
{
    for (emu_object *object = emu_driver_alive[EMU_MODULES]; object; object = object->next) {
        module *m = (module *)object;
        for (int i = 0; i < m->code->functions; ++i)
            if (&m->function[i] == handle) return &m->function[i];
    }
    return NULL;
}

bool emu_driver_function_is_loaded(const emu_function *code)
{
    for (emu_object *object = emu_driver_alive[EMU_MODULES]; object; object = object->next) {
        const module *m = (const module *)object;
        for (int i = 0; i < m->code->functions; ++i)
            if (&m->code->function[i] == code) return true;
    }
    return false;
}

int emu_driver_blocks_that_fit(const emu_function *code, uint64_t threads, size_t dynamic_shared)
{
    enum { UNIT = 128 }; /* bytes that shared memory is handed out by */
    const emu_gpu *gpu = emu_driver_device();
    size_t of_block = code->shared_bytes + dynamic_shared, shared = (of_block + UNIT - 1) / UNIT * UNIT;
    uint64_t lanes = (threads + EMU_LANES - 1) / EMU_LANES * EMU_LANES;
    if (!threads || threads > MOST_THREADS || of_block > (size_t)gpu->shared_per_block) return 0;
    shared += (size_t)gpu->shared_reserved;
    uint64_t fit = (uint64_t)gpu->blocks, by_threads = (uint64_t)gpu->threads / lanes;
    if (by_threads < fit) fit = by_threads;
    if (shared && (uint64_t)gpu->shared_per_multiprocessor / shared < fit)
        fit = (uint64_t)gpu->shared_per_multiprocessor / shared;
    return (int)fit;
}

EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *handle, int threads, size_t shared)
{
    int result = emu_driver_enter();
    if (result) return result;
    if (threads <= 0) return INVALID_VALUE;
    pthread_mutex_lock(&emu_driver_objects);
    const emu_handle *function = emu_driver_function(handle);
    if (function) *blocks = emu_driver_blocks_that_fit(function->code, (uint64_t)threads, shared);
    pthread_mutex_unlock(&emu_driver_objects);
    return function ? OK : INVALID_HANDLE;
}

enum { ATTRIBUTE_THREADS = 0, ATTRIBUTE_SHARED = 1, ATTRIBUTE_LOCAL = 3, ATTRIBUTE_DYNAMIC = 8 };

/* Registers are the machine code's, of which there is none. */
EXPORT int cuFuncGetAttribute(int *value, int attribute, void *handle)
{
    int result = emu_driver_enter();
    if (result) return result;
    pthread_mutex_lock(&emu_driver_objects);
    const emu_handle *function = emu_driver_function(handle);
    if (!function)
        result = INVALID_HANDLE;
    else if (attribute == ATTRIBUTE_THREADS)
        *value = function->code->most_threads ? function->code->most_threads : MOST_THREADS;
    else if (attribute == ATTRIBUTE_SHARED)
        *value = (int)function->code->shared_bytes;
    else if (attribute == ATTRIBUTE_LOCAL)
        *value = (int)function->code->local_bytes;
    else if (attribute == ATTRIBUTE_DYNAMIC)
        *value = function->dynamic_shared;
    else
        result = INVALID_VALUE;
    pthread_mutex_unlock(&emu_driver_objects);
    return result;
}

EXPORT int cuFuncSetAttribute(void *handle, int attribute, int value)
{
    int result = emu_driver_enter();
    if (result) return result;
    pthread_mutex_lock(&emu_driver_objects);
    emu_handle *function = emu_driver_function(handle);
    int most = function ? emu_driver_device()->shared_per_block - (int)function->code->shared_bytes : 0;
    if (!function)
        result = INVALID_HANDLE;
    else if (attribute != ATTRIBUTE_DYNAMIC || value < 0)
        result = INVALID_VALUE;
    else if (value > most)
        result = emu_driver_refuse(INVALID_VALUE, "%s: %d bytes of dynamic shared memory are wanted, there are %d",
                                   function->code->name, value, most);
    else if (value > function->dynamic_shared)
        function->dynamic_shared = value;
    pthread_mutex_unlock(&emu_driver_objects);
    return result;
}
