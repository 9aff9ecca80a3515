// SPDX-License-Identifier: Apache-2.0
//
// y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, mean and variance of
// a row, weight and bias (O).
//
// Letters: z is x so normalised; r is 1 / sqrt(variance + 1e-5).
//
// Memory:  a state keeps mean and r of each row for backward.
// Threads: one at a time per state.

#include "nn/lanes.h"
#include "nn/layer.h"
#include "nn/row_add.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WEIGHT, BIAS, N_PARAMS };

typedef struct moments {
    float mean;
    float r;
} moments;

typedef struct norm_state {
    cadre_layer_state base;
    moments rows[];
} norm_state;

static moments *rows_of(cadre_layer_state *state)
{
    return ((norm_state *)state)->rows;
}

static cadre_status plan_norm(const cadre_layer *layer, cadre_layer_plan *plan)
{
    (void)layer;
    plan->out = plan->in;
    plan->scratch = (size_t)cadre_matrix_stride(plan->in.channels);
    return CADRE_OK;
}

static void describe(
    const cadre_layer_plan *plan, int i, cadre_net_param *param)
{
    param->shape[0] = plan->out.channels;
    param->n_dims = 1;
    param->init_value = i == WEIGHT ? 1.0f : 0.0f;
    snprintf(param->name, sizeof(param->name), "%s.%s", plan->name,
        i == WEIGHT ? "weight" : "bias");
}

static cadre_status prepare(
    const cadre_layer_plan *plan, int64_t n_samples, cadre_layer_state **out)
{
    size_t n_rows = (size_t)(n_samples * cadre_shape_rows(plan->in));
    return cadre_layer_state_create(
        plan, sizeof(norm_state), n_rows, sizeof(moments), out);
}

CADRE_VECTOR_BODY void forward_row_body(float *restrict y,
    const float *restrict x, const float *restrict weight,
    const float *restrict bias, int64_t n, moments *row)
{
    const float epsilon = 1e-5f;
    float mean = cadre_lanes_sum(x, n) / (float)n;
    float variance = cadre_lanes_dot(x, x, mean, n) / (float)n;
    float r = 1.0f / sqrtf(variance + epsilon);
    for (int64_t i = 0; i < n; i++) {
        y[i] = (x[i] - mean) * r * weight[i] + bias[i];
    }
    *row = (moments){mean, r};
}
CADRE_VECTOR(forward_row,
    (float *restrict y, const float *restrict x, const float *restrict weight,
        const float *restrict bias, int64_t n, moments *row),
    (y, x, weight, bias, n, row));

static cadre_status forward(const cadre_layer_call *call, cadre_matrix y)
{
    moments *rows = rows_of(call->state);
    for (int64_t n = 0; n < y.rows; n++) {
        forward_row[cadre_isa_in_use()](cadre_layer_y_row(call, y, n),
            cadre_layer_x_row(call, n), call->params[WEIGHT],
            call->params[BIAS], y.columns, &rows[n]);
        cadre_layer_end_y_row(call, n);
    }
    return CADRE_OK;
}

CADRE_VECTOR_BODY void add_weight_body(float *restrict dw,
    const float *restrict x, const float *restrict dy, int64_t n, float mean,
    float r)
{
    for (int64_t i = 0; i < n; i++) {
        dw[i] += dy[i] * ((x[i] - mean) * r);
    }
}
CADRE_VECTOR(add_weight,
    (float *restrict dw, const float *restrict x, const float *restrict dy,
        int64_t n, float mean, float r),
    (dw, x, dy, n, mean, r));

// Row by row, so that the order is fixed.
static cadre_status param_gradient(
    const cadre_layer_call *call, int i, float *grad)
{
    const moments *rows = rows_of(call->state);
    const cadre_isa isa = cadre_isa_in_use();
    const int64_t width = call->dy.columns;
    memset(grad, 0, (size_t)width * sizeof(*grad));
    for (int64_t n = 0; n < call->dy.rows; n++) {
        const float *dy = cadre_matrix_view_row(call->dy, n);
        if (i == BIAS) {
            cadre_row_add(grad, dy, width);
        } else {
            add_weight[isa](grad, cadre_layer_x_row(call, n), dy, width,
                rows[n].mean, rows[n].r);
        }
    }
    return CADRE_OK;
}

// dz = dy * weight; dx = r (dz - mean(dz) - z mean(dz z)).
CADRE_VECTOR_BODY void backward_row_body(float *restrict dx,
    const float *restrict x, const float *restrict dy,
    const float *restrict weight, int64_t n, moments row,
    float *restrict products)
{
    const float mean = row.mean;
    const float r = row.r;
    for (int64_t i = 0; i < n; i++) {
        dx[i] = dy[i] * weight[i];
        products[i] = dx[i] * ((x[i] - mean) * r);
    }
    float mean_dz = cadre_lanes_sum(dx, n) / (float)n;
    float mean_dz_z = cadre_lanes_sum(products, n) / (float)n;
    for (int64_t i = 0; i < n; i++) {
        dx[i] = r * ((dx[i] - mean_dz) - ((x[i] - mean) * r) * mean_dz_z);
    }
}
CADRE_VECTOR(backward_row,
    (float *restrict dx, const float *restrict x, const float *restrict dy,
        const float *restrict weight, int64_t n, moments row,
        float *restrict products),
    (dx, x, dy, weight, n, row, products));

static cadre_status input_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    const moments *rows = rows_of(call->state);
    for (int64_t n = 0; n < dx.rows; n++) {
        backward_row[cadre_isa_in_use()](cadre_matrix_row(dx, n),
            cadre_layer_x_row(call, n), cadre_matrix_view_row(call->dy, n),
            call->params[WEIGHT], dx.columns, rows[n], call->scratch);
    }
    return CADRE_OK;
}

const cadre_layer_ops cadre_layer_norm = {
    .kind = "layer_norm",
    .on = CADRE_ON_ROWS,
    .n_params = N_PARAMS,
    .scratch_is_late = true,
    .takes_narrow = true,
    .makes_narrow = true,
    .plan = plan_norm,
    .param = describe,
    .prepare = prepare,
    .release = cadre_layer_state_destroy,
    .forward = forward,
    .param_gradient = param_gradient,
    .input_gradient = input_gradient,
};
