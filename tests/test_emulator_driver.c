/* test_emulator_driver.c - the emulator's libcuda from outside: bounds of memory, modules, launches that are refused, capture and replay,
 * threads side by side, and a context that is lost. EMULATOR_ARCH is sm_90 here. */
#include "emulator_case.h"

#include <pthread.h>

int cuCtxSetCurrent(void *context);
int cuCtxSynchronize(void);
int cuModuleLoadData(void **module, const void *image);
int cuModuleUnload(void *module);
int cuModuleGetFunction(void **function, void *module, const char *name);
int cuFuncSetAttribute(void *function, int attribute, int value);
int cuFuncGetAttribute(int *value, int attribute, void *function);
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared);
int cuMemGetInfo_v2(size_t *available, size_t *total);
int cuMemHostAlloc(void **out, size_t bytes, unsigned flags);
int cuMemFreeHost(void *memory);
int cuDeviceGetPCIBusId(char *text, int length, int device);
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes);
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes);
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream);
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream);
int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t bytes);
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream);
int cuPointerGetAttributes(unsigned count, int *attributes, void **values, uint64_t address);
int cuStreamCreate(void **stream, unsigned flags);
int cuStreamDestroy_v2(void *stream);
int cuStreamSynchronize(void *stream);
int cuEventCreate(void **event, unsigned flags);
int cuEventDestroy_v2(void *event);
int cuEventRecord(void *event, void *stream);
int cuEventSynchronize(void *event);
int cuEventElapsedTime(float *milliseconds, void *from, void *to);
int cuStreamBeginCapture_v2(void *stream, int mode);
int cuStreamEndCapture(void *stream, void **graph);
int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags);
int cuGraphLaunch(void *executable, void *stream);
int cuGraphDestroy(void *graph);
int cuGraphExecDestroy(void *executable);
int cuThreadExchangeStreamCaptureMode(int *mode);
int cuLaunchKernelEx(const void *config, void *function, void **parameters, void **extra);
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared_bytes, void *stream, void **parameters, void **extra);
int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *sizes, const uint64_t *strides,
                           const unsigned *box, const unsigned *steps, int interleave, int swizzle, int promotion, int fill);
int cuGetErrorName(int error, const char **name);

/* CUresult, as the manual numbers them. */
enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NO_BINARY = 209,
    INVALID_PTX = 218,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    LAUNCH_FAILED = 719,
    TOO_LARGE = 720,
    NOT_SUPPORTED = 801,
    UNSUPPORTED = 900,
    INVALIDATED = 901,
    IMPLICIT = 906,
    CAPTURED = 907,
    INVALID_CLUSTER = 912
};
enum { GLOBAL, THREAD, RELAXED };

enum { COUNT = 100, STATIC_SHARED = 1024, MOST_SHARED = 232448, PLAIN_SHARED = 48 << 10 };

/* add(p, v, c): p[i] += v for i < c, by one thread, which is where a launch goes wrong; `few` is the same for at most 256 threads. */
#define KERNEL(name, hint)                                                                                                     \
    ".visible .entry " name "(.param .u64 p, .param .u32 v, .param .u32 c)\n" hint "\n{ .reg .pred %p<2>; .reg .b32 %r<6>; "   \
    ".reg .b64 %d<2>; .shared .align 4 .b8 own[1024];\nmov.u32 %r5, %tid.x; setp.ne.u32 %p1, %r5, 0; @%p1 ret;\n"              \
    "ld.param.u64 %d1, [p]; ld.param.u32 %r1, [v]; ld.param.u32 %r2, [c]; mov.b32 %r3, 0;\nagain: setp.ge.u32 %p1, %r3, %r2; " \
    "@%p1 ret;\nld.global.u32 %r4, [%d1]; add.u32 %r4, %r4, %r1; st.global.u32 [%d1], %r4; add.s64 %d1, %d1, 4; "              \
    "add.u32 %r3, %r3, 1; bra again; }\n"
static const char image[] =
    "\n// a comment\n/* another */ .version 8.0\n.target sm_80\n" KERNEL("add", "") KERNEL("few", ".maxntid 256, 1, 1");

typedef struct world {
    void *module, *add, *few, *stream;
    uint64_t p; /* COUNT words */
    uint32_t host[COUNT];
} world;

