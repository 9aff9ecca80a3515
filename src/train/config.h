// SPDX-License-Identifier: Apache-2.0
//
// What can be said against a configuration, before and after the data is known.
//
// Threads: any.

#ifndef CADRE_TRAIN_CONFIG_H
#define CADRE_TRAIN_CONFIG_H

#include "data/dataset.h"
#include "train/recipe.h"

/** Errors: CADRE_ERR_INVALID_ARG, CADRE_ERR_UNSUPPORTED; the text has the key */
cadre_status cadre_config_check(
    const cadre_train_config *config, int world_size);

/** Whether a net of this configuration uses bf16 on this processor. */
bool cadre_config_uses_bf16(const cadre_train_config *config);

/** The steps of a run on this data.  Errors: CADRE_ERR_INVALID_ARG */
cadre_status cadre_config_steps(const cadre_train_config *config,
    const cadre_dataset *train, int64_t *n_steps);

/** What a sample weighs: its labels. */
int64_t cadre_config_sample_weight(const cadre_train_config *config);

/** A hash of when ranks stop computing to do something else together. */
uint64_t cadre_config_rhythm(const cadre_train_config *config);

#endif // CADRE_TRAIN_CONFIG_H
