/* peer.c - opens another implementation behind peer.h. */
#include <dlfcn.h>
#include <string.h>

#include "harness.h"

static int find(void *library, const char *name, void *function, char *why, size_t why_size)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    if (!symbol) snprintf(why, why_size, "it has no function '%s'; bench/peer.h lists what a peer must have", name);
    return symbol != NULL;
}

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
    if (!find(library, "lac_peer_version", &version, why, why_size) || !find(library, "lac_peer_name", &name, why, why_size) ||
        !find(library, "lac_peer_layout", &found.layout, why, why_size) ||
        !find(library, "lac_peer_prepare", &found.prepare, why, why_size) ||
        !find(library, "lac_peer_run", &found.run, why, why_size) ||
        !find(library, "lac_peer_release", &found.release, why, why_size)) {
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
