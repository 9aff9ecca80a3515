// SPDX-License-Identifier: Apache-2.0
//
// Passes.  Each layer writes its output once, and backward needs two gradients
// at a time, so two buffers take turns; that of the scores is written over
// them.  All of it lies in one block.

#include "nn/net.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/thread.h"
#include "nn/plan.h"
#include "nn/softmax_cross_entropy.h"

// What layers keep for passes of one number of samples.
typedef struct pass_size {
    int64_t n_samples;
    cadre_layer_state **states; // of each layer; NULL of those that keep none
} pass_size;

struct cadre_net_worker {
    const cadre_net *net; // borrowed
    int n_sizes;
    pass_size *sizes;
    int64_t capacity;     // samples there is room for
    size_t scratch_count; // that the layer wants that wants most
    float *block;         // all that follows lies in it
    float *losses;        // (capacity, labels of a sample)
    float *past;          // gradient that goes past layers of a residual
    float *addend;        // a later pass's gradient of one parameter
    float *scratch;       // of one layer at a time
    float *turns[2];      // gradients of activations
    float *outputs[];     // of each layer; perhaps an earlier one's
};

static size_t padded(size_t count)
{
    return (size_t)cadre_matrix_stride((int64_t)count);
}

// The layer whose output's memory a layer's output takes over, or -1.  The
// samples are not ours.
static int shares_memory(const cadre_net *net, int layer)
{
    const cadre_layer_plan *plan = &net->layers[layer];
    if (plan->ops == &cadre_shortcut) {
        return plan->partner;
    }
    bool shares =
        layer > 0 && plan->ops->in_place &&
        (plan->ops->passes_on || !net->layers[layer - 1].ops->keeps_output);
    return shares ? layer - 1 : -1;
}

// True if the last layer's backward does not read the scores again.
static bool gives_up_scores(const cadre_net *net)
{
    const cadre_layer_ops *last = net->layers[net->n_layers - 1].ops;
    return !last->in_place && !last->keeps_output;
}

// Floats per row of the widest gradient of an activation.
static int64_t widest(const cadre_net *net)
{
    int64_t most = 0;
    int n_layers = net->n_layers - (gives_up_scores(net) ? 1 : 0);
    for (int l = 0; l < n_layers; l++) {
        int64_t stride = cadre_shape_stride(net->layers[l].out);
        most = stride > most ? stride : most;
    }
    return most;
}

