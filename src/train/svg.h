// SPDX-License-Identifier: Apache-2.0
//
// Plots as SVG: axes with round ticks, lines and bands.  What has more points
// than the picture has columns is drawn as the lowest and the highest of each
// column, so a run of any length is a picture of the same size and no peak is
// lost.  Not-a-number is a gap.
//
// Threads: any, for different pages.

#ifndef CADRE_TRAIN_SVG_H
#define CADRE_TRAIN_SVG_H

#include "train/page.h"
#include <stddef.h>
#include <stdio.h>

/** A range of values along a range of coordinates. */
typedef struct cadre_scale {
    double lo;
    double hi;
    double from; // where lo is
    double to;
} cadre_scale;

double cadre_scale_at(const cadre_scale *scale, double value);

typedef struct cadre_plot {
    FILE *page;
    cadre_scale x;
    cadre_scale y;
} cadre_plot;

enum { CADRE_PLOT_WIDTH = 920, CADRE_PLOT_HEIGHT = 260 };

/**
 * Begins a plot of the size above, with room for axes.  name is its identifier
 * on the page, title and text say what it shows to who cannot see it.
 */
void cadre_plot_begin(cadre_plot *plot, FILE *page, const char *name,
    const char *title, const char *text);
void cadre_plot_end(const cadre_plot *plot);

/** As above, of another height and without scales. */
void cadre_picture_begin(FILE *page, const char *name, const char *title,
    const char *text, double height);

/** Widens a scale, empty while lo > hi, to hold n values. */
void cadre_scale_hold(cadre_scale *scale, const double *values, size_t n);

/** Makes a scale's ends round; an empty one becomes 0 to 1. */
void cadre_scale_settle(cadre_scale *scale);

enum { CADRE_MOST_TICKS = 12 };

typedef struct cadre_tick {
    double at; // coordinate
    char text[CADRE_PAGE_NUMBER_BYTES];
} cadre_tick;

/**
 * Round numbers of a scale, about as many as wanted and at least so far from
 * each other; returns how many.
 */
int cadre_ticks(const cadre_scale *scale, int wanted, double least,
    cadre_tick ticks[CADRE_MOST_TICKS]);

/** The grid, and what stands at the axes; x counts in whole numbers. */
void cadre_plot_axes(const cadre_plot *plot, const char *x_label);

/** A line through n points in order of x, of a class of the page's style. */
void cadre_plot_line(const cadre_plot *plot, const char *style, const double *x,
    const double *y, size_t n);

/** The area between two lines. */
void cadre_plot_band(const cadre_plot *plot, const char *style, const double *x,
    const double *lo, const double *hi, size_t n);

/** A dot per point. */
void cadre_plot_dots(const cadre_plot *plot, const char *style, const double *x,
    const double *y, size_t n);

#endif // CADRE_TRAIN_SVG_H
