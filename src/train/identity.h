// SPDX-License-Identifier: Apache-2.0
//
// The identity of a run: all that may change the bits of its result
// (docs/numerics.md section 9), and the command that gives them again.  The
// number of ranks and threads, the fold, buckets and transport are not in it.
//
// Threads: any.

#ifndef CADRE_TRAIN_IDENTITY_H
#define CADRE_TRAIN_IDENTITY_H

#include "train/task.h"

/**
 * Hashes the identity of config on this task, opened for training; n_leaves is
 * V as the engine has it.
 */
uint64_t cadre_identity_hash(
    const cadre_train_config *config, const cadre_task *task, int n_leaves);

/** What a rank is about to do.  What it will not do is 0, on all ranks. */
typedef struct cadre_claim {
    uint64_t identity;    // of a run
    int64_t n_steps;      // of a run
    uint64_t rhythm;      // of a run: cadre_config_rhythm()
    uint64_t params_hash; // of what is evaluated and not trained
    uint64_t test_hash;   // the test split's content
    int64_t n_test;       // and its samples
} cadre_claim;

/**
 * Compares what the ranks are about to do.  Collective.
 *
 * Errors: CADRE_ERR_DESYNC  on all ranks, with the same text, naming the first
 *                           rank that differs from rank 0
 *         CADRE_ERR_NO_MEMORY, those of a collective
 */
cadre_status cadre_claim_compare(cadre_group *world, const cadre_claim *mine);

/**
 * A shell command with one rank that ends in the same parameters after n_steps:
 * in new memory, for cadre_free(); NULL without memory.
 */
char *cadre_identity_command(
    const cadre_train_config *config, int n_leaves, int64_t n_steps);

#endif // CADRE_TRAIN_IDENTITY_H
