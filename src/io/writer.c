/* writer.c - lac_writer: declare, write in order, commit. The public face of output.c and layout.c. A wrong argument
 * leaves the writer as it was; once the system has refused a write, only lac_writer_free is left. */
#include "io/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "format/weight.h"
#include "io/file.h"
#include "io/text.h"

static lac_status open_writer(const char *path, lac_status (*open_output)(const char *, lac_output *), lac_writer **out)
{
    if (!path) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "path is NULL");
    if (!out) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "out is NULL");
    lac_writer *writer = lac_allocate_zeroed(sizeof *writer);
    if (!writer) return lac_fail_memory("a writer", sizeof *writer);
    writer->output.folder = writer->output.descriptor = -1;
    writer->names = json_object();
    writer->metadata = json_object();
    lac_status status = writer->names && writer->metadata ? LAC_STATUS_OK : lac_fail_memory("a writer", 0);
    if (status == LAC_STATUS_OK) status = open_output(path, &writer->output);
    if (status != LAC_STATUS_OK) {
        lac_writer_free(writer);
        return status;
    }
    *out = writer;
    return LAC_STATUS_OK;
}

lac_status lac_writer_open(const char *path, lac_writer **out) { return open_writer(path, lac_output_open, out); }

lac_status lac_writer_open_partial(const char *path, lac_writer **out)
{
    return open_writer(path, lac_output_open_partial, out);
}

void lac_writer_free(lac_writer *writer)
{
    if (!writer) return;
    lac_output_discard(&writer->output);
    for (int64_t i = 0; i < writer->item_count; i++) lac_release(writer->items[i].name);
    for (int64_t i = 0; i < writer->weight_count; i++) lac_release(writer->weights[i].name);
    lac_release(writer->items);
    lac_release(writer->weights);
    json_decref(writer->names);
    json_decref(writer->metadata);
    lac_release(writer);
}

static lac_status check_alive(const lac_writer *writer)
{
    if (!writer) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "writer is NULL");
    if (writer->state == LAC_WRITER_BROKEN)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: an earlier write failed; the writer can only be freed",
                        writer->output.path);
    if (writer->state == LAC_WRITER_COMMITTED)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: is committed; the writer can only be freed", writer->output.path);
    return LAC_STATUS_OK;
}

static lac_status check_declaring(const lac_writer *writer, const char *what, const char *name)
{
    lac_status status = check_alive(writer);
    if (status != LAC_STATUS_OK) return status;
    lac_short_text text;
    if (!name || !*name)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: %s is %s", writer->output.path,
                        strcmp(what, "key") == 0 ? "key" : "name", name ? "empty" : "NULL");
    if (!lac_text_is_utf8(name))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: %s '%s' is not UTF-8", writer->output.path, what,
                        lac_text_shorten(name, &text));
    if (writer->state != LAC_WRITER_DECLARING)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: %s '%s' comes after the first write; declare everything before",
                        writer->output.path, what, lac_text_shorten(name, &text));
    return LAC_STATUS_OK;
}

lac_status lac_writer_set_metadata(lac_writer *writer, const char *key, const char *value)
{
    lac_status status = check_declaring(writer, "key", key);
    if (status != LAC_STATUS_OK) return status;
    lac_short_text text;
    lac_text_shorten(key, &text);
    if (!value)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: metadata '%s': value is NULL", writer->output.path, text.text);
    if (strcmp(key, LAC_RECORD_KEY) == 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: metadata '%s' is the container's own record", writer->output.path,
                        key);
    if (!lac_text_is_utf8(value))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: metadata '%s': its value is not UTF-8", writer->output.path,
                        text.text);
    if (json_object_get(writer->metadata, key))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: metadata '%s' is set twice", writer->output.path, text.text);
    if (json_object_set_new(writer->metadata, key, json_string(value)) != 0) return lac_fail_memory("metadata", strlen(value));
    return LAC_STATUS_OK;
}

