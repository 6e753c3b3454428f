/* text.c - strict JSON by jansson, and texts for messages. Called by the readers and writers of src/io. jansson keeps
 * malloc: its allocator is global to the process and so is not ours to set. */
#include "io/text.h"

#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "core/status.h"

const char *lac_text_shorten_bytes(const char *text, size_t bytes, lac_short_text *out)
{
    const size_t room = sizeof out->text - 4; /* for "..." and the terminator */
    size_t count = bytes < room ? bytes : room;
    if (count < bytes) /* do not cut a character in two */
        while (count > 0 && ((unsigned char)text[count] & 0xc0) == 0x80) count--;
    for (size_t i = 0; i < count; i++) {
        unsigned char byte = (unsigned char)text[i];
        out->text[i] = byte < 0x20 || byte == 0x7f ? '?' : (char)byte;
        bool is_c1 = i > 0 && (unsigned char)text[i - 1] == 0xc2 && (byte & 0xe0) == 0x80; /* U+0080 to U+009F */
        if (is_c1) out->text[i - 1] = out->text[i] = '?';
    }
    memcpy(out->text + count, count < bytes ? "..." : "", count < bytes ? 4 : 1);
    return out->text;
}

const char *lac_text_shorten(const char *text, lac_short_text *out) { return lac_text_shorten_bytes(text, strlen(text), out); }

const char *lac_error_describe(int number, lac_error_text *out)
{
    const char *text = strerrordesc_np(number); /* constant text, unlike strerror's */
    snprintf(out->text, sizeof out->text, "%s", text ? text : "unknown error");
    return out->text;
}

bool lac_text_is_utf8(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        uint32_t code = *p++;
        if (code < 0x80) continue;
        int more = code >= 0xf0 ? 3 : code >= 0xe0 ? 2 : 1;
        if (code < 0xc2 || code > 0xf4) return false;
        code &= 0x3fu >> more;
        for (int i = 0; i < more; i++) {
            if ((*p & 0xc0) != 0x80) return false;
            code = code << 6 | (*p++ & 0x3fu);
        }
        bool overlong = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
        if (overlong || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return false;
    }
    return true;
}

/* The longest run of bytes inside a string or between two: no token is longer. */
static uint64_t longest_run(const char *text, uint64_t bytes)
{
    uint64_t longest = 0, run = 0;
    bool in_string = false;
    for (uint64_t i = 0; i < bytes; i++, run++) {
        if (text[i] == '"') {
            if (run > longest) longest = run;
            run = 0;
            in_string = !in_string;
        } else if (in_string && text[i] == '\\') {
            i++;
            run++;
        }
    }
    return run > longest ? run : longest;
}

/* jansson drops a byte, and says nothing, when there is no memory for its token buffer to grow (seen in 2.14), and without
 * a string's closing quote it would run past its end. So it is given ["    ...    ", text]: the first token makes the
 * buffer as large as any other token needs. A byte lost from that one shows in its length, and since the buffer doubles,
 * a power of two of blanks keeps its closing quote away from the places where it grows. */
typedef struct lac_json_wrapped {
    char *text;
    uint64_t bytes, blanks, begin; /* `begin`: where the text proper stands */
} lac_json_wrapped;

static lac_status wrap(const char *path, const char *what, const char *text, uint64_t bytes, lac_json_wrapped *out)
{
    uint64_t blanks = 16, longest = longest_run(text, bytes);
    while (blanks < longest + 2) blanks *= 2;
    out->blanks = blanks;
    out->begin = blanks + 4;
    out->bytes = blanks + bytes + 5;
    out->text = lac_allocate(out->bytes);
    if (!out->text) {
        lac_fail_memory(what, out->bytes);
        return lac_fail_in(LAC_STATUS_OUT_OF_MEMORY, "%s", path);
    }
    memcpy(out->text, "[\"", 2);
    memset(out->text + 2, ' ', blanks);
    memcpy(out->text + 2 + blanks, "\",", 2);
    if (bytes) memcpy(out->text + out->begin, text, bytes);
    out->text[out->begin + bytes] = ']';
    return LAC_STATUS_OK;
}

