/* safetensors.c - reads the header of one mapped safetensors file and holds it to every rule of the format: 8 bytes of
 * length, a JSON object, then the tensors' bytes without holes or overlaps. Nothing is believed before it is checked
 * against the size of the file. Called by file.c for each shard. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "io/file.h"
#include "io/text.h"

enum { LENGTH_BYTES = 8 };

/* Where a message is about: file and tensor. */
typedef struct lac_place {
    const char *path;
    lac_short_text name;
} lac_place;

static lac_status find_header(const lac_map *map, const char **text, uint64_t *bytes)
{
    if (map->bytes == 0) return lac_fail(LAC_STATUS_BAD_FILE, "%s: the file is empty", map->path);
    if (map->bytes < LENGTH_BYTES)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: truncated: %" PRIu64 " bytes, but a safetensors header begins with 8",
                        map->path, map->bytes);
    uint64_t length = 0;
    for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)map->data[i] << 8 * i;
    if (length > LAC_HEADER_LIMIT)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: header length %" PRIu64 " exceeds the limit of %" PRIu64 " bytes", map->path,
                        length, LAC_HEADER_LIMIT);
    if (length > map->bytes - LENGTH_BYTES)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: truncated: header length %" PRIu64 ", but only %" PRIu64 " bytes follow it",
                        map->path, length, map->bytes - LENGTH_BYTES);
    if (length < 2 || map->data[LENGTH_BYTES] != '{')
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: the header of %" PRIu64 " bytes does not begin with '{'", map->path, length);
    *text = (const char *)map->data + LENGTH_BYTES;
    *bytes = length;
    return LAC_STATUS_OK;
}

static lac_status check_metadata(const char *path, json_t *metadata)
{
    lac_short_text name, value;
    if (!json_is_object(metadata))
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: __metadata__ is %s, not an object of strings", path,
                        lac_json_describe(metadata, &value));
    const char *key;
    json_t *entry;
    json_object_foreach(metadata, key, entry)
    {
        if (!json_is_string(entry))
            return lac_fail(LAC_STATUS_BAD_FILE, "%s: __metadata__ '%s' is %s, not a string", path,
                            lac_text_shorten(key, &name), lac_json_describe(entry, &value));
    }
    return LAC_STATUS_OK;
}

/* A non-negative integer; `what` is "shape[0]" and the like. */
static lac_status read_natural(const lac_place *at, const char *what, size_t index, const json_t *value, int64_t *out)
{
    lac_short_text text;
    if (!json_is_integer(value))
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: tensor '%s': %s[%zu] is %s, not an integer", at->path, at->name.text, what,
                        index, lac_json_describe(value, &text));
    if (json_integer_value(value) < 0)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: tensor '%s': %s[%zu] is negative: %s", at->path, at->name.text, what, index,
                        lac_json_describe(value, &text));
    *out = json_integer_value(value);
    return LAC_STATUS_OK;
}

static lac_status read_shape(const lac_place *at, const json_t *shape, lac_tensor *tensor)
{
    lac_short_text text;
    if (!json_is_array(shape))
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: tensor '%s': shape is %s, not an array", at->path, at->name.text,
                        shape ? lac_json_describe(shape, &text) : "missing");
    size_t rank = json_array_size(shape);
    if (rank > LAC_MAX_RANK)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "%s: tensor '%s': rank %zu, but at most %d is supported", at->path,
                        at->name.text, rank, LAC_MAX_RANK);
    tensor->rank = (int32_t)rank;
    for (size_t i = 0; i < rank; i++) {
        lac_status status = read_natural(at, "shape", i, json_array_get(shape, i), &tensor->shape[i]);
        if (status != LAC_STATUS_OK) return status;
    }
    return LAC_STATUS_OK;
}

static lac_status read_offsets(const lac_place *at, const json_t *offsets, uint64_t data_bytes, lac_tensor *tensor)
{
    lac_short_text text;
    if (!json_is_array(offsets) || json_array_size(offsets) != 2)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: tensor '%s': data_offsets is %s, not [begin, end]", at->path, at->name.text,
                        offsets ? lac_json_describe(offsets, &text) : "missing");
    int64_t begin, end;
    lac_status status = read_natural(at, "data_offsets", 0, json_array_get(offsets, 0), &begin);
    if (status == LAC_STATUS_OK) status = read_natural(at, "data_offsets", 1, json_array_get(offsets, 1), &end);
    if (status != LAC_STATUS_OK) return status;
    if (end < begin)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: tensor '%s': data_offsets end %" PRId64 " lies before begin %" PRId64,
                        at->path, at->name.text, end, begin);
    if ((uint64_t)end > data_bytes)
        return lac_fail(LAC_STATUS_BAD_FILE,
                        "%s: tensor '%s': truncated: data_offsets [%" PRId64 ", %" PRId64 "], but only %" PRIu64
                        " bytes follow the header",
                        at->path, at->name.text, begin, end, data_bytes);
    tensor->offset = (uint64_t)begin;
    tensor->bytes = (uint64_t)(end - begin);
    return LAC_STATUS_OK;
}

