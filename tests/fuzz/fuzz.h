/* fuzz.h - what the fuzz targets share: bytes as a file, and mutations that keep a length field true. */
#ifndef LAC_FUZZ_H
#define LAC_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "lacuna.h"

/* The path of a file in memory that holds these bytes, until the next call. */
const char *fuzz_file(const uint8_t *data, size_t size);
/* Ends the run as a finding unless `condition`. */
#define fuzz_require(condition)                                                                                                \
    do {                                                                                                                       \
        if (!(condition)) fuzz_fail(#condition, __FILE__, __LINE__);                                                           \
    } while (0)
_Noreturn void fuzz_fail(const char *condition, const char *file, int line);

/* Mutates a file that begins with `prefix` bytes, a little-endian length of `width` bytes, and a header of that length:
 * the header, what follows it, or everything. After the first two the length is true again, so that the reader gets
 * past it. */
size_t fuzz_mutate_header(uint8_t *data, size_t size, size_t room, unsigned seed, size_t prefix, size_t width);

/* Every tensor of the file: its bytes read, and converted when they are a small matrix. */
void fuzz_read_tensors(const lac_file *file);
/* Every weight of the file: loaded, and decompressed when small. Loaded ones must come back from their own parts. */
void fuzz_read_weights(const lac_file *file);

/* libFuzzer's */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);

#endif
