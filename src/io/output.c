/* output.c - writes a temporary file beside the target and renames it when it is complete and on the disk, so that a
 * reader sees the old file or the new one and never a part. */
#include "io/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "io/text.h"

enum { NAME_ATTEMPTS = 100 };
/* What is written at a time: little enough that the checksum leaves it in the cache for the copy, and that the disk begins soon. */
static const uint64_t piece_bytes = UINT64_C(1) << 20;

static lac_status fail_errno(const lac_output *output, const char *what, int number)
{
    lac_error_text reason;
    return lac_fail(LAC_STATUS_IO, "%s: %s: %s", output->path, what, lac_error_describe(number, &reason));
}

lac_status lac_output_follow(const char *path, char **out)
{
    struct stat named, found;
    char real[PATH_MAX];
    bool leads = lstat(path, &named) == 0 && S_ISLNK(named.st_mode) && stat(path, &found) == 0 && realpath(path, real);
    *out = lac_copy_text(leads ? real : path);
    return *out ? LAC_STATUS_OK : lac_fail_memory("a path", strlen(leads ? real : path) + 1);
}

static lac_status open_folder(lac_output *output)
{
    char *slash = strrchr(output->path, '/');
    output->target = slash ? slash + 1 : output->path;
    if (*output->target == '\0')
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "path '%s' ends without a file name", output->path);
    char saved = '\0';
    if (slash) {
        saved = slash[1];
        slash[1] = '\0';
    }
    output->folder = open(slash ? output->path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int number = errno;
    if (slash) slash[1] = saved;
    return output->folder >= 0 ? LAC_STATUS_OK : fail_errno(output, "cannot open its folder", number);
}

/* A rename would replace a device or fail on a folder only after all the work. */
static lac_status check_target(lac_output *output)
{
    struct stat found;
    if (fstatat(output->folder, output->target, &found, 0) != 0) return LAC_STATUS_OK;
    if (S_ISDIR(found.st_mode)) return lac_fail(LAC_STATUS_IO, "%s: cannot write: it is a folder", output->path);
    if (!S_ISREG(found.st_mode)) return lac_fail(LAC_STATUS_IO, "%s: cannot write: it is not a regular file", output->path);
    output->mode = found.st_mode & 0777;
    return LAC_STATUS_OK;
}

/* What replaces a file is its owner's alone until it is complete: then it gets that file's permissions. */
static mode_t first_mode(const lac_output *output) { return output->mode < 0 ? 0666 : 0600; }

static lac_status create_temporary(lac_output *output)
{
    for (int attempt = 0; attempt < NAME_ATTEMPTS; attempt++) {
        uint64_t number;
        if (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) {
            if (errno == EINTR) continue;
            return fail_errno(output, "cannot draw a temporary name", errno);
        }
        snprintf(output->temporary, sizeof output->temporary, ".lacuna-%016" PRIx64 ".tmp", number);
        output->descriptor =
            openat(output->folder, output->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, first_mode(output));
        if (output->descriptor >= 0) return LAC_STATUS_OK;
        output->temporary[0] = '\0';
        if (errno != EEXIST && errno != EINTR) return fail_errno(output, "cannot create a temporary file beside it", errno);
    }
    return fail_errno(output, "cannot create a temporary file beside it", EEXIST);
}

/* The name is known beforehand, so nothing but a plain file of ours is taken. */
static lac_status open_partial(lac_output *output)
{
    struct stat found;
    snprintf(output->temporary, sizeof output->temporary, "%.250s.partial", output->target);
    output->stays = true;
    output->digest = lac_digest_begin();
    output->descriptor =
        openat(output->folder, output->temporary, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, first_mode(output));
    if (output->descriptor < 0) return fail_errno(output, "cannot open its partial file", errno);
    if (fstat(output->descriptor, &found) != 0 || !S_ISREG(found.st_mode))
        return lac_fail(LAC_STATUS_IO, "%s.partial: is not a regular file", output->path);
    return LAC_STATUS_OK;
}

static lac_status open_output(const char *path, lac_status (*open_file)(lac_output *), lac_output *out)
{
    lac_output output = {.folder = -1, .descriptor = -1, .mode = -1};
    lac_status status = lac_output_follow(path, &output.path);
    if (status != LAC_STATUS_OK) return status;
    status = open_folder(&output);
    if (status == LAC_STATUS_OK) status = check_target(&output);
    if (status == LAC_STATUS_OK) status = open_file(&output);
    if (status != LAC_STATUS_OK) {
        lac_output_discard(&output);
        return status;
    }
    *out = output;
    return LAC_STATUS_OK;
}

lac_status lac_output_open(const char *path, lac_output *out) { return open_output(path, create_temporary, out); }

lac_status lac_output_open_partial(const char *path, lac_output *out) { return open_output(path, open_partial, out); }

