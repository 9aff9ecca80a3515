// SPDX-License-Identifier: Apache-2.0

#include "train/svg.h"

#include "train/page.h"
#include <math.h>
#include <stdbool.h>

enum { LEFT = 62, RIGHT = 14, TOP = 10, BOTTOM = 40, TICKS = 5 };

double cadre_scale_at(const cadre_scale *scale, double value)
{
    double span = scale->hi - scale->lo;
    double share = span > 0 ? (value - scale->lo) / span : 0.5;
    return scale->from + share * (scale->to - scale->from);
}

void cadre_scale_hold(cadre_scale *scale, const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) {
            continue;
        }
        bool empty = scale->lo > scale->hi;
        scale->lo = empty || values[i] < scale->lo ? values[i] : scale->lo;
        scale->hi = empty || values[i] > scale->hi ? values[i] : scale->hi;
    }
}

// The smallest of 1, 2 and 5 times a power of ten that is at least size.
static double round_up(double size)
{
    double power = pow(10, floor(log10(size)));
    const double steps[] = {1, 2, 5};
    for (int i = 0; i < 3; i++) {
        if (size <= steps[i] * power * (1 + 1e-9)) {
            return steps[i] * power;
        }
    }
    return 10 * power;
}

void cadre_scale_settle(cadre_scale *scale)
{
    if (scale->lo > scale->hi) {
        scale->lo = 0;
        scale->hi = 1;
    }
    if (!(scale->hi - scale->lo > fabs(scale->hi) * 1e-9)) {
        double half = fabs(scale->hi) / 2;
        scale->lo -= half;
        scale->hi += half > 0 ? half : 1;
    }
    double step = round_up((scale->hi - scale->lo) / TICKS);
    scale->lo = floor(scale->lo / step + 1e-9) * step;
    scale->hi = ceil(scale->hi / step - 1e-9) * step;
}

// In a unit that suits the largest, with as many decimals as neighbouring ticks
// need to differ.
static void write_tick(
    double value, double step, double most, char text[CADRE_PAGE_NUMBER_BYTES])
{
    static const struct {
        double unit;
        const char *letter;
    } units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
    size_t u = 0;
    while (units[u].unit > 1 && most < units[u].unit * 10) {
        u++;
    }
    step /= units[u].unit;
    int decimals = step >= 1 ? 0 : (int)ceil(-log10(step) - 1e-9);
    char number[CADRE_PAGE_NUMBER_BYTES];
    cadre_page_fixed(
        value / units[u].unit, decimals < 9 ? decimals : 9, number);
    snprintf(text, CADRE_PAGE_NUMBER_BYTES, "%.40s%s", number,
        value == 0 ? "" : units[u].letter);
}

int cadre_ticks(const cadre_scale *scale, int wanted, double least,
    cadre_tick ticks[CADRE_MOST_TICKS])
{
    double step = round_up((scale->hi - scale->lo) / wanted);
    step = step > least ? step : least;
    double first = ceil(scale->lo / step - 1e-9);
    double most =
        fabs(scale->hi) > fabs(scale->lo) ? fabs(scale->hi) : fabs(scale->lo);
    int n = 0;
    while (
        n < CADRE_MOST_TICKS && (first + n) * step <= scale->hi + step * 1e-9) {
        double value = (first + n) * step;
        ticks[n].at = cadre_scale_at(scale, value);
        write_tick(value, step, most, ticks[n].text);
        n++;
    }
    return n;
}

// --- the frame

void cadre_picture_begin(FILE *page, const char *name, const char *title,
    const char *text, double height)
{
    fprintf(page, "<div class=\"plot\"><svg id=\"%s\" viewBox=\"0 0 %d ", name,
        CADRE_PLOT_WIDTH);
    cadre_page_coordinate(page, height);
    fprintf(page,
        "\" role=\"img\" aria-labelledby=\"%s-title %s-text\">\n"
        "<title id=\"%s-title\">",
        name, name, name);
    cadre_page_text(page, title);
    fprintf(page, "</title><desc id=\"%s-text\">", name);
    cadre_page_text(page, text);
    fprintf(page, "</desc>\n");
}

void cadre_plot_begin(cadre_plot *plot, FILE *page, const char *name,
    const char *title, const char *text)
{
    *plot = (cadre_plot){
        .page = page,
        .x = {.lo = 1, .from = LEFT, .to = CADRE_PLOT_WIDTH - RIGHT},
        .y = {.lo = 1, .from = CADRE_PLOT_HEIGHT - BOTTOM, .to = TOP},
    };
    cadre_picture_begin(page, name, title, text, CADRE_PLOT_HEIGHT);
}

void cadre_plot_end(const cadre_plot *plot)
{
    fprintf(plot->page, "</svg></div>\n");
}

static void put_point(FILE *page, double x, double y)
{
    cadre_page_coordinate(page, x);
    fputc(' ', page);
    cadre_page_coordinate(page, y);
}

static void put_line(
    FILE *page, const char *style, double x1, double y1, double x2, double y2)
{
    fprintf(page, "<path class=\"%s\" d=\"M", style);
    put_point(page, x1, y1);
    fprintf(page, "L");
    put_point(page, x2, y2);
    fprintf(page, "\"/>");
}

static void put_label(
    FILE *page, const char *style, double x, double y, const char *text)
{
    fprintf(page, "<text class=\"%s\" x=\"", style);
    cadre_page_coordinate(page, x);
    fprintf(page, "\" y=\"");
    cadre_page_coordinate(page, y);
    fprintf(page, "\">");
    cadre_page_text(page, text);
    fprintf(page, "</text>\n");
}

