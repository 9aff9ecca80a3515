// SPDX-License-Identifier: Apache-2.0
//
// Nets of any layers: the input describes one, and its samples.  What
// cadre_net_create() takes has the same bits on fresh memory and on memory full
// of NaNs, and where it keeps activations and where it computes them again.
// Passes of one sample each find what a pass of all does, up to rounding.  None
// allocates.

#include "fuzz.h"

#include "base/alloc.h"
#include "nn/formula.h"
#include "nn/plan.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 24, MOST_PARAMS = 4 * MOST_LAYERS };
enum { MOST_SAMPLES = 4, MOST_TOKENS = 40 };
enum { MOST_LABELS = (MOST_SAMPLES + 1) * MOST_TOKENS };

// make_corpus.py knows their order.
static const cadre_layer_ops *const kinds[] = {&cadre_linear, &cadre_conv2d,
    &cadre_maxpool2d, &cadre_avgpool2d, &cadre_global_avgpool2d,
    &cadre_batch_norm2d, &cadre_layer_norm, &cadre_rms_norm,
    &cadre_local_response_norm, &cadre_relu, &cadre_gelu, &cadre_silu,
    &cadre_swiglu, &cadre_dropout, &cadre_residual, &cadre_shortcut, &cadre_add,
    &cadre_embedding, &cadre_positions, &cadre_causal_attention,
    &cadre_attention, &cadre_rotary, &cadre_unembedding};

enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

// What an input says.
typedef struct description {
    cadre_shape sample;
    int n_samples;
    int n_classes;
    bool bf16;
    bool has_gaps; // places without a label, and in texts some without a token
    float label_smoothing;
    bool mixes; // one sample sees the others, in training: a batch norm
    int n_layers;
    cadre_layer layers[MOST_LAYERS];
    char names[MOST_LAYERS][8];
} description;

static int read_field(
    fuzz_input *in, const cadre_layer_ops *ops, unsigned bit, int n_values)
{
    return ops->takes & bit ? fuzz_byte(in) % n_values : 0;
}

static void read_layer(
    fuzz_input *in, const cadre_layer_ops *ops, description *d)
{
    char *name = d->names[d->n_layers];
    cadre_layer *layer = &d->layers[d->n_layers];
    snprintf(name, sizeof(d->names[0]), "l%d", d->n_layers++);
    layer->kind = ops->kind;
    layer->name = ops->n_params > 0 ? name : NULL;
    layer->width = read_field(in, ops, CADRE_TAKES_WIDTH, 64);
    layer->kernel = read_field(in, ops, CADRE_TAKES_WINDOW, 11);
    layer->stride = read_field(in, ops, CADRE_TAKES_WINDOW, 4);
    layer->padding = read_field(in, ops, CADRE_TAKES_WINDOW, 6);
    layer->dilation = read_field(in, ops, CADRE_TAKES_FILTER, 4);
    layer->groups = read_field(in, ops, CADRE_TAKES_FILTER, 48);
    layer->no_bias = read_field(in, ops, CADRE_TAKES_NO_BIAS, 2) == 1;
    layer->rate = (float)read_field(in, ops, CADRE_TAKES_RATE, 10) / 10.0f;
    layer->heads = read_field(in, ops, CADRE_TAKES_HEADS, 8);
    layer->kv_heads = read_field(in, ops, CADRE_TAKES_KV_HEADS, 8);
    layer->vocabulary = ops == &cadre_embedding ? d->n_classes : 0;
    layer->tied = ops == &cadre_unembedding ? d->names[0] : NULL;
    d->mixes = d->mixes || ops == &cadre_batch_norm2d;
}

static void read_description(fuzz_input *in, description *d)
{
    const unsigned flags = fuzz_byte(in);
    d->bf16 = flags & 2;
    d->has_gaps = flags & 4;
    d->label_smoothing = flags & 8 ? 0.1f : 0.0f;
    d->n_samples = 1 + fuzz_byte(in) % MOST_SAMPLES;
    d->n_classes = 1 + fuzz_byte(in) % 32;
    if (flags & 1) {
        d->sample.tokens = 1 + fuzz_byte(in) % MOST_TOKENS;
    } else {
        d->sample.channels = 1 + fuzz_byte(in) % 48;
        d->sample.height = 1 + fuzz_byte(in) % 20;
        d->sample.width = 1 + fuzz_byte(in) % 20;
    }
    while (in->left > 0 && d->n_layers < MOST_LAYERS - 1) {
        read_layer(in, kinds[fuzz_byte(in) % N_KINDS], d);
    }
    if (d->n_layers == 0 || d->layers[d->n_layers - 1].tied == NULL) {
        read_layer(in, &cadre_linear, d);
        d->layers[d->n_layers - 1].width = d->n_classes;
    }
}

