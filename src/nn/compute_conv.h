// SPDX-License-Identifier: Apache-2.0
//
// Convolutions, as the compute library does them: y = relu(x * W + b), with
// square windows and the same padding on each side.
//
// A cadre_conv is made for one number of samples, so that everything the
// library wants to decide and to generate is done before the first step.  It is
// computed by the calling thread alone; its bits are a function of values and
// shapes.
//
// Threads: one at a time per object; different ones at the same time.

#ifndef CADRE_NN_COMPUTE_CONV_H
#define CADRE_NN_COMPUTE_CONV_H

#include "cadre/status.h"
#include "nn/shape.h"
#include <stddef.h>

typedef struct cadre_conv cadre_conv;

typedef struct cadre_conv_options {
    int64_t n_samples;
    cadre_shape in;   // of a block that cadre_conv_input_block() gives
    int64_t x_stride; // elements from image to image of x; only plain ones of
                      // one pixel may lie apart
    cadre_shape out;  // of block cadre_compute_block()
    int64_t kernel;
    int64_t stride;
    int64_t padding;
    int64_t dilation;
    int64_t groups;
    bool bias;
    bool relu;            // forward ends with max(0, y)
    bool param_gradients; // cadre_conv_param_gradients() will be called,
    bool input_gradient;  // cadre_conv_input_gradient() will be
    bool bf16;            // images come in bf16, weights are rounded to it
} cadre_conv_options;

/** The block that images have where the library works fastest. */
int64_t cadre_compute_block(void);

/**
 * The block of a convolution's input: few channels do not fill a block, but in
 * groups the library wants one all the same.  0 groups are one.
 */
int64_t cadre_conv_input_block(cadre_shape in, int64_t groups);

/**
 * Errors: CADRE_ERR_NO_MEMORY
 *         CADRE_ERR_INTERNAL   the library failed
 */
cadre_status cadre_conv_create(
    const cadre_conv_options *options, cadre_conv **out);
void cadre_conv_destroy(cadre_conv *conv); // NULL is allowed

/** Floats that each of the calls below wants as scratch. */
size_t cadre_conv_scratch(const cadre_conv *conv);

/**
 * y from x and weight (O, I / groups, kernel, kernel), bias (O) if any.  Here
 * and below x and dy are of f32, or with bf16 of bf16; all else is f32.
 */
cadre_status cadre_conv_forward(cadre_conv *conv, const void *x,
    const float *weight, const float *bias, float *y, float *scratch);

/** The gradients of weight and of the bias, if any, summed over the samples. */
cadre_status cadre_conv_param_gradients(cadre_conv *conv, const void *x,
    const void *dy, float *dweight, float *dbias, float *scratch);

cadre_status cadre_conv_input_gradient(cadre_conv *conv, const float *weight,
    const void *dy, float *dx, float *scratch);

#endif // CADRE_NN_COMPUTE_CONV_H
