// SPDX-License-Identifier: Apache-2.0
//
// A few rows at once, step by step: what a row waits for, its top or its sum, a
// processor finds while it computes others.

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
        .more = cadre_attention_is_causal(plan) ? 1 : 0,
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

// Of a kernel's call, the rows that go step by step together: few enough that they
// stay in the first cache.
enum { TOGETHER = 8 };

CADRE_VECTOR_BODY cadre_met_keys of_row(cadre_met_keys keys, int64_t q)
{
    keys.seen += q * keys.more;
    return keys;
}

// How many keys of a row are computed with: those that are seen, and behind them
// what fills up their last lanes, so that none is left for scalar code.
CADRE_VECTOR_BODY int64_t whole_lanes(cadre_met_keys keys)
{
    int64_t whole = (keys.seen + CADRE_LANES - 1) / CADRE_LANES * CADRE_LANES;
    return whole < keys.n ? whole : keys.n;
}

// Sets the scores of keys at CADRE_NO_TOKEN, and of those in the last lanes that
// are not seen.
CADRE_VECTOR_BODY void hide(float *restrict s, cadre_met_keys keys, float value)
{
    const float *restrict tokens = keys.tokens;
    if (tokens != NULL) {
        for (int64_t i = 0; i < keys.seen; i++) {
            s[i] = tokens[i] < 0.0f ? value : s[i];
        }
    }
    // 32 bits, as wide as a score.
    const int32_t seen = (int32_t)keys.seen;
    const int32_t whole = (int32_t)whole_lanes(keys);
    for (int32_t i = seen / CADRE_LANES * CADRE_LANES; i < whole; i++) {
        s[i] = i < seen ? s[i] : value;
    }
}

CADRE_VECTOR_BODY void clear(float *restrict s, cadre_met_keys keys)
{
    for (int64_t i = whole_lanes(keys); i < keys.n; i++) {
        s[i] = 0.0f;
    }
}

// e^(s * scale - top)
CADRE_VECTOR_BODY void enter(float *restrict s, cadre_met_keys keys, float top)
{
    const int64_t whole = whole_lanes(keys);
    for (int64_t i = 0; i < whole; i++) {
        s[i] = cadre_exp_below(s[i] * keys.scale - top);
    }
    hide(s, keys, 0.0f);
}

CADRE_VECTOR_BODY void multiply(
    float *restrict s, cadre_met_keys keys, float share)
{
    const int64_t whole = whole_lanes(keys);
    for (int64_t i = 0; i < whole; i++) {
        s[i] *= share;
    }
}

// Rounds a row and sets what no query sees to 0.
CADRE_VECTOR_BODY void round_row(
    uint16_t *restrict to, const float *restrict from, cadre_met_keys keys)
{
    const int64_t whole = whole_lanes(keys);
    for (int64_t i = 0; i < whole; i++) {
        to[i] = cadre_bf16_of_f32(from[i]);
    }
    for (int64_t i = whole; i < keys.n; i++) {
        to[i] = 0;
    }
}

CADRE_VECTOR_BODY void share_out(
    cadre_matrix s, cadre_met_keys keys, cadre_softmax_row *restrict rows)
{
    for (int64_t q = 0; q < s.rows; q++) {
        const cadre_met_keys k = of_row(keys, q);
        float *row = cadre_matrix_row(s, q);
        hide(row, k, -FLT_MAX);
        rows[q].top = cadre_lanes_max(row, whole_lanes(k)) * k.scale;
    }
    for (int64_t q = 0; q < s.rows; q++) {
        enter(cadre_matrix_row(s, q), of_row(keys, q), rows[q].top);
    }
    for (int64_t q = 0; q < s.rows; q++) {
        float sum = cadre_lanes_sum(
            cadre_matrix_row(s, q), whole_lanes(of_row(keys, q)));
        rows[q].share = sum == 0.0f ? 0.0f : 1.0f / sum;
    }
    for (int64_t q = 0; q < s.rows; q++) {
        multiply(cadre_matrix_row(s, q), of_row(keys, q), rows[q].share);
    }
}

CADRE_VECTOR_BODY void softmax_body(
    cadre_matrix s, cadre_met_keys keys, cadre_softmax_row *restrict rows)
{
    share_out(s, keys, rows);
    for (int64_t q = 0; q < s.rows; q++) {
        clear(cadre_matrix_row(s, q), of_row(keys, q));
    }
}
CADRE_VECTOR(softmax,
    (cadre_matrix s, cadre_met_keys keys, cadre_softmax_row *restrict rows),
    (s, keys, rows));

CADRE_VECTOR_BODY void softmax_bf16_body(cadre_matrix s, cadre_met_keys keys,
    cadre_softmax_row *restrict rows, uint16_t *restrict p)
{
    share_out(s, keys, rows);
    for (int64_t q = 0; q < s.rows; q++) {
        round_row(p + q * s.stride, cadre_matrix_row(s, q), of_row(keys, q));
    }
}
CADRE_VECTOR(softmax_bf16,
    (cadre_matrix s, cadre_met_keys keys, cadre_softmax_row *restrict rows,
        uint16_t *restrict p),
    (s, keys, rows, p));

// p again, of scores.
CADRE_VECTOR_BODY void share_again(
    float *restrict s, cadre_met_keys keys, cadre_softmax_row row)
{
    const int64_t whole = whole_lanes(keys);
    for (int64_t i = 0; i < whole; i++) {
        s[i] = cadre_exp_below(s[i] * keys.scale - row.top) * row.share;
    }
    hide(s, keys, 0.0f);
}