static int open_world(void **state)
{
    static world w;
    *state = &w;
    return setenv("EMULATOR_ARCH", "sm_90", 1) || case_open(state) || cuModuleLoadData(&w.module, image) ||
           cuModuleGetFunction(&w.add, w.module, "add") || cuModuleGetFunction(&w.few, w.module, "few") ||
           cuStreamCreate(&w.stream, 1) || cuMemAlloc_v2(&w.p, sizeof w.host) || cuMemsetD8_v2(w.p, 0, sizeof w.host);
}

/* The context is lost by then: memory is freed, and the loss is told all the same. */
static int close_world(void **state)
{
    const world *w = *state;
    return cuMemFree_v2(w->p) != LAUNCH_FAILED || emu_allocated(w->p, 1) || cuStreamDestroy_v2(w->stream) ||
           cuModuleUnload(w->module) || cuModuleUnload(w->module) != INVALID_HANDLE || case_close(state);
}

static int add(const world *w, void *function, void *stream, uint32_t value, uint32_t count)
{
    uint64_t p = w->p;
    void *parameters[] = {&p, &value, &count};
    return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, NULL);
}

static uint32_t last_word(world *w)
{
    assert_int_equal(cuMemcpyDtoH_v2(w->host, w->p, sizeof w->host), OK);
    return w->host[COUNT - 1];
}

/* ---- memory */

static void memory_has_bounds(void **state)
{
    (void)state;
    enum { BYTES = 1001 };
    uint64_t p = 0, q = 0;
    size_t before, after, total;
    unsigned char bytes[BYTES + 1];
    assert_int_equal(cuMemAlloc_v2(&p, 0), INVALID_VALUE);
    assert_int_equal(cuMemAlloc_v2(&p, (size_t)1 << 50), OUT_OF_MEMORY);
    assert_int_equal(cuMemGetInfo_v2(&before, &total), OK);
    assert_int_equal(cuMemAlloc_v2(&p, BYTES), OK);
    assert_int_equal(cuMemAlloc_v2(&q, 16), OK);
    assert_int_equal(p % 256, 0);
    const struct {
        uint64_t at;
        size_t bytes;
        bool inside;
    } asked[] = {{p, BYTES, true},      {p + BYTES - 1, 1, true},    {p, 0, true},      {p + BYTES, 1, false},
                 {p, BYTES + 1, false}, {p - 1, 1, false},           {p - 1, 2, false}, {p + BYTES - 1, 2, false},
                 {p, SIZE_MAX, false},  {UINT64_MAX - 7, 16, false}, {0, 4, false},     {(uint64_t)(uintptr_t)bytes, 1, false}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; ++i)
        assert_int_equal(emu_allocated(asked[i].at, asked[i].bytes), asked[i].inside);
    assert_int_equal(cuMemcpyDtoH_v2(bytes, p, BYTES), OK);
    for (int i = 0; i < BYTES; ++i) assert_int_equal(bytes[i], 255); /* nobody has written it */
    assert_int_equal(cuMemcpyDtoH_v2(bytes, p + 1, BYTES), INVALID_VALUE);
    assert_int_equal(cuMemcpyHtoD_v2(p, bytes, BYTES + 1), INVALID_VALUE);
    assert_int_equal(cuMemcpyHtoD_v2(p + BYTES, bytes, 0), OK);
    assert_int_equal(cuMemsetD8_v2(p, 7, BYTES), OK);
    assert_int_equal(cuMemsetD8_v2(p, 7, BYTES + 1), INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoDAsync_v2(q, p + 3, 16, NULL), OK);
    assert_int_equal(cuMemcpyDtoDAsync_v2(q, p, 17, NULL), INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoH_v2(bytes, q, 16), OK);
    assert_int_equal(bytes[15], 7);
    unsigned type, managed;
    int device, attributes[] = {2, 8, 9};
    void *values[] = {&type, &managed, &device};
    assert_int_equal(cuPointerGetAttributes(3, attributes, values, p + BYTES - 1), OK);
    assert_true(type == 2 && !managed && device == 0);
    assert_int_equal(cuPointerGetAttributes(3, attributes, values, p + BYTES), OK);
    assert_true(type == 0 && device == -2);
    assert_int_equal(cuMemFree_v2(p + 1), INVALID_VALUE);
    assert_int_equal(cuMemFree_v2(p), OK);
    assert_int_equal(cuMemFree_v2(p), INVALID_VALUE);
    assert_true(!emu_allocated(p, 1) && emu_allocated(q, 16));
    assert_int_equal(cuMemFree_v2(q), OK);
    assert_int_equal(cuMemGetInfo_v2(&after, &total), OK);
    assert_int_equal(after, before);
}

