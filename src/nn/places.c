// SPDX-License-Identifier: Apache-2.0
//
// Walks through a pass as the worker will, and notes when each buffer is used.

#include "nn/places.h"

#include "base/alloc.h"
#include "nn/lifetimes.h"
#include "nn/owners.h"
#include "nn/rounding.h"

typedef struct survey {
    const cadre_net *net;
    size_t rows;
    const size_t *scratch; // of each layer
    int moment;
    cadre_lifetime *lives; // CADRE_N_BUFFERS for each of these
    cadre_places *places;  // that come of it
} survey;

static cadre_lifetime *life_of(const survey *s, cadre_owner of)
{
    return &s->lives[(of.layer + 1) * CADRE_N_BUFFERS + (int)of.what];
}

// Notes that floats of a buffer are used now.
static void use(const survey *s, cadre_owner of, size_t count)
{
    cadre_lifetime *life = life_of(s, of);
    if (life->count == 0) {
        life->first = s->moment;
    }
    life->count = count > life->count ? count : life->count;
    life->last = s->moment;
}

static void use_own(const survey *s, int layer, cadre_buffer what, size_t count)
{
    use(s, (cadre_owner){layer, what}, count);
}

static size_t activation(const survey *s, int layer)
{
    return s->rows * (size_t)cadre_shape_stride(s->net->layers[layer].out);
}

static void use_output(const survey *s, int layer)
{
    use(s, cadre_output_owner(s->net, layer), activation(s, layer));
}

static void use_gradient(const survey *s, int layer)
{
    use(s, cadre_gradient_owner(s->net, layer), activation(s, layer));
}

static bool is_recomputed(const cadre_net *net, int layer)
{
    return net->layers[cadre_output_owner(net, layer).layer].recomputed;
}

// Where a pass finds a layer's output in bf16: forward, or in backward.
static cadre_owner narrow_owner(const cadre_net *net, int layer, bool backward)
{
    bool again = backward && is_recomputed(net, layer);
    return (cadre_owner){cadre_output_owner(net, layer).layer,
        again ? CADRE_BUFFER_NARROW_AGAIN : CADRE_BUFFER_NARROW};
}

// The same of what goes into a layer.
static cadre_owner narrow_input(const cadre_net *net, int layer, bool backward)
{
    return layer == 0 ? (cadre_owner){-1, CADRE_BUFFER_NARROW}
                      : narrow_owner(net, layer - 1, backward);
}

static void use_narrow(const survey *s, cadre_owner of, cadre_shape shape)
{
    use(s, of,
        cadre_narrow_floats(s->rows * (size_t)cadre_shape_stride(shape)));
}

static void use_narrow_gradient(const survey *s, int layer)
{
    use_narrow(s, (cadre_owner){layer, CADRE_BUFFER_NARROW_GRADIENT},
        s->net->layers[layer].out);
}

static bool scratch_is_late(const cadre_layer_plan *plan)
{
    return plan->ops->scratch_is_late && !cadre_reads_narrow(plan);
}

// Where backward finds a layer's output.
static cadre_owner kept_owner(const survey *s, int layer)
{
    cadre_owner of = cadre_output_owner(s->net, layer);
    if (s->net->layers[layer].narrow) {
        of.what = CADRE_BUFFER_WIDE;
    } else if (is_recomputed(s->net, layer)) {
        of.what = CADRE_BUFFER_AGAIN;
    }
    return of;
}

// Where it finds it while it computes again.
static cadre_owner again_owner(const survey *s, int layer)
{
    const int of = cadre_output_owner(s->net, layer).layer;
    return is_recomputed(s->net, layer) ? (cadre_owner){of, CADRE_BUFFER_AGAIN}
                                        : kept_owner(s, layer);
}

static void use_kept(const survey *s, int layer)
{
    use(s, kept_owner(s, layer), activation(s, layer));
}

static void use_again(const survey *s, int layer)
{
    use(s, again_owner(s, layer), activation(s, layer));
}

