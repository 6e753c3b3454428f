/* options.c - reads a command line by a subcommand's table, and suggests the nearest name for one it does not know.
 *
 * It takes `--name value`, `--name=value`, `-n value`, `-nvalue`, flags bundled as `-fj`, and `--` before operands.
 * main.c calls it. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const cli_option cli_option_help = {.name = "help", .letter = 'h', .type = CLI_TYPE_FLAG, .help = "Print this help and exit."};

const cli_command *cli_command_find(const char *name)
{
    for (size_t i = 0; cli_commands[i]; i++)
        if (!strcmp(cli_commands[i]->name, name)) return cli_commands[i];
    return NULL;
}

/* How many insertions, deletions and replacements turn one text into the other; texts past 63 characters are far. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t row[64];
    size_t length = strlen(b);
    if (length >= 64 || strlen(a) >= 64) return SIZE_MAX;
    for (size_t j = 0; j <= length; j++) row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < length; j++) {
            size_t replace = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            size_t other = (row[j] < diagonal ? row[j] : diagonal) + 1;
            row[j + 1] = replace < other ? replace : other;
        }
    }
    return row[length];
}

const char *cli_nearest_name(const char *text, const char *const *names)
{
    const char *nearest = NULL;
    size_t best = strlen(text) / 3 + 2;
    for (size_t i = 0; names[i]; i++) {
        size_t distance = edit_distance(text, names[i]);
        if (strlen(text) > 1 && !strncmp(names[i], text, strlen(text))) distance = 0;
        if (distance < best) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

static int unknown_option(const cli_command *command, const char *text)
{
    const char *names[64] = {NULL};
    size_t count = 0;
    for (const cli_option *o = command->options; o->name && count < 62; o++) names[count++] = o->name;
    names[count++] = cli_option_help.name;
    char name[64];
    snprintf(name, sizeof name, "%s", text[0] == '-' && text[1] == '-' ? text + 2 : text + 1);
    name[strcspn(name, "=")] = 0;
    const char *nearest = cli_nearest_name(name, names);
    if (nearest)
        cli_error(NULL, NULL, "unknown option '%s'; did you mean '--%s'?", text, nearest);
    else
        cli_error(NULL, NULL, "unknown option '%s'; 'lacuna %s --help' lists them", text, command->name);
    return -1;
}

static void join_choices(const cli_choice *choices, char *buffer, size_t size)
{
    size_t used = 0;
    buffer[0] = 0;
    for (const cli_choice *c = choices; c->name && used < size; c++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%s", used ? ", " : "", c->name);
}

static int bad_value(const cli_option *option, const char *text, const char *wanted)
{
    cli_error(NULL, NULL, "--%s '%s': %s", option->name, text, wanted);
    return -1;
}

static int store_choice(const cli_option *option, const char *text, void *field)
{
    char wanted[256];
    if (option->type == CLI_TYPE_DTYPE) {
        lac_dtype dtype = LAC_DTYPE_NONE;
        if (lac_dtype_parse(text, &dtype) == LAC_STATUS_OK)
            for (const cli_choice *c = option->choices; c->name; c++)
                if (c->value == (int)dtype) {
                    *(lac_dtype *)field = dtype;
                    return 0;
                }
    } else {
        for (const cli_choice *c = option->choices; c->name; c++)
            if (!strcmp(c->name, text)) {
                *(int *)field = c->value;
                return 0;
            }
    }
    size_t used = (size_t)snprintf(wanted, sizeof wanted, "must be one of ");
    join_choices(option->choices, wanted + used, sizeof wanted - used);
    return bad_value(option, text, wanted);
}

static int store_number(const cli_option *option, const char *text, void *field)
{
    char *end = NULL;
    errno = 0;
    if (option->type == CLI_TYPE_NUMBER) {
        double value = strtod(text, &end);
        if (end == text || *end || !isfinite(value)) return bad_value(option, text, "must be a finite number");
        *(double *)field = value;
        return 0;
    }
    char wanted[96];
    snprintf(wanted, sizeof wanted, "must be a whole number from %lld to %lld", (long long)option->minimum,
             (long long)option->maximum);
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < option->minimum || value > option->maximum)
        return bad_value(option, text, wanted);
    *(int64_t *)field = value;
    return 0;
}

/* A block of one item more, with the old items in it. */
static void *grow(void *items, size_t count, size_t size)
{
    void *larger = cli_allocate((count + 1) * size);
    if (count) memcpy(larger, items, count * size);
    free(items);
    return larger;
}

