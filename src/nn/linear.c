// SPDX-License-Identifier: Apache-2.0
//
// "linear": y = x W^T + b, with W (O, I) and b (O), or without b.  An image is taken as a row
// of its elements.
//
// "unembedding": y = x W^T, with the weight W (O, I) of an embedding.
//
// Memory:  a state has what bf16 products are made of, if they are wanted.
// Threads: one at a time per state.

#include "base/alloc.h"
#include "base/fail.h"
#include "nn/compute.h"
#include "nn/compute_bf16.h"
#include "nn/layer.h"
#include "nn/row_add.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WEIGHT, BIAS, N_PARAMS };

typedef enum product {
    FORWARD,
    WEIGHT_GRADIENT,
    INPUT_GRADIENT,
    N_PRODUCTS
} product;

// With bf16 the scratch is for the rounded weights, and behind them the product.
typedef struct linear_state {
    cadre_layer_state base;
    cadre_bf16_product *products[N_PRODUCTS]; // NULL: plain f32
} linear_state;

static int64_t inputs(const cadre_layer_plan *plan)
{
    return cadre_shape_elements(plan->in);
}

static void set_output(cadre_layer_plan *plan, int64_t width)
{
    int64_t in = inputs(plan);
    plan->out = (cadre_shape){width, 1, 1, 1, .tokens = plan->in.tokens};
    if (cadre_matrix_stride(in) != in) {
        plan->scratch = (size_t)(width * cadre_matrix_stride(in));
    }
}

static cadre_status plan_linear(
    const cadre_layer *layer, cadre_layer_plan *plan)
{
    enum { WIDEST = 1 << 24 }; // so that products of two fit any size type
    int64_t in = inputs(plan);
    if (layer->width < 1 || layer->width > WIDEST || in > WIDEST) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "linear from %lld to %lld: 1 to %d elements are possible",
            (long long)in, (long long)layer->width, (int)WIDEST);
    }
    plan->deviation = layer->deviation;
    plan->n_params = layer->no_bias ? BIAS : N_PARAMS;
    set_output(plan, layer->width);
    return CADRE_OK;
}

static cadre_status plan_unembedding(
    const cadre_layer *layer, cadre_layer_plan *plan)
{
    (void)layer;
    cadre_shape embedded = plan->tied->out;
    if (inputs(plan) != embedded.channels) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "unembedding of %lld channels, but '%s' makes %lld",
            (long long)inputs(plan), plan->tied->name,
            (long long)embedded.channels);
    }
    set_output(plan, plan->tied->vocabulary);
    return CADRE_OK;
}

static void describe(
    const cadre_layer_plan *plan, int i, cadre_net_param *param)
{
    param->shape[0] = plan->out.channels;
    param->shape[1] = inputs(plan);
    param->n_dims = i == WEIGHT ? 2 : 1;
    if (plan->deviation > 0) {
        param->init_deviation = i == WEIGHT ? plan->deviation : 0.0f;
    } else {
        param->init_bound = (float)(1.0 / sqrt((double)inputs(plan)));
    }
    snprintf(param->name, sizeof(param->name), "%s.%s", plan->name,
        i == WEIGHT ? "weight" : "bias");
}

static void release(cadre_layer_state *state)
{
    linear_state *own = (linear_state *)state;
    for (int i = 0; own != NULL && i < N_PRODUCTS; i++) {
        cadre_bf16_product_destroy(own->products[i]);
    }
    cadre_free(own);
}

// The weights with a stride that is kind to the cache, as a copy has them.
static int64_t weight_stride(const cadre_layer_plan *plan)
{
    return cadre_matrix_stride(inputs(plan));
}

// A product of whose result the library may round each row has the gap behind
// that for columns too, of weights and a bias of 0: it is faster without gaps.
static int64_t rounded_outputs(const cadre_layer_plan *plan)
{
    return plan->makes_narrow ? cadre_shape_stride(plan->out)
                              : plan->out.channels;
}

static bool has_bias(const cadre_layer_plan *plan)
{
    return plan->n_params > BIAS;
}

static size_t rounded_weight_floats(const cadre_layer_plan *plan)
{
    return cadre_narrow_floats(
        (size_t)(rounded_outputs(plan) * weight_stride(plan)));
}

// And behind them the bias, if it is added to what is rounded.
static size_t bias_floats(const cadre_layer_plan *plan)
{
    return plan->makes_narrow && has_bias(plan)
               ? (size_t)cadre_matrix_stride(rounded_outputs(plan))
               : 0;
}

static void want_scratch(
    const cadre_layer_plan *plan, linear_state *state, product which)
{
    size_t wanted = rounded_weight_floats(plan) + bias_floats(plan) +
                    cadre_bf16_product_scratch(state->products[which]);
    if (wanted > state->base.scratch) {
        state->base.scratch = wanted;
    }
}

static cadre_status prepare_product(const cadre_layer_plan *plan,
    linear_state *state, product which, cadre_bf16_factor a,
    cadre_bf16_factor b, cadre_matrix c)
{
    CADRE_TRY(
        cadre_bf16_product_create(a, b, c, false, &state->products[which]));
    want_scratch(plan, state, which);
    return CADRE_OK;
}

