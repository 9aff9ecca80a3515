// SPDX-License-Identifier: Apache-2.0
//
// What a net consists of, for the files that walk through it.

#ifndef CADRE_NN_PLAN_H
#define CADRE_NN_PLAN_H

#include "nn/layer.h"
#include "nn/net.h"

struct cadre_net {
    cadre_shape input;
    int64_t n_classes;
    int n_layers; // those put between the user's included
    int n_params;
    int open_residual;    // while planning: not closed by an "add" yet, or -1
    int open_shortcut;    // of it, or -1
    int first_trained;    // the first layer with parameters; n_layers if none
    size_t largest_param; // elements
    bool bf16;            // products of bf16, and activations for backward
    cadre_net_param *params;   // n_params of them
    cadre_layer_plan layers[]; // n_layers of them
};

/** Whether the net's samples are numbers of tokens. */
static inline bool cadre_net_embeds(const cadre_net *net)
{
    return net->layers[0].ops == &cadre_embedding;
}

#endif // CADRE_NN_PLAN_H
