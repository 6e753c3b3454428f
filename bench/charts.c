/* charts.c - the small multiples of the report: speedup against sparsity for each shape, time per token against batch for
 * each layer. report.c calls it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "svg.h"

#define MOST_PANELS 24
#define MOST_POINTS 64

enum { WIDTH = 330, HEIGHT = 250, LEFT = 48, RIGHT = 318, TOP = 12, BOTTOM = 208 };

/* The rows of one line of one panel, ordered by what goes along x. */
typedef struct line {
    const bench_row *points[MOST_POINTS];
    size_t count;
} line;

static int by_density(const void *a, const void *b)
{
    const bench_row *left = *(const bench_row *const *)a, *right = *(const bench_row *const *)b;
    return (left->density < right->density) - (left->density > right->density);
}

static int by_tokens(const void *a, const void *b)
{
    const bench_row *left = *(const bench_row *const *)a, *right = *(const bench_row *const *)b;
    return (left->m > right->m) - (left->m < right->m);
}

static void draw_polyline(FILE *to, const char *class_name, int series, const double *x, const double *y, size_t count)
{
    if (count < 2) return;
    fprintf(to, "<path class=\"%s s%d\" d=\"", class_name, series);
    for (size_t i = 0; i < count; i++) fprintf(to, "%c%.1f %.1f", i ? 'L' : 'M', x[i], y[i]);
    fputs("\"/>\n", to);
}

static void begin_panel(FILE *to, const char *title)
{
    fputs("<figure class=\"panel\"><figcaption>", to);
    svg_text(to, title);
    fputs("</figcaption>", to);
}

static void say_left_out(FILE *to, size_t panels, const char *what)
{
    if (panels > MOST_PANELS)
        fprintf(to, "<p class=\"note\">The first %d of %zu %s; the heat map and the table have them all.</p>\n", MOST_PANELS,
                panels, what);
}

/* ---- speedup against sparsity */

static int is_same_shape(const bench_row *a, const bench_row *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && report_same_conditions(a, b);
}

static int is_same_line(const bench_row *a, const bench_row *b)
{
    char left[80], right[80];
    report_line_name(a, left, sizeof left);
    report_line_name(b, right, sizeof right);
    return !strcmp(left, right) && report_series_of(a) == report_series_of(b);
}

/* What the charts of speedups draw: the best row of each cell, and every row of a peer. */
static size_t gather_speedups(const report *r, const bench_row **out)
{
    size_t count = 0;
    for (size_t i = 0; i < r->cell_count; i++)
        if (isfinite(r->cells[i]->speedup)) out[count++] = r->cells[i];
    for (size_t i = 0; i < r->rows->count; i++) {
        const bench_row *row = &r->rows->items[i];
        if (report_series_of(row) == REPORT_SERIES_PEER && isfinite(row->speedup)) out[count++] = row;
    }
    return count;
}

static void draw_ideal(FILE *to, const svg_axis *x, const svg_axis *y)
{
    enum { STEPS = 60 };
    double px[STEPS + 1], py[STEPS + 1];
    size_t count = 0;
    for (int i = 0; i <= STEPS; i++) {
        double sparsity = x->low + (x->high - x->low) * i / STEPS;
        if (sparsity < 0 || sparsity >= 100) continue;
        double speedup = 1 / (1 - sparsity / 100);
        if (speedup > y->high) break;
        px[count] = svg_at(x, sparsity);
        py[count++] = svg_at(y, speedup);
    }
    draw_polyline(to, "ideal", 6, px, py, count);
    fprintf(to, "<path class=\"even\" d=\"M%.1f %.1fH%.1f\"><title>as fast as dense</title></path>\n", x->from, svg_at(y, 1),
            x->to);
}

