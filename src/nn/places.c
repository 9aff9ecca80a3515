// SPDX-License-Identifier: Apache-2.0
//
// Walks through a pass as the worker will, and notes when each buffer is used.

#include "nn/places.h"

#include "base/alloc.h"
#include "nn/lifetimes.h"

// The buffers of a layer; its losses belong to the last.
typedef enum buffer {
    OUTPUT,
    AGAIN,  // the output, computed again
    NARROW, // the output in bf16
    NARROW_AGAIN,
    GRADIENT,
    NARROW_GRADIENT,
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
    bool *narrow; // whose outputs are wanted in bf16, the samples before all
    int moment;
    cadre_lifetime *lives; // N_BUFFERS for each of these
    cadre_places *places;  // that come of it
} survey;

// A buffer, and whose it is.
typedef struct owner {
    int layer;
    buffer what;
} owner;

// Where a layer's output lies.  Samples are not ours, so the first layer has a
// buffer; nor is an output written over that is read again.
static owner output_owner(const cadre_net *net, int layer)
{
    while (layer > 0) {
        const cadre_layer_plan *plan = &net->layers[layer];
        bool kept = net->layers[layer - 1].ops->keeps_output;
        if (plan->ops == &cadre_shortcut) {
            layer = plan->partner;
        } else if (plan->ops->in_place && (plan->ops->passes_on || !kept)) {
            layer--;
        } else {
            break;
        }
    }
    return (owner){layer, OUTPUT};
}

static int add_behind(const cadre_net *net, int layer)
{
    while (net->layers[layer].ops != &cadre_add) {
        layer++;
    }
    return layer;
}

// True if the last layer's backward does not read the scores again, so that
// their gradient may be written over them.
static bool gives_up_scores(const cadre_net *net)
{
    const cadre_layer_ops *last = net->layers[net->n_layers - 1].ops;
    return !last->in_place && !last->keeps_output;
}

// Where the gradient of a layer's output lies, if none before an "add" is in the
// way.
static owner plain_gradient_owner(const cadre_net *net, int layer)
{
    while (layer + 1 < net->n_layers && net->layers[layer + 1].ops->in_place) {
        layer++;
    }
    return layer + 1 == net->n_layers && gives_up_scores(net)
               ? output_owner(net, layer)
               : (owner){layer, GRADIENT};
}

// What an "add" leaves for later is the gradient of its output, which stays
// where it is if no layer writes over it before.
static owner left_owner(const cadre_net *net, int add)
{
    const cadre_layer_ops *before = net->layers[add - 1].ops;
    return before->in_place || before == &cadre_shortcut
               ? (owner){add, PAST}
               : plain_gradient_owner(net, add);
}

// A layer before a "shortcut" gets what the "add" behind that has left.
static owner gradient_owner(const cadre_net *net, int layer)
{
    int last = layer;
    while (last + 1 < net->n_layers && net->layers[last + 1].ops->in_place) {
        last++;
    }
    bool before_shortcut = last + 1 < net->n_layers &&
                           net->layers[last + 1].ops == &cadre_shortcut;
    return before_shortcut ? left_owner(net, add_behind(net, last))
                           : plain_gradient_owner(net, layer);
}

// Where a "residual" finds the gradient of the way that backward went first:
// what its "add" has left, or what came out at its "shortcut".
static owner past_owner(const cadre_net *net, int residual)
{
    int add = add_behind(net, residual);
    for (int l = residual + 1; l < add; l++) {
        if (net->layers[l].ops == &cadre_shortcut) {
            return gradient_owner(net, l);
        }
    }
    return left_owner(net, add);
}

static cadre_lifetime *life_of(const survey *s, owner of)
{
    return &s->lives[(of.layer + 1) * N_BUFFERS + (int)of.what];
}

// Notes that floats of a buffer are used now.
static void use(const survey *s, owner of, size_t count)
{
    cadre_lifetime *life = life_of(s, of);
    if (life->count == 0) {
        life->first = s->moment;
    }
    life->count = count > life->count ? count : life->count;
    life->last = s->moment;
}

static void use_own(const survey *s, int layer, buffer what, size_t count)
{
    use(s, (owner){layer, what}, count);
}

static size_t activation(const survey *s, int layer)
{
    return s->rows * (size_t)cadre_shape_stride(s->net->layers[layer].out);
}

static void use_output(const survey *s, int layer)
{
    if (layer >= 0) {
        use(s, output_owner(s->net, layer), activation(s, layer));
    }
}

static void use_gradient(const survey *s, int layer)
{
    use(s, gradient_owner(s->net, layer), activation(s, layer));
}

static bool is_recomputed(const cadre_net *net, int layer)
{
    return net->layers[output_owner(net, layer).layer].recomputed;
}

