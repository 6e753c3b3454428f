/* fuzz_npy.c - any bytes as a .npy file. The magic is put in front of every input, so that no effort goes into it. */
#include <string.h>

#include "fuzz.h"

enum { MAGIC = 6, MOST = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[MOST];
    if (size > MOST) return 0;
    if (size > 0) memcpy(bytes, data, size);
    memcpy(bytes, "\x93NUMPY", size < MAGIC ? size : MAGIC);
    lac_file *file = NULL;
    if (lac_file_open(fuzz_file(bytes, size), &file) != LAC_STATUS_OK) return 0;
    fuzz_read_tensors(file);
    lac_file_close(file);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    size_t width = size > MAGIC && data[MAGIC] == 1 ? 2 : 4; /* version 1 has a 16-bit length */
    return fuzz_mutate_header(data, size, room, seed, MAGIC + 2, width);
}