static void draw_line(const report *r, const svg_axis *x, const svg_axis *y, line *l)
{
    double px[MOST_POINTS], py[MOST_POINTS];
    qsort(l->points, l->count, sizeof *l->points, by_density);
    for (size_t i = 0; i < l->count; i++) {
        px[i] = svg_at(x, 100 * (1 - l->points[i]->density));
        py[i] = svg_at(y, l->points[i]->speedup);
    }
    draw_polyline(r->to, "line", (int)report_series_of(l->points[0]), px, py, l->count);
    for (size_t i = 0; i < l->count; i++) report_mark(r, l->points[i], px[i], py[i]);
}

static void draw_speedup_panel(const report *r, const bench_row **rows, size_t count, const bench_row *shape, const svg_axis *x,
                               const svg_axis *y)
{
    char title[160];
    report_shape_title(r, shape, title, sizeof title);
    begin_panel(r->to, title);
    svg_open(r->to, WIDTH, HEIGHT, title);
    svg_frame(r->to, x, y, "%", "x");
    draw_ideal(r->to, x, y);
    for (size_t i = 0; i < count; i++) {
        if (!is_same_shape(rows[i], shape)) continue;
        size_t first = 0; /* each line is drawn when its first row comes by */
        while (!is_same_shape(rows[first], shape) || !is_same_line(rows[first], rows[i])) first++;
        if (first < i) continue;
        line l = {.count = 0};
        for (size_t j = i; j < count && l.count < MOST_POINTS; j++)
            if (is_same_shape(rows[j], shape) && is_same_line(rows[j], rows[i])) l.points[l.count++] = rows[j];
        draw_line(r, x, y, &l);
    }
    svg_close(r->to);
    fputs("</figure>\n", r->to);
}

void report_draw_speedups(const report *r)
{
    const bench_row **rows = malloc((r->rows->count + r->cell_count + 1) * sizeof *rows);
    if (!rows) return;
    size_t count = gather_speedups(r, rows), panels = 0;
    svg_axis x = {.from = LEFT, .to = RIGHT, .title = "sparsity"};
    svg_axis y = {.log = 1, .from = BOTTOM, .to = TOP, .title = "speedup over dense"};
    int first_x = 1, first_y = 1;
    for (size_t i = 0; i < count; i++) {
        svg_include(&x, 100 * (1 - rows[i]->density), &first_x);
        svg_include(&y, rows[i]->speedup, &first_y);
        svg_include(&y, 1 / rows[i]->density, &first_y);
    }
    svg_include(&x, 40, &first_x);
    svg_include(&y, 0.9, &first_y);
    svg_relax(&x);
    svg_relax(&y);
    if (x.high > 100) x.high = 100;
    fputs(
        "<section><h2>Speedup against sparsity</h2>\n<p>Time of dense / time of the kernel, cell by cell from the same run. "
        "The dashed curve is the ideal, 1 / density; the line at 1x is dense. Hollow: the planner chose a dense kernel.</p>\n",
        r->to);
    report_legend(r, 0);
    fputs("<div class=\"panels\">\n", r->to);
    for (size_t i = 0; i < count; i++) {
        size_t first = 0;
        while (!is_same_shape(rows[first], rows[i])) first++;
        if (first < i || panels++ >= MOST_PANELS) continue;
        draw_speedup_panel(r, rows, count, rows[i], &x, &y);
    }
    fputs("</div>\n", r->to);
    say_left_out(r->to, panels, "shapes");
    if (!count) fputs("<p class=\"note\">These results have no baseline, so there are no speedups.</p>\n", r->to);
    fputs("</section>\n", r->to);
    free(rows);
}

/* ---- time per token against batch */

static int is_same_layer(const bench_row *a, const bench_row *b)
{
    return a->n == b->n && a->k == b->k && report_same_conditions(a, b);
}

