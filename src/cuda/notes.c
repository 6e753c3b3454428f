/* notes.c - what was timed once on a GPU; see notes.h. */
#include "cuda/notes.h"

#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "cuda/cache.h"

struct lac_cuda_note {
    lac_cuda_note *next;
    char key[LAC_NOTE_KEY_SIZE];
    _Alignas(8) char data[LAC_NOTE_MOST_BYTES];
};

void lac_cuda_notes_release(lac_cuda_note *notes)
{
    for (lac_cuda_note *next; notes; notes = next) {
        next = notes->next;
        lac_release(notes);
    }
}

static lac_cuda_note *find(const lac_cuda_programs *programs, const char *key)
{
    lac_cuda_note *note = programs->notes;
    while (note && strcmp(note->key, key)) note = note->next;
    return note;
}

const void *lac_note_find(const lac_cuda_programs *programs, const char *key)
{
    const lac_cuda_note *note = find(programs, key);
    return note ? note->data : NULL;
}

lac_status lac_note_add(lac_cuda_programs *programs, const char *key, const void *data, size_t bytes)
{
    size_t length = strlen(key);
    if (length >= LAC_NOTE_KEY_SIZE || bytes > LAC_NOTE_MOST_BYTES)
        return lac_fail(LAC_STATUS_INTERNAL, "a note of %zu bytes with a key of %zu", bytes, length);
    lac_cuda_note *note = find(programs, key);
    if (!note) {
        if (!(note = lac_allocate_zeroed(sizeof *note))) return lac_fail_memory("what was timed", sizeof *note);
        memcpy(note->key, key, length + 1);
        note->next = programs->notes;
        programs->notes = note;
    }
    memcpy(note->data, data, bytes);
    return LAC_STATUS_OK;
}

lac_status lac_note_load(const char *key, int version, void *data, size_t bytes)
{
    lac_cuda_image image = {0};
    lac_status status = lac_cache_load(NULL, key, version, &image);
    if (status) return status;
    bool sound = image.bytes == bytes;
    if (sound) memcpy(data, image.data, bytes);
    lac_release(image.data);
    return sound ? LAC_STATUS_OK : LAC_STATUS_NOT_FOUND;
}

void lac_note_store(const char *key, int version, const void *data, size_t bytes)
{
    char copy[LAC_NOTE_MOST_BYTES];
    memcpy(copy, data, bytes);
    lac_cuda_image image = {.data = copy, .bytes = bytes};
    if (lac_cache_store(NULL, key, version, &image))
        lac_log(LAC_LOG_LEVEL_WARNING, "%s; what is timed is timed anew in every process", lac_last_error());
}
