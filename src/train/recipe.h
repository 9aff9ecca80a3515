// SPDX-License-Identifier: Apache-2.0
//
// Recipes: a net, the data it learns from, and the configuration that makes it
// learn well.  A new one is a row of the table in recipe.c.
//
// Threads: any.

#ifndef CADRE_TRAIN_RECIPE_H
#define CADRE_TRAIN_RECIPE_H

#include "cadre/train.h"
#include "nn/net.h"

typedef struct cadre_recipe {
    const char *summary;
    const char *dataset; // kind, as cadre_dataset_open() takes it
    const cadre_layer *layers;
    int n_layers;
    cadre_train_config config; // its recipe is the name
} cadre_recipe;

/**
 * Finds a recipe by its name; the result is valid for ever.
 *
 * Errors: CADRE_ERR_NOT_FOUND    no such recipe; the text lists those there are
 *         CADRE_ERR_UNSUPPORTED  one that is planned and not built yet
 */
cadre_status cadre_recipe_find(const char *name, const cadre_recipe **out);

#endif // CADRE_TRAIN_RECIPE_H
