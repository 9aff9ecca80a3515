// SPDX-License-Identifier: Apache-2.0
//
// Saving a run while it goes on, so that it can be resumed.
//
// Threads: one at a time.

#ifndef CADRE_TRAIN_SAVE_H
#define CADRE_TRAIN_SAVE_H

#include "train/tally.h"
#include "train/task.h"

/** What a checkpoint of a run is made of. */
typedef struct cadre_save {
    cadre_group *world;
    const cadre_train_config *config;
    const cadre_task *task;
    cadre_engine *engine;
    const cadre_tally *tally;
    uint64_t identity;
    int64_t identity_since;
} cadre_save;

/**
 * Writes checkpoints/step-N into the run's folder, N steps having been made, and
 * removes those that are no longer to be kept.  Collective.
 *
 * Errors: those of cadre_checkpoint_save(), on all ranks
 */
cadre_status cadre_save_checkpoint(const cadre_save *save);

#endif // CADRE_TRAIN_SAVE_H
