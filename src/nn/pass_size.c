// SPDX-License-Identifier: Apache-2.0

#include "nn/pass_size.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "nn/plan.h"

static void release_states(const cadre_net *net, cadre_layer_state **states)
{
    for (int l = 0; l < net->n_layers && states != NULL; l++) {
        const cadre_layer_ops *ops = net->layers[l].ops;
        if (ops->release != NULL) {
            ops->release(states[l]);
        }
    }
    cadre_free(states);
}

void cadre_pass_size_release(const cadre_net *net, cadre_pass_size *size)
{
    release_states(net, size->states);
    cadre_free(size->training);
    cadre_free(size->predicting);
}

// Has each layer make what it needs for passes of n_samples, and say how much
// scratch it wants.
static cadre_status prepare_states(const cadre_net *net, int64_t n_samples,
    cadre_layer_state **states, size_t *scratch)
{
    for (int l = 0; l < net->n_layers; l++) {
        const cadre_layer_plan *plan = &net->layers[l];
        scratch[l] = plan->scratch;
        if (plan->ops->prepare != NULL) {
            CADRE_TRY(plan->ops->prepare(plan, n_samples, &states[l]));
            scratch[l] = states[l]->scratch;
        }
        scratch[l] += cadre_layer_row_room(plan);
    }
    return CADRE_OK;
}

static cadre_status plan_size(
    const cadre_net *net, size_t *scratch, cadre_pass_size *size)
{
    CADRE_TRY(prepare_states(net, size->n_samples, size->states, scratch));
    CADRE_TRY(cadre_places_create(
        net, size->n_samples, scratch, true, &size->training));
    return cadre_places_create(
        net, size->n_samples, scratch, false, &size->predicting);
}

cadre_status cadre_pass_size_make(
    const cadre_net *net, int64_t n_samples, cadre_pass_size *size)
{
    size->n_samples = n_samples;
    size_t n_layers = (size_t)net->n_layers;
    size->states = cadre_alloc_array(n_layers, sizeof(cadre_layer_state *));
    size_t *scratch = cadre_alloc_array(n_layers, sizeof(*scratch));
    cadre_status status = size->states != NULL && scratch != NULL
                              ? plan_size(net, scratch, size)
                              : CADRE_ERR_NO_MEMORY;
    cadre_free(scratch);
    if (status != CADRE_OK) {
        cadre_pass_size_release(net, size);
    }
    return status;
}
