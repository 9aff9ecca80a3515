// SPDX-License-Identifier: Apache-2.0

#include "nn/net.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/random.h"
#include "nn/plan.h"
#include "nn/rounding.h"
#include <stdio.h>
#include <string.h>

// Puts in front of a failure which layer it is about.
static cadre_status at_layer(
    cadre_status status, int index, const cadre_layer *layer)
{
    return cadre_fail(status, "layer %d%s%s: %s", index + 1,
        layer->name == NULL ? "" : " ", layer->name == NULL ? "" : layer->name,
        cadre_error_text());
}

static cadre_status copy_name(
    const cadre_net *net, const char *name, cadre_layer_plan *plan)
{
    if (name == NULL) {
        return CADRE_OK;
    }
    if (strlen(name) >= sizeof(plan->name)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "its name is longer than %zu bytes", sizeof(plan->name) - 1);
    }
    snprintf(plan->name, sizeof(plan->name), "%s", name);
    for (int i = 0; i < net->n_layers; i++) {
        const cadre_layer_plan *other = &net->layers[i];
        if (plan->name[0] != '\0' && strcmp(other->name, plan->name) == 0) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "layer %d has the same name", other->number + 1);
        }
    }
    return CADRE_OK;
}

// What the layer that is planned next will read.
static cadre_shape shape_so_far(const cadre_net *net)
{
    return net->n_layers == 0 ? net->input : net->layers[net->n_layers - 1].out;
}

static void put_relayout(cadre_net *net, int64_t block)
{
    cadre_layer_plan *plan = &net->layers[net->n_layers];
    plan->ops = &cadre_relayout;
    plan->number = -1;
    plan->in = shape_so_far(net);
    plan->out = plan->in;
    plan->out.block = block;
    plan->first_param = net->n_params;
    net->n_layers++;
}

// A ReLU costs nothing where its predecessor does it as it writes its output.
static void merge_relu(cadre_net *net, cadre_layer_plan *plan)
{
    if (plan->ops != &cadre_relu || net->n_layers == 0) {
        return;
    }
    cadre_layer_plan *before = &net->layers[net->n_layers - 1];
    before->then_relu = before->ops->takes_relu;
    plan->done = before->then_relu;
    plan->masked = plan->done && before->ops->masks_gradient;
}

// Nor does its backward, where the layer behind it does that.
static void merge_mask(cadre_net *net, cadre_layer_plan *plan)
{
    if (!plan->ops->masks_input || net->n_layers == 0) {
        return;
    }
    cadre_layer_plan *before = &net->layers[net->n_layers - 1];
    plan->masks = before->ops == &cadre_relu && !before->masked;
    before->masked = before->masked || plan->masks;
}

// The layer whose output an "add" in this place adds, or -1.
static int added_by(const cadre_net *net)
{
    return net->open_shortcut >= 0 ? net->open_shortcut - 1
                                   : net->open_residual;
}

// The block that a layer in this place wants its input in.
static int64_t wanted_block(const cadre_net *net, const cadre_layer *layer,
    const cadre_layer_ops *ops, cadre_shape in)
{
    if (ops == &cadre_add && added_by(net) >= 0) {
        return net->layers[added_by(net)].out.block;
    }
    return ops->input_block == NULL ? in.block : ops->input_block(layer, in);
}

// An "add" closes the "residual" before it; there is one open at a time, and it
// may have a "shortcut".
static cadre_status pair_residual(cadre_net *net, cadre_layer_plan *plan)
{
    if (plan->ops == &cadre_residual) {
        if (net->open_residual >= 0) {
            return cadre_fail(
                CADRE_ERR_INVALID_ARG, "the residual before has no add yet");
        }
        net->open_residual = net->n_layers;
    } else if (plan->ops == &cadre_shortcut) {
        if (net->open_residual < 0 || net->open_shortcut >= 0) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "shortcut needs a residual before it that has none yet");
        }
        plan->partner = net->open_residual;
        plan->out = net->layers[plan->partner].out;
        net->open_shortcut = net->n_layers;
    } else if (plan->ops == &cadre_add) {
        if (net->open_residual < 0) {
            return cadre_fail(
                CADRE_ERR_INVALID_ARG, "add needs a residual before it");
        }
        plan->partner = added_by(net);
        net->open_residual = -1;
        net->open_shortcut = -1;
        cadre_shape past = net->layers[plan->partner].out;
        if (memcmp(&past, &plan->in, sizeof(past)) != 0) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "what is added has %lld channels of %lld x %lld, what it is "
                "added to %lld of %lld x %lld",
                (long long)plan->in.channels, (long long)plan->in.height,
                (long long)plan->in.width, (long long)past.channels,
                (long long)past.height, (long long)past.width);
        }
    }
    return CADRE_OK;
}

