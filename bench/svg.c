/* svg.c - axes, ticks, frames and markers of the report's charts. charts.c and maps.c call it. Colours are classes of the
 * page's style sheet, so that a chart follows light and dark. */
#include "svg.h"

#include <math.h>

double svg_at(const svg_axis *axis, double value)
{
    double share =
        axis->log ? log(value / axis->low) / log(axis->high / axis->low) : (value - axis->low) / (axis->high - axis->low);
    return axis->from + share * (axis->to - axis->from);
}

void svg_include(svg_axis *axis, double value, int *first)
{
    if (!isfinite(value) || (axis->log && value <= 0)) return;
    if (*first || value < axis->low) axis->low = value;
    if (*first || value > axis->high) axis->high = value;
    *first = 0;
}

void svg_relax(svg_axis *axis)
{
    if (axis->log) {
        double air = pow(axis->high / axis->low, 0.06);
        if (air < 1.1) air = 1.1;
        axis->low /= air;
        axis->high *= air;
    } else {
        double air = 0.06 * (axis->high - axis->low);
        if (!(air > 0)) air = 0.5;
        axis->low -= air;
        axis->high += air;
    }
}

void svg_open(FILE *to, int width, int height, const char *label)
{
    fprintf(to, "<svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"", width, height, width,
            height);
    svg_text(to, label);
    fputs("\">\n", to);
}

void svg_close(FILE *to) { fputs("</svg>\n", to); }

void svg_text(FILE *to, const char *text)
{
    for (const char *c = text; *c; c++) {
        switch (*c) {
        case '<':
            fputs("&lt;", to);
            break;
        case '>':
            fputs("&gt;", to);
            break;
        case '&':
            fputs("&amp;", to);
            break;
        case '"':
            fputs("&quot;", to);
            break;
        case '\'':
            fputs("&#39;", to);
            break;
        default:
            if ((unsigned char)*c >= 0x20) fputc(*c, to);
        }
    }
}

void svg_number(char *buffer, size_t size, double value)
{
    static const struct {
        double from;
        const char *suffix;
    } scales[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {0, ""}};
    size_t i = 0;
    while (fabs(value) < scales[i].from * 0.9995) i++;
    snprintf(buffer, size, "%.3g%s", value / (scales[i].from > 0 ? scales[i].from : 1), scales[i].suffix);
}

#define MOST_TICKS 16

static size_t linear_ticks(const svg_axis *axis, double *ticks)
{
    double range = axis->high - axis->low, step = pow(10, floor(log10(range / 4)));
    if (range / step > 10)
        step *= 5;
    else if (range / step > 5)
        step *= 2;
    size_t count = 0;
    for (double tick = ceil(axis->low / step) * step; tick <= axis->high && count < MOST_TICKS; tick += step)
        ticks[count++] = fabs(tick) < step / 1e6 ? 0 : tick;
    return count;
}

/* Powers of two over a few octaves, else decades, every second or third of them when there are many. */
static size_t log_ticks(const svg_axis *axis, double *ticks)
{
    double base = axis->high / axis->low <= 100 ? 2 : 10;
    double first = ceil(log(axis->low) / log(base) - 1e-9), last = floor(log(axis->high) / log(base) + 1e-9);
    double stride = floor((last - first) / 7) + 1;
    size_t count = 0;
    for (double power = first; power <= last && count < MOST_TICKS; power += stride) ticks[count++] = pow(base, power);
    return count;
}

static size_t find_ticks(const svg_axis *axis, double *ticks)
{
    return axis->log ? log_ticks(axis, ticks) : linear_ticks(axis, ticks);
}

void svg_frame(FILE *to, const svg_axis *x, const svg_axis *y, const char *x_unit, const char *y_unit)
{
    double ticks[MOST_TICKS];
    char number[32];
    size_t count = find_ticks(x, ticks);
    fprintf(to, "<rect class=\"plot\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", x->from, y->to,
            x->to - x->from, y->from - y->to);
    for (size_t i = 0; i < count; i++) {
        svg_number(number, sizeof number, ticks[i]);
        fprintf(to,
                "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/><text class=\"tick\" x=\"%.1f\" y=\"%.1f\" "
                "text-anchor=\"middle\">%s%s</text>\n",
                svg_at(x, ticks[i]), y->from, y->to, svg_at(x, ticks[i]), y->from + 14, number, x_unit);
    }
    count = find_ticks(y, ticks);
    for (size_t i = 0; i < count; i++) {
        svg_number(number, sizeof number, ticks[i]);
        fprintf(to,
                "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/><text class=\"tick\" x=\"%.1f\" y=\"%.1f\" "
                "text-anchor=\"end\">%s%s</text>\n",
                x->from, svg_at(y, ticks[i]), x->to, x->from - 5, svg_at(y, ticks[i]) + 3.5, number, y_unit);
    }
    if (x->title)
        fprintf(to, "<text class=\"axis\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n", (x->from + x->to) / 2,
                y->from + 30, x->title);
    if (y->title)
        fprintf(to, "<text class=\"axis\" transform=\"translate(%.1f %.1f) rotate(-90)\" text-anchor=\"middle\">%s</text>\n",
                x->from - 36, (y->from + y->to) / 2, y->title);
}

static const char *const marker_forms[] = {"m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
                                           "m-3.6 -3.6h7.2v7.2h-7.2z",
                                           "m0 -4.6l4.4 7.8h-8.8z",
                                           "m0 -5l5 5l-5 5l-5 -5z",
                                           "m0 4.6l4.4 -7.8h-8.8z",
                                           "m-4.2 -1.4h2.8v-2.8h2.8v2.8h2.8v2.8h-2.8v2.8h-2.8v-2.8h-2.8z",
                                           "m-5 -1.8h10v3.6h-10z"};
enum { MARKER_FORMS = sizeof marker_forms / sizeof *marker_forms };

void svg_marker_forms(FILE *to)
{
    fputs("<svg class=\"forms\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>\n", to);
    for (int i = 0; i < MARKER_FORMS; i++)
        fprintf(to, "<path id=\"s%d\" d=\"M0 0%s\"/><path id=\"d%d\" d=\"M0 0%s\"/>\n", i, marker_forms[i], i, marker_forms[i]);
    fputs("</defs></svg>\n", to);
}

void svg_marker_begin(FILE *to, int series, int hollow, double x, double y)
{
    fprintf(to, "<use href=\"#%c%d\" x=\"%.1f\" y=\"%.1f\"", hollow ? 'd' : 's', series % MARKER_FORMS, x, y);
}

void svg_marker_end(FILE *to) { fputs("/>\n", to); }
