/* maps.c - the charts of the report that show every row at once: roofline, heat map, prediction against measurement.
 * report.c calls it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "svg.h"

enum { WIDTH = 1020, HEIGHT = 470, LEFT = 64, RIGHT = 1004, TOP = 14, BOTTOM = 426 };

/* ---- roofline */

static double intensity(const bench_row *row) { return 1e3 * row->tflops_real / row->gbytes_per_s; }

/* The largest number of that name over all rows: rows of several runs may lie under one roof. */
static double best_number(const report *r, const char *key)
{
    double best = 0;
    for (size_t i = 0; i < r->rows->count; i++) {
        double value = bench_info_number(r->rows->items[i].device_info, key);
        if (value > best) best = value;
    }
    return best;
}

static int has_warm_rows(const report *r)
{
    for (size_t i = 0; i < r->rows->count; i++)
        if (!strcmp(r->rows->items[i].cache, "warm")) return 1;
    return 0;
}

/* min(peak, bandwidth * intensity), and what it is called. */
static void draw_roof(FILE *to, const svg_axis *x, const svg_axis *y, double peak, double bandwidth, const char *what)
{
    double ridge = peak / bandwidth, start = y->low / bandwidth > x->low ? y->low / bandwidth : x->low;
    if (start < ridge && start < x->high) {
        double end = ridge < x->high ? ridge : x->high;
        double angle = atan2(svg_at(y, end * bandwidth) - svg_at(y, start * bandwidth), svg_at(x, end) - svg_at(x, start));
        fprintf(to, "<path class=\"roof\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", svg_at(x, start), svg_at(y, start * bandwidth),
                svg_at(x, end), svg_at(y, end * bandwidth));
        fprintf(to, "<text class=\"label\" transform=\"translate(%.1f %.1f) rotate(%.1f)\">%s %.1f GB/s</text>\n",
                svg_at(x, start) + 26, svg_at(y, start * bandwidth) - 30, angle * 180 / 3.14159265358979, what, bandwidth);
    }
    if (ridge < x->high)
        fprintf(to,
                "<path class=\"roof\" d=\"M%.1f %.1fH%.1f\"/><text class=\"label\" x=\"%.1f\" y=\"%.1f\" "
                "text-anchor=\"end\">multiply-adds %.0f GFLOP/s</text>\n",
                svg_at(x, ridge > x->low ? ridge : x->low), svg_at(y, peak), x->to, x->to - 6, svg_at(y, peak) - 6, peak);
}

void report_draw_roofline(const report *r)
{
    double peak = best_number(r, "peak_gflops"), memory = best_number(r, "memory_gbytes"),
           cache = best_number(r, "cache_gbytes");
    svg_axis x = {.log = 1, .from = LEFT, .to = RIGHT, .title = "real FLOP per byte"};
    svg_axis y = {.log = 1, .from = BOTTOM, .to = TOP, .title = "real GFLOP/s"};
    int first_x = 1, first_y = 1;
    for (size_t i = 0; i < r->rows->count; i++) {
        svg_include(&x, intensity(&r->rows->items[i]), &first_x);
        svg_include(&y, 1e3 * r->rows->items[i].tflops_real, &first_y);
    }
    if (peak > 0 && memory > 0) {
        svg_include(&x, 2 * peak / memory, &first_x);
        svg_include(&x, 0.1 * peak / memory, &first_x);
    }
    svg_include(&y, peak * 1.3, &first_y);
    svg_relax(&x);
    svg_relax(&y);
    fputs(
        "<section><h2>Roofline</h2>\n<p>Every kernel on every problem under what this machine can do, as measured at the start "
        "of the run with the same threads. Only products with kept weights count, and each byte of X, weight and Y "
        "once. Hollow: dense kernels.</p>\n",
        r->to);
    report_legend(r, 0);
    fputs("<div class=\"wide\">", r->to);
    svg_open(r->to, WIDTH, HEIGHT, "Roofline");
    svg_frame(r->to, &x, &y, "", "");
    if (peak > 0 && memory > 0) draw_roof(r->to, &x, &y, peak, memory, "memory");
    if (peak > 0 && cache > 0 && has_warm_rows(r)) draw_roof(r->to, &x, &y, peak, cache, "cache");
    for (size_t i = 0; i < r->rows->count; i++) {
        const bench_row *row = &r->rows->items[i];
        if (!(intensity(row) > 0) || !(row->tflops_real > 0)) continue;
        report_mark(r, row, svg_at(&x, intensity(row)), svg_at(&y, 1e3 * row->tflops_real));
    }
    svg_close(r->to);
    fputs("</div></section>\n", r->to);
}

