// SPDX-License-Identifier: Apache-2.0
//
// What a convolution's images and weights are to oneDNN; for compute_conv*.c
// alone.
//
// Threads: any.

#ifndef CADRE_NN_COMPUTE_CONV_SHAPES_H
#define CADRE_NN_COMPUTE_CONV_SHAPES_H

#include "nn/compute_conv.h"
#include <dnnl.h>

typedef struct cadre_conv_shapes {
    // What meets: f32, or rounded to bf16.
    dnnl_memory_desc_t x;
    dnnl_memory_desc_t x_blocked;
    dnnl_memory_desc_t dy;
    dnnl_memory_desc_t weight;   // as the caller has it
    dnnl_memory_desc_t packable; // as the library likes it
    // What comes out, f32.
    dnnl_memory_desc_t y;
    dnnl_memory_desc_t dx;
    dnnl_memory_desc_t dweight;
    dnnl_memory_desc_t dpackable;
    dnnl_memory_desc_t bias; // of no dimensions if there is none
    dnnl_dims_t strides;
    dnnl_dims_t dilates; // elements between those of a window
    dnnl_dims_t before;  // padding above and left
    dnnl_dims_t after;   // and below and right
} cadre_conv_shapes;

/**
 * Groups that the library computes: neighbours together, as many as fill blocks
 * of channels, and if that does not come out even, all.
 */
int64_t cadre_conv_groups(const cadre_conv_options *options);

/**
 * Input channels, those included that fill the last block; in groups that is
 * not possible.
 */
int64_t cadre_conv_filled(const cadre_conv_options *options);

/** type: of what meets.  Errors: CADRE_ERR_INTERNAL */
cadre_status cadre_conv_describe(const cadre_conv_options *options,
    dnnl_data_type_t type, cadre_conv_shapes *out);

#endif // CADRE_NN_COMPUTE_CONV_SHAPES_H
