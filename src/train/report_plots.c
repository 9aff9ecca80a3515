// SPDX-License-Identifier: Apache-2.0
//
// The report's plots over steps, and the bars.

#include "train/report.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "train/page.h"
#include "train/svg.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { MOST_LINES = 8, MOST_BARS = 32, MOST_ROWS = 40 };

static const char *const rank_styles[MOST_LINES] = {
    "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7"};

static void fit(const cadre_report_data *d, cadre_plot *plot)
{
    cadre_scale_hold(&plot->x, d->columns[CADRE_COLUMN_STEP], d->n_lines);
    if (plot->x.lo > plot->x.hi) { // no line at all
        cadre_scale_settle(&plot->x);
    } else if (plot->x.lo == plot->x.hi) {
        plot->x.lo -= 1;
        plot->x.hi += 1;
    }
    cadre_scale_settle(&plot->y);
}

// --- loss

// The mean of about a fiftieth of the lines, half before and half behind each;
// of few lines each for itself.  What is not a number is passed over.
static void smooth(const double *values, size_t n, double *out)
{
    size_t half = n / 100;
    double sum = 0;
    double count = 0;
    for (size_t i = 0, entered = 0; i < n; i++) {
        for (; entered < n && entered <= i + half; entered++) {
            sum += isfinite(values[entered]) ? values[entered] : 0;
            count += isfinite(values[entered]) ? 1 : 0;
        }
        if (i > half && isfinite(values[i - half - 1])) {
            sum -= values[i - half - 1];
            count--;
        }
        out[i] = isfinite(values[i]) ? sum / count : (double)NAN;
    }
}

