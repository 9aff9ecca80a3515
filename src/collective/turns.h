// SPDX-License-Identifier: Apache-2.0
//
// How a collective in shared memory is cut: in turn t every owner's part has
// its t-th run, so that all owners have work in every turn.  A window holds the
// last few turns, whatever the size of the whole.
//
// Pure functions: all ranks compute the same from the same call.
//
// Threads: any.

#ifndef CADRE_COLLECTIVE_TURNS_H
#define CADRE_COLLECTIVE_TURNS_H

#include "transport/transport.h"

/** Turns that a window holds at once. */
enum { CADRE_WINDOW_TURNS = 4 };

typedef struct cadre_turns {
    bool reduces;
    size_t element_bytes;
    size_t *offsets;  // of the parts; world_size + 1, the caller's memory
    size_t run_count; // most elements of a run
    uint64_t n_turns; // at least one, so that ranks meet
} cadre_turns;

/** True if every rank brings all parts, else each its own. */
bool cadre_turns_reduces(const cadre_call *call);

/** A part's run in one turn: count elements from `first` of the whole. */
typedef struct cadre_turn_run {
    size_t first;
    size_t count;
} cadre_turn_run;

/**
 * Lays a call out.  given are the parts as the caller has them.  The owners'
 * parts differ where who owns what cannot be seen: an all-reduce has them begin
 * with a cache line, and all of a broadcast is its root's.
 */
cadre_turns cadre_turns_lay_out(const cadre_call *call, int world_size,
    const size_t given[], size_t offsets[]);

cadre_turn_run cadre_turns_run(
    const cadre_turns *turns, int part, uint64_t turn);

size_t cadre_turns_window_bytes(int world_size);

/** Where a part's run of a turn lies in the window of a rank. */
size_t cadre_turns_in_window(
    const cadre_turns *turns, int world_size, int part, uint64_t turn);

#endif // CADRE_COLLECTIVE_TURNS_H
