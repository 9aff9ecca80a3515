// SPDX-License-Identifier: Apache-2.0
//
// The report's timeline of one step: the lanes of trace.json, as many as can be
// read on a page.

#include "train/report.h"

#include "train/page.h"
#include "train/svg.h"
#include <inttypes.h>
#include <stdbool.h>

enum {
    MOST_RANKS = 4,
    MOST_LANES = 16, // of a rank
    LEFT = 130,
    RIGHT = 14,
    TOP = 6,
    ROW = 20,
    GAP = 12, // between ranks
    AXIS = 40,
    LEAF_LANE = 1,
    CHUNK_LANE = 100001, // as in the trace
};

// The rows that are shown, from top to bottom.
typedef struct row {
    int rank;
    int lane;
    double y;
} row;

typedef struct rows {
    row all[MOST_RANKS * MOST_LANES];
    int n;
    double bottom;
    bool complete; // no lane was left out
} rows;

static void add_row(rows *r, const cadre_trace_slice *s, int *of_rank)
{
    const row *last = r->n > 0 ? &r->all[r->n - 1] : NULL;
    if (last != NULL && last->rank == s->rank && last->lane == s->lane) {
        return;
    }
    bool new_rank = last == NULL || last->rank != s->rank;
    *of_rank = new_rank ? 0 : *of_rank;
    if (s->rank >= MOST_RANKS || *of_rank >= MOST_LANES) {
        r->complete = false;
        return;
    }
    r->bottom += new_rank && last != NULL ? GAP : 0;
    r->all[r->n++] = (row){.rank = s->rank, .lane = s->lane, .y = r->bottom};
    r->bottom += ROW;
    (*of_rank)++;
}

// Slices are in order of ranks and lanes.
static rows find_rows(const cadre_report_trace *t)
{
    rows r = {.bottom = TOP, .complete = true};
    int of_rank = 0;
    for (size_t i = 0; i < t->n_slices; i++) {
        add_row(&r, &t->slices[i], &of_rank);
    }
    return r;
}

static const row *row_of(const rows *r, const cadre_trace_slice *s)
{
    for (int i = 0; i < r->n; i++) {
        if (r->all[i].rank == s->rank && r->all[i].lane == s->lane) {
            return &r->all[i];
        }
    }
    return NULL;
}

static void name_rows(FILE *page, const rows *r)
{
    for (int i = 0; i < r->n; i++) {
        const row *at = &r->all[i];
        fprintf(page, "<text class=\"tick end\" x=\"%d\" y=\"", LEFT - 8);
        cadre_page_coordinate(page, at->y + 14);
        if (at->lane == 0) {
            fprintf(page, "\">rank %d: step", at->rank);
        } else if (at->lane < CHUNK_LANE) {
            fprintf(page, "\">compute %d", at->lane - LEAF_LANE);
        } else {
            fprintf(page, "\">in flight %d", at->lane - CHUNK_LANE);
        }
        fprintf(page, "</text>\n");
    }
}

static void put_axis(FILE *page, const cadre_scale *x, double bottom)
{
    cadre_tick ticks[CADRE_MOST_TICKS];
    int n = cadre_ticks(x, 8, 0, ticks);
    for (int i = 0; i < n; i++) {
        double at = ticks[i].at;
        fprintf(page, "<path class=\"grid\" d=\"M");
        cadre_page_coordinate(page, at);
        fprintf(page, " %dV", TOP);
        cadre_page_coordinate(page, bottom);
        fprintf(page, "\"/><text class=\"tick middle\" x=\"");
        cadre_page_coordinate(page, at);
        fprintf(page, "\" y=\"");
        cadre_page_coordinate(page, bottom + 16);
        fprintf(page, "\">%s</text>\n", ticks[i].text);
    }
    fprintf(page, "<text class=\"tick middle\" x=\"%d\" y=\"",
        (LEFT + CADRE_PLOT_WIDTH - RIGHT) / 2);
    cadre_page_coordinate(page, bottom + AXIS - 6);
    fprintf(page, "\">ms since the first rank began</text>\n");
}

// What a slice is called, and how it is drawn.
static const char *describe(
    const cadre_trace_slice *s, char *text, size_t nbytes)
{
    char size[CADRE_PAGE_NUMBER_BYTES];
    cadre_page_bytes(s->nbytes, size);
    switch (s->kind) {
    case CADRE_SLICE_STEP:
        snprintf(text, nbytes, "step");
        return "whole-step";
    case CADRE_SLICE_LEAF:
        snprintf(text, nbytes, "leaf %d", s->number);
        return "busy";
    case CADRE_SLICE_REDUCE:
        snprintf(text, nbytes, "reduce, bucket %d, %s", s->number, size);
        return "reduce";
    case CADRE_SLICE_GATHER:
        snprintf(text, nbytes, "gather, bucket %d, %s", s->number, size);
        return "gather";
    case CADRE_SLICE_WAIT:
        snprintf(text, nbytes, "exposed: waiting for sums");
        return "exposed";
    case CADRE_SLICE_UPDATE:
        snprintf(text, nbytes, "update");
        return "update";
    case CADRE_SLICE_GRAD:
        break;
    }
    snprintf(text, nbytes, "gradient ready, leaf %d", s->number);
    return "ready";
}

