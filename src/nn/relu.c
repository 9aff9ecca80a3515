// SPDX-License-Identifier: Apache-2.0
//
// y = max(x, 0).  NaN passes in both directions, so that a step that has gone
// wrong is seen.

#include "nn/layer.h"
#include <string.h>

// The loops work in place, since the compiler cannot know that two rows are
// either the same or do not overlap, and would not vectorise.
static float *copied(float *to, const float *from, int64_t count)
{
    if (to != from) {
        memcpy(to, from, (size_t)count * sizeof(*to));
    }
    return to;
}

static cadre_status forward(const cadre_layer_call *call, cadre_matrix y)
{
    if (call->plan->done) {
        return CADRE_OK;
    }
    for (int64_t n = 0; n < y.rows; n++) {
        float *row = copied(cadre_matrix_row(y, n),
            cadre_matrix_view_row(call->x, n), y.columns);
        for (int64_t o = 0; o < y.columns; o++) {
            row[o] = row[o] < 0.0f ? 0.0f : row[o];
        }
    }
    return CADRE_OK;
}

static void mask(const float *restrict y, float *restrict dy, int64_t count)
{
    for (int64_t o = 0; o < count; o++) {
        float kept = dy[o];
        dy[o] = y[o] <= 0.0f ? 0.0f : kept;
    }
}

static cadre_status input_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    if (call->plan->masked) {
        cadre_matrix_copy(call->dy, dx);
        return CADRE_OK;
    }
    for (int64_t n = 0; n < dx.rows; n++) {
        float *row = copied(cadre_matrix_row(dx, n),
            cadre_matrix_view_row(call->dy, n), dx.columns);
        mask(cadre_matrix_view_row(call->y, n), row, dx.columns);
    }
    return CADRE_OK;
}

const cadre_layer_ops cadre_relu = {
    .kind = "relu",
    .in_place = true,
    .keeps_output = true,
    .plan = cadre_layer_plan_same,
    .forward = forward,
    .input_gradient = input_gradient,
};
