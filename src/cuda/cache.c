/* cache.c - the cache of compiled kernels on disk. Whoever can write an entry decides what runs on the GPU, so the folder
 * and its files must belong to this user or to root and be writable by nobody else, and links are not followed. Anything
 * that is not in order (damaged, truncated, foreign, of another version) is not an error but no entry, and is written anew. */
#include "cuda/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "cuda/driver.h"

/* ---- the hash: FNV-1a of 128 bits */

__extension__ typedef unsigned __int128 wide;

lac_hash lac_hash_begin(void) { return (lac_hash){0x6c62272e07bb0142u, 0x62b821756295c58du}; }

void lac_hash_add(lac_hash *hash, const void *data, uint64_t bytes)
{
    const wide prime = (wide)1 << 88 | 0x13b;
    const unsigned char *at = data;
    wide value = (wide)hash->high << 64 | hash->low;
    for (uint64_t i = 0; i < bytes; ++i) value = (value ^ at[i]) * prime;
    *hash = (lac_hash){(uint64_t)(value >> 64), (uint64_t)value};
}

/* ---- the file: this header, the key, the image */

static const char MAGIC[8] = {'L', 'A', 'C', 'C', 'U', 'B', 'I', 'N'};
enum { ENTRY_VERSION = 3 };
static const uint64_t MOST_BYTES = 256u << 20;

typedef struct entry_header {
    char magic[8];
    uint32_t version, compiler;
    uint64_t key_bytes, image_bytes;
    int32_t registers, spill_bytes, shared_bytes, stack_bytes, serialized, reserved;
    uint64_t checksum[2]; /* of all bytes of the file, these being 0 */
} entry_header;

static lac_hash checksum_of(entry_header header, const void *key, const void *image)
{
    header.checksum[0] = header.checksum[1] = 0;
    lac_hash hash = lac_hash_begin();
    lac_hash_add(&hash, &header, sizeof header);
    lac_hash_add(&hash, key, header.key_bytes);
    lac_hash_add(&hash, image, header.image_bytes);
    return hash;
}

/* "<hash of the key>-<compiler>.lac"; without the compiler the beginning that all have. */
static void name_entry(const char *key, int compiler, char name[64])
{
    lac_hash hash = lac_hash_begin();
    lac_hash_add(&hash, key, strlen(key));
    int used = snprintf(name, 64, "%016llx%016llx-", (unsigned long long)hash.high, (unsigned long long)hash.low);
    if (compiler) snprintf(name + used, 64 - (size_t)used, "%d.lac", compiler);
}

/* ---- the folder */

/* Where entries of this user lie: NULL, or what is wrong. */
static const char *default_folder(char path[PATH_MAX])
{
    const char *own = secure_getenv("LAC_CACHE_DIR"), *caches = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
    int length = 0;
    if (own && *own)
        length = snprintf(path, PATH_MAX, "%s", own);
    else if (caches && caches[0] == '/')
        length = snprintf(path, PATH_MAX, "%s/lacuna", caches);
    else if (home && home[0] == '/')
        length = snprintf(path, PATH_MAX, "%s/.cache/lacuna", home);
    if (!length) return "neither LAC_CACHE_DIR, XDG_CACHE_HOME nor HOME is set";
    return length < PATH_MAX ? NULL : "its name, of LAC_CACHE_DIR, XDG_CACHE_HOME or HOME, is too long";
}

/* Nobody but this user and root can have written it. */
static bool is_private(const struct stat *status)
{
    return (status->st_uid == geteuid() || status->st_uid == 0) && !(status->st_mode & (S_IWGRP | S_IWOTH));
}

/* mkdir -p, for this user alone. Failures show when the folder is opened. */
static void make_folder(const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof part) return;
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; ++i) {
        if (part[i] != '/' && part[i] != '\0') continue;
        char kept = part[i];
        part[i] = '\0';
        mkdir(part, 0700);
        part[i] = kept;
    }
}

