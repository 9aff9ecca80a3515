// SPDX-License-Identifier: Apache-2.0
//
// "silu": y = x S(x), with S(x) = 1 / (1 + e^-x).
//
// "swiglu": y = a S(a) b for rows that have a and then b, as wide as y each:
// the gate of a gated multi-layer perceptron.
//
// Threads: any.

#include "base/fail.h"
#include "nn/exp.h"
#include "nn/layer.h"

static cadre_status plan_swiglu(
    const cadre_layer *layer, cadre_layer_plan *plan)
{
    (void)layer;
    const cadre_shape in = plan->in;
    if (in.channels % 2 != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "swiglu works on rows of two halves alike, and these have %lld "
            "elements",
            (long long)in.channels);
    }
    plan->out = in;
    plan->out.channels = in.channels / 2;
    return CADRE_OK;
}

CADRE_VECTOR_BODY float sigmoid(float x)
{
    return 1.0f / (1.0f + cadre_exp(-x));
}

// The slope of x S(x), s being S(x).
CADRE_VECTOR_BODY float slope(float x, float s)
{
    return s + x * s * (1.0f - s);
}

CADRE_VECTOR_BODY void silu_row_body(
    float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * sigmoid(x[i]);
    }
}
CADRE_VECTOR(silu_row, (float *restrict y, const float *restrict x, int64_t n),
    (y, x, n));

CADRE_VECTOR_BODY void silu_gradient_row_body(float *restrict dx,
    const float *restrict x, const float *restrict dy, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        dx[i] = dy[i] * slope(x[i], sigmoid(x[i]));
    }
}
CADRE_VECTOR(silu_gradient_row,
    (float *restrict dx, const float *restrict x, const float *restrict dy,
        int64_t n),
    (dx, x, dy, n));

CADRE_VECTOR_BODY void swiglu_row_body(
    float *restrict y, const float *restrict x, int64_t n)
{
    const float *restrict b = x + n;
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[i] * sigmoid(x[i]) * b[i];
    }
}
CADRE_VECTOR(swiglu_row,
    (float *restrict y, const float *restrict x, int64_t n), (y, x, n));

CADRE_VECTOR_BODY void swiglu_gradient_row_body(float *restrict dx,
    const float *restrict x, const float *restrict dy, int64_t n)
{
    const float *restrict b = x + n;
    float *restrict db = dx + n;
    for (int64_t i = 0; i < n; i++) {
        float s = sigmoid(x[i]);
        dx[i] = dy[i] * b[i] * slope(x[i], s);
        db[i] = dy[i] * (x[i] * s);
    }
}
CADRE_VECTOR(swiglu_gradient_row,
    (float *restrict dx, const float *restrict x, const float *restrict dy,
        int64_t n),
    (dx, x, dy, n));

static cadre_status silu_forward(const cadre_layer_call *call, cadre_matrix y)
{
    return cadre_layer_rows(call, silu_row[cadre_isa_in_use()], y);
}

static cadre_status silu_gradient(const cadre_layer_call *call, cadre_matrix dx)
{
    return cadre_layer_rows_back(
        call, silu_gradient_row[cadre_isa_in_use()], dx);
}

static cadre_status swiglu_forward(const cadre_layer_call *call, cadre_matrix y)
{
    return cadre_layer_rows(call, swiglu_row[cadre_isa_in_use()], y);
}

static cadre_status swiglu_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    return cadre_layer_rows_back(
        call, swiglu_gradient_row[cadre_isa_in_use()], dx);
}

const cadre_layer_ops cadre_silu = {
    .kind = "silu",
    .takes_narrow = true,
    .makes_narrow = true,
    .makes_narrow_dx = true,
    .plan = cadre_layer_plan_same,
    .forward = silu_forward,
    .input_gradient = silu_gradient,
};

const cadre_layer_ops cadre_swiglu = {
    .kind = "swiglu",
    .on = CADRE_ON_ROWS,
    .takes_narrow = true,
    .makes_narrow = true,
    .makes_narrow_dx = true,
    .plan = plan_swiglu,
    .forward = swiglu_forward,
    .input_gradient = swiglu_gradient,
};
