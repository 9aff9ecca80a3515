// SPDX-License-Identifier: Apache-2.0
//
// A task: what a run is about, opened on one rank: the recipe's data, its net,
// and the model that holds the net's parameters on all ranks.
//
// Threads: one at a time.

#ifndef CADRE_TRAIN_TASK_H
#define CADRE_TRAIN_TASK_H

#include "data/dataset.h"
#include "data/tokenizer.h"
#include "nn/net.h"
#include "train/recipe.h"

typedef struct cadre_task {
    const cadre_recipe *recipe;
    cadre_dataset *train; // NULL in an evaluation
    cadre_dataset *test;
    cadre_net *net;
    cadre_model *model;         // sealed; parameters numbered as the net's
    const float **params;       // of the model, as a pass takes them
    cadre_tokenizer *tokenizer; // of a writer; NULL: its tokens are bytes
} cadre_task;

/**
 * Opens the data, plans the net and lays out the model.  Collective.
 *
 * training: the train split is opened too, and parameters get their initial
 * values.  *out is set on success only; give it to cadre_task_close().
 *
 * Errors: those of recipe, dataset, net and model
 */
cadre_status cadre_task_open(cadre_group *world,
    const cadre_train_config *config, bool training, cadre_task *out);

/**
 * Plans the net of a recipe that learns text and lays out the model, without
 * data.  Otherwise as above.
 *
 * Errors: CADRE_ERR_INVALID_ARG  the recipe learns no text
 */
cadre_status cadre_task_open_writer(
    cadre_group *world, const cadre_train_config *config, cadre_task *out);

/** What the tokens of a writer are numbered up to. */
int cadre_task_numbers(const cadre_task *task);

void cadre_task_close(cadre_task *task);

/** What its samples are to a net. */
cadre_shape cadre_task_sample(const cadre_dataset *data);

/** Opens one split of a configuration's data. */
cadre_status cadre_task_data(const cadre_recipe *recipe,
    const cadre_train_config *config, cadre_split split, cadre_dataset **out);

#endif // CADRE_TRAIN_TASK_H