static void put_slice(
    FILE *page, const cadre_scale *x, const row *at, const cadre_trace_slice *s)
{
    char text[128];
    const char *style = describe(s, text, sizeof(text));
    double from = cadre_scale_at(x, s->since_ms);
    double width = cadre_scale_at(x, s->until_ms) - from;
    bool moment = s->kind == CADRE_SLICE_GRAD;
    if (!moment && width < 0.75) {
        width = 0.75; // else it would not be seen
    }
    fprintf(page, "<rect class=\"%s\" x=\"", style);
    cadre_page_coordinate(page, from);
    fprintf(page, "\" y=\"");
    cadre_page_coordinate(page, moment ? at->y + 13 : at->y + 2);
    fprintf(page, "\" height=\"%d\" width=\"", moment ? 5 : ROW - 4);
    cadre_page_coordinate(page, moment ? 1.2 : width);
    fprintf(page, "\"><title>");
    cadre_page_text(page, text);
    fprintf(page, "</title></rect>");
    bool named = s->kind == CADRE_SLICE_LEAF && width > 48;
    if (named) {
        fprintf(page, "<text class=\"on middle\" x=\"");
        cadre_page_coordinate(page, from + width / 2);
        fprintf(page, "\" y=\"");
        cadre_page_coordinate(page, at->y + 12);
        fprintf(page, "\">leaf %d</text>", s->number);
    }
    fputc('\n', page);
}

static void put_legend(FILE *page)
{
    cadre_report_legend(
        page, CADRE_LEGEND_AREA, "busy", "leaf, forward and backward");
    cadre_report_legend(page, CADRE_LEGEND_TICK, "ready", "gradient ready");
    cadre_report_legend(
        page, CADRE_LEGEND_AREA, "reduce", "chunk to its owner");
    cadre_report_legend(page, CADRE_LEGEND_AREA, "gather", "chunk to all");
    cadre_report_legend(page, CADRE_LEGEND_AREA, "exposed", "exposed");
    cadre_report_legend(page, CADRE_LEGEND_AREA, "update", "update");
}

static void draw(FILE *page, const cadre_report_trace *t)
{
    rows r = find_rows(t);
    cadre_scale x = {.lo = 0, .from = LEFT, .to = CADRE_PLOT_WIDTH - RIGHT};
    for (size_t i = 0; i < t->n_slices; i++) {
        x.hi = t->slices[i].until_ms > x.hi ? t->slices[i].until_ms : x.hi;
    }
    x.hi = x.hi > 0 ? x.hi : 1;
    put_legend(page);
    cadre_picture_begin(page, "plot-overlap", "Overlap of one step",
        "Lanes of each rank: the step, leaves that are computed, chunks in "
        "flight",
        r.bottom + AXIS);
    put_axis(page, &x, r.bottom);
    name_rows(page, &r);
    // Moments lie over what they are moments of.
    for (int moments = 0; moments < 2; moments++) {
        for (size_t i = 0; i < t->n_slices; i++) {
            const row *at = row_of(&r, &t->slices[i]);
            bool moment = t->slices[i].kind == CADRE_SLICE_GRAD;
            if (at != NULL && moment == (moments == 1)) {
                put_slice(page, &x, at, &t->slices[i]);
            }
        }
    }
    fprintf(page, "</svg></div>\n");
    if (!r.complete) {
        fprintf(page,
            "<p class=\"note\">Up to %d lanes of the first %d ranks are shown; "
            "trace.json has all.</p>\n",
            MOST_LANES, MOST_RANKS);
    }
}

void cadre_report_overlap(FILE *page, const cadre_report_trace *trace)
{
    if (trace->n_slices == 0) {
        cadre_report_section(page, "Overlap of one step",
            "When leaves were computed and chunks of gradients were under "
            "way.");
        fprintf(page,
            "<p class=\"none\">Nothing was recorded. A run with "
            "<code>--trace 20:3</code> records steps 20 to 22, shows the last "
            "of them here, and leaves <code>trace.json</code> for "
            "ui.perfetto.dev.</p>\n");
        cadre_report_section_end(page);
        return;
    }
    char text[256];
    snprintf(text, sizeof(text),
        "Step %" PRId64 ", from trace.json, which ui.perfetto.dev shows in "
        "full. A chunk is in flight from its posting until it is there.",
        trace->step);
    cadre_report_section(page, "Overlap of one step", text);
    draw(page, trace);
    cadre_report_section_end(page);
}