static int64_t widest_residual(const cadre_net *net)
{
    int64_t most = 0;
    for (int l = 0; l < net->n_layers; l++) {
        const cadre_layer_ops *ops = net->layers[l].ops;
        if (ops == &cadre_residual || ops == &cadre_add) {
            int64_t stride = cadre_shape_stride(net->layers[l].out);
            most = stride > most ? stride : most;
        }
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
    size_t rows = (size_t)(capacity * cadre_shape_rows(net->input));
    size_t used = 0;
    for (int l = 0; l < net->n_layers; l++) {
        size_t stride = (size_t)cadre_shape_stride(net->layers[l].out);
        int other = shares_memory(net, l);
        w->outputs[l] =
            other >= 0 ? w->outputs[other] : take(block, &used, rows * stride);
    }
    for (int i = 0; i < 2; i++) {
        w->turns[i] = take(block, &used, rows * (size_t)widest(net));
    }
    w->past = take(block, &used, rows * (size_t)widest_residual(net));
    w->losses = take(block, &used, padded(rows));
    w->addend = take(block, &used, padded(net->largest_param));
    w->scratch = take(block, &used, padded(w->scratch_count));
    return used;
}

static void release_states(const cadre_net *net, cadre_layer_state **states)
{
    for (int l = 0; l < net->n_layers && states != NULL; l++) {
        const cadre_layer_ops *ops = net->layers[l].ops;
        if (ops->release != NULL) {
            ops->release(states[l]);
        }
    }
    cadre_free(states);
}

// Has each layer make what it needs for a size; scratch gets the most that one
// of them wants.
static cadre_status prepare_states(const cadre_net *net, int64_t n_samples,
    cadre_layer_state **states, size_t *scratch)
{
    for (int l = 0; l < net->n_layers; l++) {
        const cadre_layer_plan *plan = &net->layers[l];
        size_t wanted = plan->scratch;
        if (plan->ops->prepare != NULL) {
            CADRE_TRY(plan->ops->prepare(plan, n_samples, &states[l]));
            wanted = states[l]->scratch;
        }
        *scratch = wanted > *scratch ? wanted : *scratch;
    }
    return CADRE_OK;
}

static const pass_size *find_size(const cadre_net_worker *w, int64_t n_samples)
{
    for (int i = 0; i < w->n_sizes; i++) {
        if (w->sizes[i].n_samples == n_samples) {
            return &w->sizes[i];
        }
    }
    return NULL;
}

// Adds a size; scratch as prepare_states() has it.
static cadre_status add_size(
    cadre_net_worker *w, int64_t n_samples, size_t *scratch)
{
    const cadre_net *net = w->net;
    size_t n = (size_t)w->n_sizes;
    pass_size *sizes = cadre_alloc_array(n + 1, sizeof(*sizes));
    cadre_layer_state **states =
        cadre_alloc_array((size_t)net->n_layers, sizeof(cadre_layer_state *));
    cadre_status status = CADRE_ERR_NO_MEMORY;
    if (sizes != NULL && states != NULL) {
        status = prepare_states(net, n_samples, states, scratch);
    }
    if (status != CADRE_OK) {
        release_states(net, states);
        cadre_free(sizes);
        return status;
    }
    for (size_t i = 0; i < n; i++) {
        sizes[i] = w->sizes[i];
    }
    sizes[n] = (pass_size){n_samples, states};
    cadre_free(w->sizes);
    w->sizes = sizes;
    w->n_sizes++;
    return CADRE_OK;
}

// Makes room for passes of up to capacity samples, with a scratch of that many
// floats; what was there is lost.
static cadre_status make_room(
    cadre_net_worker *w, int64_t capacity, size_t scratch_count)
{
    cadre_free(w->block);
    w->capacity = 0;
    w->block = NULL;
    w->scratch_count = scratch_count;
    size_t count = lay_out(w, NULL, capacity);
    w->block = cadre_alloc_array(count, sizeof(*w->block));
    if (w->block == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    (void)lay_out(w, w->block, capacity);
    w->capacity = capacity;
    return CADRE_OK;
}

// Makes what passes of these sizes need, where it is not there yet.
static cadre_status get_ready(
    cadre_net_worker *w, const int64_t *sizes, int n_sizes)
{
    enum { MOST_ROWS = 1 << 24 };
    const int64_t most = MOST_ROWS / cadre_shape_rows(w->net->input);
    int64_t largest = w->capacity;
    size_t scratch = w->scratch_count;
    for (int i = 0; i < n_sizes; i++) {
        if (sizes[i] < 1 || sizes[i] > most) {
            return cadre_fail(CADRE_ERR_INVALID_ARG,
                "a pass of %lld samples: 1 to %lld are possible",
                (long long)sizes[i], (long long)most);
        }
        largest = sizes[i] > largest ? sizes[i] : largest;
        if (find_size(w, sizes[i]) == NULL) {
            CADRE_TRY(add_size(w, sizes[i], &scratch));
        }
    }
    return largest == w->capacity && scratch == w->scratch_count
               ? CADRE_OK
               : make_room(w, largest, scratch);
}

cadre_status cadre_net_worker_create(const cadre_net *net, const int64_t *sizes,
    int n_sizes, cadre_net_worker **out)
{
    cadre_net_worker *w = cadre_alloc_flex(
        sizeof(*w), (size_t)net->n_layers, sizeof(w->outputs[0]));
    if (w == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    w->net = net;
    cadre_status status = get_ready(w, sizes, n_sizes);
    if (status != CADRE_OK) {
        cadre_net_worker_destroy(w);
        return status;
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
        release_states(worker->net, worker->sizes[i].states);
    }
    cadre_free(worker->sizes);
    cadre_free(worker->block);
    cadre_free(worker);
}

// An activation, or its gradient.
static cadre_matrix activation(float *data, int64_t rows, cadre_shape shape)
{
    return (cadre_matrix){
        data, rows, cadre_shape_columns(shape), cadre_shape_stride(shape)};
}

static cadre_matrix output_of(
    const cadre_net_worker *w, int layer, int64_t rows)
{
    return activation(w->outputs[layer], rows, w->net->layers[layer].out);
}

// What a net's passes forward and backward have in common.
typedef struct journey {
    cadre_net_worker *worker;
    const pass_size *size;
    const float *const *params;
    cadre_matrix_view samples; // a row for each, or for each of its tokens
    const cadre_pass *pass;    // NULL: forward only
} journey;

static cadre_status set_out(cadre_net_worker *w, const float *const *params,
    const float *x, int64_t n_samples, journey *j)
{
    CADRE_TRY(get_ready(w, &n_samples, 1));
    cadre_thread_plain_floats();
    int64_t width = cadre_shape_elements(w->net->input);
    *j = (journey){
        .worker = w,
        .size = find_size(w, n_samples),
        .params = params,
        .samples = {x, n_samples * cadre_shape_rows(w->net->input), width,
            width},
    };
    return CADRE_OK;
}

// A layer's part, but for what backward alone knows.
static cadre_layer_call call_of(const journey *j, int layer)
{
    const cadre_net_worker *w = j->worker;
    const cadre_layer_plan *plan = &w->net->layers[layer];
    return (cadre_layer_call){
        .plan = plan,
        .state = j->size->states[layer],
        .params = j->params + plan->first_param,
        .x = layer == 0
                 ? j->samples
                 : cadre_matrix_read(output_of(w, layer - 1, j->samples.rows)),
        .pass = j->pass,
        .scratch = w->scratch,
    };
}

static cadre_status forward(const journey *j)
{
    const cadre_net_worker *w = j->worker;
    for (int l = 0; l < w->net->n_layers; l++) {
        cadre_layer_call call = call_of(j, l);
        if (call.plan->ops == &cadre_add) {
            call.past = output_of(w, call.plan->partner, j->samples.rows);
        }
        CADRE_TRY(
            call.plan->ops->forward(&call, output_of(w, l, j->samples.rows)));
    }
    return CADRE_OK;
}

// The gradients of a layer's parameters.  A later pass's is computed by itself
// and then added, with one rounding (docs/numerics.md); so is the second one of
// a parameter that two layers use, and it is ready after that.
static cadre_status param_gradients(const journey *j,
    const cadre_layer_call *call, const cadre_grad_listener *listener)
{
    const cadre_layer_plan *plan = call->plan;
    for (int i = 0; i < plan->n_params; i++) {
        int index = plan->first_param + i;
        float *grad = listener->grad(listener->ctx, index);
        bool fresh = j->pass->first && !plan->lends;
        float *to = fresh ? grad : j->worker->addend;
        CADRE_TRY(plan->ops->param_gradient(call, i, to));
        if (!fresh) {
            size_t count = j->worker->net->params[index].count;
            for (size_t k = 0; k < count; k++) {
                grad[k] += to[k];
            }
        }
        if (j->pass->last && plan->tied == NULL) {
            CADRE_TRY(listener->ready(listener->ctx, index));
        }
    }
    return CADRE_OK;
}

// Backward through all layers that have parameters, or have such below them;
// dy, the gradient of the net's output, lies in its place or in turn 0.
static cadre_status backward(
    const journey *j, cadre_matrix dy, const cadre_grad_listener *listener)
{
    const cadre_net_worker *w = j->worker;
    const cadre_net *net = w->net;
    int turn = 0;
    for (int l = net->n_layers - 1; l >= net->first_trained; l--) {
        cadre_layer_call call = call_of(j, l);
        call.y = cadre_matrix_read(output_of(w, l, dy.rows));
        call.dy = cadre_matrix_read(dy);
        call.past = activation(w->past, dy.rows, call.plan->in);
        CADRE_TRY(param_gradients(j, &call, listener));
        if (!call.plan->passes_down) {
            break;
        }
        turn = call.plan->ops->in_place ? turn : 1 - turn;
        cadre_matrix dx = activation(w->turns[turn], dy.rows, call.plan->in);
        CADRE_TRY(call.plan->ops->input_gradient(&call, dx));
        dy = dx;
    }
    return CADRE_OK;
}

// The scores of all classes, and where their gradient goes.
static cadre_matrix_view scores(const journey *j, cadre_matrix *dz)
{
    const cadre_net_worker *w = j->worker;
    int last = w->net->n_layers - 1;
    int64_t rows = j->samples.rows;
    cadre_matrix z = output_of(w, last, rows);
    *dz = gives_up_scores(w->net)
              ? z
              : activation(w->turns[0], rows, w->net->layers[last].out);
    return cadre_matrix_read(z);
}

cadre_status cadre_net_pass(cadre_net_worker *worker,
    const float *const *params, const cadre_pass *pass,
    const cadre_grad_listener *listener, double *loss_sum)
{
    journey j;
    CADRE_TRY(set_out(worker, params, pass->x, pass->n_samples, &j));
    j.pass = pass;
    CADRE_TRY(forward(&j));

    cadre_matrix dz;
    cadre_matrix_view z = scores(&j, &dz);
    cadre_softmax_cross_entropy(
        z, pass->labels, pass->label_smoothing, worker->losses, dz);
    CADRE_TRY(backward(&j, dz, listener));

    double sum = 0.0;
    for (int64_t n = 0; n < z.rows; n++) {
        sum += (double)worker->losses[n];
    }
    *loss_sum = sum;
    return CADRE_OK;
}

cadre_status cadre_net_predict(cadre_net_worker *worker,
    const float *const *params, const float *x, const int32_t *labels,
    int64_t n_samples, float *losses, int32_t *classes)
{
    journey j;
    CADRE_TRY(set_out(worker, params, x, n_samples, &j));
    CADRE_TRY(forward(&j));

    cadre_matrix dz;
    cadre_matrix_view z = scores(&j, &dz);
    cadre_highest_class(z, classes);
    cadre_softmax_cross_entropy(z, labels, 0.0f, losses, dz);
    return CADRE_OK;
}

cadre_status cadre_net_scores(cadre_net_worker *worker,
    const float *const *params, const float *x, int64_t n_samples,
    cadre_matrix_view *scores_out)
{
    journey j;
    CADRE_TRY(set_out(worker, params, x, n_samples, &j));
    CADRE_TRY(forward(&j));
    cadre_matrix dz;
    *scores_out = scores(&j, &dz);
    return CADRE_OK;
}
