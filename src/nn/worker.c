// SPDX-License-Identifier: Apache-2.0
//
// Passes.  What a pass computes lies in one block, where nn/places.h says.

#include "nn/net.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/thread.h"
#include "nn/pass_size.h"
#include "nn/places.h"
#include "nn/plan.h"
#include "nn/rounding.h"
#include "nn/softmax_cross_entropy.h"

struct cadre_net_worker {
    const cadre_net *net; // borrowed
    int n_sizes;
    cadre_pass_size *sizes;
    size_t capacity; // floats of the block
    float *block;
    cadre_pass_times times;
};

static const cadre_pass_size *find_size(
    const cadre_net_worker *w, int64_t n_samples)
{
    for (int i = 0; i < w->n_sizes; i++) {
        if (w->sizes[i].n_samples == n_samples) {
            return &w->sizes[i];
        }
    }
    return NULL;
}

static cadre_status add_size(cadre_net_worker *w, int64_t n_samples)
{
    size_t n = (size_t)w->n_sizes;
    cadre_pass_size *sizes = cadre_alloc_array(n + 1, sizeof(*sizes));
    if (sizes == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        sizes[i] = w->sizes[i];
    }
    cadre_status status = cadre_pass_size_make(w->net, n_samples, &sizes[n]);
    if (status != CADRE_OK) {
        cadre_free(sizes);
        return status;
    }
    cadre_free(w->sizes);
    w->sizes = sizes;
    w->n_sizes++;
    return CADRE_OK;
}

// Makes the block larger if need be; what was there is lost.
static cadre_status make_room(cadre_net_worker *w, size_t count)
{
    if (count <= w->capacity) {
        return CADRE_OK;
    }
    cadre_free(w->block);
    w->capacity = 0;
    w->block = cadre_alloc_array(count, sizeof(*w->block));
    if (w->block == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    w->capacity = count;
    return CADRE_OK;
}

// Makes what a pass of n_samples needs, where it is not there yet.
static cadre_status get_ready(
    cadre_net_worker *w, int64_t n_samples, bool training)
{
    enum { MOST_ROWS = 1 << 24 };
    const int64_t most = MOST_ROWS / cadre_shape_rows(w->net->input);
    if (n_samples < 1 || n_samples > most) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "a pass of %lld samples: 1 to %lld are possible",
            (long long)n_samples, (long long)most);
    }
    if (find_size(w, n_samples) == NULL) {
        CADRE_TRY(add_size(w, n_samples));
    }
    const cadre_pass_size *size = find_size(w, n_samples);
    return make_room(
        w, training ? size->training->count : size->predicting->count);
}