void cadre_plot_axes(const cadre_plot *plot, const char *x_label)
{
    FILE *page = plot->page;
    cadre_tick ticks[CADRE_MOST_TICKS];
    int n = cadre_ticks(&plot->y, TICKS, 0, ticks);
    for (int i = 0; i < n; i++) {
        double y = ticks[i].at;
        put_line(page, "grid", plot->x.from, y, plot->x.to, y);
        put_label(page, "tick end", plot->x.from - 8, y + 4, ticks[i].text);
    }
    n = cadre_ticks(&plot->x, 2 * TICKS, 1, ticks);
    for (int i = 0; i < n; i++) {
        double x = ticks[i].at;
        put_line(page, "mark", x, plot->y.from, x, plot->y.from + 4);
        put_label(page, "tick middle", x, plot->y.from + 18, ticks[i].text);
    }
    put_label(page, "tick middle", (plot->x.from + plot->x.to) / 2,
        CADRE_PLOT_HEIGHT - 6, x_label);
}

// --- lines

enum { ALONE = 12 }; // the width of a point that no line goes on from

// A path while it is written.
typedef struct pen {
    FILE *page;
    bool down;   // the last point is joined to the next
    bool single; // it has no neighbour so far
} pen;

static void pen_up(pen *p)
{
    if (p->down && p->single) {
        fprintf(p->page, "m%d 0h%d", -ALONE / 2, ALONE);
    }
    p->down = false;
}

static void pen_to(pen *p, double x, double y)
{
    fputc(p->down ? 'L' : 'M', p->page);
    put_point(p->page, x, y);
    p->single = !p->down;
    p->down = true;
}

// The lowest and highest point of a column of the picture.
typedef struct column {
    size_t n;
    size_t lowest;
    size_t highest;
} column;

static void column_take(column *c, const double *y, size_t i)
{
    if (c->n++ == 0) {
        c->lowest = i;
        c->highest = i;
    }
    c->lowest = y[i] < y[c->lowest] ? i : c->lowest;
    c->highest = y[i] > y[c->highest] ? i : c->highest;
}

static void column_draw(
    column *c, pen *p, const cadre_plot *plot, const double *x, const double *y)
{
    if (c->n > 0) {
        size_t first = c->lowest < c->highest ? c->lowest : c->highest;
        size_t last = c->lowest < c->highest ? c->highest : c->lowest;
        pen_to(p, cadre_scale_at(&plot->x, x[first]),
            cadre_scale_at(&plot->y, y[first]));
        if (last != first) {
            pen_to(p, cadre_scale_at(&plot->x, x[last]),
                cadre_scale_at(&plot->y, y[last]));
        }
    }
    *c = (column){0};
}

void cadre_plot_line(const cadre_plot *plot, const char *style, const double *x,
    const double *y, size_t n)
{
    fprintf(plot->page, "<path class=\"line %s\" d=\"", style);
    pen p = {.page = plot->page};
    column c = {0};
    double at = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(y[i])) {
            column_draw(&c, &p, plot, x, y);
            pen_up(&p);
            continue;
        }
        double here = floor(cadre_scale_at(&plot->x, x[i]));
        if (here != at) {
            column_draw(&c, &p, plot, x, y);
            at = here;
        }
        column_take(&c, y, i);
    }
    column_draw(&c, &p, plot, x, y);
    pen_up(&p);
    fprintf(plot->page, "\"/>\n");
}

// A point of a band for each column: its lowest or its highest value.
static void draw_edge(const cadre_plot *plot, pen *p, const double *x,
    const double *y, size_t first, size_t last, bool backwards)
{
    size_t n = last - first;
    for (size_t k = 0; k < n;) {
        size_t i = backwards ? last - 1 - k : first + k;
        double here = floor(cadre_scale_at(&plot->x, x[i]));
        double value = y[i];
        for (k++; k < n; k++) {
            size_t j = backwards ? last - 1 - k : first + k;
            if (floor(cadre_scale_at(&plot->x, x[j])) != here) {
                break;
            }
            bool outer = backwards ? y[j] > value : y[j] < value;
            value = outer ? y[j] : value;
        }
        pen_to(
            p, cadre_scale_at(&plot->x, x[i]), cadre_scale_at(&plot->y, value));
    }
}

void cadre_plot_band(const cadre_plot *plot, const char *style, const double *x,
    const double *lo, const double *hi, size_t n)
{
    fprintf(plot->page, "<path class=\"band %s\" d=\"", style);
    size_t first = 0;
    while (first < n) {
        size_t last = first;
        while (last < n && isfinite(lo[last]) && isfinite(hi[last])) {
            last++;
        }
        if (last > first) {
            pen p = {.page = plot->page};
            draw_edge(plot, &p, x, lo, first, last, false);
            if (last - first == 1) {
                fprintf(plot->page, "m%d 0h%dV", -ALONE / 2, ALONE);
                cadre_page_coordinate(
                    plot->page, cadre_scale_at(&plot->y, hi[first]));
                fprintf(plot->page, "h%d", -ALONE);
            } else {
                draw_edge(plot, &p, x, hi, first, last, true);
            }
            fputc('Z', plot->page);
        }
        first = last + 1;
    }
    fprintf(plot->page, "\"/>\n");
}

void cadre_plot_dots(const cadre_plot *plot, const char *style, const double *x,
    const double *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(y[i])) {
            continue;
        }
        fprintf(plot->page, "<circle class=\"%s\" r=\"4\" cx=\"", style);
        cadre_page_coordinate(plot->page, cadre_scale_at(&plot->x, x[i]));
        fprintf(plot->page, "\" cy=\"");
        cadre_page_coordinate(plot->page, cadre_scale_at(&plot->y, y[i]));
        fprintf(plot->page, "\"/>\n");
    }
}
