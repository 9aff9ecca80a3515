// SPDX-License-Identifier: Apache-2.0
//
// The identity of a run: all that may change the bits of its result
// (docs/numerics.md section 9), and the command that gives them again.  The
// number of threads, buckets and transport are not in it, and the number of
// ranks and the fold only where the order of reduction is that of the ring.
//
// Threads: any.

#ifndef CADRE_TRAIN_IDENTITY_H
#define CADRE_TRAIN_IDENTITY_H

#include "state/leaf.h"
#include "train/task.h"

/**
 * Hashes the identity of config on this task, opened for training; dealing is
 * as the engine has it.
 */
uint64_t cadre_identity_hash(const cadre_train_config *config,
    const cadre_task *task, const cadre_dealing *dealing);

/**
 * What is hashed, in lines that begin with a name, in new memory for
 * cadre_free(); NULL without memory.  task NULL: without data and model.
 */
char *cadre_identity_text(
    const cadre_train_config *config, const cadre_task *task, int n_leaves);

/**
 * Looks for each line of ours among those kept by a checkpoint; any_host:
 * instruction set and versions may differ.
 *
 * Errors: CADRE_ERR_INVALID_ARG  names the first that differs
 */
cadre_status cadre_identity_compare(
    const char *ours, const char *kept, bool any_host);

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
 * A shell command that ends in the same parameters after n_steps, with one rank
 * or, in order ring, with as many: in new memory, for cadre_free(); NULL without
 * memory.
 */
char *cadre_identity_command(const cadre_train_config *config,
    const cadre_dealing *dealing, int64_t n_steps);

#endif // CADRE_TRAIN_IDENTITY_H
