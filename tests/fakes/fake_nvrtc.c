/* fake_nvrtc.c - an NVRTC that compiles anything into a few bytes, at once, and counts how often it was asked. Tests name it
 * in LAC_NVRTC_LIBRARY: what they test is what becomes of its images. A define FAKE_ERROR in the options is a syntax error, and so is
 * a source that the test does not like; with FAKE_NVRTC_SERIALIZED in the environment its products wait for each other, and the log
 * says so. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct program {
    char name[64];
    char image[256];
    char log[512];
    int failed;
} program;

static atomic_long compiled;
static const int major = 13;
static _Thread_local char last_name[64];
static char refused_name[64];
static int refuses;

long fake_compiled(void) { return compiled; }

/* What tests say and ask while nobody compiles. Programs whose source's name begins so are refused: "" all, NULL none. */
void fake_refuse_source(const char *name)
{
    refuses = name != NULL;
    snprintf(refused_name, sizeof refused_name, "%s", name ? name : "");
}
/* Of the program that this thread has compiled last. */
const char *fake_last_source(void) { return last_name; }

int nvrtcVersion(int *out_major, int *minor)
{
    const char *wanted = getenv("FAKE_NVRTC_MINOR");
    *out_major = major;
    *minor = wanted ? atoi(wanted) : 0;
    return 0;
}

const char *nvrtcGetErrorString(int result) { return result ? "NVRTC_ERROR_COMPILATION" : "NVRTC_SUCCESS"; }

int nvrtcCreateProgram(program **out, const char *source, const char *name, int headers, const char *const *texts,
                       const char *const *names)
{
    (void)texts, (void)names;
    *out = calloc(1, sizeof **out);
    if (!*out) return 1;
    snprintf((*out)->name, sizeof(*out)->name, "%s", name);
    snprintf((*out)->image, sizeof(*out)->image, "FAKECUBIN %.40s of %zu bytes and %d headers", name, strlen(source), headers);
    return 0;
}

int nvrtcCompileProgram(program *p, int count, const char *const *options)
{
    compiled++;
    if (refuses && !strncmp(p->name, refused_name, strlen(refused_name))) p->failed = 1;
    for (int i = 0; i < count; ++i)
        if (!strncmp(options[i], "-DFAKE_ERROR", 12)) p->failed = 1;
    if (!p->failed) snprintf(last_name, sizeof last_name, "%s", p->name);
    const char *waits = getenv("FAKE_NVRTC_SERIALIZED")
                            ? "ptxas info    : (C7513) wgmma.mma_async instructions are serialized due to input registers\n"
                            : "";
    if (p->failed)
        snprintf(p->log, sizeof p->log, "x.cu(7): error: expected a \";\"\nsecond line\nthird\nfourth\nfifth line\n");
    else
        snprintf(p->log, sizeof p->log,
                 "%sptxas info    : Function properties for f\n    32 bytes stack frame, 8 bytes spill stores, 12 bytes spill "
                 "loads\nptxas info    : Used 40 registers, used 1 barriers, 1024 bytes smem\n",
                 waits);
    return p->failed ? 6 : 0;
}

int nvrtcDestroyProgram(program **p)
{
    free(*p);
    *p = NULL;
    return 0;
}

int nvrtcGetProgramLogSize(program *p, size_t *bytes)
{
    *bytes = strlen(p->log) + 1;
    return 0;
}

int nvrtcGetProgramLog(program *p, char *log)
{
    memcpy(log, p->log, strlen(p->log) + 1);
    return 0;
}

int nvrtcGetCUBINSize(program *p, size_t *bytes)
{
    *bytes = p->failed ? 0 : sizeof p->image;
    return 0;
}

int nvrtcGetCUBIN(program *p, char *image)
{
    memcpy(image, p->image, sizeof p->image);
    return 0;
}
