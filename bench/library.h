/* library.h - finds a vendor's library and its functions at run time, so that building needs none of them. */
#ifndef LACUNA_BENCH_LIBRARY_H
#define LACUNA_BENCH_LIBRARY_H

#include <stddef.h>

/* Opens the first of the file names (NULL-terminated) that is found: where LAC_CUDA_LIBRARIES says (folders with colons
 * between), where the system looks, in CUDA_HOME and /usr/local/cuda, and in the folders of the Python packages that
 * bring CUDA along (those of the python3 that is first in PATH, or of the user). NULL: nowhere, and `why` says so. */
void *bench_library_open(const char *const *names, char *why, size_t why_size);

/* A function of a library: the caller's pointer to it, and its name there. */
typedef struct bench_function {
    void *pointer;
    const char *name;
    int is_optional;
} bench_function;

/* Fills in the pointers of a list that a name of NULL ends; an optional one that is not there becomes NULL. Returns the name
 * of the first one that is needed and not there, at which it stops, or NULL. */
const char *bench_library_find(void *library, const bench_function *functions);

/* Opens a library as above and finds its functions. NULL: there is none, or it lacks one of them, and `why` says so. */
void *bench_library_load(const char *const *names, const bench_function *functions, char *why, size_t why_size);

#endif
