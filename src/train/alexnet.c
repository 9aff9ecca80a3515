// SPDX-License-Identifier: Apache-2.0

#include "train/alexnet.h"

#include "base/fail.h"

cadre_status cadre_alexnet_net(
    int width, cadre_shape image, int64_t n_classes, cadre_net **out)
{
    if (width < 6 || width % 6 != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "model.width is %d; an AlexNet's is a multiple of 6", width);
    }
    const int64_t narrow = (int64_t)width * 8 / 3; // 256 in the paper
    const int64_t wide = (int64_t)width * 4;       // 384
    const int64_t hidden = narrow * 16;            // 4096
    const cadre_layer layers[] = {
        {.kind = "conv2d",
            .name = "conv1",
            .width = width,
            .kernel = 11,
            .stride = 4,
            .padding = 2},
        {.kind = "relu"},
        {.kind = "local_response_norm"},
        {.kind = "maxpool2d", .kernel = 3, .stride = 2},
        {.kind = "conv2d",
            .name = "conv2",
            .width = narrow,
            .kernel = 5,
            .padding = 2,
            .groups = 2},
        {.kind = "relu"},
        {.kind = "local_response_norm"},
        {.kind = "maxpool2d", .kernel = 3, .stride = 2},
        {.kind = "conv2d",
            .name = "conv3",
            .width = wide,
            .kernel = 3,
            .padding = 1},
        {.kind = "relu"},
        {.kind = "conv2d",
            .name = "conv4",
            .width = wide,
            .kernel = 3,
            .padding = 1,
            .groups = 2},
        {.kind = "relu"},
        {.kind = "conv2d",
            .name = "conv5",
            .width = narrow,
            .kernel = 3,
            .padding = 1,
            .groups = 2},
        {.kind = "relu"},
        {.kind = "maxpool2d", .kernel = 3, .stride = 2},
        {.kind = "linear", .name = "fc6", .width = hidden},
        {.kind = "relu"},
        {.kind = "dropout", .rate = 0.5f},
        {.kind = "linear", .name = "fc7", .width = hidden},
        {.kind = "relu"},
        {.kind = "dropout", .rate = 0.5f},
        {.kind = "linear", .name = "fc8", .width = n_classes},
    };
    const int n = (int)(sizeof(layers) / sizeof(layers[0]));
    return cadre_net_create(layers, n, image, n_classes, out);
}
