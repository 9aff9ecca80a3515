// SPDX-License-Identifier: Apache-2.0
//
// One step of a run as trace.json tells it, for the report.
//
// Threads: any, for different traces.

#ifndef CADRE_TRAIN_REPORT_TRACE_H
#define CADRE_TRAIN_REPORT_TRACE_H

#include "cadre/status.h"
#include <stddef.h>
#include <stdint.h>

typedef enum cadre_slice_kind {
    CADRE_SLICE_STEP,
    CADRE_SLICE_LEAF,
    CADRE_SLICE_GRAD, // a moment
    CADRE_SLICE_REDUCE,
    CADRE_SLICE_GATHER,
    CADRE_SLICE_WAIT,
    CADRE_SLICE_UPDATE,
} cadre_slice_kind;

typedef struct cadre_trace_slice {
    cadre_slice_kind kind;
    int rank;
    int lane;   // of those of its rank
    int number; // of the leaf or bucket
    double since_ms;
    double until_ms;
    double nbytes;
} cadre_trace_slice;

typedef struct cadre_report_trace {
    int64_t step;
    cadre_trace_slice *slices; // by rank, then lane
    size_t n_slices;           // 0: there is no trace
} cadre_report_trace;

/**
 * Reads the last step of trace.json; times begin at its first event.
 *
 * Errors: CADRE_ERR_CORRUPT, CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_report_trace_read(
    const char *folder, cadre_report_trace *out);
void cadre_report_trace_fini(cadre_report_trace *trace);

#endif // CADRE_TRAIN_REPORT_TRACE_H
