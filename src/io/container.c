/* container.c - the compressed weights of a safetensors file: reads the record in its metadata, finds the tensors it
 * names, and holds both to each other, as docs/format.md says. Called by file.c once all tensors are known. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "format/weight.h"
#include "io/file.h"
#include "io/text.h"

enum { FORMAT_VERSION = 1, PART_NAME_ROOM = 32 };

static const struct {
    const char *name;
    lac_index_encoding encoding;
} encodings[] = {{"implicit", LAC_INDEX_ENCODING_IMPLICIT},
                 {"packed", LAC_INDEX_ENCODING_PACKED},
                 {"bitmask", LAC_INDEX_ENCODING_BITMASK},
                 {"columns", LAC_INDEX_ENCODING_COLUMNS}};

enum { ENCODING_COUNT = sizeof encodings / sizeof encodings[0] };

const char *lac_container_encoding_name(lac_index_encoding encoding)
{
    for (int i = 0; i < ENCODING_COUNT; i++)
        if (encodings[i].encoding == encoding) return encodings[i].name;
    return NULL;
}

const lac_type *lac_container_part_type(lac_part part, lac_dtype dtype)
{
    if (part == LAC_PART_VALUES) return lac_type_of_dtype(dtype);
    return lac_type_find(part == LAC_PART_INDEX || part == LAC_PART_POSITIONS ? "U8" : "U32");
}

/* One weight being read: where messages say it is. */
typedef struct lac_reading {
    lac_file *file;
    const lac_shard *shard;
    int64_t shard_index;
    const char *path;
    const char *name; /* the weight's        */
    lac_short_text shown;
    char *part_name; /* room for name:part  */
    uint64_t part_room;
} lac_reading;

static lac_status refuse_unknown_keys(const char *path, const char *where, json_t *object, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        int i = 0;
        while (known[i] && strcmp(known[i], key) != 0) i++;
        lac_short_text text;
        if (!known[i])
            return lac_fail(LAC_STATUS_BAD_FILE, "%s: %s: unknown key '%s'", path, where, lac_text_shorten(key, &text));
    }
    return LAC_STATUS_OK;
}

static lac_status read_text(const lac_reading *r, const json_t *entry, const char *key, const char **out)
{
    const json_t *value = json_object_get(entry, key);
    lac_short_text text;
    if (!json_is_string(value))
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: weight '%s': %s is %s, not a string", r->path, r->shown.text, key,
                        value ? lac_json_describe(value, &text) : "missing");
    *out = json_string_value(value);
    return LAC_STATUS_OK;
}

/* `fallback` stands for a missing key unless it is negative. */
static lac_status read_dimension(const lac_reading *r, const json_t *entry, const char *key, int64_t fallback, int64_t *out)
{
    const json_t *value = json_object_get(entry, key);
    lac_short_text text;
    if (!value && fallback >= 0) {
        *out = fallback;
        return LAC_STATUS_OK;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0 || json_integer_value(value) > LAC_MAX_DIMENSION)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: weight '%s': %s is %s, not an integer from 0 to %d", r->path, r->shown.text,
                        key, value ? lac_json_describe(value, &text) : "missing", LAC_MAX_DIMENSION);
    *out = json_integer_value(value);
    return LAC_STATUS_OK;
}

