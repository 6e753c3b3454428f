/* pareto.c - the chart by which a user chooses: what each pattern gains in time against what it costs in loss. Times come
 * from the report's rows, losses from a table such as bench/accuracy writes. report.c calls it. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "svg.h"

enum { WIDTH = 1020, HEIGHT = 430, LEFT = 64, RIGHT = 1004, TOP = 14, BOTTOM = 386 };

/* ---- reading the table of losses */

static const char *const names[] = {"pattern",          "method",      "permute",   "dense_loss",
                                    "dense_tuned_loss", "pruned_loss", "tuned_loss"};
enum { PATTERN, METHOD, PERMUTE, DENSE, DENSE_TUNED, PRUNED, TUNED, NAME_COUNT };

static double number(const char *text)
{
    char *end;
    double value = strtod(text, &end);
    return end == text || *end ? NAN : value;
}

static bench_status add_accuracy(bench_accuracy *to, char **fields, const int *place, char *why, size_t why_size)
{
    if (to->count == to->capacity) {
        size_t capacity = to->capacity ? 2 * to->capacity : 64;
        bench_loss *items = realloc(to->items, capacity * sizeof *items);
        if (!items) {
            snprintf(why, why_size, "out of memory");
            return BENCH_FAILURE;
        }
        to->items = items;
        to->capacity = capacity;
    }
    bench_loss *item = &to->items[to->count++];
    snprintf(item->pattern, sizeof item->pattern, "%s", fields[place[PATTERN]]);
    snprintf(item->method, sizeof item->method, "%s%s%s", fields[place[METHOD]], *fields[place[PERMUTE]] ? ", permuted " : "",
             fields[place[PERMUTE]]);
    item->pruned = number(fields[place[PRUNED]]) - number(fields[place[DENSE]]);
    item->tuned = number(fields[place[TUNED]]) - number(fields[place[DENSE_TUNED]]);
    return BENCH_OK;
}

static bench_status read_lines(bench_accuracy *accuracy, FILE *from, const char *path, char *why, size_t why_size)
{
    char text[4096], *fields[BENCH_CSV_MOST_FIELDS];
    int place[NAME_COUNT], expected = 0;
    for (int line = 1; fgets(text, sizeof text, from); line++) {
        int count = bench_csv_split(text, fields);
        if (line == 1) {
            for (int i = 0; i < NAME_COUNT; i++) {
                place[i] = -1;
                for (int j = 0; j < count; j++)
                    if (!strcmp(fields[j], names[i])) place[i] = j;
                if (place[i] < 0) {
                    snprintf(why, why_size, "%s: there is no column '%s'", path, names[i]);
                    return BENCH_USAGE;
                }
            }
            expected = count;
        } else if (count != expected) {
            snprintf(why, why_size, "%s, line %d: %d fields where the header has %d", path, line, count, expected);
            return BENCH_USAGE;
        } else {
            bench_status status = add_accuracy(accuracy, fields, place, why, why_size);
            if (status) return status;
        }
    }
    if (!accuracy->count) {
        snprintf(why, why_size, "%s: there are no losses in it", path);
        return BENCH_USAGE;
    }
    return BENCH_OK;
}

bench_status bench_accuracy_read(bench_accuracy *accuracy, const char *path, char *why, size_t why_size)
{
    FILE *from = fopen(path, "r");
    if (!from) {
        snprintf(why, why_size, "%s: %s", path, strerror(errno));
        return BENCH_USAGE;
    }
    bench_status status = read_lines(accuracy, from, path, why, why_size);
    fclose(from);
    return status;
}

void bench_accuracy_free(bench_accuracy *accuracy)
{
    free(accuracy->items);
    *accuracy = (bench_accuracy){0};
}

/* ---- points */

typedef struct point {
    const bench_row *row;
    const bench_loss *loss;
    double lost; /* of `loss`, pruned or tuned */
} point;

static double lost(const bench_loss *loss, int tuned) { return tuned ? loss->tuned : loss->pruned; }

/* The method that loses least under the pattern of `row`; NULL when the table has none. */
static const bench_loss *best_loss(const bench_accuracy *accuracy, const bench_row *row, int tuned)
{
    const bench_loss *best = NULL;
    for (size_t i = 0; i < accuracy->count; i++) {
        const bench_loss *loss = &accuracy->items[i];
        if (strcmp(loss->pattern, row->pattern) || !isfinite(lost(loss, tuned))) continue;
        if (!best || lost(loss, tuned) < lost(best, tuned)) best = loss;
    }
    return best;
}

static int is_same_problem(const bench_row *a, const bench_row *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && report_same_conditions(a, b);
}

/* The points of one shape under one set of conditions. */
static size_t find_points(const report *r, const bench_row *shape, int tuned, point *out)
{
    size_t count = 0;
    for (size_t i = 0; i < r->cell_count; i++) {
        const bench_row *row = r->cells[i];
        if (!isfinite(row->speedup) || !is_same_problem(row, shape)) continue;
        const bench_loss *loss = best_loss(r->accuracy, row, tuned);
        if (loss) out[count++] = (point){row, loss, lost(loss, tuned)};
    }
    return count;
}

