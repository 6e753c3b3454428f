/* svg.h - the few things that every chart of the report needs: axes, ticks, frames, markers, harmless text. */
#ifndef LACUNA_BENCH_SVG_H
#define LACUNA_BENCH_SVG_H

#include <stdio.h>

/* Maps values from low to high onto pixels from `from` to `to`. */
typedef struct svg_axis {
    int log;
    double low, high, from, to;
    const char *title;
} svg_axis;

double svg_at(const svg_axis *axis, double value);
/* Stretches the range to hold the value; `first` starts a new range. Logarithmic axes pass over what is not positive. */
void svg_include(svg_axis *axis, double value, int *first);
/* Leaves some air at both ends, and never a range of nothing. */
void svg_relax(svg_axis *axis);

void svg_open(FILE *to, int width, int height, const char *label);
void svg_close(FILE *to);
/* The frame with grid lines, tick labels and axis titles; labels get `unit` after the number. */
void svg_frame(FILE *to, const svg_axis *x, const svg_axis *y, const char *x_unit, const char *y_unit);
/* The forms of the markers, once in a page: a marker only refers to its own. */
void svg_marker_forms(FILE *to);
/* A marker of one of seven forms, filled or hollow; the style sheet colours it. The caller may print attributes between this
 * and svg_marker_end. */
void svg_marker_begin(FILE *to, int series, int hollow, double x, double y);
void svg_marker_end(FILE *to);
/* Text with <, >, &, and quotes made harmless. */
void svg_text(FILE *to, const char *text);
/* "12", "1.5k", "0.25": three figures at most. */
void svg_number(char *buffer, size_t size, double value);

#endif
