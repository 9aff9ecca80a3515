// SPDX-License-Identifier: Apache-2.0
//
// Folds: how the gradients of all ranks become one sum (docs/numerics.md
// section 3), and how what owners have comes back to all.
//
// The layout is cut into buckets; of each, every rank owns a part (its shards).
// In round t every rank that has a block sends each owner its part of the
// block's node, bucket by bucket; the owner pushes the nodes it gets, in block
// order, on its tree.  After the last round the owner has the sum of its part.
// Where gradients are wanted by all, it sends it to all; else it updates its
// parameters and publishes those.
//
// Where owners reach the windows of all ranks, nodes of the last round are not
// sent: their exchange only says that they are there, and a word per bucket where,
// in bytes from the first of these words.  Who has such a node leaves it alone
// until the owner has shown that it is done: by the gather of the bucket, or the
// control exchange.
//
// A step is a fixed sequence of exchanges (parallel/sequence.h).  They are posted
// in this order, each as soon as what it needs is there, and finished in this
// order.  Gaps of the layout never travel.
//
// A group of one whose leaves are one block has nothing to do: the block's node
// is the sum.
//
// Memory:  all of it is allocated by create.
// Threads: one at a time.

#ifndef CADRE_PARALLEL_FOLD_H
#define CADRE_PARALLEL_FOLD_H

#include "group/group.h"
#include "group/reach.h"
#include "kernel/exact.h"
#include "parallel/bucket.h"
#include "parallel/leaves.h"
#include "parallel/owned.h"
#include "parallel/record.h"
#include <stdatomic.h>

typedef struct cadre_fold cadre_fold;

typedef struct cadre_fold_options {
    cadre_group *group; // all of these are borrowed
    const cadre_layout *layout;
    const cadre_buckets *buckets;
    cadre_leaves *leaves;
    float *const *published; // per segment: the parameters that owners publish;
                             // NULL: sums are gathered instead
    bool put;                // these are put into the peers' memory before that
    cadre_reach *reach;      // of the leaves' windows; NULL: nodes travel
    uint64_t *places;        // where that memory begins: a word per bucket
    bool overlap;            // chunks are posted before their block is closed
    const atomic_bool *interrupted; // ends a sleep once the group is woken
} cadre_fold_options;

/** Errors: CADRE_ERR_INVALID_ARG  too many exchanges; CADRE_ERR_NO_MEMORY */
cadre_status cadre_fold_create(
    const cadre_fold_options *options, cadre_fold **out);
void cadre_fold_destroy(cadre_fold *fold); // NULL is allowed

/** How many exchanges a step has. */
int cadre_fold_exchanges(const cadre_fold *fold);

/** Starts a step, whose exchanges are noted in record, if there is one. */
void cadre_fold_begin(cadre_fold *fold, cadre_record *record);

/**
 * Posts what can be posted and finishes what is done.  With wait, sleeps until
 * one more exchange is finished, if any is posted, or it is interrupted.
 *
 * Errors: those of an exchange
 */
cadre_status cadre_fold_advance(cadre_fold *fold, bool wait);

/** How many exchanges of the step are posted, and finished. */
int cadre_fold_posted(const cadre_fold *fold);
int cadre_fold_finished(const cadre_fold *fold);

/**
 * True when all is folded, and all is posted that comes before the control
 * exchange.
 */
bool cadre_fold_summed(const cadre_fold *fold);

/** The control exchange is posted: what comes behind it may be. */
void cadre_fold_go_on(cadre_fold *fold);

/** True when the sums of a bucket are in every rank's plane. */
bool cadre_fold_gathered(const cadre_fold *fold, int bucket);

/** True when everything is finished. */
bool cadre_fold_done(const cadre_fold *fold);

/**
 * Waits for what is posted, whatever becomes of it, so that nothing borrows the
 * arrays any more.  For a step that has failed.
 */
void cadre_fold_abandon(cadre_fold *fold);

/** What a step's folds come to. */
typedef struct cadre_fold_sum {
    cadre_exact squares; // of this rank's part; settled
    bool finite;         // all of this rank's part is
} cadre_fold_sum;

/** The outcome, once summed. */
void cadre_fold_take(cadre_fold *fold, cadre_fold_sum *out);

/**
 * The plane of the layout that takes the sums over all leaves: a bucket's are
 * there once it is gathered.  Of no use where parameters are published.
 */
const float *cadre_fold_result(const cadre_fold *fold);

/** This rank's part of a bucket and its sum, once summed. */
const cadre_owned *cadre_fold_owned(const cadre_fold *fold, int bucket);

/** Says that this rank's parameters of the next bucket are updated. */
void cadre_fold_publish(cadre_fold *fold);

/** Nanoseconds of this step so far in which some exchange was under way. */
int64_t cadre_fold_busy_ns(const cadre_fold *fold);

/** Bytes of the arrays for what peers send and what the tree holds. */
uint64_t cadre_fold_bytes(const cadre_fold *fold);

#endif // CADRE_PARALLEL_FOLD_H
