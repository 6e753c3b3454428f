/* convert.h - what convert.c (one matrix or mask) and container.c (a whole safetensors file) share. */
#ifndef LACUNA_CLI_CONVERT_H
#define LACUNA_CLI_CONVERT_H

#include "cli.h"

typedef struct convert_settings {
    const char *in, *out, *name, *against;
    cli_pattern pattern;
    cli_list include, exclude;
    int dense, encoding, saturate, force, progress, json;
    lac_dtype dtype;
    int64_t threads;
} convert_settings;

typedef struct conversion {
    const convert_settings *settings;
    lac_file *file;
    lac_file_info info;
    int64_t compressed, dense, copied; /* what was written, for the report */
} conversion;

/* The matrix that a single-matrix output is made of: a dense tensor, a decompressed weight, or a mask as 0 and 1 (or, with
 * --against, as the values it keeps). `*name` lives as long as the file. Returns an exit status. */
int cli_convert_take_matrix(conversion *c, lac_matrix *matrix, const char **name);
/* Replaces the matrix by one of another dtype; a finite value that does not fit is an error, or saturates. */
int cli_convert_change_dtype(const conversion *c, const char *name, lac_matrix *matrix, lac_dtype dtype);
/* Writes OUT as safetensors: dense, compressed, re-encoded. Returns an exit status. */
int cli_convert_to_container(conversion *c);

#endif