static cadre_status prepare_rounded(const cadre_layer_plan *plan,
    linear_state *state, product which, cadre_bf16_factor a,
    cadre_bf16_factor b, bool biased, cadre_narrow_matrix c)
{
    CADRE_TRY(cadre_bf16_product_create_rounded(
        a, b, biased, c, &state->products[which]));
    want_scratch(plan, state, which);
    return CADRE_OK;
}

static cadre_status prepare_forward(const cadre_layer_plan *plan,
    linear_state *state, cadre_narrow_view x, cadre_narrow_view w)
{
    const int64_t stride = cadre_shape_stride(plan->out);
    const cadre_bf16_factor a = {x, false};
    cadre_bf16_factor b = {w, true};
    b.matrix.rows = rounded_outputs(plan);
    return plan->makes_narrow
               ? prepare_rounded(plan, state, FORWARD, a, b, has_bias(plan),
                     (cadre_narrow_matrix){NULL, x.rows, b.matrix.rows, stride})
               : prepare_product(plan, state, FORWARD, a, b,
                     (cadre_matrix){NULL, x.rows, w.rows, stride});
}

static cadre_status prepare_input_gradient(const cadre_layer_plan *plan,
    linear_state *state, cadre_narrow_view dy, cadre_narrow_view w)
{
    const int64_t stride = cadre_shape_stride(plan->in);
    const cadre_bf16_factor a = {dy, false};
    const cadre_bf16_factor b = {w, false};
    return plan->narrow_dx
               ? prepare_rounded(plan, state, INPUT_GRADIENT, a, b, false,
                     (cadre_narrow_matrix){NULL, dy.rows, w.columns, stride})
               : prepare_product(plan, state, INPUT_GRADIENT, a, b,
                     (cadre_matrix){NULL, dy.rows, w.columns, stride});
}

static cadre_status prepare_products(
    const cadre_layer_plan *plan, int64_t n_samples, linear_state *state)
{
    const int64_t rows = n_samples * cadre_shape_rows(plan->in);
    const int64_t in = inputs(plan);
    const int64_t out = plan->out.channels;
    const int64_t x_stride = cadre_shape_stride(plan->in);
    const int64_t y_stride = cadre_shape_stride(plan->out);
    const cadre_narrow_view x = {NULL, rows, in, x_stride};
    const cadre_narrow_view dy = {NULL, rows, out, y_stride};
    const cadre_narrow_view w = {NULL, out, in, weight_stride(plan)};
    CADRE_TRY(prepare_forward(plan, state, x, w));
    CADRE_TRY(prepare_product(plan, state, WEIGHT_GRADIENT,
        (cadre_bf16_factor){dy, true}, (cadre_bf16_factor){x, false},
        (cadre_matrix){NULL, out, in, in}));
    return plan->passes_down ? prepare_input_gradient(plan, state, dy, w)
                             : CADRE_OK;
}

static cadre_status prepare(
    const cadre_layer_plan *plan, int64_t n_samples, cadre_layer_state **out)
{
    cadre_layer_state *state;
    CADRE_TRY(
        cadre_layer_state_create(plan, sizeof(linear_state), 0, 0, &state));
    if (plan->bf16) {
        cadre_status status =
            prepare_products(plan, n_samples, (linear_state *)state);
        if (status != CADRE_OK) {
            release(state);
            return status;
        }
    }
    *out = state;
    return CADRE_OK;
}

static float *products_scratch(const cadre_layer_call *call)
{
    return call->scratch + rounded_weight_floats(call->plan) +
           bias_floats(call->plan);
}

static cadre_status multiply_bf16(const cadre_layer_call *call, product which,
    const uint16_t *a, const uint16_t *b, float *c)
{
    return cadre_bf16_product_compute(
        ((linear_state *)call->state)->products[which], a, b, c,
        products_scratch(call));
}

// W (O, I)
static cadre_matrix_view weight(const cadre_layer_call *call)
{
    int64_t in = inputs(call->plan);
    return (cadre_matrix_view){
        call->params[WEIGHT], call->plan->out.channels, in, in};
}

static const uint16_t *rounded_weight(const cadre_layer_call *call)
{
    const cadre_matrix_view from = weight(call);
    const cadre_narrow_matrix to = {(void *)call->scratch, from.rows,
        from.columns, weight_stride(call->plan)};
    cadre_matrix_narrow(from, to);
    return to.data;
}

static cadre_status forward_product(
    const cadre_layer_call *call, cadre_matrix y)
{
    return call->plan->bf16
               ? multiply_bf16(call, FORWARD, call->narrow_x.data,
                     rounded_weight(call), y.data)
               : cadre_compute_product((cadre_factor){call->x, false},
                     (cadre_factor){weight(call), true}, y);
}

