// SPDX-License-Identifier: Apache-2.0

#include "kernel/bits.h"
#include "nn/attention.h"
#include "nn/exp.h"
#include "nn/lanes.h"
#include <float.h>
#include <math.h>

cadre_met_keys cadre_attention_keys(const cadre_layer_plan *plan, int64_t query,
    int64_t n_keys, const float *tokens)
{
    return (cadre_met_keys){
        .n = n_keys,
        .seen = cadre_attention_is_causal(plan) ? query + 1 : n_keys,
        .tokens = tokens,
        .scale = 1.0f / sqrtf((float)cadre_attention_depth(plan)),
    };
}

const float *cadre_attention_hiding_tokens(
    const cadre_layer_call *call, int64_t i, int64_t n)
{
    if (call->tokens == NULL) {
        return NULL;
    }
    const float *tokens = call->tokens + i * call->plan->in.tokens;
    for (int64_t t = 0; t < n; t++) {
        if (tokens[t] < 0.0f) {
            return tokens;
        }
    }
    return NULL;
}

// Sets the scores of keys at CADRE_NO_TOKEN.
CADRE_VECTOR_BODY void hide(float *restrict s, cadre_met_keys keys, float value)
{
    const float *restrict tokens = keys.tokens;
    if (tokens != NULL) {
        for (int64_t i = 0; i < keys.seen; i++) {
            s[i] = tokens[i] < 0.0f ? value : s[i];
        }
    }
}

CADRE_VECTOR_BODY void softmax_body(
    float *restrict s, cadre_met_keys keys, cadre_softmax_row *row)
{
    hide(s, keys, -FLT_MAX);
    float top = cadre_lanes_max(s, keys.seen) * keys.scale;
    for (int64_t i = 0; i < keys.seen; i++) {
        s[i] = cadre_exp(s[i] * keys.scale - top);
    }
    hide(s, keys, 0.0f);
    float sum = cadre_lanes_sum(s, keys.seen);
    float share = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (int64_t i = 0; i < keys.seen; i++) {
        s[i] *= share;
    }
    for (int64_t i = keys.seen; i < keys.n; i++) {
        s[i] = 0.0f;
    }
    *row = (cadre_softmax_row){top, share};
}
CADRE_VECTOR(softmax,
    (float *restrict s, cadre_met_keys keys, cadre_softmax_row *row),
    (s, keys, row));

CADRE_VECTOR_BODY void round_body(
    uint16_t *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = cadre_bf16_of_f32(from[i]);
    }
}

CADRE_VECTOR_BODY void softmax_bf16_body(float *restrict s, cadre_met_keys keys,
    cadre_softmax_row *row, uint16_t *restrict p)
{
    softmax_body(s, keys, row);
    round_body(p, s, keys.n);
}
CADRE_VECTOR(softmax_bf16,
    (float *restrict s, cadre_met_keys keys, cadre_softmax_row *row,
        uint16_t *restrict p),
    (s, keys, row, p));

// p again, of scores.
CADRE_VECTOR_BODY void share_again(
    float *restrict s, cadre_met_keys keys, cadre_softmax_row row)
{
    for (int64_t i = 0; i < keys.seen; i++) {
        s[i] = cadre_exp(s[i] * keys.scale - row.top) * row.share;
    }
    hide(s, keys, 0.0f);
    for (int64_t i = keys.seen; i < keys.n; i++) {
        s[i] = 0.0f;
    }
}

CADRE_VECTOR_BODY void to_score_gradient(float *restrict dp,
    const float *restrict p, cadre_met_keys keys, float dp_p)
{
    for (int64_t i = 0; i < keys.seen; i++) {
        dp[i] = p[i] * (dp[i] - dp_p) * keys.scale;
    }
    hide(dp, keys, 0.0f);
    for (int64_t i = keys.seen; i < keys.n; i++) {
        dp[i] = 0.0f;
    }
}

CADRE_VECTOR_BODY void softmax_gradient_body(float *restrict s,
    float *restrict dp, cadre_met_keys keys, cadre_softmax_row row,
    const float *restrict y, const float *restrict dy, int64_t depth)
{
    share_again(s, keys, row);
    to_score_gradient(dp, s, keys, cadre_lanes_dot(y, dy, 0.0f, depth));
}
CADRE_VECTOR(softmax_gradient,
    (float *restrict s, float *restrict dp, cadre_met_keys keys,
        cadre_softmax_row row, const float *restrict y,
        const float *restrict dy, int64_t depth),
    (s, dp, keys, row, y, dy, depth));

CADRE_VECTOR_BODY void softmax_gradient_bf16_body(float *restrict s,
    float *restrict dp, cadre_met_keys keys, cadre_softmax_row row,
    uint16_t *restrict p, uint16_t *restrict ds)
{
    share_again(s, keys, row);
    to_score_gradient(dp, s, keys, cadre_lanes_dot(s, dp, 0.0f, keys.seen));
    round_body(p, s, keys.n);
    round_body(ds, dp, keys.n);
}
CADRE_VECTOR(softmax_gradient_bf16,
    (float *restrict s, float *restrict dp, cadre_met_keys keys,
        cadre_softmax_row row, uint16_t *restrict p, uint16_t *restrict ds),
    (s, dp, keys, row, p, ds));

void cadre_attention_softmax(
    float *s, cadre_met_keys keys, cadre_softmax_row *row)
{
    softmax[cadre_isa_in_use()](s, keys, row);
}

void cadre_attention_softmax_bf16(
    float *s, cadre_met_keys keys, cadre_softmax_row *row, uint16_t *p)
{
    softmax_bf16[cadre_isa_in_use()](s, keys, row, p);
}

void cadre_attention_softmax_gradient(float *s, float *dp, cadre_met_keys keys,
    cadre_softmax_row row, const float *y, const float *dy, int64_t depth)
{
    softmax_gradient[cadre_isa_in_use()](s, dp, keys, row, y, dy, depth);
}

void cadre_attention_softmax_gradient_bf16(float *s, float *dp,
    cadre_met_keys keys, cadre_softmax_row row, uint16_t *p, uint16_t *ds)
{
    softmax_gradient_bf16[cadre_isa_in_use()](s, dp, keys, row, p, ds);
}