// A row of dp to ds.
CADRE_VECTOR_BODY void descend(float *restrict dp, const float *restrict p,
    cadre_met_keys keys, float dp_p)
{
    const int64_t whole = whole_lanes(keys);
    for (int64_t i = 0; i < whole; i++) {
        dp[i] = p[i] * (dp[i] - dp_p) * keys.scale;
    }
    hide(dp, keys, 0.0f);
}

CADRE_VECTOR_BODY void softmax_gradient_body(cadre_matrix s, cadre_matrix dp,
    cadre_met_keys keys, const cadre_softmax_row *restrict rows,
    cadre_matrix_view y, cadre_matrix_view dy)
{
    for (int64_t q = 0; q < s.rows; q++) {
        share_again(cadre_matrix_row(s, q), of_row(keys, q), rows[q]);
    }
    for (int64_t q = 0; q < s.rows; q++) {
        const cadre_met_keys k = of_row(keys, q);
        const float dp_p = cadre_lanes_dot(cadre_matrix_view_row(y, q),
            cadre_matrix_view_row(dy, q), 0.0f, y.columns);
        descend(cadre_matrix_row(dp, q), cadre_matrix_row(s, q), k, dp_p);
        clear(cadre_matrix_row(s, q), k);
        clear(cadre_matrix_row(dp, q), k);
    }
}
CADRE_VECTOR(softmax_gradient,
    (cadre_matrix s, cadre_matrix dp, cadre_met_keys keys,
        const cadre_softmax_row *restrict rows, cadre_matrix_view y,
        cadre_matrix_view dy),
    (s, dp, keys, rows, y, dy));

CADRE_VECTOR_BODY void softmax_gradient_bf16_body(cadre_matrix s,
    cadre_matrix dp, cadre_met_keys keys,
    const cadre_softmax_row *restrict rows, uint16_t *restrict p,
    uint16_t *restrict ds)
{
    float dp_p[TOGETHER];
    for (int64_t q = 0; q < s.rows; q++) {
        share_again(cadre_matrix_row(s, q), of_row(keys, q), rows[q]);
    }
    for (int64_t q = 0; q < s.rows; q++) {
        const cadre_met_keys k = of_row(keys, q);
        hide(cadre_matrix_row(dp, q), k, 0.0f);
        dp_p[q] = cadre_lanes_dot(cadre_matrix_row(s, q),
            cadre_matrix_row(dp, q), 0.0f, whole_lanes(k));
    }
    for (int64_t q = 0; q < s.rows; q++) {
        const cadre_met_keys k = of_row(keys, q);
        const float *row = cadre_matrix_row(s, q);
        descend(cadre_matrix_row(dp, q), row, k, dp_p[q]);
        round_row(p + q * s.stride, row, k);
        round_row(ds + q * s.stride, cadre_matrix_row(dp, q), k);
    }
}
CADRE_VECTOR(softmax_gradient_bf16,
    (cadre_matrix s, cadre_matrix dp, cadre_met_keys keys,
        const cadre_softmax_row *restrict rows, uint16_t *restrict p,
        uint16_t *restrict ds),
    (s, dp, keys, rows, p, ds));

// The rows from one on that go together.
static cadre_matrix together(cadre_matrix m, int64_t first)
{
    const int64_t left = m.rows - first;
    m.data += first * m.stride;
    m.rows = left < TOGETHER ? left : TOGETHER;
    return m;
}

static cadre_matrix_view from_row(cadre_matrix_view m, int64_t first)
{
    m.data += first * m.stride;
    return m;
}

void cadre_attention_softmax(
    cadre_matrix s, cadre_met_keys keys, cadre_softmax_row *rows)
{
    for (int64_t q = 0; q < s.rows; q += TOGETHER) {
        softmax[cadre_isa_in_use()](together(s, q), of_row(keys, q), rows + q);
    }
}

void cadre_attention_softmax_bf16(
    cadre_matrix s, cadre_met_keys keys, cadre_softmax_row *rows, uint16_t *p)
{
    for (int64_t q = 0; q < s.rows; q += TOGETHER) {
        softmax_bf16[cadre_isa_in_use()](
            together(s, q), of_row(keys, q), rows + q, p + q * s.stride);
    }
}

void cadre_attention_softmax_gradient(cadre_matrix s, cadre_matrix dp,
    cadre_met_keys keys, const cadre_softmax_row *rows, cadre_matrix_view y,
    cadre_matrix_view dy)
{
    for (int64_t q = 0; q < s.rows; q += TOGETHER) {
        softmax_gradient[cadre_isa_in_use()](together(s, q), together(dp, q),
            of_row(keys, q), rows + q, from_row(y, q), from_row(dy, q));
    }
}

void cadre_attention_softmax_gradient_bf16(cadre_matrix s, cadre_matrix dp,
    cadre_met_keys keys, const cadre_softmax_row *rows, uint16_t *p,
    uint16_t *ds)
{
    for (int64_t q = 0; q < s.rows; q += TOGETHER) {
        softmax_gradient_bf16[cadre_isa_in_use()](together(s, q),
            together(dp, q), of_row(keys, q), rows + q, p + q * s.stride,
            ds + q * s.stride);
    }
}
