// SPDX-License-Identifier: Apache-2.0

#include "train/resnet.h"

#include "base/alloc.h"
#include "train/layer_list.h"
#include <stdio.h>

enum { STAGES = 4, PREFIX_BYTES = 24 };

// A convolution and its batch norm.
static void add_conv(cadre_layer_list *list, const char *prefix,
    const char *conv, const char *norm, cadre_layer window)
{
    window.kind = "conv2d";
    window.no_bias = true;
    cadre_layer_list_name(list, prefix, conv, window);
    cadre_layer_list_name(
        list, prefix, norm, (cadre_layer){.kind = "batch_norm2d"});
}

static void add_relu(cadre_layer_list *list)
{
    cadre_layer_list_add(list, (cadre_layer){.kind = "relu"});
}

// What a block does beside its shortcut.
typedef struct block {
    char prefix[PREFIX_BYTES]; // "layer2.0."
    int64_t width;             // of its inner convolutions
    int64_t stride;
} block;

// Two convolutions of 3 x 3.
static int64_t add_basic(cadre_layer_list *list, const block *b)
{
    add_conv(list, b->prefix, "conv1", "bn1",
        (cadre_layer){
            .width = b->width, .kernel = 3, .stride = b->stride, .padding = 1});
    add_relu(list);
    add_conv(list, b->prefix, "conv2", "bn2",
        (cadre_layer){.width = b->width, .kernel = 3, .padding = 1});
    return b->width;
}

// One of 3 x 3 between two of 1 x 1, the last four times as wide.
static int64_t add_bottleneck(cadre_layer_list *list, const block *b)
{
    add_conv(list, b->prefix, "conv1", "bn1",
        (cadre_layer){.width = b->width, .kernel = 1});
    add_relu(list);
    add_conv(list, b->prefix, "conv2", "bn2",
        (cadre_layer){
            .width = b->width, .kernel = 3, .stride = b->stride, .padding = 1});
    add_relu(list);
    add_conv(list, b->prefix, "conv3", "bn3",
        (cadre_layer){.width = 4 * b->width, .kernel = 1});
    return 4 * b->width;
}

// Writes a block's layers and returns the channels that come out.
typedef int64_t (*write_block)(cadre_layer_list *list, const block *b);

// y = relu(x + block(x)), or relu(project(x) + block(x)) where shapes change.
static int64_t add_residual(
    cadre_layer_list *list, const block *b, write_block write, int64_t channels)
{
    cadre_layer_list_add(list, (cadre_layer){.kind = "residual"});
    int64_t out = write(list, b);
    if (out != channels || b->stride != 1) {
        cadre_layer_list_add(list, (cadre_layer){.kind = "shortcut"});
        add_conv(list, b->prefix, "downsample.0", "downsample.1",
            (cadre_layer){.width = out, .kernel = 1, .stride = b->stride});
    }
    cadre_layer_list_add(list, (cadre_layer){.kind = "add"});
    add_relu(list);
    return out;
}

// Stages, each twice as wide as the one before and half as high, and the end.
static void add_stages(cadre_layer_list *list, int width,
    const int depth[STAGES], write_block write, int64_t n_classes)
{
    int64_t channels = width;
    for (int s = 0; s < STAGES; s++) {
        for (int i = 0; i < depth[s]; i++) {
            block b = {
                .width = (int64_t)width << s,
                .stride = s > 0 && i == 0 ? 2 : 1,
            };
            snprintf(b.prefix, PREFIX_BYTES, "layer%d.%d.", s + 1, i);
            channels = add_residual(list, &b, write, channels);
        }
    }
    cadre_layer_list_add(list, (cadre_layer){.kind = "global_avgpool2d"});
    cadre_layer_list_name(
        list, "", "fc", (cadre_layer){.kind = "linear", .width = n_classes});
}

static cadre_status plan_and_free(cadre_layer_list *list, cadre_shape image,
    int64_t n_classes, cadre_net **out)
{
    cadre_status status =
        cadre_net_create(list->layers, list->n, image, n_classes, out);
    cadre_free(list);
    return status;
}

cadre_status cadre_resnet18_net(
    int width, cadre_shape image, int64_t n_classes, cadre_net **out)
{
    static const int depth[STAGES] = {2, 2, 2, 2};
    cadre_layer_list *list = cadre_layer_list_create();
    if (list == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    add_conv(list, "", "conv1", "bn1",
        (cadre_layer){.width = width, .kernel = 3, .padding = 1});
    add_relu(list);
    add_stages(list, width, depth, add_basic, n_classes);
    return plan_and_free(list, image, n_classes, out);
}

cadre_status cadre_resnet50_net(
    int width, cadre_shape image, int64_t n_classes, cadre_net **out)
{
    static const int depth[STAGES] = {3, 4, 6, 3};
    cadre_layer_list *list = cadre_layer_list_create();
    if (list == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    add_conv(list, "", "conv1", "bn1",
        (cadre_layer){.width = width, .kernel = 7, .stride = 2, .padding = 3});
    add_relu(list);
    cadre_layer_list_add(
        list, (cadre_layer){
                  .kind = "maxpool2d", .kernel = 3, .stride = 2, .padding = 1});
    add_stages(list, width, depth, add_bottleneck, n_classes);
    return plan_and_free(list, image, n_classes, out);
}
