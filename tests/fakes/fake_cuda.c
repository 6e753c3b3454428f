/* fake_cuda.c - a libcuda without a GPU, for tests of the runtime's own logic: it hands out memory, modules, streams and
 * events, counts what is alive, runs nothing, and fails the call that it is told to fail. Tests name it in LAC_CUDA_LIBRARY
 * and steer it through the fake_ functions. Built twice: FAKE_OLD leaves out what a driver before CUDA 11.8 has not. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef uint64_t pointer;
enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_IMAGE = 200, INVALID_CONTEXT = 201, LOST = 719 };
enum { MOST_BLOCKS = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    long contexts, modules, streams, events, blocks;
    long calls, fail_at, launches;
    int fail_with, is_lost, bad_images, capability, device_count;
    int attribute_to_fail, attribute_asked, attribute_fails_at;
    size_t most_bytes;
    struct {
        char *data;
        size_t bytes;
        int device;
    } block[MOST_BLOCKS];
    int current_device_of_blocks;
    double clock, launch_takes, untold; /* milliseconds */
} fake = {.untold = 1.0, .capability = 90, .device_count = 2, .most_bytes = (size_t)1 << 40};
static int primary[8];
static __thread int *stack[16];
static __thread int depth;

/* ---- what tests ask and say */

/* Counters are asked for while other threads call the driver; what is set, is set before there are any. */
static long told(const long *counter)
{
    pthread_mutex_lock(&lock);
    long value = *counter;
    pthread_mutex_unlock(&lock);
    return value;
}

long fake_live(void)
{
    return told(&fake.contexts) + told(&fake.modules) + told(&fake.streams) + told(&fake.events) + told(&fake.blocks);
}
long fake_calls(void) { return told(&fake.calls); }
long fake_launches(void) { return told(&fake.launches); }
/* The number-th call from now, among those that can fail, returns `result`; 0: none. */
void fake_fail_at(long number, int result)
{
    pthread_mutex_lock(&lock);
    fake.calls = 0;
    fake.fail_at = number;
    fake.fail_with = result;
    fake.is_lost = 0;
    pthread_mutex_unlock(&lock);
}
/* So does every call from that one on, as when a kernel has crashed; fake_fail_at(0, 0) mends it. */
void fake_lose_at(long number)
{
    fake_fail_at(number, LOST);
    fake.is_lost = number != 0;
}
/* So many images are refused before one is taken. */
void fake_refuse_images(int count) { fake.bad_images = count; }
void fake_set_capability(int capability) { fake.capability = capability; }
/* The number-th question for this attribute, and those after it, fail; 0: none. */
void fake_fail_attribute(int attribute, int number)
{
    fake.attribute_to_fail = attribute;
    fake.attribute_fails_at = number;
    fake.attribute_asked = 0;
}
/* Memory handed out from now on belongs to this GPU. */
void fake_set_device_of_blocks(int device) { fake.current_device_of_blocks = device; }
void fake_set_most_bytes(size_t bytes) { fake.most_bytes = bytes; }
/* So much time goes by on the GPU. */
void fake_advance(double milliseconds)
{
    pthread_mutex_lock(&lock);
    fake.clock += milliseconds;
    pthread_mutex_unlock(&lock);
}
/* So much time goes by with each launch from now on. */
void fake_set_launch_time(double milliseconds) { fake.launch_takes = milliseconds; }
/* What events see between them when nobody said how long anything takes. */
void fake_set_untold_time(double milliseconds) { fake.untold = milliseconds; }
int fake_stack_depth(void) { return depth; }

static int enter(void)
{
    pthread_mutex_lock(&lock);
    long number = ++fake.calls;
    int fails = fake.fail_at && (fake.is_lost ? number >= fake.fail_at : number == fake.fail_at);
    int result = fails ? fake.fail_with : OK;
    pthread_mutex_unlock(&lock);
    return result;
}

static void count(long *counter, long step)
{
    pthread_mutex_lock(&lock);
    *counter += step;
    pthread_mutex_unlock(&lock);
}

