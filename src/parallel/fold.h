// SPDX-License-Identifier: Apache-2.0
//
// Folds: how the gradients of all ranks become one sum (docs/numerics.md
// section 3).
//
// The layout is cut into buckets; of each, every rank owns a part (its shards).
// In round t every rank that has a block sends each owner its part of the
// block's node, bucket by bucket; the owner pushes the nodes it gets, in block
// order, on its tree.  After the last round the owner has the sum of its part
// and, where gradients are replicated, sends it to all.
//
// So a step is a fixed sequence of exchanges, the same on all ranks:
//
//     fold(round 0, bucket 0), fold(0, 1), ... fold(T-1, B-1),
//     gather(bucket 0), ... gather(B-1)
//
// They are posted in this order, each as soon as what it needs is there, and
// finished in this order.  Gaps of the layout never travel.
//
// A group of one whose leaves are one block has nothing to do: the block's node
// is the sum.
//
// Memory:  all of it is allocated by create.
// Threads: one at a time.

#ifndef CADRE_PARALLEL_FOLD_H
#define CADRE_PARALLEL_FOLD_H

#include "group/group.h"
#include "kernel/exact.h"
#include "parallel/leaves.h"

typedef struct cadre_fold cadre_fold;

typedef struct cadre_fold_options {
    cadre_group *group;         // borrowed
    const cadre_layout *layout; // borrowed
    cadre_leaves *leaves;       // borrowed
    size_t bucket_bytes;
} cadre_fold_options;

/** Errors: CADRE_ERR_NO_MEMORY */
cadre_status cadre_fold_create(
    const cadre_fold_options *options, cadre_fold **out);
void cadre_fold_destroy(cadre_fold *fold); // NULL is allowed

/** Starts a step. */
void cadre_fold_begin(cadre_fold *fold);

/**
 * Posts what can be posted and finishes what is done.  With wait, sleeps until
 * one more exchange is finished, if any is posted.
 *
 * Errors: those of an exchange
 */
cadre_status cadre_fold_advance(cadre_fold *fold, bool wait);

/** How many exchanges of the step are finished. */
int cadre_fold_finished(const cadre_fold *fold);

/** True when the whole sequence is finished. */
bool cadre_fold_done(const cadre_fold *fold);

/**
 * Waits for what is posted, whatever becomes of it, so that nothing borrows the
 * arrays any more.  For a step that has failed.
 */
void cadre_fold_abandon(cadre_fold *fold);

/** What a step's folds come to. */
typedef struct cadre_fold_sum {
    const float *grads;  // summed over all leaves; a plane of the layout
    cadre_exact squares; // of this rank's part; settled
    bool finite;         // all of this rank's part is
} cadre_fold_sum;

/** The outcome, once done. */
void cadre_fold_take(cadre_fold *fold, cadre_fold_sum *out);

/** Bytes of the arrays for what peers send and what the tree holds. */
uint64_t cadre_fold_bytes(const cadre_fold *fold);

#endif // CADRE_PARALLEL_FOLD_H
