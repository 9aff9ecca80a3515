// SPDX-License-Identifier: Apache-2.0
//
// "embedding": y = W[x], a row of W (vocabulary, O) for each token.
// "positions": y = x + W[t], with W (tokens of a text, O) and t the place of the
// token in its text.
// CADRE_NO_TOKEN has zeros in place of its row, and that gives no gradient.
//
// Gradients of rows are added in the order of the tokens (docs/numerics.md
// section 7).
//
// Threads: any.

#include "base/fail.h"
#include "nn/layer.h"
#include "nn/row_add.h"
#include <stdio.h>
#include <string.h>

enum { WIDEST = 1 << 16, MOST_TOKENS = 1 << 20 };

static cadre_status plan_embedding(
    const cadre_layer *layer, cadre_layer_plan *plan)
{
    if (layer->vocabulary < 1 || layer->vocabulary > MOST_TOKENS ||
        layer->width < 1 || layer->width > WIDEST || plan->number != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "embedding of %lld tokens in %lld channels: up to %d and %d are "
            "possible, and it comes first",
            (long long)layer->vocabulary, (long long)layer->width,
            (int)MOST_TOKENS, (int)WIDEST);
    }
    plan->vocabulary = layer->vocabulary;
    plan->deviation = layer->deviation;
    plan->out = (cadre_shape){layer->width, 1, 1, 1, plan->in.tokens};
    return CADRE_OK;
}

static cadre_status plan_positions(
    const cadre_layer *layer, cadre_layer_plan *plan)
{
    plan->vocabulary = plan->in.tokens;
    plan->deviation = layer->deviation;
    plan->out = plan->in;
    return CADRE_OK;
}

// As PyTorch: normal, of deviation 1 if nothing else is said.
static void describe(
    const cadre_layer_plan *plan, int i, cadre_net_param *param)
{
    (void)i;
    param->shape[0] = plan->vocabulary;
    param->shape[1] = plan->out.channels;
    param->n_dims = 2;
    param->init_deviation = plan->deviation > 0 ? plan->deviation : 1.0f;
    snprintf(param->name, sizeof(param->name), "%s.weight", plan->name);
}

// In its range, or CADRE_NO_TOKEN, as forward has seen.
static int64_t token_of(const cadre_layer_call *call, int64_t row)
{
    return (int64_t)*cadre_matrix_view_row(call->x, row);
}

static cadre_status check_tokens(const cadre_layer_call *call)
{
    const float vocabulary = (float)call->plan->vocabulary;
    for (int64_t n = 0; n < call->x.rows; n++) {
        float token = *cadre_matrix_view_row(call->x, n);
        bool known = token >= 0.0f && token < vocabulary &&
                     token == (float)(int64_t)token;
        if (!known && token != (float)CADRE_NO_TOKEN) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "token %lld of a pass is %g; there are %lld, from 0",
                (long long)n, (double)token, (long long)call->plan->vocabulary);
        }
    }
    return CADRE_OK;
}

static int64_t place_of(const cadre_layer_call *call, int64_t row)
{
    return (call->place + row) % call->plan->vocabulary;
}

static cadre_status look_up(const cadre_layer_call *call, cadre_matrix y)
{
    CADRE_TRY(check_tokens(call));
    for (int64_t n = 0; n < y.rows; n++) {
        const int64_t token = token_of(call, n);
        const size_t nbytes = (size_t)y.columns * sizeof(*y.data);
        if (token == CADRE_NO_TOKEN) {
            memset(cadre_matrix_row(y, n), 0, nbytes);
        } else {
            memcpy(cadre_matrix_row(y, n), call->params[0] + token * y.columns,
                nbytes);
        }
    }
    return CADRE_OK;
}

static cadre_status add_positions(const cadre_layer_call *call, cadre_matrix y)
{
    cadre_matrix_copy(call->x, y);
    for (int64_t n = 0; n < y.rows; n++) {
        cadre_row_add(cadre_matrix_row(y, n),
            call->params[0] + place_of(call, n) * y.columns, y.columns);
    }
    return CADRE_OK;
}

static cadre_status add_gradients(const cadre_layer_call *call,
    int64_t (*which)(const cadre_layer_call *call, int64_t row), float *grad)
{
    int64_t width = call->dy.columns;
    memset(grad, 0, (size_t)(call->plan->vocabulary * width) * sizeof(*grad));
    for (int64_t n = 0; n < call->dy.rows; n++) {
        const int64_t row = which(call, n);
        if (row != CADRE_NO_TOKEN) {
            cadre_row_add(
                grad + row * width, cadre_matrix_view_row(call->dy, n), width);
        }
    }
    return CADRE_OK;
}

static cadre_status embedding_gradient(
    const cadre_layer_call *call, int i, float *grad)
{
    (void)i;
    return add_gradients(call, token_of, grad);
}

static cadre_status positions_gradient(
    const cadre_layer_call *call, int i, float *grad)
{
    (void)i;
    return add_gradients(call, place_of, grad);
}

static cadre_status pass_down(const cadre_layer_call *call, cadre_matrix dx)
{
    cadre_matrix_copy(call->dy, dx);
    return CADRE_OK;
}

// It is first, and tokens have no gradient.
const cadre_layer_ops cadre_embedding = {
    .kind = "embedding",
    .takes = CADRE_TAKES_WIDTH | CADRE_TAKES_VOCABULARY | CADRE_TAKES_DEVIATION,
    .on = CADRE_ON_TEXT,
    .n_params = 1,
    .plan = plan_embedding,
    .param = describe,
    .forward = look_up,
    .param_gradient = embedding_gradient,
};

const cadre_layer_ops cadre_positions = {
    .kind = "positions",
    .takes = CADRE_TAKES_DEVIATION,
    .on = CADRE_ON_TEXT,
    .n_params = 1,
    .in_place = true,
    .plan = plan_positions,
    .param = describe,
    .forward = add_positions,
    .param_gradient = positions_gradient,
    .input_gradient = pass_down,
};