// The same, of rows whose gaps are columns too.
static cadre_status forward_rounded(const cadre_layer_call *call)
{
    const cadre_layer_plan *plan = call->plan;
    const int64_t out = plan->out.channels;
    const size_t gap = (size_t)(rounded_outputs(plan) - out);
    uint16_t *w = (void *)call->scratch;
    float *bias = call->scratch + rounded_weight_floats(plan);
    (void)rounded_weight(call);
    memset(w + out * weight_stride(plan), 0,
        gap * (size_t)weight_stride(plan) * sizeof(*w));
    if (has_bias(plan)) {
        memcpy(bias, call->params[BIAS], (size_t)out * sizeof(*bias));
        memset(bias + out, 0, gap * sizeof(*bias));
    }
    return cadre_bf16_product_compute_rounded(
        ((linear_state *)call->state)->products[FORWARD], call->narrow_x.data,
        w, bias, call->narrow_y.data, products_scratch(call));
}

static cadre_status forward(const cadre_layer_call *call, cadre_matrix y)
{
    if (call->plan->makes_narrow) {
        return forward_rounded(call);
    }
    CADRE_TRY(forward_product(call, y));

    const float *bias = has_bias(call->plan) ? call->params[BIAS] : NULL;
    for (int64_t n = 0; n < y.rows && bias != NULL; n++) {
        cadre_row_add(cadre_matrix_row(y, n), bias, y.columns);
    }
    return CADRE_OK;
}

// Sums down the columns, row by row, so that the order is fixed.
static void sum_rows(cadre_matrix_view m, float *sums)
{
    memcpy(sums, m.data, (size_t)m.columns * sizeof(*sums));
    for (int64_t n = 1; n < m.rows; n++) {
        cadre_row_add(sums, cadre_matrix_view_row(m, n), m.columns);
    }
}

static void sum_narrow_rows(cadre_narrow_view m, float *sums)
{
    memset(sums, 0, (size_t)m.columns * sizeof(*sums));
    for (int64_t n = 0; n < m.rows; n++) {
        cadre_row_add_bf16(sums, m.data + n * m.stride, m.columns);
    }
}

static cadre_status param_gradient(
    const cadre_layer_call *call, int i, float *grad)
{
    if (i == BIAS && call->plan->narrow_dy) {
        sum_narrow_rows(call->narrow_dy, grad);
        return CADRE_OK;
    }
    if (i == BIAS) {
        sum_rows(call->dy, grad);
        return CADRE_OK;
    }
    // dW (O, I) = dy^T x
    if (call->plan->bf16) {
        return multiply_bf16(call, WEIGHT_GRADIENT, call->narrow_dy.data,
            call->narrow_x.data, grad);
    }
    int64_t in = inputs(call->plan);
    return cadre_compute_product((cadre_factor){call->dy, true},
        (cadre_factor){call->x, false},
        (cadre_matrix){grad, call->plan->out.channels, in, in});
}

// The weights with a stride that is kind to the cache.  The product reads them
// down their columns, so a copy pays for itself: a third less time for 512 by
// 256 weights and 512 samples on an AVX2 processor.
static cadre_matrix_view padded_weight(const cadre_layer_call *call)
{
    cadre_matrix_view from = weight(call);
    if (call->plan->scratch == 0) {
        return from;
    }
    cadre_matrix to = {
        call->scratch, from.rows, from.columns, weight_stride(call->plan)};
    for (int64_t o = 0; o < from.rows; o++) {
        memcpy(cadre_matrix_row(to, o), cadre_matrix_view_row(from, o),
            (size_t)from.columns * sizeof(*to.data));
    }
    return cadre_matrix_read(to);
}

static cadre_status input_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    if (call->plan->narrow_dx) {
        const uint16_t *w = rounded_weight(call);
        return cadre_bf16_product_compute_rounded(
            ((linear_state *)call->state)->products[INPUT_GRADIENT],
            call->narrow_dy.data, w, NULL, call->narrow_dx.data,
            products_scratch(call));
    }
    return call->plan->bf16
               ? multiply_bf16(call, INPUT_GRADIENT, call->narrow_dy.data,
                     rounded_weight(call), dx.data)
               : cadre_compute_product((cadre_factor){call->dy, false},
                     (cadre_factor){padded_weight(call), false}, dx);
}

const cadre_layer_ops cadre_linear = {
    .kind = "linear",
    .takes = CADRE_TAKES_WIDTH | CADRE_TAKES_DEVIATION | CADRE_TAKES_NO_BIAS,
    .n_params = N_PARAMS,
    .multiplies = true,
    .makes_narrow = true,
    .takes_narrow_dy = true,
    .makes_narrow_dx = true,
    .scratch_is_late = true,
    .input_block = cadre_layer_plain_block,
    .plan = plan_linear,
    .param = describe,
    .prepare = prepare,
    .release = release,
    .forward = forward,
    .param_gradient = param_gradient,
    .input_gradient = input_gradient,
};

const cadre_layer_ops cadre_unembedding = {
    .kind = "unembedding",
    .takes = CADRE_TAKES_TIED,
    .n_params = 1,
    .multiplies = true,
    .scratch_is_late = true,
    .input_block = cadre_layer_plain_block,
    .plan = plan_unembedding,
    .prepare = prepare,
    .release = release,
    .forward = forward_product,
    .param_gradient = param_gradient,
    .input_gradient = input_gradient,
};
