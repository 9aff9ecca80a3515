// SPDX-License-Identifier: Apache-2.0
//
// What attention in f32 and with bf16 products have in common: blocks of
// queries, the softmax of a row of scores, and its gradient.
//
// Letters: s scores of a query, p their softmax, D channels of a head.
//
// Threads: any.

#ifndef CADRE_NN_ATTENTION_H
#define CADRE_NN_ATTENTION_H

#include "nn/layer.h"

// Queries of a block: enough for a product to be fast, few enough that scores
// of a thousand keys stay in the second cache.  In bf16 blocks of 32 take a tenth
// longer, and so do those of 128, which compute more that no query sees.
enum { CADRE_ATTENTION_BLOCK = 64 };

/** p = e^(s * scale - top) * share. */
typedef struct cadre_softmax_row {
    float top;
    float share;
} cadre_softmax_row;

/** The keys that the queries of a block meet. */
typedef struct cadre_met_keys {
    int64_t n;
    int64_t seen;        // of them, the first, by the first query; and so many
    int64_t more;        // more by each that follows, but for those hidden:
    const float *tokens; // CADRE_NO_TOKEN is; NULL if none is
    float scale;         // of scores
} cadre_met_keys;

/** Those of the queries from one on, in a block that meets n_keys. */
cadre_met_keys cadre_attention_keys(const cadre_layer_plan *plan, int64_t query,
    int64_t n_keys, const float *tokens);

/** The first n tokens of text i, if a key is hidden there; else NULL. */
const float *cadre_attention_hiding_tokens(
    const cadre_layer_call *call, int64_t i, int64_t n);

/**
 * The scores of queries, a row each, to p; s is written over.  p in bf16 has the
 * stride of s.
 */
void cadre_attention_softmax(
    cadre_matrix s, cadre_met_keys keys, cadre_softmax_row *rows);
void cadre_attention_softmax_bf16(
    cadre_matrix s, cadre_met_keys keys, cadre_softmax_row *rows, uint16_t *p);

/**
 * The same p again, and dp to ds = p (dp - dp p) * scale.  dp p is that of the
 * whole row, which y dy is as well; of y in bf16 it would not quite be.
 */
void cadre_attention_softmax_gradient(cadre_matrix s, cadre_matrix dp,
    cadre_met_keys keys, const cadre_softmax_row *rows, cadre_matrix_view y,
    cadre_matrix_view dy);
void cadre_attention_softmax_gradient_bf16(cadre_matrix s, cadre_matrix dp,
    cadre_met_keys keys, const cadre_softmax_row *rows, uint16_t *p,
    uint16_t *ds);

static inline bool cadre_attention_is_causal(const cadre_layer_plan *plan)
{
    return plan->ops == &cadre_causal_attention;
}

/** D */
static inline int64_t cadre_attention_depth(const cadre_layer_plan *plan)
{
    return plan->out.channels / plan->heads;
}

#endif // CADRE_NN_ATTENTION_H
