// SPDX-License-Identifier: Apache-2.0
//
// The events of ranks as slices on lanes, in the JSON of Chrome's trace format.
// What is open at the same time lies on different lanes, so slices of a lane
// nest, as viewers want it.
//
// Threads: one at a time.

#ifndef CADRE_TRAIN_TRACE_LANES_H
#define CADRE_TRAIN_TRACE_LANES_H

#include "cadre/engine.h"
#include <stdio.h>

typedef struct cadre_trace_lanes {
    FILE *stream;             // borrowed
    const cadre_model *model; // borrowed; its parameters' names are written
    int n_ranks;
    int64_t base_ns;    // times count from here; the caller's to set
    bool comma;         // an entry was written
    int *n_leaf_lanes;  // per rank: so many were in use at once
    int *n_chunk_lanes; // likewise
} cadre_trace_lanes;

/**
 * Writes what stands before the events.  Whether the stream took everything is
 * asked by whoever closes it.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_trace_lanes_begin(cadre_trace_lanes *lanes, FILE *stream,
    const cadre_model *model, int n_ranks);
void cadre_trace_lanes_fini(cadre_trace_lanes *lanes);

/**
 * Writes the n events of a rank in a step, which are in order of time.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_trace_lanes_write(cadre_trace_lanes *lanes, int rank,
    int64_t step, const cadre_event *events, size_t n);

/** Names the lanes and ends the file. */
void cadre_trace_lanes_end(cadre_trace_lanes *lanes);

#endif // CADRE_TRAIN_TRACE_LANES_H
