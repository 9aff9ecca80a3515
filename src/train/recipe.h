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
#include "train/transformer.h"

/** Which of the keys model.* a recipe takes. */
typedef enum cadre_recipe_sizes {
    CADRE_SIZES_ONE,         // none
    CADRE_SIZES_STACK,       // layers and width
    CADRE_SIZES_WIDTH,       // width, of the first layer
    CADRE_SIZES_TRANSFORMER, // layers, width, heads and context, all of them;
                             // of llama kv_heads too
} cadre_recipe_sizes;

/** Plans a net of that width for images and so many classes. */
typedef cadre_status (*cadre_net_builder)(
    int width, cadre_shape image, int64_t n_classes, cadre_net **out);

typedef struct cadre_recipe {
    const char *summary;
    const char *dataset; // kind, as cadre_dataset_open() takes it
    cadre_recipe_sizes sizes;
    cadre_family family; // of a transformer
    const cadre_layer
        *layers; // none of a transformer, or if there is a builder
    int n_layers;
    cadre_net_builder build;   // where width is all there is to choose
    cadre_train_config config; // its recipe is the name
} cadre_recipe;

/**
 * Finds a recipe by its name; the result is valid for ever.
 *
 * Errors: CADRE_ERR_NOT_FOUND  no such recipe; the text lists those there are
 */
cadre_status cadre_recipe_find(const char *name, const cadre_recipe **out);

/** Errors: CADRE_ERR_INVALID_ARG  config asks for a size that the recipe lacks */
cadre_status cadre_recipe_check_size(
    const cadre_recipe *recipe, const cadre_train_config *config);

/**
 * Plans the recipe's net in the size that config asks for.
 *
 * Errors: that of cadre_recipe_check_size(), and those of a net
 */
cadre_status cadre_recipe_net(const cadre_recipe *recipe,
    const cadre_train_config *config, cadre_shape sample, int64_t n_classes,
    cadre_net **out);

#endif // CADRE_TRAIN_RECIPE_H
