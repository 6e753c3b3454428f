/* replay.c - runs a fuzz target over the files of a folder, without libFuzzer and in any build, so that ordinary test
 * runs see every seed and every finding that was turned into one. Usage: replay_<target> FOLDER. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "fuzz.h"

/* The targets' mutators want it; nothing is mutated here. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room)
{
    (void)data, (void)room;
    return size;
}

static int replay(const char *path)
{
    static uint8_t data[1 << 16];
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    size_t size = fread(data, 1, sizeof data, file);
    int complete = feof(file) && !ferror(file);
    fclose(file);
    if (complete) LLVMFuzzerTestOneInput(data, size);
    return complete;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: replay_<target> FOLDER\n");
        return 2;
    }
    int done = 0;
    struct dirent *entry;
    while ((entry = readdir(folder))) {
        char path[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", argv[1], entry->d_name);
        if (!replay(path)) {
            fprintf(stderr, "cannot read %s\n", path);
            return 1;
        }
        done++;
    }
    closedir(folder);
    printf("%d files replayed\n", done);
    return done > 0 ? 0 : 1;
}
