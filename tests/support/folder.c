/* folder.c - see folder.h. */
#include "support/folder.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[512];
static pid_t owner;
static int64_t file_count;

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info, (void)type;
    if (place->level == 0) return 0;
    return remove(path);
}

static int count_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)path, (void)info, (void)place;
    file_count += type != FTW_D && type != FTW_DP;
    return 0;
}

void test_folder_clear(void) { nftw(test_folder(), remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

/* A forked child must not take its parent's folder away. */
static void remove_folder(void)
{
    if (getpid() != owner) return;
    test_folder_clear();
    rmdir(folder);
}

const char *test_folder(void)
{
    if (folder[0]) return folder;
    const char *places[] = {getenv("LAC_TEST_FOLDER"), "/dev/shm", getenv("TMPDIR"), "/tmp"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (!places[i] || !*places[i]) continue;
        snprintf(folder, sizeof folder, "%s/lacuna-test-XXXXXX", places[i]);
        if (!mkdtemp(folder)) continue;
        owner = getpid();
        atexit(remove_folder);
        return folder;
    }
    fprintf(stderr, "test support: no place for a temporary folder\n");
    exit(2);
}

const char *test_path(const char *name)
{
    static char buffers[8][1024];
    static int turn;
    char *buffer = buffers[turn++ % 8];
    snprintf(buffer, sizeof buffers[0], "%s/%s", test_folder(), name);
    return buffer;
}

int64_t test_folder_files(void)
{
    file_count = 0;
    nftw(test_folder(), count_entry, 16, FTW_PHYS);
    return file_count;
}

void test_write_file(const char *path, const void *data, uint64_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        fprintf(stderr, "test support: cannot write %s\n", path);
        exit(2);
    }
}
