/* map.c - maps a file read-only. Files are hostile: what is opened must be a regular file, so that neither a pipe can
 * stall us nor a device has side effects. Called by file.c and shards.c. */
#include "io/map.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "io/text.h"

static const uint8_t empty_file[1];

static const char *kind_name(mode_t mode)
{
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a pipe";
    if (S_ISSOCK(mode)) return "a socket";
    if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
    return "something else";
}

/* The descriptor is closed by the caller; the mapping does not need it. */
static lac_status map_descriptor(int descriptor, const char *path, lac_map *map)
{
    struct stat status;
    lac_error_text reason;
    if (fstat(descriptor, &status) != 0)
        return lac_fail(LAC_STATUS_IO, "%s: cannot look at the file: %s", path, lac_error_describe(errno, &reason));
    if (!S_ISREG(status.st_mode))
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: is %s, not a regular file", path, kind_name(status.st_mode));
    map->bytes = (uint64_t)status.st_size;
    map->data = empty_file;
    if (map->bytes == 0) return LAC_STATUS_OK;
    if (map->bytes > SIZE_MAX)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "%s: %llu bytes do not fit this machine's address space", path,
                        (unsigned long long)map->bytes);
    void *data = mmap(NULL, (size_t)map->bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED)
        return lac_fail(errno == ENOMEM ? LAC_STATUS_OUT_OF_MEMORY : LAC_STATUS_IO, "%s: cannot map %llu bytes: %s", path,
                        (unsigned long long)map->bytes, lac_error_describe(errno, &reason));
    map->data = data;
    return LAC_STATUS_OK;
}

lac_status lac_map_open(const char *path, lac_map *out)
{
    lac_error_text reason;
    /* Without O_NONBLOCK, opening a pipe would wait for its writer. */
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (descriptor < 0) return lac_fail(LAC_STATUS_IO, "%s: cannot open: %s", path, lac_error_describe(errno, &reason));
    lac_map map = {0};
    lac_status status = map_descriptor(descriptor, path, &map);
    close(descriptor);
    if (status != LAC_STATUS_OK) return status;
    map.path = lac_copy_text(path);
    if (!map.path) {
        lac_map_close(&map);
        return lac_fail_memory("a path", strlen(path) + 1);
    }
    *out = map;
    return LAC_STATUS_OK;
}

void lac_map_close(lac_map *map)
{
    if (map->data && map->bytes > 0) munmap((void *)(uintptr_t)map->data, (size_t)map->bytes);
    lac_release(map->path);
    *map = (lac_map){0};
}
