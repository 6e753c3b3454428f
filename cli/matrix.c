/* matrix.c - dense matrices in and out of files, which names are wanted, numbers of every dtype, random numbers.
 *
 * Rounding is done here by its definition and not by the library, so that `verify` does not check the library with
 * itself. */
#include "cli.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void *cli_allocate(size_t bytes)
{
    void *block = malloc(bytes ? bytes : 1);
    if (block) return block;
    cli_error(NULL, NULL, "out of memory: %zu bytes", bytes);
    exit(CLI_EXIT_FAILURE);
}

char *cli_copy_text(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(cli_allocate(size), text, size);
}

int cli_matrix_create(lac_matrix *matrix, lac_dtype dtype, int64_t rows, int64_t cols)
{
    size_t count = 0, bytes = 0;
    void *data = NULL;
    if (!__builtin_mul_overflow((size_t)rows, (size_t)cols, &count) &&
        !__builtin_mul_overflow(count, lac_dtype_size(dtype), &bytes) && bytes <= PTRDIFF_MAX)
        data = calloc(bytes ? bytes : 1, 1);
    if (!data) {
        cli_note_shortage(rows, cols, dtype);
        return -1;
    }
    *matrix = (lac_matrix){.data = data, .dtype = dtype, .rows = rows, .cols = cols};
    return 0;
}

void cli_matrix_free(lac_matrix *matrix)
{
    free(matrix->data);
    matrix->data = NULL;
}

double cli_matrix_get(const lac_matrix *matrix, int64_t index) { return cli_number_get(matrix->data, matrix->dtype, index); }

void cli_matrix_put(const lac_matrix *matrix, int64_t index, double value)
{
    cli_number_put(matrix->data, matrix->dtype, index, value);
}

int cli_tensor_is_floating(const lac_tensor_info *tensor)
{
    return tensor->dtype >= LAC_DTYPE_F32 && tensor->dtype <= LAC_DTYPE_F64;
}

int cli_tensor_is_matrix(const lac_tensor_info *tensor) { return cli_tensor_is_floating(tensor) && tensor->rank == 2; }

/* The only tensor of rank 1 or 2 with numbers that Lacuna knows. */
static int find_only_tensor(const lac_file *file, const char *path, lac_tensor_info *chosen)
{
    lac_file_info info = {.size = sizeof info};
    lac_status status = lac_file_get_info(file, &info);
    if (status != LAC_STATUS_OK) return cli_fail(path, NULL, status);
    int64_t found = 0;
    for (int64_t i = 0; i < info.tensors; i++) {
        lac_tensor_info tensor = {.size = sizeof tensor};
        status = lac_file_get_tensor(file, i, &tensor);
        if (status != LAC_STATUS_OK) return cli_fail(path, NULL, status);
        if (!cli_tensor_is_floating(&tensor) || tensor.rank < 1 || tensor.rank > 2) continue;
        *chosen = tensor;
        found++;
    }
    if (found == 1) return CLI_EXIT_OK;
    if (found == 0)
        cli_error(path, NULL, "holds no dense floating-point matrix");
    else
        cli_error(path, NULL, "holds %lld matrices; --name says which", (long long)found);
    return CLI_EXIT_FAILURE;
}

int cli_matrix_read(const lac_file *file, const char *path, const char *name, lac_dtype dtype, lac_matrix *matrix,
                    const char **chosen)
{
    lac_tensor_info tensor = {.size = sizeof tensor};
    if (name) {
        lac_status status = lac_file_find_tensor(file, name, &tensor);
        if (status != LAC_STATUS_OK) return cli_fail(path, name, status);
    } else {
        int failed = find_only_tensor(file, path, &tensor);
        if (failed) return failed;
    }
    if (!cli_tensor_is_floating(&tensor) || tensor.rank < 1 || tensor.rank > 2) {
        cli_error(path, tensor.name, "type %s and shape %s are no floating-point matrix", tensor.type,
                  cli_format_shape(tensor.shape, tensor.rank).text);
        return CLI_EXIT_FAILURE;
    }
    int64_t rows = tensor.rank == 2 ? tensor.shape[0] : 1;
    int64_t cols = tensor.shape[tensor.rank - 1];
    lac_matrix out;
    if (cli_matrix_create(&out, dtype ? dtype : tensor.dtype, rows, cols) != 0)
        return cli_fail(path, tensor.name, LAC_STATUS_OUT_OF_MEMORY);
    lac_status status = lac_file_read_matrix(file, tensor.name, &out);
    if (status != LAC_STATUS_OK) {
        int exit_status = cli_fail(path, tensor.name, status);
        cli_matrix_free(&out);
        return exit_status;
    }
    *matrix = out;
    if (chosen) *chosen = tensor.name;
    return CLI_EXIT_OK;
}

static lac_status write_safetensors(const lac_matrix *matrix, const char *path, const char *name)
{
    lac_writer *writer = NULL;
    lac_tensor_info tensor = {.size = sizeof tensor, .name = name, .dtype = matrix->dtype, .rank = 2};
    tensor.shape[0] = matrix->rows;
    tensor.shape[1] = matrix->cols;
    uint64_t bytes = (uint64_t)matrix->rows * (uint64_t)matrix->cols * lac_dtype_size(matrix->dtype);
    lac_status status = lac_writer_open(path, &writer);
    if (status == LAC_STATUS_OK) status = lac_writer_declare_tensor(writer, &tensor);
    if (status == LAC_STATUS_OK) status = lac_writer_write_tensor(writer, name, matrix->data, bytes);
    if (status == LAC_STATUS_OK) status = lac_writer_commit(writer);
    lac_writer_free(writer);
    return status;
}

