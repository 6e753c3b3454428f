/* peer.c - opens another implementation behind peer.h. */
#include <dlfcn.h>
#include <string.h>

#include "harness.h"
#include "library.h"

int bench_peer_open(bench_peer *peer, const char *path, char *why, size_t why_size)
{
    /* A bare name is a file here, not something for the loader to look for. */
    char local[4096];
    snprintf(local, sizeof local, "%s%s", strchr(path, '/') ? "" : "./", path);
    void *library = dlopen(local, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, why_size, "%s", dlerror());
        return -1;
    }
    int (*version)(void);
    const char *(*name)(void);
    bench_peer found;
    const bench_function functions[] = {{.pointer = &version, .name = "lac_peer_version"},
                                        {.pointer = &name, .name = "lac_peer_name"},
                                        {.pointer = &found.layout, .name = "lac_peer_layout"},
                                        {.pointer = &found.prepare, .name = "lac_peer_prepare"},
                                        {.pointer = &found.run, .name = "lac_peer_run"},
                                        {.pointer = &found.release, .name = "lac_peer_release"},
                                        {.name = NULL}};
    const char *missing = bench_library_find(library, functions);
    if (missing) {
        snprintf(why, why_size, "it has no function '%s'; bench/peer.h lists what a peer must have", missing);
        dlclose(library);
        return -1;
    }
    if (version() != LAC_PEER_VERSION) {
        snprintf(why, why_size, "it was built for version %d of peer.h; this is version %d", version(), LAC_PEER_VERSION);
        dlclose(library);
        return -1;
    }
    snprintf(found.name, sizeof found.name, "%s", name());
    *peer = found; /* the library stays open for the rest of the process */
    return 0;
}
