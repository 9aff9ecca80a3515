// SPDX-License-Identifier: Apache-2.0
//
// Whose memory what a pass computes lies in.
//
// A layer that works in place shares its output with the layer before it, and
// its output's gradient as well.  A "shortcut" has the output of its "residual".
//
// Threads: any.

#ifndef CADRE_NN_OWNERS_H
#define CADRE_NN_OWNERS_H

#include "nn/plan.h"

/** The buffers of a layer; its losses belong to the last. */
typedef enum cadre_buffer {
    CADRE_BUFFER_OUTPUT,
    CADRE_BUFFER_AGAIN,  // the output, computed again
    CADRE_BUFFER_NARROW, // the output in bf16
    CADRE_BUFFER_NARROW_AGAIN,
    CADRE_BUFFER_WIDE, // made of that for backward
    CADRE_BUFFER_GRADIENT,
    CADRE_BUFFER_NARROW_GRADIENT,
    CADRE_BUFFER_PAST,
    CADRE_BUFFER_SCRATCH_FORWARD,
    CADRE_BUFFER_SCRATCH_BACKWARD,
    CADRE_BUFFER_ADDEND,
    CADRE_BUFFER_LOSSES,
    CADRE_N_BUFFERS
} cadre_buffer;

/** A buffer, and whose it is. */
typedef struct cadre_owner {
    int layer;
    cadre_buffer what;
} cadre_owner;

/**
 * Where a layer's output lies.  Samples are not ours, so the first layer has a
 * buffer; nor is an output written over that is read again.
 */
cadre_owner cadre_output_owner(const cadre_net *net, int layer);

/** Where its gradient lies. */
cadre_owner cadre_gradient_owner(const cadre_net *net, int layer);

/** Where the gradient lies that an "add" leaves for later. */
cadre_owner cadre_left_owner(const cadre_net *net, int add);

/**
 * Where a "residual" finds the gradient of the way that backward went first:
 * what its "add" has left, or what came out at its "shortcut".
 */
cadre_owner cadre_past_owner(const cadre_net *net, int residual);

#endif // CADRE_NN_OWNERS_H
