// SPDX-License-Identifier: Apache-2.0
//
// A list of layers in the making, for nets that are too long to write down as a
// table: it keeps the layers and their names.
//
// Threads: one at a time.

#ifndef CADRE_TRAIN_LAYER_LIST_H
#define CADRE_TRAIN_LAYER_LIST_H

#include "nn/net.h"

enum { CADRE_LIST_LAYERS = 512, CADRE_LIST_NAME_BYTES = 40 };

typedef struct cadre_layer_list {
    int n;
    cadre_layer layers[CADRE_LIST_LAYERS];
    char names[CADRE_LIST_LAYERS][CADRE_LIST_NAME_BYTES];
} cadre_layer_list;

/** An empty list, for cadre_free(); NULL without memory. */
cadre_layer_list *cadre_layer_list_create(void);

/** Appends a layer without a name. */
void cadre_layer_list_add(cadre_layer_list *list, cadre_layer layer);

/** Appends a layer that is called prefix and name. */
void cadre_layer_list_name(cadre_layer_list *list, const char *prefix,
    const char *name, cadre_layer layer);

#endif // CADRE_TRAIN_LAYER_LIST_H
