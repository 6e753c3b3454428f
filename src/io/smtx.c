/* smtx.c - masks as .smtx text, the form of the DLMC collection: "rows, cols, nonzeros", then rows + 1 offsets, then
 * the column numbers of each row, ascending. Reading keeps no copy: two cursors walk the mapped text, one over the
 * offsets and one over the columns, so that a hostile file can make us allocate nothing. Called by file.c and query.c, and behind
 * lac_mask_save_smtx. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/memory.h"
#include "core/status.h"
#include "format/mask.h"
#include "io/file.h"
#include "io/output.h"
#include "io/text.h"

typedef struct lac_cursor {
    const char *path;
    const uint8_t *text;
    uint64_t at, end;
} lac_cursor;

static bool is_space(uint8_t byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

static void skip_spaces(lac_cursor *c)
{
    while (c->at < c->end && is_space(c->text[c->at])) c->at++;
}

/* What stands at the cursor, for a message. */
static const char *show(const lac_cursor *c, lac_short_text *out)
{
    uint64_t length = 0;
    while (c->at + length < c->end && length < 40 && !is_space(c->text[c->at + length])) length++;
    return length > 0 ? lac_text_shorten_bytes((const char *)c->text + c->at, (size_t)length, out) : "the end";
}

/* A number of decimal digits from 0 to `most`, ended by a space, a comma or the end. */
static lac_status take_number(lac_cursor *c, const char *what, int64_t number, int64_t most, int64_t *out)
{
    lac_short_text text;
    skip_spaces(c);
    uint64_t start = c->at;
    int64_t value = 0;
    while (c->at < c->end && c->text[c->at] >= '0' && c->text[c->at] <= '9' && value <= most) {
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, c->text[c->at] - '0', &value))
            value = INT64_MAX;
        c->at++;
    }
    bool ended = c->at == c->end || is_space(c->text[c->at]) || c->text[c->at] == ',';
    bool digits = c->at > start && c->at - start < 20;
    if (digits && ended && value <= most) {
        *out = value;
        return LAC_STATUS_OK;
    }
    bool too_large = digits && value > most;
    c->at = start;
    if (too_large)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: .smtx: %s %" PRId64 " is %s, more than %" PRId64, c->path, what, number,
                        show(c, &text), most);
    return lac_fail(LAC_STATUS_BAD_FILE, "%s: .smtx: %s %" PRId64 ": expected a number at byte %" PRIu64 ", found '%s'",
                    c->path, what, number, start, show(c, &text));
}

static lac_status take_comma(lac_cursor *c)
{
    lac_short_text text;
    skip_spaces(c);
    if (c->at < c->end && c->text[c->at] == ',') {
        c->at++;
        return LAC_STATUS_OK;
    }
    return lac_fail(LAC_STATUS_BAD_FILE, "%s: .smtx: expected ',' at byte %" PRIu64 " of the first line, found '%s'", c->path,
                    c->at, show(c, &text));
}

static lac_status read_sizes(lac_cursor *c, int64_t *rows, int64_t *cols, int64_t *kept)
{
    lac_status status = take_number(c, "size", 0, LAC_MAX_DIMENSION, rows);
    if (status == LAC_STATUS_OK) status = take_comma(c);
    if (status == LAC_STATUS_OK) status = take_number(c, "size", 1, LAC_MAX_DIMENSION, cols);
    if (status == LAC_STATUS_OK) status = take_comma(c);
    if (status == LAC_STATUS_OK) status = take_number(c, "size", 2, *rows * *cols, kept);
    return status;
}

