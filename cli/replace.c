/* replace.c - see replace.h. bench_files.c, budget.c and help.c call it. */
#include "replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* ".lacuna-<16 digits>.tmp" in the same folder, new: named as the library names its own, however long the file's name is. */
static int create_beside(cli_replacement *r)
{
    unsigned long long number;
    const char *slash = strrchr(r->path, '/');
    int folder = slash ? (int)(slash + 1 - r->path) : 0;
    size_t room = (size_t)folder + 32;
    r->temporary = malloc(room);
    if (!r->temporary || getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number) return -1;
    snprintf(r->temporary, room, "%.*s.lacuna-%016llx.tmp", folder, r->path, number);
    return open(r->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
}

static void give_back(cli_replacement *r)
{
    int error = errno;
    free(r->text);
    free(r->temporary);
    free(r->path);
    *r = (cli_replacement){0};
    errno = error;
}

/* The file that text will go to: a new one beside what it replaces, or where pipes and terminals are, themselves. -1: none. */
static int create(cli_replacement *r, const char *path)
{
    struct stat found;
    int there = stat(path, &found) == 0;
    if (!there && errno == ENAMETOOLONG) return -1;                                /* the rename alone would find it out */
    if (there && !S_ISREG(found.st_mode)) return open(path, O_WRONLY | O_CLOEXEC); /* or a folder, which says so itself */
    if (there && access(path, W_OK) != 0) return -1; /* a rename would replace what may not be written */
    r->path = there ? realpath(path, NULL) : strdup(path);
    int descriptor = r->path ? create_beside(r) : -1;
    if (descriptor >= 0 && there) (void)!fchmod(descriptor, found.st_mode & 0777);
    return descriptor;
}

/* Not open_memstream: without memory that leaves text out, and its ferror says nothing of it. */
static ssize_t add_text(void *opaque, const char *more, size_t bytes)
{
    cli_replacement *r = opaque;
    char *text = realloc(r->text, r->bytes + bytes);
    if (!text) return 0; /* an error, to the stream */
    memcpy(text + r->bytes, more, bytes);
    r->text = text;
    r->bytes += bytes;
    return (ssize_t)bytes;
}

int cli_replace_open(cli_replacement *r, const char *path)
{
    *r = (cli_replacement){0};
    r->descriptor = create(r, path);
    if (r->descriptor >= 0 && (r->to = fopencookie(r, "w", (cookie_io_functions_t){.write = add_text}))) return 0;
    int error = errno;
    if (r->descriptor >= 0) {
        close(r->descriptor);
        if (r->temporary) unlink(r->temporary);
    }
    errno = error;
    give_back(r);
    return -1;
}

static int write_all(int descriptor, const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t done = write(descriptor, text, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return -1;
        text += done;
        bytes -= (size_t)done;
    }
    return 0;
}

int cli_replace_close(cli_replacement *r, int keep)
{
    int failed = ferror(r->to), error = ENOMEM; /* the only thing that memory lacks */
    if (fclose(r->to)) failed = 1;
    if (!failed && keep) {
        failed = write_all(r->descriptor, r->text, r->bytes) || (r->temporary && fsync(r->descriptor));
        error = errno;
    }
    if (close(r->descriptor) && !failed) failed = 1, error = errno;
    if (r->temporary && !failed && keep && rename(r->temporary, r->path)) failed = 1, error = errno;
    if (r->temporary && (failed || !keep)) unlink(r->temporary);
    errno = error;
    give_back(r);
    return failed ? -1 : 0;
}
