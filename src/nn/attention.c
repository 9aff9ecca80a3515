// SPDX-License-Identifier: Apache-2.0
//
// Self-attention of several heads: y = softmax(q k^T / sqrt(D)) v for each
// head.  In "causal_attention" a token sees itself and those before it, in
// "attention" the whole text.  A row of x has q, k and v one after another, and
// in each the heads one after another.  k and v may have fewer heads: then as
// many neighbours of q as it takes share one of theirs.
//
// A key at CADRE_NO_TOKEN is seen by no query: its p is 0.  A query that sees
// no key at all gets zeros.
//
// Never the whole matrix of scores: a block of queries at a time meets the keys
// up to the last that it sees, so that what lies beyond is not computed, and
// backward computes the scores again.
//
// Letters: T tokens of a text, C channels of y, D = C / heads; s scores, p their
// softmax.
//
// Memory:  scratch for the scores of a block, and their gradient; a state keeps
//          of each row of p what it was made with.
// Threads: one at a time per state.

#include "nn/attention.h"
#include "base/fail.h"
#include "nn/attention_bf16.h"
#include "nn/compute.h"

typedef struct attention_state {
    cadre_layer_state base;
    cadre_attention_bf16 *bf16; // NULL: plain f32
    cadre_softmax_row rows[];   // (samples, heads, T)
} attention_state;

static cadre_softmax_row *rows_of(cadre_layer_state *state)
{
    return ((attention_state *)state)->rows;
}

static cadre_status plan_attention(
    const cadre_layer *layer, cadre_layer_plan *plan)
{
    CADRE_TRY(cadre_layer_split_heads(layer, plan));
    plan->out = plan->in;
    plan->out.channels =
        plan->heads * cadre_layer_head_channels(plan->in.channels, plan);
    plan->scratch = (size_t)(2 * (CADRE_ATTENTION_BLOCK *
                                     cadre_matrix_stride(plan->in.tokens)));
    return CADRE_OK;
}

static void release(cadre_layer_state *state)
{
    if (state != NULL) {
        cadre_attention_bf16_destroy(((attention_state *)state)->bf16);
        cadre_layer_state_destroy(state);
    }
}

static cadre_status prepare(
    const cadre_layer_plan *plan, int64_t n_samples, cadre_layer_state **out)
{
    size_t n_rows = (size_t)(n_samples * plan->heads * plan->in.tokens);
    cadre_layer_state *state;
    CADRE_TRY(cadre_layer_state_create(plan, sizeof(attention_state), n_rows,
        sizeof(cadre_softmax_row), &state));
    if (plan->bf16) {
        attention_state *own = (attention_state *)state;
        cadre_status status = cadre_attention_bf16_create(plan, &own->bf16);
        if (status != CADRE_OK) {
            release(state);
            return status;
        }
        state->scratch = cadre_attention_bf16_scratch(own->bf16);
    }
    *out = state;
    return CADRE_OK;
}

// One block of queries of one head of one text.
typedef struct block {
    int64_t first_row; // of the text, in x; below 0 if it begins before x
    int64_t head;
    int64_t first; // query, in the text
    int64_t n;     // queries
    int64_t n_keys;
    const float *tokens;     // of the text, NULL if none is CADRE_NO_TOKEN
    cadre_softmax_row *rows; // of its queries
} block;

typedef enum part { QUERY, KEY, VALUE } part;

// Where the block's queries, keys or values begin in a matrix like x; in one
// like y its own rows of a head lie as queries do.
static int64_t begin_of(
    const cadre_layer_plan *plan, const block *b, part which, int64_t stride)
{
    const int64_t share = plan->heads / plan->kv_heads;
    if (which == QUERY) {
        return (b->first_row + b->first) * stride +
               b->head * cadre_attention_depth(plan);
    }
    int64_t head =
        plan->heads + b->head / share + (which == VALUE ? plan->kv_heads : 0);
    return b->first_row * stride + head * cadre_attention_depth(plan);
}

static int64_t rows_in(const block *b, part which)
{
    return which == QUERY ? b->n : b->n_keys;
}

static cadre_matrix slice(
    const cadre_layer_plan *plan, const block *b, part which, cadre_matrix m)
{
    return (cadre_matrix){m.data + begin_of(plan, b, which, m.stride),
        rows_in(b, which), cadre_attention_depth(plan), m.stride};
}

static cadre_matrix_view view(const cadre_layer_plan *plan, const block *b,
    part which, cadre_matrix_view m)
{
    return (cadre_matrix_view){m.data + begin_of(plan, b, which, m.stride),
        rows_in(b, which), cadre_attention_depth(plan), m.stride};
}

// Scratch for numbers of each query and key of the block: two such.
static cadre_matrix scores(const cadre_layer_call *call, const block *b, int i)
{
    int64_t stride = cadre_matrix_stride(call->plan->in.tokens);
    return (cadre_matrix){call->scratch + i * (CADRE_ATTENTION_BLOCK * stride),
        b->n, b->n_keys, stride};
}

static cadre_met_keys keys_of(const cadre_layer_plan *plan, const block *b)
{
    return cadre_attention_keys(plan, b->first, b->n_keys, b->tokens);
}

static cadre_factor plain(cadre_matrix_view m)
{
    return (cadre_factor){m, false};
}

static cadre_factor turned(cadre_matrix_view m)
{
    return (cadre_factor){m, true};
}

