/* notes.h - what was timed once on a GPU: a few bytes under a text that says everything they depend on, known to the process and
 * kept beside the compiled kernels. dense_choice.c remembers algorithms so, timed_picks.c kernels. */
#ifndef LAC_CUDA_NOTES_H
#define LAC_CUDA_NOTES_H

#include "cuda/state.h"

enum { LAC_NOTE_KEY_SIZE = 1024, LAC_NOTE_MOST_BYTES = 128 };

/* The process's own, under programs->notes_lock. NULL where there is none; a note takes the place of an older one of its key. */
const void *lac_note_find(const lac_cuda_programs *programs, const char *key);
lac_status lac_note_add(lac_cuda_programs *programs, const char *key, const void *data, size_t bytes);

/* On disk, for one version (not 0) of what was timed. NOT_FOUND, without a message, where there is none that is sound and has so many
 * bytes; what these say is for the caller to check. That a note cannot be written is a warning. */
lac_status lac_note_load(const char *key, int version, void *data, size_t bytes);
void lac_note_store(const char *key, int version, const void *data, size_t bytes);

#endif
