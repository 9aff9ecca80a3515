// SPDX-License-Identifier: Apache-2.0
//
// Passes.  Each layer writes its output once, and backward needs two gradients
// at a time, so two buffers take turns.  All of it lies in one block.

#include "nn/net.h"

#include "base/alloc.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/thread.h"
#include "nn/plan.h"
#include "nn/softmax_cross_entropy.h"

struct cadre_net_worker {
    const cadre_net *net; // borrowed
    int64_t capacity;     // samples there is room for
    float *block;         // all that follows lies in it
    float *losses;        // (capacity)
    float *addend;        // a later pass's gradient of one parameter
    float *scratch;       // of one layer at a time
    float *turns[2];      // gradients of activations
    float *outputs[];     // of each layer; in place: its predecessor's
};

static size_t padded(size_t count)
{
    return (size_t)cadre_matrix_stride((int64_t)count);
}

// True if the layer writes over what it reads.  The samples are not ours.
static bool writes_over_input(const cadre_net *net, int layer)
{
    return layer > 0 && net->layers[layer].ops->in_place;
}

// Elements per sample of the widest activation.
static int64_t widest(const cadre_net *net)
{
    int64_t most = 0;
    for (int l = 0; l < net->n_layers; l++) {
        int64_t stride = cadre_matrix_stride(net->layers[l].out);
        most = stride > most ? stride : most;
    }
    return most;
}

// The scratch of the layer that wants most.
static size_t largest_scratch(const cadre_net *net)
{
    size_t most = 0;
    for (int l = net->first_trained + 1; l < net->n_layers; l++) {
        size_t count = net->layers[l].scratch;
        most = count > most ? count : most;
    }
    return most;
}

// Hands out pieces of a block, or, with a NULL block, counts what they need.
static float *take(float *block, size_t *used, size_t count)
{
    float *piece = block == NULL ? NULL : block + *used;
    *used += count;
    return piece;
}

static size_t lay_out(cadre_net_worker *w, float *block, int64_t capacity)
{
    const cadre_net *net = w->net;
    size_t rows = (size_t)capacity;
    size_t used = 0;
    for (int l = 0; l < net->n_layers; l++) {
        size_t stride = (size_t)cadre_matrix_stride(net->layers[l].out);
        w->outputs[l] = writes_over_input(net, l)
                            ? w->outputs[l - 1]
                            : take(block, &used, rows * stride);
    }
    for (int i = 0; i < 2; i++) {
        w->turns[i] = take(block, &used, rows * (size_t)widest(net));
    }
    w->losses = take(block, &used, padded(rows));
    w->addend = take(block, &used, padded(net->largest_param));
    w->scratch = take(block, &used, padded(largest_scratch(net)));
    return used;
}

// Makes room for passes of up to capacity samples; what was there is lost.
static cadre_status make_room(cadre_net_worker *w, int64_t capacity)
{
    enum { MOST_SAMPLES = 1 << 24 };
    if (capacity > MOST_SAMPLES) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "a pass of %lld samples: at most %d are possible",
            (long long)capacity, (int)MOST_SAMPLES);
    }
    cadre_free(w->block);
    w->capacity = 0;
    w->block = NULL;
    size_t count = lay_out(w, NULL, capacity);
    w->block = cadre_alloc_array(count, sizeof(*w->block));
    if (w->block == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    (void)lay_out(w, w->block, capacity);
    w->capacity = capacity;
    return CADRE_OK;
}

cadre_status cadre_net_worker_create(const cadre_net *net, const int64_t *sizes,
    int n_sizes, cadre_net_worker **out)
{
    int64_t largest = 1;
    for (int i = 0; i < n_sizes; i++) {
        if (sizes[i] < 1) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "a pass of %lld samples: at least 1 is needed",
                (long long)sizes[i]);
        }
        largest = sizes[i] > largest ? sizes[i] : largest;
    }
    cadre_net_worker *w = cadre_alloc_flex(
        sizeof(*w), (size_t)net->n_layers, sizeof(w->outputs[0]));
    if (w == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    w->net = net;
    cadre_status status = make_room(w, largest);
    if (status != CADRE_OK) {
        cadre_net_worker_destroy(w);
        return status;
    }
    *out = w;
    return CADRE_OK;
}

void cadre_net_worker_destroy(cadre_net_worker *worker)
{
    if (worker != NULL) {
        cadre_free(worker->block);
        cadre_free(worker);
    }
}

// An activation, or its gradient.
static cadre_matrix activation(float *data, int64_t rows, int64_t columns)
{
    return (cadre_matrix){data, rows, columns, cadre_matrix_stride(columns)};
}

static cadre_matrix output_of(
    const cadre_net_worker *w, int layer, int64_t n_samples)
{
    return activation(w->outputs[layer], n_samples, w->net->layers[layer].out);
}