/* Offsets ascend from 0 to `kept`, and none says that a row keeps more than its columns. */
static lac_status check_offsets(lac_cursor *c, int64_t rows, int64_t cols, int64_t kept)
{
    int64_t last = 0;
    for (int64_t row = 0; row <= rows; row++) {
        int64_t offset;
        lac_status status = take_number(c, "row offset", row, kept, &offset);
        if (status != LAC_STATUS_OK) return status;
        if (row == 0 && offset != 0)
            return lac_fail(LAC_STATUS_BAD_FILE, "%s: .smtx: row offset 0 is %" PRId64 ", not 0", c->path, offset);
        if (offset < last)
            return lac_fail(LAC_STATUS_BAD_FILE,
                            "%s: .smtx: row offset %" PRId64 " is %" PRId64 ", less than the one before, %" PRId64, c->path,
                            row, offset, last);
        if (offset - last > cols)
            return lac_fail(LAC_STATUS_BAD_FILE, "%s: .smtx: row %" PRId64 " keeps %" PRId64 " of %" PRId64 " columns", c->path,
                            row - 1, offset - last, cols);
        last = offset;
    }
    if (last != kept)
        return lac_fail(LAC_STATUS_BAD_FILE,
                        "%s: .smtx: the last row offset is %" PRId64 ", but the first line says %" PRId64 " nonzeros", c->path,
                        last, kept);
    return LAC_STATUS_OK;
}

/* Walks all rows; sets the bits of `mask` unless that is NULL. Offsets are checked already. */
static lac_status walk_columns(const lac_file *file, lac_cursor *offsets, lac_cursor *columns, lac_mask *mask)
{
    int64_t begin = 0, end = 0;
    lac_status status = take_number(offsets, "row offset", 0, file->mask_kept, &begin);
    for (int64_t row = 0; row < file->mask_n && status == LAC_STATUS_OK; row++) {
        status = take_number(offsets, "row offset", row + 1, file->mask_kept, &end);
        int64_t last = -1;
        for (int64_t i = begin; i < end && status == LAC_STATUS_OK; i++) {
            int64_t column;
            status = take_number(columns, "column", i, file->mask_k - 1, &column);
            if (status != LAC_STATUS_OK) return status;
            if (column <= last)
                return lac_fail(LAC_STATUS_BAD_FILE,
                                "%s: .smtx: column %" PRId64 " of row %" PRId64 " is %" PRId64 ", %s %" PRId64, columns->path,
                                i, row, column,
                                column == last ? "a duplicate of the one before," : "but must be above the one before,", last);
            if (mask) lac_mask_set(mask, row, column);
            last = column;
        }
        begin = end;
    }
    return status;
}

static lac_cursor cursor_at(const lac_file *file, uint64_t at)
{
    const lac_map *map = &file->shards[0].map;
    return (lac_cursor){.path = map->path, .text = map->data, .at = at, .end = map->bytes};
}

lac_status lac_smtx_read(lac_file *file)
{
    file->format = LAC_FILE_FORMAT_SMTX;
    lac_cursor cursor = cursor_at(file, 0);
    lac_short_text text;
    lac_status status = read_sizes(&cursor, &file->mask_n, &file->mask_k, &file->mask_kept);
    if (status != LAC_STATUS_OK) return status;
    file->mask_offsets_at = cursor.at;
    status = check_offsets(&cursor, file->mask_n, file->mask_k, file->mask_kept);
    if (status != LAC_STATUS_OK) return status;
    file->mask_columns_at = cursor.at;
    lac_cursor offsets = cursor_at(file, file->mask_offsets_at);
    status = walk_columns(file, &offsets, &cursor, NULL);
    if (status != LAC_STATUS_OK) return status;
    skip_spaces(&cursor);
    if (cursor.at != cursor.end)
        return lac_fail(LAC_STATUS_BAD_FILE, "%s: .smtx: trailing text at byte %" PRIu64 ": '%s'", cursor.path, cursor.at,
                        show(&cursor, &text));
    return LAC_STATUS_OK;
}

/* A few bytes of text can claim a mask of many gigabytes. Where memory is promised before it is there, allocating it
 * would succeed and filling it would end the process, so what the machine cannot hold is refused beforehand. */