static lac_status read_fields(const lac_reading *r, json_t *entry, lac_weight_info *info)
{
    static const char *const known[] = {"pattern", "n", "k", "n_out", "k_in", "dtype", "encoding", NULL};
    const char *pattern = NULL, *dtype = NULL, *encoding = NULL;
    lac_short_text text;
    char where[sizeof r->shown.text + 16];
    snprintf(where, sizeof where, "weight '%s'", r->shown.text);
    if (!json_is_object(entry))
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: %s is %s, not an object", r->path, where, lac_json_describe(entry, &text));
    lac_status status = refuse_unknown_keys(r->path, where, entry, known);
    if (status == LAC_STATUS_OK) status = read_text(r, entry, "pattern", &pattern);
    if (status == LAC_STATUS_OK) status = read_text(r, entry, "dtype", &dtype);
    if (status == LAC_STATUS_OK) status = read_text(r, entry, "encoding", &encoding);
    if (status == LAC_STATUS_OK) status = read_dimension(r, entry, "n", -1, &info->n);
    if (status == LAC_STATUS_OK) status = read_dimension(r, entry, "k", -1, &info->k);
    if (status == LAC_STATUS_OK) status = read_dimension(r, entry, "n_out", info->n, &info->n_out);
    if (status == LAC_STATUS_OK) status = read_dimension(r, entry, "k_in", info->k, &info->k_in);
    if (status != LAC_STATUS_OK) return status;
    /* lac_weight_info takes a 0 for "as n"; a file that says 0 is wrong. */
    if (info->n_out < info->n)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: %s: n_out is %" PRId64 ", but must be at least n, %" PRId64, r->path, where,
                        info->n_out, info->n);
    if (info->k_in < info->k)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: %s: k_in is %" PRId64 ", but must be at least k, %" PRId64, r->path, where,
                        info->k_in, info->k);

    status = lac_pattern_parse(lac_text_shorten(pattern, &text), &info->pattern); /* which repeats it in its message */
    if (status != LAC_STATUS_OK) return lac_fail_in(LAC_STATUS_BAD_FILE, "%s: %s", r->path, where);
    const lac_type *type = lac_type_find(dtype);
    bool stores = type && (type->dtype == LAC_DTYPE_F32 || type->dtype == LAC_DTYPE_F16 || type->dtype == LAC_DTYPE_BF16);
    if (!stores)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: %s: dtype '%s' is none of F32, F16, BF16", r->path, where,
                        lac_text_shorten(dtype, &text));
    info->dtype = type->dtype;
    for (int i = 0; i < ENCODING_COUNT; i++)
        if (strcmp(encodings[i].name, encoding) == 0) info->encoding = encodings[i].encoding;
    if (info->encoding == LAC_INDEX_ENCODING_AUTO)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: %s: unknown encoding '%s'", r->path, where,
                        lac_text_shorten(encoding, &text));
    return LAC_STATUS_OK;
}

static lac_tensor *find_part(const lac_reading *r, lac_part part)
{
    snprintf(r->part_name, r->part_room, "%s:%s", r->name, lac_part_name(part));
    return lac_file_lookup(r->file, r->part_name, r->shard_index);
}

/* Whether a free distribution keeps no unit at all, so that no bytes of values and columns are due. */
static bool keeps_nothing(const lac_reading *r)
{
    const lac_tensor *counts = find_part(r, LAC_PART_COUNTS);
    for (uint64_t i = 0; counts && i < counts->bytes; i++)
        if (((const char *)counts->data)[i]) return false;
    return counts != NULL;
}

/* `full` is what lac_weight_measure says: the very size, and for free distributions the most of values and columns. */
static lac_status take_part(const lac_reading *r, lac_part part, bool expected, uint64_t full, lac_stored_weight *weight)
{
    const char *part_name = lac_part_name(part);
    lac_tensor *tensor = find_part(r, part);
    bool at_most = weight->info.encoding == LAC_INDEX_ENCODING_COLUMNS && (part == LAC_PART_VALUES || part == LAC_PART_COLUMNS);
    if (!tensor && (!expected || full == 0 || (at_most && keeps_nothing(r)))) return LAC_STATUS_OK; /* it is one of no bytes */
    if (!tensor)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: weight '%s': its tensor ':%s' is missing", r->path, r->shown.text, part_name);
    if (!expected)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: weight '%s': its tensor ':%s' has no place in this pattern and encoding '%s'",
                        r->path, r->shown.text, part_name, lac_container_encoding_name(weight->info.encoding));
    const lac_type *type = lac_container_part_type(part, weight->info.dtype);
    if (tensor->type != type || tensor->rank != 1)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: weight '%s': its tensor ':%s' is %s of rank %d, not %s of rank 1", r->path,
                        r->shown.text, part_name, tensor->type->name, (int)tensor->rank, type->name);
    if (at_most ? tensor->bytes > full : tensor->bytes != full)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: weight '%s': its tensor ':%s' has %" PRIu64 " bytes, not %s%" PRIu64, r->path,
                        r->shown.text, part_name, tensor->bytes, at_most ? "at most " : "", full);
    tensor->hidden = true;
    weight->part[part] = (lac_span){tensor->data, tensor->bytes};
    return LAC_STATUS_OK;
}