/* ---- heat map */

/* Red below 0.98, grey about 1, the stronger the blue the faster. */
static int heat_of(double speedup)
{
    static const double limits[] = {0.5, 0.8, 0.98, 1.2, 1.7, 2.5, 4};
    int heat = 0;
    while (heat < 7 && speedup >= limits[heat]) heat++;
    return heat;
}

static int by_shape(const void *a, const void *b)
{
    const bench_row *left = *(const bench_row *const *)a, *right = *(const bench_row *const *)b;
    double sizes[2] = {(double)left->n * (double)left->k, (double)right->n * (double)right->k};
    if (sizes[0] != sizes[1]) return sizes[0] < sizes[1] ? -1 : 1;
    if (left->n != right->n) return left->n < right->n ? -1 : 1;
    if (left->m != right->m) return left->m < right->m ? -1 : 1;
    return 0;
}

static int by_pattern(const void *a, const void *b)
{
    const bench_row *left = *(const bench_row *const *)a, *right = *(const bench_row *const *)b;
    int series = (int)report_series_of(left) - (int)report_series_of(right);
    if (series) return series;
    if (left->density != right->density) return left->density > right->density ? -1 : 1;
    return strcmp(left->pattern, right->pattern);
}

static int is_same_shape(const bench_row *a, const bench_row *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && report_same_conditions(a, b);
}

static int is_same_pattern(const bench_row *a, const bench_row *b) { return !strcmp(a->pattern, b->pattern); }

/* The cells without those that `same` as an earlier one, sorted. */
static const bench_row **distinct(const report *r, int (*same)(const bench_row *, const bench_row *),
                                  int (*order)(const void *, const void *), size_t *count)
{
    const bench_row **out = malloc((r->cell_count + 1) * sizeof *out);
    *count = 0;
    for (size_t i = 0; out && i < r->cell_count; i++) {
        size_t seen = 0;
        while (seen < *count && !same(out[seen], r->cells[i])) seen++;
        if (seen == *count && isfinite(r->cells[i]->speedup)) out[(*count)++] = r->cells[i];
    }
    if (out) qsort(out, *count, sizeof *out, order);
    return out;
}

/* The cell of a shape under a pattern; NULL when it was not run, or not against dense. */
static const bench_row *find_cell(const report *r, const bench_row *shape, const bench_row *pattern)
{
    for (size_t i = 0; i < r->cell_count; i++)
        if (is_same_pattern(r->cells[i], pattern) && is_same_shape(r->cells[i], shape) && isfinite(r->cells[i]->speedup))
            return r->cells[i];
    return NULL;
}

static void write_heat_grid(const report *r, const bench_row **shapes, size_t rows, const bench_row **patterns, size_t columns)
{
    fputs("<div class=\"scroll\"><table class=\"map\" aria-label=\"Speedup by shape and pattern\"><thead>\n<tr><th>", r->to);
    for (size_t j = 0; j < columns; j++) {
        fputs("<th>", r->to);
        svg_text(r->to, patterns[j]->pattern);
    }
    fputs("\n<tbody>\n", r->to);
    for (size_t i = 0; i < rows; i++) {
        char title[160];
        report_shape_title(r, shapes[i], title, sizeof title);
        fputs("<tr><th>", r->to);
        svg_text(r->to, title);
        for (size_t j = 0; j < columns; j++) {
            const bench_row *cell = find_cell(r, shapes[i], patterns[j]);
            if (cell)
                fprintf(r->to, "<td class=\"h%d\" data-r=\"%zu\">%.2f%s", heat_of(cell->speedup), report_number(r, cell),
                        cell->speedup, cell->is_dense ? " d" : "");
            else
                fputs("<td>", r->to);
        }
        fputs("\n", r->to);
    }
    fputs("</table></div>\n", r->to);
}

