/* header.c - see header.h. */
#include "support/header.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FUNCTIONS = 256, LONGEST_NAME = 64, LONGEST_HEADER = 1 << 20 };

static char marked[MOST_FUNCTIONS][LONGEST_NAME];
static int marked_count;

const char *test_source_path(const char *name)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", TEST_SOURCE_FOLDER, name);
    return path;
}

static size_t identifier_length(const char *text)
{
    size_t length = 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '_') length++;
    return length;
}

static bool is_marked(const char *name, size_t length)
{
    for (int i = 0; i < marked_count; i++) {
        if (strlen(marked[i]) == length && !memcmp(marked[i], name, length)) return true;
    }
    return false;
}

void test_mark_called(const char *call)
{
    size_t length = identifier_length(call);
    if (is_marked(call, length) || marked_count == MOST_FUNCTIONS || length >= LONGEST_NAME) return;
    memcpy(marked[marked_count], call, length);
    marked[marked_count++][length] = '\0';
}

static char *read_header(void)
{
    char *text = calloc(1, LONGEST_HEADER);
    FILE *file = fopen(test_source_path("include/lacuna.h"), "rb");
    if (!text || !file || fread(text, 1, LONGEST_HEADER - 1, file) == 0) {
        fprintf(stderr, "test support: cannot read %s\n", test_source_path("include/lacuna.h"));
        exit(2);
    }
    fclose(file);
    return text;
}

bool test_all_functions_marked(void)
{
    char *text = read_header();
    int declared = 0;
    bool all = true;
    for (const char *at = text; (at = strstr(at, "\nLAC_API "));) {
        at++;
        const char *name = strchr(at, '(');
        while (name && strncmp(name, "lac_", 4) != 0) name--; /* the name is the last word before the first parenthesis */
        size_t length = name ? identifier_length(name) : 0;
        declared++;
        if (!name || !is_marked(name, length)) {
            fprintf(stderr, "%.*s is not covered\n", (int)length, name ? name : "?");
            all = false;
        }
    }
    free(text);
    if (declared != marked_count) {
        fprintf(stderr, "%d functions are declared, %d were called\n", declared, marked_count);
        all = false;
    }
    return all;
}
