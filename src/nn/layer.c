// SPDX-License-Identifier: Apache-2.0

#include "nn/layer.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "kernel/narrow.h"
#include <stdio.h>
#include <string.h>

static const cadre_layer_ops *const kinds[] = {
    &cadre_add,
    &cadre_attention,
    &cadre_avgpool2d,
    &cadre_batch_norm2d,
    &cadre_causal_attention,
    &cadre_conv2d,
    &cadre_dropout,
    &cadre_embedding,
    &cadre_gelu,
    &cadre_global_avgpool2d,
    &cadre_layer_norm,
    &cadre_linear,
    &cadre_local_response_norm,
    &cadre_maxpool2d,
    &cadre_positions,
    &cadre_relu,
    &cadre_residual,
    &cadre_rms_norm,
    &cadre_rotary,
    &cadre_shortcut,
    &cadre_silu,
    &cadre_swiglu,
    &cadre_unembedding,
};

enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static cadre_status unknown(const char *kind)
{
    char names[512] = "";
    for (int i = 0; i < N_KINDS; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof(names) - used, "%s%s", i == 0 ? "" : ", ",
            kinds[i]->kind);
    }
    return cadre_fail(CADRE_ERR_INVALID_ARG,
        "there is no kind '%s'; there are %s", kind, names);
}

static cadre_status check_fields(
    const cadre_layer *layer, const cadre_layer_ops *ops)
{
    const struct {
        const char *name;
        unsigned bit;
        bool given;
    } fields[] = {
        {"width", CADRE_TAKES_WIDTH, layer->width != 0},
        {"kernel", CADRE_TAKES_WINDOW, layer->kernel != 0},
        {"stride", CADRE_TAKES_WINDOW, layer->stride != 0},
        {"padding", CADRE_TAKES_WINDOW, layer->padding != 0},
        {"dilation", CADRE_TAKES_FILTER, layer->dilation != 0},
        {"groups", CADRE_TAKES_FILTER, layer->groups != 0},
        {"no_bias", CADRE_TAKES_NO_BIAS, layer->no_bias},
        {"rate", CADRE_TAKES_RATE, layer->rate < 0 || layer->rate > 0},
        {"heads", CADRE_TAKES_HEADS, layer->heads != 0},
        {"kv_heads", CADRE_TAKES_KV_HEADS, layer->kv_heads != 0},
        {"vocabulary", CADRE_TAKES_VOCABULARY, layer->vocabulary != 0},
        {"tied", CADRE_TAKES_TIED, layer->tied != NULL},
        {"deviation", CADRE_TAKES_DEVIATION,
            layer->deviation < 0 || layer->deviation > 0},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].given && (ops->takes & fields[i].bit) == 0) {
            return cadre_fail(CADRE_ERR_INVALID_ARG, "%s has no %s; leave it 0",
                ops->kind, fields[i].name);
        }
    }
    if (!(layer->deviation >= 0)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "initial weights of deviation %g: at least 0 is needed",
            (double)layer->deviation);
    }
    return CADRE_OK;
}

cadre_status cadre_layer_find(
    const cadre_layer *layer, const cadre_layer_ops **out)
{
    const char *kind = layer->kind == NULL ? "" : layer->kind;
    for (int i = 0; i < N_KINDS; i++) {
        if (strcmp(kinds[i]->kind, kind) == 0) {
            CADRE_TRY(check_fields(layer, kinds[i]));
            *out = kinds[i];
            return CADRE_OK;
        }
    }
    return unknown(kind);
}

static int64_t places(const cadre_layer_plan *plan, int64_t extent)
{
    int64_t reach = (plan->kernel - 1) * plan->dilation + 1;
    int64_t room = extent + 2 * plan->padding - reach;
    return room < 0 ? 0 : room / plan->stride + 1;
}

cadre_status cadre_layer_slide(cadre_layer_plan *plan)
{
    enum { MOST = 1 << 12 }; // so that no size overflows
    if (plan->kernel < 1 || plan->kernel > MOST || plan->stride < 1 ||
        plan->stride > MOST || plan->padding < 0 || plan->padding > MOST ||
        plan->dilation < 1 || plan->dilation > MOST) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "a window with kernel %lld, stride %lld, padding %lld, dilation "
            "%lld makes no sense",
            (long long)plan->kernel, (long long)plan->stride,
            (long long)plan->padding, (long long)plan->dilation);
    }
    plan->out.height = places(plan, plan->in.height);
    plan->out.width = places(plan, plan->in.width);
    if (plan->out.height < 1 || plan->out.width < 1) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "a window of %lld does not fit an image of %lld x %lld with "
            "padding %lld",
            (long long)((plan->kernel - 1) * plan->dilation + 1),
            (long long)plan->in.height, (long long)plan->in.width,
            (long long)plan->padding);
    }
    return CADRE_OK;
}

