/* output.h - a file that appears whole or not at all. Used by the safetensors writer, .npy and .smtx. */
#ifndef LAC_IO_OUTPUT_H
#define LAC_IO_OUTPUT_H

#include "lacuna.h"

typedef struct lac_output {
    int folder;         /* the target's folder, kept open: a chdir cannot move us */
    int descriptor;     /* of the temporary file                                  */
    char *path;         /* the target, for messages                               */
    const char *target; /* its last component, within path                        */
    char temporary[48]; /* the temporary file's name in the folder; "" when gone  */
    uint64_t bytes;     /* written so far                                         */
} lac_output;

/* Makes the temporary file beside `path`. */
lac_status lac_output_open(const char *path, lac_output *out);
lac_status lac_output_write(lac_output *output, const void *data, uint64_t bytes);
/* Flushes, renames and flushes the folder. On failure the temporary file is still there, for lac_output_discard. */
lac_status lac_output_commit(lac_output *output);
/* Removes the temporary file, if there is one, and gives everything back. */
void lac_output_discard(lac_output *output);

#endif
