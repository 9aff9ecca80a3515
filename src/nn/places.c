// SPDX-License-Identifier: Apache-2.0
//
// Walks through a pass as the worker will, and notes when each buffer is used.

#include "nn/places.h"

#include "base/alloc.h"
#include "nn/lifetimes.h"

// The buffers of a layer; its losses belong to the last.
typedef enum buffer {
    OUTPUT,
    GRADIENT,
    PAST,
    SCRATCH_FORWARD,
    SCRATCH_BACKWARD,
    ADDEND,
    LOSSES,
    N_BUFFERS
} buffer;

typedef struct survey {
    const cadre_net *net;
    size_t rows;
    const size_t *scratch; // of each layer
    int moment;
    cadre_lifetime *lives; // N_BUFFERS for each layer
} survey;

// The layer whose buffer a layer's output lies in.  Samples are not ours, so the
// first layer has one; nor is an output written over that is read again.
static int output_owner(const cadre_net *net, int layer)
{
    for (; layer > 0; layer--) {
        const cadre_layer_ops *ops = net->layers[layer].ops;
        bool writes = ops != &cadre_residual;
        if (!ops->in_place ||
            (writes && net->layers[layer - 1].ops->keeps_output)) {
            break;
        }
    }
    return layer;
}

static int gradient_owner(const cadre_net *net, int layer)
{
    while (layer + 1 < net->n_layers && net->layers[layer + 1].ops->in_place) {
        layer++;
    }
    return layer;
}

static cadre_lifetime *life_of(const survey *s, int layer, buffer what)
{
    return &s->lives[layer * N_BUFFERS + (int)what];
}

// Notes that floats of a buffer are used now.
static void use(const survey *s, int layer, buffer what, size_t count)
{
    cadre_lifetime *life = life_of(s, layer, what);
    if (life->count == 0) {
        life->first = s->moment;
    }
    life->count = count > life->count ? count : life->count;
    life->last = s->moment;
}

static size_t activation(const survey *s, int layer)
{
    return s->rows * (size_t)cadre_shape_stride(s->net->layers[layer].out);
}

static void use_output(const survey *s, int layer)
{
    if (layer >= 0) {
        use(s, output_owner(s->net, layer), OUTPUT, activation(s, layer));
    }
}

static void use_gradient(const survey *s, int layer)
{
    use(s, gradient_owner(s->net, layer), GRADIENT, activation(s, layer));
}

// What goes past a residual's layers backward is the gradient of the add's
// output, which stays where it is if no layer writes over it.
static bool keeps_past(const cadre_net *net, int add)
{
    return !net->layers[add - 1].ops->in_place;
}

static int add_of(const cadre_net *net, int residual)
{
    int add = residual + 1;
    while (net->layers[add].ops != &cadre_add ||
           net->layers[add].partner != residual) {
        add++;
    }
    return add;
}

static void use_past(const survey *s, int residual, int add)
{
    if (keeps_past(s->net, add)) {
        use_gradient(s, add);
    } else {
        use(s, residual, PAST, activation(s, residual));
    }
}

static void forward(const survey *s, int layer)
{
    const cadre_layer_plan *plan = &s->net->layers[layer];
    use_output(s, layer - 1);
    use_output(s, layer);
    if (plan->ops == &cadre_add) {
        use_output(s, plan->partner);
    }
    if (!plan->ops->scratch_is_late) {
        use(s, layer, SCRATCH_FORWARD, s->scratch[layer]);
    }
}

static size_t largest_param(const cadre_net *net, const cadre_layer_plan *plan)
{
    size_t most = 0;
    for (int i = 0; i < plan->ops->n_params; i++) {
        size_t count = net->params[plan->first_param + i].count;
        most = count > most ? count : most;
    }
    return most;
}

static void backward(const survey *s, int layer)
{
    const cadre_net *net = s->net;
    const cadre_layer_plan *plan = &net->layers[layer];
    use_gradient(s, layer);
    if (plan->ops->keeps_output) {
        use_output(s, layer);
    }
    if (!plan->ops->in_place && !plan->ops->forgets_input) {
        use_output(s, layer - 1);
    }
    if (plan->ops == &cadre_add) {
        use_past(s, plan->partner, layer);
    }
    if (plan->ops == &cadre_residual) {
        use_past(s, layer, add_of(net, layer));
    }
    if (plan->passes_down) {
        use_gradient(s, layer - 1);
    }
    if (plan->passes_down || !plan->ops->scratch_is_late) {
        use(s, layer, SCRATCH_BACKWARD, s->scratch[layer]);
    }
    use(s, layer, ADDEND, largest_param(net, plan));
}

// The scores meet their labels; the losses of a training pass are wanted to its
// end.
static void walk(survey *s, bool training)
{
    const int last = s->net->n_layers - 1;
    for (int l = 0; l <= last; l++, s->moment++) {
        forward(s, l);
    }
    use_output(s, last);
    use_gradient(s, last);
    if (!training) {
        return;
    }
    use(s, last, LOSSES, s->rows);
    s->moment++;
    for (int l = last; l >= s->net->first_trained; l--, s->moment++) {
        backward(s, l);
    }
    use(s, last, LOSSES, s->rows);
}

static size_t offset_of(const survey *s, int layer, buffer what)
{
    return life_of(s, layer, what)->offset;
}

static cadre_layer_places places_of(const survey *s, int layer)
{
    const cadre_net *net = s->net;
    int gradient = gradient_owner(net, layer);
    cadre_layer_places places = {
        .output = offset_of(s, output_owner(net, layer), OUTPUT),
        .gradient = offset_of(s, gradient, GRADIENT),
        .scratch = {offset_of(s, layer, SCRATCH_FORWARD),
            offset_of(s, layer, SCRATCH_BACKWARD)},
        .addend = offset_of(s, layer, ADDEND),
    };
    if (net->layers[layer].ops == &cadre_residual) {
        int add = add_of(net, layer);
        places.past = keeps_past(net, add)
                          ? offset_of(s, gradient_owner(net, add), GRADIENT)
                          : offset_of(s, layer, PAST);
    }
    return places;
}

cadre_status cadre_places_create(const cadre_net *net, int64_t n_samples,
    const size_t *scratch, bool training, cadre_places **out)
{
    size_t n_layers = (size_t)net->n_layers;
    survey s = {
        .net = net,
        .rows = (size_t)(n_samples * cadre_shape_rows(net->input)),
        .scratch = scratch,
        .lives = cadre_alloc_array(n_layers * N_BUFFERS, sizeof(s.lives[0])),
    };
    cadre_places *places =
        cadre_alloc_flex(sizeof(*places), n_layers, sizeof(places->layers[0]));
    cadre_status status = CADRE_ERR_NO_MEMORY;
    if (s.lives != NULL && places != NULL) {
        walk(&s, training);
        status = cadre_lifetimes_place(
            s.lives, n_layers * N_BUFFERS, &places->count);
    }
    if (status == CADRE_OK) {
        places->losses = offset_of(&s, net->n_layers - 1, LOSSES);
        for (int l = 0; l < net->n_layers; l++) {
            places->layers[l] = places_of(&s, l);
        }
        *out = places;
    } else {
        cadre_free(places);
    }
    cadre_free(s.lives);
    return status;
}