// Where a pass finds a layer's output in bf16: forward, or in backward.
static owner narrow_owner(const cadre_net *net, int layer, bool backward)
{
    bool again = backward && is_recomputed(net, layer);
    return (owner){
        output_owner(net, layer).layer, again ? NARROW_AGAIN : NARROW};
}

// The same of what goes into a layer.
static owner narrow_input(const cadre_net *net, int layer, bool backward)
{
    return layer == 0 ? (owner){-1, NARROW}
                      : narrow_owner(net, layer - 1, backward);
}

static void use_narrow(const survey *s, owner of, cadre_shape shape)
{
    use(s, of,
        cadre_narrow_floats(s->rows * (size_t)cadre_shape_stride(shape)));
}

// True if the layer is the last that writes to its output's memory, and that is
// wanted in bf16.
static bool narrows(const survey *s, int layer)
{
    const cadre_net *net = s->net;
    const int of = output_owner(net, layer).layer;
    bool goes_on = layer + 1 < net->n_layers &&
                   net->layers[layer + 1].ops->in_place &&
                   output_owner(net, layer + 1).layer == of;
    return s->narrow[of + 1] && !goes_on &&
           net->layers[layer].ops != &cadre_shortcut;
}

static bool scratch_is_late(const cadre_layer_plan *plan)
{
    return plan->ops->scratch_is_late && !plan->bf16;
}

static void forward(const survey *s, int layer)
{
    const cadre_net *net = s->net;
    const cadre_layer_plan *plan = &net->layers[layer];
    if (plan->bf16) {
        use_narrow(s, narrow_input(net, layer, false), plan->in);
    } else {
        use_output(s, layer - 1);
    }
    use_output(s, layer);
    if (plan->ops == &cadre_add) {
        use_output(s, plan->partner);
    }
    if (narrows(s, layer)) {
        use_narrow(s, narrow_owner(net, layer, false), plan->out);
    }
    if (!scratch_is_late(plan)) {
        use_own(s, layer, SCRATCH_FORWARD, s->scratch[layer]);
    }
}

// Where backward finds a layer's output.
static owner kept_owner(const cadre_net *net, int layer)
{
    owner of = output_owner(net, layer);
    return is_recomputed(net, layer) ? (owner){of.layer, AGAIN} : of;
}

static void use_kept(const survey *s, int layer)
{
    if (layer >= 0) {
        use(s, kept_owner(s->net, layer), activation(s, layer));
    }
}

static bool reads_output(const cadre_layer_plan *plan)
{
    return plan->ops->keeps_output ||
           (plan->then_relu && plan->ops->masks_gradient);
}

static bool reads_input(const cadre_layer_plan *plan)
{
    return !plan->ops->in_place && !plan->ops->forgets_input;
}

static bool is_missing(const survey *s, int layer)
{
    return layer >= 0 && life_of(s, kept_owner(s->net, layer))->count == 0;
}

// The last layer whose output a layer's backward reads and is not there, or -1.
static int missing_for(const survey *s, int layer)
{
    const cadre_layer_plan *plan = &s->net->layers[layer];
    if (reads_output(plan) && is_missing(s, layer)) {
        return layer;
    }
    return reads_input(plan) && is_missing(s, layer - 1) ? layer - 1 : -1;
}

// Computes it again, with all from what was kept before it to the last that
// shares its memory.
static void compute_again(survey *s, int layer)
{
    const cadre_net *net = s->net;
    int last = missing_for(s, layer);
    if (last < 0) {
        return;
    }
    int first = last;
    while (first > 0 && is_recomputed(net, first - 1)) {
        first--;
    }
    int owner_of_last = output_owner(net, last).layer;
    while (last + 1 < net->n_layers &&
           output_owner(net, last + 1).layer == owner_of_last) {
        last++;
    }
    for (int l = first; l <= last; l++, s->moment++) {
        if (net->layers[l].bf16) {
            use_narrow(s, narrow_input(net, l, true), net->layers[l].in);
        } else {
            use_kept(s, l - 1);
        }
        use_kept(s, l);
        if (narrows(s, l)) {
            use_narrow(s, narrow_owner(net, l, true), net->layers[l].out);
        }
        if (!scratch_is_late(&net->layers[l])) {
            use_own(s, layer, SCRATCH_BACKWARD, s->scratch[l]);
        }
    }
    s->places->layers[layer].again_first = first;
    s->places->layers[layer].again_count = last + 1 - first;
}

static size_t largest_param(const cadre_net *net, const cadre_layer_plan *plan)
{
    size_t most = 0;
    for (int i = 0; i < plan->n_params; i++) {
        size_t count = net->params[plan->first_param + i].count;
        most = count > most ? count : most;
    }
    return most;
}

