/* query.c - what an open file holds: its tensors, matrices, weights, masks and metadata. The public face of lac_file. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/dtype.h"
#include "core/matrix.h"
#include "core/memory.h"
#include "core/status.h"
#include "io/file.h"
#include "io/text.h"

static lac_status check_file(const lac_file *file)
{
    return file ? LAC_STATUS_OK : lac_fail(LAC_STATUS_INVALID_ARGUMENT, "file is NULL");
}

static const char *file_path(const lac_file *file) { return file->shard_count > 0 ? file->shards[0].map.path : "checkpoint"; }

lac_status lac_file_get_info(const lac_file *file, lac_file_info *info)
{
    lac_status status = check_file(file);
    if (status != LAC_STATUS_OK) return status;
    lac_file_info known = {.size = sizeof known,
                           .format = file->format,
                           .tensors = file->visible_count,
                           .weights = file->weight_count,
                           .masks = file->format == LAC_FILE_FORMAT_SMTX,
                           .files = file->shard_count};
    for (int64_t i = 0; i < file->shard_count; i++) known.bytes += file->shards[i].map.bytes;
    return lac_write_struct("info", info, &known, sizeof known);
}

static lac_status describe_tensor(const lac_file *file, const lac_tensor *tensor, lac_tensor_info *info)
{
    lac_tensor_info known = {.size = sizeof known,
                             .name = tensor->name,
                             .type = tensor->type->name,
                             .dtype = tensor->type->dtype,
                             .rank = tensor->rank,
                             .bytes = tensor->bytes,
                             .data = tensor->data,
                             .path = file->shards[tensor->shard].map.path};
    memcpy(known.shape, tensor->shape, sizeof known.shape);
    return lac_write_struct("info", info, &known, sizeof known);
}

lac_status lac_file_get_tensor(const lac_file *file, int64_t index, lac_tensor_info *info)
{
    lac_status status = check_file(file);
    if (status != LAC_STATUS_OK) return status;
    if (index < 0 || index >= file->visible_count)
        return lac_fail(LAC_STATUS_NOT_FOUND, "index is %" PRId64 ", but the file has %" PRId64 " tensors", index,
                        file->visible_count);
    return describe_tensor(file, file->visible[index], info);
}

static lac_status find_tensor(const lac_file *file, const char *name, lac_tensor **out)
{
    lac_status status = check_file(file);
    if (status != LAC_STATUS_OK) return status;
    if (!name) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "name is NULL");
    lac_short_text text;
    *out = lac_file_lookup_visible(file, name);
    if (!*out)
        return lac_fail(LAC_STATUS_NOT_FOUND, "%s: holds no tensor '%s'%s", file_path(file), lac_text_shorten(name, &text),
                        lac_file_lookup_weight(file, name) ? "; the compressed weight of that name is no tensor" : "");
    return LAC_STATUS_OK;
}

lac_status lac_file_find_tensor(const lac_file *file, const char *name, lac_tensor_info *info)
{
    lac_tensor *tensor = NULL;
    lac_status status = find_tensor(file, name, &tensor);
    return status == LAC_STATUS_OK ? describe_tensor(file, tensor, info) : status;
}

/* The tensor as rows x cols, rank 1 being one row; or why it is no matrix. */
static lac_status matrix_shape(const char *path, const lac_tensor *tensor, const lac_matrix *out, int64_t *rows, int64_t *cols)
{
    lac_short_text name;
    lac_text_shorten(tensor->name, &name);
    if (tensor->rank != 1 && tensor->rank != 2)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: tensor '%s' has rank %d; a matrix has rank 2 (or 1: one row)", path,
                        name.text, (int)tensor->rank);
    if (tensor->type->number == LAC_NUMBER_OTHER)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "%s: tensor '%s' is of type %s, which cannot be converted", path, name.text,
                        tensor->type->name);
    *rows = tensor->rank == 2 ? tensor->shape[0] : 1;
    *cols = tensor->shape[tensor->rank - 1];
    if (out->rows != *rows || out->cols != *cols)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "%s: tensor '%s' is %" PRId64 " x %" PRId64 ", but out is %" PRId64 " x %" PRId64, path, name.text,
                        *rows, *cols, out->rows, out->cols);
    return LAC_STATUS_OK;
}

enum { CHUNK = 256 };

/* The largest finite number of a type; what exceeds that of the target may turn infinite on the way. */
static double type_max(const lac_type *type)
{
    if (type->number == LAC_NUMBER_BOOL) return 1;
    if (type->number != LAC_NUMBER_FLOAT) return ldexp(1.0, type->number == LAC_NUMBER_SIGNED ? type->bits - 1 : type->bits);
    if (type->dtype == LAC_DTYPE_E4M3) return 448;
    if (type->dtype == LAC_DTYPE_E5M2) return 57344;
    return lac_dtype_max(type->dtype);
}

static lac_status check_range(const char *path, const lac_tensor *tensor, int64_t rows, int64_t cols, lac_dtype dtype)
{
    if (type_max(tensor->type) <= lac_dtype_max(dtype)) return LAC_STATUS_OK;
    const int64_t count = rows * cols, element = tensor->type->bits / 8;
    double values[CHUNK];
    for (int64_t start = 0; start < count; start += CHUNK) {
        int64_t length = count - start < CHUNK ? count - start : CHUNK;
        lac_type_load(tensor->type, tensor->data + start * element, length, values);
        for (int64_t i = 0; i < length; i++) {
            uint64_t stored[1]; /* aligned for every dtype */
            lac_short_text name;
            if (!isfinite(values[i])) continue;
            lac_store_f64(stored, dtype, 0, values[i]);
            if (isinf(lac_load_f64(stored, dtype, 0)))
                return lac_fail(LAC_STATUS_VALUE_OUT_OF_RANGE,
                                "%s: tensor '%s': element [%" PRId64 "][%" PRId64 "] is %g, too large for %s", path,
                                lac_text_shorten(tensor->name, &name), (start + i) / cols, (start + i) % cols, values[i],
                                lac_dtype_name(dtype));
        }
    }
    return LAC_STATUS_OK;
}

