/* file.c - lac_file: opens by content, gathers the tensors, weights and metadata of all shards into tables, closes.
 * What it then holds is read through query.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/memory.h"
#include "core/status.h"
#include "io/file.h"
#include "io/text.h"

void *lac_file_reserve(void *block, int64_t used, int64_t *room, int64_t count, size_t element)
{
    if (block && count <= *room - used) return block;
    int64_t wanted = used + count > 2 * *room ? used + count : 2 * *room;
    uint64_t bytes = UINT64_MAX;
    void *grown = lac_multiply_u64((uint64_t)wanted, element, &bytes) ? lac_grow(block, (uint64_t)used * element, bytes) : NULL;
    if (!grown) {
        lac_fail_memory("a file's tables", bytes);
        return NULL;
    }
    *room = wanted;
    return grown;
}

static int compare_tensors(const void *left, const void *right)
{
    const lac_tensor *a = *(lac_tensor *const *)left, *b = *(lac_tensor *const *)right;
    int order = strcmp(a->name, b->name);
    if (order != 0) return order;
    return (a->shard > b->shard) - (a->shard < b->shard);
}

static int compare_weights(const void *left, const void *right)
{
    const lac_stored_weight *a = *(lac_stored_weight *const *)left, *b = *(lac_stored_weight *const *)right;
    int order = strcmp(a->name, b->name);
    if (order != 0) return order;
    return (a->shard > b->shard) - (a->shard < b->shard);
}

lac_tensor *lac_file_lookup(const lac_file *file, const char *name, int64_t shard)
{
    lac_tensor key = {.name = name, .shard = shard}, *wanted = &key;
    if (file->tensor_count == 0) return NULL;
    lac_tensor **found = bsearch(&wanted, file->by_name, (size_t)file->tensor_count, sizeof *file->by_name, compare_tensors);
    return found ? *found : NULL;
}

lac_tensor *lac_file_lookup_visible(const lac_file *file, const char *name)
{
    for (int64_t shard = 0; shard < file->shard_count; shard++) {
        lac_tensor *tensor = lac_file_lookup(file, name, shard);
        if (tensor && !tensor->hidden) return tensor;
    }
    return NULL;
}

lac_stored_weight *lac_file_lookup_weight(const lac_file *file, const char *name)
{
    int64_t low = 0, high = file->weight_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = strcmp(name, file->weights_by_name[middle]->name);
        if (order == 0) return file->weights_by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static bool is_padding(const lac_tensor *tensor)
{
    const size_t prefix = strlen(LAC_PAD_PREFIX);
    if (strncmp(tensor->name, LAC_PAD_PREFIX, prefix) != 0 || tensor->rank != 1 || strcmp(tensor->type->name, "U8") != 0)
        return false;
    const char *digits = tensor->name + prefix;
    return *digits && strspn(digits, "0123456789") == strlen(digits);
}

/* The table of tensors by name, padding already hidden. */
static lac_status sort_tensors(lac_file *file)
{
    uint64_t bytes = (uint64_t)file->tensor_count * sizeof *file->by_name;
    file->by_name = lac_allocate(bytes);
    file->visible = lac_allocate(bytes);
    if (!file->by_name || !file->visible) return lac_fail_memory("a file's tables", bytes);
    for (int64_t i = 0; i < file->tensor_count; i++) {
        file->by_name[i] = &file->tensors[i];
        file->tensors[i].hidden = is_padding(&file->tensors[i]);
    }
    qsort(file->by_name, (size_t)file->tensor_count, sizeof *file->by_name, compare_tensors);
    return LAC_STATUS_OK;
}

/* A name must mean one thing in the whole checkpoint. */
static lac_status check_names(const lac_file *file)
{
    lac_short_text name;
    const lac_tensor *last = NULL;
    for (int64_t i = 0; i < file->tensor_count; i++) {
        const lac_tensor *tensor = file->by_name[i];
        if (tensor->hidden) continue;
        if (last && strcmp(last->name, tensor->name) == 0)
            return lac_fail(LAC_STATUS_BAD_FILE, "%s: tensor '%s' is also in %s", file->shards[tensor->shard].map.path,
                            lac_text_shorten(tensor->name, &name), file->shards[last->shard].map.path);
        last = tensor;
    }
    for (int64_t i = 0; i < file->weight_count; i++) {
        const lac_stored_weight *weight = file->weights_by_name[i], *other = i > 0 ? file->weights_by_name[i - 1] : NULL;
        const char *path = file->shards[weight->shard].map.path;
        if (other && strcmp(other->name, weight->name) == 0)
            return lac_fail(LAC_STATUS_BAD_FILE, "%s: weight '%s' is also in %s", path, lac_text_shorten(weight->name, &name),
                            file->shards[other->shard].map.path);
        if (lac_file_lookup_visible(file, weight->name))
            return lac_fail(LAC_STATUS_BAD_FILE, "%s: '%s' is both a weight and a tensor", path,
                            lac_text_shorten(weight->name, &name));
    }
    return LAC_STATUS_OK;
}

static lac_status sort_weights(lac_file *file)
{
    uint64_t bytes = (uint64_t)file->weight_count * sizeof *file->weights_by_name;
    file->weights_by_name = lac_allocate(bytes);
    if (!file->weights_by_name) return lac_fail_memory("a file's tables", bytes);
    for (int64_t i = 0; i < file->weight_count; i++) file->weights_by_name[i] = &file->weights[i];
    qsort(file->weights_by_name, (size_t)file->weight_count, sizeof *file->weights_by_name, compare_weights);
    for (int64_t i = 0; i < file->tensor_count; i++)
        if (!file->tensors[i].hidden) file->visible[file->visible_count++] = &file->tensors[i];
    return LAC_STATUS_OK;
}