/* One attempt: the value, or NULL with `error` filled in and *starved true when memory is known to be the cause. */
static json_t *parse_once(const lac_json_wrapped *wrapped, json_error_t *error, bool *starved)
{
    json_t *root = json_loadb(wrapped->text, (size_t)wrapped->bytes, JSON_REJECT_DUPLICATES, error);
    *starved = root ? json_string_length(json_array_get(root, 0)) != wrapped->blanks
                    : !error->text[0] || json_error_code(error) == json_error_out_of_memory;
    if (!root || *starved) {
        json_decref(root);
        return NULL;
    }
    json_t *value = json_array_get(root, 1);
    bool is_one = json_array_size(root) == 2 && (json_is_object(value) || json_is_array(value));
    if (is_one) {
        json_incref(value);
    } else {
        snprintf(error->text, sizeof error->text, "one object or array expected");
        error->position = (int)wrapped->begin;
    }
    json_decref(root);
    return is_one ? value : NULL;
}

lac_status lac_json_parse(const char *path, const char *what, const char *text, uint64_t bytes, json_t **out)
{
    lac_json_wrapped wrapped;
    lac_status status = wrap(path, what, text, bytes, &wrapped);
    if (status) return status;
    json_error_t first = {0}, error = {0};
    bool starved = false;
    json_t *value = parse_once(&wrapped, &first, &starved);
    if (!value && !starved) {
        /* jansson may call a lack of memory an invalid token. So see whether memory for this text can be had now, and
         * whether the text is refused again for the same reason: only then is the text to blame. */
        json_t *room = json_stringn_nocheck(wrapped.text, (size_t)wrapped.bytes);
        json_t *again = room ? parse_once(&wrapped, &error, &starved) : NULL;
        starved = starved || !room || again || strcmp(first.text, error.text) != 0;
        json_decref(room);
        json_decref(again);
    }
    lac_release(wrapped.text);
    if (value) {
        *out = value;
        return LAC_STATUS_OK;
    }
    if (starved)
        return lac_fail(LAC_STATUS_OUT_OF_MEMORY, "%s: no memory to parse the %s of %llu bytes", path, what,
                        (unsigned long long)bytes);
    /* What stands before the spot tells which entry it is in. */
    uint64_t position = error.position > 0 ? (uint64_t)error.position : 0;
    size_t at = position > wrapped.begin ? (size_t)(position - wrapped.begin) : 0;
    if (at > bytes) at = (size_t)bytes;
    size_t before = at < 100 ? at : 100;
    lac_short_text reason, place;
    return lac_fail(LAC_STATUS_BAD_FILE, "%s: the %s is not valid JSON: byte %zu: %s, after \"%s\"", path, what, at,
                    lac_text_shorten(error.text, &reason), lac_text_shorten_bytes(text + at - before, before, &place));
}

const char *lac_json_describe(const json_t *value, lac_short_text *out)
{
    lac_short_text text;
    switch (json_typeof(value)) {
    case JSON_INTEGER:
        snprintf(out->text, sizeof out->text, "%lld", (long long)json_integer_value(value));
        break;
    case JSON_REAL:
        snprintf(out->text, sizeof out->text, "%.17g", json_real_value(value));
        break;
    case JSON_STRING:
        snprintf(out->text, sizeof out->text, "'%.120s'", lac_text_shorten(json_string_value(value), &text));
        break;
    case JSON_ARRAY:
        snprintf(out->text, sizeof out->text, "an array of %zu", json_array_size(value));
        break;
    case JSON_OBJECT:
        snprintf(out->text, sizeof out->text, "an object of %zu", json_object_size(value));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(out->text, sizeof out->text, json_is_true(value) ? "true" : "false");
        break;
    case JSON_NULL:
        snprintf(out->text, sizeof out->text, "null");
        break;
    }
    return out->text;
}
