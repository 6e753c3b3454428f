/* library.h - finds a vendor's library at run time, so that building needs none of them. */
#ifndef LACUNA_BENCH_LIBRARY_H
#define LACUNA_BENCH_LIBRARY_H

#include <stddef.h>

/* Opens the first of the file names (NULL-terminated) that is found: where LAC_CUDA_LIBRARIES says (folders with colons
 * between), where the system looks, in CUDA_HOME and /usr/local/cuda, and in the folders of the Python packages that
 * bring CUDA along (those of the python3 that is first in PATH, or of the user). NULL: nowhere, and `why` says so. */
void *bench_library_open(const char *const *names, char *why, size_t why_size);

/* Fills the pointer to a function at `function`; 0 when the library has none of that name. */
int bench_library_find(void *library, const char *name, void *function);

#endif