lac_status lac_output_pass(lac_output *output, uint64_t bytes, uint64_t digest, bool *passed)
{
    enum { CHUNK = 1 << 18 };
    uint8_t *chunk = lac_allocate(CHUNK);
    if (!chunk) return lac_fail_memory("a piece of a file", CHUNK);
    lac_digest found = lac_digest_begin();
    uint64_t done = 0;
    while (done < bytes) {
        uint64_t wanted = bytes - done < CHUNK ? bytes - done : CHUNK;
        ssize_t got = pread(output->descriptor, chunk, (size_t)wanted, (off_t)(output->bytes + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            lac_release(chunk);
            return fail_errno(output, "cannot read its partial file", errno);
        }
        if (got == 0) break; /* it ends before */
        lac_digest_add(&found, chunk, (uint64_t)got);
        done += (uint64_t)got;
    }
    lac_release(chunk);
    *passed = done == bytes && lac_digest_value(&found) == digest;
    if (!*passed) return LAC_STATUS_OK;
    output->bytes += bytes;
    if (lseek(output->descriptor, (off_t)output->bytes, SEEK_SET) < 0)
        return fail_errno(output, "cannot move within its partial file", errno);
    return LAC_STATUS_OK;
}

lac_status lac_output_cut(lac_output *output)
{
    while (ftruncate(output->descriptor, (off_t)output->bytes) != 0)
        if (errno != EINTR) return fail_errno(output, "cannot shorten its partial file", errno);
    return LAC_STATUS_OK;
}

/* Lets the disk begin with what was written since `first`, so that it works while the next piece is made; lac_output_commit waits for all of
 * it. Small pieces are left to the system, and so is everything where it knows no such call. */
static void begin_flush(const lac_output *output, uint64_t first)
{
#ifdef SYNC_FILE_RANGE_WRITE
    if (output->bytes - first >= UINT64_C(1) << 20)
        (void)sync_file_range(output->descriptor, (off_t)first, (off_t)(output->bytes - first), SYNC_FILE_RANGE_WRITE);
#else
    (void)output, (void)first;
#endif
}

static lac_status write_piece(lac_output *output, const uint8_t *p, uint64_t bytes)
{
    while (bytes > 0) {
        ssize_t done = write(output->descriptor, p, (size_t)bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) {
            int number = done < 0 ? errno : EIO;
            lac_error_text reason;
            return lac_fail(LAC_STATUS_IO, "%s: cannot write %" PRIu64 " bytes at %" PRIu64 ": %s", output->path, bytes,
                            output->bytes, lac_error_describe(number, &reason));
        }
        p += done;
        bytes -= (uint64_t)done;
        output->bytes += (uint64_t)done;
    }
    return LAC_STATUS_OK;
}

lac_status lac_output_write(lac_output *output, const void *data, uint64_t bytes)
{
    const uint64_t flushed_at_once = 8 * piece_bytes;
    const uint8_t *p = data;
    uint64_t first = output->bytes;
    while (bytes > 0) {
        uint64_t piece = bytes < piece_bytes ? bytes : piece_bytes;
        if (output->stays) lac_digest_add(&output->digest, p, piece);
        lac_status status = write_piece(output, p, piece);
        if (status != LAC_STATUS_OK) return status;
        p += piece;
        bytes -= piece;
        if (output->bytes - first >= flushed_at_once) {
            begin_flush(output, first);
            first = output->bytes;
        }
    }
    begin_flush(output, first);
    return LAC_STATUS_OK;
}

static int sync_descriptor(int descriptor)
{
    while (fsync(descriptor) != 0)
        if (errno != EINTR) return errno;
    return 0;
}

lac_status lac_output_commit(lac_output *output)
{
    lac_status status = output->stays ? lac_output_cut(output) : LAC_STATUS_OK;
    if (status != LAC_STATUS_OK) return status;
    if (output->mode >= 0) (void)!fchmod(output->descriptor, (mode_t)output->mode); /* some file systems know none */
    int number = sync_descriptor(output->descriptor);
    if (number != 0) return fail_errno(output, "cannot flush to the disk", number);
    int descriptor = output->descriptor;
    output->descriptor = -1;
    if (close(descriptor) != 0 && errno != EINTR) return fail_errno(output, "cannot close", errno);
    if (renameat(output->folder, output->temporary, output->folder, output->target) != 0)
        return fail_errno(output, "cannot rename the temporary file to it", errno);
    output->temporary[0] = '\0';
    number = sync_descriptor(output->folder);
    /* Some file systems cannot flush a folder; they order the rename themselves. */
    if (number != 0 && number != EINVAL && number != ENOTSUP && number != EROFS)
        return fail_errno(output, "is written, but its folder cannot be flushed to the disk", number);
    return LAC_STATUS_OK;
}

void lac_output_discard(lac_output *output)
{
    if (output->descriptor >= 0) close(output->descriptor);
    if (output->temporary[0] && !output->stays) unlinkat(output->folder, output->temporary, 0);
    if (output->folder >= 0) close(output->folder);
    lac_release(output->path);
    *output = (lac_output){.folder = -1, .descriptor = -1};
}
