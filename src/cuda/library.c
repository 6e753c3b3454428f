/* library.c - finds libcuda, NVRTC and cuBLAS without asking anybody to install or configure anything: where the system's loader
 * looks, in the CUDA toolkit, and next to the Python packages that carry them. Python itself is not run: the folders where
 * it keeps its packages are well known. Called by driver.c, nvrtc.c, cublas.c and cublaslt.c, once each in a process. */
#include "cuda/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where it lies: as asked for when that was a path, else in the folder that the loader found it in. */
static void note_path(lac_library *library, const char *asked)
{
    char folder[PATH_MAX];
    if (!strchr(asked, '/') && dlinfo(library->handle, RTLD_DI_ORIGIN, folder) == 0)
        snprintf(library->path, sizeof library->path, "%.400s/%.100s", folder, asked);
    else
        snprintf(library->path, sizeof library->path, "%.511s", asked);
}

static int open_at(lac_library *library, const char *path)
{
    library->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library->handle) return 0;
    note_path(library, path);
    library->note[0] = '\0';
    return 1;
}

int lac_library_open_override(lac_library *library, const char *override)
{
    const char *path = secure_getenv(override);
    if (!path || !*path) return 0;
    if (open_at(library, path)) return 1;
    const char *why = dlerror();
    snprintf(library->note, sizeof library->note, "%s is '%.80s', which does not open: %.120s", override, path,
             why ? why : "unknown reason");
    return 1;
}

int lac_library_open(lac_library *library, const char *name, const char *const *patterns)
{
    if (open_at(library, name)) return 1;
    for (size_t i = 0; patterns && patterns[i]; ++i) {
        char pattern[PATH_MAX];
        if (snprintf(pattern, sizeof pattern, "%s/%s", patterns[i], name) >= (int)sizeof pattern) continue;
        glob_t found;
        if (glob(pattern, 0, NULL, &found) != 0) continue;
        /* The last one in order is the newest Python. */
        for (size_t j = found.gl_pathc; j-- > 0 && !library->handle;) open_at(library, found.gl_pathv[j]);
        globfree(&found);
        if (library->handle) return 1;
    }
    return 0;
}

const char *lac_library_find(const lac_library *library, const lac_library_symbol *symbols, void *table)
{
    for (; symbols->name; ++symbols) {
        void *found = dlsym(library->handle, symbols->name);
        if (!found && !symbols->is_optional) return symbols->name;
        /* ISO C has no cast from an object's pointer to a function's; POSIX promises that this copy is one. */
        memcpy((char *)table + symbols->offset, &found, sizeof found);
    }
    return NULL;
}

typedef struct folder_list {
    const char **patterns;
    size_t count, most;
    char *buffer;
    size_t left;
} folder_list;

/* Adds "<prefix><suffix>" unless the prefix is unset; silently full when the list is. */
static void add(folder_list *list, const char *prefix, const char *suffix)
{
    if (!prefix || !*prefix || list->count + 1 >= list->most) return;
    int length = snprintf(list->buffer, list->left, "%s%s", prefix, suffix);
    if (length < 0 || (size_t)length >= list->left) return;
    list->patterns[list->count++] = list->buffer;
    list->buffer += length + 1;
    list->left -= (size_t)length + 1;
}

/* A Python installation: the packages nvidia-cuda-nvrtc and torch keep libraries in these places. */
static void add_python(folder_list *list, const char *prefix)
{
    add(list, prefix, "/lib/python3*/site-packages/nvidia/*/lib");
    add(list, prefix, "/lib/python3*/site-packages/torch/lib");
    add(list, prefix, "/lib/python3*/dist-packages/nvidia/*/lib");
    add(list, prefix, "/lib/python3*/dist-packages/torch/lib");
}

/* The installation of the first python3 on PATH: the folder above the one where the program really lies. */
static void add_python_on_path(folder_list *list)
{
    const char *path = secure_getenv("PATH");
    while (path && *path) {
        size_t length = strcspn(path, ":");
        char program[PATH_MAX], real[PATH_MAX];
        if (length && snprintf(program, sizeof program, "%.*s/python3", (int)length, path) < (int)sizeof program &&
            access(program, X_OK) == 0) {
            /* A virtual environment's python3 is a link: its packages lie beside the link, the others where it points. */
            char *ends[] = {program, realpath(program, real)};
            for (int i = 0; i < 2; ++i) {
                for (int up = 0; ends[i] && up < 2; ++up) {
                    char *slash = strrchr(ends[i], '/');
                    if (slash) *slash = '\0';
                }
                add_python(list, ends[i]);
            }
            return;
        }
        path += length + (path[length] == ':');
    }
}

size_t lac_library_folders(const char **patterns, size_t most, char *buffer, size_t buffer_size)
{
    folder_list list = {patterns, 0, most, buffer, buffer_size};
    const char *home = secure_getenv("HOME"), *pyenv = secure_getenv("PYENV_ROOT");
    add(&list, secure_getenv("CUDA_HOME"), "/lib64");
    add(&list, secure_getenv("CUDA_PATH"), "/lib64");
    add(&list, "/usr/local/cuda", "/lib64");
    add_python(&list, secure_getenv("VIRTUAL_ENV"));
    add(&list, secure_getenv("CONDA_PREFIX"), "/lib");
    add_python(&list, secure_getenv("CONDA_PREFIX"));
    add_python_on_path(&list);
    add_python(&list, pyenv);
    add(&list, pyenv, "/versions/*/lib/python3*/site-packages/nvidia/*/lib");
    add(&list, home, "/.pyenv/versions/*/lib/python3*/site-packages/nvidia/*/lib");
    add(&list, home, "/.pyenv/versions/*/lib/python3*/site-packages/torch/lib");
    add(&list, home, "/.local/lib/python3*/site-packages/nvidia/*/lib");
    add(&list, home, "/.local/lib/python3*/site-packages/torch/lib");
    add_python(&list, "/usr/local");
    add_python(&list, "/usr");
    add(&list, "/usr/local/cuda-*", "/lib64");
    patterns[list.count] = NULL;
    return list.count;
}

bool lac_library_load(const lac_library *library, const lac_library_symbol *symbols, void *table, const char *absent,
                      char *note, size_t note_size)
{
    if (!library->handle) {
        snprintf(note, note_size, "%s", *library->note ? library->note : absent);
        return false;
    }
    const char *missing = lac_library_find(library, symbols, table);
    if (missing) snprintf(note, note_size, "%.300s has no %s: it is too old", library->path, missing);
    return !missing;
}

void lac_library_describe(const lac_library *library, const char *name, bool usable, const char *note, lac_component_info *info)
{
    snprintf(info->name, sizeof info->name, "%s", name);
    snprintf(info->path, sizeof info->path, "%s", library->path);
    info->available = usable;
    if (!usable) snprintf(info->note, sizeof info->note, "%.255s", note);
}
