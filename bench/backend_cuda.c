/* backend_cuda.c - buffers in a GPU's memory, time from events on a stream of the benchmark's own, short calls as graphs.
 * timing.c, cell.c and the vendors' libraries call it through its table. One GPU in a process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"
#include "cuda_ceiling.h"
#include "cuda_driver.h"
#include "nvml.h"

/* The numbers of cuda.h. */
enum { STREAM_NON_BLOCKING = 1, CAPTURE_RELAXED = 2, ARCH_MAJOR = 75, ARCH_MINOR = 76, MULTIPROCESSORS = 16 };

static struct {
    const bench_cuda_driver *driver;
    int device;
    void *context, *stream;
    void *events[BENCH_MOST_MARKS];
    bench_cuda_probe probe;
    void *module, *reader; /* of the sweep */
    uint64_t swept;        /* the block that it reads */
    size_t swept_bytes;
    void *landing; /* host memory that the GPU writes to by itself */
    size_t landing_bytes;
    char trouble[192];
    double last_look;
} gpu;

/* Only the first trouble is kept: what follows is its doing. */
static int failed(int result, const char *what)
{
    if (result && !gpu.trouble[0])
        snprintf(gpu.trouble, sizeof gpu.trouble, "%s: %s", what, bench_cuda_error(gpu.driver, result));
    return result;
}

static uint64_t address_of(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

static void *allocate(size_t bytes)
{
    uint64_t address = 0;
    /* Too little memory is an answer, not trouble. */
    return gpu.driver->allocate(&address, bytes ? bytes : 1) ? NULL : (void *)(uintptr_t)address;
}

static void release(void *block, size_t bytes)
{
    (void)bytes;
    if (block) failed(gpu.driver->release(address_of(block)), "freeing device memory");
}

/* A copy out of pageable memory returns when it is staged, and a stream that does not wait for the default one would not see the end of it. */
static void upload(void *to, const void *from, size_t bytes)
{
    if (bytes && !failed(gpu.driver->upload(address_of(to), from, bytes), "copying to the device"))
        failed(gpu.driver->stream_wait(NULL), "copying to the device");
}

static void download(void *to, const void *from, size_t bytes)
{
    if (bytes) failed(gpu.driver->download(to, address_of(from), bytes), "copying from the device");
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes) failed(gpu.driver->copy(address_of(to), address_of(from), bytes, gpu.stream), "copying on the device");
}

static void fill(void *to, unsigned char value, size_t bytes)
{
    if (bytes) failed(gpu.driver->fill(address_of(to), value, bytes, gpu.stream), "filling device memory");
}

/* Fixing pages takes the driver long: a run asks for its largest block first. */
static void *landing(size_t bytes)
{
    if (gpu.landing_bytes >= bytes) return gpu.landing;
    if (gpu.landing) gpu.driver->host_release(gpu.landing);
    gpu.landing_bytes = bytes;
    if (gpu.driver->host_allocate(&gpu.landing, gpu.landing_bytes, 0)) {
        gpu.landing = NULL;
        gpu.landing_bytes = 0;
    }
    return gpu.landing;
}

/* Reads, so that what it leaves in L2 need not be written back by the next kernel. */
static void sweep(size_t bytes)
{
    if (gpu.swept_bytes < bytes) {
        if (gpu.swept) failed(gpu.driver->release(gpu.swept), "freeing device memory");
        gpu.swept = 0;
        gpu.swept_bytes = 0;
        if (failed(gpu.driver->allocate(&gpu.swept, bytes), "memory to sweep L2 with")) return;
        gpu.swept_bytes = bytes;
    }
    failed(bench_cuda_reader_run(&gpu.probe, gpu.reader, gpu.swept, bytes), "sweeping L2");
}

static void mark(int index)
{
    if (!gpu.events[index] && failed(gpu.driver->event_create(&gpu.events[index], 0), "creating an event")) return;
    failed(gpu.driver->event_record(gpu.events[index], gpu.stream), "recording an event");
}

static void finish(void) { failed(gpu.driver->stream_wait(gpu.stream), "waiting for the GPU"); }

static double elapsed(int from, int to)
{
    float milliseconds = 0;
    failed(gpu.driver->event_elapsed(&milliseconds, gpu.events[from], gpu.events[to]), "reading events");
    return 1e-3 * (double)milliseconds;
}

static const char *trouble(void) { return gpu.trouble[0] ? gpu.trouble : NULL; }

/* ---- graphs */

static int record_begin(void) { return gpu.driver->capture_begin(gpu.stream, CAPTURE_RELAXED); }

static void *record_end(void)
{
    void *graph = NULL, *executable = NULL;
    if (gpu.driver->capture_end(gpu.stream, &graph) || !graph) return NULL;
    if (gpu.driver->graph_instantiate(&executable, graph, 0)) executable = NULL;
    gpu.driver->graph_destroy(graph);
    return executable;
}