#define CALL                                                                                                                   \
    int result_ = enter();                                                                                                     \
    if (result_) return result_
#define IN_CONTEXT                                                                                                             \
    CALL;                                                                                                                      \
    if (!depth) return INVALID_CONTEXT

/* ---- the driver */

int cuInit(unsigned flags)
{
    (void)flags;
    const char *wanted = getenv("FAKE_CUDA_INIT");
    return wanted ? atoi(wanted) : OK;
}

int cuDriverGetVersion(int *version)
{
#ifdef FAKE_OLD
    *version = 11040;
#else
    *version = 13000;
#endif
    return OK;
}

int cuGetErrorName(int error, const char **name)
{
    *name = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == LOST        ? "CUDA_ERROR_LAUNCH_FAILED"
                                   : "CUDA_ERROR_FAKE";
    return OK;
}

int cuGetErrorString(int error, const char **text)
{
    *text = error == OUT_OF_MEMORY ? "out of memory" : "the fake was told to fail";
    return OK;
}

int cuDeviceGetCount(int *count_out)
{
    *count_out = fake.device_count;
    return OK;
}

int cuDeviceGet(int *device, int ordinal)
{
    CALL;
    *device = ordinal;
    return OK;
}

int cuDeviceGetName(char *name, int length, int device)
{
    snprintf(name, (size_t)length, "Fake GPU %d", device);
    return OK;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    if (fake.attribute_fails_at && attribute == fake.attribute_to_fail && ++fake.attribute_asked >= fake.attribute_fails_at)
        return LOST;
    switch (attribute) {
    case 13:
        *value = 1980000;
        break;
    case 16:
        *value = 132;
        break;
    case 36:
        *value = 3201000;
        break;
    case 37:
        *value = 6144;
        break;
    case 38:
        *value = 50 << 20;
        break;
    case 75:
        *value = fake.capability / 10;
        break;
    case 76:
        *value = fake.capability % 10;
        break;
    case 81:
        *value = 233472;
        break;
    case 97:
        *value = 232448;
        break;
    default:
        *value = 0;
    }
    return OK;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)150 << 30;
    return OK;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    CALL;
    count(&fake.contexts, 1);
    *context = &primary[device];
    return OK;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    count(&fake.contexts, -1);
    return OK;
}

int cuCtxGetCurrent(void **context)
{
    *context = depth ? stack[depth - 1] : NULL;
    return OK;
}

/* Never fails: what frees memory has to go through it. */
int cuCtxPushCurrent_v2(void *context)
{
    stack[depth++] = context;
    return OK;
}

int cuCtxPopCurrent_v2(void **context)
{
    if (!depth) return INVALID_CONTEXT;
    *context = stack[--depth];
    return OK;
}

int cuCtxSynchronize(void)
{
    IN_CONTEXT;
    return OK;
}

int cuModuleLoadData(void **module, const void *image)
{
    IN_CONTEXT;
    if (memcmp(image, "FAKECUBIN", 9) != 0) return INVALID_IMAGE;
    pthread_mutex_lock(&lock);
    int refused = fake.bad_images > 0 && fake.bad_images--;
    pthread_mutex_unlock(&lock);
    if (refused) return INVALID_IMAGE;
    count(&fake.modules, 1);
    *module = malloc(1);
    return OK;
}

int cuModuleUnload(void *module)
{
    count(&fake.modules, -1);
    free(module);
    return OK;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    IN_CONTEXT;
    (void)name;
    *function = module;
    return OK;
}

int cuFuncGetAttribute(int *value, int attribute, void *function)
{
    (void)attribute, (void)function;
    *value = 0;
    return OK;
}

int cuFuncSetAttribute(void *function, int attribute, int value)
{
    IN_CONTEXT;
    (void)function, (void)attribute, (void)value;
    return OK;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared)
{
    (void)function, (void)threads, (void)shared;
    *blocks = 1;
    return OK;
}

