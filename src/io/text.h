/* text.h - the words of src/io: JSON in, and names and values from hostile files made fit for a message. */
#ifndef LAC_IO_TEXT_H
#define LAC_IO_TEXT_H

#include <jansson.h>
#include <stdbool.h>

#include "lacuna.h"

/* Room for text that goes into a message. One object for each argument of lac_fail. */
typedef struct lac_short_text {
    char text[128];
} lac_short_text;
typedef struct lac_error_text {
    char text[128];
} lac_error_text;

/* `text` with control characters replaced, so that a file cannot steer a terminal, and cut to length. */
const char *lac_text_shorten(const char *text, lac_short_text *out);
const char *lac_text_shorten_bytes(const char *text, size_t bytes, lac_short_text *out);
/* strerror without its shared buffer. */
const char *lac_error_describe(int number, lac_error_text *out);
bool lac_text_is_utf8(const char *text);

/* Strict JSON: duplicates, trailing text and bytes that are not UTF-8 are refused. `what` names the text within the
 * file: "header". BAD_FILE or OUT_OF_MEMORY. The result goes back by json_decref. */
lac_status lac_json_parse(const char *path, const char *what, const char *text, uint64_t bytes, json_t **out);
/* The value itself when it is short ("-3", "1.5", "'F32'", "null"), else its kind ("an array of 3"). */
const char *lac_json_describe(const json_t *value, lac_short_text *out);

#endif