static void draw_heat_scale(FILE *to)
{
    static const char *const ranges[] = {"under 0.5x", "to 0.8x", "to 0.98x", "to 1.2x",
                                         "to 1.7x",    "to 2.5x", "to 4x",    "over 4x"};
    fputs("<div class=\"legend\">", to);
    for (int i = 0; i < 8; i++) fprintf(to, "<span><i class=\"h%d\"></i>%s</span>", i, ranges[i]);
    fputs("</div>\n", to);
}

void report_draw_heat_map(const report *r)
{
    size_t rows, columns;
    const bench_row **shapes = distinct(r, is_same_shape, by_shape, &rows);
    const bench_row **patterns = distinct(r, is_same_pattern, by_pattern, &columns);
    fputs("<section><h2>Where it wins</h2>\n<p>Speedup over dense of the best kernel of each cell. Red is slower than dense; "
          "<b>d</b> marks cells where a dense kernel was chosen.</p>\n",
          r->to);
    draw_heat_scale(r->to);
    if (shapes && patterns && rows)
        write_heat_grid(r, shapes, rows, patterns, columns);
    else
        fputs("<p class=\"note\">These results have no baseline, so there are no speedups.</p>\n", r->to);
    fputs("</section>\n", r->to);
    free(shapes);
    free(patterns);
}

/* ---- prediction against measurement */

static int compare_numbers(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void draw_band(FILE *to, const svg_axis *x, const svg_axis *y, double share)
{
    fprintf(to, "<path class=\"%s\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", share == 1 ? "even" : "band", svg_at(x, x->low),
            svg_at(y, x->low * share), svg_at(x, x->high), svg_at(y, x->high * share));
}

static void draw_scatter(const report *r, size_t shown)
{
    svg_axis x = {.log = 1, .from = LEFT, .to = RIGHT, .title = "measured, us"};
    svg_axis y = {.log = 1, .from = BOTTOM, .to = TOP, .title = "predicted, us"};
    int first = 1;
    for (size_t i = 0; i < r->rows->count; i++) {
        const bench_row *row = &r->rows->items[i];
        if (!(row->predicted_us > 0)) continue;
        svg_include(&x, row->predicted_us, &first);
        svg_include(&x, row->time_us, &first);
    }
    svg_relax(&x);
    y.low = x.low;
    y.high = x.high;
    fprintf(r->to, "<div class=\"wide\">");
    svg_open(r->to, WIDTH, HEIGHT, "Predicted against measured time");
    svg_frame(r->to, &x, &y, "", "");
    fprintf(r->to,
            "<clipPath id=\"scatter\"><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/></clipPath><g "
            "clip-path=\"url(#scatter)\">\n",
            LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP);
    draw_band(r->to, &x, &y, 1);
    draw_band(r->to, &x, &y, 1.3);
    draw_band(r->to, &x, &y, 1 / 1.3);
    fputs("</g>\n", r->to);
    for (size_t i = 0; i < r->rows->count && shown; i++) {
        const bench_row *row = &r->rows->items[i];
        if (!(row->predicted_us > 0)) continue;
        report_mark(r, row, svg_at(&x, row->time_us), svg_at(&y, row->predicted_us));
    }
    svg_close(r->to);
    fputs("</div>", r->to);
}

void report_draw_prediction(const report *r)
{
    double *errors = malloc((r->rows->count + 1) * sizeof *errors);
    size_t count = 0;
    for (size_t i = 0; errors && i < r->rows->count; i++) {
        const bench_row *row = &r->rows->items[i];
        if (row->predicted_us > 0) errors[count++] = fabs(row->predicted_us / row->time_us - 1);
    }
    fputs("<section><h2>Predicted against measured</h2>\n", r->to);
    if (count) {
        qsort(errors, count, sizeof *errors, compare_numbers);
        fprintf(r->to,
                "<p>Times by the performance model against the clock. On the line they agree; the dotted lines are 30%% off. "
                "Relative error: median %.0f%%, 90th percentile %.0f%%.</p>\n",
                100 * errors[(count - 1) / 2], 100 * errors[(count - 1) * 9 / 10]);
        report_legend(r, 0);
        draw_scatter(r, count);
    } else {
        fputs("<p class=\"note\">These results carry no predictions: write the CSV with --extended to keep them.</p>\n", r->to);
    }
    fputs("</section>\n", r->to);
    free(errors);
}