static void append(cli_list *list, const char *text)
{
    list->items = grow(list->items, list->count, sizeof *list->items);
    list->items[list->count++] = text;
}

static int store_pattern(const cli_option *option, const char *text, void *field)
{
    lac_pattern pattern;
    if (lac_pattern_parse(text, &pattern) != LAC_STATUS_OK) return bad_value(option, text, cli_pattern_trouble(text));
    if (option->several)
        *(lac_pattern *)field = pattern;
    else
        *(cli_pattern *)field = (cli_pattern){.text = text, .value = pattern};
    return 0;
}

static int store_value(const cli_option *option, const char *text, void *field)
{
    switch (option->type) {
    case CLI_TYPE_FLAG:
        *(int *)field = 1;
        return 0;
    case CLI_TYPE_TEXT:
        *(const char **)field = text;
        return 0;
    case CLI_TYPE_LIST:
        append(field, text);
        return 0;
    case CLI_TYPE_INTEGER:
    case CLI_TYPE_NUMBER:
        return store_number(option, text, field);
    case CLI_TYPE_CHOICE:
    case CLI_TYPE_DTYPE:
        return store_choice(option, text, field);
    case CLI_TYPE_PATTERN:
        return store_pattern(option, text, field);
    }
    return -1;
}

/* Each of the values that stand between commas, behind those of earlier occurrences. */
static int store_several(const cli_option *option, const char *text, cli_values *values)
{
    static const size_t sizes[] = {[CLI_TYPE_INTEGER] = sizeof(int64_t),
                                   [CLI_TYPE_NUMBER] = sizeof(double),
                                   [CLI_TYPE_CHOICE] = sizeof(int),
                                   [CLI_TYPE_DTYPE] = sizeof(lac_dtype),
                                   [CLI_TYPE_PATTERN] = sizeof(lac_pattern)};
    const size_t size = sizes[option->type];
    char *copy = cli_copy_text(text), *rest = copy, *item;
    int result = 0;
    while (!result && (item = strsep(&rest, ","))) {
        values->items = grow(values->items, values->count, size);
        result = store_value(option, item, (char *)values->items + values->count * size);
        values->count += !result;
    }
    free(copy);
    return result;
}

static const cli_option *find_option(const cli_command *command, const char *name, size_t length, char letter)
{
    const cli_option *o = command->options;
    for (;; o++) {
        const cli_option *option = o->name ? o : &cli_option_help;
        if (letter ? option->letter == letter : strlen(option->name) == length && !strncmp(option->name, name, length))
            return option;
        if (!o->name) return NULL;
    }
}

typedef struct reader {
    const cli_command *command;
    int count, next; /* arguments, and the one to read next */
    char **arguments;
    void *settings;
    uint64_t seen; /* a bit an option of the table */
} reader;

/* A variable of a shell that was never set makes such a name; what would be written under it is found out last of all. */
static int refuse_empty(cli_hint hint, const char *text, const char *dashes, const char *name)
{
    if ((hint != CLI_HINT_FILE && hint != CLI_HINT_FOLDER) || *text) return 0;
    cli_error(NULL, NULL, "%s%s is empty: it must name a %s", dashes, name, hint == CLI_HINT_FILE ? "file" : "folder");
    return -1;
}

