/* csv.c - rows of results to and from CSV. One table of columns drives writer and reader. run.c makes rows, the command
 * line writes them, compare.c and report.c read them back. */
#include "bench.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum column_kind { TEXT, NUMBER, WHOLE } column_kind;

typedef struct column {
    const char *name;
    column_kind kind;
    size_t offset, size;
    int extended; /* written only when asked for, so that the first columns are always the same */
} column;

#define COLUMN(field, kind, extended)                                                                                          \
    {                                                                                                                          \
#field, kind, offsetof(bench_row, field), sizeof(((bench_row *)0)->field), extended                                    \
    }

static const column columns[] = {COLUMN(device, TEXT, 0),
                                 COLUMN(kernel, TEXT, 0),
                                 COLUMN(dtype, TEXT, 0),
                                 COLUMN(precision, TEXT, 0),
                                 COLUMN(pattern, TEXT, 0),
                                 COLUMN(density, NUMBER, 0),
                                 COLUMN(layout, TEXT, 0),
                                 COLUMN(threads, WHOLE, 0),
                                 COLUMN(m, WHOLE, 0),
                                 COLUMN(n, WHOLE, 0),
                                 COLUMN(k, WHOLE, 0),
                                 COLUMN(time_us, NUMBER, 0),
                                 COLUMN(spread, NUMBER, 0),
                                 COLUMN(dense_name, TEXT, 0),
                                 COLUMN(dense_us, NUMBER, 0),
                                 COLUMN(speedup, NUMBER, 0),
                                 COLUMN(tflops_dense_equivalent, NUMBER, 0),
                                 COLUMN(tflops_real, NUMBER, 0),
                                 COLUMN(gbytes_per_s, NUMBER, 0),
                                 COLUMN(ceiling_us, NUMBER, 0),
                                 COLUMN(share_of_ceiling, NUMBER, 0),
                                 COLUMN(max_error, NUMBER, 0),
                                 COLUMN(error_bound, NUMBER, 0),
                                 COLUMN(cache, TEXT, 0),
                                 COLUMN(commit, TEXT, 0),
                                 COLUMN(device_info, TEXT, 0),
                                 COLUMN(name, TEXT, 1),
                                 COLUMN(predicted_us, NUMBER, 1),
                                 COLUMN(bound, TEXT, 1),
                                 COLUMN(is_dense, WHOLE, 1),
                                 COLUMN(runs, WHOLE, 1),
                                 COLUMN(dense_spread, NUMBER, 1),
                                 COLUMN(levels, TEXT, 1)};
#define COLUMN_COUNT (sizeof columns / sizeof *columns)

/* ---- writing */

static void write_text(FILE *to, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, to);
        return;
    }
    fputc('"', to);
    for (const char *c = text; *c; c++) {
        if (*c == '"') fputc('"', to);
        fputc(*c, to);
    }
    fputc('"', to);
}

static void write_field(FILE *to, const column *c, const bench_row *row)
{
    const void *field = (const char *)row + c->offset;
    if (c->kind == TEXT) {
        write_text(to, field);
    } else if (c->kind == WHOLE) {
        fprintf(to, "%lld", (long long)*(const int64_t *)field);
    } else if (isfinite(*(const double *)field)) {
        fprintf(to, "%.6g", *(const double *)field);
    }
}

void bench_csv_write_header(FILE *to, int extended)
{
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        if (extended || !columns[i].extended) fprintf(to, "%s%s", i ? "," : "", columns[i].name);
    fputc('\n', to);
}

void bench_csv_write_row(FILE *to, const bench_row *row, int extended)
{
    for (size_t i = 0; i < COLUMN_COUNT; i++) {
        if (!extended && columns[i].extended) continue;
        if (i) fputc(',', to);
        write_field(to, &columns[i], row);
    }
    fputc('\n', to);
}

/* ---- reading */

typedef struct csv_file {
    const char *path;
    int line;
    int place[COLUMN_COUNT]; /* which field of a line; -1: not there */
    int has_header;
} csv_file;

int bench_csv_split(char *line, char **fields)
{
    int count = 0;
    char *from = line, *to = line;
    for (;;) {
        if (count == BENCH_CSV_MOST_FIELDS) return -1;
        fields[count++] = to;
        if (*from == '"') {
            for (from++; *from != '"' || from[1] == '"'; *to++ = *from++) {
                if (!*from) return -1;
                if (*from == '"') from++;
            }
            from++;
        }
        while (*from && *from != ',' && *from != '\r' && *from != '\n') *to++ = *from++;
        int more = *from++ == ',';
        *to++ = 0;
        if (!more) return count;
    }
}

static bench_status read_header(csv_file *file, char **fields, int count, char *why, size_t why_size)
{
    file->has_header = 1;
    for (size_t c = 0; c < COLUMN_COUNT; c++) {
        file->place[c] = -1;
        for (int i = 0; i < count; i++)
            if (!strcmp(fields[i], columns[c].name)) file->place[c] = i;
        if (file->place[c] < 0 && !columns[c].extended) {
            snprintf(why, why_size, "%s:%d: no column '%s'; it is no result of 'lacuna bench'", file->path, file->line,
                     columns[c].name);
            return BENCH_USAGE;
        }
    }
    return BENCH_OK;
}

static int read_field(const column *c, const char *text, bench_row *row)
{
    void *field = (char *)row + c->offset;
    char *end = NULL;
    errno = 0;
    switch (c->kind) {
    case TEXT:
        return (size_t)snprintf(field, c->size, "%s", text) < c->size;
    case WHOLE:
        *(int64_t *)field = *text ? strtoll(text, &end, 10) : 0;
        break;
    case NUMBER:
        *(double *)field = *text ? strtod(text, &end) : (double)NAN;
        if (*text && !isfinite(*(double *)field)) return 0; /* what is not known is empty */
        break;
    }
    return !*text || (end != text && !*end && !errno);
}