static lac_status check_name_free(const lac_writer *writer, const char *name)
{
    lac_short_text text;
    lac_text_shorten(name, &text);
    if (strcmp(name, "__metadata__") == 0 || strncmp(name, LAC_PAD_PREFIX, strlen(LAC_PAD_PREFIX)) == 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: the name '%s' is reserved", writer->output.path, text.text);
    if (json_object_get(writer->names, name))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: the name '%s' is declared twice", writer->output.path, text.text);
    return LAC_STATUS_OK;
}

static lac_status reserve_items(lac_writer *writer, int64_t count)
{
    void *grown = lac_file_reserve(writer->items, writer->item_count, &writer->item_room, count, sizeof *writer->items);
    if (!grown) return LAC_STATUS_OUT_OF_MEMORY;
    writer->items = grown;
    return LAC_STATUS_OK;
}

lac_status lac_writer_declare_tensor(lac_writer *writer, const lac_tensor_info *info)
{
    lac_status status = check_alive(writer);
    if (status != LAC_STATUS_OK) return status;
    if (!info) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "info is NULL");
    lac_tensor_info known;
    status = lac_read_struct("info", info, &known, sizeof known);
    if (status == LAC_STATUS_OK) status = check_declaring(writer, "tensor", known.name);
    if (status == LAC_STATUS_OK) status = check_name_free(writer, known.name);
    if (status != LAC_STATUS_OK) return status;
    lac_short_text name, text;
    lac_text_shorten(known.name, &name);
    lac_item item = {.weight = -1, .rank = known.rank};
    item.type = known.type ? lac_type_find(known.type) : lac_type_of_dtype(known.dtype);
    if (!item.type)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: tensor '%s': type '%s' is unknown", writer->output.path, name.text,
                        known.type ? lac_text_shorten(known.type, &text) : lac_dtype_name(known.dtype));
    if (known.rank < 0 || known.rank > LAC_MAX_RANK)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: tensor '%s': rank is %d, not 0 to %d", writer->output.path, name.text,
                        (int)known.rank, LAC_MAX_RANK);
    memcpy(item.shape, known.shape, sizeof item.shape);
    for (int i = 0; i < known.rank; i++)
        if (known.shape[i] < 0)
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: tensor '%s': shape[%d] is %" PRId64, writer->output.path,
                            name.text, i, known.shape[i]);
    if (!lac_type_bytes(item.type, item.shape, item.rank, &item.bytes))
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT,
                        "%s: tensor '%s': the size of its shape in %s overflows or is no whole number of bytes",
                        writer->output.path, name.text, item.type->name);
    status = reserve_items(writer, 1);
    if (status != LAC_STATUS_OK) return status;
    item.name = lac_copy_text(known.name);
    if (!item.name || json_object_set_new(writer->names, known.name, json_integer(writer->item_count)) != 0) {
        lac_release(item.name);
        return lac_fail_memory("a tensor's name", strlen(known.name) + 1);
    }
    writer->items[writer->item_count++] = item;
    return LAC_STATUS_OK;
}

/* What a weight will hold: from the weight itself, or from what lac_weight_measure says. */
static lac_status measure(const lac_weight_info *info, const lac_weight *weight, lac_weight_info *known,
                          uint64_t bytes[LAC_PART_COUNT])
{
    lac_status status = LAC_STATUS_OK;
    if (!weight) {
        if (!info) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "info and weight are both NULL");
        status = lac_read_struct("info", info, known, sizeof *known);
        known->size = sizeof *known;
        return status == LAC_STATUS_OK ? lac_weight_measure(known, bytes) : status;
    }
    *known = (lac_weight_info){.size = sizeof *known};
    status = lac_weight_get_info(weight, known);
    for (int part = 0; part < LAC_PART_COUNT && status == LAC_STATUS_OK; part++) {
        lac_span span = {0};
        status = lac_weight_get_part(weight, (lac_part)part, &span);
        bytes[part] = span.bytes;
    }
    return status;
}

/* "NAME:values" and so on for all parts, present or not: no tensor may take them. */
static lac_status name_parts(const lac_writer *writer, const char *name, char *names[LAC_PART_COUNT])
{
    for (int part = 0; part < LAC_PART_COUNT; part++) {
        uint64_t room = strlen(name) + strlen(lac_part_name((lac_part)part)) + 2;
        names[part] = lac_allocate(room);
        if (!names[part]) return lac_fail_memory("a tensor's name", room);
        snprintf(names[part], (size_t)room, "%s:%s", name, lac_part_name((lac_part)part));
        lac_status status = check_name_free(writer, names[part]);
        if (status != LAC_STATUS_OK) return status;
    }
    return LAC_STATUS_OK;
}

