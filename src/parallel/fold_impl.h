// SPDX-License-Identifier: Apache-2.0
//
// The inside of folds: what the sequence of exchanges (fold.c) and the ways of
// one fold (fold_direct.c, fold_ring.c) share.

#ifndef CADRE_PARALLEL_FOLD_IMPL_H
#define CADRE_PARALLEL_FOLD_IMPL_H

#include "parallel/fold.h"
#include "parallel/sequence.h"

// Exchanges in flight; fewer than the works that a group can hold.
enum { CADRE_FOLD_POSTED = 32 };

// A bucket in a step.
typedef struct cadre_folding {
    cadre_owned own;
    int rounds_done;
    int steps_done; // of the round after these

    // Of the round in flight.
    float *node;           // this rank's, in its window; NULL: it has none
    float **received;      // direct: per rank, its node
    float *passing;        // ring: the sum that goes on to the next rank
    float *arriving;       // ring: what comes from the rank before
    cadre_part *sends;     // of the exchange in flight: at most one per rank
    cadre_part *receives;  // likewise
    cadre_run *array_runs; // for these, per rank
    int n_sends;
    int n_receives;
    uint64_t unsent; // bytes that peers get of it without a frame
} cadre_folding;

// A way of bringing the nodes of a round to their owners.
typedef struct cadre_fold_way {
    // Exchanges that one fold takes.
    int (*n_steps)(const cadre_fold *f);

    // Arrays that one bucket needs, and the elements of each.
    int (*n_arrays)(const cadre_fold *f);
    size_t (*array_elements)(const cadre_fold *f, int bucket);

    // Lists what a step sends and receives.
    void (*prepare)(cadre_fold *f, const cadre_turn *turn);

    // Does what is to be done with what came; pushes nodes on the tree.
    cadre_status (*finish)(cadre_fold *f, const cadre_turn *turn);
} cadre_fold_way;

extern const cadre_fold_way cadre_fold_direct;
extern const cadre_fold_way cadre_fold_ring;

struct cadre_fold {
    cadre_fold_options o;
    const cadre_fold_way *way;
    cadre_sequence sequence;
    int rank;
    int n;
    int n_rounds;
    int level;  // of a block's node: log2 k
    bool local; // a group of one with one block: nothing to do
    uint64_t layout_hash;

    cadre_folding *buckets;
    int n_arrays; // per bucket
    float *arrays;
    uint64_t arrays_bytes;
    void *tables; // storage of the pointers in buckets

    cadre_record *record; // borrowed for the step, or NULL
    int posted;
    int finished;
    int n_gathered;                       // buckets
    bool past_control;                    // that exchange is posted
    int n_updated;                        // buckets that may be published
    cadre_work *works[CADRE_FOLD_POSTED]; // turn i's at i mod CADRE_FOLD_POSTED
    float *result;                        // the plane that takes the sums
    cadre_exact squares;
    bool finite;
    int64_t busy_since_ns; // while something is in flight
    int64_t busy_ns;       // without that
};

static inline bool cadre_fold_has_block(
    const cadre_fold *f, int rank, int round)
{
    return cadre_dealing_has_block(&f->o.leaves->dealing, rank, round);
}

// True where a round's nodes are summed where they lie.
static inline bool cadre_fold_reaches(const cadre_fold *f, int round)
{
    return f->o.reach != NULL && round == f->n_rounds - 1;
}

// Arrays that the tree of n nodes needs besides those that a round brings.
int cadre_fold_tree_arrays(int n_nodes);

#endif // CADRE_PARALLEL_FOLD_IMPL_H
