/* fuzz.c - shared by the fuzz targets, which libFuzzer links with the library under ASan and UBSan. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Work a single input may ask for. */
enum { MATRIX_LIMIT = 1 << 16 };

_Noreturn void fuzz_fail(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: does not hold: %s\nlast error: %s\n", file, line, condition, lac_last_error());
    abort();
}

const char *fuzz_file(const uint8_t *data, size_t size)
{
    static int descriptor = -1;
    static char path[64];
    if (descriptor < 0) {
        descriptor = memfd_create("fuzz", MFD_CLOEXEC);
        fuzz_require(descriptor >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    }
    fuzz_require(ftruncate(descriptor, (off_t)size) == 0);
    fuzz_require(pwrite(descriptor, data, size, 0) == (ssize_t)size);
    return path;
}

size_t fuzz_mutate_header(uint8_t *data, size_t size, size_t room, unsigned seed, size_t prefix, size_t width)
{
    const size_t start = prefix + width;
    if (size < start || seed % 8 == 0) return LLVMFuzzerMutate(data, size, room);
    uint64_t length = 0;
    for (size_t i = 0; i < width; i++) length |= (uint64_t)data[prefix + i] << 8 * i;
    if (length > size - start) length = size - start;
    const size_t tail = size - start - (size_t)length;
    if (seed % 8 < 3) { /* what follows the header; its size mostly stays, for the header speaks of it */
        uint8_t *body = data + start + length;
        size_t body_room = seed % 8 == 1 ? tail : room - start - (size_t)length;
        return start + (size_t)length + (body_room > 0 ? LLVMFuzzerMutate(body, tail, body_room) : 0);
    }
    uint8_t *copy = malloc(room);
    fuzz_require(copy);
    memcpy(copy, data + start, (size_t)length);
    size_t header_room = room - start - tail;
    size_t mutated = header_room > 0 ? LLVMFuzzerMutate(copy, (size_t)length, header_room) : 0;
    memmove(data + start + mutated, data + start + length, tail);
    memcpy(data + start, copy, mutated);
    free(copy);
    for (size_t i = 0; i < width; i++) data[prefix + i] = (uint8_t)((uint64_t)mutated >> 8 * i);
    return start + mutated + tail;
}

static void convert(const lac_file *file, const lac_tensor_info *tensor)
{
    int64_t rows = tensor->rank == 2 ? tensor->shape[0] : 1, cols = tensor->shape[tensor->rank - 1];
    if (rows > MATRIX_LIMIT || cols > MATRIX_LIMIT || rows * cols > MATRIX_LIMIT) return;
    static double room[MATRIX_LIMIT];
    static const lac_dtype dtypes[] = {LAC_DTYPE_F32, LAC_DTYPE_F16, LAC_DTYPE_BF16, LAC_DTYPE_F64};
    for (int i = 0; i < 4; i++) {
        lac_matrix out = {.data = room, .dtype = dtypes[i], .rows = rows, .cols = cols, .layout = (lac_layout)(i & 1)};
        lac_status status = lac_file_read_matrix(file, tensor->name, &out);
        fuzz_require(status == LAC_STATUS_OK || status == LAC_STATUS_UNSUPPORTED || status == LAC_STATUS_VALUE_OUT_OF_RANGE);
    }
}

void fuzz_read_tensors(const lac_file *file)
{
    lac_file_info info = {.size = sizeof info};
    fuzz_require(lac_file_get_info(file, &info) == LAC_STATUS_OK);
    volatile uint8_t sink = 0;
    for (int64_t i = 0; i < info.tensors; i++) {
        lac_tensor_info tensor = {.size = sizeof tensor}, found = {.size = sizeof found};
        fuzz_require(lac_file_get_tensor(file, i, &tensor) == LAC_STATUS_OK);
        fuzz_require(lac_file_find_tensor(file, tensor.name, &found) == LAC_STATUS_OK);
        fuzz_require(found.data == tensor.data && found.bytes == tensor.bytes);
        for (uint64_t b = 0; b < tensor.bytes; b++) sink = (uint8_t)(sink ^ ((const uint8_t *)tensor.data)[b]);
        if (tensor.rank == 1 || tensor.rank == 2) convert(file, &tensor);
    }
    const char *key, *value;
    int64_t entries = 0;
    while (lac_file_get_metadata(file, entries, &key, &value) == LAC_STATUS_OK) entries++;
}

static void decompress(const lac_weight *weight, const lac_weight_info *info)
{
    static float dense[MATRIX_LIMIT];
    int64_t rows = info->n_out, cols = info->k_in;
    if (rows > MATRIX_LIMIT || cols > MATRIX_LIMIT || rows * cols > MATRIX_LIMIT) return;
    lac_matrix out = {.data = dense, .dtype = LAC_DTYPE_F32, .rows = rows, .cols = cols};
    fuzz_require(lac_weight_decompress(weight, &out) == LAC_STATUS_OK);
}

void fuzz_read_weights(const lac_file *file)
{
    lac_file_info info = {.size = sizeof info};
    fuzz_require(lac_file_get_info(file, &info) == LAC_STATUS_OK);
    for (int64_t i = 0; i < info.weights; i++) {
        const char *name = NULL;
        lac_weight_info stored = {.size = sizeof stored}, loaded = {.size = sizeof loaded};
        fuzz_require(lac_file_get_weight(file, i, &name, &stored) == LAC_STATUS_OK);
        if (stored.n > MATRIX_LIMIT || stored.k > MATRIX_LIMIT) continue; /* an empty file can claim 2^31 rows of nothing */
        lac_weight *weight = NULL, *again = NULL;
        lac_status status = lac_file_load_weight(file, name, &weight);
        fuzz_require(status == LAC_STATUS_OK || status == LAC_STATUS_BAD_FILE || status == LAC_STATUS_OUT_OF_MEMORY);
        if (status != LAC_STATUS_OK) continue;
        fuzz_require(lac_weight_get_info(weight, &loaded) == LAC_STATUS_OK);
        fuzz_require(loaded.kept == stored.kept && loaded.value_bytes == stored.value_bytes);
        fuzz_require(loaded.index_bytes == stored.index_bytes && loaded.n_out == stored.n_out && loaded.k_in == stored.k_in);
        decompress(weight, &loaded);
        lac_span parts[LAC_PART_COUNT];
        for (int part = 0; part < LAC_PART_COUNT; part++)
            fuzz_require(lac_weight_get_part(weight, (lac_part)part, &parts[part]) == LAC_STATUS_OK);
        fuzz_require(lac_weight_from_parts(&loaded, parts, &again) == LAC_STATUS_OK);
        lac_weight_free(again);
        lac_weight_free(weight);
    }
}