/* Takes the names for weight number weight_count, or none of them. */
static lac_status take_names(lac_writer *writer, const char *name, char *const names[LAC_PART_COUNT],
                             const bool present[LAC_PART_COUNT])
{
    json_int_t owner = -1 - (json_int_t)writer->weight_count, item = (json_int_t)writer->item_count;
    bool taken = json_object_set_new(writer->names, name, json_integer(owner)) == 0;
    for (int part = 0; part < LAC_PART_COUNT && taken; part++)
        taken = json_object_set_new(writer->names, names[part], json_integer(present[part] ? item++ : owner)) == 0;
    if (taken) return LAC_STATUS_OK;
    json_object_del(writer->names, name);
    for (int part = 0; part < LAC_PART_COUNT; part++) json_object_del(writer->names, names[part]);
    return lac_fail_memory("a weight's names", strlen(name));
}

static lac_status add_weight(lac_writer *writer, const char *name, const lac_weight_info *info,
                             const uint64_t bytes[LAC_PART_COUNT], char *names[LAC_PART_COUNT])
{
    lac_geometry geometry;
    bool present[LAC_PART_COUNT];
    lac_status status = lac_geometry_make(&info->pattern, info->n, info->k, &geometry);
    if (status == LAC_STATUS_OK) status = name_parts(writer, name, names);
    if (status == LAC_STATUS_OK) status = reserve_items(writer, LAC_PART_COUNT);
    if (status != LAC_STATUS_OK) return status;
    void *grown = lac_file_reserve(writer->weights, writer->weight_count, &writer->weight_room, 1, sizeof *writer->weights);
    if (!grown) return LAC_STATUS_OUT_OF_MEMORY;
    writer->weights = grown;
    lac_declared_weight weight = {.name = lac_copy_text(name), .info = *info, .first_item = writer->item_count};
    if (!weight.name) return lac_fail_memory("a weight's name", strlen(name) + 1);
    for (int part = 0; part < LAC_PART_COUNT; part++) present[part] = lac_weight_has_part(info, &geometry, (lac_part)part);
    status = take_names(writer, name, names, present);
    if (status != LAC_STATUS_OK) {
        lac_release(weight.name);
        return status;
    }
    for (int part = 0; part < LAC_PART_COUNT; part++) {
        if (!present[part]) continue;
        lac_item item = {
            .name = names[part], .rank = 1, .bytes = bytes[part], .weight = writer->weight_count, .part = (lac_part)part};
        item.type = lac_container_part_type((lac_part)part, info->dtype);
        item.shape[0] = (int64_t)(bytes[part] / ((uint64_t)item.type->bits / 8));
        names[part] = NULL; /* the item's now */
        writer->items[writer->item_count++] = item;
        weight.item_count++;
    }
    writer->weights[writer->weight_count++] = weight;
    return LAC_STATUS_OK;
}

lac_status lac_writer_declare_weight(lac_writer *writer, const char *name, const lac_weight_info *info,
                                     const lac_weight *weight)
{
    lac_status status = check_declaring(writer, "weight", name);
    if (status == LAC_STATUS_OK) status = check_name_free(writer, name);
    if (status != LAC_STATUS_OK) return status;
    lac_weight_info known;
    uint64_t bytes[LAC_PART_COUNT] = {0};
    lac_short_text text;
    status = measure(info, weight, &known, bytes);
    if (status != LAC_STATUS_OK)
        return lac_fail_in(status, "%s: weight '%s'", writer->output.path, lac_text_shorten(name, &text));
    char *names[LAC_PART_COUNT] = {0};
    status = add_weight(writer, name, &known, bytes, names);
    for (int part = 0; part < LAC_PART_COUNT; part++) lac_release(names[part]);
    return status;
}