/* The shape that the most patterns of the table were timed on, the first among equals; NULL when there is none. */
static const bench_row *fullest_shape(const report *r, point *scratch)
{
    const bench_row *best = NULL;
    size_t most = 1; /* a single point is no chart */
    for (size_t i = 0; i < r->cell_count; i++) {
        size_t count = find_points(r, r->cells[i], 0, scratch);
        if (count > most) {
            most = count;
            best = r->cells[i];
        }
    }
    return best;
}

/* ---- drawing */

static int by_loss(const void *a, const void *b)
{
    const point *left = a, *right = b;
    if (left->lost != right->lost) return left->lost < right->lost ? -1 : 1;
    return (left->row->speedup < right->row->speedup) - (left->row->speedup > right->row->speedup);
}

/* Steps through the points that no other beats in both, and names them. `points` are ordered by loss. */
static void draw_front(FILE *to, const svg_axis *x, const svg_axis *y, const point *points, size_t count)
{
    double best = 0;
    fputs("<path class=\"ideal\" d=\"", to);
    for (size_t i = 0; i < count; i++) {
        if (points[i].row->speedup <= best) continue;
        double px = svg_at(x, points[i].lost), py = svg_at(y, points[i].row->speedup);
        if (best > 0)
            fprintf(to, "H%.1fV%.1f", px, py);
        else
            fprintf(to, "M%.1f %.1fV%.1f", px, y->from, py);
        best = points[i].row->speedup;
    }
    fprintf(to, "H%.1f\"/>\n", x->to);
    best = 0;
    double last_x = -1e9, last_y = 1e9;
    for (size_t i = 0; i < count; i++) {
        if (points[i].row->speedup <= best) continue;
        best = points[i].row->speedup;
        double px = svg_at(x, points[i].lost), py = svg_at(y, best) - 7;
        int left = px > x->to - 110;                                 /* no room to the right */
        if (px - last_x < 110 && last_y - py < 13) py = last_y - 13; /* names do not cover each other */
        last_x = px, last_y = py;
        fprintf(to, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\"%s>", px + (left ? -8 : 8), py,
                left ? " text-anchor=\"end\"" : "");
        svg_text(to, points[i].row->pattern);
        fputs("</text>\n", to);
    }
}

static void draw_chart(const report *r, const bench_row *shape, int tuned, point *points)
{
    size_t count = find_points(r, shape, tuned, points);
    if (count < 2) return;
    qsort(points, count, sizeof *points, by_loss);
    svg_axis x = {
        .from = LEFT, .to = RIGHT, .title = tuned ? "loss above dense, after tuning" : "loss above dense, after pruning"};
    svg_axis y = {.log = 1, .from = BOTTOM, .to = TOP, .title = "speedup over dense"};
    int first_x = 1, first_y = 1;
    svg_include(&x, 0, &first_x);
    svg_include(&y, 1, &first_y);
    for (size_t i = 0; i < count; i++) {
        svg_include(&x, points[i].lost, &first_x);
        svg_include(&y, points[i].row->speedup, &first_y);
    }
    svg_relax(&x);
    svg_relax(&y);
    fputs("<div class=\"wide\">", r->to);
    svg_open(r->to, WIDTH, HEIGHT, x.title);
    svg_frame(r->to, &x, &y, "", "x");
    fprintf(r->to, "<path class=\"even\" d=\"M%.1f %.1fH%.1f\"><title>as fast as dense</title></path>\n", x.from, svg_at(&y, 1),
            x.to);
    draw_front(r->to, &x, &y, points, count);
    for (size_t i = 0; i < count; i++) {
        const point *p = &points[i];
        svg_marker_begin(r->to, (int)report_series_of(p->row), p->row->is_dense != 0, svg_at(&x, p->lost),
                         svg_at(&y, p->row->speedup));
        fprintf(r->to, " data-r=\"%zu\" data-t=\"", report_number(r, p->row));
        svg_text(r->to, p->row->pattern);
        fprintf(r->to, ": loss %+.3f by ", p->lost);
        svg_text(r->to, p->loss->method);
        fputs("\"", r->to);
        svg_marker_end(r->to);
    }
    svg_close(r->to);
    fputs("</div>\n", r->to);
}

void report_draw_pareto(const report *r)
{
    if (!r->accuracy) return;
    point *points = malloc((r->cell_count + 1) * sizeof *points);
    const bench_row *shape = points ? fullest_shape(r, points) : NULL;
    fputs("<section><h2>Speed against loss</h2>\n", r->to);
    if (shape) {
        char title[160];
        report_shape_title(r, shape, title, sizeof title);
        fputs("<p>Each pattern by the speedup measured at ", r->to);
        svg_text(r->to, title);
        fputs(" and by what a pruned model loses, with the method that loses least. Up and to the left is better; the dashed "
              "line "
              "joins the patterns that no other beats in both.</p>\n",
              r->to);
        report_legend(r, 0);
        draw_chart(r, shape, 0, points);
        draw_chart(r, shape, 1, points);
    } else {
        fputs("<p class=\"note\">No shape was timed with two patterns that the table of losses has.</p>\n", r->to);
    }
    fputs("</section>\n", r->to);
    free(points);
}
