/* table.c - tables for a terminal: aligned columns, units, colour only where it is welcome. */
#include "cli.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_COLUMNS = 32 };

struct cli_table {
    size_t columns, rows, capacity;
    char align[MAX_COLUMNS];
    size_t width[MAX_COLUMNS];
    char **cells; /* [rows][columns]; the first row holds the titles */
    size_t rule;  /* the row that a line stands above; 0: none       */
};

cli_text cli_format_bytes(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    cli_text out;
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit < 5) {
        value /= 1024;
        unit++;
    }
    snprintf(out.text, sizeof out.text, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return out;
}

cli_text cli_format_percent(double share)
{
    cli_text out;
    snprintf(out.text, sizeof out.text, isfinite(share) ? "%.2f%%" : "-", 100 * share);
    return out;
}

cli_text cli_format_seconds(double seconds)
{
    cli_text out;
    if (seconds >= 1)
        snprintf(out.text, sizeof out.text, "%.2f s", seconds);
    else if (seconds >= 1e-3)
        snprintf(out.text, sizeof out.text, "%.2f ms", 1e3 * seconds);
    else
        snprintf(out.text, sizeof out.text, "%.2f us", 1e6 * seconds);
    return out;
}

cli_text cli_format_count(int64_t count)
{
    cli_text out;
    snprintf(out.text, sizeof out.text, "%lld", (long long)count);
    return out;
}

cli_text cli_format_shape(const int64_t *shape, int rank)
{
    cli_text out = {"scalar"};
    size_t used = 0;
    for (int i = 0; i < rank && used < sizeof out.text; i++)
        used += (size_t)snprintf(out.text + used, sizeof out.text - used, "%s%lld", i ? "x" : "", (long long)shape[i]);
    return out;
}

cli_text cli_format_number(const char *format, double value)
{
    cli_text out;
    snprintf(out.text, sizeof out.text, format, value);
    return out;
}

const char *cli_colour(const char *name)
{
    static int wanted = -1;
    if (wanted < 0) {
        const char *no_color = getenv("NO_COLOR");
        const char *term = getenv("TERM");
        wanted = isatty(STDOUT_FILENO) && !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;
    }
    if (!wanted) return "";
    if (!strcmp(name, "bold")) return "\033[1m";
    if (!strcmp(name, "red")) return "\033[31m";
    if (!strcmp(name, "green")) return "\033[32m";
    return "\033[0m";
}

/* Columns on the screen: code points, since names may be UTF-8. */
static size_t screen_width(const char *text)
{
    size_t width = 0;
    for (; *text; text++) width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

/* A copy without control characters, which a name from a file could use to steer the terminal. */
static char *copy_harmless(const char *text)
{
    char *copy = cli_copy_text(text), *to = copy;
    for (size_t control; *text; text += control ? control : 1) {
        control = cli_control_bytes(text);
        *to++ = control ? '?' : *text;
    }
    *to = '\0';
    return copy;
}

static char **add_row(cli_table *table)
{
    if (table->rows == table->capacity) {
        size_t capacity = table->capacity ? 2 * table->capacity : 16;
        char **cells = cli_allocate(capacity * table->columns * sizeof *cells);
        if (table->rows) memcpy(cells, table->cells, table->rows * table->columns * sizeof *cells);
        free(table->cells);
        table->cells = cells;
        table->capacity = capacity;
    }
    return table->cells + table->rows++ * table->columns;
}

static void set_cell(cli_table *table, char **row, size_t column, char *text)
{
    row[column] = text;
    size_t width = screen_width(text);
    if (width > table->width[column]) table->width[column] = width;
}

cli_table *cli_table_create(const char *titles, const char *align)
{
    cli_table *table = cli_allocate(sizeof *table);
    *table = (cli_table){.columns = strnlen(align, MAX_COLUMNS)};
    memcpy(table->align, align, table->columns);
    char **row = add_row(table);
    for (size_t i = 0; i < table->columns; i++) {
        size_t length = strcspn(titles, "|");
        char *title = cli_allocate(length + 1);
        memcpy(title, titles, length);
        title[length] = 0;
        set_cell(table, row, i, title);
        titles += length + (titles[length] == '|');
    }
    return table;
}

void cli_table_add(cli_table *table, ...)
{
    char **row = add_row(table);
    va_list cells;
    va_start(cells, table);
    for (size_t i = 0; i < table->columns; i++) set_cell(table, row, i, copy_harmless(va_arg(cells, const char *)));
    va_end(cells);
}

void cli_table_rule(cli_table *table) { table->rule = table->rows; }

/* Empty cells at the end of a row print nothing, not even spaces. */
static void print_row(const cli_table *table, char **row)
{
    size_t columns = table->columns;
    while (columns && !*row[columns - 1]) columns--;
    for (size_t i = 0; i < columns; i++) {
        int padding = (int)(table->width[i] - screen_width(row[i]));
        if (i) fputs("  ", stdout);
        if (table->align[i] == 'r') printf("%*s", padding, "");
        fputs(row[i], stdout);
        if (table->align[i] == 'l' && i + 1 < columns) printf("%*s", padding, "");
    }
}

void cli_table_print(cli_table *table)
{
    size_t total = 2 * (table->columns - 1);
    for (size_t i = 0; i < table->columns; i++) total += table->width[i];
    for (size_t r = 0; r < table->rows; r++) {
        if (r && r == table->rule) {
            for (size_t i = 0; i < total; i++) putchar('-');
            putchar('\n');
        }
        if (r == 0) fputs(cli_colour("bold"), stdout);
        print_row(table, table->cells + r * table->columns);
        if (r == 0) fputs(cli_colour("plain"), stdout);
        putchar('\n');
    }
    cli_table_free(table);
}

void cli_table_free(cli_table *table)
{
    for (size_t i = 0; i < table->rows * table->columns; i++) free(table->cells[i]);
    free(table->cells);
    free(table);
}
