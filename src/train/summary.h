// SPDX-License-Identifier: Apache-2.0
//
// summary.json: what a run was and what came of it (docs/cli.md has the
// fields).  Numbers of ranks are gathered, the largest is shown.
//
// Threads: one at a time.

#ifndef CADRE_TRAIN_SUMMARY_H
#define CADRE_TRAIN_SUMMARY_H

#include "train/tally.h"
#include "train/task.h"

/** What the run knows when it has ended. */
typedef struct cadre_outcome {
    const cadre_train_config *config;
    const cadre_task *task;
    const cadre_engine *engine;
    cadre_group *world;
    cadre_tally *tally;
    size_t activation_bytes; // of this rank
    int64_t wall_ns;
    int stopped_by;                // a signal, or 0
    int64_t identity_since;        // the step after which the identity began
    const cadre_eval_result *eval; // or NULL
    bool replicas_equal;
} cadre_outcome;

/**
 * Writes the summary as text.  Collective.
 *
 * *json is set on rank 0 only, in new memory for cadre_free().
 *
 * Errors: CADRE_ERR_NO_MEMORY, those of a collective
 */
cadre_status cadre_summary_make(const cadre_outcome *outcome, char **json);

#endif // CADRE_TRAIN_SUMMARY_H
