// SPDX-License-Identifier: Apache-2.0
//
// Convolution with a square window: W (O, I / groups, kernel, kernel), b (O).

#include "base/alloc.h"
#include "base/fail.h"
#include "nn/compute_conv.h"
#include "nn/few_channels.h"
#include "nn/layer.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WEIGHT, BIAS, N_PARAMS };

// Both parameters' gradients come out of one call; the bias's waits here.
typedef struct conv_state {
    cadre_layer_state base;
    cadre_conv_options options;
    cadre_conv *conv;
    float bias_grad[];
} conv_state;

static conv_state *as_conv(cadre_layer_state *state)
{
    return (conv_state *)state;
}

// For larger windows the compute library has fast code only for plain images.
// Measured (oneDNN 2.6.3, AVX2, one thread, 3 > 96 channels, 11 x 11, 4 images
// of 67 x 67): forward 5009 ms to blocks, 1.6 to plain ones.  So it is with the
// weights' gradient of dilated windows.
static bool wants_plain(const cadre_layer *layer)
{
    return layer->kernel > 7 || layer->dilation > 1;
}

static int64_t input_block(const cadre_layer *layer, cadre_shape in)
{
    return wants_plain(layer) ? 1 : cadre_conv_input_block(in, layer->groups);
}

static bool has_few_channels(const cadre_layer_plan *plan)
{
    const cadre_conv_options options = {
        .in = plan->in, .out = plan->out, .groups = plan->groups};
    return cadre_few_channels(&options);
}

static cadre_status plan_conv(const cadre_layer *layer, cadre_layer_plan *plan)
{
    enum { MOST_CHANNELS = 1 << 16 }; // so that no size overflows
    if (layer->width < 1 || layer->width > MOST_CHANNELS ||
        plan->in.channels > MOST_CHANNELS) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "conv2d from %lld to %lld: 1 to %d channels are possible",
            (long long)plan->in.channels, (long long)layer->width,
            (int)MOST_CHANNELS);
    }
    plan->groups = layer->groups == 0 ? 1 : layer->groups;
    if (plan->groups < 1 || plan->in.channels % plan->groups != 0 ||
        layer->width % plan->groups != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "conv2d from %lld to %lld channels in %lld groups: each needs the "
            "same part of both",
            (long long)plan->in.channels, (long long)layer->width,
            (long long)plan->groups);
    }
    plan->n_params = layer->no_bias ? BIAS : N_PARAMS;
    plan->dilation = layer->dilation == 0 ? 1 : layer->dilation;
    plan->deviation = layer->deviation;
    plan->kernel = layer->kernel;
    plan->stride = layer->stride == 0 ? 1 : layer->stride;
    plan->padding = layer->padding;
    plan->out.channels = layer->width;
    plan->out.block = wants_plain(layer) ? 1 : cadre_compute_block();
    plan->wide_gradient = has_few_channels(plan);
    return cadre_layer_slide(plan);
}

static void describe(
    const cadre_layer_plan *plan, int i, cadre_net_param *param)
{
    param->shape[0] = plan->out.channels;
    param->shape[1] = plan->in.channels / plan->groups;
    param->shape[2] = plan->kernel;
    param->shape[3] = plan->kernel;
    param->n_dims = i == WEIGHT ? 4 : 1;
    int64_t fan_in = param->shape[1] * plan->kernel * plan->kernel;
    if (plan->deviation > 0) {
        param->init_deviation = i == WEIGHT ? plan->deviation : 0.0f;
    } else {
        param->init_bound = (float)(1.0 / sqrt((double)fan_in));
    }
    snprintf(param->name, sizeof(param->name), "%s.%s", plan->name,
        i == WEIGHT ? "weight" : "bias");
}

static void release(cadre_layer_state *state)
{
    if (state != NULL) {
        cadre_conv_destroy(as_conv(state)->conv);
        cadre_free(state);
    }
}

// A net's samples lie close together; what layers make lies as activations do,
// and so do samples that were rounded.
static int64_t x_stride(const cadre_layer_plan *plan)
{
    bool samples = plan->number == 0 && plan->in.block == 1 && !plan->bf16;
    return samples ? cadre_shape_columns(plan->in)
                   : cadre_shape_stride(plan->in);
}

static cadre_status prepare(
    const cadre_layer_plan *plan, int64_t n_samples, cadre_layer_state **out)
{
    conv_state *state = cadre_alloc_flex(sizeof(*state),
        (size_t)plan->out.channels, sizeof(state->bias_grad[0]));
    if (state == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    state->options = (cadre_conv_options){
        .n_samples = n_samples,
        .in = plan->in,
        .x_stride = x_stride(plan),
        .out = plan->out,
        .kernel = plan->kernel,
        .stride = plan->stride,
        .padding = plan->padding,
        .dilation = plan->dilation,
        .groups = plan->groups,
        .bias = plan->n_params > BIAS,
        .relu = plan->then_relu,
        .param_gradients = !plan->wide_gradient,
        .input_gradient = plan->passes_down,
        .bf16 = plan->bf16,
    };
    cadre_status status = cadre_conv_create(&state->options, &state->conv);
    if (status != CADRE_OK) {
        release(&state->base);
        return status;
    }
    state->base.scratch = cadre_conv_scratch(state->conv);
    if (plan->wide_gradient &&
        state->base.scratch < cadre_few_channels_scratch(&state->options)) {
        state->base.scratch = cadre_few_channels_scratch(&state->options);
    }
    *out = &state->base;
    return CADRE_OK;
}

static const void *images(const cadre_layer_call *call)
{
    return call->plan->bf16 ? (const void *)call->narrow_x.data : call->x.data;
}

static const void *gradients(const cadre_layer_call *call)
{
    return call->plan->bf16 ? (const void *)call->narrow_dy.data
                            : call->dy.data;
}

static cadre_status forward(const cadre_layer_call *call, cadre_matrix y)
{
    const float *bias = call->plan->n_params > BIAS ? call->params[BIAS] : NULL;
    return cadre_conv_forward(as_conv(call->state)->conv, images(call),
        call->params[WEIGHT], bias, y.data, call->scratch);
}

static cadre_status param_gradient(
    const cadre_layer_call *call, int i, float *grad)
{
    conv_state *state = as_conv(call->state);
    if (i == BIAS) {
        memcpy(grad, state->bias_grad,
            (size_t)call->plan->out.channels * sizeof(*grad));
        return CADRE_OK;
    }
    if (call->plan->wide_gradient) {
        float *bias = state->options.bias ? state->bias_grad : NULL;
        cadre_few_channels_gradients(
            &state->options, call->x, call->dy.data, grad, bias, call->scratch);
        return CADRE_OK;
    }
    return cadre_conv_param_gradients(state->conv, images(call),
        gradients(call), grad, state->bias_grad, call->scratch);
}

static cadre_status input_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    return cadre_conv_input_gradient(as_conv(call->state)->conv,
        call->params[WEIGHT], gradients(call), dx.data, call->scratch);
}

const cadre_layer_ops cadre_conv2d = {
    .kind = "conv2d",
    .takes = CADRE_TAKES_WIDTH | CADRE_TAKES_WINDOW | CADRE_TAKES_FILTER |
             CADRE_TAKES_NO_BIAS | CADRE_TAKES_DEVIATION,
    .on = CADRE_ON_IMAGES,
    .n_params = N_PARAMS,
    .multiplies = true,
    .takes_relu = true,
    .input_block = input_block,
    .plan = plan_conv,
    .param = describe,
    .prepare = prepare,
    .release = release,
    .forward = forward,
    .param_gradient = param_gradient,
    .input_gradient = input_gradient,
};