static lac_status read_tensor(const lac_map *map, const char *name, const json_t *entry, const uint8_t *data,
                              uint64_t data_bytes, lac_tensor *tensor)
{
    lac_place at = {.path = map->path};
    lac_short_text text;
    lac_text_shorten(name, &at.name);
    if (!json_is_object(entry))
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: tensor '%s' is %s, not an object", at.path, at.name.text,
                        lac_json_describe(entry, &text));
    const json_t *type = json_object_get(entry, "dtype");
    if (!json_is_string(type))
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: tensor '%s': dtype is %s, not a string", at.path, at.name.text,
                        type ? lac_json_describe(type, &text) : "missing");
    tensor->type = lac_type_find(json_string_value(type));
    if (!tensor->type)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: tensor '%s': unknown dtype %s", at.path, at.name.text,
                        lac_json_describe(type, &text));
    lac_status status = read_shape(&at, json_object_get(entry, "shape"), tensor);
    if (status == LAC_STATUS_OK) status = read_offsets(&at, json_object_get(entry, "data_offsets"), data_bytes, tensor);
    if (status != LAC_STATUS_OK) return status;
    uint64_t needed;
    if (!lac_type_bytes(tensor->type, tensor->shape, tensor->rank, &needed))
        return lac_fail(LAC_STATUS_BAD_FILE,
                        "%s: tensor '%s': the size of its shape in %s overflows or is no whole number of bytes", at.path,
                        at.name.text, tensor->type->name);
    if (needed != tensor->bytes)
        return lac_fail(LAC_STATUS_BAD_FILE,
                        "%s: tensor '%s': data_offsets span %" PRIu64 " bytes, but its shape in %s needs %" PRIu64, at.path,
                        at.name.text, tensor->bytes, tensor->type->name, needed);
    tensor->name = name;
    tensor->data = data + tensor->offset;
    return LAC_STATUS_OK;
}

static int by_offset(const void *left, const void *right)
{
    const lac_tensor *a = left, *b = right;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Sorted tensors must cover the data exactly. */
static lac_status check_cover(const char *path, const lac_tensor *tensors, int64_t count, uint64_t data_bytes)
{
    uint64_t end = 0;
    lac_short_text name, last;
    for (int64_t i = 0; i < count; i++) {
        const lac_tensor *tensor = &tensors[i];
        if (tensor->offset < end)
            return lac_fail(
                LAC_STATUS_BAD_FILE, "%s: tensor '%s' begins at %" PRIu64 " and overlaps '%s', which ends at %" PRIu64, path,
                lac_text_shorten(tensor->name, &name), tensor->offset, lac_text_shorten(tensors[i - 1].name, &last), end);
        if (tensor->offset > end)
            return lac_fail(LAC_STATUS_BAD_FILE, "%s: hole of %" PRIu64 " bytes before tensor '%s', which begins at %" PRIu64,
                            path, tensor->offset - end, lac_text_shorten(tensor->name, &name), tensor->offset);
        end = tensor->offset + tensor->bytes;
    }
    if (end != data_bytes)
        return lac_fail(LAC_STATUS_BAD_FILE,
                        "%s: %" PRIu64 " trailing bytes belong to no tensor: the last one ends at %" PRIu64 " of %" PRIu64,
                        path, data_bytes - end, end, data_bytes);
    return LAC_STATUS_OK;
}

lac_status lac_safetensors_read(lac_file *file, int64_t index)
{
    lac_shard *shard = &file->shards[index];
    const char *text = NULL;
    uint64_t length = 0;
    lac_status status = find_header(&shard->map, &text, &length);
    if (status == LAC_STATUS_OK) status = lac_json_parse(shard->map.path, "header", text, length, &shard->header);
    if (status != LAC_STATUS_OK) return status;
    const uint8_t *data = (const uint8_t *)text + length;
    uint64_t data_bytes = shard->map.bytes - LENGTH_BYTES - length;

    void *grown = lac_file_reserve(file->tensors, file->tensor_count, &file->tensor_room,
                                   (int64_t)json_object_size(shard->header), sizeof *file->tensors);
    if (!grown) return LAC_STATUS_OUT_OF_MEMORY;
    file->tensors = grown;
    lac_tensor *first = file->tensors + file->tensor_count;
    int64_t count = 0;
    const char *name;
    json_t *entry;
    json_object_foreach(shard->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            status = check_metadata(shard->map.path, entry);
        } else {
            first[count] = (lac_tensor){.shard = index};
            status = read_tensor(&shard->map, name, entry, data, data_bytes, &first[count++]);
        }
        if (status != LAC_STATUS_OK) return status;
    }
    qsort(first, (size_t)count, sizeof *first, by_offset);
    status = check_cover(shard->map.path, first, count, data_bytes);
    if (status != LAC_STATUS_OK) return status;
    file->tensor_count += count;
    return LAC_STATUS_OK;
}
