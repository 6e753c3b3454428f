/* file_bytes.h - files for the file tests, byte by byte, and the check that opening one is refused in the right words. */
#ifndef TEST_FILE_BYTES_H
#define TEST_FILE_BYTES_H

#include <string.h>

#include "support/support.h"

/* A safetensors file of this header and `bytes` of data counting up from 1. */
static inline const char *write_safetensors(const char *name, const char *header, size_t bytes)
{
    static unsigned char file[1 << 16];
    size_t length = strlen(header);
    assert_true(8 + length + bytes <= sizeof file);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)length >> 8 * i);
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < bytes; i++) file[8 + length + i] = (unsigned char)(i + 1);
    const char *path = test_path(name);
    test_write_file(path, file, 8 + length + bytes);
    return path;
}

/* Opening fails with `status`; the message names the path and holds all of `words`, which end with NULL. */
static inline void expect_refused(const char *path, lac_status status, const char *const *words)
{
    lac_file *file = NULL;
    assert_fails(lac_file_open(path, &file), status, path);
    assert_null(file);
    for (; *words; words++)
        if (!strstr(lac_last_error(), *words)) fail_msg("the message \"%s\" does not hold \"%s\"", lac_last_error(), *words);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

#endif