static cadre_status forward_block(
    const cadre_layer_call *call, const block *b, cadre_matrix y)
{
    const cadre_layer_plan *plan = call->plan;
    cadre_matrix s = scores(call, b, 0);
    CADRE_TRY(cadre_compute_product(plain(view(plan, b, QUERY, call->x)),
        turned(view(plan, b, KEY, call->x)), s));
    cadre_attention_softmax(s, keys_of(plan, b), b->rows);
    return cadre_compute_product(plain(cadre_matrix_read(s)),
        plain(view(plan, b, VALUE, call->x)), slice(plan, b, QUERY, y));
}

static cadre_status backward_block(
    const cadre_layer_call *call, const block *b, cadre_matrix dx)
{
    const cadre_layer_plan *plan = call->plan;
    cadre_matrix_view query = view(plan, b, QUERY, call->x);
    cadre_matrix_view key = view(plan, b, KEY, call->x);
    cadre_matrix_view y = view(plan, b, QUERY, call->y);
    cadre_matrix_view dy = view(plan, b, QUERY, call->dy);
    cadre_matrix s = scores(call, b, 0);  // and then p
    cadre_matrix dp = scores(call, b, 1); // and then ds
    CADRE_TRY(cadre_compute_product(plain(query), turned(key), s));
    CADRE_TRY(cadre_compute_product(
        plain(dy), turned(view(plan, b, VALUE, call->x)), dp));
    cadre_attention_softmax_gradient(s, dp, keys_of(plan, b), b->rows, y, dy);
    cadre_matrix_view p = cadre_matrix_read(s);
    cadre_matrix_view ds = cadre_matrix_read(dp);
    CADRE_TRY(cadre_compute_product(
        plain(ds), plain(key), slice(plan, b, QUERY, dx)));
    // The last block comes first, and meets all keys: it writes, others add; so
    // do the other heads that share these keys.
    bool writes = b->first + b->n == plan->in.tokens &&
                  b->head % (plan->heads / plan->kv_heads) == 0;
    cadre_status (*put)(cadre_factor, cadre_factor, cadre_matrix) =
        writes ? cadre_compute_product : cadre_compute_add_product;
    CADRE_TRY(put(turned(ds), plain(query), slice(plan, b, KEY, dx)));
    return put(turned(p), plain(dy), slice(plan, b, VALUE, dx));
}

typedef cadre_status (*block_work)(
    const cadre_layer_call *call, const block *b, cadre_matrix to);

// Calls back for each block of a head, the last queries first; text_end is the
// place behind the last of them.
static cadre_status each_block_of_head(const cadre_layer_call *call,
    const block *head, int64_t text_end, cadre_matrix to, block_work work)
{
    for (int64_t end = text_end; end > call->place;) {
        int64_t first =
            (end - 1) / CADRE_ATTENTION_BLOCK * CADRE_ATTENTION_BLOCK;
        first = first < call->place ? call->place : first;
        block b = *head;
        b.first = first;
        b.n = end - first;
        b.n_keys = cadre_attention_is_causal(call->plan) ? end : text_end;
        b.rows += first;
        CADRE_TRY(work(call, &b, to));
        end = first;
    }
    return CADRE_OK;
}

static cadre_status each_block(
    const cadre_layer_call *call, cadre_matrix to, block_work work)
{
    const int64_t n_tokens = call->plan->in.tokens;
    const int64_t heads = call->plan->heads;
    const int64_t texts = to.rows < n_tokens ? 1 : to.rows / n_tokens;
    const int64_t end = call->place + to.rows / texts;
    cadre_softmax_row *rows = rows_of(call->state);
    for (int64_t i = 0; i < texts; i++) {
        const float *tokens = cadre_attention_hiding_tokens(call, i, end);
        for (int64_t h = 0; h < heads; h++, rows += n_tokens) {
            const block head = {
                .first_row = i * n_tokens - call->place,
                .head = h,
                .tokens = tokens,
                .rows = rows,
            };
            cadre_compute_begin();
            cadre_status status =
                each_block_of_head(call, &head, end, to, work);
            cadre_compute_end();
            CADRE_TRY(status);
        }
    }
    return CADRE_OK;
}

static const cadre_attention_bf16 *bf16_of(const cadre_layer_call *call)
{
    return ((const attention_state *)call->state)->bf16;
}

static cadre_status forward(const cadre_layer_call *call, cadre_matrix y)
{
    if (call->plan->bf16) {
        return cadre_attention_bf16_forward(
            bf16_of(call), call, rows_of(call->state), y);
    }
    return each_block(call, y, forward_block);
}

static cadre_status input_gradient(
    const cadre_layer_call *call, cadre_matrix dx)
{
    if (call->plan->bf16) {
        return cadre_attention_bf16_input_gradient(
            bf16_of(call), call, rows_of(call->state), dx);
    }
    return each_block(call, dx, backward_block);
}

#define ATTENTION(name)                                                    \
    {                                                                      \
        .kind = (name), .takes = CADRE_TAKES_HEADS | CADRE_TAKES_KV_HEADS, \
        .keeps_output = true, .multiplies = true, .makes_narrow = true,    \
        .takes_narrow_dy = true, .makes_narrow_dx = true,                  \
        .plan = plan_attention, .prepare = prepare, .release = release,    \
        .forward = forward, .input_gradient = input_gradient,              \
    }

const cadre_layer_ops cadre_attention = ATTENTION("attention");
const cadre_layer_ops cadre_causal_attention = ATTENTION("causal_attention");
