/* output.h - a file that appears whole or not at all. Used by the safetensors writer, .npy and .smtx. */
#ifndef LAC_IO_OUTPUT_H
#define LAC_IO_OUTPUT_H

#include <stdbool.h>

#include "core/digest.h"
#include "lacuna.h"

typedef struct lac_output {
    int folder;          /* the target's folder, kept open: a chdir cannot move us */
    int descriptor;      /* of the temporary file                                  */
    char *path;          /* the target, for messages                               */
    const char *target;  /* its last component, within path                        */
    char temporary[264]; /* the temporary file's name in the folder; "" when gone */
    uint64_t bytes;      /* written so far                                        */
    int mode;            /* the permissions of the file that it replaces; -1: of a new one */
    bool stays;          /* a file that a later run goes on with: it is not removed */
    lac_digest digest;   /* where it stays: of what was written since the caller last began one */
} lac_output;

/* What a link at `path` leads to, if it leads to a file, or `path` itself; lac_release gives it back. Both ways to open follow links. */
lac_status lac_output_follow(const char *path, char **out);
/* Makes the temporary file beside `path`. */
lac_status lac_output_open(const char *path, lac_output *out);
/* Opens or makes "<path>.partial", which outlives this process, and reads and writes it from its first byte. */
lac_status lac_output_open_partial(const char *path, lac_output *out);
/* Whether the next `bytes` of a partial file are there and have this digest; if so, they count as written. */
lac_status lac_output_pass(lac_output *output, uint64_t bytes, uint64_t digest, bool *passed);
/* Cuts a partial file off behind what counts as written. */
lac_status lac_output_cut(lac_output *output);
lac_status lac_output_write(lac_output *output, const void *data, uint64_t bytes);
/* Flushes, renames and flushes the folder. On failure the temporary file is still there, for lac_output_discard. */
lac_status lac_output_commit(lac_output *output);
/* Removes the temporary file, if there is one that does not stay, and gives everything back. */
void lac_output_discard(lac_output *output);

#endif