static void replay(void *recording) { failed(gpu.driver->graph_launch(recording, gpu.stream), "launching a graph"); }
static void forget(void *recording)
{
    if (recording) failed(gpu.driver->executable_destroy(recording), "freeing a graph");
}

/* ---- clocks */

/* Ten times a second: asking takes the driver a while. */
static void watch(void)
{
    double now = bench_seconds();
    if (now - gpu.last_look < 0.1) return;
    gpu.last_look = now;
    bench_nvml_look();
}

static void watched(char *buffer, size_t size)
{
    bench_nvml_tell(buffer, size);
    bench_nvml_forget();
    gpu.last_look = 0;
}

static bench_backend cuda = {.kind = LAC_DEVICE_KIND_CUDA,
                             .allocate = allocate,
                             .release = release,
                             .upload = upload,
                             .download = download,
                             .copy = copy,
                             .fill = fill,
                             .landing = landing,
                             .sweep = sweep,
                             .mark = mark,
                             .finish = finish,
                             .elapsed = elapsed,
                             .trouble = trouble,
                             .record_begin = record_begin,
                             .record_end = record_end,
                             .replay = replay,
                             .forget = forget,
                             .watch = watch,
                             .watched = watched};

/* ---- opening */

static int open_device(int ordinal)
{
    char bus[32] = "";
    int major = 0, minor = 0, multiprocessors = 0;
    const bench_cuda_driver *d = gpu.driver;
    if (failed(d->init(0), "cuInit") || failed(d->device_get(&gpu.device, ordinal), "cuDeviceGet") ||
        failed(d->context_retain(&gpu.context, gpu.device), "the primary context") ||
        failed(d->context_set(gpu.context), "the primary context") ||
        failed(d->stream_create(&gpu.stream, STREAM_NON_BLOCKING), "creating a stream") ||
        failed(d->device_attribute(&major, ARCH_MAJOR, gpu.device), "the architecture") ||
        failed(d->device_attribute(&minor, ARCH_MINOR, gpu.device), "the architecture") ||
        failed(d->device_attribute(&multiprocessors, MULTIPROCESSORS, gpu.device), "the multiprocessors"))
        return -1;
    gpu.probe = (bench_cuda_probe){d, gpu.stream, 10 * major + minor, multiprocessors};
    gpu.reader = bench_cuda_reader_open(&gpu.probe, &gpu.module);
    if (!gpu.reader) {
        snprintf(gpu.trouble, sizeof gpu.trouble, "the driver does not compile the kernel that sweeps L2");
        return -1;
    }
    if (!d->device_bus(bus, sizeof bus, gpu.device)) bench_nvml_open(bus);
    return 0;
}

const bench_backend *bench_backend_cuda_open(const lac_device_info *device, char *why, size_t why_size)
{
    int ordinal = 0;
    gpu.driver = bench_cuda_driver_open(why, why_size);
    if (!gpu.driver) return NULL;
    if (sscanf(device->name, "cuda:%d", &ordinal) != 1 || open_device(ordinal)) {
        snprintf(why, why_size, "%s", gpu.trouble[0] ? gpu.trouble : "its name is not that of a GPU");
        bench_backend_cuda_close();
        return NULL;
    }
    cuda.stream = gpu.stream;
    return &cuda;
}

void bench_backend_cuda_close(void)
{
    const bench_cuda_driver *d = gpu.driver;
    if (!d) return;
    for (int i = 0; i < BENCH_MOST_MARKS; i++)
        if (gpu.events[i]) d->event_destroy(gpu.events[i]);
    if (gpu.swept) d->release(gpu.swept);
    if (gpu.landing) d->host_release(gpu.landing);
    if (gpu.module) d->module_unload(gpu.module);
    if (gpu.stream) d->stream_destroy(gpu.stream);
    if (gpu.context) d->context_release(gpu.device);
    memset(&gpu, 0, sizeof gpu);
}

uint64_t bench_backend_cuda_memory(void)
{
    size_t available = 0, total = 0;
    return gpu.driver && !gpu.driver->memory_info(&available, &total) ? available : 0;
}

int bench_backend_cuda_measure(int want_f16, int want_tf32, bench_ceiling *out, char *why, size_t why_size)
{
    return bench_cuda_ceiling_measure(&gpu.probe, want_f16, want_tf32, out, why, why_size);
}

void bench_backend_cuda_describe(char *buffer, size_t size)
{
    int version = 0;
    if (gpu.driver->driver_version(&version)) version = 0;
    snprintf(buffer, size, "driver=%s; cuda=%d.%d; power_limit_w=%.0f", bench_nvml_driver(), version / 1000, version / 10 % 100,
             bench_nvml_power_limit());
}