/* The first write of data, or the commit, ends the declarations. */
static lac_status begin_writing(lac_writer *writer)
{
    if (writer->state != LAC_WRITER_DECLARING) return LAC_STATUS_OK;
    char *header = NULL;
    uint64_t bytes = 0;
    lac_status status = lac_writer_lay_out(writer, &header, &bytes);
    if (status != LAC_STATUS_OK) return status;
    status = lac_output_write(&writer->output, header, bytes);
    lac_release(header);
    writer->state = status == LAC_STATUS_OK ? LAC_WRITER_WRITING : LAC_WRITER_BROKEN;
    return status;
}

lac_status lac_writer_begin(lac_writer *writer) { return begin_writing(writer); }

/* The bytes of the items from `next` on that belong to one weight, or of one tensor, with the padding before each. */
lac_status lac_writer_pass(lac_writer *writer, const char *name, uint64_t digest, bool *passed)
{
    const lac_item *items = writer->items;
    int64_t end = writer->next;
    uint64_t bytes = 0;
    *passed = false;
    if (end == writer->item_count) return LAC_STATUS_OK;
    int64_t weight = items[end].weight;
    if (strcmp(weight >= 0 ? writer->weights[weight].name : items[end].name, name) != 0) return LAC_STATUS_OK;
    do {
        bytes += items[end].padding + items[end].bytes;
        end++;
    } while (weight >= 0 && end < writer->item_count && items[end].weight == weight);
    lac_status status = lac_output_pass(&writer->output, bytes, digest, passed);
    if (status == LAC_STATUS_OK && *passed) writer->next = end;
    return status;
}

static lac_status write_item(lac_writer *writer, const void *data)
{
    static const char zeros[LAC_CONTAINER_ALIGNMENT];
    const lac_item *item = &writer->items[writer->next];
    lac_status status = lac_output_write(&writer->output, zeros, item->padding);
    if (status == LAC_STATUS_OK) status = lac_output_write(&writer->output, data, item->bytes);
    if (status == LAC_STATUS_OK)
        writer->next++;
    else
        writer->state = LAC_WRITER_BROKEN;
    return status;
}

/* What must be written next, in words. */
static const char *expected_name(const lac_writer *writer, lac_short_text *out)
{
    if (writer->next == writer->item_count) return lac_text_shorten("nothing more", out);
    const lac_item *item = &writer->items[writer->next];
    lac_short_text name;
    lac_text_shorten(item->weight >= 0 ? writer->weights[item->weight].name : item->name, &name);
    snprintf(out->text, sizeof out->text, "%s '%.100s'", item->weight >= 0 ? "weight" : "tensor", name.text);
    return out->text;
}

/* Finds what was declared under `name`; *number is the item's, or -1 - the weight's. */
static lac_status find_declared(const lac_writer *writer, const char *what, const char *name, json_int_t *number)
{
    lac_status status = check_alive(writer);
    if (status != LAC_STATUS_OK) return status;
    if (!name) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: name is NULL", writer->output.path);
    lac_short_text text;
    const json_t *found = json_object_get(writer->names, name);
    if (!found)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: %s '%s' was not declared", writer->output.path, what,
                        lac_text_shorten(name, &text));
    *number = json_integer_value(found);
    return LAC_STATUS_OK;
}

lac_status lac_writer_write_tensor(lac_writer *writer, const char *name, const void *data, uint64_t bytes)
{
    json_int_t number = 0;
    lac_status status = find_declared(writer, "tensor", name, &number);
    if (status != LAC_STATUS_OK) return status;
    lac_short_text text, expected;
    lac_text_shorten(name, &text);
    if (number < 0 || writer->items[number].weight >= 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: '%s' belongs to a weight; use lac_writer_write_weight",
                        writer->output.path, text.text);
    if (number != writer->next)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: tensor '%s' is out of order%s; expected is %s", writer->output.path,
                        text.text, number < writer->next ? " (already written)" : "", expected_name(writer, &expected));
    if (bytes != writer->items[number].bytes)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: tensor '%s': %" PRIu64 " bytes given, %" PRIu64 " declared",
                        writer->output.path, text.text, bytes, writer->items[number].bytes);
    if (!data && bytes > 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: tensor '%s': data is NULL", writer->output.path, text.text);
    status = begin_writing(writer);
    return status == LAC_STATUS_OK ? write_item(writer, data) : status;
}