/* Without these `lacuna bench` takes the driver for one that is too old. */
static void what_only_the_benchmark_calls(void **state)
{
    (void)state;
    enum { BYTES = 1001 };
    uint64_t p = 0;
    void *landing = NULL;
    char bus[13] = "";
    assert_int_equal(cuDeviceGetPCIBusId(bus, sizeof bus, 0), OK);
    assert_string_equal(bus, "0000:00:00.0");
    assert_int_equal(cuDeviceGetPCIBusId(bus, sizeof bus - 1, 0), INVALID_VALUE);
    assert_int_equal(cuDeviceGetPCIBusId(bus, sizeof bus, 1), INVALID_DEVICE);
    assert_int_equal(cuMemHostAlloc(&landing, 0, 0), INVALID_VALUE);
    assert_int_equal(cuMemHostAlloc(&landing, BYTES, 0), OK);
    assert_int_equal(cuMemAlloc_v2(&p, BYTES), OK);
    assert_int_equal(cuMemsetD8_v2(p, 7, BYTES), OK);
    assert_int_equal(cuMemcpyDtoH_v2(landing, p, BYTES), OK);
    assert_int_equal(((unsigned char *)landing)[BYTES - 1], 7);
    assert_int_equal(cuMemFree_v2(p), OK);
    assert_int_equal(cuMemFreeHost(landing), OK);
    assert_int_equal(cuMemFreeHost(NULL), INVALID_VALUE);
}

/* ---- modules and launches */

static void modules_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int result;
    } images[] = {{"\177ELF", INVALID_IMAGE},
                  {"hello", INVALID_IMAGE},
                  {"/* .version", INVALID_IMAGE},
                  {".version 8\nBAD", INVALID_PTX},
                  {".version 8\n.target sm_100\n", NO_BINARY},
                  {".version 8\n.target sm_80a\n", NO_BINARY},
                  {".version 8\n.target sm_90a\n", OK},
                  {" .version 8\n.target sm_75\n", OK}};
    for (size_t i = 0; i < sizeof images / sizeof *images; ++i) {
        void *module = NULL, *function;
        assert_int_equal(cuModuleLoadData(&module, images[i].text), images[i].result);
        if (images[i].result) continue;
        assert_int_equal(cuModuleGetFunction(&function, module, "add"), NOT_FOUND);
        assert_int_equal(cuModuleUnload(module), OK);
        assert_int_equal(cuModuleUnload(module), INVALID_HANDLE);
    }
    const char *name;
    assert_int_equal(cuGetErrorName(LAUNCH_FAILED, &name), OK);
    assert_string_equal(name, "CUDA_ERROR_LAUNCH_FAILED");
    assert_int_equal(cuGetErrorName(12345, &name), INVALID_VALUE);
}

static void launches_that_are_too_much(void **state)
{
    world *w = *state;
    int value;
    uint32_t none = 0, count = COUNT;
    void *parameters[] = {&w->p, &none, &count};
    const struct {
        unsigned blocks_y, threads_x, threads_y, shared;
        bool few;
        int result;
    } launches[] = {{1, 1024, 1, 0, false, OK},
                    {1, 1024, 2, 0, false, INVALID_VALUE},
                    {70000, 1, 1, 0, false, INVALID_VALUE},
                    {0, 1, 1, 0, false, INVALID_VALUE},
                    {1, 1, 0, 0, false, INVALID_VALUE},
                    {1, 256, 1, 0, true, OK},
                    {1, 257, 1, 0, true, INVALID_VALUE},
                    {1, 256, 1, PLAIN_SHARED - STATIC_SHARED, true, OK},
                    {1, 256, 1, PLAIN_SHARED - STATIC_SHARED + 1, true, INVALID_VALUE},
                    {1, 256, 1, MOST_SHARED - STATIC_SHARED, false, OK}};
    assert_int_equal(cuFuncGetAttribute(&value, 8, w->add), OK);
    assert_int_equal(value, PLAIN_SHARED - STATIC_SHARED);
    assert_int_equal(cuFuncSetAttribute(w->add, 8, MOST_SHARED), INVALID_VALUE);
    assert_int_equal(cuFuncSetAttribute(w->add, 8, MOST_SHARED - STATIC_SHARED), OK);
    for (size_t i = 0; i < sizeof launches / sizeof *launches; ++i)
        assert_int_equal(cuLaunchKernel(launches[i].few ? w->few : w->add, 1, launches[i].blocks_y, 1, launches[i].threads_x,
                                        launches[i].threads_y, 1, launches[i].shared, NULL, parameters, NULL),
                         launches[i].result);
    assert_int_equal(cuLaunchKernel(&value, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL), INVALID_HANDLE);
    assert_int_equal(add(w, w->add, &value, 0, 1), INVALID_HANDLE);
    assert_int_equal(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, w->add, 128, MOST_SHARED - STATIC_SHARED), OK);
    assert_int_equal(value, 1);
    assert_int_equal(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, w->add, 1024, 0), OK);
    assert_int_equal(value, 2);
    struct { /* all parameters in a buffer */
        uint64_t p;
        uint32_t v, c;
    } buffer = {w->p, 3, COUNT};
    size_t bytes = sizeof buffer;
    void *extra[] = {(void *)1, &buffer, (void *)2, &bytes, NULL};
    uint32_t before = last_word(w);
    assert_int_equal(cuLaunchKernel(w->add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), OK);
    assert_int_equal(last_word(w), before + 3);
    bytes -= 4;
    assert_int_equal(cuLaunchKernel(w->add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra), INVALID_VALUE);
    assert_int_equal(cuLaunchKernel(w->add, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), INVALID_VALUE);
}

