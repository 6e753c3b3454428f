/* nvrtc.c - the real NVRTC, asked for PTX where Lacuna asks for machine code: an emulator of machine code nobody could write. Lacuna
 * opens it where LAC_NVRTC_LIBRARY names it; driver.c takes what comes out of it. Nothing of it needs a GPU.
 *
 *     EMULATOR_NVRTC=PATH    the real one; scripts/emulate.sh says where it is
 *
 * An image is the PTX with its terminating zero, under the name of a CUBIN. Options for ptxas are left out, since it is not run. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct program program; /* the real one's */

static struct {
    int (*version)(int *major, int *minor);
    const char *(*error_string)(int result);
    int (*create)(program **out, const char *source, const char *name, int headers, const char *const *texts,
                  const char *const *names);
    int (*compile)(program *p, int count, const char *const *options);
    int (*destroy)(program **p);
    int (*log_size)(program *p, size_t *bytes);
    int (*log)(program *p, char *log);
    int (*ptx_size)(program *p, size_t *bytes);
    int (*ptx)(program *p, char *ptx);
} real;

enum { NOT_THERE = 9000, NO_MEMORY = 1 }; /* results of its own; NVRTC's end far below the first, and the second is NVRTC's */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool usable;
static char why[512] = "the emulator's NVRTC was not opened";

/* ---- finding it */

/* Where the loader finds one; scripts/emulate.sh knows where Lacuna does. */
static void *search(void)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    void *handle = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && !handle; ++i) handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!handle) snprintf(why, sizeof why, "the loader finds no real libnvrtc for the emulator; EMULATOR_NVRTC may name it");
    return handle;
}

EXPORT int nvrtcCreateProgram(program **out, const char *source, const char *name, int headers, const char *const *texts,
                              const char *const *names);

static void open_real(void)
{
    const struct {
        void *field;
        const char *name;
    } functions[] = {{&real.version, "nvrtcVersion"},
                     {&real.error_string, "nvrtcGetErrorString"},
                     {&real.create, "nvrtcCreateProgram"},
                     {&real.compile, "nvrtcCompileProgram"},
                     {&real.destroy, "nvrtcDestroyProgram"},
                     {&real.log_size, "nvrtcGetProgramLogSize"},
                     {&real.log, "nvrtcGetProgramLog"},
                     {&real.ptx_size, "nvrtcGetPTXSize"},
                     {&real.ptx, "nvrtcGetPTX"}};
    const char *wanted = getenv("EMULATOR_NVRTC");
    void *handle = wanted && *wanted ? dlopen(wanted, RTLD_NOW | RTLD_LOCAL) : search();
    if (!handle) {
        const char *reason = wanted && *wanted ? dlerror() : NULL;
        if (reason) snprintf(why, sizeof why, "EMULATOR_NVRTC is '%.200s', which does not open: %.200s", wanted, reason);
        return;
    }
    for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
        void *symbol = dlsym(handle, functions[i].name);
        if (!symbol) {
            snprintf(why, sizeof why, "the real libnvrtc has no %s", functions[i].name);
            return;
        }
        memcpy(functions[i].field, &symbol, sizeof symbol);
    }
    usable = real.create != nvrtcCreateProgram;
    if (!usable) snprintf(why, sizeof why, "what was opened as the real libnvrtc is the emulator's own");
}

static bool is_there(void)
{
    pthread_once(&once, open_real);
    return usable;
}

/* ---- what Lacuna calls */

EXPORT int nvrtcVersion(int *major, int *minor)
{
    *major = *minor = 0;
    return is_there() ? real.version(major, minor) : NOT_THERE;
}

EXPORT const char *nvrtcGetErrorString(int result)
{
    if (!is_there()) return why;
    return real.error_string(result);
}

EXPORT int nvrtcCreateProgram(program **out, const char *source, const char *name, int headers, const char *const *texts,
                              const char *const *names)
{
    return is_there() ? real.create(out, source, name, headers, texts, names) : NOT_THERE;
}

/* sm_90a is machine code, compute_90a is PTX. */
EXPORT int nvrtcCompileProgram(program *p, int count, const char *const *options)
{
    static const char machine[] = "--gpu-architecture=sm_", assembler[] = "--ptxas-options";
    if (!is_there()) return NOT_THERE;
    const char **kept = malloc(((size_t)count + 1) * sizeof *kept);
    char arch[64];
    int number = 0;
    if (!kept) return NO_MEMORY;
    for (int i = 0; i < count; ++i) {
        if (!strncmp(options[i], assembler, sizeof assembler - 1)) continue;
        kept[number] = options[i];
        if (!strncmp(options[i], machine, sizeof machine - 1)) {
            snprintf(arch, sizeof arch, "--gpu-architecture=compute_%.30s", options[i] + sizeof machine - 1);
            kept[number] = arch;
        }
        ++number;
    }
    int result = real.compile(p, number, kept);
    free(kept);
    return result;
}

EXPORT int nvrtcDestroyProgram(program **p) { return is_there() ? real.destroy(p) : NOT_THERE; }
EXPORT int nvrtcGetProgramLogSize(program *p, size_t *bytes) { return is_there() ? real.log_size(p, bytes) : NOT_THERE; }
EXPORT int nvrtcGetProgramLog(program *p, char *log) { return is_there() ? real.log(p, log) : NOT_THERE; }
EXPORT int nvrtcGetCUBINSize(program *p, size_t *bytes) { return is_there() ? real.ptx_size(p, bytes) : NOT_THERE; }
EXPORT int nvrtcGetCUBIN(program *p, char *image) { return is_there() ? real.ptx(p, image) : NOT_THERE; }