/* A descriptor of the folder, or -1 with the reason in `why`. */
static int open_folder(const char *folder, bool create, char path[PATH_MAX], char why[256])
{
    const char *wrong = NULL;
    if (!folder)
        wrong = default_folder(path);
    else if (snprintf(path, PATH_MAX, "%s", folder) >= PATH_MAX)
        wrong = "its name is too long";
    if (wrong) {
        path[0] = '\0';
        snprintf(why, 256, "%s", wrong);
        return -1;
    }
    if (create) make_folder(path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;
    if (fd < 0) {
        snprintf(why, 256, "%s", errno == ELOOP || errno == ENOTDIR ? "it is no folder, or a link to one" : strerror(errno));
    } else if (fstat(fd, &status) || !is_private(&status)) {
        snprintf(why, 256, "it must belong to you or root, and others must not be able to write to it (chmod 700)");
        close(fd);
        fd = -1;
    }
    return fd;
}

/* ---- reading */

static bool read_all(int fd, void *to, uint64_t bytes)
{
    char *at = to;
    while (bytes > 0) {
        ssize_t got = read(fd, at, bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += got;
        bytes -= (uint64_t)got;
    }
    return true;
}

/* Whether the header fits the file's size and what was asked for. */
static bool is_wanted(const entry_header *header, uint64_t file_bytes, const char *key, int compiler)
{
    return !memcmp(header->magic, MAGIC, sizeof MAGIC) && header->version == ENTRY_VERSION &&
           (!compiler || header->compiler == (uint32_t)compiler) && header->key_bytes == strlen(key) &&
           header->image_bytes > 0 && header->image_bytes <= MOST_BYTES &&
           file_bytes == sizeof *header + header->key_bytes + header->image_bytes;
}

static lac_status load_from(int fd, const char *key, int compiler, lac_cuda_image *out)
{
    struct stat status;
    entry_header header;
    if (fstat(fd, &status) || !S_ISREG(status.st_mode) || !is_private(&status) || (uint64_t)status.st_size < sizeof header ||
        !read_all(fd, &header, sizeof header) || !is_wanted(&header, (uint64_t)status.st_size, key, compiler))
        return LAC_STATUS_NOT_FOUND;
    lac_cuda_image image = {.data = lac_allocate(header.image_bytes),
                            .bytes = header.image_bytes,
                            .registers = header.registers,
                            .spill_bytes = header.spill_bytes,
                            .shared_bytes = header.shared_bytes,
                            .stack_bytes = header.stack_bytes,
                            .serialized = header.serialized};
    char *stored_key = lac_allocate(header.key_bytes);
    bool has_memory = image.data && stored_key, sound = false;
    if (has_memory && read_all(fd, stored_key, header.key_bytes) && !memcmp(stored_key, key, header.key_bytes) &&
        read_all(fd, image.data, header.image_bytes)) {
        lac_hash hash = checksum_of(header, key, image.data);
        sound = hash.high == header.checksum[0] && hash.low == header.checksum[1];
    }
    lac_release(stored_key);
    if (sound)
        *out = image;
    else
        lac_release(image.data);
    if (!has_memory) return lac_fail_memory("a kernel from the cache", header.key_bytes + header.image_bytes);
    return sound ? LAC_STATUS_OK : LAC_STATUS_NOT_FOUND;
}

static lac_status load_named(int folder, const char *name, const char *key, int compiler, lac_cuda_image *out)
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return LAC_STATUS_NOT_FOUND;
    lac_status status = load_from(fd, key, compiler, out);
    close(fd);
    if (status == LAC_STATUS_NOT_FOUND)
        lac_log(LAC_LOG_LEVEL_INFO, "kernel cache: %s is damaged or not ours; it will be written anew", name);
    return status;
}

/* What a compiler's image is worth without one of our own: the newest that the driver is sure to know, else the oldest. */
static int worth_of(int compiler) { return compiler <= lac_cuda_driver_version() ? compiler : -compiler; }

/* Of the images of any compiler the one of the most worth below `limit`; its name goes into `name`, and its worth comes back. INT_MIN: none. */
static int find_below(DIR *list, const char *beginning, int limit, char name[64])
{
    int best = INT_MIN;
    rewinddir(list);
    for (struct dirent *item; (item = readdir(list));) {
        size_t length = strlen(beginning);
        if (strncmp(item->d_name, beginning, length) != 0 || strlen(item->d_name) >= 64) continue;
        int worth = worth_of(atoi(item->d_name + length));
        if (worth <= best || worth >= limit) continue;
        best = worth;
        snprintf(name, 64, "%.63s", item->d_name);
    }
    return best;
}

/* Without a compiler of our own: an image of any that is sound. */
static lac_status load_any(int folder, const char *key, lac_cuda_image *out)
{
    char beginning[64], name[64];
    name_entry(key, 0, beginning);
    int copy = dup(folder);
    DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
    if (!list) {
        if (copy >= 0) close(copy);
        return LAC_STATUS_NOT_FOUND;
    }
    lac_status status = LAC_STATUS_NOT_FOUND;
    for (int worth = INT_MAX; status == LAC_STATUS_NOT_FOUND && (worth = find_below(list, beginning, worth, name)) != INT_MIN;)
        status = load_named(folder, name, key, 0, out);
    closedir(list);
    return status;
}

lac_status lac_cache_load(const char *folder, const char *key, int compiler, lac_cuda_image *out)
{
    char path[PATH_MAX], why[256];
    int fd = open_folder(folder, false, path, why);
    if (fd < 0) return LAC_STATUS_NOT_FOUND;
    char name[64];
    name_entry(key, compiler, name);
    lac_status status = compiler ? load_named(fd, name, key, compiler, out) : load_any(fd, key, out);
    close(fd);
    return status;
}

/* ---- writing */

static bool write_all(int fd, const void *from, uint64_t bytes)
{
    const char *at = from;
    while (bytes > 0) {
        ssize_t put = write(fd, at, bytes);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        at += put;
        bytes -= (uint64_t)put;
    }
    return true;
}

/* The name is drawn: what a process that was killed has left is in nobody's way, and two containers may have processes of one number. */
static int create_temporary(int folder, const char *name, char temporary[128])
{
    unsigned long long number;
    if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) return -1;
    snprintf(temporary, 128, ".%s.%016llx", name, number);
    return openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static bool write_entry(int folder, const char *name, const entry_header *header, const char *key, const lac_cuda_image *image)
{
    char temporary[128];
    int fd = create_temporary(folder, name, temporary);
    if (fd < 0) return false;
    bool written = write_all(fd, header, sizeof *header) && write_all(fd, key, header->key_bytes) &&
                   write_all(fd, image->data, image->bytes);
    int error = errno;
    if (close(fd) && written) {
        written = false;
        error = errno;
    }
    if (written && renameat(folder, temporary, folder, name)) {
        written = false;
        error = errno;
    }
    if (!written) {
        unlinkat(folder, temporary, 0);
        errno = error;
    }
    return written;
}

lac_status lac_cache_store(const char *folder, const char *key, int compiler, const lac_cuda_image *image)
{
    char path[PATH_MAX], why[256];
    int fd = open_folder(folder, true, path, why);
    if (fd < 0) return lac_fail(LAC_STATUS_IO, "kernel cache '%.200s': %s", path, why);
    entry_header header = {.version = ENTRY_VERSION,
                           .compiler = (uint32_t)compiler,
                           .key_bytes = strlen(key),
                           .image_bytes = image->bytes,
                           .registers = image->registers,
                           .spill_bytes = image->spill_bytes,
                           .shared_bytes = image->shared_bytes,
                           .stack_bytes = image->stack_bytes,
                           .serialized = image->serialized};
    memcpy(header.magic, MAGIC, sizeof MAGIC);
    lac_hash hash = checksum_of(header, key, image->data);
    header.checksum[0] = hash.high;
    header.checksum[1] = hash.low;
    char name[64];
    name_entry(key, compiler, name);
    bool written = write_entry(fd, name, &header, key, image);
    int error = errno;
    close(fd);
    if (written) return LAC_STATUS_OK;
    return lac_fail(LAC_STATUS_IO, "kernel cache '%.200s': %s: %s", path, name, strerror(error));
}

void lac_cache_describe(lac_component_info *info)
{
    char path[PATH_MAX], why[256] = "";
    snprintf(info->name, sizeof info->name, "kernel cache");
    int fd = open_folder(NULL, false, path, why);
    int error = errno;
    snprintf(info->path, sizeof info->path, "%.511s", path);
    info->available = fd >= 0 || (path[0] && error == ENOENT); /* it is made when it is first needed */
    if (fd < 0) snprintf(info->note, sizeof info->note, "%s", info->available ? "made when it is first needed" : why);
    if (fd >= 0) close(fd);
}
