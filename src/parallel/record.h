// SPDX-License-Identifier: Apache-2.0
//
// The event recorder of an engine: what happened when in the last step, for
// tests and traces.  Noting an event is a look at the clock and one store; an
// engine that does not record has none, and pays a branch.
//
// Memory:  all of it at creation; events beyond it are counted and not kept.
// Threads: note from any; everything else by whoever opens and closes steps.

#ifndef CADRE_PARALLEL_RECORD_H
#define CADRE_PARALLEL_RECORD_H

#include "cadre/engine.h"

typedef struct cadre_record cadre_record;

/** Most events that are kept of a step, whatever was asked for. */
enum { CADRE_RECORD_MOST = 1 << 20 };

/** For steps of up to n_events.  Errors: CADRE_ERR_NO_MEMORY */
cadre_status cadre_record_create(size_t n_events, cadre_record **out);
void cadre_record_destroy(cadre_record *record); // NULL is allowed

/** Forgets the step before.  NULL is allowed, here and in the next two. */
void cadre_record_begin(cadre_record *record);

/** Keeps the event; its time is filled in here. */
void cadre_record_note(cadre_record *record, cadre_event event);

/** Sorts by time what was noted; by whoever saw all notes made. */
void cadre_record_end(cadre_record *record);

/** As cadre_engine_events(). */
int cadre_record_read(
    const cadre_record *record, cadre_event *events, int capacity);

#endif // CADRE_PARALLEL_RECORD_H
