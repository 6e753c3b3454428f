/* layout.c - where each tensor of a new safetensors file lies, and the header that says so. Called by writer.c when
 * everything is declared. */
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "io/file.h"
#include "io/text.h"
#include "io/writer.h"

enum { LENGTH_BYTES = 8, FORMAT_VERSION = 1 };

/* Text that grows; `failed` once there is no memory. */
typedef struct lac_text {
    char *data;
    uint64_t bytes, room;
} lac_text;

static int append(const char *from, size_t bytes, void *user)
{
    lac_text *text = user;
    if (bytes > text->room - text->bytes) {
        uint64_t room = 2 * text->room + bytes + 4096;
        char *grown = lac_grow(text->data, text->bytes, room);
        if (!grown) return -1;
        text->data = grown;
        text->room = room;
    }
    memcpy(text->data + text->bytes, from, bytes);
    text->bytes += bytes;
    return 0;
}

/* A file with weights is a container, whose tensors begin at 64 bytes. Any other is a plain checkpoint, in which
 * padding would turn up as a stranger: there it stands only where an element would not be aligned. */
static lac_status place_items(lac_writer *writer)
{
    uint64_t end = 0;
    for (int64_t i = 0; i < writer->item_count; i++) {
        lac_item *item = &writer->items[i];
        uint64_t alignment = writer->weight_count > 0 ? LAC_CONTAINER_ALIGNMENT : (uint64_t)(item->type->bits + 7) / 8;
        item->padding = (alignment - end % alignment) % alignment;
        if (!lac_add_u64(end, item->padding, &item->offset) || !lac_add_u64(item->offset, item->bytes, &end) ||
            end > INT64_MAX / 2)
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: the declared tensors are too large for one file",
                            writer->output.path);
    }
    return LAC_STATUS_OK;
}

/* Steals nothing and keeps nothing on failure: the entry of one tensor, or NULL. */
static json_t *tensor_entry(const char *type, const int64_t *shape, int rank, uint64_t offset, uint64_t bytes)
{
    json_t *sizes = json_array();
    bool made = sizes != NULL;
    for (int i = 0; i < rank && made; i++) made = json_array_append_new(sizes, json_integer(shape[i])) == 0;
    json_t *entry = made ? json_pack("{s:s, s:O, s:[I,I]}", "dtype", type, "shape", sizes, "data_offsets", (json_int_t)offset,
                                     (json_int_t)(offset + bytes))
                         : NULL;
    json_decref(sizes);
    return entry;
}

static bool add_tensors(const lac_writer *writer, json_t *header)
{
    int64_t pads = 0;
    for (int64_t i = 0; i < writer->item_count; i++) {
        const lac_item *item = &writer->items[i];
        if (item->padding > 0) {
            char name[sizeof LAC_PAD_PREFIX + 24];
            snprintf(name, sizeof name, LAC_PAD_PREFIX "%lld", (long long)pads++);
            int64_t length = (int64_t)item->padding;
            json_t *entry = tensor_entry("U8", &length, 1, item->offset - item->padding, item->padding);
            if (json_object_set_new(header, name, entry) != 0) return false;
        }
        json_t *entry = tensor_entry(item->type->name, item->shape, item->rank, item->offset, item->bytes);
        if (json_object_set_new(header, item->name, entry) != 0) return false;
    }
    return true;
}

static json_t *weight_entry(const lac_weight_info *info)
{
    char pattern[LAC_PATTERN_TEXT_SIZE];
    if (lac_pattern_format(&info->pattern, pattern, sizeof pattern) != LAC_STATUS_OK) return NULL;
    json_t *entry =
        json_pack("{s:s, s:I, s:I, s:s, s:s}", "pattern", pattern, "n", (json_int_t)info->n, "k", (json_int_t)info->k, "dtype",
                  lac_type_of_dtype(info->dtype)->name, "encoding", lac_container_encoding_name(info->encoding));
    bool made = entry != NULL;
    if (made && info->n_out != info->n) made = json_object_set_new(entry, "n_out", json_integer(info->n_out)) == 0;
    if (made && info->k_in != info->k) made = json_object_set_new(entry, "k_in", json_integer(info->k_in)) == 0;
    if (made) return entry;
    json_decref(entry);
    return NULL;
}

/* The record of docs/format.md as a JSON string, or NULL. */
static json_t *make_record(const lac_writer *writer)
{
    json_t *weights = json_object();
    bool made = weights != NULL;
    for (int64_t i = 0; i < writer->weight_count && made; i++)
        made = json_object_set_new(weights, writer->weights[i].name, weight_entry(&writer->weights[i].info)) == 0;
    json_t *record = made ? json_pack("{s:i, s:O}", "format", FORMAT_VERSION, "weights", weights) : NULL;
    json_decref(weights);
    lac_text text = {0};
    json_t *value = NULL;
    if (record && json_dump_callback(record, append, &text, 0) == 0) value = json_stringn(text.data, (size_t)text.bytes);
    lac_release(text.data);
    json_decref(record);
    return value;
}

/* The whole header as a tree, or NULL. */
static json_t *make_header(const lac_writer *writer)
{
    json_t *header = json_object();
    json_t *metadata = header ? json_object() : NULL;
    bool made = metadata && json_object_update(metadata, writer->metadata) == 0; /* json_copy loses keys without memory */
    if (made && writer->weight_count > 0) made = json_object_set_new(metadata, LAC_RECORD_KEY, make_record(writer)) == 0;
    if (made && json_object_size(metadata) > 0) made = json_object_set(header, "__metadata__", metadata) == 0;
    if (made) made = add_tensors(writer, header);
    json_decref(metadata);
    if (made) return header;
    json_decref(header);
    return NULL;
}

lac_status lac_writer_lay_out(lac_writer *writer, char **out, uint64_t *bytes)
{
    lac_status status = place_items(writer);
    if (status != LAC_STATUS_OK) return status;
    static const char spaces[LAC_CONTAINER_ALIGNMENT + 1] = "                                                                ";
    lac_text text = {0};
    json_t *header = make_header(writer);
    bool made =
        header && append(spaces, LENGTH_BYTES, &text) == 0 && json_dump_callback(header, append, &text, JSON_COMPACT) == 0;
    uint64_t rest = (LAC_CONTAINER_ALIGNMENT - text.bytes % LAC_CONTAINER_ALIGNMENT) % LAC_CONTAINER_ALIGNMENT;
    made = made && append(spaces, (size_t)rest, &text) == 0;
    json_decref(header);
    if (!made) {
        lac_release(text.data);
        return lac_fail_memory("the header of a safetensors file", text.bytes);
    }
    uint64_t length = text.bytes - LENGTH_BYTES;
    if (length > LAC_HEADER_LIMIT) {
        lac_release(text.data);
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: a header of %llu bytes exceeds the limit of %llu",
                        writer->output.path, (unsigned long long)length, (unsigned long long)LAC_HEADER_LIMIT);
    }
    for (int i = 0; i < LENGTH_BYTES; i++) text.data[i] = (char)(length >> 8 * i & 0xff);
    *out = text.data;
    *bytes = text.bytes;
    return LAC_STATUS_OK;
}