int cli_matrix_write(const lac_matrix *matrix, const char *path, const char *name)
{
    lac_status status;
    if (cli_ends_with(path, ".npy")) {
        status = lac_matrix_save_npy(matrix, path);
    } else if (cli_ends_with(path, ".safetensors")) {
        status = write_safetensors(matrix, path, name);
    } else {
        cli_error(path, NULL, "a matrix is written as .npy or .safetensors");
        return CLI_EXIT_USAGE;
    }
    return status == LAC_STATUS_OK ? CLI_EXIT_OK : cli_fail(path, NULL, status);
}

int cli_name_selected(const char *name, const cli_list *include, const cli_list *exclude)
{
    int selected = include->count == 0;
    for (size_t i = 0; i < include->count && !selected; i++) selected = fnmatch(include->items[i], name, 0) == 0;
    for (size_t i = 0; i < exclude->count && selected; i++) selected = fnmatch(exclude->items[i], name, 0) != 0;
    return selected;
}

/* Bits of the significand, the hidden one included, and the exponent of the smallest normal number. */
static void describe_dtype(lac_dtype dtype, int *bits, int *lowest)
{
    switch (dtype) {
    case LAC_DTYPE_F16:
        *bits = 11, *lowest = -14;
        return;
    case LAC_DTYPE_BF16:
        *bits = 8, *lowest = -126;
        return;
    case LAC_DTYPE_F32:
        *bits = 24, *lowest = -126;
        return;
    default:
        *bits = 53, *lowest = -1022;
        return;
    }
}

double cli_number_largest(lac_dtype dtype)
{
    int bits, lowest;
    describe_dtype(dtype, &bits, &lowest);
    return ldexp(2.0 - ldexp(1.0, 1 - bits), 1 - lowest);
}

double cli_number_round(double value, lac_dtype dtype)
{
    if (dtype == LAC_DTYPE_F64 || !isfinite(value) || value == 0) return value;
    int bits, lowest;
    describe_dtype(dtype, &bits, &lowest);
    int exponent = ilogb(value);
    int last = (exponent > lowest ? exponent : lowest) - (bits - 1); /* the weight of the last bit */
    double rounded = ldexp(rint(ldexp(value, -last)), last);
    return fabs(rounded) > cli_number_largest(dtype) ? copysign(INFINITY, value) : rounded;
}

static double decode_f16(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double value;
    if (exponent == 31)
        value = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, -24);
    else
        value = ldexp(1024 + fraction, exponent - 25);
    return half & 0x8000 ? -value : value;
}

/* `value` is one that f16 has. */
static uint16_t encode_f16(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value)) return sign | 0x7e00;
    if (isinf(value)) return sign | 0x7c00;
    double size = fabs(value);
    if (size < ldexp(1, -14)) return (uint16_t)(sign | (unsigned)ldexp(size, 24));
    int exponent = ilogb(size);
    return (uint16_t)(sign | (unsigned)(exponent + 15) << 10 | ((unsigned)ldexp(size, 10 - exponent) & 1023));
}

double cli_number_get(const void *data, lac_dtype dtype, int64_t index)
{
    const char *at = (const char *)data + (size_t)index * lac_dtype_size(dtype);
    uint16_t half;
    uint32_t word;
    float single;
    double full;
    switch (dtype) {
    case LAC_DTYPE_F16:
        memcpy(&half, at, 2);
        return decode_f16(half);
    case LAC_DTYPE_BF16:
        memcpy(&half, at, 2);
        word = (uint32_t)half << 16;
        memcpy(&single, &word, 4);
        return single;
    case LAC_DTYPE_F32:
        memcpy(&single, at, 4);
        return single;
    default:
        memcpy(&full, at, 8);
        return full;
    }
}

void cli_number_put(void *data, lac_dtype dtype, int64_t index, double value)
{
    char *at = (char *)data + (size_t)index * lac_dtype_size(dtype);
    value = cli_number_round(value, dtype);
    float single = dtype == LAC_DTYPE_F64 ? 0 : (float)value;
    uint32_t word;
    uint16_t half;
    switch (dtype) {
    case LAC_DTYPE_F16:
        half = encode_f16(value);
        memcpy(at, &half, 2);
        return;
    case LAC_DTYPE_BF16:
        memcpy(&word, &single, 4);
        half = (uint16_t)(word >> 16);
        if (isnan(value)) half |= 0x40;
        memcpy(at, &half, 2);
        return;
    case LAC_DTYPE_F32:
        memcpy(at, &single, 4);
        return;
    default:
        memcpy(at, &value, 8);
        return;
    }
}

/* SplitMix64. */
double cli_random_uniform(cli_random *random)
{
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* The sum of twelve uniform numbers: needs only additions, and so has the same bits everywhere. */
double cli_random_gaussian(cli_random *random)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += cli_random_uniform(random);
    return sum;
}