// An array for each parameter: its values, or gradients.
typedef struct tensors {
    int n;
    size_t counts[MOST_PARAMS];
    float *data[MOST_PARAMS];
} tensors;

// Not cadre_alloc(): sanitizers see where this memory ends, to the byte.
static void *allocate(size_t count, size_t element_bytes)
{
    void *block = calloc(count, element_bytes);
    FUZZ_CHECK(block != NULL);
    return block;
}

static void tensors_init(const cadre_net *net, tensors *t)
{
    t->n = cadre_net_param_count(net);
    for (int p = 0; p < t->n; p++) {
        t->counts[p] = cadre_net_param_at(net, p)->count;
        t->data[p] = allocate(t->counts[p], sizeof(float));
    }
}

static void tensors_fini(tensors *t)
{
    for (int p = 0; p < t->n; p++) {
        free(t->data[p]);
    }
}

// What passes compute with.
typedef struct matter {
    const description *description;
    tensors params;
    size_t n_elements; // of a sample
    size_t n_labels;
    float *x; // one sample more than the description has, and so are labels
    int32_t *labels;
} matter;

static void fill_params(const cadre_net *net, bool spoiled, tensors *params)
{
    for (int p = 0; p < params->n; p++) {
        const cadre_net_param *param = cadre_net_param_at(net, p);
        // Norms of weights 1 and biases 0 would show little.
        float change = param->n_dims == 1 && !param->buffer ? 0.3f : 0.0f;
        change = spoiled ? NAN : change;
        cadre_net_initialize(net, 1, p, params->data[p]);
        for (size_t k = 0; k < param->count; k++) {
            params->data[p][k] +=
                formula_value(FORMULA_PARAM + (uint32_t)p, k, change);
        }
    }
}

static void fill_samples(const cadre_net *net, bool spoiled, matter *m)
{
    const description *d = m->description;
    const size_t n = (size_t)d->n_samples + 1;
    formula_fill(FORMULA_X, n * m->n_elements, spoiled ? NAN : 1.0f, m->x);
    formula_labels(n * m->n_labels, d->n_classes, m->labels);
    for (size_t i = 0; i < n * m->n_labels; i++) {
        if (cadre_net_embeds(net)) {
            m->x[i] =
                (float)(formula_word(FORMULA_X, i) % (uint32_t)d->n_classes);
        }
        if (d->has_gaps && i % 3 == 0) {
            m->labels[i] = CADRE_NO_LABEL;
            m->x[i] = i % 2 == 0 ? (float)CADRE_NO_TOKEN : m->x[i];
        }
    }
}

// Spoiled, it leaves NaNs wherever passes write.
static void matter_fill(const cadre_net *net, bool spoiled, matter *m)
{
    fill_params(net, spoiled, &m->params);
    fill_samples(net, spoiled, m);
}

static void matter_init(const description *d, const cadre_net *net, matter *m)
{
    const size_t n = (size_t)d->n_samples + 1;
    m->description = d;
    m->n_labels = (size_t)cadre_shape_rows(net->input);
    m->n_elements = m->n_labels * (size_t)cadre_shape_elements(net->input);
    m->x = allocate(n * m->n_elements, sizeof(float));
    m->labels = allocate(n * m->n_labels, sizeof(int32_t));
    tensors_init(net, &m->params);
}

static void matter_fini(matter *m)
{
    tensors_fini(&m->params);
    free(m->x);
    free(m->labels);
}

// What came of it.
typedef struct outcome {
    double loss; // of training
    tensors grads;
    size_t n_losses;
    float losses[MOST_LABELS]; // of predicting
} outcome;

static float *grad_of(void *ctx, int index)
{
    outcome *o = ctx;
    return o->grads.data[index];
}

static cadre_status ready(void *ctx, int index)
{
    (void)ctx;
    (void)index;
    return CADRE_OK;
}

// Passes over n samples, n_each at a time.
static void compute(
    const matter *m, cadre_net_worker *worker, int n, int n_each, outcome *o)
{
    const float *const *params = (const float *const *)m->params.data;
    const cadre_grad_listener listener = {o, grad_of, ready};
    int32_t classes[MOST_LABELS];
    double loss;
    o->loss = 0.0;
    o->n_losses = (size_t)n * m->n_labels;
    for (int p = 0; p < o->grads.n; p++) {
        memset(o->grads.data[p], 0, o->grads.counts[p] * sizeof(float));
    }
    for (int i = 0; i < n; i += n_each) {
        const size_t label = (size_t)i * m->n_labels;
        const cadre_pass pass = {
            .x = m->x + (size_t)i * m->n_elements,
            .labels = m->labels + label,
            .n_samples = n_each,
            .label_smoothing = m->description->label_smoothing,
            .first = i == 0,
            .last = i + n_each == n,
            .first_sample = i,
        };
        FUZZ_CHECK(cadre_net_pass(worker, params, &pass, &listener, &loss) ==
                   CADRE_OK);
        FUZZ_CHECK(cadre_net_predict(worker, params, pass.x, pass.labels,
                       n_each, o->losses + label, classes) == CADRE_OK);
        o->loss += loss;
    }
}