// What a layer reads: the samples, or its predecessor's output.
static cadre_matrix_view input_of(
    const cadre_net_worker *w, int layer, cadre_matrix_view samples)
{
    return layer == 0
               ? samples
               : cadre_matrix_read(output_of(w, layer - 1, samples.rows));
}

static cadre_status forward(cadre_net_worker *w, const float *const *params,
    const float *x, int64_t n_samples, cadre_matrix_view *samples)
{
    CADRE_ASSERT(n_samples >= 1);
    if (n_samples > w->capacity) {
        CADRE_TRY(make_room(w, n_samples));
    }
    cadre_thread_plain_floats();

    const cadre_net *net = w->net;
    *samples =
        (cadre_matrix_view){x, n_samples, net->input_width, net->input_width};
    for (int l = 0; l < net->n_layers; l++) {
        const cadre_layer_plan *plan = &net->layers[l];
        CADRE_TRY(plan->ops->forward(plan, params + plan->first_param,
            input_of(w, l, *samples), output_of(w, l, n_samples)));
    }
    return CADRE_OK;
}

// Which part of a leaf a pass is, and who is told.
typedef struct pass {
    bool first;
    bool last;
    const cadre_grad_listener *listener;
} pass;

// The gradients of a layer's parameters.  A later pass's is computed by itself
// and then added, with one rounding (docs/numerics.md).
static cadre_status param_gradients(cadre_net_worker *w, const pass *p,
    const cadre_layer_plan *plan, cadre_matrix_view x, cadre_matrix_view dy)
{
    const cadre_grad_listener *listener = p->listener;
    for (int i = 0; i < plan->ops->n_params; i++) {
        int index = plan->first_param + i;
        float *grad = listener->grad(listener->ctx, index);
        float *to = p->first ? grad : w->addend;
        CADRE_TRY(plan->ops->param_gradient(plan, i, x, dy, to));
        if (!p->first) {
            size_t count = w->net->params[index].count;
            for (size_t j = 0; j < count; j++) {
                grad[j] += to[j];
            }
        }
        if (p->last) {
            CADRE_TRY(listener->ready(listener->ctx, index));
        }
    }
    return CADRE_OK;
}

// Backward through all layers that have parameters, or have such below them;
// dy, the gradient of the net's output, lies in turn 0.
static cadre_status backward(cadre_net_worker *w, const pass *p,
    const float *const *params, cadre_matrix_view samples, cadre_matrix dy)
{
    const cadre_net *net = w->net;
    int turn = 0;
    for (int l = net->n_layers - 1; l >= net->first_trained; l--) {
        const cadre_layer_plan *plan = &net->layers[l];
        CADRE_TRY(param_gradients(
            w, p, plan, input_of(w, l, samples), cadre_matrix_read(dy)));
        if (l == net->first_trained) {
            break;
        }
        turn = plan->ops->in_place ? turn : 1 - turn;
        cadre_matrix dx = activation(w->turns[turn], dy.rows, plan->in);
        CADRE_TRY(plan->ops->input_gradient(plan, params + plan->first_param,
            cadre_matrix_read(output_of(w, l, dy.rows)), cadre_matrix_read(dy),
            dx, w->scratch));
        dy = dx;
    }
    return CADRE_OK;
}

// NOLINTNEXTLINE(readability-function-size): nine things make a pass
cadre_status cadre_net_pass(cadre_net_worker *worker,
    const float *const *params, const float *x, const int32_t *labels,
    int64_t n_samples, bool first, bool last,
    const cadre_grad_listener *listener, double *loss_sum)
{
    cadre_matrix_view samples;
    CADRE_TRY(forward(worker, params, x, n_samples, &samples));

    const cadre_net *net = worker->net;
    cadre_matrix_view z =
        cadre_matrix_read(output_of(worker, net->n_layers - 1, n_samples));
    cadre_matrix dz = activation(worker->turns[0], n_samples, net->n_classes);
    cadre_softmax_cross_entropy(z, labels, worker->losses, dz);

    pass p = {.first = first, .last = last, .listener = listener};
    CADRE_TRY(backward(worker, &p, params, samples, dz));

    double sum = 0.0;
    for (int64_t n = 0; n < n_samples; n++) {
        sum += (double)worker->losses[n];
    }
    *loss_sum = sum;
    return CADRE_OK;
}

cadre_status cadre_net_predict(cadre_net_worker *worker,
    const float *const *params, const float *x, const int32_t *labels,
    int64_t n_samples, float *losses, int32_t *classes)
{
    cadre_matrix_view samples;
    CADRE_TRY(forward(worker, params, x, n_samples, &samples));

    const cadre_net *net = worker->net;
    cadre_matrix_view z =
        cadre_matrix_read(output_of(worker, net->n_layers - 1, n_samples));
    cadre_matrix dz = activation(worker->turns[0], n_samples, net->n_classes);
    cadre_softmax_cross_entropy(z, labels, losses, dz);
    cadre_highest_class(z, classes);
    return CADRE_OK;
}
