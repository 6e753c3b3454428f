/* nvrtc.c - finds and opens NVRTC and runs it. program.c calls it when neither memory nor disk has a kernel. NVRTC finds its
 * own libnvrtc-builtins beside itself. */
#include "cuda/nvrtc.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "cuda/driver.h"
#include "cuda/library.h"

static struct {
    lac_library library;
    lac_nvrtc table;
    bool usable;
    char note[640];
} opened;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define SYMBOL(symbol)                                                                                                         \
    {                                                                                                                          \
        .name = #symbol, .offset = offsetof(lac_nvrtc, symbol)                                                                 \
    }
static const lac_library_symbol symbols[] = {SYMBOL(nvrtcVersion),        SYMBOL(nvrtcGetErrorString),
                                             SYMBOL(nvrtcCreateProgram),  SYMBOL(nvrtcCompileProgram),
                                             SYMBOL(nvrtcDestroyProgram), SYMBOL(nvrtcGetProgramLogSize),
                                             SYMBOL(nvrtcGetProgramLog),  SYMBOL(nvrtcGetCUBINSize),
                                             SYMBOL(nvrtcGetCUBIN),       {.name = NULL}};

/* The driver loads images of its own major version and of those before it, so its own is looked for first, then older ones;
 * newer ones last, which do for compiling ahead. Without a driver the newest will do. */
static void search(void)
{
    static const int newest = 13, oldest = 12;
    const char *folders[64];
    char buffer[16384];
    lac_library_folders(folders, sizeof folders / sizeof *folders, buffer, sizeof buffer);
    int driver = lac_cuda_driver_version() / 1000;
    int first = driver >= oldest && driver <= newest ? driver : newest;
    for (int step = 0; step <= newest - oldest; ++step) {
        int major = first - step >= oldest ? first - step : first + (step - (first - oldest));
        char name[32];
        snprintf(name, sizeof name, "libnvrtc.so.%d", major);
        if (lac_library_open(&opened.library, name, folders)) return;
    }
    lac_library_open(&opened.library, "libnvrtc.so", folders);
}

static void open_nvrtc(void)
{
    if (!lac_library_open_override(&opened.library, "LAC_NVRTC_LIBRARY")) search();
    opened.usable = lac_library_load(&opened.library, symbols, &opened.table,
                                     "libnvrtc not found in the system, CUDA_HOME or Python's packages: pip install "
                                     "nvidia-cuda-nvrtc, or name it in LAC_NVRTC_LIBRARY",
                                     opened.note, sizeof opened.note);
    if (!opened.usable) return;
    int major = 0, minor = 0;
    opened.table.nvrtcVersion(&major, &minor);
    opened.table.version = major * 1000 + minor * 10;
    snprintf(opened.note, sizeof opened.note, "NVRTC %d.%d in %.500s", major, minor, opened.library.path);
}

const lac_nvrtc *lac_nvrtc_get(const char **note)
{
    pthread_once(&once, open_nvrtc);
    if (note) *note = opened.note;
    return opened.usable ? &opened.table : NULL;
}

void lac_nvrtc_describe(lac_component_info *info)
{
    pthread_once(&once, open_nvrtc);
    lac_library_describe(&opened.library, "libnvrtc", opened.usable, opened.note, info);
    if (opened.usable)
        snprintf(info->version, sizeof info->version, "%d.%d", opened.table.version / 1000, opened.table.version % 1000 / 10);
}

/* ---- compiling */

/* The number before `unit` in the line that `at` points into: "Used 40 registers". 0 when it is not there. */
static int number_before(const char *text, const char *unit)
{
    const char *at = strstr(text, unit);
    if (!at) return 0;
    while (at > text && at[-1] == ' ') --at;
    while (at > text && at[-1] >= '0' && at[-1] <= '9') --at;
    return atoi(at);
}

/* ptxas -v says what the kernel uses. An array whose index it cannot tell goes to the stack without a spill, and is as slow:
 *   0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
 *   Used 40 registers, used 1 barriers, 1024 bytes smem, 400 bytes cmem[0]
 * Before that, where products cannot be under way together: (C7510) Potential Performance Loss: wgmma.mma_async instructions are
 * serialized due to ... registers ... in the function 'f' */
static void read_usage(const char *log, lac_cuda_image *image)
{
    const char *used = strstr(log, "Used ");
    image->registers = used ? number_before(used, " registers") : 0;
    image->spill_bytes = number_before(log, " bytes spill stores") + number_before(log, " bytes spill loads");
    image->stack_bytes = number_before(log, " bytes stack frame");
    image->shared_bytes = number_before(log, " bytes smem");
    image->serialized = strstr(log, "wgmma.mma_async instructions are serialized") != NULL;
}

static lac_status read_log(const lac_nvrtc *nvrtc, lac_nvrtc_program *program, char **out)
{
    size_t bytes = 0;
    if (nvrtc->nvrtcGetProgramLogSize(program, &bytes)) bytes = 0;
    char *log = lac_allocate_zeroed(bytes + 1);
    if (!log) return lac_fail_memory("the compiler's log", bytes + 1);
    if (bytes) nvrtc->nvrtcGetProgramLog(program, log);
    *out = log;
    return LAC_STATUS_OK;
}

/* The first lines: a message has room for so much. */
static void cut_after_lines(char *text, int lines)
{
    for (; *text; ++text)
        if (*text == '\n' && --lines == 0) break;
    *text = '\0';
}

static lac_status take_image(const lac_nvrtc *nvrtc, lac_nvrtc_program *program, const char *log, lac_cuda_image *out)
{
    size_t bytes = 0;
    int result = nvrtc->nvrtcGetCUBINSize(program, &bytes);
    if (result || !bytes) return lac_fail(LAC_STATUS_DEVICE, "NVRTC made no image: %s", nvrtc->nvrtcGetErrorString(result));
    lac_cuda_image image = {.data = lac_allocate(bytes), .bytes = bytes};
    if (!image.data) return lac_fail_memory("a compiled kernel", bytes);
    if ((result = nvrtc->nvrtcGetCUBIN(program, image.data))) {
        lac_release(image.data);
        return lac_fail(LAC_STATUS_DEVICE, "NVRTC gave no image: %s", nvrtc->nvrtcGetErrorString(result));
    }
    read_usage(log, &image);
    *out = image;
    return LAC_STATUS_OK;
}

lac_status lac_nvrtc_compile(const lac_nvrtc *nvrtc, const lac_nvrtc_job *job, lac_cuda_image *out)
{
    lac_nvrtc_program *program = NULL;
    int result =
        nvrtc->nvrtcCreateProgram(&program, job->source, job->name, job->header_count, job->headers, job->header_names);
    if (result)
        return lac_fail(LAC_STATUS_DEVICE, "%s: NVRTC takes no program: %s", job->name, nvrtc->nvrtcGetErrorString(result));
    result = nvrtc->nvrtcCompileProgram(program, job->option_count, job->options);
    char *log = NULL;
    lac_status status = read_log(nvrtc, program, &log);
    if (!status && result) {
        cut_after_lines(log, 4);
        status = lac_fail(LAC_STATUS_UNSUPPORTED, "%s: NVRTC %d.%d does not compile it for %s: %s: %.300s", job->name,
                          nvrtc->version / 1000, nvrtc->version % 1000 / 10, job->options[0],
                          nvrtc->nvrtcGetErrorString(result), log);
    }
    if (!status) status = take_image(nvrtc, program, log, out);
    lac_release(log);
    nvrtc->nvrtcDestroyProgram(&program);
    return status;
}
