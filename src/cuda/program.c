/* program.c - a request becomes a function on the device: out of the GPU's memory of it, out of the cache on disk, or
 * out of the compiler, which then fills both. Called by the dataflows' prepare, and by compile.c on machines without a GPU. */
#include "cuda/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "cuda/cache.h"
#include "cuda/sources.h"
#include "cuda/state.h"
#include "format/weight.h"

/* Raise it when images of the same sources and options must not be used any more. */
enum { KEY_VERSION = 1, MOST_SOURCES = 24, MOST_OPTIONS = LAC_CUDA_MOST_DEFINES + 8, OPTION_SIZE = 96 };

struct lac_cuda_entry {
    lac_cuda_entry *next;
    lac_cu_module module;
    lac_cu_function function;
    atomic_uint shared_allowed; /* written under build_lock */
    char key[];
};

/* ---- requests */

void lac_cuda_request_begin(lac_cuda_request *request, const char *source, const char *entry)
{
    *request = (lac_cuda_request){.source = source, .entry = entry};
}

/* One too many is counted and not written; lac_cuda_program_get refuses it. */
void lac_cuda_request_define(lac_cuda_request *request, const char *name, int64_t value)
{
    if (request->define_count < LAC_CUDA_MOST_DEFINES) request->defines[request->define_count] = (lac_cuda_define){name, value};
    ++request->define_count;
}

void lac_cuda_request_define_problem(lac_cuda_request *request, const lac_problem *problem)
{
    const lac_plan_options *o = &problem->options;
    lac_cuda_request_define(request, "LAC_W_DTYPE", problem->weight->dtype);
    lac_cuda_request_define(request, "LAC_X_DTYPE", o->x_dtype);
    lac_cuda_request_define(request, "LAC_Y_DTYPE", o->y_dtype);
    lac_cuda_request_define(request, "LAC_C_DTYPE", o->c_dtype);
    lac_cuda_request_define(request, "LAC_BIAS_DTYPE", o->bias_dtype);
    lac_cuda_request_define(request, "LAC_X_TOKEN_MAJOR", o->x_layout == LAC_LAYOUT_TOKEN_MAJOR);
    lac_cuda_request_define(request, "LAC_Y_TOKEN_MAJOR", o->y_layout == LAC_LAYOUT_TOKEN_MAJOR);
    lac_cuda_request_define(request, "LAC_HAS_BIAS", o->has_bias);
    lac_cuda_request_define(request, "LAC_HAS_RESIDUAL", o->has_residual);
    lac_cuda_request_define(request, "LAC_ACTIVATION", o->activation);
    lac_cuda_request_define(request, "LAC_HAS_ROW_PERM", problem->weight->part[LAC_PART_ROW_PERM].data != NULL);
}

/* ---- a request as a job for the compiler, and as a key */

typedef struct build_job {
    const lac_cuda_source *sources[MOST_SOURCES]; /* the file itself, then all it includes, directly or not */
    int source_count;
    const char *headers[MOST_SOURCES], *header_names[MOST_SOURCES];
    char option_text[MOST_OPTIONS][OPTION_SIZE];
    const char *options[MOST_OPTIONS]; /* the architecture first */
    int option_count;
} build_job;

static const lac_cuda_source *find_source(const char *name, size_t length)
{
    for (size_t i = 0; i < lac_cuda_source_count; ++i)
        if (strlen(lac_cuda_sources[i].name) == length && !strncmp(lac_cuda_sources[i].name, name, length))
            return &lac_cuda_sources[i];
    return NULL;
}

/* Adds a file and, recursively, what its lines #include "..." name. */
static lac_status add_source(build_job *job, const char *name, size_t length)
{
    for (int i = 0; i < job->source_count; ++i)
        if (strlen(job->sources[i]->name) == length && !strncmp(job->sources[i]->name, name, length)) return LAC_STATUS_OK;
    const lac_cuda_source *source = find_source(name, length);
    if (!source || job->source_count == MOST_SOURCES)
        return lac_fail(LAC_STATUS_INTERNAL, "device code '%.*s': %s", (int)length, name,
                        source ? "it includes too many files" : "there is no such file");
    job->sources[job->source_count++] = source;
    static const char word[] = "#include \"";
    for (const char *at = source->text; (at = strstr(at, word));) {
        at += sizeof word - 1;
        lac_status status = add_source(job, at, strcspn(at, "\"\n"));
        if (status) return status;
    }
    return LAC_STATUS_OK;
}