cadre_status cadre_report_loss(FILE *page, const cadre_report_data *data)
{
    size_t n = data->n_lines;
    const double *step = data->columns[CADRE_COLUMN_STEP];
    const double *loss = data->columns[CADRE_COLUMN_LOSS];
    const double *eval = data->columns[CADRE_COLUMN_EVAL_LOSS];
    double *smoothed = cadre_alloc_array(n, sizeof(*smoothed));
    if (smoothed == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    smooth(loss, n, smoothed);
    cadre_report_section(page, "Loss",
        "Mean over the samples of a step. Gaps are steps that were skipped, "
        "since something in them was not finite.");
    cadre_report_legend(page, CADRE_LEGEND_LINE, "raw", "as logged");
    cadre_report_legend(page, CADRE_LEGEND_LINE, "main", "smoothed");
    cadre_report_legend(page, CADRE_LEGEND_DOT, "dot", "test split");
    cadre_plot plot;
    cadre_plot_begin(
        &plot, page, "plot-loss", "Loss", "Training loss over steps");
    cadre_scale_hold(&plot.y, loss, n);
    cadre_scale_hold(&plot.y, eval, n);
    fit(data, &plot);
    cadre_plot_axes(&plot, "step");
    cadre_plot_line(&plot, "raw", step, loss, n);
    cadre_plot_line(&plot, "main", step, smoothed, n);
    cadre_plot_dots(&plot, "dot", step, eval, n);
    cadre_plot_end(&plot);
    cadre_report_section_end(page);
    cadre_free(smoothed);
    return CADRE_OK;
}

// --- throughput

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

// Of the ranks' mean steps at a line; a run of before they were logged has only
// the step of that line.
static double median_step_ms(
    const cadre_report_data *d, size_t line, double *scratch)
{
    size_t n = 0;
    for (int r = 0; r < d->n_ranks; r++) {
        double ms = cadre_report_rank(d, d->rank_step_ms, r)[line];
        if (isfinite(ms)) {
            scratch[n++] = ms;
        }
    }
    if (n == 0) {
        return d->columns[CADRE_COLUMN_STEP_MS][line];
    }
    qsort(scratch, n, sizeof(*scratch), compare);
    return (scratch[(n - 1) / 2] + scratch[n / 2]) / 2;
}

typedef struct rates {
    double *low;
    double *high;
    double *middle;
    double *smoothed; // the middle
    double *scratch;  // per rank
} rates;

static void fill_rates(const cadre_report_data *d, const rates *r)
{
    for (size_t i = 0; i < d->n_lines; i++) {
        // Samples of a step, from one step's rate and time.
        double samples = d->columns[CADRE_COLUMN_RATE][i] *
                         d->columns[CADRE_COLUMN_STEP_MS][i];
        r->low[i] = samples / d->columns[CADRE_COLUMN_SLOWEST_MS][i];
        r->high[i] = samples / d->columns[CADRE_COLUMN_FASTEST_MS][i];
        r->middle[i] = samples / median_step_ms(d, i, r->scratch);
    }
    smooth(r->middle, d->n_lines, r->smoothed);
}

static void draw_rates(FILE *page, const cadre_report_data *d, const rates *r)
{
    const double *step = d->columns[CADRE_COLUMN_STEP];
    size_t n = d->n_lines;
    cadre_report_section(page, "Throughput",
        "Samples per second over all ranks: the slowest and the fastest step "
        "of any rank since the line before, and the mean of the median rank.");
    cadre_report_legend(
        page, CADRE_LEGEND_AREA, "fill", "slowest to fastest step");
    cadre_report_legend(
        page, CADRE_LEGEND_LINE, "main", "median rank, smoothed");
    cadre_plot plot;
    cadre_plot_begin(&plot, page, "plot-throughput", "Throughput",
        "Samples per second over steps");
    const double zero = 0;
    cadre_scale_hold(&plot.y, &zero, 1);
    cadre_scale_hold(&plot.y, r->high, n);
    cadre_scale_hold(&plot.y, r->smoothed, n);
    fit(d, &plot);
    cadre_plot_axes(&plot, "step");
    cadre_plot_band(&plot, "fill", step, r->low, r->high, n);
    cadre_plot_line(&plot, "main", step, r->smoothed, n);
    cadre_plot_end(&plot);
    cadre_report_section_end(page);
}

cadre_status cadre_report_throughput(FILE *page, const cadre_report_data *data)
{
    size_t n = data->n_lines;
    const rates r = {
        .low = cadre_alloc_array(n, sizeof(double)),
        .high = cadre_alloc_array(n, sizeof(double)),
        .middle = cadre_alloc_array(n, sizeof(double)),
        .smoothed = cadre_alloc_array(n, sizeof(double)),
        .scratch = cadre_alloc_array((size_t)data->n_ranks, sizeof(double)),
    };
    cadre_status status = CADRE_ERR_NO_MEMORY;
    if (r.low != NULL && r.high != NULL && r.middle != NULL &&
        r.smoothed != NULL && r.scratch != NULL) {
        fill_rates(data, &r);
        draw_rates(page, data, &r);
        status = CADRE_OK;
    }
    cadre_free(r.low);
    cadre_free(r.high);
    cadre_free(r.middle);
    cadre_free(r.smoothed);
    cadre_free(r.scratch);
    return status;
}

// --- ranks

// Smoothed lines, one after another: the whole step of rank 0, then what each
// rank computed.
static void draw_rank_lines(
    FILE *page, const cadre_report_data *d, int n_lines, double *lines)
{
    size_t n = d->n_lines;
    smooth(d->rank_step_ms, n, lines);
    for (int r = 0; r < n_lines; r++) {
        smooth(cadre_report_rank(d, d->rank_busy_ms, r), n,
            lines + (size_t)(r + 1) * n);
        char text[32];
        snprintf(text, sizeof(text), "rank %d", r);
        cadre_report_legend(page, CADRE_LEGEND_LINE, rank_styles[r], text);
    }
    cadre_report_legend(page, CADRE_LEGEND_LINE, "whole", "whole step, rank 0");
    cadre_plot plot;
    cadre_plot_begin(&plot, page, "plot-ranks", "Step times per rank",
        "Milliseconds that each rank computed in a step, over steps");
    const double zero = 0;
    cadre_scale_hold(&plot.y, &zero, 1);
    cadre_scale_hold(&plot.y, lines, n * ((size_t)n_lines + 1));
    fit(d, &plot);
    cadre_plot_axes(&plot, "step");
    const double *step = d->columns[CADRE_COLUMN_STEP];
    cadre_plot_line(&plot, "whole", step, lines, n);
    for (int r = 0; r < n_lines; r++) {
        cadre_plot_line(
            &plot, rank_styles[r], step, lines + (size_t)(r + 1) * n, n);
    }
    cadre_plot_end(&plot);
}

// Over the second half of the lines, when a run has settled.
static double late_mean(const double *values, size_t n)
{
    double sum = 0;
    double count = 0;
    for (size_t i = n / 2; i < n; i++) {
        if (isfinite(values[i])) {
            sum += values[i];
            count++;
        }
    }
    return count > 0 ? sum / count : 0;
}

enum { BAR_LEFT = 130, BAR_RIGHT = 300, BAR_ROW = 26 };

// A bar of one or two parts from BAR_LEFT on, a text before and one behind it.
static void draw_bar(FILE *page, int row, const char *name, double share,
    double rest, const char *styles[2], const char *text)
{
    double room = CADRE_PLOT_WIDTH - BAR_LEFT - BAR_RIGHT;
    double widths[2] = {share * room, rest * room};
    double x = BAR_LEFT;
    fprintf(page, "<text class=\"tick end\" x=\"%d\" y=\"%d\">", BAR_LEFT - 8,
        row * BAR_ROW + 18);
    cadre_page_text(page, name);
    fprintf(page, "</text>");
    for (int i = 0; i < 2; i++) {
        if (!(widths[i] > 0)) {
            continue;
        }
        fprintf(page, "<rect class=\"%s\" x=\"", styles[i]);
        cadre_page_coordinate(page, x);
        fprintf(page, "\" y=\"%d\" height=\"%d\" width=\"", row * BAR_ROW + 4,
            BAR_ROW - 8);
        cadre_page_coordinate(page, widths[i]);
        fprintf(page, "\"/>");
        x += widths[i];
    }
    fprintf(page, "<text class=\"tick\" x=\"");
    cadre_page_coordinate(page, x + 8);
    fprintf(page, "\" y=\"%d\">", row * BAR_ROW + 18);
    cadre_page_text(page, text);
    fprintf(page, "</text>\n");
}

static void draw_rank_bars(FILE *page, const cadre_report_data *d)
{
    static const char *styles[2] = {"busy", "idle"};
    int n_bars = d->n_ranks < MOST_BARS ? d->n_ranks : MOST_BARS;
    double longest = 0;
    for (int r = 0; r < n_bars; r++) {
        double ms =
            late_mean(cadre_report_rank(d, d->rank_step_ms, r), d->n_lines);
        longest = ms > longest ? ms : longest;
    }
    longest = longest > 0 ? longest : 1;
    cadre_report_legend(page, CADRE_LEGEND_AREA, "busy", "computing");
    cadre_report_legend(page, CADRE_LEGEND_AREA, "idle",
        "waiting for others or for the engine");
    cadre_picture_begin(page, "plot-rank-bars", "A step of each rank",
        "Milliseconds computing and waiting, mean over the second half of the "
        "run",
        n_bars * BAR_ROW + 4);
    for (int r = 0; r < n_bars; r++) {
        double step =
            late_mean(cadre_report_rank(d, d->rank_step_ms, r), d->n_lines);
        double busy =
            late_mean(cadre_report_rank(d, d->rank_busy_ms, r), d->n_lines);
        char name[32];
        char numbers[2][CADRE_PAGE_NUMBER_BYTES];
        char text[2 * CADRE_PAGE_NUMBER_BYTES + 32];
        snprintf(name, sizeof(name), "rank %d", r);
        cadre_page_short(busy, numbers[0]);
        cadre_page_short(step, numbers[1]);
        snprintf(text, sizeof(text), "%s of %s ms", numbers[0], numbers[1]);
        draw_bar(page, r, name, busy / longest, (step - busy) / longest, styles,
            text);
    }
    fprintf(page, "</svg></div>\n");
}

cadre_status cadre_report_ranks(FILE *page, const cadre_report_data *data)
{
    cadre_report_section(page, "Step times per rank",
        "What each rank computed in a step, smoothed, without hooks and waits "
        "of the engine. A rank that stands above the others is the one they "
        "wait for.");
    if (data->n_ranks == 0) {
        fprintf(page, "<p class=\"none\">No line of metrics.jsonl tells of "
                      "ranks.</p>\n");
        cadre_report_section_end(page);
        return CADRE_OK;
    }
    int n_lines = data->n_ranks < MOST_LINES ? data->n_ranks : MOST_LINES;
    double *lines = cadre_alloc_array(
        data->n_lines, ((size_t)n_lines + 1) * sizeof(*lines));
    if (lines == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    draw_rank_lines(page, data, n_lines, lines);
    cadre_free(lines);
    draw_rank_bars(page, data);
    if (data->n_ranks > MOST_LINES) {
        fprintf(page,
            "<p class=\"note\">Lines are of the first %d of %d ranks, bars of "
            "the first %d; metrics.jsonl has them all.</p>\n",
            MOST_LINES, data->n_ranks,
            data->n_ranks < MOST_BARS ? data->n_ranks : MOST_BARS);
    }
    cadre_report_section_end(page);
    return CADRE_OK;
}

// --- bytes

void cadre_report_bytes(FILE *page, const cadre_report_data *data)
{
    static const struct {
        const char *field;
        const char *name;
        const char *style;
    } bars[] = {
        {"bytes_sent_per_step", "measured", "busy"},
        {"formula_bytes_per_step", "formula", "formula"},
        {"overhead_bytes_per_step", "overhead", "idle"},
    };
    enum { N_BARS = sizeof(bars) / sizeof(bars[0]) };
    cadre_report_section(page, "Bytes per step",
        "Gradients and parameters that other ranks get from the rank that "
        "sends most, and what the formula gives: "
        "4 (T (N - s) + (n - 1) s) for a rank with a shard of s of the "
        "N elements and T rounds, of n ranks.");
    double largest = 0;
    for (int i = 0; i < N_BARS; i++) {
        double value =
            json_number_value(json_object_get(data->summary, bars[i].field));
        largest = value > largest ? value : largest;
    }
    if (!(largest > 0)) {
        fprintf(page, "<p class=\"none\">%s</p>\n",
            data->summary == NULL
                ? "The run has not ended: there is no summary yet."
                : "Nothing was sent: the run had one rank.");
        cadre_report_section_end(page);
        return;
    }
    cadre_picture_begin(page, "plot-bytes", "Bytes per step",
        "Bars: bytes measured, by the formula, and overhead",
        N_BARS * BAR_ROW + 4);
    for (int i = 0; i < N_BARS; i++) {
        const json_t *field = json_object_get(data->summary, bars[i].field);
        double value = json_number_value(field);
        const char *styles[2] = {bars[i].style, bars[i].style};
        char size[CADRE_PAGE_NUMBER_BYTES];
        char exact[CADRE_PAGE_NUMBER_BYTES];
        char text[2 * CADRE_PAGE_NUMBER_BYTES + 32] = "not in the summary";
        cadre_page_bytes(value, size);
        cadre_page_fixed(value, 0, exact);
        if (json_is_number(field)) {
            snprintf(text, sizeof(text), "%s  (%s bytes)", size, exact);
        }
        draw_bar(page, i, bars[i].name, value / largest, 0, styles, text);
    }
    fprintf(page, "</svg></div>\n");
    cadre_report_section_end(page);
}

// --- evaluations

static void put_cell(FILE *page, double value, int decimals)
{
    char text[CADRE_PAGE_NUMBER_BYTES];
    cadre_page_fixed(value, decimals, text);
    fprintf(page, "<td>%s</td>", text);
}

void cadre_report_evaluations(FILE *page, const cadre_report_data *data)
{
    const double *loss = data->columns[CADRE_COLUMN_EVAL_LOSS];
    const double *accuracy = data->columns[CADRE_COLUMN_EVAL_ACCURACY];
    const double *bits = data->columns[CADRE_COLUMN_EVAL_BITS];
    size_t n = 0;
    bool is_text = false;
    for (size_t i = 0; i < data->n_lines; i++) {
        n += isfinite(loss[i]) ? 1U : 0U;
        is_text = is_text || isfinite(bits[i]);
    }
    cadre_report_section(
        page, "Evaluation", "Over every sample of the test split once.");
    if (n == 0) {
        fprintf(page, "<p class=\"none\">There was none.</p>\n");
        cadre_report_section_end(page);
        return;
    }
    size_t left_out = n > MOST_ROWS ? n - MOST_ROWS : 0;
    if (left_out > 0) {
        fprintf(
            page, "<p class=\"note\">The last %d of %zu.</p>\n", MOST_ROWS, n);
    }
    fprintf(page,
        "<table><thead><tr><th>step</th><th>loss</th><th>%s</th></tr></thead>"
        "<tbody>\n",
        is_text ? "bits per byte" : "accuracy");
    for (size_t i = 0, k = 0; i < data->n_lines; i++) {
        if (!isfinite(loss[i]) || k++ < left_out) {
            continue;
        }
        fprintf(page, "<tr>");
        put_cell(page, data->columns[CADRE_COLUMN_STEP][i], 0);
        put_cell(page, loss[i], 6);
        put_cell(page, is_text ? bits[i] : accuracy[i], 4);
        fprintf(page, "</tr>\n");
    }
    fprintf(page, "</tbody></table>\n");
    cadre_report_section_end(page);
}