// A layer's forward, in its own place or in backward.
static void compute(const survey *s, int layer, bool backward)
{
    const cadre_net *net = s->net;
    const cadre_layer_plan *plan = &net->layers[layer];
    void (*use_wide)(const survey *s, int layer) =
        backward ? use_again : use_output;
    if (cadre_reads_narrow(plan)) {
        use_narrow(s, narrow_input(net, layer, backward), plan->in);
    }
    if (layer > 0 && cadre_reads_wide(plan)) {
        use_wide(s, layer - 1);
    }
    if (!plan->makes_narrow) {
        use_wide(s, layer);
    }
    if (plan->narrows) {
        use_narrow(s, narrow_owner(net, layer, backward), plan->out);
    }
}

static void forward(const survey *s, int layer)
{
    const cadre_layer_plan *plan = &s->net->layers[layer];
    compute(s, layer, false);
    if (plan->ops == &cadre_add) {
        use_output(s, plan->partner);
    }
    if (!scratch_is_late(plan)) {
        use_own(s, layer, CADRE_BUFFER_SCRATCH_FORWARD, s->scratch[layer]);
    }
}

static bool is_missing(const survey *s, int layer)
{
    const cadre_owner again = s->net->layers[layer].narrow
                                  ? narrow_owner(s->net, layer, true)
                                  : again_owner(s, layer);
    return is_recomputed(s->net, layer) && life_of(s, again)->count == 0;
}

// The last layer whose output a layer's backward reads and has to be computed
// again, or -1.
static int missing_for(const survey *s, int layer)
{
    const cadre_layer_plan *plan = &s->net->layers[layer];
    if (cadre_reads_output(plan) && is_missing(s, layer)) {
        return layer;
    }
    return layer > 0 && cadre_reads_input(plan) && is_missing(s, layer - 1)
               ? layer - 1
               : -1;
}

// Finds what a layer's backward computes again: all from what was kept before it
// to the last that shares its memory.
static void find_missing(const survey *s, int layer)
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
    int owner_of_last = cadre_output_owner(net, last).layer;
    while (last + 1 < net->n_layers &&
           cadre_output_owner(net, last + 1).layer == owner_of_last) {
        last++;
    }
    s->places->layers[layer].again_first = first;
    s->places->layers[layer].again_count = last + 1 - first;
}

// Whether an output is widened here: it is kept in bf16, and was not yet.
static bool widen(const survey *s, int output)
{
    bool yes = s->net->layers[output].narrow &&
               life_of(s, kept_owner(s, output))->count == 0;
    if (yes) {
        use_narrow(
            s, narrow_owner(s->net, output, true), s->net->layers[output].out);
        use_kept(s, output);
    }
    return yes;
}

// Has all that a layer's backward reads in f32 brought there.
static void bring(survey *s, int layer)
{
    const cadre_layer_plan *plan = &s->net->layers[layer];
    cadre_layer_places *places = &s->places->layers[layer];
    find_missing(s, layer);
    const int first = places->again_first;
    places->widens_before = places->again_count > 0 && first > 0 &&
                            cadre_reads_wide(&s->net->layers[first]) &&
                            widen(s, first - 1);
    for (int i = 0; i < places->again_count; i++, s->moment++) {
        compute(s, first + i, true);
        if (!scratch_is_late(&s->net->layers[first + i])) {
            use_own(
                s, layer, CADRE_BUFFER_SCRATCH_BACKWARD, s->scratch[first + i]);
        }
    }
    places->widens_output = cadre_reads_output(plan) && widen(s, layer);
    places->widens_input =
        layer > 0 && cadre_reads_wide_back(plan) && widen(s, layer - 1);
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
    bring(s, layer);
    if (!plan->narrow_dy) {
        use_gradient(s, layer);
    }
    if (cadre_reads_output(plan)) {
        use_kept(s, layer);
    }
    if (layer > 0 && cadre_reads_wide_back(plan)) {
        use_kept(s, layer - 1);
    }
    if (cadre_reads_narrow_back(plan)) {
        use_narrow(s, narrow_input(net, layer, true), plan->in);
    }
    if (cadre_layer_takes_narrow_dy(plan)) {
        use_narrow_gradient(s, layer);
    }
    if (plan->ops == &cadre_add) {
        use(s, cadre_left_owner(net, layer), activation(s, layer));
    }
    if (plan->ops == &cadre_residual) {
        use(s, cadre_past_owner(net, layer), activation(s, layer));
    }
    if (plan->narrow_dx) {
        use_narrow_gradient(s, layer - 1);
    } else if (plan->passes_down) {
        use_gradient(s, layer - 1);
    }
    if (plan->passes_down || !scratch_is_late(plan)) {
        use_own(s, layer, CADRE_BUFFER_SCRATCH_BACKWARD, s->scratch[layer]);
    }
    use_own(s, layer, CADRE_BUFFER_ADDEND, largest_param(net, plan));
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
    use_own(s, last, CADRE_BUFFER_LOSSES, s->rows);
    s->moment++;
    for (int l = last; l >= s->net->first_trained; l--, s->moment++) {
        backward(s, l);
    }
    use_own(s, last, CADRE_BUFFER_LOSSES, s->rows);
}

