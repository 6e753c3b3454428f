/* library.c - the search behind library.h. cuda_driver.c, nvml.c, peer.c and the baselines call it. */
#include "library.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_SIZE = 1024 };

const char *bench_library_find(void *library, const bench_function *functions)
{
    for (; functions->name; functions++) {
        void *found = dlsym(library, functions->name);
        if (!found && !functions->is_optional) return functions->name;
        /* ISO C has no cast from an object's pointer to a function's; POSIX promises that this copy is one. */
        memcpy(functions->pointer, &found, sizeof found);
    }
    return NULL;
}

/* In one folder, which may hold wildcards. */
static void *open_in(const char *folder, const char *name)
{
    char pattern[PATH_SIZE];
    glob_t found;
    void *library = NULL;
    if (snprintf(pattern, sizeof pattern, "%s/%s", folder, name) >= (int)sizeof pattern) return NULL;
    if (!glob(pattern, 0, NULL, &found))
        for (size_t i = 0; !library && i < found.gl_pathc; i++) library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_GLOBAL);
    globfree(&found);
    return library;
}

/* In each folder of a list such as PATH, with `below` appended. */
static void *open_in_list(const char *list, const char *below, const char *name)
{
    void *library = NULL;
    while (!library && list && *list) {
        char folder[PATH_SIZE];
        int length = (int)strcspn(list, ":");
        if (length && snprintf(folder, sizeof folder, "%.*s%s", length, list, below) < (int)sizeof folder)
            library = open_in(folder, name);
        list += length;
        if (*list) list++;
    }
    return library;
}

void *bench_library_open(const char *const *names, char *why, size_t why_size)
{
    static const char *const homes[] = {"CUDA_HOME", "CUDA_PATH"};
    static const char *const packages[] = {"/usr/local/lib/python3*/*-packages/nvidia/*/lib",
                                           "/usr/lib/python3*/dist-packages/nvidia/*/lib"};
    for (const char *const *name = names; *name; name++) {
        void *library = open_in_list(getenv("LAC_CUDA_LIBRARIES"), "", *name);
        if (!library) library = dlopen(*name, RTLD_NOW | RTLD_GLOBAL);
        for (size_t i = 0; !library && i < sizeof homes / sizeof *homes; i++)
            library = open_in_list(getenv(homes[i]), "/lib64", *name);
        if (!library) library = open_in("/usr/local/cuda/lib64", *name);
        /* bin/python3 of an environment stands beside its lib/python3.x/site-packages. */
        if (!library) library = open_in_list(getenv("PATH"), "/../lib/python3*/site-packages/nvidia/*/lib", *name);
        if (!library) library = open_in_list(getenv("HOME"), "/.local/lib/python3*/site-packages/nvidia/*/lib", *name);
        for (size_t i = 0; !library && i < sizeof packages / sizeof *packages; i++) library = open_in(packages[i], *name);
        if (library) return library;
    }
    snprintf(why, why_size, "%s was not found; name its folder in LAC_CUDA_LIBRARIES", *names);
    return NULL;
}

void *bench_library_load(const char *const *names, const bench_function *functions, char *why, size_t why_size)
{
    void *library = bench_library_open(names, why, why_size);
    const char *missing = library ? bench_library_find(library, functions) : NULL;
    if (!missing) return library;
    snprintf(why, why_size, "%.*s has no %s: it is too old", (int)strcspn(*names, "."), *names, missing);
    return NULL;
}
