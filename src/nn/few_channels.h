// SPDX-License-Identifier: Apache-2.0
//
// The gradients of a convolution's parameters where the input has too few
// channels to fill a block, as a net's first layer: the compute library would
// work on the zeros that fill it too.  Measured (oneDNN 2.6.3, AVX2, one thread,
// 1 > 6 channels, 5 x 5, 64 images of 28 x 28, medians): 3.9 ms there, 0.7 here.
//
// Threads: any.

#ifndef CADRE_NN_FEW_CHANNELS_H
#define CADRE_NN_FEW_CHANNELS_H

#include "nn/compute_conv.h"

/** Whether a convolution's parameter gradients are computed here. */
bool cadre_few_channels(const cadre_conv_options *options);

/** Floats that the call below wants as scratch. */
size_t cadre_few_channels_scratch(const cadre_conv_options *options);

/**
 * The gradients of weight (O, I, kernel, kernel) and of bias (O), summed over
 * the samples: x with a row (I, height, width) for each, dy (N, O / block, height,
 * width, block).
 */
void cadre_few_channels_gradients(const cadre_conv_options *options,
    cadre_matrix_view x, const float *dy, float *dweight, float *dbias,
    float *scratch);

#endif // CADRE_NN_FEW_CHANNELS_H
