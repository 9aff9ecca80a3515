// SPDX-License-Identifier: Apache-2.0
//
// Residual networks: He, Zhang, Ren, Sun, "Deep Residual Learning for Image
// Recognition", 2015, with the names and the strides of torchvision's.
//
// Threads: any.

#ifndef CADRE_TRAIN_RESNET_H
#define CADRE_TRAIN_RESNET_H

#include "nn/net.h"

/**
 * ResNet-18 for small images: its first convolution is 3 x 3 and no pooling
 * follows it.  width: channels of the first stage.
 *
 * Errors: those of a net
 */
cadre_status cadre_resnet18_net(
    int width, cadre_shape image, int64_t n_classes, cadre_net **out);

/** ResNet-50, likewise, as it is for images of 224 x 224. */
cadre_status cadre_resnet50_net(
    int width, cadre_shape image, int64_t n_classes, cadre_net **out);

#endif // CADRE_TRAIN_RESNET_H
