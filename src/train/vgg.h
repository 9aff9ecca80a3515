// SPDX-License-Identifier: Apache-2.0
//
// VGG-16: Simonyan, Zisserman, "Very Deep Convolutional Networks for
// Large-Scale Image Recognition", 2015, configuration D.
//
// Without a norm between so many layers, initial weights of convolutions have
// to keep the size of what goes through: normal, with the deviation sqrt(2 / n)
// for n products into each output (He, Zhang, Ren, Sun, "Delving Deep into
// Rectifiers", 2015).
//
// Threads: any.

#ifndef CADRE_TRAIN_VGG_H
#define CADRE_TRAIN_VGG_H

#include "nn/net.h"

/**
 * width: channels of the first convolution, 64 in the paper; all others go with
 * it.
 *
 * Errors: those of a net
 */
cadre_status cadre_vgg16_net(
    int width, cadre_shape image, int64_t n_classes, cadre_net **out);

#endif // CADRE_TRAIN_VGG_H
