// SPDX-License-Identifier: Apache-2.0
//
// y = x / (2 + 1e-4 S)^0.75, S the sum of squares over 5 neighbouring channels
// at the same place: Krizhevsky, Sutskever, Hinton, "ImageNet Classification
// with Deep Convolutional Neural Networks", 2012, with their numbers.
//
// Images lie plain, so that a channel is a row of pixels.  The power is made of
// square roots: s^0.75 is sqrt(s) sqrt(sqrt(s)).
//
// Letters: s is 2 + 1e-4 S.
//
// Memory:  scratch for s, and for what channels give to their neighbours, of
//          one sample; computed again in backward.
// Threads: any.

#include "kernel/vector.h"
#include "nn/layer.h"
#include <math.h>

enum { SIDE = 2 }; // neighbours on each side

static const float alpha = 1e-4f;
static const float beta = 0.75f;

static cadre_status plan_norm(const cadre_layer *layer, cadre_layer_plan *plan)
{
    (void)layer;
    plan->out = plan->in;
    plan->scratch = 2 * (size_t)cadre_shape_columns(plan->in);
    return CADRE_OK;
}

// A sample's extents.
typedef struct extents {
    int64_t channels;
    int64_t pixels;
} extents;

static extents extents_of(const cadre_layer_plan *plan)
{
    return (extents){plan->in.channels, plan->in.height * plan->in.width};
}

// The neighbours of channel c, itself included.
typedef struct range {
    int64_t first;
    int64_t end;
} range;

CADRE_VECTOR_BODY range around(extents e, int64_t c)
{
    return (range){c < SIDE ? 0 : c - SIDE,
        c + SIDE + 1 < e.channels ? c + SIDE + 1 : e.channels};
}

// s of each element, in the order of channels.
CADRE_VECTOR_BODY void find_scales(
    extents e, const float *restrict x, float *restrict s)
{
    for (int64_t c = 0; c < e.channels; c++) {
        float *to = s + c * e.pixels;
        const range r = around(e, c);
        for (int64_t p = 0; p < e.pixels; p++) {
            to[p] = 0.0f;
        }
        for (int64_t j = r.first; j < r.end; j++) {
            const float *from = x + j * e.pixels;
            for (int64_t p = 0; p < e.pixels; p++) {
                to[p] += from[p] * from[p];
            }
        }
        for (int64_t p = 0; p < e.pixels; p++) {
            to[p] = 2.0f + alpha * to[p];
        }
    }
}

CADRE_VECTOR_BODY float power(float s)
{
    float root = sqrtf(s);
    return root * sqrtf(root);
}

CADRE_VECTOR_BODY void normalise_body(
    extents e, const float *restrict x, float *restrict s, float *restrict y)
{
    find_scales(e, x, s);
    for (int64_t i = 0; i < e.channels * e.pixels; i++) {
        y[i] = x[i] / power(s[i]);
    }
}
CADRE_VECTOR(normalise,
    (extents e, const float *restrict x, float *restrict s, float *restrict y),
    (e, x, s, y));

// dx = dy s^-0.75 - 2 alpha beta x times the sum of dy x s^-1.75 over the
// neighbours.
CADRE_VECTOR_BODY void descend_body(extents e, const float *restrict x,
    const float *restrict dy, float *restrict s, float *restrict given,
    float *restrict dx)
{
    const float factor = 2.0f * alpha * beta;
    find_scales(e, x, s);
    for (int64_t i = 0; i < e.channels * e.pixels; i++) {
        dx[i] = dy[i] / power(s[i]);
        given[i] = dx[i] * x[i] / s[i];
    }
    for (int64_t c = 0; c < e.channels; c++) {
        const range r = around(e, c);
        for (int64_t j = r.first; j < r.end; j++) {
            const float *from = given + j * e.pixels;
            for (int64_t p = 0; p < e.pixels; p++) {
                int64_t i = c * e.pixels + p;
                dx[i] -= factor * x[i] * from[p];
            }
        }
    }
}
CADRE_VECTOR(descend,
    (extents e, const float *restrict x, const float *restrict dy,
        float *restrict s, float *restrict given, float *restrict dx),
    (e, x, dy, s, given, dx));

static cadre_status forward(const cadre_layer_call *call, cadre_matrix y)
{
    for (int64_t n = 0; n < y.rows; n++) {
        normalise[cadre_isa_in_use()](extents_of(call->plan),
            cadre_matrix_view_row(call->x, n), call->scratch,
            cadre_matrix_row(y, n));
    }
    return CADRE_OK;
}

static cadre_status input_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    float *given = call->scratch + call->plan->scratch / 2;
    for (int64_t n = 0; n < dx.rows; n++) {
        descend[cadre_isa_in_use()](extents_of(call->plan),
            cadre_matrix_view_row(call->x, n),
            cadre_matrix_view_row(call->dy, n), call->scratch, given,
            cadre_matrix_row(dx, n));
    }
    return CADRE_OK;
}

const cadre_layer_ops cadre_local_response_norm = {
    .kind = "local_response_norm",
    .on = CADRE_ON_IMAGES,
    .input_block = cadre_layer_plain_block,
    .plan = plan_norm,
    .forward = forward,
    .input_gradient = input_gradient,
};
