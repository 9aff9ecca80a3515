// SPDX-License-Identifier: Apache-2.0
//
// y = x P(x), with P the normal distribution: the exact GELU, not the one with
// the tangent.
//
// P comes with an error below 1.5e-7 from Abramowitz and Stegun, 7.1.26, whose
// exponential is the density, that backward needs as well.
//
// Threads: any.

#include "nn/exp.h"
#include "nn/layer.h"

// P(x); *bell gets e^(-x^2 / 2).
CADRE_VECTOR_BODY float normal(float x, float *bell)
{
    float size = x < 0.0f ? -x : x;
    float t = 1.0f / (1.0f + 0.3275911f * 0.70710678f * size);
    float e = cadre_exp_below(-0.5f * x * x);
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    float tail = 0.5f * (p * t) * e; // of the side that x is on
    *bell = e;
    return x < 0.0f ? tail : 1.0f - tail;
}

CADRE_VECTOR_BODY void forward_row_body(
    float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float bell;
        y[i] = x[i] * normal(x[i], &bell);
    }
}
CADRE_VECTOR(forward_row,
    (float *restrict y, const float *restrict x, int64_t n), (y, x, n));

CADRE_VECTOR_BODY void backward_row_body(float *restrict dx,
    const float *restrict x, const float *restrict dy, int64_t n)
{
    const float density = 0.39894228f; // of the normal distribution at 0
    for (int64_t i = 0; i < n; i++) {
        float bell;
        float p = normal(x[i], &bell);
        dx[i] = dy[i] * (p + x[i] * (density * bell));
    }
}
CADRE_VECTOR(backward_row,
    (float *restrict dx, const float *restrict x, const float *restrict dy,
        int64_t n),
    (dx, x, dy, n));

static cadre_status forward(const cadre_layer_call *call, cadre_matrix y)
{
    return cadre_layer_rows(call, forward_row[cadre_isa_in_use()], y);
}

static cadre_status input_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    return cadre_layer_rows_back(call, backward_row[cadre_isa_in_use()], dx);
}

const cadre_layer_ops cadre_gelu = {
    .kind = "gelu",
    .takes_narrow = true,
    .makes_narrow = true,
    .makes_narrow_dx = true,
    .plan = cadre_layer_plan_same,
    .forward = forward,
    .input_gradient = input_gradient,
};
