// SPDX-License-Identifier: Apache-2.0

#include "nn/owners.h"

cadre_owner cadre_output_owner(const cadre_net *net, int layer)
{
    while (layer > 0) {
        const cadre_layer_plan *plan = &net->layers[layer];
        bool kept = net->layers[layer - 1].ops->keeps_output;
        if (plan->ops == &cadre_shortcut) {
            layer = plan->partner;
        } else if (plan->ops->in_place && (plan->ops->passes_on || !kept)) {
            layer--;
        } else {
            break;
        }
    }
    return (cadre_owner){layer, CADRE_BUFFER_OUTPUT};
}

static int add_behind(const cadre_net *net, int layer)
{
    while (net->layers[layer].ops != &cadre_add) {
        layer++;
    }
    return layer;
}

// True if the last layer's backward does not read the scores again, so that
// their gradient may be written over them.
static bool gives_up_scores(const cadre_net *net)
{
    const cadre_layer_ops *last = net->layers[net->n_layers - 1].ops;
    return !last->in_place && !last->keeps_output;
}

// Where the gradient of a layer's output lies, if none before an "add" is in the
// way.
static cadre_owner plain_gradient_owner(const cadre_net *net, int layer)
{
    while (layer + 1 < net->n_layers && net->layers[layer + 1].ops->in_place) {
        layer++;
    }
    return layer + 1 == net->n_layers && gives_up_scores(net)
               ? cadre_output_owner(net, layer)
               : (cadre_owner){layer, CADRE_BUFFER_GRADIENT};
}

// What an "add" leaves for later is the gradient of its output, which stays
// where it is if no layer writes over it before.
cadre_owner cadre_left_owner(const cadre_net *net, int add)
{
    const cadre_layer_ops *before = net->layers[add - 1].ops;
    return before->in_place || before == &cadre_shortcut
               ? (cadre_owner){add, CADRE_BUFFER_PAST}
               : plain_gradient_owner(net, add);
}

// A layer before a "shortcut" gets what the "add" behind that has left.
cadre_owner cadre_gradient_owner(const cadre_net *net, int layer)
{
    int last = layer;
    while (last + 1 < net->n_layers && net->layers[last + 1].ops->in_place) {
        last++;
    }
    bool before_shortcut = last + 1 < net->n_layers &&
                           net->layers[last + 1].ops == &cadre_shortcut;
    return before_shortcut ? cadre_left_owner(net, add_behind(net, last))
                           : plain_gradient_owner(net, layer);
}

cadre_owner cadre_past_owner(const cadre_net *net, int residual)
{
    int add = add_behind(net, residual);
    for (int l = residual + 1; l < add; l++) {
        if (net->layers[l].ops == &cadre_shortcut) {
            return cadre_gradient_owner(net, l);
        }
    }
    return cadre_left_owner(net, add);
}