static void copy_matrix(const lac_tensor *tensor, int64_t rows, int64_t cols, const lac_matrix *out)
{
    const int64_t element = tensor->type->bits / 8, stride = lac_matrix_col_stride(out);
    double values[CHUNK];
    for (int64_t row = 0; row < rows; row++) {
        const uint8_t *from = tensor->data + row * cols * element;
        if (tensor->type->dtype == out->dtype && out->layout == LAC_LAYOUT_ROW_MAJOR) {
            memcpy((uint8_t *)out->data + lac_matrix_at(out, row, 0) * element, from, (size_t)(cols * element));
            continue;
        }
        for (int64_t start = 0; start < cols; start += CHUNK) {
            int64_t length = cols - start < CHUNK ? cols - start : CHUNK, at = lac_matrix_at(out, row, start);
            lac_type_load(tensor->type, from + start * element, length, values);
            for (int64_t i = 0; i < length; i++) lac_store_f64(out->data, out->dtype, at + i * stride, values[i]);
        }
    }
}

lac_status lac_file_read_matrix(const lac_file *file, const char *name, const lac_matrix *out)
{
    lac_tensor *tensor = NULL;
    lac_matrix matrix;
    lac_status status = find_tensor(file, name, &tensor);
    if (status == LAC_STATUS_OK) status = lac_matrix_check("out", out, 1, &matrix);
    if (status != LAC_STATUS_OK) return status;
    const char *path = file->shards[tensor->shard].map.path;
    int64_t rows = 0, cols = 0;
    status = matrix_shape(path, tensor, &matrix, &rows, &cols);
    if (status != LAC_STATUS_OK || rows == 0 || cols == 0) return status;
    status = check_range(path, tensor, rows, cols, matrix.dtype);
    if (status == LAC_STATUS_OK) copy_matrix(tensor, rows, cols, &matrix);
    return status;
}

lac_status lac_file_get_weight(const lac_file *file, int64_t index, const char **name, lac_weight_info *info)
{
    lac_status status = check_file(file);
    if (status != LAC_STATUS_OK) return status;
    if (index < 0 || index >= file->weight_count)
        return lac_fail(LAC_STATUS_NOT_FOUND, "index is %" PRId64 ", but the file has %" PRId64 " weights", index,
                        file->weight_count);
    const lac_stored_weight *weight = &file->weights[index];
    if (info) status = lac_write_struct("info", info, &weight->info, sizeof weight->info);
    if (status == LAC_STATUS_OK && name) *name = weight->name;
    return status;
}

lac_status lac_file_load_weight(const lac_file *file, const char *name, lac_weight **out)
{
    lac_status status = check_file(file);
    if (status != LAC_STATUS_OK) return status;
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_short_text text;
    if (!name && file->weight_count != 1)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: name is NULL, but the file holds %" PRId64 " weights, not one",
                        file_path(file), file->weight_count);
    const lac_stored_weight *weight = name ? lac_file_lookup_weight(file, name) : &file->weights[0];
    if (!weight)
        return lac_fail(LAC_STATUS_NOT_FOUND, "%s: holds no weight '%s'%s", file_path(file), lac_text_shorten(name, &text),
                        lac_file_lookup_visible(file, name) ? "; the tensor of that name is dense" : "");
    status = lac_weight_from_parts(&weight->info, weight->part, out);
    if (status == LAC_STATUS_OK) return status;
    /* Every argument came from the file. */
    if (status == LAC_STATUS_INVALID_ARGUMENT || status == LAC_STATUS_PATTERN_VIOLATED) status = LAC_STATUS_BAD_FILE;
    return lac_fail_in(status, "%s: weight '%s'", file->shards[weight->shard].map.path, lac_text_shorten(weight->name, &text));
}

lac_status lac_weight_load(const char *path, const char *name, lac_weight **out)
{
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_file *file = NULL;
    lac_status status = lac_file_open(path, &file);
    if (status != LAC_STATUS_OK) return status;
    status = lac_file_load_weight(file, name, out);
    lac_file_close(file);
    return status;
}

lac_status lac_file_load_mask(const lac_file *file, lac_mask **out)
{
    lac_status status = check_file(file);
    if (status != LAC_STATUS_OK) return status;
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    if (file->format != LAC_FILE_FORMAT_SMTX)
        return lac_fail(LAC_STATUS_NOT_FOUND, "%s: holds no mask: it is no .smtx file", file_path(file));
    return lac_smtx_load(file, out);
}

lac_status lac_file_get_metadata(const lac_file *file, int64_t index, const char **key, const char **value)
{
    lac_status status = check_file(file);
    if (status != LAC_STATUS_OK) return status;
    if (index < 0 || index >= file->metadata_count)
        return lac_fail(LAC_STATUS_NOT_FOUND, "index is %" PRId64 ", but the file has %" PRId64 " entries of metadata", index,
                        file->metadata_count);
    if (key) *key = file->metadata[index][0];
    if (value) *value = file->metadata[index][1];
    return LAC_STATUS_OK;
}