/* Files without the columns of --extended leave open whether a kernel is dense; the registry knows its own. */
static int kernel_is_dense(const char *name)
{
    lac_kernel_info info = {.size = sizeof info};
    for (size_t i = 0; !lac_kernel_probe(i, &info); i++)
        if (!strcmp(info.name, name)) return info.is_dense;
    return 0;
}

/* The column whose value no benchmark writes, and no chart has a place for; NULL: there is none. */
static const char *impossible(const bench_row *row)
{
    if (row->m < 1) return "m";
    if (row->n < 1) return "n";
    if (row->k < 1) return "k";
    if (!(row->density > 0) || row->density > 1) return "density";
    if (!(row->time_us > 0)) return "time_us";
    if (row->dense_us <= 0) return "dense_us"; /* these two may be missing */
    return row->speedup <= 0 ? "speedup" : NULL;
}

static bench_status read_row(const csv_file *file, char **fields, int count, bench_row *row, char *why, size_t why_size)
{
    *row = (bench_row){.predicted_us = NAN, .dense_spread = NAN, .is_dense = -1};
    for (size_t c = 0; c < COLUMN_COUNT; c++) {
        int place = file->place[c];
        if (place < 0) continue;
        if (place < count && read_field(&columns[c], fields[place], row)) continue;
        snprintf(why, why_size, "%s:%d: column '%s' cannot be read", file->path, file->line, columns[c].name);
        return BENCH_USAGE;
    }
    const char *wrong = impossible(row);
    if (wrong) {
        snprintf(why, why_size, "%s:%d: column '%s' has a value that no benchmark writes", file->path, file->line, wrong);
        return BENCH_USAGE;
    }
    if (row->is_dense < 0) row->is_dense = kernel_is_dense(row->kernel);
    return BENCH_OK;
}

bench_status bench_rows_add(bench_rows *rows, const bench_row *row)
{
    if (rows->count == rows->capacity) {
        size_t capacity = rows->capacity ? 2 * rows->capacity : 64;
        bench_row *items = realloc(rows->items, capacity * sizeof *items);
        if (!items) return BENCH_FAILURE;
        rows->items = items;
        rows->capacity = capacity;
    }
    rows->items[rows->count++] = *row;
    return BENCH_OK;
}

int bench_csv_next(FILE *from, const char *path, bench_csv_line *line, char *why, size_t why_size)
{
    int count = 0;
    while (!count && fgets(line->text, sizeof line->text, from)) {
        size_t length = strlen(line->text);
        line->number++;
        if (!length || (line->text[length - 1] != '\n' && !feof(from))) {
            snprintf(why, why_size, "%s:%d: a line that is too long, or no text", path, line->number);
            return -1;
        }
        if (!strchr("#\n\r", line->text[0])) count = bench_csv_split(line->text, line->fields);
    }
    if (count < 0) snprintf(why, why_size, "%s:%d: an open quote, or too many fields", path, line->number);
    return count;
}

bench_status bench_rows_read(bench_rows *rows, const char *path, char *why, size_t why_size)
{
    FILE *from = fopen(path, "r");
    if (!from) {
        snprintf(why, why_size, "%s: %s", path, strerror(errno));
        return BENCH_FAILURE;
    }
    csv_file file = {.path = path};
    bench_status status = BENCH_OK;
    bench_csv_line line;
    line.number = 0;
    int count;
    while (!status && (count = bench_csv_next(from, path, &line, why, why_size))) {
        file.line = line.number;
        bench_row row;
        if (count < 0) {
            status = BENCH_USAGE;
        } else if (!file.has_header) {
            status = read_header(&file, line.fields, count, why, why_size);
        } else if (!(status = read_row(&file, line.fields, count, &row, why, why_size)) &&
                   (status = bench_rows_add(rows, &row))) {
            snprintf(why, why_size, "out of memory");
        }
    }
    if (!status && ferror(from)) {
        snprintf(why, why_size, "%s: %s", path, strerror(errno));
        status = BENCH_FAILURE;
    }
    if (!status && !file.has_header) {
        snprintf(why, why_size, "%s: it is empty", path);
        status = BENCH_USAGE;
    }
    fclose(from);
    return status;
}

void bench_rows_free(bench_rows *rows)
{
    free(rows->items);
    *rows = (bench_rows){0};
}

/* ---- device_info */

static const char *find_key(const char *info, const char *key)
{
    size_t length = strlen(key);
    for (const char *at = strstr(info, key); at; at = strstr(at + 1, key))
        if ((at == info || at[-1] == ' ') && at[length] == '=') return at + length + 1;
    return NULL;
}

double bench_info_number(const char *device_info, const char *key)
{
    const char *at = find_key(device_info, key);
    char *end;
    if (!at) return NAN;
    double value = strtod(at, &end);
    return end == at ? (double)NAN : value;
}

void bench_info_text(const char *device_info, const char *key, char *buffer, size_t size)
{
    const char *at = find_key(device_info, key);
    snprintf(buffer, size, "%.*s", at ? (int)strcspn(at, ";") : 0, at ? at : "");
}

int bench_info_is_same_machine(const char *device_info, const char *other)
{
    /* A slice of a GPU, or a smaller virtual machine, has the model of the whole; another vector unit has other kernels. */
    static const char *const keys[] = {"model", "cores", "vector"};
    int same = 1;
    for (size_t i = 0; same && i < sizeof keys / sizeof *keys; i++) {
        char a[128], b[128];
        bench_info_text(device_info, keys[i], a, sizeof a);
        bench_info_text(other, keys[i], b, sizeof b);
        same = !strcmp(a, b);
    }
    return same;
}