cadre_status cadre_layer_split_heads(
    const cadre_layer *layer, cadre_layer_plan *plan)
{
    const int64_t heads = layer->heads;
    const int64_t kv_heads = layer->kv_heads == 0 ? heads : layer->kv_heads;
    const int64_t channels = plan->in.channels;
    if (plan->in.tokens == 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%s works on text, and this is none", plan->ops->kind);
    }
    if (heads < 1 || heads > channels || kv_heads < 1 || kv_heads > heads ||
        heads % kv_heads != 0 || channels % (heads + 2 * kv_heads) != 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "%s with %lld heads of q and %lld each of k and v, of %lld "
            "channels: heads have to be alike, and those of k shared by as "
            "many of q each",
            plan->ops->kind, (long long)heads, (long long)kv_heads,
            (long long)channels);
    }
    plan->heads = heads;
    plan->kv_heads = kv_heads;
    return CADRE_OK;
}

int64_t cadre_layer_plain_block(const cadre_layer *layer, cadre_shape in)
{
    (void)layer;
    (void)in;
    return 1;
}

cadre_status cadre_layer_plan_same(
    const cadre_layer *layer, cadre_layer_plan *plan)
{
    (void)layer;
    plan->out = plan->in;
    return CADRE_OK;
}

static size_t floats_of_row(cadre_shape shape)
{
    return 2 * cadre_narrow_floats((size_t)cadre_shape_columns(shape));
}

size_t cadre_layer_row_room(const cadre_layer_plan *plan)
{
    if (!plan->takes_narrow) {
        return 0;
    }
    const size_t x = floats_of_row(plan->in);
    const size_t y = floats_of_row(plan->out);
    return x + (x > y ? x : y);
}

const float *cadre_layer_x_row(const cadre_layer_call *call, int64_t n)
{
    const cadre_narrow_view x = call->narrow_x;
    if (!call->plan->takes_narrow) {
        return cadre_matrix_view_row(call->x, n);
    }
    cadre_widen(
        CADRE_BF16, call->row_room, x.data + n * x.stride, (size_t)x.columns);
    return call->row_room;
}

// A row that is made, before it is rounded.
static float *made_room(const cadre_layer_call *call)
{
    return call->row_room + floats_of_row(call->plan->in);
}

float *cadre_layer_y_row(
    const cadre_layer_call *call, cadre_matrix y, int64_t n)
{
    return call->plan->makes_narrow ? made_room(call) : cadre_matrix_row(y, n);
}

static void round_made(
    const cadre_layer_call *call, cadre_narrow_matrix to, int64_t n)
{
    cadre_narrow(CADRE_BF16, to.data + n * to.stride, made_room(call),
        (size_t)to.columns);
}

void cadre_layer_end_y_row(const cadre_layer_call *call, int64_t n)
{
    if (call->plan->makes_narrow) {
        round_made(call, call->narrow_y, n);
    }
}

cadre_status cadre_layer_rows(
    const cadre_layer_call *call, cadre_row_forward row, cadre_matrix y)
{
    for (int64_t n = 0; n < y.rows; n++) {
        row(cadre_layer_y_row(call, y, n), cadre_layer_x_row(call, n),
            y.columns);
        cadre_layer_end_y_row(call, n);
    }
    return CADRE_OK;
}

cadre_status cadre_layer_rows_back(
    const cadre_layer_call *call, cadre_row_backward row, cadre_matrix dx)
{
    const bool narrow = call->plan->narrow_dx;
    for (int64_t n = 0; n < dx.rows; n++) {
        row(narrow ? made_room(call) : cadre_matrix_row(dx, n),
            cadre_layer_x_row(call, n), cadre_matrix_view_row(call->dy, n),
            call->dy.columns);
        if (narrow) {
            round_made(call, call->narrow_dx, n);
        }
    }
    return CADRE_OK;
}

cadre_status cadre_layer_state_create(const cadre_layer_plan *plan,
    size_t head_bytes, size_t n_items, size_t item_bytes,
    cadre_layer_state **out)
{
    cadre_layer_state *state =
        cadre_alloc_flex(head_bytes, n_items, item_bytes);
    if (state == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    state->scratch = plan->scratch;
    *out = state;
    return CADRE_OK;
}

void cadre_layer_state_destroy(cadre_layer_state *state)
{
    cadre_free(state);
}
