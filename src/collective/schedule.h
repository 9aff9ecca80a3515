// SPDX-License-Identifier: Apache-2.0
//
// Who sends what to whom: the canonical collectives by direct exchange, as pure
// functions without I/O.
//
// In P ranks and S bytes in all: a reduce-scatter or an all-gather is one phase
// of P - 1 frames and (P - 1)/P S bytes per rank, which is the least possible;
// an all-reduce is one after the other.  A broadcast sends (P - 1) S from its
// root.  In every phase every pair of ranks exchanges a frame in each
// direction, if need be an empty one: so whichever two calls differ, both of
// their callers find out.
//
// Threads: any.

#ifndef CADRE_COLLECTIVE_SCHEDULE_H
#define CADRE_COLLECTIVE_SCHEDULE_H

#include "transport/transport.h"

typedef enum cadre_phase {
    CADRE_PHASE_SCATTER, // every rank gives every owner its part, to be reduced
    CADRE_PHASE_GATHER,  // every owner gives its part to all
    CADRE_PHASE_ROOT,    // the root gives all parts to all
    CADRE_PHASE_MEET,    // nothing but headers
} cadre_phase;

enum { CADRE_MAX_PHASES = 2 };

/** Writes the phases of a collective, in order, and returns their number. */
int cadre_schedule_phases(
    cadre_operation operation, cadre_phase phases[CADRE_MAX_PHASES]);

/** What one rank sends to, and receives from, one peer; in elements. */
typedef struct cadre_move {
    size_t send_offset;
    size_t send_count;
    size_t receive_offset;
    size_t receive_count;
} cadre_move;

/**
 * The move of rank in a phase.
 *
 * offsets has world_size + 1 entries: part r is [offsets[r], offsets[r + 1]).
 * root matters to CADRE_PHASE_ROOT only.
 */
cadre_move cadre_schedule_move(cadre_phase phase, const size_t offsets[],
    int world_size, int root, int rank, int peer);

/** Cuts count elements into world_size parts that differ by one at most. */
void cadre_split_evenly(size_t count, int world_size, size_t offsets[]);

#endif // CADRE_COLLECTIVE_SCHEDULE_H
