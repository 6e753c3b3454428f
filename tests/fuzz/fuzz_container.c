/* fuzz_container.c - a container with its weights damaged: it is refused, or every weight loads, decompresses and comes
 * back from its own parts. The seeds hold a weight of each family and encoding. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lac_file *file = NULL;
    if (lac_file_open(fuzz_file(data, size), &file) != LAC_STATUS_OK) return 0;
    fuzz_read_weights(file);
    lac_file_close(file);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    return fuzz_mutate_header(data, size, room, seed, 0, 8);
}