static size_t offset_of(const survey *s, cadre_owner of)
{
    return life_of(s, of)->offset;
}

// Whether an output is read in f32 after it was rounded to bf16.
static bool is_read_after(const survey *s, cadre_owner wide, cadre_owner narrow)
{
    return life_of(s, wide)->last > life_of(s, narrow)->first;
}

static void set_places(const survey *s, int layer)
{
    const cadre_net *net = s->net;
    const cadre_layer_ops *ops = net->layers[layer].ops;
    cadre_layer_places *places = &s->places->layers[layer];
    places->output[0] = offset_of(s, cadre_output_owner(net, layer));
    places->output[1] = offset_of(s, again_owner(s, layer));
    places->output[2] = offset_of(s, kept_owner(s, layer));
    for (int back = 0; back < 2; back++) {
        const cadre_owner narrow = narrow_owner(net, layer, back == 1);
        places->narrow[back] = offset_of(s, narrow);
        places->rounds[back] = is_read_after(s,
            back == 1 ? again_owner(s, layer) : cadre_output_owner(net, layer),
            narrow);
    }
    places->narrow_gradient =
        offset_of(s, (cadre_owner){layer, CADRE_BUFFER_NARROW_GRADIENT});
    places->gradient = offset_of(s, cadre_gradient_owner(net, layer));
    places->scratch[0] =
        offset_of(s, (cadre_owner){layer, CADRE_BUFFER_SCRATCH_FORWARD});
    places->scratch[1] =
        offset_of(s, (cadre_owner){layer, CADRE_BUFFER_SCRATCH_BACKWARD});
    places->addend = offset_of(s, (cadre_owner){layer, CADRE_BUFFER_ADDEND});
    if (ops == &cadre_add) {
        places->past = offset_of(s, cadre_left_owner(net, layer));
    } else if (ops == &cadre_residual) {
        places->past = offset_of(s, cadre_past_owner(net, layer));
    }
}

cadre_status cadre_places_create(const cadre_net *net, int64_t n_samples,
    const size_t *scratch, bool training, cadre_places **out)
{
    size_t n_layers = (size_t)net->n_layers;
    size_t n_lives = (n_layers + 1) * CADRE_N_BUFFERS;
    survey s = {
        .net = net,
        .rows = (size_t)(n_samples * cadre_shape_rows(net->input)),
        .scratch = scratch,
        .lives = cadre_alloc_array(n_lives, sizeof(s.lives[0])),
    };
    s.places = cadre_alloc_flex(
        sizeof(*s.places), n_layers, sizeof(s.places->layers[0]));
    cadre_status status = CADRE_ERR_NO_MEMORY;
    if (s.lives != NULL && s.places != NULL) {
        walk(&s, training);
        status = cadre_lifetimes_place(s.lives, n_lives, &s.places->count);
    }
    if (status == CADRE_OK) {
        s.places->losses = offset_of(
            &s, (cadre_owner){net->n_layers - 1, CADRE_BUFFER_LOSSES});
        s.places->samples =
            offset_of(&s, (cadre_owner){-1, CADRE_BUFFER_NARROW});
        for (int l = 0; l < net->n_layers; l++) {
            set_places(&s, l);
        }
        *out = s.places;
    } else {
        cadre_free(s.places);
    }
    cadre_free(s.lives);
    return status;
}
