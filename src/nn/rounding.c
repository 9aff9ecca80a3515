// SPDX-License-Identifier: Apache-2.0

#include "nn/rounding.h"

#include "nn/owners.h"

static cadre_layer_plan *owner_of(cadre_net *net, int layer)
{
    return &net->layers[cadre_output_owner(net, layer).layer];
}

// What goes past layers is a sum over all of them, to which each adds little: it
// is rounded for products alone.
static bool goes_past_layers(const cadre_net *net, int layer)
{
    return net->layers[layer].ops == &cadre_add ||
           (layer + 1 < net->n_layers &&
               net->layers[layer + 1].ops == &cadre_shortcut);
}

// What is wanted in bf16: what products read, and what backward reads.
static void find_narrow(cadre_net *net)
{
    for (int l = 0; l < net->n_layers; l++) {
        const cadre_layer_plan *plan = &net->layers[l];
        const bool goes_back = l >= net->first_trained;
        const bool reads = l > 0 && goes_back && cadre_reads_input(plan) &&
                           !goes_past_layers(net, l - 1);
        if (l > 0 && (plan->bf16 || reads)) {
            owner_of(net, l - 1)->narrow = true;
        }
        if (goes_back && cadre_reads_output(plan)) {
            owner_of(net, l)->narrow = true;
        }
    }
    for (int l = 0; l < net->n_layers; l++) {
        cadre_layer_plan *plan = &net->layers[l];
        plan->narrow = owner_of(net, l)->narrow;
        plan->takes_narrow =
            plan->ops->takes_narrow && l > 0 && owner_of(net, l - 1)->narrow;
    }
}

// The last layer that writes to its output's memory completes that.
static void find_last(cadre_net *net)
{
    for (int l = 0; l < net->n_layers; l++) {
        cadre_layer_plan *plan = &net->layers[l];
        const bool goes_on = l + 1 < net->n_layers &&
                             net->layers[l + 1].ops->in_place &&
                             owner_of(net, l + 1) == owner_of(net, l);
        plan->narrows =
            plan->narrow && !goes_on && plan->ops != &cadre_shortcut;
    }
}

// Of these, what forward neither reads in f32 nor writes to once more.
static void find_narrow_alone(cadre_net *net)
{
    for (int l = 0; l < net->n_layers; l++) {
        cadre_layer_plan *plan = &net->layers[l];
        plan->makes_narrow = plan->ops->makes_narrow && plan->narrows &&
                             cadre_reads_narrow(plan) && l + 1 < net->n_layers;
    }
    for (int l = 1; l < net->n_layers; l++) {
        const cadre_layer_plan *plan = &net->layers[l];
        if (owner_of(net, l) != plan) {
            owner_of(net, l)->makes_narrow = false;
        }
        if (cadre_reads_wide(plan)) {
            owner_of(net, l - 1)->makes_narrow = false;
        }
        if (plan->ops == &cadre_add) {
            owner_of(net, plan->partner)->makes_narrow = false;
        }
    }
}

// Gradients that products alone read, and that what is behind them makes for no
// other layer.
static void find_narrow_gradients(cadre_net *net)
{
    for (int l = 0; l + 1 < net->n_layers; l++) {
        cadre_layer_plan *plan = &net->layers[l];
        cadre_layer_plan *next = &net->layers[l + 1];
        plan->narrow_dy = plan->ops->takes_narrow_dy && plan->bf16 &&
                          next->ops->makes_narrow_dx &&
                          cadre_reads_narrow(next) && next->passes_down;
        next->narrow_dx = plan->narrow_dy;
    }
}

void cadre_rounding_plan(cadre_net *net)
{
    find_narrow(net);
    find_last(net);
    find_narrow_alone(net);
    find_narrow_gradients(net);
}