/* The weight must be what was declared, to the byte. */
static lac_status match_weight(const lac_writer *writer, const lac_declared_weight *declared, const lac_weight *weight,
                               lac_span spans[LAC_PART_COUNT])
{
    lac_weight_info info = {.size = sizeof info};
    lac_status status = lac_weight_get_info(weight, &info);
    if (status != LAC_STATUS_OK) return status;
    const lac_weight_info *wanted = &declared->info;
    const char *differs = !lac_pattern_equal(&info.pattern, &wanted->pattern)        ? "pattern"
                          : info.n != wanted->n || info.k != wanted->k               ? "shape"
                          : info.n_out != wanted->n_out || info.k_in != wanted->k_in ? "n_out or k_in"
                          : info.dtype != wanted->dtype                              ? "dtype"
                          : info.encoding != wanted->encoding                        ? "encoding"
                          : !info.has_row_perm != !wanted->has_row_perm || !info.has_col_perm != !wanted->has_col_perm
                              ? "permutation"
                              : NULL;
    lac_short_text name;
    lac_text_shorten(declared->name, &name);
    if (differs)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: weight '%s': its %s is not what was declared", writer->output.path,
                        name.text, differs);
    for (int64_t i = 0; i < declared->item_count; i++) {
        const lac_item *item = &writer->items[declared->first_item + i];
        status = lac_weight_get_part(weight, item->part, &spans[i]);
        if (status != LAC_STATUS_OK) return status;
        if (spans[i].bytes != item->bytes)
            return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: weight '%s': its %s has %" PRIu64 " bytes, %" PRIu64 " declared",
                            writer->output.path, name.text, lac_part_name(item->part), spans[i].bytes, item->bytes);
    }
    return LAC_STATUS_OK;
}

lac_status lac_writer_write_weight(lac_writer *writer, const char *name, const lac_weight *weight)
{
    json_int_t number = 0;
    if (!weight) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "weight is NULL");
    lac_status status = find_declared(writer, "weight", name, &number);
    if (status != LAC_STATUS_OK) return status;
    lac_short_text text, expected;
    lac_text_shorten(name, &text);
    int64_t index = -1 - number;
    if (number >= 0 || strcmp(writer->weights[index].name, name) != 0)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: '%s' was not declared as a weight", writer->output.path, text.text);
    const lac_declared_weight *declared = &writer->weights[index];
    if (declared->first_item != writer->next)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: weight '%s' is out of order%s; expected is %s", writer->output.path,
                        text.text, declared->first_item < writer->next ? " (already written)" : "",
                        expected_name(writer, &expected));
    lac_span spans[LAC_PART_COUNT] = {0};
    status = match_weight(writer, declared, weight, spans);
    if (status == LAC_STATUS_OK) status = begin_writing(writer);
    for (int64_t i = 0; i < declared->item_count && status == LAC_STATUS_OK; i++) status = write_item(writer, spans[i].data);
    return status;
}

lac_status lac_writer_commit(lac_writer *writer)
{
    lac_status status = check_alive(writer);
    if (status != LAC_STATUS_OK) return status;
    lac_short_text expected;
    if (writer->next < writer->item_count)
        return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "%s: cannot commit: %s and %" PRId64 " more are declared but not written",
                        writer->output.path, expected_name(writer, &expected), writer->item_count - writer->next - 1);
    status = begin_writing(writer);
    if (status != LAC_STATUS_OK) return status;
    status = lac_output_commit(&writer->output);
    writer->state = status == LAC_STATUS_OK ? LAC_WRITER_COMMITTED : LAC_WRITER_BROKEN;
    return status;
}

lac_status lac_weight_save(const lac_weight *weight, const char *path, const char *name)
{
    if (!weight) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "weight is NULL");
    lac_writer *writer = NULL;
    lac_status status = lac_writer_open(path, &writer);
    if (status != LAC_STATUS_OK) return status;
    status = lac_writer_declare_weight(writer, name, NULL, weight);
    if (status == LAC_STATUS_OK) status = lac_writer_write_weight(writer, name, weight);
    if (status == LAC_STATUS_OK) status = lac_writer_commit(writer);
    lac_writer_free(writer);
    return status;
}
