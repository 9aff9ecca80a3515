// SPDX-License-Identifier: Apache-2.0

#include "train/layer_list.h"

#include "base/alloc.h"
#include "base/check.h"
#include <stdio.h>

cadre_layer_list *cadre_layer_list_create(void)
{
    return cadre_alloc(sizeof(cadre_layer_list));
}

void cadre_layer_list_add(cadre_layer_list *list, cadre_layer layer)
{
    CADRE_ASSERT(list->n < CADRE_LIST_LAYERS);
    list->layers[list->n++] = layer;
}

void cadre_layer_list_name(cadre_layer_list *list, const char *prefix,
    const char *name, cadre_layer layer)
{
    CADRE_ASSERT(list->n < CADRE_LIST_LAYERS);
    char *text = list->names[list->n];
    snprintf(text, CADRE_LIST_NAME_BYTES, "%s%s", prefix, name);
    layer.name = text;
    cadre_layer_list_add(list, layer);
}