// Finds the embedding whose weight the layer uses as well.
static cadre_status tie(
    cadre_net *net, const cadre_layer *layer, cadre_layer_plan *plan)
{
    for (int i = 0; i < net->n_layers && layer->tied != NULL; i++) {
        cadre_layer_plan *other = &net->layers[i];
        if (other->ops == &cadre_embedding &&
            strcmp(other->name, layer->tied) == 0) {
            if (other->lends) {
                return cadre_fail(CADRE_ERR_INVALID_ARG,
                    "embedding '%s' is used by another unembedding",
                    layer->tied);
            }
            other->lends = true;
            plan->tied = other;
            plan->first_param = other->first_param;
            return CADRE_OK;
        }
    }
    return cadre_fail(CADRE_ERR_INVALID_ARG,
        "unembedding: tied has to name an embedding before it");
}

static cadre_status check_input(const cadre_layer_ops *ops, cadre_shape in)
{
    bool row = in.block == 1 && in.height * in.width == 1;
    if (ops->on == CADRE_ON_ROWS && !row) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%s works on rows of elements, and these are images", ops->kind);
    }
    if (ops->on == CADRE_ON_IMAGES && in.tokens > 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%s works on images, and this is text", ops->kind);
    }
    if (ops->on == CADRE_ON_TEXT && in.tokens == 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%s works on text, and this is none", ops->kind);
    }
    return CADRE_OK;
}

static cadre_status check_name(const cadre_layer_plan *plan)
{
    bool owns = plan->n_params > 0 && plan->tied == NULL;
    return !owns || plan->name[0] != '\0'
               ? CADRE_OK
               : cadre_fail(CADRE_ERR_INVALID_ARG,
                     "%s needs a name for its parameters", plan->ops->kind);
}

static cadre_status plan_layer(
    cadre_net *net, int number, const cadre_layer *layer)
{
    const cadre_layer_ops *ops;
    CADRE_TRY(cadre_layer_find(layer, &ops));
    cadre_shape in = shape_so_far(net);
    CADRE_TRY(check_input(ops, in));
    int64_t block = wanted_block(net, layer, ops, in);
    if (block != in.block) {
        put_relayout(net, block);
    }

    cadre_layer_plan *plan = &net->layers[net->n_layers];
    plan->ops = ops;
    plan->number = number;
    plan->in = shape_so_far(net);
    plan->first_param = net->n_params;
    plan->n_params = ops->n_params;
    CADRE_TRY(copy_name(net, layer->name, plan));
    CADRE_TRY(pair_residual(net, plan));
    if (ops == &cadre_unembedding) {
        CADRE_TRY(tie(net, layer, plan));
    }
    CADRE_TRY(check_name(plan));
    CADRE_TRY(ops->plan(layer, plan));
    merge_relu(net, plan);
    merge_mask(net, plan);

    net->n_params += plan->tied == NULL ? plan->n_params : 0;
    if (plan->n_params > 0 && net->n_layers < net->first_trained) {
        net->first_trained = net->n_layers;
    }
    net->n_layers++;
    return CADRE_OK;
}

static cadre_status plan_layers(
    cadre_net *net, const cadre_layer *layers, int n_layers)
{
    for (int i = 0; i < n_layers; i++) {
        cadre_status status = plan_layer(net, i, &layers[i]);
        if (status != CADRE_OK) {
            return at_layer(status, i, &layers[i]);
        }
    }
    if (shape_so_far(net).block != 1) {
        put_relayout(net, 1); // the loss reads plain rows
    }
    if (net->open_residual >= 0) {
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "the last residual has no add");
    }
    int64_t outputs = cadre_shape_elements(shape_so_far(net));
    if (outputs != net->n_classes) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the last layer has %lld outputs, but there are %lld classes",
            (long long)outputs, (long long)net->n_classes);
    }
    for (int l = net->first_trained + 1; l < net->n_layers; l++) {
        net->layers[l].passes_down = true;
    }
    return CADRE_OK;
}