static void launches_with_attributes(void **state)
{
    world *w = *state;
    struct attribute {
        int id;
        char pad[4];
        unsigned value[16];
    };
    enum { IGNORED = 0, TOGETHER = 2, CLUSTER = 4, EARLY = 6, MULTIPROCESSORS = 132 };
    const struct {
        unsigned blocks;
        struct attribute attribute[2];
        int result;
    } launches[] = {{4, {{CLUSTER, "", {2, 1, 1}}, {EARLY, "", {1}}}, OK},
                    {5, {{CLUSTER, "", {2, 1, 1}}, {IGNORED, "", {0}}}, INVALID_VALUE},
                    {16, {{CLUSTER, "", {16, 1, 1}}, {IGNORED, "", {0}}}, INVALID_CLUSTER},
                    {4, {{CLUSTER, "", {2, 2, 1}}, {IGNORED, "", {0}}}, INVALID_CLUSTER},
                    {2 * MULTIPROCESSORS, {{TOGETHER, "", {1}}, {IGNORED, "", {0}}}, OK},
                    {2 * MULTIPROCESSORS + 1, {{TOGETHER, "", {1}}, {IGNORED, "", {0}}}, TOO_LARGE},
                    {2 * MULTIPROCESSORS + 1, {{TOGETHER, "", {0}}, {IGNORED, "", {0}}}, OK},
                    {1, {{99, "", {1}}, {IGNORED, "", {0}}}, NOT_SUPPORTED}};
    uint32_t none = 0;
    void *parameters[] = {&w->p, &none, &none};
    for (size_t i = 0; i < sizeof launches / sizeof *launches; ++i) {
        struct {
            unsigned grid[3], block[3], shared;
            void *stream;
            const struct attribute *attributes;
            unsigned count;
        } config = {{launches[i].blocks, 1, 1}, {1024, 1, 1}, 0, NULL, launches[i].attribute, 2};
        assert_int_equal(cuLaunchKernelEx(&config, w->add, parameters, NULL), launches[i].result);
    }
}

static void tensor_maps_that_are_wrong(void **state)
{
    const world *w = *state;
    static const struct {
        unsigned box, step, swizzle, from, map;
        uint64_t stride;
        int result;
    } maps[] = {{64, 1, 3, 0, 0, 208, OK},
                {72, 1, 3, 0, 0, 208, INVALID_VALUE},
                {72, 1, 0, 0, 0, 208, OK},
                {60, 1, 3, 0, 0, 208, INVALID_VALUE},
                {64, 1, 3, 0, 0, 200, INVALID_VALUE},
                {64, 2, 3, 0, 0, 208, INVALID_VALUE},
                {64, 1, 2, 0, 0, 208, INVALID_VALUE},
                {64, 1, 3, 8, 0, 208, INVALID_VALUE},
                {64, 1, 3, 0, 16, 208, INVALID_VALUE},
                {264, 1, 0, 0, 0, 208, INVALID_VALUE},
                {64, 1, 4, 0, 0, 208, INVALID_VALUE}};
    enum { F16 = 6 };
    for (size_t i = 0; i < sizeof maps / sizeof *maps; ++i) {
        _Alignas(64) unsigned char map[192];
        uint64_t sizes[] = {100, 9, 2}, strides[] = {maps[i].stride, 4096};
        unsigned box[] = {maps[i].box, 8, 1}, steps[] = {1, maps[i].step, 1};
        assert_int_equal(cuTensorMapEncodeTiled(map + maps[i].map, F16, 3, (void *)(uintptr_t)(w->p + maps[i].from), sizes,
                                                strides, box, steps, 0, (int)maps[i].swizzle, 3, 0),
                         maps[i].result);
    }
}

