/* report_table.c - the last part of the report: every row, in a table that sorts. The page's script reads there what it tells
 * of a mark in a chart, so that no number is in the page twice: thousands of rows stay under a megabyte. Cells and rows have
 * no end tags, which HTML does not ask for. report.c calls it. */
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "report.h"
#include "svg.h"

typedef enum column_kind {
    COLUMN_TEXT,
    COLUMN_COUNT,  /* int64_t                                         */
    COLUMN_NUMBER, /* double, times `scale`, by `format`              */
    COLUMN_TIME,   /* double, with four figures                       */
    COLUMN_SPARSITY,
    COLUMN_ERROR /* as a share of its bound                         */
} column_kind;

typedef struct column {
    const char *title;
    column_kind kind;
    int is_condition; /* left out when it is the same in all rows: the head of the page tells */
    size_t offset;
    double scale;
    const char *format;
} column;

#define FIELD(name)          .offset = offsetof(bench_row, name)
#define NUMBER(name, by, as) .kind = COLUMN_NUMBER, FIELD(name), .scale = by, .format = as
static const column columns[] = {{"m", .kind = COLUMN_COUNT, FIELD(m)},
                                 {"n", .kind = COLUMN_COUNT, FIELD(n)},
                                 {"k", .kind = COLUMN_COUNT, FIELD(k)},
                                 {"pattern", .kind = COLUMN_TEXT, FIELD(pattern)},
                                 {"sparsity", .kind = COLUMN_SPARSITY},
                                 {"device", .kind = COLUMN_TEXT, .is_condition = 1, FIELD(device)},
                                 {"dtype", .kind = COLUMN_TEXT, .is_condition = 1, FIELD(dtype)},
                                 {"precision", .kind = COLUMN_TEXT, .is_condition = 1, FIELD(precision)},
                                 {"layout", .kind = COLUMN_TEXT, .is_condition = 1, FIELD(layout)},
                                 {"kernel", .kind = COLUMN_TEXT, FIELD(kernel)},
                                 {"time us", .kind = COLUMN_TIME, FIELD(time_us)},
                                 {"spread", NUMBER(spread, 100, "%.1f%%")},
                                 {"dense us", .kind = COLUMN_TIME, FIELD(dense_us)},
                                 {"speedup", NUMBER(speedup, 1, "%.2fx")},
                                 {"GFLOP/s real", NUMBER(tflops_real, 1e3, "%.1f")},
                                 {"dense-equivalent", NUMBER(tflops_dense_equivalent, 1e3, "%.1f")},
                                 {"GB/s", NUMBER(gbytes_per_s, 1, "%.1f")},
                                 {"ceiling", NUMBER(share_of_ceiling, 100, "%.0f%%")},
                                 {"predicted us", .kind = COLUMN_TIME, .is_condition = 1, FIELD(predicted_us)},
                                 {"error / bound", .kind = COLUMN_ERROR},
                                 {"threads", .kind = COLUMN_COUNT, .is_condition = 1, FIELD(threads)},
                                 {"cache", .kind = COLUMN_TEXT, .is_condition = 1, FIELD(cache)}};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void print_number(char *buffer, size_t size, double value, const char *format)
{
    if (isfinite(value))
        snprintf(buffer, size, format, value);
    else
        snprintf(buffer, size, "-");
}

static void print_cell(const column *c, const bench_row *row, char *buffer, size_t size)
{
    const char *field = (const char *)row + c->offset;
    double value = c->kind == COLUMN_NUMBER || c->kind == COLUMN_TIME ? *(const double *)(const void *)field : 0;
    switch (c->kind) {
    case COLUMN_TEXT:
        snprintf(buffer, size, "%s", field);
        break;
    case COLUMN_COUNT:
        snprintf(buffer, size, "%" PRId64, *(const int64_t *)(const void *)field);
        break;
    case COLUMN_NUMBER:
        print_number(buffer, size, c->scale * value, c->format);
        break;
    case COLUMN_TIME: /* 0: there is none */
        print_number(buffer, size, value > 0 ? value : NAN,
                     value < 10     ? "%.3f"
                     : value < 100  ? "%.2f"
                     : value < 1000 ? "%.1f"
                                    : "%.0f");
        break;
    case COLUMN_SPARSITY:
        print_number(buffer, size, 100 * (1 - row->density), "%.1f%%");
        break;
    case COLUMN_ERROR:
        print_number(buffer, size, row->max_error / row->error_bound, "%.2f");
        break;
    }
}

static int is_shown(const report *r, const column *c)
{
    char first[128], other[128];
    if (!c->is_condition) return 1;
    print_cell(c, &r->rows->items[0], first, sizeof first);
    for (size_t i = 1; i < r->rows->count; i++) {
        print_cell(c, &r->rows->items[i], other, sizeof other);
        if (strcmp(first, other)) return 1;
    }
    return 0;
}

static void write_cell(FILE *to, const column *c, const bench_row *row)
{
    char text[128];
    int is_slow = c->offset == offsetof(bench_row, speedup) && row->speedup < 0.98;
    print_cell(c, row, text, sizeof text);
    fputs(c->kind == COLUMN_TEXT ? "<td class=\"l\">" : is_slow ? "<td class=\"slow\">" : "<td>", to);
    svg_text(to, text);
}

void report_write_table(const report *r)
{
    int shown[COLUMNS];
    fputs(
        "<section><h2>Every result</h2>\n<p>Click a title to sort.</p>\n<div class=\"scroll\"><table id=\"rows\"><thead>\n<tr>",
        r->to);
    for (size_t i = 0; i < COLUMNS; i++) {
        shown[i] = is_shown(r, &columns[i]);
        if (shown[i])
            fprintf(r->to, "<th%s><button type=\"button\">%s</button>", columns[i].kind == COLUMN_TEXT ? " class=\"l\"" : "",
                    columns[i].title);
    }
    fputs("\n<tbody>\n", r->to);
    for (size_t row = 0; row < r->rows->count; row++) {
        fputs("<tr>", r->to);
        for (size_t i = 0; i < COLUMNS; i++)
            if (shown[i]) write_cell(r->to, &columns[i], &r->rows->items[row]);
        fputs("\n", r->to);
    }
    fputs("</table></div></section>\n", r->to);
}