/* Large blocks, which nobody reads whole, are the kernel's own pages, up to one that faults: a sanitizer would mark each byte of them,
 * whenever they come and go. */
enum { LARGE = 4 << 20, PAGE = 4096 };

static size_t pages_of(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static void *take_block(size_t bytes)
{
    size_t rounded = (bytes + 255) / 256 * 256;
    if (rounded < LARGE) return aligned_alloc(256, rounded);
    char *pages =
        mmap(NULL, pages_of(rounded) + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return NULL;
    mprotect(pages + pages_of(rounded), PAGE, PROT_NONE);
    return pages + pages_of(rounded) - rounded;
}

static void give_block(char *data, size_t bytes)
{
    size_t rounded = (bytes + 255) / 256 * 256;
    if (rounded < LARGE)
        free(data);
    else
        munmap(data + rounded - pages_of(rounded), pages_of(rounded) + PAGE);
}

int cuMemAlloc_v2(pointer *out, size_t bytes)
{
    IN_CONTEXT;
    if (bytes > fake.most_bytes) return OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < MOST_BLOCKS && fake.block[i].data) ++i;
    if (i < MOST_BLOCKS && (fake.block[i].data = take_block(bytes))) {
        fake.block[i].bytes = bytes;
        fake.block[i].device = fake.current_device_of_blocks;
        fake.blocks++;
        *out = (pointer)(uintptr_t)fake.block[i].data;
        result_ = OK;
    } else {
        result_ = OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&lock);
    return result_;
}

int cuMemFree_v2(pointer address)
{
    pthread_mutex_lock(&lock);
    int result = INVALID_VALUE;
    for (int i = 0; i < MOST_BLOCKS; ++i) {
        if (!fake.block[i].data || (pointer)(uintptr_t)fake.block[i].data != address) continue;
        give_block(fake.block[i].data, fake.block[i].bytes);
        fake.block[i].data = NULL;
        fake.blocks--;
        result = OK;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int cuMemcpyHtoD_v2(pointer to, const void *from, size_t bytes)
{
    IN_CONTEXT;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return OK;
}

int cuMemcpyDtoH_v2(void *to, pointer from, size_t bytes)
{
    IN_CONTEXT;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return OK;
}

int cuMemcpyHtoDAsync_v2(pointer to, const void *from, size_t bytes, void *stream)
{
    (void)stream;
    return cuMemcpyHtoD_v2(to, from, bytes);
}

int cuMemsetD8_v2(pointer to, unsigned char value, size_t bytes)
{
    IN_CONTEXT;
    memset((void *)(uintptr_t)to, value, bytes);
    return OK;
}

/* Whether so many bytes from here on lie in one block. */
static int is_inside(pointer from, size_t bytes)
{
    int found = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_BLOCKS && !found; ++i) {
        pointer begin = (pointer)(uintptr_t)fake.block[i].data;
        found = begin && from >= begin && bytes <= fake.block[i].bytes && from - begin <= fake.block[i].bytes - bytes;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

int cuMemcpyDtoDAsync_v2(pointer to, pointer from, size_t bytes, void *stream)
{
    IN_CONTEXT;
    (void)stream;
    if (!is_inside(to, bytes) || !is_inside(from, bytes)) return INVALID_VALUE;
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return OK;
}

/* Looks, but writes nothing: what it is for, driving a cache empty, has no meaning here, and it would take long. */
int cuMemsetD8Async(pointer to, unsigned char value, size_t bytes, void *stream)
{
    IN_CONTEXT;
    (void)value, (void)stream;
    return is_inside(to, bytes) ? OK : INVALID_VALUE;
}

int cuPointerGetAttributes(unsigned number, int *attributes, void **values, pointer address)
{
    CALL;
    int device = -2;
    unsigned type = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_BLOCKS; ++i) {
        pointer begin = (pointer)(uintptr_t)fake.block[i].data;
        if (!begin || address < begin || address >= begin + fake.block[i].bytes) continue;
        device = fake.block[i].device;
        type = 2;
    }
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < number; ++i) {
        if (attributes[i] == 2)
            *(unsigned *)values[i] = type;
        else if (attributes[i] == 8)
            *(unsigned *)values[i] = 0;
        else
            *(int *)values[i] = device;
    }
    return OK;
}

static int create(void **out, long *counter)
{
    count(counter, 1);
    *out = calloc(1, sizeof(double)); /* an event's time */
    return OK;
}

static int destroy(void *object, long *counter)
{
    count(counter, -1);
    free(object);
    return OK;
}

int cuStreamCreate(void **stream, unsigned flags)
{
    IN_CONTEXT;
    (void)flags;
    return create(stream, &fake.streams);
}
int cuStreamDestroy_v2(void *stream) { return destroy(stream, &fake.streams); }
int cuStreamSynchronize(void *stream)
{
    IN_CONTEXT;
    (void)stream;
    return OK;
}
int cuEventCreate(void **event, unsigned flags)
{
    IN_CONTEXT;
    (void)flags;
    return create(event, &fake.events);
}
int cuEventDestroy_v2(void *event) { return destroy(event, &fake.events); }
int cuEventRecord(void *event, void *stream)
{
    IN_CONTEXT;
    (void)stream;
    pthread_mutex_lock(&lock);
    *(double *)event = fake.clock;
    pthread_mutex_unlock(&lock);
    return OK;
}
int cuEventSynchronize(void *event)
{
    IN_CONTEXT;
    (void)event;
    return OK;
}
int cuEventElapsedTime(float *milliseconds, void *from, void *to)
{
    IN_CONTEXT;
    double between = *(const double *)to - *(const double *)from;
    *milliseconds = (float)(between > 0 ? between : fake.untold);
    return OK;
}
#ifndef FAKE_OLD
/* What a launch says, as the driver takes it. */
typedef struct launch_config {
    unsigned grid[3], block[3], shared_bytes;
    void *stream, *attributes;
    unsigned attribute_count;
} launch_config;

/* As strict as the driver is of an H200: a launch with more than there is fails there too. */
int cuLaunchKernelEx(const launch_config *config, void *function, void **parameters, void **extra)
{
    IN_CONTEXT;
    (void)function, (void)parameters, (void)extra;
    for (int i = 0; i < 3; ++i)
        if (!config->grid[i] || !config->block[i] || (i && config->grid[i] > 65535)) return INVALID_VALUE;
    if ((uint64_t)config->block[0] * config->block[1] * config->block[2] > 1024 || config->shared_bytes > 227 << 10)
        return INVALID_VALUE;
    count(&fake.launches, 1);
    fake_advance(fake.launch_takes);
    return OK;
}

/* It writes nothing; what it refuses is what the driver's manual says of tiled maps. */
int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *sizes, const uint64_t *strides,
                           const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill)
{
    static const unsigned swizzle_bytes[] = {0, 32, 64, 128};
    IN_CONTEXT;
    (void)promotion, (void)fill;
    unsigned bytes = type == 6 || type == 9 ? 2 : type == 7 ? 4 : 0; /* f16, bf16, f32 */
    if (!map || (uintptr_t)map % 64 || !bytes || rank < 1 || rank > 5 || (uintptr_t)address % 16 || interleave)
        return INVALID_VALUE;
    if (swizzle < 0 || swizzle > 3) return INVALID_VALUE;
    for (unsigned i = 0; i < rank; ++i) {
        if (!sizes[i] || sizes[i] > UINT64_C(1) << 32 || !box[i] || box[i] > 256 || !steps[i] || steps[i] > 8)
            return INVALID_VALUE;
        if (i + 1 < rank && (strides[i] % 16 || strides[i] >= UINT64_C(1) << 40)) return INVALID_VALUE;
    }
    if (box[0] * bytes % 16 || (swizzle && box[0] * bytes > swizzle_bytes[swizzle])) return INVALID_VALUE;
    return OK;
}
#endif
