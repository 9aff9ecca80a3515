// SPDX-License-Identifier: Apache-2.0
//
// What the files of collective/shared.h share: what a rank knows of the others
// (shared_peers.c), and the work of a turn (shared_turn.c).  shared.c has the
// order of things.
//
// Threads: that of the transport.

#ifndef CADRE_COLLECTIVE_SHARED_IMPL_H
#define CADRE_COLLECTIVE_SHARED_IMPL_H

#include "collective/board.h"
#include "collective/fan_in.h"
#include "collective/shared.h"
#include "collective/turns.h"

// A rank as this one sees it, itself included.
typedef struct cadre_shared_member {
    cadre_board *board;
    bool met;       // its entry has been read, and is of the same call
    bool windowed;  // in and out are its window
    char *in;       // what it brings: all parts, or its own
    char *out;      // where it wants all parts; or NULL
    uint64_t ready; // turns of this collective
    uint64_t done;
    char *run_in; // of the run that is in work
    char *run_out;
} cadre_shared_member;

struct cadre_shared {
    cadre_transport *t;
    const cadre_shared_ops *ops;
    int rank;
    int world_size;
    void *window; // of this rank, or NULL
    char *scratch;
    const void **in; // of a reduction's block: one for each rank
    void **to;

    // All collectives before this one.
    uint64_t n_calls;
    uint64_t n_turns;

    // The one that is under way.
    cadre_call call;
    char *send; // only read
    char *recv;
    cadre_turns turns;
    cadre_board_call entry; // this rank's
    bool announced;         // it stands on the board
    bool windowed;          // this rank's memory goes through its window
    bool any_windowed;      // of those that have been met
    uint64_t taken;         // turns that have gone from the window to recv
    uint64_t all_ready;
    uint64_t all_done;
    cadre_shared_member members[];
};

static inline bool cadre_shared_is_allreduce(const cadre_shared *s)
{
    return s->call.operation == CADRE_OP_ALLREDUCE;
}

/** What this rank's entry is to say, but for the name of the window. */
cadre_board_call cadre_shared_describe(
    cadre_shared *s, const cadre_shared_what *what);

/**
 * Counts this rank up to so many turns of this collective.  Who waits, waits
 * until all ranks have come so far: so only the last of them rings.
 */
void cadre_shared_count_up(
    cadre_shared *s, cadre_board_counter which, uint64_t turns);

/** Reads all boards, and compares the calls of those who have come. */
cadre_status cadre_shared_look_around(cadre_shared *s);

/** Copies what others are to read into this rank's window. */
void cadre_shared_fill_window(cadre_shared *s, uint64_t turn);

/** Copies the sums of others from this rank's window to where they belong. */
void cadre_shared_empty_window(cadre_shared *s, uint64_t turn);

/** This rank's share of the work: all ranks are ready for it. */
void cadre_shared_do_turn(cadre_shared *s, uint64_t turn);

#endif // CADRE_COLLECTIVE_SHARED_IMPL_H
