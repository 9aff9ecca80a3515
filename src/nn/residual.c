// SPDX-License-Identifier: Apache-2.0
//
// "residual" and "add": what goes into the first is added to what comes out of
// the layers between them.  Backward, the gradient goes both ways, and the two
// are added at the first.
//
// Threads: any.

#include "nn/layer.h"
#include "nn/row_add.h"
#include <string.h>

static cadre_status plan_same(const cadre_layer *layer, cadre_layer_plan *plan)
{
    (void)layer;
    plan->out = plan->in;
    return CADRE_OK;
}

static void copy(cadre_matrix_view from, cadre_matrix to)
{
    for (int64_t n = 0; n < to.rows && from.data != to.data; n++) {
        memcpy(cadre_matrix_row(to, n), cadre_matrix_view_row(from, n),
            (size_t)to.columns * sizeof(*to.data));
    }
}

static void add_past(cadre_matrix_view past, cadre_matrix to)
{
    for (int64_t n = 0; n < to.rows; n++) {
        cadre_row_add(cadre_matrix_row(to, n), cadre_matrix_view_row(past, n),
            to.columns);
    }
}

static cadre_status pass_on(const cadre_layer_call *call, cadre_matrix y)
{
    copy(call->x, y);
    return CADRE_OK;
}

static cadre_status join_gradient(const cadre_layer_call *call, cadre_matrix dx)
{
    copy(call->dy, dx);
    add_past(cadre_matrix_read(call->past), dx);
    return CADRE_OK;
}

static cadre_status join(const cadre_layer_call *call, cadre_matrix y)
{
    copy(call->x, y);
    add_past(cadre_matrix_read(call->past), y);
    return CADRE_OK;
}

static cadre_status fork_gradient(const cadre_layer_call *call, cadre_matrix dx)
{
    copy(call->dy, dx);
    copy(call->dy, call->past);
    return CADRE_OK;
}

// Its output is read again, by the other one.
const cadre_layer_ops cadre_residual = {
    .kind = "residual",
    .in_place = true,
    .keeps_output = true,
    .plan = plan_same,
    .forward = pass_on,
    .input_gradient = join_gradient,
};

const cadre_layer_ops cadre_add = {
    .kind = "add",
    .in_place = true,
    .plan = plan_same,
    .forward = join,
    .input_gradient = fork_gradient,
};
