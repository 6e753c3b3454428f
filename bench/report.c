/* report.c - the report: one HTML page with everything in it, made from the rows of a run or of earlier CSV files. The
 * command line calls it; charts.c, maps.c and pareto.c draw, report_table.c lists. */
#include "report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "svg.h"

/* ---- what rows are called */

size_t report_number(const report *r, const bench_row *row) { return (size_t)(row - r->rows->items); }

report_series report_series_of(const bench_row *row)
{
    lac_pattern pattern;
    if (!strncmp(row->kernel, "peer:", 5)) return REPORT_SERIES_PEER;
    if (lac_pattern_parse(row->pattern, &pattern)) return REPORT_SERIES_ELEMENT;
    return (report_series)(pattern.family - LAC_FAMILY_ELEMENT);
}

void report_line_name(const bench_row *row, char *buffer, size_t size)
{
    lac_pattern p;
    const char *who = strncmp(row->kernel, "peer:", 5) ? "" : row->kernel;
    if (lac_pattern_parse(row->pattern, &p))
        snprintf(buffer, size, "%s", row->pattern);
    else
        snprintf(buffer, size, "%.40s %d %dx%d", who, (int)p.family, (int)p.unit_n, (int)p.unit_k);
}

int report_same_conditions(const bench_row *a, const bench_row *b)
{
    return !strcmp(a->dtype, b->dtype) && !strcmp(a->precision, b->precision) && a->threads == b->threads &&
           !strcmp(a->cache, b->cache) && !strcmp(a->device, b->device) &&
           (!strcmp(a->layout, b->layout) || !strncmp(a->kernel, "peer:", 5) || !strncmp(b->kernel, "peer:", 5));
}

/* Its threads say nothing. */
static int is_gpu(const bench_row *row) { return !strncmp(row->device, "cuda", 4); }

static void add_conditions(const report *r, const bench_row *row, char *buffer, size_t size)
{
    size_t used = strlen(buffer);
    if (!r->variants) return;
    if (is_gpu(row))
        snprintf(buffer + used, size - used, " %s %s %s %s", row->dtype, row->precision, row->layout, row->cache);
    else
        snprintf(buffer + used, size - used, " %s %s %s %" PRId64 "t", row->dtype, row->layout, row->cache, row->threads);
}

void report_shape_title(const report *r, const bench_row *row, char *buffer, size_t size)
{
    snprintf(buffer, size, "%" PRId64 " x %" PRId64 " x %" PRId64, row->m, row->n, row->k);
    add_conditions(r, row, buffer, size);
}

void report_layer_title(const report *r, const bench_row *row, char *buffer, size_t size)
{
    snprintf(buffer, size, "n %" PRId64 ", k %" PRId64, row->n, row->k);
    add_conditions(r, row, buffer, size);
}

void report_mark(const report *r, const bench_row *row, double x, double y)
{
    svg_marker_begin(r->to, (int)report_series_of(row), row->is_dense != 0, x, y);
    fprintf(r->to, " data-r=\"%zu\"", report_number(r, row));
    svg_marker_end(r->to);
}

void report_legend(const report *r, int dense)
{
    static const char *const names[] = {"element-wise N:M", "vector-wise", "block-wise", "V:N:M", "shuffled", "peer", "dense"};
    int present[7] = {0};
    for (size_t i = 0; i < r->rows->count; i++) present[report_series_of(&r->rows->items[i])] = 1;
    present[REPORT_SERIES_DENSE] = dense && r->has_baseline;
    fputs("<div class=\"legend\">", r->to);
    for (int s = 0; s < 7; s++) {
        if (!present[s]) continue;
        fputs("<span><svg width=\"14\" height=\"14\">", r->to);
        svg_marker_begin(r->to, s, 0, 7, 7);
        svg_marker_end(r->to);
        fprintf(r->to, "</svg>%s</span>", names[s]);
    }
    fputs("</div>\n", r->to);
}

/* ---- cells */

static int is_better(const bench_row *a, const bench_row *b)
{
    return isfinite(a->speedup) && isfinite(b->speedup) ? a->speedup > b->speedup : a->time_us < b->time_us;
}

static void find_cells(report *r)
{
    for (size_t i = 0; i < r->rows->count; i++) {
        const bench_row *row = &r->rows->items[i];
        const bench_row *first = &r->rows->items[0];
        r->variants = r->variants || !report_same_conditions(row, first);
        r->has_baseline = r->has_baseline || isfinite(row->speedup);
        if (report_series_of(row) == REPORT_SERIES_PEER) continue;
        size_t seen = 0;
        while (seen < r->cell_count && !bench_row_is_same_cell(r->cells[seen], row)) seen++;
        if (seen == r->cell_count)
            r->cells[r->cell_count++] = row;
        else if (is_better(row, r->cells[seen]))
            r->cells[seen] = row;
    }
}

/* ---- the head of the page */

