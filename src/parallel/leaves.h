// SPDX-License-Identifier: Apache-2.0
//
// This rank's leaves in one step: who computes which, where their gradients go,
// and how the gradients of a block are added up along the tree.
//
// A window is one gradient array over the layout.  An open leaf has one.  Its
// gradients are added up chunk by chunk: as soon as a leaf has marked all that a
// bucket holds, that chunk of two neighbouring sums becomes one, left += right.
// What is left of a block is its node, chunk by chunk, which waits to be folded
// (parallel/fold.h).
//
// A window is free again when its leaf is closed and all of its chunks have been
// added to another's or folded.  There are c + log2 k windows for c open leaves
// and blocks of k: as leaves are handed out in order, at most log2 k sums wait
// for a neighbour once no leaf is open, so a leaf can always be opened in the
// end.
//
// Memory:  windows are the caller's; the rest is allocated by init.
// Threads: up to n_open with a leaf each; init, fini and begin alone.

#ifndef CADRE_PARALLEL_LEAVES_H
#define CADRE_PARALLEL_LEAVES_H

#include "base/clock.h"
#include "cadre/status.h"
#include "parallel/bucket.h"
#include "state/layout.h"
#include "state/leaf.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct cadre_window cadre_window;
typedef struct cadre_leaf_slot cadre_leaf_slot;

typedef struct cadre_leaves {
    const cadre_layout *layout;   // borrowed
    const cadre_buckets *buckets; // borrowed
    cadre_dealing dealing;
    int rank;
    int n_own; // this rank's leaves
    int n_windows;
    cadre_window *windows;
    void *marks; // storage of what the windows point to

    pthread_mutex_t mu;
    pthread_cond_t changed;
    uint64_t changes;       // how often it was signalled; guarded by mu
    cadre_leaf_slot *slots; // per own leaf
    int *round_closed;      // per round: leaves closed; guarded by mu
    int *free;              // stack of windows; guarded by mu
    int n_free;             // guarded by mu
    int next;               // own leaf to be handed out; guarded by mu
    int n_closed;           // guarded by mu
} cadre_leaves;

/** The number of windows that init wants. */
int cadre_leaves_windows(const cadre_dealing *dealing, int rank, int n_open);

/**
 * gradients has n_windows arrays of the layout's length, zeroed; borrowed.
 *
 * Errors: CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_leaves_init(cadre_leaves *leaves, const cadre_layout *layout,
    const cadre_buckets *buckets, const cadre_dealing *dealing, int rank,
    float *gradients, int n_windows);
void cadre_leaves_fini(cadre_leaves *leaves);

/** Starts a step: all windows are free, no leaf was handed out. */
void cadre_leaves_begin(cadre_leaves *leaves);

typedef enum cadre_next_leaf {
    CADRE_LEAF_OPENED,
    CADRE_LEAF_NONE_LEFT,
    CADRE_LEAF_NO_WINDOW, // a fold, or another leaf's end, frees one
} cadre_next_leaf;

/** Opens the next leaf, if a window is free.  Does not wait. */
cadre_next_leaf cadre_leaves_open(cadre_leaves *leaves, int *leaf);

/** As cadre_leaf_grad(). */
float *cadre_leaves_grad(cadre_leaves *leaves, int leaf, int segment);

/**
 * As cadre_grad_ready(); adds up what can be added in the leaf's block.
 * *complete: whether a bucket of the leaf became complete with it.
 */
cadre_status cadre_leaves_ready(
    cadre_leaves *leaves, int leaf, int segment, bool *complete);

/** Closes a leaf.  Parameters that it did not use count as zero. */
cadre_status cadre_leaves_close(
    cadre_leaves *leaves, int leaf, double loss, int64_t weight);

/** Wakes whoever waits for a change; mu is held. */
void cadre_leaves_signal(cadre_leaves *leaves);

/** How many changes there were so far. */
uint64_t cadre_leaves_changes(cadre_leaves *leaves);

/** Sleeps until there are more changes than seen, or the deadline. */
void cadre_leaves_wait(
    cadre_leaves *leaves, uint64_t seen, cadre_deadline deadline);

/** How many leaves have been closed. */
int cadre_leaves_closed(cadre_leaves *leaves);

/** True when all leaves of this rank's block in a round are closed. */
bool cadre_leaves_block_closed(cadre_leaves *leaves, int round);

/**
 * The array that holds the node of this rank's block in a round, or NULL while
 * the node's chunk of this bucket is not complete.
 */
float *cadre_leaves_node(cadre_leaves *leaves, int round, int bucket);

/** Gives back the node of a round: all of its chunks are folded. */
void cadre_leaves_release(cadre_leaves *leaves, int round);

/**
 * An array for the summed gradients, once all blocks' chunks are complete: the
 * last round's node where this rank has one, else a free window; NULL while
 * there is none.
 */
float *cadre_leaves_result(cadre_leaves *leaves);

/** The loss and weight of this rank's i-th leaf; it was closed. */
void cadre_leaves_outcome(
    cadre_leaves *leaves, int i, double *loss, int64_t *weight);

#endif // CADRE_PARALLEL_LEAVES_H
