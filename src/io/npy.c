/* npy.c - reads .npy arrays (format versions 1 to 3) by a small strict parser of the header's literal. An array in
 * Fortran order is turned into C order on opening, so that all tensors of a lac_file look alike. Called by file.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"
#include "io/file.h"
#include "io/text.h"

enum { MAGIC_BYTES = 6 };

static const struct {
    const char *descr;
    const char *type;
} types[] = {{"<f4", "F32"}, {"<f2", "F16"}, {"<f8", "F64"}, {"|u1", "U8"},  {"|i1", "I8"},  {"|b1", "BOOL"}, {"<i2", "I16"},
             {"<u2", "U16"}, {"<i4", "I32"}, {"<u4", "U32"}, {"<i8", "I64"}, {"<u8", "U64"}, {"<c8", "C64"}};

/* The header text and how far it is read. */
typedef struct lac_cursor {
    const char *path;
    const char *text;
    size_t at, end;
} lac_cursor;

typedef struct lac_npy_header {
    const lac_type *type;
    bool has_order, fortran_order, has_shape;
    int32_t rank;
    int64_t shape[LAC_MAX_RANK];
} lac_npy_header;

static lac_status fail_at(const lac_cursor *c, const char *expected)
{
    lac_short_text text;
    return lac_fail(LAC_STATUS_BAD_FILE, "%s: .npy header: expected %s at byte %zu, found \"%s\"", c->path, expected, c->at,
                    lac_text_shorten_bytes(c->text + c->at, c->end - c->at < 40 ? c->end - c->at : 40, &text));
}

static void skip_spaces(lac_cursor *c)
{
    while (c->at < c->end && (c->text[c->at] == ' ' || c->text[c->at] == '\t' || c->text[c->at] == '\n')) c->at++;
}

/* Takes `token` after spaces, if it is there. */
static bool take(lac_cursor *c, const char *token)
{
    size_t length = strlen(token);
    skip_spaces(c);
    if (c->end - c->at < length || memcmp(c->text + c->at, token, length) != 0) return false;
    c->at += length;
    return true;
}

/* A quoted string without escapes into out[room]. */
static lac_status take_string(lac_cursor *c, const char *what, char *out, size_t room)
{
    skip_spaces(c);
    size_t start = c->at;
    char quote = start < c->end ? c->text[start] : '\0';
    if (quote != '\'' && quote != '"') return fail_at(c, what);
    size_t stop = start + 1;
    while (stop < c->end && c->text[stop] != quote && c->text[stop] != '\\' && stop - start < room) stop++;
    if (stop == c->end || c->text[stop] != quote) return fail_at(c, what);
    memcpy(out, c->text + start + 1, stop - start - 1);
    out[stop - start - 1] = '\0';
    c->at = stop + 1;
    return LAC_STATUS_OK;
}

static lac_status take_descr(lac_cursor *c, lac_npy_header *header)
{
    char descr[32];
    skip_spaces(c);
    if (c->at < c->end && c->text[c->at] == '[')
        return lac_fail(LAC_STATUS_UNSUPPORTED, "%s: .npy header: descr is a list: arrays of records are not supported",
                        c->path);
    lac_status status = take_string(c, "a quoted descr", descr, sizeof descr);
    if (status != LAC_STATUS_OK) return status;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].descr, descr) == 0) header->type = lac_type_find(types[i].type);
    lac_short_text text;
    if (!header->type)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "%s: .npy header: descr '%s' is not supported%s", c->path,
                        lac_text_shorten(descr, &text), descr[0] == '>' ? ": it is big-endian" : "");
    return LAC_STATUS_OK;
}

