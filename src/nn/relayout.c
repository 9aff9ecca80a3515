// SPDX-License-Identifier: Apache-2.0
//
// Moves an image's elements from one block to another.  A net puts it where a
// layer wants its input to lie otherwise than the one before leaves it; no
// value changes.

#include "nn/layer.h"
#include <string.h>

// (blocks, pixels, block) to (channels, pixels).
static void to_plain(cadre_shape from, const float *x, float *y)
{
    const int64_t pixels = from.height * from.width;
    for (int64_t c = 0; c < from.channels; c++) {
        const float *source =
            x + c / from.block * pixels * from.block + c % from.block;
        for (int64_t p = 0; p < pixels; p++) {
            *y++ = source[p * from.block];
        }
    }
}

static void from_plain(cadre_shape to, const float *x, float *y)
{
    const int64_t pixels = to.height * to.width;
    memset(y, 0, (size_t)cadre_shape_columns(to) * sizeof(*y));
    for (int64_t c = 0; c < to.channels; c++) {
        float *target = y + c / to.block * pixels * to.block + c % to.block;
        for (int64_t p = 0; p < pixels; p++) {
            target[p * to.block] = *x++;
        }
    }
}

// One of the two is plain, since there is one other block in a process.
static void move(
    cadre_shape from, cadre_matrix_view x, cadre_shape to, cadre_matrix y)
{
    for (int64_t n = 0; n < y.rows; n++) {
        if (to.block == 1) {
            to_plain(from, cadre_matrix_view_row(x, n), cadre_matrix_row(y, n));
        } else {
            from_plain(to, cadre_matrix_view_row(x, n), cadre_matrix_row(y, n));
        }
    }
}

static cadre_status forward(const cadre_layer_call *call, cadre_matrix y)
{
    move(call->plan->in, call->x, call->plan->out, y);
    return CADRE_OK;
}

static cadre_status input_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    move(call->plan->out, call->dy, call->plan->in, dx);
    return CADRE_OK;
}

const cadre_layer_ops cadre_relayout = {
    .kind = "relayout",
    .forgets_input = true,
    .forward = forward,
    .input_gradient = input_gradient,
};