/* Metadata of all shards in turn; what a later one repeats word for word is listed once. The record is ours, not listed. */
static lac_status gather_metadata(lac_file *file)
{
    json_t *seen = json_object();
    lac_status status = seen ? LAC_STATUS_OK : lac_fail_memory("metadata", 0);
    int64_t room = 0;
    for (int64_t i = 0; i < file->shard_count && status == LAC_STATUS_OK; i++) {
        json_t *metadata = json_object_get(file->shards[i].header, "__metadata__");
        const char *key;
        json_t *value;
        json_object_foreach(metadata, key, value)
        {
            if (strcmp(key, LAC_RECORD_KEY) == 0 || json_equal(json_object_get(seen, key), value)) continue;
            void *grown = lac_file_reserve(file->metadata, file->metadata_count, &room, 1, sizeof *file->metadata);
            if (grown) file->metadata = grown;
            if (!grown || json_object_set(seen, key, value) != 0) {
                status = lac_fail_memory("metadata", strlen(key));
                break;
            }
            file->metadata[file->metadata_count][0] = key;
            file->metadata[file->metadata_count++][1] = json_string_value(value);
        }
    }
    json_decref(seen);
    return status;
}

static lac_status finish_safetensors(lac_file *file)
{
    file->format = LAC_FILE_FORMAT_SAFETENSORS;
    lac_status status = sort_tensors(file);
    if (status == LAC_STATUS_OK) status = lac_container_read(file);
    if (status == LAC_STATUS_OK) status = sort_weights(file);
    if (status == LAC_STATUS_OK) status = check_names(file);
    if (status == LAC_STATUS_OK) status = gather_metadata(file);
    return status;
}

/* What the first bytes look like. A safetensors file begins with a 64-bit length whose upper bytes are zero, so one
 * that is sound can be taken neither for text nor for .npy. */
typedef enum lac_content { CONTENT_SAFETENSORS, CONTENT_INDEX, CONTENT_NPY, CONTENT_SMTX, CONTENT_UNKNOWN } lac_content;

static lac_content detect(const lac_map *map)
{
    const uint64_t seen = map->bytes < 8 ? map->bytes : 8;
    if (seen >= 6 && memcmp(map->data, "\x93NUMPY", 6) == 0) return CONTENT_NPY;
    bool is_text = seen > 0;
    for (uint64_t i = 0; i < seen; i++) {
        uint8_t byte = map->data[i];
        if ((byte < 0x20 && !(byte >= '\t' && byte <= '\r')) || byte >= 0x7f) is_text = false;
    }
    if (!is_text) return CONTENT_SAFETENSORS;
    uint64_t start = 0;
    while (start < seen && strchr(" \t\n\r", map->data[start])) start++;
    if (start < seen && map->data[start] == '{') return CONTENT_INDEX;
    if (map->data[0] >= '0' && map->data[0] <= '9') return CONTENT_SMTX;
    return CONTENT_UNKNOWN;
}

/* Takes the mapping over, whatever comes of it. */
static lac_status read_content(lac_map *map, lac_file *file)
{
    lac_content content = detect(map);
    lac_status status;
    if (content == CONTENT_INDEX || content == CONTENT_UNKNOWN) {
        status = content == CONTENT_INDEX
                     ? lac_shards_from_index(map, file)
                     : lac_fail(LAC_STATUS_BAD_FILE, "%s: is neither safetensors nor an index.json, .npy or .smtx", map->path);
        lac_map_close(map);
        return status == LAC_STATUS_OK ? finish_safetensors(file) : status;
    }
    file->shards = lac_allocate_zeroed(sizeof *file->shards);
    if (!file->shards) {
        lac_map_close(map);
        return lac_fail_memory("a shard", sizeof *file->shards);
    }
    file->shards[0].map = *map;
    file->shard_count = 1;
    if (content == CONTENT_NPY) return lac_npy_read(file);
    if (content == CONTENT_SMTX) return lac_smtx_read(file);
    status = lac_safetensors_read(file, 0);
    return status == LAC_STATUS_OK ? finish_safetensors(file) : status;
}

lac_status lac_file_open(const char *path, lac_file **out)
{
    if (!path) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "path is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_file *file = lac_allocate_zeroed(sizeof *file);
    if (!file) return lac_fail_memory("a file", sizeof *file);
    struct stat found;
    lac_status status;
    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode)) {
        status = lac_shards_from_folder(path, file);
        if (status == LAC_STATUS_OK) status = finish_safetensors(file);
    } else {
        lac_map map = {0};
        status = lac_map_open(path, &map);
        if (status == LAC_STATUS_OK) status = read_content(&map, file);
    }
    if (status != LAC_STATUS_OK) {
        lac_file_close(file);
        return status;
    }
    *out = file;
    return LAC_STATUS_OK;
}

void lac_file_close(lac_file *file)
{
    if (!file) return;
    for (int64_t i = 0; i < file->shard_count; i++) {
        lac_map_close(&file->shards[i].map);
        json_decref(file->shards[i].header);
        json_decref(file->shards[i].record);
    }
    lac_release(file->shards);
    lac_release(file->tensors);
    lac_release(file->by_name);
    lac_release(file->visible);
    lac_release(file->weights);
    lac_release(file->weights_by_name);
    lac_release(file->metadata);
    lac_release(file->converted);
    lac_release(file);
}
