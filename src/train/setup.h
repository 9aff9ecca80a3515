// SPDX-License-Identifier: Apache-2.0
//
// What a run is made of before its first step: from a configuration to the
// task, the engine and the loader.
//
// Threads: one at a time.

#ifndef CADRE_TRAIN_SETUP_H
#define CADRE_TRAIN_SETUP_H

#include "data/loader.h"
#include "state/leaf.h"
#include "train/resume.h"

/**
 * Opens the task, and settles what the configuration leaves open: a
 * checkpoint's leaves and where it goes on, how many steps there are, and how
 * long the schedule is.  Collective; the caller closes task and point, whatever
 * came of it.
 *
 * Errors: CADRE_ERR_INVALID_ARG (config, or a group of another order), those of
 *         cadre_resume_open() and cadre_task_open()
 */
cadre_status cadre_setup_task(cadre_group *world, cadre_train_config *config,
    cadre_resume_point *point, cadre_task *task, int64_t *n_steps);

/** What a checked configuration says of the engine. */
cadre_engine_options cadre_setup_options(const cadre_train_config *config);

/** Makes the engine of a settled run.  Errors: cadre_engine_create()'s */
cadre_status cadre_setup_engine(
    const cadre_train_config *config, cadre_model *model, cadre_engine **out);

/** How the engine deals leaves to the ranks. */
cadre_dealing cadre_setup_dealing(
    const cadre_group *world, const cadre_engine *engine);

/** What is run and what its leaves cost on this number of ranks, as a log. */
void cadre_setup_log(const cadre_train_config *config, int64_t n_steps,
    const cadre_dealing *dealing);

/**
 * Makes the loader of a rank's leaves, from the first step that is to be made
 * to step n_steps; data outlives it.
 *
 * Errors: cadre_loader_create()'s
 */
cadre_status cadre_setup_loader(const cadre_train_config *config, int rank,
    int64_t n_steps, const cadre_dealing *dealing, const cadre_dataset *data,
    cadre_loader **out);

#endif // CADRE_TRAIN_SETUP_H