static lac_status read_weight(lac_reading *r, json_t *entry)
{
    lac_stored_weight weight = {.name = r->name, .shard = r->shard_index};
    lac_weight_info *info = &weight.info;
    info->size = sizeof *info;
    lac_status status = read_fields(r, entry, info);
    if (status != LAC_STATUS_OK) return status;
    info->has_row_perm = find_part(r, LAC_PART_ROW_PERM) != NULL;
    info->has_col_perm = find_part(r, LAC_PART_COL_PERM) != NULL;
    uint64_t bytes[LAC_PART_COUNT] = {0};
    lac_geometry geometry;
    status = lac_weight_measure(info, bytes);
    if (status == LAC_STATUS_OK) status = lac_geometry_make(&info->pattern, info->n, info->k, &geometry);
    if (status != LAC_STATUS_OK) return lac_fail_in(LAC_STATUS_BAD_FILE, "%s: weight '%s'", r->path, r->shown.text);
    for (int part = 0; part < LAC_PART_COUNT && status == LAC_STATUS_OK; part++)
        status = take_part(r, (lac_part)part, lac_weight_has_part(info, &geometry, (lac_part)part), bytes[part], &weight);
    if (status != LAC_STATUS_OK) return status;
    /* What the file really holds: a free distribution may keep less than it might. */
    info->value_bytes = weight.part[LAC_PART_VALUES].bytes;
    info->kept = (int64_t)(info->value_bytes / lac_dtype_size(info->dtype));
    info->index_bytes = 0;
    for (int part = 1; part < LAC_PART_COUNT; part++) info->index_bytes += weight.part[part].bytes;
    void *grown = lac_file_reserve(r->file->weights, r->file->weight_count, &r->file->weight_room, 1, sizeof weight);
    if (!grown) return LAC_STATUS_OUT_OF_MEMORY;
    r->file->weights = grown;
    r->file->weights[r->file->weight_count++] = weight;
    return LAC_STATUS_OK;
}

static lac_status check_version(const char *path, const json_t *record)
{
    lac_short_text text;
    if (!json_is_object(record))
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: the lacuna record is %s, not an object", path,
                        lac_json_describe(record, &text));
    const json_t *version = json_object_get(record, "format");
    if (!json_is_integer(version))
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: the lacuna record's format is %s, not an integer", path,
                        version ? lac_json_describe(version, &text) : "missing");
    if (json_integer_value(version) != FORMAT_VERSION)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "%s: lacuna format %s, but this library reads format %d", path,
                        lac_json_describe(version, &text), FORMAT_VERSION);
    return LAC_STATUS_OK;
}

static lac_status read_weights(lac_reading *r, json_t *weights)
{
    lac_short_text text;
    if (!json_is_object(weights))
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: the lacuna record's weights is %s, not an object", r->path,
                        weights ? lac_json_describe(weights, &text) : "missing");
    const char *name;
    json_t *entry;
    json_object_foreach(weights, name, entry)
    {
        uint64_t room = strlen(name) + PART_NAME_ROOM;
        if (room > r->part_room) {
            lac_release(r->part_name);
            r->part_name = lac_allocate(2 * room);
            r->part_room = r->part_name ? 2 * room : 0;
            if (!r->part_name) return lac_fail_memory("a tensor's name", 2 * room);
        }
        r->name = name;
        lac_text_shorten(name, &r->shown);
        lac_status status = read_weight(r, entry);
        if (status != LAC_STATUS_OK) return status;
    }
    return LAC_STATUS_OK;
}

lac_status lac_container_read(lac_file *file)
{
    static const char *const known[] = {"format", "weights", NULL};
    for (int64_t i = 0; i < file->shard_count; i++) {
        lac_shard *shard = &file->shards[i];
        const json_t *value = json_object_get(json_object_get(shard->header, "__metadata__"), LAC_RECORD_KEY);
        if (!value) continue;
        const char *path = shard->map.path;
        lac_status status =
            lac_json_parse(path, "lacuna record", json_string_value(value), json_string_length(value), &shard->record);
        if (status == LAC_STATUS_OK) status = check_version(path, shard->record);
        if (status == LAC_STATUS_OK) status = refuse_unknown_keys(path, "the lacuna record", shard->record, known);
        if (status != LAC_STATUS_OK) return status;
        lac_reading reading = {.file = file, .shard = shard, .shard_index = i, .path = path};
        status = read_weights(&reading, json_object_get(shard->record, "weights"));
        lac_release(reading.part_name);
        if (status != LAC_STATUS_OK) return status;
    }
    return LAC_STATUS_OK;
}