static lac_status take_size(lac_cursor *c, int64_t *out)
{
    skip_spaces(c);
    size_t start = c->at;
    int64_t value = 0;
    while (c->at < c->end && c->text[c->at] >= '0' && c->text[c->at] <= '9') {
        int digit = c->text[c->at] - '0';
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, digit, &value)) {
            lac_short_text text;
            size_t length = c->at - start + 1;
            while (start + length < c->end && c->text[start + length] >= '0' && c->text[start + length] <= '9') length++;
            return lac_fail(LAC_STATUS_BAD_FILE, "%s: .npy header: shape holds %s, which is too large", c->path,
                            lac_text_shorten_bytes(c->text + start, length, &text));
        }
        c->at++;
    }
    if (c->at == start) return fail_at(c, "a number in shape");
    if (c->text[start] == '0' && c->at - start > 1) {
        c->at = start;
        return fail_at(c, "a number in shape without leading zeros");
    }
    *out = value;
    return LAC_STATUS_OK;
}

/* "()", "(3,)", "(3, 4)" */
static lac_status take_shape(lac_cursor *c, lac_npy_header *header)
{
    if (!take(c, "(")) return fail_at(c, "'(' of the shape");
    bool comma = true;
    while (!take(c, ")")) {
        if (!comma) return fail_at(c, "',' or ')' in shape");
        if (header->rank == LAC_MAX_RANK)
            return lac_fail(LAC_STATUS_UNSUPPORTED, "%s: .npy header: shape has more than %d dimensions", c->path,
                            LAC_MAX_RANK);
        lac_status status = take_size(c, &header->shape[header->rank]);
        if (status != LAC_STATUS_OK) return status;
        header->rank++;
        comma = take(c, ",");
    }
    if (header->rank == 1 && !comma) return fail_at(c, "',' after the only dimension in shape");
    header->has_shape = true;
    return LAC_STATUS_OK;
}

static lac_status take_entry(lac_cursor *c, lac_npy_header *header)
{
    char key[32];
    lac_short_text text;
    lac_status status = take_string(c, "a key", key, sizeof key);
    if (status != LAC_STATUS_OK) return status;
    bool is_descr = strcmp(key, "descr") == 0, is_order = strcmp(key, "fortran_order") == 0,
         is_shape = strcmp(key, "shape") == 0;
    if (!is_descr && !is_order && !is_shape)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: .npy header: unknown key '%s'", c->path, lac_text_shorten(key, &text));
    if ((is_descr && header->type) || (is_order && header->has_order) || (is_shape && header->has_shape))
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: .npy header: '%s' stands twice", c->path, key);
    if (!take(c, ":")) return fail_at(c, "':'");
    if (is_descr) return take_descr(c, header);
    if (is_shape) return take_shape(c, header);
    header->has_order = true;
    header->fortran_order = take(c, "True");
    return header->fortran_order || take(c, "False") ? LAC_STATUS_OK : fail_at(c, "True or False");
}

static lac_status read_literal(lac_cursor *c, lac_npy_header *header)
{
    if (!take(c, "{")) return fail_at(c, "'{'");
    bool comma = true;
    while (!take(c, "}")) {
        if (!comma) return fail_at(c, "',' or '}'");
        lac_status status = take_entry(c, header);
        if (status != LAC_STATUS_OK) return status;
        comma = take(c, ",");
    }
    skip_spaces(c);
    if (c->at != c->end) return fail_at(c, "the end");
    const char *missing = !header->type ? "descr" : !header->has_order ? "fortran_order" : !header->has_shape ? "shape" : NULL;
    if (missing) return lac_fail(LAC_STATUS_BAD_FILE, "%s: .npy header: '%s' is missing", c->path, missing);
    return LAC_STATUS_OK;
}

