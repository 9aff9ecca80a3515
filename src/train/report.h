// SPDX-License-Identifier: Apache-2.0
//
// The parts of report.html; cadre_report() in <cadre/train.h> puts them
// together.  Each writes a section of the page.
//
// Threads: any, for different pages.

#ifndef CADRE_TRAIN_REPORT_H
#define CADRE_TRAIN_REPORT_H

#include "train/report_data.h"
#include "train/report_trace.h"
#include <stdio.h>

/** Begins a section: its heading, and a sentence on what it shows. */
void cadre_report_section(FILE *page, const char *heading, const char *text);

void cadre_report_section_end(FILE *page);

typedef enum cadre_legend_shape {
    CADRE_LEGEND_LINE,
    CADRE_LEGEND_DOT,
    CADRE_LEGEND_AREA,
    CADRE_LEGEND_TICK,
} cadre_legend_shape;

/** An entry of a plot's legend, in a class of the page's style. */
void cadre_report_legend(
    FILE *page, cadre_legend_shape shape, const char *style, const char *text);

/** Errors: CADRE_ERR_NO_MEMORY */
cadre_status cadre_report_loss(FILE *page, const cadre_report_data *data);
cadre_status cadre_report_throughput(FILE *page, const cadre_report_data *data);
cadre_status cadre_report_ranks(FILE *page, const cadre_report_data *data);
void cadre_report_bytes(FILE *page, const cadre_report_data *data);
void cadre_report_evaluations(FILE *page, const cadre_report_data *data);
void cadre_report_overlap(FILE *page, const cadre_report_trace *trace);

#endif // CADRE_TRAIN_REPORT_H
