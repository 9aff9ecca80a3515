// SPDX-License-Identifier: Apache-2.0

#include "train/vgg.h"

#include "base/alloc.h"
#include "train/layer_list.h"
#include <math.h>
#include <stdio.h>

static void add_relu(cadre_layer_list *list)
{
    cadre_layer_list_add(list, (cadre_layer){.kind = "relu"});
}

// A convolution of 3 x 3; in: the channels it reads.
static void add_conv(
    cadre_layer_list *list, const char *name, int64_t in, int64_t width)
{
    cadre_layer_list_name(list, "", name,
        (cadre_layer){
            .kind = "conv2d",
            .width = width,
            .kernel = 3,
            .padding = 1,
            .deviation = (float)sqrt(2.0 / (9.0 * (double)in)),
        });
    add_relu(list);
}

// A linear layer of the end.
static void add_hidden(cadre_layer_list *list, const char *name, int64_t width)
{
    cadre_layer_list_name(
        list, "", name, (cadre_layer){.kind = "linear", .width = width});
    add_relu(list);
    cadre_layer_list_add(list, (cadre_layer){.kind = "dropout", .rate = 0.5f});
}

static void add_all(
    cadre_layer_list *list, int64_t width, int64_t channels, int64_t n_classes)
{
    enum { STAGES = 5, NAME_BYTES = 24 };
    static const struct {
        int depth;
        int times; // the width
    } stages[STAGES] = {{2, 1}, {2, 2}, {3, 4}, {3, 8}, {3, 8}};
    for (int s = 0; s < STAGES; s++) {
        for (int i = 0; i < stages[s].depth; i++) {
            char name[NAME_BYTES];
            snprintf(name, sizeof(name), "conv%d_%d", s + 1, i + 1);
            add_conv(list, name, channels, width * stages[s].times);
            channels = width * stages[s].times;
        }
        cadre_layer_list_add(
            list, (cadre_layer){.kind = "maxpool2d", .kernel = 2});
    }
    const int64_t hidden = 64 * width; // 4096 in the paper
    add_hidden(list, "fc6", hidden);
    add_hidden(list, "fc7", hidden);
    cadre_layer_list_name(
        list, "", "fc8", (cadre_layer){.kind = "linear", .width = n_classes});
}

cadre_status cadre_vgg16_net(
    int width, cadre_shape image, int64_t n_classes, cadre_net **out)
{
    cadre_layer_list *list = cadre_layer_list_create();
    if (list == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    add_all(list, width, image.channels, n_classes);
    cadre_status status =
        cadre_net_create(list->layers, list->n, image, n_classes, out);
    cadre_free(list);
    return status;
}