cadre_status cadre_net_worker_create(const cadre_net *net, const int64_t *sizes,
    int n_sizes, cadre_net_worker **out)
{
    cadre_net_worker *w = cadre_alloc(sizeof(*w));
    if (w == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    w->net = net;
    for (int i = 0; i < n_sizes; i++) {
        cadre_status status = get_ready(w, sizes[i], true);
        if (status != CADRE_OK) {
            cadre_net_worker_destroy(w);
            return status;
        }
    }
    *out = w;
    return CADRE_OK;
}

void cadre_net_worker_destroy(cadre_net_worker *worker)
{
    if (worker == NULL) {
        return;
    }
    for (int i = 0; i < worker->n_sizes; i++) {
        cadre_pass_size_release(worker->net, &worker->sizes[i]);
    }
    cadre_free(worker->sizes);
    cadre_free(worker->block);
    cadre_free(worker);
}

size_t cadre_net_worker_bytes(const cadre_net_worker *worker)
{
    return worker->capacity * sizeof(*worker->block);
}

cadre_pass_times cadre_net_worker_times(const cadre_net_worker *worker)
{
    return worker->times;
}

// An activation, or its gradient.
static cadre_matrix activation(float *data, int64_t rows, cadre_shape shape)
{
    return (cadre_matrix){
        data, rows, cadre_shape_columns(shape), cadre_shape_stride(shape)};
}

// The same of bf16 numbers.
static cadre_narrow_matrix narrow(float *data, int64_t rows, cadre_shape shape)
{
    return (cadre_narrow_matrix){(void *)data, rows, cadre_shape_columns(shape),
        cadre_shape_stride(shape)};
}

// What a net's passes forward and backward have in common.
typedef struct journey {
    const cadre_net *net;
    float *block;
    const cadre_places *places;
    cadre_layer_state *const *states;
    const float *const *params;
    cadre_matrix_view samples; // a row for each, or for each of its tokens
    const cadre_pass *pass;    // NULL: forward only
    cadre_pass_times *times;
} journey;

static cadre_status set_out(cadre_net_worker *w, const float *const *params,
    const float *x, int64_t n_samples, const cadre_pass *pass, journey *j)
{
    CADRE_TRY(get_ready(w, n_samples, pass != NULL));
    cadre_thread_plain_floats();
    const cadre_pass_size *size = find_size(w, n_samples);
    int64_t width = cadre_shape_elements(w->net->input);
    *j = (journey){
        .net = w->net,
        .block = w->block,
        .places = pass != NULL ? size->training : size->predicting,
        .states = size->states,
        .params = params,
        .samples = {x, n_samples * cadre_shape_rows(w->net->input), width,
            width},
        .pass = pass,
        .times = &w->times,
    };
    return CADRE_OK;
}

// Forward, forward again in backward, and backward itself.
typedef enum direction { FORWARD, AGAIN, BACKWARD } direction;

static cadre_matrix output_of(const journey *j, int layer, direction which)
{
    return activation(j->block + j->places->layers[layer].output[which],
        j->samples.rows, j->net->layers[layer].out);
}

// The same in bf16; of the samples, before the first layer.
static cadre_narrow_matrix narrow_of(
    const journey *j, int layer, direction which)
{
    const size_t offset =
        layer < 0 ? j->places->samples
                  : j->places->layers[layer].narrow[which != FORWARD];
    const cadre_shape shape =
        layer < 0 ? j->net->input : j->net->layers[layer].out;
    return narrow(j->block + offset, j->samples.rows, shape);
}

static cadre_matrix gradient_of(const journey *j, int layer)
{
    return activation(j->block + j->places->layers[layer].gradient,
        j->samples.rows, j->net->layers[layer].out);
}

// The gradient that an "add" leaves for later, and that a "residual" finds.
static cadre_matrix past_gradient(const journey *j, int layer)
{
    return activation(j->block + j->places->layers[layer].past, j->samples.rows,
        j->net->layers[layer].out);
}

static void set_scratch(const journey *j, size_t offset, cadre_layer_call *call)
{
    call->row_room = j->block + offset;
    call->scratch = call->row_room + cadre_layer_row_room(call->plan);
}

// A layer's part, but for what one direction alone knows.
static cadre_layer_call call_of(const journey *j, int layer, direction which)
{
    const cadre_layer_plan *plan = &j->net->layers[layer];
    const cadre_layer_places *places = &j->places->layers[layer];
    cadre_layer_call call = {
        .plan = plan,
        .state = j->states[layer],
        .params = j->params + plan->first_param,
        .tokens = cadre_net_embeds(j->net) ? j->samples.data : NULL,
        .x = layer == 0 ? j->samples
                        : cadre_matrix_read(output_of(j, layer - 1, which)),
        .pass = j->pass,
    };
    if (cadre_reads_narrow(plan)) {
        call.narrow_x = cadre_narrow_read(narrow_of(j, layer - 1, which));
    }
    set_scratch(j, places->scratch[which != FORWARD], &call);
    return call;
}

// A layer's forward, and what it makes in bf16 if that is wanted.
static cadre_status make_output(
    const journey *j, cadre_layer_call *call, int layer, direction which)
{
    const cadre_layer_places *places = &j->places->layers[layer];
    const cadre_matrix y = output_of(j, layer, which);
    const cadre_narrow_matrix copy = narrow_of(j, layer, which);
    if (call->plan->makes_narrow) {
        call->narrow_y = copy;
        return call->plan->ops->forward(call, y);
    }
    CADRE_TRY(call->plan->ops->forward(call, y));
    if (call->plan->narrows && places->rounds[which]) {
        cadre_matrix_round(y, copy);
    } else if (call->plan->narrows) {
        cadre_matrix_narrow(cadre_matrix_read(y), copy);
    }
    return CADRE_OK;
}

static cadre_status forward(const journey *j)
{
    if (j->net->layers[0].bf16) {
        cadre_matrix_narrow(j->samples, narrow_of(j, -1, FORWARD));
    }
    for (int l = 0; l < j->net->n_layers; l++) {
        cadre_layer_call call = call_of(j, l, FORWARD);
        if (call.plan->ops == &cadre_add) {
            call.past = output_of(j, call.plan->partner, FORWARD);
        }
        CADRE_TRY(make_output(j, &call, l, FORWARD));
    }
    return CADRE_OK;
}

// Makes an output in f32 of what was kept of it.
static void widen(const journey *j, int layer)
{
    cadre_matrix_widen(cadre_narrow_read(narrow_of(j, layer, BACKWARD)),
        output_of(j, layer, BACKWARD));
}

// Computes or widens what a layer's backward reads and was not kept in f32.
static cadre_status bring(const journey *j, int layer)
{
    const cadre_layer_places *places = &j->places->layers[layer];
    if (places->widens_before) {
        widen(j, places->again_first - 1);
    }
    for (int i = 0; i < places->again_count; i++) {
        int l = places->again_first + i;
        cadre_layer_call call = call_of(j, l, AGAIN);
        set_scratch(j, places->scratch[1], &call);
        CADRE_TRY(make_output(j, &call, l, AGAIN));
    }
    if (places->widens_output) {
        widen(j, layer);
    }
    if (places->widens_input) {
        widen(j, layer - 1);
    }
    return CADRE_OK;
}

static cadre_status announce(
    const journey *j, const cadre_grad_listener *listener, int index)
{
    int64_t since_ns = cadre_now_ns();
    cadre_status status = listener->ready(listener->ctx, index);
    j->times->backward_ns -= cadre_now_ns() - since_ns;
    return status;
}

// The gradients of a layer's parameters.  A later pass's is computed by itself
// and then added, with one rounding (docs/numerics.md); so is the second one of
// a parameter that two layers use, and it is ready after that.
static cadre_status param_gradients(const journey *j, int layer,
    const cadre_layer_call *call, const cadre_grad_listener *listener)
{
    const cadre_layer_plan *plan = call->plan;
    for (int i = 0; i < plan->n_params; i++) {
        int index = plan->first_param + i;
        float *grad = listener->grad(listener->ctx, index);
        bool fresh = j->pass->first && !plan->lends;
        float *to = fresh ? grad : j->block + j->places->layers[layer].addend;
        CADRE_TRY(plan->ops->param_gradient(call, i, to));
        if (!fresh) {
            size_t count = j->net->params[index].count;
            for (size_t k = 0; k < count; k++) {
                grad[k] += to[k];
            }
        }
        if (j->pass->last && plan->tied == NULL) {
            CADRE_TRY(announce(j, listener, index));
        }
    }
    return CADRE_OK;
}

// The gradient of a layer's output in bf16.
static cadre_narrow_matrix narrow_gradient_of(const journey *j, int layer)
{
    return narrow(j->block + j->places->layers[layer].narrow_gradient,
        j->samples.rows, j->net->layers[layer].out);
}

// The same, if a product wants it: it is there, or is made of that in f32.
static cadre_narrow_view narrow_gradient(const journey *j, int layer)
{
    const cadre_layer_plan *plan = &j->net->layers[layer];
    const cadre_narrow_matrix m = narrow_gradient_of(j, layer);
    if (cadre_layer_takes_narrow_dy(plan) && !plan->narrow_dy) {
        cadre_matrix_narrow(cadre_matrix_read(gradient_of(j, layer)), m);
    }
    return cadre_narrow_read(m);
}

// Backward through all layers that have parameters, or have such below them;
// the gradient of the net's output is there.
static cadre_status backward(
    const journey *j, const cadre_grad_listener *listener)
{
    const cadre_net *net = j->net;
    for (int l = net->n_layers - 1; l >= net->first_trained; l--) {
        CADRE_TRY(bring(j, l));
        cadre_layer_call call = call_of(j, l, BACKWARD);
        call.y = cadre_matrix_read(output_of(j, l, BACKWARD));
        call.dy = cadre_matrix_read(gradient_of(j, l));
        call.narrow_dy = narrow_gradient(j, l);
        if (call.plan->narrow_dx) {
            call.narrow_dx = narrow_gradient_of(j, l - 1);
        }
        if (call.plan->ops == &cadre_add || call.plan->ops == &cadre_residual) {
            call.past = past_gradient(j, l);
        }
        CADRE_TRY(param_gradients(j, l, &call, listener));
        if (call.plan->passes_down) {
            CADRE_TRY(
                call.plan->ops->input_gradient(&call, gradient_of(j, l - 1)));
        }
    }
    return CADRE_OK;
}

// The scores of all classes.
static cadre_matrix_view scores(const journey *j)
{
    return cadre_matrix_read(output_of(j, j->net->n_layers - 1, FORWARD));
}

// Whether a row of the pass is what fills up a text.
static bool is_no_token(const journey *j, int64_t row)
{
    return cadre_net_embeds(j->net) &&
           *cadre_matrix_view_row(j->samples, row) == (float)CADRE_NO_TOKEN;
}

static cadre_status check_labels(
    const journey *j, const int32_t *labels, float label_smoothing)
{
    if (!(label_smoothing >= 0.0f && label_smoothing < 1.0f)) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "label smoothing is %g; at least 0 and below 1 is possible",
            (double)label_smoothing);
    }
    for (int64_t n = 0; n < j->samples.rows; n++) {
        if (labels[n] != CADRE_NO_LABEL &&
            (labels[n] < 0 || labels[n] >= j->net->n_classes)) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "label %lld of a pass is %d; there are %lld classes, from 0",
                (long long)n, (int)labels[n], (long long)j->net->n_classes);
        }
        if (labels[n] != CADRE_NO_LABEL && is_no_token(j, n)) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "label %lld of a pass is %d, but there is no token: "
                "CADRE_NO_LABEL is possible",
                (long long)n, (int)labels[n]);
        }
    }
    return CADRE_OK;
}