static void write_tile(FILE *to, const char *value, const char *what)
{
    fprintf(to, "<div class=\"tile\"><b>%s</b><span>%s</span></div>\n", value, what);
}

static void write_tiles(const report *r)
{
    size_t measured = 0, slow = 0, fast = 0, dense = 0;
    double logs = 0;
    for (size_t i = 0; i < r->cell_count; i++) {
        const bench_row *cell = r->cells[i];
        dense += cell->is_dense != 0;
        if (!isfinite(cell->speedup)) continue;
        measured++;
        logs += log(cell->speedup);
        slow += cell->speedup < 0.98;
        fast += cell->speedup > 1.2;
    }
    char text[48];
    fputs("<div class=\"tiles\">\n", r->to);
    snprintf(text, sizeof text, "%zu", r->cell_count);
    write_tile(r->to, text, "cells (shape x pattern)");
    if (measured) {
        snprintf(text, sizeof text, "%.2fx", exp(logs / (double)measured));
        write_tile(r->to, text, "speedup over dense, geometric mean");
        snprintf(text, sizeof text, "%.0f%%", 100.0 * (double)fast / (double)measured);
        write_tile(r->to, text, "of cells over 1.2x of dense");
        snprintf(text, sizeof text, "%zu", slow);
        write_tile(r->to, text, "cells under 0.98x of dense");
    }
    snprintf(text, sizeof text, "%.0f%%", r->cell_count ? 100.0 * (double)dense / (double)r->cell_count : 0.0);
    write_tile(r->to, text, "of cells run a dense kernel");
    fputs("</div>\n", r->to);
}

static void write_fact(FILE *to, const char *name, const char *value)
{
    if (!*value) return;
    fprintf(to, "<dt>%s</dt><dd>", name);
    svg_text(to, value);
    fputs("</dd>\n", to);
}

static void describe_baseline(const bench_row *row, char *buffer, size_t size)
{
    char version[64], core[64];
    bench_info_text(row->device_info, "cublas", version, sizeof version);
    if (*version) {
        snprintf(buffer, size, "the faster of cuBLAS and cuBLASLt %s", version);
        return;
    }
    bench_info_text(row->device_info, "openblas", version, sizeof version);
    bench_info_text(row->device_info, "openblas_core", core, sizeof core);
    snprintf(buffer, size, *version ? "OpenBLAS %s, core %s" : "none", version, core);
}

static void write_head(const report *r)
{
    const bench_row *first = &r->rows->items[0];
    char model[160], conditions[192], baseline[192], threads[40] = "";
    bench_info_text(first->device_info, "model", model, sizeof model);
    if (!is_gpu(first)) snprintf(threads, sizeof threads, "%" PRId64 " threads, ", first->threads);
    snprintf(conditions, sizeof conditions, "%s, %s, %s-major, %s%s cache%s", first->dtype, first->precision, first->layout,
             threads, first->cache, r->variants ? "; and others, as the table tells" : "");
    describe_baseline(first, baseline, sizeof baseline);
    fputs("<header><h1>Lacuna benchmark</h1>\n<p>N:M-sparse weights against the dense library, on random data, every result "
          "checked before it was timed. Point at a mark to read it.</p>\n",
          r->to);
    write_tiles(r);
    fputs("<dl>\n", r->to);
    write_fact(r->to, "Machine", model);
    write_fact(r->to, "Conditions", conditions);
    write_fact(r->to, "Baseline", baseline);
    write_fact(r->to, "Commit", first->commit);
    write_fact(r->to, "Details", first->device_info);
    fputs("</dl></header>\n", r->to);
}

/* ---- the page */

static void write_page(const report *r)
{
    fputs(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>Lacuna benchmark</title>\n<style>\n",
        r->to);
    for (size_t i = 0; report_style[i]; i++) fputs(report_style[i], r->to);
    fputs("</style>\n</head>\n<body>\n", r->to);
    svg_marker_forms(r->to);
    fputs("<main>\n", r->to);
    write_head(r);
    report_draw_speedups(r);
    report_draw_heat_map(r);
    report_draw_pareto(r);
    report_draw_batches(r);
    report_draw_roofline(r);
    report_draw_prediction(r);
    report_write_table(r);
    fprintf(r->to,
            "<footer>Made by lacuna %s. Times are medians; the spread is the interquartile range as a share of the "
            "median.</footer>\n",
            lac_version());
    fputs("</main>\n<script>\n", r->to);
    for (size_t i = 0; report_script[i]; i++) fputs(report_script[i], r->to);
    fputs("</script>\n</body>\n</html>\n", r->to);
}

bench_status bench_report_write(const bench_rows *rows, const bench_accuracy *accuracy, FILE *to)
{
    report r = {.rows = rows, .accuracy = accuracy, .to = to, .cells = malloc(rows->count * sizeof *r.cells)};
    if (!r.cells) return BENCH_FAILURE;
    find_cells(&r);
    write_page(&r);
    free(r.cells);
    return BENCH_OK;
}