static void add_option(build_job *job, const char *text)
{
    snprintf(job->option_text[job->option_count], OPTION_SIZE, "%s", text);
    job->options[job->option_count] = job->option_text[job->option_count];
    ++job->option_count;
}

/* What the environment asks for besides: -lineinfo for a profiler, a constant for a sanitizer. Part of the key like all options. */
static lac_status add_wanted(build_job *job)
{
    const char *wanted = secure_getenv("LAC_CUDA_OPTIONS");
    size_t length;
    for (const char *at = wanted ? wanted : ""; *(at += strspn(at, " ")); at += length) {
        char text[OPTION_SIZE];
        length = strcspn(at, " ");
        if (length >= sizeof text || job->option_count == MOST_OPTIONS)
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "LAC_CUDA_OPTIONS has '%.*s': %s", (int)(length < 100 ? length : 100),
                            at,
                            length >= sizeof text ? "an option of over 95 characters" : "more options than there is room for");
        snprintf(text, sizeof text, "%.*s", (int)length, at);
        add_option(job, text);
    }
    return LAC_STATUS_OK;
}

static lac_status make_job(const lac_cuda_state *state, const lac_cuda_request *request, build_job *job)
{
    job->source_count = job->option_count = 0;
    if (request->define_count > LAC_CUDA_MOST_DEFINES)
        return lac_fail(LAC_STATUS_INTERNAL, "%s: %d constants are too many", request->source, request->define_count);
    lac_status status = add_source(job, request->source, strlen(request->source));
    if (status) return status;
    for (int i = 1; i < job->source_count; ++i) {
        job->headers[i - 1] = job->sources[i]->text;
        job->header_names[i - 1] = job->sources[i]->name;
    }
    char text[OPTION_SIZE];
    snprintf(text, sizeof text, "--gpu-architecture=%s", state->arch);
    add_option(job, text);
    add_option(job, "-std=c++17");
    add_option(job, "-default-device");
    add_option(job, "--ptxas-options=-v");
    for (int i = 0; i < request->define_count; ++i) {
        snprintf(text, sizeof text, "-D%.60s=%lld", request->defines[i].name, (long long)request->defines[i].value);
        add_option(job, text);
    }
    return add_wanted(job);
}

enum { KEY_SIZE = 512 + MOST_OPTIONS * OPTION_SIZE };

/* Too large for a stack that may be a small thread's. */
typedef struct build_scratch {
    build_job job;
    char key[KEY_SIZE];
} build_scratch;

/* Everything that the image depends on, but for the compiler's version. */
static void write_key(const build_job *job, const lac_cuda_request *request, char key[KEY_SIZE])
{
    lac_hash hash = lac_hash_begin();
    for (int i = 0; i < job->source_count; ++i) {
        lac_hash_add(&hash, job->sources[i]->name, strlen(job->sources[i]->name) + 1);
        lac_hash_add(&hash, job->sources[i]->text, job->sources[i]->length + 1);
    }
    int used = snprintf(key, KEY_SIZE, "lacuna kernel %d\nsource %.100s\nentry %.100s\ntext %016llx%016llx\n", KEY_VERSION,
                        request->source, request->entry, (unsigned long long)hash.high, (unsigned long long)hash.low);
    for (int i = 0; i < job->option_count; ++i) used += snprintf(key + used, KEY_SIZE - (size_t)used, "%s\n", job->options[i]);
}

/* ---- images */

static lac_status compile_image(const build_job *job, const char *key, const lac_cuda_image_options *options,
                                lac_cuda_image *out)
{
    const char *note;
    const lac_nvrtc *nvrtc = lac_nvrtc_get(&note);
    if (!nvrtc)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "%s for %s is not in the cache, and there is no compiler: %s",
                        job->sources[0]->name, job->options[0], note);
    lac_nvrtc_job compile = {.name = job->sources[0]->name,
                             .source = job->sources[0]->text,
                             .header_count = job->source_count - 1,
                             .headers = job->headers,
                             .header_names = job->header_names,
                             .option_count = job->option_count,
                             .options = job->options};
    lac_cuda_image image;
    lac_status status = lac_nvrtc_compile(nvrtc, &compile, &image);
    if (status) return status;
    status = lac_cache_store(options->folder, key, nvrtc->version, &image);
    if (status && options->must_store) {
        lac_release(image.data);
        return status;
    }
    if (status) lac_log(LAC_LOG_LEVEL_WARNING, "%s; kernels are compiled anew in every process", lac_last_error());
    *out = image;
    return LAC_STATUS_OK;
}