static void backward(survey *s, int layer)
{
    const cadre_net *net = s->net;
    const cadre_layer_plan *plan = &net->layers[layer];
    compute_again(s, layer);
    use_gradient(s, layer);
    if (reads_output(plan)) {
        use_kept(s, layer);
    }
    if (plan->bf16 && !plan->wide_gradient) {
        use_narrow(s, narrow_input(net, layer, true), plan->in);
    } else if (reads_input(plan)) {
        use_kept(s, layer - 1);
    }
    if (plan->bf16 && (plan->passes_down || !plan->wide_gradient)) {
        use_narrow(s, (owner){layer, NARROW_GRADIENT}, plan->out);
    }
    if (plan->ops == &cadre_add) {
        use(s, left_owner(net, layer), activation(s, layer));
    }
    if (plan->ops == &cadre_residual) {
        use(s, past_owner(net, layer), activation(s, layer));
    }
    if (plan->passes_down) {
        use_gradient(s, layer - 1);
    }
    if (plan->passes_down || !scratch_is_late(plan)) {
        use_own(s, layer, SCRATCH_BACKWARD, s->scratch[layer]);
    }
    use_own(s, layer, ADDEND, largest_param(net, plan));
}

// Whose outputs products of bf16 read.
static void find_narrow(survey *s)
{
    for (int l = 0; l < s->net->n_layers; l++) {
        if (s->net->layers[l].bf16) {
            s->narrow[output_owner(s->net, l - 1).layer + 1] = true;
        }
    }
}

// The scores meet their labels; the losses of a training pass are wanted to its
// end.
static void walk(survey *s, bool training)
{
    const int last = s->net->n_layers - 1;
    find_narrow(s);
    for (int l = 0; l <= last; l++, s->moment++) {
        forward(s, l);
    }
    use_output(s, last);
    use_gradient(s, last);
    if (!training) {
        return;
    }
    use_own(s, last, LOSSES, s->rows);
    s->moment++;
    for (int l = last; l >= s->net->first_trained; l--, s->moment++) {
        backward(s, l);
    }
    use_own(s, last, LOSSES, s->rows);
}

static size_t offset_of(const survey *s, owner of)
{
    return life_of(s, of)->offset;
}

static void set_places(const survey *s, int layer)
{
    const cadre_net *net = s->net;
    const cadre_layer_ops *ops = net->layers[layer].ops;
    cadre_layer_places *places = &s->places->layers[layer];
    places->output = offset_of(s, output_owner(net, layer));
    places->kept = offset_of(s, kept_owner(net, layer));
    places->narrow[0] = offset_of(s, narrow_owner(net, layer, false));
    places->narrow[1] = offset_of(s, narrow_owner(net, layer, true));
    places->narrows = narrows(s, layer);
    places->narrow_gradient = offset_of(s, (owner){layer, NARROW_GRADIENT});
    places->gradient = offset_of(s, gradient_owner(net, layer));
    places->scratch[0] = offset_of(s, (owner){layer, SCRATCH_FORWARD});
    places->scratch[1] = offset_of(s, (owner){layer, SCRATCH_BACKWARD});
    places->addend = offset_of(s, (owner){layer, ADDEND});
    if (ops == &cadre_add) {
        places->past = offset_of(s, left_owner(net, layer));
    } else if (ops == &cadre_residual) {
        places->past = offset_of(s, past_owner(net, layer));
    }
}

cadre_status cadre_places_create(const cadre_net *net, int64_t n_samples,
    const size_t *scratch, bool training, cadre_places **out)
{
    size_t n_layers = (size_t)net->n_layers;
    size_t n_lives = (n_layers + 1) * N_BUFFERS;
    survey s = {
        .net = net,
        .rows = (size_t)(n_samples * cadre_shape_rows(net->input)),
        .scratch = scratch,
        .narrow = cadre_alloc_array(n_layers + 1, sizeof(s.narrow[0])),
        .lives = cadre_alloc_array(n_lives, sizeof(s.lives[0])),
    };
    s.places = cadre_alloc_flex(
        sizeof(*s.places), n_layers, sizeof(s.places->layers[0]));
    cadre_status status = CADRE_ERR_NO_MEMORY;
    if (s.narrow != NULL && s.lives != NULL && s.places != NULL) {
        walk(&s, training);
        status = cadre_lifetimes_place(s.lives, n_lives, &s.places->count);
    }
    if (status == CADRE_OK) {
        s.places->losses = offset_of(&s, (owner){net->n_layers - 1, LOSSES});
        s.places->samples = offset_of(&s, (owner){-1, NARROW});
        for (int l = 0; l < net->n_layers; l++) {
            set_places(&s, l);
        }
        *out = s.places;
    } else {
        cadre_free(s.places);
    }
    cadre_free(s.narrow);
    cadre_free(s.lives);
    return status;
}
