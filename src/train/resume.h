// SPDX-License-Identifier: Apache-2.0
//
// The checkpoints of a run's folder, checkpoints/step-N, and how a run goes on
// from the newest that is valid.
//
// Threads: one at a time.

#ifndef CADRE_TRAIN_RESUME_H
#define CADRE_TRAIN_RESUME_H

#include "train/note.h"
#include "train/task.h"

/** Of the checkpoint after this step, for cadre_free(); NULL without memory. */
char *cadre_resume_path(const char *folder, int64_t step);

/** Removes what no longer counts: beside the newest keep (0: all), and parts. */
void cadre_resume_prune(const char *folder, int64_t newest_step, int keep);

/** Where a run goes on; until it is loaded, on rank 0 alone. */
typedef struct cadre_resume_point {
    bool leaves_given; // and not taken from the checkpoint
    char *path;        // of the checkpoint
    int n_leaves;      // of the checkpoint
    cadre_note note;
} cadre_resume_point;

/**
 * Finds the newest valid checkpoint on rank 0, says which damaged ones were
 * passed over, and fills in config on all ranks as cadre_train_adopt() does.
 * Collective.
 *
 * Give *out to cadre_resume_close(), also after an error.
 */
cadre_status cadre_resume_open(
    cadre_group *world, cadre_train_config *config, cadre_resume_point *out);
void cadre_resume_close(cadre_resume_point *point);

/**
 * Compares data, model and settings of an adopted configuration with those of
 * its checkpoint, which cadre_train_adopt() has verified.  task needs recipe and
 * train alone.  Local.
 *
 * Errors: CADRE_ERR_INVALID_ARG  names the first thing that differs
 *         CADRE_ERR_CORRUPT, CADRE_ERR_IO, CADRE_ERR_NO_MEMORY
 */
cadre_status cadre_resume_check(
    const cadre_train_config *config, const cadre_task *task);

/**
 * Compares data, model and settings with those of the checkpoint, and loads it;
 * the note is then known on all ranks.  Collective.
 *
 * Errors: CADRE_ERR_INVALID_ARG  names the first thing that differs
 *         and those of cadre_checkpoint_load()
 */
cadre_status cadre_resume_load(cadre_group *world,
    const cadre_train_config *config, const cadre_task *task,
    cadre_engine *engine, cadre_resume_point *point);

#endif // CADRE_TRAIN_RESUME_H
