/* turns.c - see turns.h. run.c opens it; run.c and cell.c call it around whatever is timed.
 *
 * Two bytes of the file are locked. Who prepares holds the floor with others, who times holds it alone. The door is held only on
 * the way to the floor, by those who wait to time as well, so that these do not wait for ever behind a stream of others. A process that
 * ends, however it ends, gives its locks back. */
#include "turns.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DOOR, FLOOR };

/* Locks on one byte of a file of ours fail for a signal alone. */
static void set(int turns, short how, off_t byte)
{
    struct flock lock = {.l_type = how, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    while (fcntl(turns, F_SETLKW, &lock) && errno == EINTR) continue;
}

static void enter(int turns, short how)
{
    if (turns < 0) return;
    set(turns, F_UNLCK, FLOOR);
    set(turns, F_WRLCK, DOOR);
    set(turns, how, FLOOR);
    set(turns, F_UNLCK, DOOR);
}

int bench_turns_open(const char *path, char *why, unsigned long why_size)
{
    int turns = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (turns < 0) snprintf(why, why_size, "--turns '%s': %s", path, strerror(errno));
    bench_turns_together(turns);
    return turns;
}

void bench_turns_alone(int turns) { enter(turns, F_WRLCK); }

void bench_turns_together(int turns) { enter(turns, F_RDLCK); }

void bench_turns_close(int turns)
{
    if (turns >= 0) close(turns);
}
