/* library.h - finding a shared library that may or may not be on this machine, and its functions. driver.c, nvrtc.c, cublas.c
 * and cublaslt.c look for theirs. */
#ifndef LAC_CUDA_LIBRARY_H
#define LAC_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "lacuna.h"

typedef struct lac_library {
    void *handle;   /* NULL: not found                                             */
    char path[512]; /* where it was found; "" when not                             */
    char note[256]; /* what was looked for, or why the one that was named would not open */
} lac_library;

/* Opens the file that the environment variable `override` names when it is set, and then no other. */
int lac_library_open_override(lac_library *library, const char *override);
/* Opens `name` as the system finds it, or as it lies in one of the folders of `patterns` (shell globs, NULL-terminated).
 * Returns 1 when it opened. */
int lac_library_open(lac_library *library, const char *name, const char *const *patterns);
/* Where the CUDA toolkit and Python packages keep libraries on this machine: fills patterns[] with globs that lie in
 * `buffer`, and returns how many. */
size_t lac_library_folders(const char **patterns, size_t most, char *buffer, size_t buffer_size);

/* A function of a library: its name there, and where its pointer lies in the caller's table of functions. */
typedef struct lac_library_symbol {
    const char *name;
    size_t offset;
    bool is_optional;
} lac_library_symbol;

/* Fills in the table with the functions of a list that a name of NULL ends; an optional one that is not there is NULL.
 * Returns the name of the first one that is needed and not there, at which it stops, or NULL. */
const char *lac_library_find(const lac_library *library, const lac_library_symbol *symbols, void *table);
/* The same for a library of which all is needed, once it has been looked for. False: `note` says that it is too old, why it did not open,
 * or, where nothing was found, what `absent` says. */
bool lac_library_load(const lac_library *library, const lac_library_symbol *symbols, void *table, const char *absent,
                      char *note, size_t note_size);
/* What `lacuna devices` shows of a library, but for its version; `note` where it cannot be used. */
void lac_library_describe(const lac_library *library, const char *name, bool usable, const char *note,
                          lac_component_info *info);

#endif