/* Where the header's text lies: after the magic, the version, and a length of 2 or 4 bytes. */
static lac_status find_header(const lac_map *map, lac_cursor *out)
{
    if (map->bytes < MAGIC_BYTES + 4)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: truncated .npy: %" PRIu64 " bytes", map->path, map->bytes);
    unsigned major = map->data[MAGIC_BYTES], minor = map->data[MAGIC_BYTES + 1];
    if (major < 1 || major > 3 || minor != 0)
        return lac_fail(LAC_STATUS_UNSUPPORTED, "%s: .npy version %u.%u; versions 1.0, 2.0 and 3.0 are supported", map->path,
                        major, minor);
    unsigned length_bytes = major == 1 ? 2 : 4;
    uint64_t start = MAGIC_BYTES + 2 + length_bytes, length = 0;
    if (map->bytes < start)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: truncated .npy: %" PRIu64 " bytes", map->path, map->bytes);
    for (unsigned i = 0; i < length_bytes; i++) length |= (uint64_t)map->data[MAGIC_BYTES + 2 + i] << 8 * i;
    if (length > map->bytes - start)
        return lac_fail(LAC_STATUS_BAD_FILE,
                        "%s: truncated .npy: header length %" PRIu64 ", but only %" PRIu64 " bytes follow it", map->path,
                        length, map->bytes - start);
    *out = (lac_cursor){.path = map->path, .text = (const char *)map->data + start, .end = (size_t)length};
    return LAC_STATUS_OK;
}

/* Column-first to row-first, walking the target in order. */
static void reorder(const lac_tensor *tensor, const uint8_t *from, uint8_t *to)
{
    const size_t element = (size_t)tensor->type->bits / 8;
    int64_t stride[LAC_MAX_RANK], position[LAC_MAX_RANK] = {0}, step = 1;
    for (int d = 0; d < tensor->rank; d++) {
        stride[d] = step;
        step *= tensor->shape[d];
    }
    int64_t source = 0;
    for (uint64_t done = 0; done < tensor->bytes; done += element) {
        memcpy(to + done, from + (uint64_t)source * element, element);
        for (int d = tensor->rank - 1; d >= 0; d--) {
            source += stride[d];
            if (++position[d] < tensor->shape[d]) break;
            source -= stride[d] * tensor->shape[d];
            position[d] = 0;
        }
    }
}

lac_status lac_npy_read(lac_file *file)
{
    file->format = LAC_FILE_FORMAT_NPY;
    const lac_map *map = &file->shards[0].map;
    lac_cursor cursor = {0};
    lac_npy_header header = {0};
    lac_status status = find_header(map, &cursor);
    if (status == LAC_STATUS_OK) status = read_literal(&cursor, &header);
    if (status != LAC_STATUS_OK) return status;
    lac_tensor tensor = {.name = "array", .type = header.type, .rank = header.rank};
    memcpy(tensor.shape, header.shape, sizeof tensor.shape);
    tensor.data = (const uint8_t *)cursor.text + cursor.end;
    uint64_t follow = map->bytes - (uint64_t)(tensor.data - map->data);
    if (!lac_type_bytes(tensor.type, tensor.shape, tensor.rank, &tensor.bytes))
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: .npy header: the size of the shape overflows", map->path);
    if (tensor.bytes > follow)
        return lac_fail(LAC_STATUS_BAD_FILE,
                        "%s: truncated .npy: the array has %" PRIu64 " bytes, but only %" PRIu64 " follow the header",
                        map->path, tensor.bytes, follow);
    if (tensor.bytes < follow)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: %" PRIu64 " trailing bytes after the array", map->path,
                        follow - tensor.bytes);
    if (header.fortran_order && header.rank > 1 && tensor.bytes > 0) {
        file->converted = lac_allocate(tensor.bytes);
        if (!file->converted) return lac_fail_memory("an array in Fortran order", tensor.bytes);
        reorder(&tensor, tensor.data, file->converted);
        tensor.data = file->converted;
    }
    file->tensors = lac_allocate(sizeof tensor);
    file->by_name = lac_allocate(sizeof(lac_tensor *));
    file->visible = lac_allocate(sizeof(lac_tensor *));
    if (!file->tensors || !file->by_name || !file->visible) return lac_fail_memory("a file's tables", sizeof tensor);
    file->tensors[0] = tensor;
    file->by_name[0] = file->visible[0] = &file->tensors[0];
    file->tensor_count = file->visible_count = 1;
    return LAC_STATUS_OK;
}