static void check_same(const outcome *a, const outcome *b)
{
    FUZZ_CHECK(memcmp(&a->loss, &b->loss, sizeof(a->loss)) == 0);
    FUZZ_CHECK(memcmp(a->losses, b->losses, a->n_losses * sizeof(float)) == 0);
    for (int p = 0; p < a->grads.n; p++) {
        FUZZ_CHECK(memcmp(a->grads.data[p], b->grads.data[p],
                       a->grads.counts[p] * sizeof(float)) == 0);
    }
}

static void check_near(const description *d, const outcome *a, const outcome *b)
{
    const double bound = d->bf16 ? 0.05 : 1e-3;
    FUZZ_CHECK(d->mixes || fabs(a->loss - b->loss) <= bound * (1.0 + a->loss));
    for (size_t i = 0; i < a->n_losses; i++) {
        FUZZ_CHECK(fabsf(a->losses[i] - b->losses[i]) <=
                   (float)bound * (1.0f + a->losses[i]));
    }
}

enum { WHOLE = 0, SINGLES = 1 };

// All samples in a pass, and each in its own.
static void compute_both(
    const cadre_net *net, bool on_spoiled, matter *m, outcome outcomes[2])
{
    const int n = m->description->n_samples;
    cadre_net_worker *worker;
    tensors_init(net, &outcomes[WHOLE].grads);
    tensors_init(net, &outcomes[SINGLES].grads);
    FUZZ_CHECK(cadre_net_worker_create(net, (int64_t[]){n, 1}, 2, &worker) ==
               CADRE_OK);
    if (on_spoiled) {
        matter_fill(net, true, m);
        compute(m, worker, n + 1, n + 1, &outcomes[WHOLE]);
        compute(m, worker, n, n, &outcomes[WHOLE]);
    }
    matter_fill(net, false, m);
    const uint64_t allocations = cadre_alloc_calls();
    compute(m, worker, n, n, &outcomes[WHOLE]);
    compute(m, worker, n, 1, &outcomes[SINGLES]);
    FUZZ_CHECK(cadre_alloc_calls() == allocations);
    cadre_net_worker_destroy(worker);
}

static void check_net(const description *d, cadre_net *net)
{
    enum { FRESH = 0, SPOILED = 1, RECOMPUTED = 2, N_WAYS = 3 };
    outcome seen[N_WAYS][2];
    matter m;
    matter_init(d, net, &m);
    for (int way = 0; way < N_WAYS; way++) {
        if (way == RECOMPUTED) {
            cadre_net_recompute(net);
        }
        compute_both(net, way != FRESH, &m, seen[way]);
        check_same(&seen[FRESH][WHOLE], &seen[way][WHOLE]);
        check_same(&seen[FRESH][SINGLES], &seen[way][SINGLES]);
    }
    check_near(d, &seen[FRESH][WHOLE], &seen[FRESH][SINGLES]);
    for (int way = 0; way < N_WAYS; way++) {
        tensors_fini(&seen[way][WHOLE].grads);
        tensors_fini(&seen[way][SINGLES].grads);
    }
    matter_fini(&m);
}

// Whether a sample passes in a moment.
static bool is_small(const cadre_net *net)
{
    enum { MOST_WORK = 1 << 18, OF_AN_ELEMENT = 4 };
    const int64_t rows = cadre_shape_rows(net->input);
    int64_t work = 0; // multiplications, or as much
    for (int l = 0; l < net->n_layers && work < MOST_WORK; l++) {
        const cadre_layer_plan *plan = &net->layers[l];
        const int64_t pixels = plan->out.height * plan->out.width;
        work += OF_AN_ELEMENT * rows * cadre_shape_columns(plan->out);
        for (int p = 0; p < plan->n_params; p++) {
            work += rows * pixels *
                    (int64_t)net->params[plan->first_param + p].count;
        }
    }
    return work < MOST_WORK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    fuzz_input in = {data, nbytes};
    description d = {0};
    cadre_net *net;
    read_description(&in, &d);
    cadre_status status =
        cadre_net_create(d.layers, d.n_layers, d.sample, d.n_classes, &net);
    FUZZ_CHECK(status == CADRE_OK || status == CADRE_ERR_INVALID_ARG);
    if (status != CADRE_OK) {
        return 0;
    }
    if (d.bf16) {
        cadre_net_use_bf16(net);
    }
    if (is_small(net)) {
        check_net(&d, net);
    }
    cadre_net_destroy(net);
    return 0;
}
