/* shapes.c - problem sizes from the command line and from CSV files. */
#include "bench.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static bench_status refuse(char *why, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

static bench_status refuse(char *why, size_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, size, format, arguments);
    va_end(arguments);
    return BENCH_USAGE;
}

static bench_status add_shape(bench_shapes *shapes, const bench_shape *shape, char *why, size_t why_size)
{
    bench_shape *items = realloc(shapes->items, (shapes->count + 1) * sizeof *items);
    if (!items) {
        snprintf(why, why_size, "out of memory");
        return BENCH_FAILURE;
    }
    shapes->items = items;
    items[shapes->count++] = *shape;
    return BENCH_OK;
}

/* A whole number from 1 to the largest dimension, up to `end`; 0 when it is none. */
static int64_t read_dimension(const char *text, const char **end)
{
    char *stop;
    errno = 0;
    long long value = strtoll(text, &stop, 10);
    *end = stop;
    return stop == text || errno || value < 1 || value > LAC_MAX_DIMENSION ? 0 : value;
}

bench_status bench_shapes_parse(bench_shapes *shapes, const char *text, char *why, size_t why_size)
{
    bench_shape shape = {.name = ""};
    int64_t *fields[3] = {&shape.m, &shape.n, &shape.k};
    const char *at = text;
    for (int i = 0; i < 3; i++) {
        const char *end;
        *fields[i] = read_dimension(at, &end);
        if (!*fields[i] || *end != (i < 2 ? ',' : 0))
            return refuse(why, why_size, "'%s' is no shape; give m,n,k (tokens,outputs,inputs) such as 128,4096,4096", text);
        at = end + 1;
    }
    return add_shape(shapes, &shape, why, why_size);
}

/* ---- files */

/* The columns that a shape file may have; either the first four or the rest. */
enum { NAME, M, N, K, BATCH, H, W, C_IN, C_OUT, R, S, COLUMNS };
static const char *const column_names[COLUMNS] = {"name", "m", "n", "k", "batch", "h", "w", "c_in", "c_out", "r", "s"};

typedef struct shape_file {
    const char *path;
    int line;
    int place[COLUMNS]; /* which field of a line it is; -1: not there */
    int has_header;
    int is_gemm; /* it has m, n and k; else it has all of a convolution */
} shape_file;

static bench_status read_header(shape_file *file, char **fields, int count, char *why, size_t why_size)
{
    for (int c = 0; c < COLUMNS; c++) {
        file->place[c] = -1;
        for (int i = 0; i < count; i++)
            if (!strcmp(fields[i], column_names[c])) file->place[c] = i;
    }
    file->has_header = 1;
    file->is_gemm = file->place[M] >= 0 && file->place[N] >= 0 && file->place[K] >= 0;
    int conv = 1;
    for (int c = BATCH; c < COLUMNS; c++) conv = conv && file->place[c] >= 0;
    if (file->is_gemm || conv) return BENCH_OK;
    return refuse(why, why_size, "%s:%d: the columns are neither m,n,k nor batch,h,w,c_in,c_out,r,s", file->path, file->line);
}

static bench_status read_fields(shape_file *file, char **fields, int count, bench_shape *shape, char *why, size_t why_size)
{
    int64_t value[COLUMNS] = {0};
    int first = file->is_gemm ? M : BATCH, last = first == M ? K : S;
    for (int c = first; c <= last; c++) {
        const char *end = "?";
        int place = file->place[c];
        value[c] = place < count ? read_dimension(fields[place], &end) : 0;
        if (!value[c] || *end)
            return refuse(why, why_size, "%s:%d: %s is '%s'; it must be a whole number from 1", file->path, file->line,
                          column_names[c], place < count ? fields[place] : "");
    }
    *shape = (bench_shape){.m = value[M], .n = value[N], .k = value[K]};
    if (first == BATCH) { /* as the matrix product that an implicit GEMM computes; h and w are the output's */
        double m = (double)value[BATCH] * (double)value[H] * (double)value[W];
        double k = (double)value[C_IN] * (double)value[R] * (double)value[S];
        if (m > LAC_MAX_DIMENSION || k > LAC_MAX_DIMENSION)
            return refuse(why, why_size, "%s:%d: the convolution is too large", file->path, file->line);
        *shape = (bench_shape){.m = (int64_t)m, .n = value[C_OUT], .k = (int64_t)k};
    }
    if (file->place[NAME] >= 0 && file->place[NAME] < count)
        snprintf(shape->name, sizeof shape->name, "%s", fields[file->place[NAME]]);
    return BENCH_OK;
}

bench_status bench_shapes_read(bench_shapes *shapes, const char *path, char *why, size_t why_size)
{
    FILE *from = fopen(path, "r");
    if (!from) {
        snprintf(why, why_size, "%s: %s", path, strerror(errno));
        return BENCH_FAILURE;
    }
    shape_file file = {.path = path};
    bench_status status = BENCH_OK;
    bench_csv_line line;
    line.number = 0;
    const size_t before = shapes->count;
    int count;
    while (!status && (count = bench_csv_next(from, path, &line, why, why_size))) {
        file.line = line.number;
        bench_shape shape;
        if (count < 0)
            status = BENCH_USAGE;
        else if (!file.has_header)
            status = read_header(&file, line.fields, count, why, why_size);
        else if (!(status = read_fields(&file, line.fields, count, &shape, why, why_size)))
            status = add_shape(shapes, &shape, why, why_size);
    }
    if (!status && ferror(from)) {
        snprintf(why, why_size, "%s: %s", path, strerror(errno));
        status = BENCH_FAILURE;
    }
    if (!status && shapes->count == before) status = refuse(why, why_size, "%s: no shapes in it", path);
    fclose(from);
    return status;
}

void bench_shapes_scale(bench_shapes *shapes, int64_t max_m)
{
    size_t kept = 0;
    for (size_t i = 0; i < shapes->count; i++) {
        bench_shape shape = shapes->items[i];
        if (max_m && shape.m > max_m) shape.m = max_m;
        size_t j = 0;
        while (j < kept && (shapes->items[j].m != shape.m || shapes->items[j].n != shape.n || shapes->items[j].k != shape.k))
            j++;
        if (j == kept) shapes->items[kept++] = shape;
    }
    shapes->count = kept;
}

void bench_shapes_free(bench_shapes *shapes)
{
    free(shapes->items);
    *shapes = (bench_shapes){0};
}
