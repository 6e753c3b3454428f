/* replace.c - see replace.h. bench_files.c and budget.c call it. */
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
    free(r->temporary);
    free(r->path);
    *r = (cli_replacement){0};
    errno = error;
}

int cli_replace_open(cli_replacement *r, const char *path)
{
    struct stat found;
    int there = stat(path, &found) == 0;
    *r = (cli_replacement){0};
    if (!there && errno == ENAMETOOLONG) return -1; /* the rename alone would find it out */
    if (there && !S_ISREG(found.st_mode)) {         /* or a folder, which says so itself */
        r->to = fopen(path, "w");
        return r->to ? 0 : -1;
    }
    if (there && access(path, W_OK) != 0) return -1; /* a rename would replace what may not be written */
    r->path = there ? realpath(path, NULL) : strdup(path);
    int descriptor = r->path ? create_beside(r) : -1;
    if (descriptor >= 0 && there) (void)!fchmod(descriptor, found.st_mode & 0777);
    if (descriptor >= 0 && !(r->to = fdopen(descriptor, "w"))) {
        close(descriptor);
        unlink(r->temporary);
    }
    if (r->to) return 0;
    give_back(r);
    return -1;
}

int cli_replace_close(cli_replacement *r, int keep)
{
    errno = 0;
    int failed = fflush(r->to) || ferror(r->to);
    if (!failed && keep && r->temporary) failed = fsync(fileno(r->to));
    int error = errno;
    if (fclose(r->to) && !failed) failed = 1, error = errno;
    if (r->temporary && !failed && keep && rename(r->temporary, r->path)) failed = 1, error = errno;
    if (r->temporary && (failed || !keep)) unlink(r->temporary);
    errno = error ? error : EIO;
    give_back(r);
    return failed ? -1 : 0;
}
