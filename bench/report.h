/* report.h - what the parts of the report share: the rows behind it, and who draws what. */
#ifndef LACUNA_BENCH_REPORT_H
#define LACUNA_BENCH_REPORT_H

#include "bench.h"

/* The series that colours and markers tell apart. */
typedef enum report_series {
    REPORT_SERIES_ELEMENT = 0,
    REPORT_SERIES_VECTOR = 1,
    REPORT_SERIES_BLOCK = 2,
    REPORT_SERIES_VNM = 3,
    REPORT_SERIES_SHUFFLED = 4,
    REPORT_SERIES_PEER = 5,
    REPORT_SERIES_DENSE = 6
} report_series;

typedef struct report {
    FILE *to;
    const bench_rows *rows;
    const bench_accuracy *accuracy; /* NULL: no losses are known */
    const bench_row **cells;        /* [cell_count] the best row of each cell, peers left out */
    size_t cell_count;
    int variants; /* 1: the rows differ in more than shape and pattern, so titles must say in what */
    int has_baseline;
} report;

report_series report_series_of(const bench_row *row);
/* "vw32", "64:N:M": the pattern without its numbers. Rows of one line in a chart have the same. */
void report_line_name(const bench_row *row, char *buffer, size_t size);
/* "128 x 4096 x 4096", with dtype, layout, threads and cache when they differ between rows. */
void report_shape_title(const report *r, const bench_row *row, char *buffer, size_t size);
/* The same without m. */
void report_layer_title(const report *r, const bench_row *row, char *buffer, size_t size);
/* 1 when dtype, precision, layout, threads, cache and device are the same. */
int report_same_conditions(const bench_row *a, const bench_row *b);
/* Its place in the table of all rows, where the page's script looks up what it tells of a mark. */
size_t report_number(const report *r, const bench_row *row);
/* A marker in the row's form and colour that tells of the row. */
void report_mark(const report *r, const bench_row *row, double x, double y);
void report_legend(const report *r, int dense);

/* charts.c */
void report_draw_speedups(const report *r);
void report_draw_batches(const report *r);
/* maps.c */
void report_draw_roofline(const report *r);
void report_draw_heat_map(const report *r);
void report_draw_prediction(const report *r);
/* pareto.c */
void report_draw_pareto(const report *r);
/* report_table.c */
void report_write_table(const report *r);
/* style.c */
extern const char *const report_style[]; /* both NULL-terminated */
extern const char *const report_script[];

#endif