static lac_status get_image(const build_job *job, const char *key, const lac_cuda_image_options *options, bool *found,
                            lac_cuda_image *out)
{
    const lac_nvrtc *nvrtc = options->any_compiler ? NULL : lac_nvrtc_get(NULL);
    lac_status status = LAC_STATUS_NOT_FOUND;
    if (!options->fresh) status = lac_cache_load(options->folder, key, nvrtc ? nvrtc->version : 0, out);
    *found = status == LAC_STATUS_OK;
    return status == LAC_STATUS_NOT_FOUND ? compile_image(job, key, options, out) : status;
}

lac_status lac_cuda_image_get(const lac_device *device, const lac_cuda_request *request, const lac_cuda_image_options *options,
                              bool *found, lac_cuda_image *out)
{
    build_scratch *scratch = lac_allocate(sizeof *scratch);
    if (!scratch) return lac_fail_memory("a compilation", sizeof *scratch);
    lac_status status = make_job(lac_cuda_state_of(device), request, &scratch->job);
    if (!status) {
        write_key(&scratch->job, request, scratch->key);
        status = get_image(&scratch->job, scratch->key, options, found, out);
    }
    lac_release(scratch);
    return status;
}

void lac_cuda_image_release(lac_cuda_image *image)
{
    lac_release(image->data);
    *image = (lac_cuda_image){0};
}

/* ---- functions */

static lac_cuda_entry *find_entry(lac_cuda_programs *programs, const char *key)
{
    pthread_rwlock_rdlock(&programs->entries_lock);
    lac_cuda_entry *entry = programs->entries;
    while (entry && strcmp(entry->key, key)) entry = entry->next;
    pthread_rwlock_unlock(&programs->entries_lock);
    return entry;
}

/* Loads the image; the context is current. */
static int load_module(const lac_cuda_driver *driver, const lac_cuda_image *image, const char *name, lac_cuda_entry *entry)
{
    int result = driver->cuModuleLoadData(&entry->module, image->data);
    if (result) return result;
    result = driver->cuModuleGetFunction(&entry->function, entry->module, name);
    if (result) driver->cuModuleUnload(entry->module);
    return result;
}

/* An image from disk that the driver does not take is no reason to give up: it is compiled once more. */
static lac_status load_entry(const lac_device *device, const build_job *job, const lac_cuda_request *request,
                             lac_cuda_entry *entry)
{
    const lac_cuda_driver *driver = lac_cuda_state_of(device)->driver;
    bool entered, found = false;
    lac_status status = lac_cuda_enter(device, request->entry, &entered);
    if (status) return status;
    lac_cuda_image image;
    status = get_image(job, entry->key, &(lac_cuda_image_options){0}, &found, &image);
    if (!status) {
        int result = load_module(driver, &image, request->entry, entry);
        lac_cuda_image_release(&image);
        if (found && (result == LAC_CU_INVALID_IMAGE || result == LAC_CU_NO_BINARY) &&
            !(status = get_image(job, entry->key, &(lac_cuda_image_options){.fresh = true}, &found, &image))) {
            result = load_module(driver, &image, request->entry, entry);
            lac_cuda_image_release(&image);
        }
        if (!status) status = lac_cuda_check(result, request->entry);
    }
    lac_cuda_leave(device, entered);
    return status;
}

/* Under build_lock. */
static lac_status build_entry(const lac_device *device, const build_job *job, const lac_cuda_request *request, const char *key,
                              lac_cuda_entry **out)
{
    lac_cuda_programs *programs = lac_cuda_state_of(device)->programs;
    uint64_t bytes = sizeof(lac_cuda_entry) + strlen(key) + 1;
    lac_cuda_entry *entry = lac_allocate_zeroed(bytes);
    if (!entry) return lac_fail_memory("a loaded kernel", bytes);
    memcpy(entry->key, key, strlen(key) + 1);
    lac_status status = load_entry(device, job, request, entry);
    if (status) {
        lac_release(entry);
        return status;
    }
    pthread_rwlock_wrlock(&programs->entries_lock);
    entry->next = programs->entries;
    programs->entries = entry;
    pthread_rwlock_unlock(&programs->entries_lock);
    *out = entry;
    return LAC_STATUS_OK;
}

