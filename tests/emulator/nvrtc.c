/* nvrtc.c - the real NVRTC, asked for PTX where Lacuna asks for machine code: an emulator of machine code nobody could write. Lacuna
 * opens it where LAC_NVRTC_LIBRARY names it; driver.c takes what comes out of it. Nothing of it needs a GPU.
 *
 *     EMULATOR_NVRTC=PATH                   the real one; scripts/emulate.sh says where it is
 *     EMULATOR_MUTATE='FILE|LINE|OLD|NEW'   a wrong kernel, which the tests should find (mutate.py): on that line of that file, a program
 *                                           or a header, the first OLD becomes NEW. Programs without the file stay as they are
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

enum {
    NOT_THERE = 9000,
    NOT_FOUND,
    NO_MEMORY = 1
}; /* results of its own; NVRTC's end far below the first, and the last is NVRTC's */

static struct {
    char text[1024];
    const char *file, *old, *new; /* file is NULL: nothing is changed */
    long line;                    /* from 1 */
    char not_found[1200];
} mutant;

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

/* Takes EMULATOR_MUTATE apart; false where it cannot be. */
static bool read_mutant(void)
{
    const char *wanted = getenv("EMULATOR_MUTATE");
    if (!wanted || !*wanted) return true;
    snprintf(mutant.text, sizeof mutant.text, "%s", wanted);
    char *part[4] = {mutant.text}, *end = NULL;
    for (int i = 1; i < 4; ++i) {
        if (part[i - 1]) part[i] = strchr(part[i - 1], '|');
        if (part[i]) *part[i]++ = '\0';
    }
    if (part[3]) mutant.line = strtol(part[1], &end, 10);
    if (!part[3] || *end || mutant.line < 1 || !*part[2] || strlen(wanted) >= sizeof mutant.text) {
        snprintf(why, sizeof why, "EMULATOR_MUTATE is '%.300s'; it is like FILE|LINE|OLD|NEW", wanted);
        return false;
    }
    mutant.file = part[0], mutant.old = part[2], mutant.new = part[3];
    snprintf(mutant.not_found, sizeof mutant.not_found, "EMULATOR_MUTATE: line %ld of %s has no '%s'", mutant.line, mutant.file,
             mutant.old);
    return true;
}

static void open_real(void)
{
    if (!read_mutant()) return;
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

/* ---- a wrong kernel */

/* The text of the mutant's file with its change made, to be freed. */
static int mutate(const char *text, char **out)
{
    const char *line = text, *at = NULL;
    for (long i = 1; line && i < mutant.line; ++i)
        if ((line = strchr(line, '\n'))) ++line;
    if (line) at = strstr(line, mutant.old);
    if (!at || at >= line + strcspn(line, "\n")) return NOT_FOUND;
    size_t bytes = strlen(text) + strlen(mutant.new) + 1;
    if (!(*out = malloc(bytes))) return NO_MEMORY;
    snprintf(*out, bytes, "%.*s%s%s", (int)(at - text), text, mutant.new, at + strlen(mutant.old));
    return 0;
}

/* The same program, the file among its headers changed. */
static int create_with_header(program **out, const char *source, const char *name, int headers, const char *const *texts,
                              const char *const *names, int which)
{
    const char **all = malloc((size_t)headers * sizeof *all);
    char *changed = NULL;
    int result = all ? mutate(texts[which], &changed) : NO_MEMORY;
    if (!result) {
        memcpy(all, texts, (size_t)headers * sizeof *all);
        all[which] = changed;
        result = real.create(out, source, name, headers, all, names);
    }
    free(changed);
    free(all);
    return result;
}

static int create_with_source(program **out, const char *source, const char *name, int headers, const char *const *texts,
                              const char *const *names)
{
    char *changed = NULL;
    int result = mutate(source, &changed);
    if (!result) result = real.create(out, changed, name, headers, texts, names);
    free(changed);
    return result;
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
    return result == NOT_FOUND ? mutant.not_found : real.error_string(result);
}

EXPORT int nvrtcCreateProgram(program **out, const char *source, const char *name, int headers, const char *const *texts,
                              const char *const *names)
{
    if (!is_there()) return NOT_THERE;
    if (mutant.file && !strcmp(name, mutant.file)) return create_with_source(out, source, name, headers, texts, names);
    for (int i = 0; mutant.file && i < headers; ++i)
        if (!strcmp(names[i], mutant.file)) return create_with_header(out, source, name, headers, texts, names, i);
    return real.create(out, source, name, headers, texts, names);
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