// The losses, and the gradient of the scores, which may lie where they lay.
static void compare(const journey *j, const int32_t *labels,
    float label_smoothing, float *losses)
{
    cadre_softmax_cross_entropy(scores(j), labels, label_smoothing, losses,
        gradient_of(j, j->net->n_layers - 1));
}

cadre_status cadre_net_pass(cadre_net_worker *worker,
    const float *const *params, const cadre_pass *pass,
    const cadre_grad_listener *listener, double *loss_sum)
{
    journey j;
    CADRE_TRY(set_out(worker, params, pass->x, pass->n_samples, pass, &j));
    CADRE_TRY(check_labels(&j, pass->labels, pass->label_smoothing));
    int64_t began_ns = cadre_now_ns();
    CADRE_TRY(forward(&j));
    float *losses = j.block + j.places->losses;
    compare(&j, pass->labels, pass->label_smoothing, losses);
    int64_t turned_ns = cadre_now_ns();
    CADRE_TRY(backward(&j, listener));
    worker->times.forward_ns += turned_ns - began_ns;
    worker->times.backward_ns += cadre_now_ns() - turned_ns;

    double sum = 0.0;
    for (int64_t n = 0; n < j.samples.rows; n++) {
        sum += (double)losses[n];
    }
    *loss_sum = sum;
    return CADRE_OK;
}

cadre_status cadre_net_predict(cadre_net_worker *worker,
    const float *const *params, const float *x, const int32_t *labels,
    int64_t n_samples, float *losses, int32_t *classes)
{
    journey j;
    CADRE_TRY(set_out(worker, params, x, n_samples, NULL, &j));
    CADRE_TRY(check_labels(&j, labels, 0.0f));
    CADRE_TRY(forward(&j));
    cadre_highest_class(scores(&j), classes);
    compare(&j, labels, 0.0f, losses);
    return CADRE_OK;
}

cadre_status cadre_net_scores(cadre_net_worker *worker,
    const float *const *params, const float *x, int64_t n_samples,
    cadre_matrix_view *scores_out)
{
    journey j;
    CADRE_TRY(set_out(worker, params, x, n_samples, NULL, &j));
    CADRE_TRY(forward(&j));
    *scores_out = scores(&j);
    return CADRE_OK;
}
