// SPDX-License-Identifier: Apache-2.0
//
// "residual" and "add": what goes into the first is added to what comes out of
// the layers between them.  After a "shortcut" between the two, layers work on
// what went into the "residual" once more, and what they make of it is added.
//
// Backward, the gradient goes both ways: that of one way waits as `past` while
// backward goes through the layers of the other, and the two are added at the
// "residual".
//
// Threads: any.

#include "kernel/vector.h"
#include "nn/layer.h"
#include "nn/row_add.h"

static cadre_status pass_on(const cadre_layer_call *call, cadre_matrix y)
{
    cadre_matrix_copy(call->x, y);
    return CADRE_OK;
}

static cadre_status join_gradient(const cadre_layer_call *call, cadre_matrix dx)
{
    cadre_matrix_copy(call->dy, dx);
    for (int64_t n = 0; n < dx.rows; n++) {
        cadre_row_add(cadre_matrix_row(dx, n),
            cadre_matrix_view_row(cadre_matrix_read(call->past), n),
            dx.columns);
    }
    return CADRE_OK;
}

// y = relu(x + past); in place, since y may be x.
CADRE_VECTOR_BODY void add_relu_body(
    float *restrict y, const float *restrict past, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = y[i] + past[i];
        y[i] = sum < 0.0f ? 0.0f : sum;
    }
}
CADRE_VECTOR(add_relu,
    (float *restrict y, const float *restrict past, int64_t n), (y, past, n));

static cadre_status join(const cadre_layer_call *call, cadre_matrix y)
{
    const cadre_matrix_view past = cadre_matrix_read(call->past);
    cadre_matrix_copy(call->x, y);
    for (int64_t n = 0; n < y.rows; n++) {
        float *to = cadre_matrix_row(y, n);
        const float *from = cadre_matrix_view_row(past, n);
        if (call->plan->then_relu) {
            add_relu[cadre_isa_in_use()](to, from, y.columns);
        } else {
            cadre_row_add(to, from, y.columns);
        }
    }
    return CADRE_OK;
}

// What passes the ReLU of the gradient of its output y.
CADRE_VECTOR_BODY void mask_body(
    float *restrict dx, const float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        dx[i] = y[i] <= 0.0f ? 0.0f : dx[i];
    }
}
CADRE_VECTOR(
    mask, (float *restrict dx, const float *restrict y, int64_t n), (dx, y, n));

static cadre_status fork_gradient(const cadre_layer_call *call, cadre_matrix dx)
{
    cadre_matrix_copy(call->dy, dx);
    for (int64_t n = 0; n < dx.rows && call->plan->then_relu; n++) {
        mask[cadre_isa_in_use()](cadre_matrix_row(dx, n),
            cadre_matrix_view_row(call->y, n), dx.columns);
    }
    cadre_matrix_copy(cadre_matrix_read(dx), call->past);
    return CADRE_OK;
}

// The net knows what comes out: what went into the residual.
static cadre_status plan_shortcut(
    const cadre_layer *layer, cadre_layer_plan *plan)
{
    (void)layer;
    (void)plan;
    return CADRE_OK;
}

// Forward y is the residual's output already; backward dx is what the "add" left
// for the layers before, and dy waits for the residual (nn/places.h).
static cadre_status begin_again(const cadre_layer_call *call, cadre_matrix y)
{
    (void)call;
    (void)y;
    return CADRE_OK;
}

const cadre_layer_ops cadre_residual = {
    .kind = "residual",
    .in_place = true,
    .keeps_output = true,
    .passes_on = true,
    .plan = cadre_layer_plan_same,
    .forward = pass_on,
    .input_gradient = join_gradient,
};

const cadre_layer_ops cadre_shortcut = {
    .kind = "shortcut",
    .keeps_output = true,
    .passes_on = true,
    .forgets_input = true,
    .plan = plan_shortcut,
    .forward = begin_again,
    .input_gradient = begin_again,
};

const cadre_layer_ops cadre_add = {
    .kind = "add",
    .in_place = true,
    .takes_relu = true,
    .masks_gradient = true,
    .plan = cadre_layer_plan_same,
    .forward = join,
    .input_gradient = fork_gradient,
};