static void draw_batch_line(const report *r, const svg_axis *x, const svg_axis *y, line *l, int dense)
{
    double px[MOST_POINTS], py[MOST_POINTS];
    qsort(l->points, l->count, sizeof *l->points, by_tokens);
    int series = dense ? REPORT_SERIES_DENSE : (int)report_series_of(l->points[0]);
    for (size_t i = 0; i < l->count; i++) {
        const bench_row *row = l->points[i];
        px[i] = svg_at(x, (double)row->m);
        py[i] = svg_at(y, (dense ? row->dense_us : row->time_us) / (double)row->m);
    }
    draw_polyline(r->to, dense ? "line baseline" : "line", series, px, py, l->count);
    for (size_t i = 0; i < l->count; i++) {
        const bench_row *row = l->points[i];
        if (!dense) {
            report_mark(r, row, px[i], py[i]);
            continue;
        }
        svg_marker_begin(r->to, series, 0, px[i], py[i]);
        fputs(" data-t=\"", r->to);
        svg_text(r->to, row->dense_name);
        fprintf(r->to, "\nm = %lld: %.4g us a token\"", (long long)row->m, row->dense_us / (double)row->m);
        svg_marker_end(r->to);
    }
}

static int is_same_batch_line(const bench_row *a, const bench_row *b) { return !strcmp(a->pattern, b->pattern); }

static void draw_batch_panel(const report *r, const bench_row *layer)
{
    char title[160];
    line all = {.count = 0};
    svg_axis x = {.log = 1, .from = LEFT, .to = RIGHT, .title = "tokens m"};
    svg_axis y = {.log = 1, .from = BOTTOM, .to = TOP, .title = "us a token"};
    int first_x = 1, first_y = 1;
    for (size_t i = 0; i < r->cell_count; i++) {
        const bench_row *row = r->cells[i];
        if (!is_same_layer(row, layer)) continue;
        svg_include(&x, (double)row->m, &first_x);
        svg_include(&y, row->time_us / (double)row->m, &first_y);
        svg_include(&y, row->dense_us / (double)row->m, &first_y);
        size_t seen = 0;
        while (seen < all.count && all.points[seen]->m != row->m) seen++;
        if (seen == all.count && all.count < MOST_POINTS && isfinite(row->dense_us)) all.points[all.count++] = row;
    }
    svg_relax(&x);
    svg_relax(&y);
    report_layer_title(r, layer, title, sizeof title);
    begin_panel(r->to, title);
    svg_open(r->to, WIDTH, HEIGHT, title);
    svg_frame(r->to, &x, &y, "", "");
    if (all.count) draw_batch_line(r, &x, &y, &all, 1);
    for (size_t i = 0; i < r->cell_count; i++) {
        if (!is_same_layer(r->cells[i], layer)) continue;
        size_t first = 0;
        while (!is_same_layer(r->cells[first], layer) || !is_same_batch_line(r->cells[first], r->cells[i])) first++;
        if (first < i) continue;
        line l = {.count = 0};
        for (size_t j = i; j < r->cell_count && l.count < MOST_POINTS; j++)
            if (is_same_layer(r->cells[j], layer) && is_same_batch_line(r->cells[j], r->cells[i]))
                l.points[l.count++] = r->cells[j];
        draw_batch_line(r, &x, &y, &l, 0);
    }
    svg_close(r->to);
    fputs("</figure>\n", r->to);
}

static int has_batches(const report *r, const bench_row *layer)
{
    for (size_t i = 0; i < r->cell_count; i++)
        if (is_same_layer(r->cells[i], layer) && r->cells[i]->m != layer->m) return 1;
    return 0;
}

void report_draw_batches(const report *r)
{
    size_t panels = 0;
    fputs(
        "<section><h2>Time per token against batch</h2>\n<p>One line for each pattern, and the dense library, for every layer "
        "that was run with more than one m.</p>\n",
        r->to);
    report_legend(r, 1);
    fputs("<div class=\"panels\">\n", r->to);
    for (size_t i = 0; i < r->cell_count; i++) {
        size_t first = 0;
        while (!is_same_layer(r->cells[first], r->cells[i])) first++;
        if (first < i || !has_batches(r, r->cells[i]) || panels++ >= MOST_PANELS) continue;
        draw_batch_panel(r, r->cells[i]);
    }
    fputs("</div>\n", r->to);
    say_left_out(r->to, panels, "layers");
    if (!panels) fputs("<p class=\"note\">No layer was run with more than one m.</p>\n", r->to);
    fputs("</section>\n", r->to);
}