/* ---- streams */

static void captures_are_replayed(void **state)
{
    world *w = *state;
    void *graph, *executable, *event, *later;
    uint32_t first = 0;
    float milliseconds;
    assert_int_equal(cuEventCreate(&event, 0), OK);
    assert_int_equal(cuEventCreate(&later, 0), OK);
    assert_int_equal(cuEventElapsedTime(&milliseconds, event, later), INVALID_HANDLE);
    assert_int_equal(cuMemsetD8_v2(w->p, 0, sizeof w->host), OK);
    assert_int_equal(cuStreamBeginCapture_v2(NULL, GLOBAL), UNSUPPORTED);
    assert_int_equal(cuStreamEndCapture(w->stream, &graph), ILLEGAL_STATE);
    assert_int_equal(cuStreamBeginCapture_v2(w->stream, GLOBAL), OK);
    assert_int_equal(cuStreamBeginCapture_v2(w->stream, GLOBAL), ILLEGAL_STATE);
    assert_int_equal(cuMemsetD8Async(w->p, 0, sizeof w->host, w->stream), OK);
    for (uint32_t i = 1; i <= 3; ++i) assert_int_equal(add(w, w->add, w->stream, i, COUNT), OK);
    assert_int_equal(cuMemcpyHtoDAsync_v2(w->p, &first, 4, w->stream), OK);
    assert_int_equal(cuEventRecord(event, w->stream), OK);
    assert_int_equal(cuStreamEndCapture(w->stream, &graph), OK);
    assert_int_equal(cuEventSynchronize(event), CAPTURED);
    assert_int_equal(last_word(w), 0); /* nothing was done */
    assert_int_equal(cuGraphInstantiateWithFlags(&executable, graph, 0), OK);
    assert_int_equal(cuGraphDestroy(graph), OK);
    assert_int_equal(cuGraphDestroy(graph), INVALID_HANDLE);
    first = 4242; /* read when it is replayed */
    for (int i = 0; i < 3; ++i) assert_int_equal(cuGraphLaunch(executable, w->stream), OK);
    assert_int_equal(last_word(w), 6);
    assert_int_equal(w->host[0], 4242);
    assert_int_equal(cuGraphExecDestroy(executable), OK);
    assert_int_equal(cuEventRecord(event, w->stream), OK);
    assert_int_equal(cuEventRecord(later, w->stream), OK);
    assert_int_equal(cuEventElapsedTime(&milliseconds, event, later), OK);
    assert_true(milliseconds >= 0);
    assert_int_equal(cuEventDestroy_v2(event), OK);
    assert_int_equal(cuEventDestroy_v2(later), OK);
}

/* What a capture forbids ends it, and each mode forbids its own. */
static void captures_are_invalidated(void **state)
{
    world *w = *state;
    void *graph, *blocking;
    uint64_t q;
    for (int mode = GLOBAL; mode <= RELAXED; ++mode) {
        assert_int_equal(cuStreamBeginCapture_v2(w->stream, mode), OK);
        assert_int_equal(cuMemAlloc_v2(&q, 4), mode == RELAXED ? OK : UNSUPPORTED);
        if (mode == RELAXED) assert_int_equal(cuMemFree_v2(q), OK);
        assert_int_equal(cuStreamEndCapture(w->stream, &graph), mode == RELAXED ? OK : INVALIDATED);
        if (mode == RELAXED) assert_int_equal(cuGraphDestroy(graph), OK);
    }
    int mode = RELAXED; /* a thread may say that it knows what it does */
    assert_int_equal(cuStreamBeginCapture_v2(w->stream, GLOBAL), OK);
    assert_int_equal(cuThreadExchangeStreamCaptureMode(&mode), OK);
    assert_int_equal(mode, GLOBAL);
    assert_int_equal(cuMemAlloc_v2(&q, 4), OK);
    assert_int_equal(cuMemFree_v2(q), OK);
    assert_int_equal(cuThreadExchangeStreamCaptureMode(&mode), OK);
    assert_int_equal(cuStreamEndCapture(w->stream, &graph), OK);
    assert_int_equal(cuGraphDestroy(graph), OK);
    assert_int_equal(cuStreamBeginCapture_v2(w->stream, RELAXED), OK);
    assert_int_equal(cuStreamSynchronize(w->stream), UNSUPPORTED);
    assert_int_equal(add(w, w->add, w->stream, 1, 1), INVALIDATED);
    assert_int_equal(cuStreamEndCapture(w->stream, &graph), INVALIDATED);
    assert_int_equal(cuStreamCreate(&blocking, 0), OK);
    assert_int_equal(cuStreamBeginCapture_v2(blocking, RELAXED), OK);
    assert_int_equal(add(w, w->add, NULL, 1, 1), IMPLICIT);
    assert_int_equal(cuStreamDestroy_v2(blocking), OK); /* with what it captured */
    assert_int_equal(cuStreamDestroy_v2(blocking), INVALID_HANDLE);
}