static lac_status check_memory(const lac_file *file)
{
    uint64_t bytes = (uint64_t)(file->mask_k / 64 + 1) * 8 * (uint64_t)file->mask_n; /* below 2^62 */
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0 && bytes / (uint64_t)page >= (uint64_t)pages)
        return lac_fail(LAC_STATUS_OUT_OF_MEMORY,
                        "%s: a mask of %" PRId64 " x %" PRId64 " needs %" PRIu64 " bytes, more than this machine has",
                        file->shards[0].map.path, file->mask_n, file->mask_k, bytes);
    return LAC_STATUS_OK;
}

lac_status lac_smtx_load(const lac_file *file, lac_mask **out)
{
    lac_mask *mask = NULL;
    lac_status status = check_memory(file);
    if (status == LAC_STATUS_OK) status = lac_mask_create(file->mask_n, file->mask_k, NULL, &mask);
    if (status != LAC_STATUS_OK) return status;
    lac_cursor offsets = cursor_at(file, file->mask_offsets_at), columns = cursor_at(file, file->mask_columns_at);
    status = walk_columns(file, &offsets, &columns, mask);
    if (status != LAC_STATUS_OK) {
        lac_mask_free(mask);
        return status;
    }
    *out = mask;
    return LAC_STATUS_OK;
}

/* Numbers gathered into pieces worth a system call. */
typedef struct lac_number_writer {
    lac_output *output;
    char *text; /* [NUMBER_BUFFER] */
    size_t used;
    lac_status status;
} lac_number_writer;

enum { NUMBER_BUFFER = 1 << 16, NUMBER_ROOM = 32 };

static void flush_numbers(lac_number_writer *w)
{
    if (w->status == LAC_STATUS_OK) w->status = lac_output_write(w->output, w->text, w->used);
    w->used = 0;
}

static void put_number(lac_number_writer *w, int64_t value, const char *separator)
{
    if (NUMBER_BUFFER - w->used < NUMBER_ROOM) flush_numbers(w);
    w->used += (size_t)snprintf(w->text + w->used, NUMBER_ROOM, "%" PRId64 "%s", value, separator);
}

static int64_t count_row(const lac_mask *mask, int64_t row)
{
    int64_t count = 0;
    for (int64_t word = 0; word < mask->words; word++) count += __builtin_popcountll(lac_mask_row(mask, row)[word]);
    return count;
}

static void put_mask(lac_number_writer *w, const lac_mask *mask)
{
    int64_t kept = 0;
    for (int64_t row = 0; row < mask->n; row++) kept += count_row(mask, row);
    put_number(w, mask->n, ", ");
    put_number(w, mask->k, ", ");
    put_number(w, kept, "\n");
    int64_t offset = 0;
    for (int64_t row = 0; row < mask->n && w->status == LAC_STATUS_OK; row++) {
        put_number(w, offset, " ");
        offset += count_row(mask, row);
    }
    put_number(w, offset, "\n");
    int64_t written = 0;
    for (int64_t row = 0; row < mask->n && w->status == LAC_STATUS_OK; row++)
        for (int64_t word = 0; word < mask->words; word++)
            for (uint64_t bits = lac_mask_row(mask, row)[word]; bits; bits &= bits - 1)
                put_number(w, word * 64 + __builtin_ctzll(bits), ++written == kept ? "\n" : " ");
    flush_numbers(w);
}

lac_status lac_mask_save_smtx(const lac_mask *mask, const char *path)
{
    if (!mask) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "mask is NULL");
    if (!path) return lac_fail(LAC_STATUS_INVALID_ARGUMENT, "path is NULL");
    lac_output output;
    lac_number_writer writer = {.output = &output, .text = lac_allocate(NUMBER_BUFFER)};
    if (!writer.text) return lac_fail_memory("text", NUMBER_BUFFER);
    lac_status status = lac_output_open(path, &output);
    if (status == LAC_STATUS_OK) {
        put_mask(&writer, mask);
        status = writer.status;
        if (status == LAC_STATUS_OK) status = lac_output_commit(&output);
        lac_output_discard(&output);
    }
    lac_release(writer.text);
    return status;
}
