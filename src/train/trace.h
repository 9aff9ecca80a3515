// SPDX-License-Identifier: Apache-2.0
//
// trace.json: what all ranks did in some steps, as ui.perfetto.dev and
// chrome://tracing show it.  A process per rank; in it a lane for the step, one
// per leaf that is open at once, and one per chunk in flight.
//
// Ranks of one host share a clock.  Ranks of another are shifted so that their
// control exchange ends when that of rank 0 does, which is nearly so.
//
// Memory:  a traced step allocates.
// Threads: one at a time.

#ifndef CADRE_TRAIN_TRACE_H
#define CADRE_TRAIN_TRACE_H

#include "cadre/engine.h"

typedef struct cadre_trace cadre_trace;

typedef struct cadre_trace_options {
    cadre_group *world;
    const cadre_engine *engine; // it records
    const cadre_model *model;   // for the names of parameters
    const char *folder;
    int64_t first_step;
    int64_t n_steps;
} cadre_trace_options;

/**
 * Begins trace.json beside its name, on rank 0.  What options point at is
 * borrowed for the trace's life.
 *
 * Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_trace_create(
    const cadre_trace_options *options, cadre_trace **out);

/** What was not finished leaves no file.  NULL is allowed. */
void cadre_trace_destroy(cadre_trace *trace);

/**
 * Takes the events of a step that was closed, if it is one to be traced.
 * Collective in those.
 *
 * Errors: CADRE_ERR_IO, CADRE_ERR_NO_MEMORY, CADRE_ERR_CORRUPT (what another
 *         rank sent is no event), those of a collective
 */
cadre_status cadre_trace_add(cadre_trace *trace, int64_t step);

/** Ends the file and gives it its name.  Errors: CADRE_ERR_IO */
cadre_status cadre_trace_finish(cadre_trace *trace);

#endif // CADRE_TRAIN_TRACE_H
