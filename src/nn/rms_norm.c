// SPDX-License-Identifier: Apache-2.0
//
// y = x / sqrt(mean(x^2) + 1e-5) * weight, the mean of a row, weight (O).
//
// Letters: r is 1 / sqrt(mean(x^2) + 1e-5), z is x r.
//
// Memory:  a state keeps r of each row for backward.
// Threads: one at a time per state.

#include "nn/lanes.h"
#include "nn/layer.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct norm_state {
    cadre_layer_state base;
    float r[]; // of each row
} norm_state;

static float *rows_of(cadre_layer_state *state)
{
    return ((norm_state *)state)->r;
}

static void describe(
    const cadre_layer_plan *plan, int i, cadre_net_param *param)
{
    (void)i;
    param->shape[0] = plan->out.channels;
    param->n_dims = 1;
    param->init_value = 1.0f;
    snprintf(param->name, sizeof(param->name), "%s.weight", plan->name);
}

static cadre_status prepare(
    const cadre_layer_plan *plan, int64_t n_samples, cadre_layer_state **out)
{
    size_t n_rows = (size_t)(n_samples * cadre_shape_rows(plan->in));
    return cadre_layer_state_create(
        plan, sizeof(norm_state), n_rows, sizeof(float), out);
}

CADRE_VECTOR_BODY void forward_row_body(float *restrict y,
    const float *restrict x, const float *restrict weight, int64_t n, float *r)
{
    const float epsilon = 1e-5f;
    float mean = cadre_lanes_dot(x, x, 0.0f, n) / (float)n;
    *r = 1.0f / sqrtf(mean + epsilon);
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * *r * weight[i];
    }
}
CADRE_VECTOR(forward_row,
    (float *restrict y, const float *restrict x, const float *restrict weight,
        int64_t n, float *r),
    (y, x, weight, n, r));

static cadre_status forward(const cadre_layer_call *call, cadre_matrix y)
{
    float *r = rows_of(call->state);
    for (int64_t n = 0; n < y.rows; n++) {
        forward_row[cadre_isa_in_use()](cadre_layer_y_row(call, y, n),
            cadre_layer_x_row(call, n), call->params[0], y.columns, &r[n]);
        cadre_layer_end_y_row(call, n);
    }
    return CADRE_OK;
}

CADRE_VECTOR_BODY void add_weight_body(float *restrict dw,
    const float *restrict x, const float *restrict dy, int64_t n, float r)
{
    for (int64_t i = 0; i < n; i++) {
        dw[i] += dy[i] * (x[i] * r);
    }
}
CADRE_VECTOR(add_weight,
    (float *restrict dw, const float *restrict x, const float *restrict dy,
        int64_t n, float r),
    (dw, x, dy, n, r));

// Row by row, so that the order is fixed.
static cadre_status param_gradient(
    const cadre_layer_call *call, int i, float *grad)
{
    (void)i;
    const float *r = rows_of(call->state);
    const int64_t width = call->dy.columns;
    memset(grad, 0, (size_t)width * sizeof(*grad));
    for (int64_t n = 0; n < call->dy.rows; n++) {
        add_weight[cadre_isa_in_use()](grad, cadre_layer_x_row(call, n),
            cadre_matrix_view_row(call->dy, n), width, r[n]);
    }
    return CADRE_OK;
}

// dz = dy * weight; dx = r (dz - z mean(dz z)).
CADRE_VECTOR_BODY void backward_row_body(float *restrict dx,
    const float *restrict x, const float *restrict dy,
    const float *restrict weight, int64_t n, float r)
{
    for (int64_t i = 0; i < n; i++) {
        dx[i] = dy[i] * weight[i];
    }
    float mean = cadre_lanes_dot(dx, x, 0.0f, n) * r / (float)n;
    for (int64_t i = 0; i < n; i++) {
        dx[i] = r * (dx[i] - x[i] * r * mean);
    }
}
CADRE_VECTOR(backward_row,
    (float *restrict dx, const float *restrict x, const float *restrict dy,
        const float *restrict weight, int64_t n, float r),
    (dx, x, dy, weight, n, r));

static cadre_status input_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    const float *r = rows_of(call->state);
    for (int64_t n = 0; n < dx.rows; n++) {
        backward_row[cadre_isa_in_use()](cadre_matrix_row(dx, n),
            cadre_layer_x_row(call, n), cadre_matrix_view_row(call->dy, n),
            call->params[0], dx.columns, r[n]);
    }
    return CADRE_OK;
}

const cadre_layer_ops cadre_rms_norm = {
    .kind = "rms_norm",
    .on = CADRE_ON_ROWS,
    .n_params = 1,
    .takes_narrow = true,
    .makes_narrow = true,
    .plan = cadre_layer_plan_same,
    .param = describe,
    .prepare = prepare,
    .release = cadre_layer_state_destroy,
    .forward = forward,
    .param_gradient = param_gradient,
    .input_gradient = input_gradient,
};
