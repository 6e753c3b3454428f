/* text.c - strict JSON by jansson, and texts for messages. Called by the readers and writers of src/io. jansson keeps
 * malloc: its allocator is global to the process and so is not ours to set. */
#include "io/text.h"

#include <stdio.h>
#include <string.h>

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

lac_status lac_json_parse(const char *path, const char *what, const char *text, uint64_t bytes, json_t **out)
{
    json_error_t error;
    json_t *root = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &error);
    if (root) {
        *out = root;
        return LAC_STATUS_OK;
    }
    /* jansson may call a lack of memory an invalid token. So see whether memory for this text can be had now, and
     * whether the text is refused again: only then is the text to blame. */
    json_t *room = json_stringn_nocheck(text, (size_t)bytes);
    json_error_t first = error;
    root = room ? json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, &error) : NULL;
    bool starved = !room || root || !error.text[0] || json_error_code(&error) == json_error_out_of_memory ||
                   strcmp(first.text, error.text) != 0;
    json_decref(room);
    json_decref(root);
    if (starved)
        return lac_fail(LAC_STATUS_OUT_OF_MEMORY, "%s: no memory to parse the %s of %llu bytes", path, what,
                        (unsigned long long)bytes);
    /* What stands before the spot tells which entry it is in. */
    size_t at = error.position > 0 && (uint64_t)error.position <= bytes ? (size_t)error.position : 0;
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
