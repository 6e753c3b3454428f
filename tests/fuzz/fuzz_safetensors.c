/* fuzz_safetensors.c - any bytes as a safetensors file: opening it fails with a message, or every tensor can be read. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lac_file *file = NULL;
    lac_status status = lac_file_open(fuzz_file(data, size), &file);
    if (status != LAC_STATUS_OK) {
        fuzz_require(!file && lac_last_error()[0]);
        return 0;
    }
    fuzz_read_tensors(file);
    lac_file_close(file);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    return fuzz_mutate_header(data, size, room, seed, 0, 8);
}
