// SPDX-License-Identifier: Apache-2.0

#include "nn/net.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/random.h"
#include "nn/plan.h"
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

static cadre_status copy_name(const char *name, cadre_layer_plan *plan)
{
    if (name == NULL) {
        return CADRE_OK;
    }
    if (strlen(name) >= sizeof(plan->name)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "its name is longer than %zu bytes", sizeof(plan->name) - 1);
    }
    snprintf(plan->name, sizeof(plan->name), "%s", name);
    return CADRE_OK;
}

static cadre_status plan_layer(
    cadre_net *net, int index, const cadre_layer *layer, int64_t in)
{
    cadre_layer_plan *plan = &net->layers[index];
    CADRE_TRY(cadre_layer_find(layer->kind, &plan->ops));
    CADRE_TRY(copy_name(layer->name, plan));
    for (int i = 0; i < index; i++) {
        if (plan->name[0] != '\0' &&
            strcmp(net->layers[i].name, plan->name) == 0) {
            return cadre_fail(
                CADRE_ERR_INVALID_ARG, "layer %d has the same name", i + 1);
        }
    }
    plan->in = in;
    CADRE_TRY(plan->ops->plan(layer, plan));

    plan->first_param = net->n_params;
    net->n_params += plan->ops->n_params;
    if (plan->ops->n_params > 0 && index < net->first_trained) {
        net->first_trained = index;
    }
    return CADRE_OK;
}

static cadre_status plan_layers(cadre_net *net, const cadre_layer *layers)
{
    int64_t width = net->input_width;
    for (int i = 0; i < net->n_layers; i++) {
        cadre_status status = plan_layer(net, i, &layers[i], width);
        if (status != CADRE_OK) {
            return at_layer(status, i, &layers[i]);
        }
        width = net->layers[i].out;
    }
    if (width != net->n_classes) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "the last layer has %lld outputs, but there are %lld classes",
            (long long)width, (long long)net->n_classes);
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
        for (int i = 0; i < plan->ops->n_params; i++) {
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

cadre_status cadre_net_create(const cadre_layer *layers, int n_layers,
    int64_t input_width, int64_t n_classes, cadre_net **out)
{
    if (layers == NULL || n_layers < 1 || input_width < 1 || n_classes < 1 ||
        n_classes > INT32_MAX) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "a net of %d layers from %lld elements to %lld classes makes no "
            "sense",
            n_layers, (long long)input_width, (long long)n_classes);
    }
    cadre_net *net = cadre_alloc_flex(
        sizeof(*net), (size_t)n_layers, sizeof(net->layers[0]));
    if (net == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    net->input_width = input_width;
    net->n_classes = n_classes;
    net->n_layers = n_layers;
    net->first_trained = n_layers;

    cadre_status status = plan_layers(net, layers);
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

int cadre_net_param_count(const cadre_net *net)
{
    return net->n_params;
}

const cadre_net_param *cadre_net_param_at(const cadre_net *net, int index)
{
    CADRE_ASSERT(index >= 0 && index < net->n_params);
    return &net->params[index];
}

void cadre_net_initialize(
    const cadre_net *net, uint64_t seed, int index, float *values)
{
    const cadre_net_param *param = cadre_net_param_at(net, index);
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
