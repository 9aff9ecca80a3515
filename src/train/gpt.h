// SPDX-License-Identifier: Apache-2.0
//
// The generative transformer of the recipes gpt-*: learned positions, blocks
// with layer norm before attention and before the multi-layer perceptron, and
// the embedding's weight again at the end.  Initial values are those of GPT-2,
// without its smaller ones for the ends of blocks.
//
// Threads: any.

#ifndef CADRE_TRAIN_GPT_H
#define CADRE_TRAIN_GPT_H

#include "nn/net.h"

typedef struct cadre_gpt {
    int layers;
    int width;
    int heads;
    int context;    // tokens of a text
    int vocabulary; // numbers that a token can have
} cadre_gpt;

/** Errors: CADRE_ERR_INVALID_ARG  names the key that makes no sense */
cadre_status cadre_gpt_check(const cadre_gpt *size);

/** Errors: as above, and those of a net */
cadre_status cadre_gpt_net(const cadre_gpt *size, cadre_net **out);

#endif // CADRE_TRAIN_GPT_H
