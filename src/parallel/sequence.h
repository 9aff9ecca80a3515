// SPDX-License-Identifier: Apache-2.0
//
// The sequence of a step's exchanges, the same on all ranks (docs/overlap.md):
//
//     round 0 .. T-2:   fold 0, fold 1, ... fold B-1
//     round T-1:        fold 0, fold 1, gather 0, fold 2, gather 1, ...
//                       ... fold B-1, gather B-2
//     control exchange
//     after it:         gather B-1
//     or:               publish 0, publish 1, ... publish B-1
//
// The last gather comes behind the control exchange, since what is to be decided
// is known when the last fold is done: updating can begin while it travels.
//
// A fold of n - 1 steps around a ring takes its turns with those of the buckets
// after it, older ones first.
//
// Threads: built by one thread; immutable then.

#ifndef CADRE_PARALLEL_SEQUENCE_H
#define CADRE_PARALLEL_SEQUENCE_H

#include "cadre/status.h"
#include <stdbool.h>

typedef enum cadre_turn_kind {
    CADRE_TURN_FOLD,    // nodes go to the owners
    CADRE_TURN_GATHER,  // sums go to all
    CADRE_TURN_PUBLISH, // updated parameters go to all
} cadre_turn_kind;

/** One exchange of the sequence. */
typedef struct cadre_turn {
    cadre_turn_kind kind;
    int round; // of a fold
    int bucket;
    int step; // of a fold: 0 to n_steps - 1
} cadre_turn;

typedef struct cadre_sequence {
    int n_rounds;
    int n_buckets;
    int n_steps; // of a fold
    bool gather; // sums are gathered; else parameters are published
    int n_turns;
    int n_until_folded;   // the turns up to the last fold
    int n_before_control; // those posted before the control exchange

    int per_round;      // turns of a round but the last
    cadre_turn *rounds; // these
    cadre_turn *last;   // the turns of the last one
} cadre_sequence;

/** Errors: CADRE_ERR_INVALID_ARG  too many exchanges; CADRE_ERR_NO_MEMORY */
cadre_status cadre_sequence_init(cadre_sequence *sequence, int n_rounds,
    int n_buckets, int n_steps, bool gather);
void cadre_sequence_fini(cadre_sequence *sequence);

/** Turn i of the sequence. */
cadre_turn cadre_sequence_at(const cadre_sequence *sequence, int i);

#endif // CADRE_PARALLEL_SEQUENCE_H
