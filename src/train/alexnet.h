// SPDX-License-Identifier: Apache-2.0
//
// AlexNet: Krizhevsky, Sutskever, Hinton, "ImageNet Classification with Deep
// Convolutional Neural Networks", 2012, with its groups and local response
// norms; dropout is after the first two linear layers.
//
// Threads: any.

#ifndef CADRE_TRAIN_ALEXNET_H
#define CADRE_TRAIN_ALEXNET_H

#include "nn/net.h"

/**
 * width: channels of the first convolution, 96 in the paper; all others go with
 * it, so it is a multiple of 6.
 *
 * Errors: CADRE_ERR_INVALID_ARG  another width; and those of a net
 */
cadre_status cadre_alexnet_net(
    int width, cadre_shape image, int64_t n_classes, cadre_net **out);

#endif // CADRE_TRAIN_ALEXNET_H