/* Under build_lock: lets the function have so much dynamic shared memory, once for the largest wish. */
static lac_status allow_shared(const lac_device *device, const lac_cuda_request *request, lac_cuda_entry *entry)
{
    const lac_cuda_state *state = lac_cuda_state_of(device);
    unsigned shared_bytes = request->shared_bytes;
    if (shared_bytes <= atomic_load(&entry->shared_allowed)) return LAC_STATUS_OK;
    if (shared_bytes > state->target.shared_per_block)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "%s wants %u bytes of shared memory; %s has %u for a block", request->entry,
                        shared_bytes, device->info.name, state->target.shared_per_block);
    bool entered;
    lac_status status = lac_cuda_enter(device, request->entry, &entered);
    if (status) return status;
    status = lac_cuda_check(
        state->driver->cuFuncSetAttribute(entry->function, LAC_CU_FUNCTION_DYNAMIC_SHARED, (int)shared_bytes), request->entry);
    if (!status) atomic_store(&entry->shared_allowed, shared_bytes);
    lac_cuda_leave(device, entered);
    return status;
}

lac_status lac_cuda_program_get(const lac_device *device, const lac_cuda_request *request, lac_cu_function *out)
{
    lac_cuda_state *state = lac_cuda_state_of(device);
    lac_cuda_programs *programs = state->programs;
    if (!programs)
        return lac_fail(LAC_STATUS_DEVICE, "%s: the device is %s, a target to compile for without a GPU", request->entry,
                        device->info.name);
    build_scratch *scratch = lac_allocate(sizeof *scratch);
    if (!scratch) return lac_fail_memory("a kernel's key", sizeof *scratch);
    lac_status status = make_job(state, request, &scratch->job);
    lac_cuda_entry *entry = NULL;
    if (!status) {
        write_key(&scratch->job, request, scratch->key);
        entry = find_entry(programs, scratch->key);
        if (!entry || request->shared_bytes > atomic_load(&entry->shared_allowed)) {
            pthread_mutex_lock(&programs->build_lock);
            if (!entry) entry = find_entry(programs, scratch->key); /* somebody may have built it meanwhile */
            if (!entry) status = build_entry(device, &scratch->job, request, scratch->key, &entry);
            if (!status) status = allow_shared(device, request, entry);
            pthread_mutex_unlock(&programs->build_lock);
        }
    }
    lac_release(scratch);
    if (!status) *out = entry->function;
    return status;
}

/* ---- whose they are */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static lac_cuda_programs *all; /* of every GPU that is open */

lac_status lac_cuda_programs_hold(int ordinal, lac_cuda_programs **out)
{
    pthread_mutex_lock(&all_lock);
    lac_cuda_programs *programs = all;
    while (programs && programs->ordinal != ordinal) programs = programs->next;
    if (!programs && (programs = lac_allocate_zeroed(sizeof *programs))) {
        programs->ordinal = ordinal;
        pthread_rwlock_init(&programs->entries_lock, NULL);
        pthread_mutex_init(&programs->build_lock, NULL);
        pthread_mutex_init(&programs->notes_lock, NULL);
        programs->next = all;
        all = programs;
    }
    if (programs) ++programs->holders;
    pthread_mutex_unlock(&all_lock);
    *out = programs;
    return programs ? LAC_STATUS_OK : lac_fail_memory("programs of a GPU", sizeof *programs);
}

void lac_cuda_programs_release(const lac_cuda_driver *driver, lac_cuda_programs *programs)
{
    if (!programs) return;
    pthread_mutex_lock(&all_lock);
    bool last = --programs->holders == 0;
    lac_cuda_programs **link = &all;
    while (last && *link != programs) link = &(*link)->next;
    if (last) *link = programs->next;
    pthread_mutex_unlock(&all_lock);
    if (!last) return;
    for (lac_cuda_entry *entry = programs->entries, *next; entry; entry = next) {
        next = entry->next;
        driver->cuModuleUnload(entry->module);
        lac_release(entry);
    }
    pthread_rwlock_destroy(&programs->entries_lock);
    pthread_mutex_destroy(&programs->build_lock);
    pthread_mutex_destroy(&programs->notes_lock);
    lac_cuda_notes_release(programs->notes);
    lac_release(programs);
}
