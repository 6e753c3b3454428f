/* timed_picks.c - which kernel a race has found to be the quickest for a problem, remembered: what lac_device_ops.recall and
 * remember do on a GPU. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "cuda/cublaslt.h"
#include "cuda/notes.h"
#include "cuda/sources.h"

/* Raise KEY_VERSION when what was timed must not be used any more. */
enum { KEY_VERSION = 1 };

/* Which GPU, which kernels; the vendor's library, which may be one of them, goes by its version. */
static void write_key(const lac_device *device, const char *problem, char key[LAC_NOTE_KEY_SIZE])
{
    snprintf(key, LAC_NOTE_KEY_SIZE, "lacuna pick %d of %s\nkernels %s\nGPU %.100s, %d multiprocessors\n%s", KEY_VERSION,
             lac_version(), lac_cuda_sources_digest, device->info.model, device->info.cores, problem);
}

static int library_version(void)
{
    const lac_cublaslt *library = lac_cublaslt_get(NULL);
    return library ? (int)library->version : 1;
}

/* Whether the pick is one of the kernels that the problem names. */
static bool is_sound(const char *problem, const lac_timed_pick *pick)
{
    char line[LAC_KERNEL_NAME_SIZE + 8];
    if (!memchr(pick->kernel, '\0', sizeof pick->kernel) || !isfinite(pick->seconds) || pick->seconds < 0.0) return false;
    snprintf(line, sizeof line, "\nrival %s ", pick->kernel);
    return strstr(problem, line) != NULL;
}

/* Under notes_lock. */
static lac_status find_pick(lac_cuda_programs *programs, const char *problem, const char *key, lac_timed_pick *out)
{
    const lac_timed_pick *known = lac_note_find(programs, key);
    if (known) {
        *out = *known;
        return LAC_STATUS_OK;
    }
    lac_timed_pick stored;
    lac_status status = lac_note_load(key, library_version(), &stored, sizeof stored);
    if (status) return status;
    if (!is_sound(problem, &stored)) return LAC_STATUS_NOT_FOUND;
    *out = stored;
    return lac_note_add(programs, key, &stored, sizeof stored);
}

lac_status lac_cuda_recall(const lac_device *device, const char *problem, lac_timed_pick *out)
{
    lac_cuda_programs *programs = lac_cuda_state_of(device)->programs;
    char key[LAC_NOTE_KEY_SIZE];
    if (!programs) return LAC_STATUS_NOT_FOUND; /* there is no GPU behind it */
    write_key(device, problem, key);
    pthread_mutex_lock(&programs->notes_lock);
    lac_status status = find_pick(programs, problem, key, out);
    pthread_mutex_unlock(&programs->notes_lock);
    return status;
}

lac_status lac_cuda_remember(const lac_device *device, const char *problem, lac_timed_pick *pick)
{
    lac_cuda_programs *programs = lac_cuda_state_of(device)->programs;
    char key[LAC_NOTE_KEY_SIZE];
    write_key(device, problem, key);
    pthread_mutex_lock(&programs->notes_lock);
    lac_status status = find_pick(programs, problem, key, pick); /* others may have been quicker: one pick for all */
    if (status == LAC_STATUS_NOT_FOUND) {
        lac_note_store(key, library_version(), pick, sizeof *pick);
        status = lac_note_add(programs, key, pick, sizeof *pick);
    }
    pthread_mutex_unlock(&programs->notes_lock);
    return status;
}