static cadre_status describe_params(cadre_net *net)
{
    net->params =
        cadre_alloc_array((size_t)net->n_params, sizeof(*net->params));
    if (net->params == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    for (int l = 0; l < net->n_layers; l++) {
        const cadre_layer_plan *plan = &net->layers[l];
        for (int i = 0; i < plan->n_params && plan->tied == NULL; i++) {
            cadre_net_param *param = &net->params[plan->first_param + i];
            plan->ops->param(plan, i, param);
            param->count = 1;
            for (int d = 0; d < param->n_dims; d++) {
                param->count *= (size_t)param->shape[d];
            }
            if (param->count > net->largest_param) {
                net->largest_param = param->count;
            }
        }
    }
    return CADRE_OK;
}

static int64_t or_one(int64_t extent)
{
    return extent == 0 ? 1 : extent;
}

// A shape as its user writes it, in full.
static cadre_shape in_full(cadre_shape s)
{
    return (cadre_shape){or_one(s.channels), or_one(s.height), or_one(s.width),
        or_one(s.block), s.tokens};
}

static bool makes_sense(cadre_shape s)
{
    enum { MOST_TOKENS = 1 << 20 };
    enum { MOST = 1 << 24 }; // an extent; so that no product overflows
    const int64_t extents[] = {s.channels, s.height, s.width};
    int64_t elements = 1;
    for (int i = 0; i < 3; i++) {
        if (extents[i] < 1 || extents[i] > MOST ||
            elements > MOST / extents[i]) {
            return false;
        }
        elements *= extents[i];
    }
    return s.block == 1 && s.tokens >= 0 && s.tokens <= MOST_TOKENS &&
           (s.tokens == 0 || elements == 1);
}

cadre_status cadre_net_create(const cadre_layer *layers, int n_layers,
    cadre_shape input, int64_t n_classes, cadre_net **out)
{
    enum { MOST_LAYERS = 10000 };
    input = in_full(input);
    if (layers == NULL || n_layers < 1 || n_layers > MOST_LAYERS ||
        !makes_sense(input) || n_classes < 1 || n_classes > INT32_MAX) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "a net of %d layers from %lld x %lld x %lld elements to %lld "
            "classes makes no sense",
            n_layers, (long long)input.channels, (long long)input.height,
            (long long)input.width, (long long)n_classes);
    }
    // Room for a layer in front of each, and one at the end.
    cadre_net *net = cadre_alloc_flex(
        sizeof(*net), 2 * (size_t)n_layers + 1, sizeof(net->layers[0]));
    if (net == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    net->input = input;
    net->n_classes = n_classes;
    net->open_residual = -1;
    net->open_shortcut = -1;
    net->first_trained = 2 * n_layers + 1;

    cadre_status status = plan_layers(net, layers, n_layers);
    if (status == CADRE_OK) {
        status = describe_params(net);
    }
    if (status != CADRE_OK) {
        cadre_net_destroy(net);
        return status;
    }
    *out = net;
    return CADRE_OK;
}

void cadre_net_destroy(cadre_net *net)
{
    if (net != NULL) {
        cadre_free(net->params);
        cadre_free(net);
    }
}

// What an "add" makes is kept, and so is whatever shares its memory.
void cadre_net_recompute(cadre_net *net)
{
    bool inside = false;
    for (int l = 0; l < net->n_layers; l++) {
        const cadre_layer_ops *ops = net->layers[l].ops;
        inside = inside && ops != &cadre_add;
        net->layers[l].recomputed = inside;
        for (int k = l;
             ops == &cadre_add && k > 0 && net->layers[k].ops->in_place; k--) {
            net->layers[k - 1].recomputed = false;
        }
        inside = inside || ops == &cadre_residual;
    }
}

void cadre_net_use_bf16(cadre_net *net)
{
    net->bf16 = true;
    for (int l = 0; l < net->n_layers; l++) {
        net->layers[l].bf16 = net->layers[l].ops->multiplies;
    }
    cadre_rounding_plan(net);
}

int cadre_net_param_count(const cadre_net *net)
{
    return net->n_params;
}

const cadre_net_param *cadre_net_param_at(const cadre_net *net, int index)
{
    bool there = index >= 0 && index < net->n_params;
    return there ? &net->params[index] : NULL;
}

// Normal numbers are sums of twelve uniform ones, which have deviation 1: exact
// in whole numbers, and of no library's sines and logarithms.
static void fill_normal(
    const cadre_net_param *param, uint64_t seed, int index, float *values)
{
    enum { TERMS = 12, CALLS = TERMS / 4 };
    for (size_t i = 0; i < param->count; i++) {
        int64_t sum = 0; // in units of 2^-25, of uniform numbers around 0
        for (size_t c = 0; c < CALLS; c++) {
            uint32_t words[4];
            cadre_random_words(seed, CADRE_STREAM_INITIAL, (uint32_t)index,
                i * CALLS + c, words);
            for (int k = 0; k < 4; k++) {
                sum += 2 * (int64_t)(words[k] >> 8) + 1 - (1 << 24);
            }
        }
        values[i] = (float)sum * 0x1p-25f * param->init_deviation;
    }
}

static void fill_uniform(
    const cadre_net_param *param, uint64_t seed, int index, float *values)
{
    uint32_t words[4];
    for (size_t i = 0; i < param->count; i++) {
        if (i % 4 == 0) {
            cadre_random_words(
                seed, CADRE_STREAM_INITIAL, (uint32_t)index, i / 4, words);
        }
        // Exact up to the product, which rounds once.
        float unit = 2.0f * cadre_random_unit(words[i % 4]) - 1.0f;
        values[i] = unit * param->init_bound;
    }
}

void cadre_net_initialize(
    const cadre_net *net, uint64_t seed, int index, float *values)
{
    const cadre_net_param *param = cadre_net_param_at(net, index);
    if (param == NULL) {
        return;
    }
    if (param->init_deviation > 0) {
        fill_normal(param, seed, index, values);
    } else if (param->init_bound > 0) {
        fill_uniform(param, seed, index, values);
    } else {
        for (size_t i = 0; i < param->count; i++) {
            values[i] = param->init_value;
        }
    }
}
