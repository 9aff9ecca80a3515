// SPDX-License-Identifier: Apache-2.0
//
// The transformers of recipes.  All begin with an embedding, go on with blocks
// of attention and a multi-layer perceptron, and end in scores of all tokens.
//
//   GPT    learned positions; blocks with layer norm before attention and before
//          the perceptron, GELU; the embedding's weight again at the end.
//   GPT-2  the same, and what ends a block begins smaller, the more blocks.
//   Llama  rotary positions, RMSNorm in the same places, a gated perceptron, no
//          biases, keys and values that heads share; a matrix of its own at the
//          end.
//   BERT   learned positions; tokens see the whole text; layer norm after what
//          is added, and once before the blocks; at the end one more layer, and
//          the embedding's weight.
//
// Initial weights are normal with deviation 0.02, as GPT-2's; there is no
// dropout.
//
// Threads: any.

#ifndef CADRE_TRAIN_TRANSFORMER_H
#define CADRE_TRAIN_TRANSFORMER_H

#include "nn/net.h"

typedef enum cadre_family {
    CADRE_GPT,
    CADRE_GPT2,
    CADRE_LLAMA,
    CADRE_BERT,
} cadre_family;

typedef struct cadre_transformer {
    cadre_family family;
    int layers;
    int width;
    int heads;
    int kv_heads;   // of k and v; 0: as many
    int context;    // tokens of a text
    int vocabulary; // numbers that a token can have
} cadre_transformer;

/** "gpt", "gpt2", "llama", "bert" */
const char *cadre_family_name(cadre_family family);

/** Errors: CADRE_ERR_INVALID_ARG  names the key that makes no sense */
cadre_status cadre_transformer_check(const cadre_transformer *size);

/** Errors: as above, and those of a net */
cadre_status cadre_transformer_net(
    const cadre_transformer *size, cadre_net **out);

#endif // CADRE_TRAIN_TRANSFORMER_H