/* ---- threads */

typedef struct worker {
    pthread_t thread;
    const world *world;
    void *context;
    uint32_t number;
    bool done;
} worker;

static bool work(const worker *own, void *stream)
{
    world w = *own->world;
    uint32_t zeros[COUNT] = {0};
    void *module, *function;
    if (cuMemAlloc_v2(&w.p, sizeof zeros) || cuMemcpyHtoD_v2(w.p, zeros, sizeof zeros) || cuModuleLoadData(&module, image) ||
        cuModuleGetFunction(&function, module, "few") || add(&w, w.add, stream, own->number, COUNT) ||
        add(&w, function, stream, 1, COUNT) || cuStreamSynchronize(stream) || cuModuleUnload(module))
        return false;
    bool right = last_word(&w) == own->number + 1 && w.host[0] == own->number + 1;
    return !cuMemFree_v2(w.p) && right;
}

static void *run_worker(void *user)
{
    worker *own = user;
    void *stream;
    own->done = !cuCtxSetCurrent(own->context) && !cuStreamCreate(&stream, 1);
    for (int i = 0; i < 20 && own->done; ++i) own->done = work(own, stream);
    own->done = own->done && !cuStreamDestroy_v2(stream) && !cuCtxSetCurrent(NULL);
    return NULL;
}

static void threads_work_side_by_side(void **state)
{
    worker workers[6];
    void *context;
    assert_int_equal(cuCtxPopCurrent_v2(&context), OK);
    assert_int_equal(cuStreamSynchronize(NULL), INVALID_CONTEXT);
    assert_int_equal(cuCtxPushCurrent_v2(context), OK);
    for (uint32_t i = 0; i < 6; ++i) {
        workers[i] = (worker){.world = *state, .context = context, .number = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]), 0);
    }
    for (int i = 0; i < 6; ++i) {
        pthread_join(workers[i].thread, NULL);
        assert_true(workers[i].done);
    }
}

/* The last of all: a kernel that leaves its block takes the context with it, and every call says so. */
static void a_fault_loses_the_context(void **state)
{
    world *w = *state;
    void *stream;
    assert_int_equal(add(w, w->add, w->stream, 1, COUNT + 1), LAUNCH_FAILED);
    assert_int_equal(add(w, w->add, w->stream, 1, 1), LAUNCH_FAILED);
    assert_int_equal(cuMemcpyDtoH_v2(w->host, w->p, 4), LAUNCH_FAILED);
    assert_int_equal(cuCtxSynchronize(), LAUNCH_FAILED);
    assert_int_equal(cuStreamSynchronize(w->stream), LAUNCH_FAILED);
    assert_int_equal(cuStreamCreate(&stream, 0), LAUNCH_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_has_bounds),
                                       cmocka_unit_test(modules_are_told_apart),
                                       cmocka_unit_test(launches_that_are_too_much),
                                       cmocka_unit_test(launches_with_attributes),
                                       cmocka_unit_test(tensor_maps_that_are_wrong),
                                       cmocka_unit_test(captures_are_replayed),
                                       cmocka_unit_test(captures_are_invalidated),
                                       cmocka_unit_test(threads_work_side_by_side),
                                       cmocka_unit_test(what_only_the_benchmark_calls),
                                       cmocka_unit_test(a_fault_loses_the_context)};
    return cmocka_run_group_tests(tests, open_world, close_world);
}