/* Takes the option's value from `attached` or the next argument. */
static int read_value(reader *r, const cli_option *option, const char *attached)
{
    if (option == &cli_option_help) return 1;
    void *field = (char *)r->settings + option->offset;
    r->seen |= UINT64_C(1) << (option - r->command->options);
    if (option->type == CLI_TYPE_FLAG) {
        if (!attached) return store_value(option, "", field);
        cli_error(NULL, NULL, "--%s takes no value, but was given '%s'", option->name, attached);
        return -1;
    }
    if (!attached) {
        if (r->next == r->count) {
            cli_error(NULL, NULL, "--%s needs a value: --%s %s", option->name, option->name, option->argument);
            return -1;
        }
        attached = r->arguments[r->next++];
    }
    if (refuse_empty(option->hint, attached, "--", option->name)) return -1;
    return option->several ? store_several(option, attached, field) : store_value(option, attached, field);
}

static int read_letters(reader *r, const char *text)
{
    for (const char *letter = text + 1; *letter; letter++) {
        const cli_option *option = find_option(r->command, NULL, 0, *letter);
        if (!option) return unknown_option(r->command, text);
        if (option->type == CLI_TYPE_FLAG) {
            int result = read_value(r, option, NULL);
            if (result) return result;
            continue;
        }
        const char *attached = letter[1] == '=' ? letter + 2 : letter + 1;
        return read_value(r, option, *attached ? attached : NULL);
    }
    return 0;
}

static int read_option(reader *r, const char *text)
{
    if (text[1] != '-') return read_letters(r, text);
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text - 2) : strlen(text + 2);
    const cli_option *option = find_option(r->command, text + 2, length, 0);
    if (!option) return unknown_option(r->command, text);
    return read_value(r, option, equals ? equals + 1 : NULL);
}

static int require_all(const reader *r, const cli_operand *missing)
{
    if (missing->name && !missing->optional) {
        cli_error(NULL, NULL, "%s is missing: %s", missing->name, missing->help);
        cli_describe_usage(stderr, r->command);
        return -1;
    }
    for (const cli_option *o = r->command->options; o->name; o++)
        if (o->needed && !(r->seen >> (o - r->command->options) & 1)) {
            cli_error(NULL, NULL, "--%s %s is missing: %s", o->name, o->argument, o->help);
            return -1;
        }
    return 0;
}

int cli_options_parse(const cli_command *command, int count, char **arguments, void *settings)
{
    reader r = {.command = command, .count = count, .arguments = arguments, .settings = settings};
    const cli_operand *operand = command->operands;
    int only_operands = 0;
    while (r.next < count) {
        const char *text = arguments[r.next++];
        if (!only_operands && !strcmp(text, "--")) {
            only_operands = 1;
        } else if (!only_operands && text[0] == '-' && text[1]) {
            int result = read_option(&r, text);
            if (result) return result;
        } else if (operand->name && refuse_empty(operand->hint, text, "", operand->name)) {
            return -1;
        } else if (operand->name && operand->repeated) {
            append((cli_list *)((char *)settings + operand->offset), text);
        } else if (operand->name) {
            *(const char **)((char *)settings + operand->offset) = text;
            operand++;
        } else {
            cli_error(NULL, NULL, "one argument too many: '%s'", text);
            cli_describe_usage(stderr, command);
            return -1;
        }
    }
    return require_all(&r, operand);
}

void cli_settings_free(const cli_command *command, void *settings)
{
    for (const cli_option *o = command->options; o->name; o++) {
        if (o->type == CLI_TYPE_LIST) free(((cli_list *)((char *)settings + o->offset))->items);
        if (o->several) free(((cli_values *)((char *)settings + o->offset))->items);
    }
    for (const cli_operand *o = command->operands; o->name; o++)
        if (o->repeated) free(((cli_list *)((char *)settings + o->offset))->items);
    free(settings);
}
