// SPDX-License-Identifier: Apache-2.0
//
// A convolutional network of one's own, described layer by layer and trained on
// any number of ranks, on data of one's own.
//
//     build/release/bin/own_net
//     build/release/bin/cadre run -n 2 -- build/release/bin/own_net
//
// Both end in the same hash.  Change the table below, and it is another net: the
// rest of the program does not know what its layers are.
//
// The task: which way do the stripes of a noisy picture run?

#include <cadre/cadre.h>
#include <cadre/net.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDE = 12, PIXELS = SIDE * SIDE, CLASSES = 4 };
enum { LEAVES = 4, LEAF_SAMPLES = 16, STEPS = 100 };

static const cadre_layer layers[] = {
    {.kind = "conv2d", .name = "conv1", .width = 8, .kernel = 3, .padding = 1},
    {.kind = "batch_norm2d", .name = "norm1"},
    {.kind = "relu"},
    {.kind = "maxpool2d", .kernel = 2},
    {.kind = "residual"}, // y = relu(x + conv3(relu(conv2(x))))
    {.kind = "conv2d", .name = "conv2", .width = 8, .kernel = 3, .padding = 1},
    {.kind = "relu"},
    {.kind = "conv2d", .name = "conv3", .width = 8, .kernel = 3, .padding = 1},
    {.kind = "add"},
    {.kind = "relu"},
    {.kind = "global_avgpool2d"},
    {.kind = "linear", .name = "scores", .width = CLASSES},
};

enum { N_LAYERS = sizeof(layers) / sizeof(layers[0]) };

#define TRY(call)                      \
    do {                               \
        cadre_status status_ = (call); \
        if (status_ != CADRE_OK) {     \
            return status_;            \
        }                              \
    } while (0)

typedef struct job {
    cadre_group *group;
    cadre_net *net;
    cadre_model *model;
    cadre_engine *engine;
    cadre_net_worker *worker;
    const float **params; // the model's, as a pass takes them
    int64_t step;
    int leaf; // the one that is being computed
} job;

// Sample i of an endless data set, made by a formula: a picture, and its label.
static int32_t sample(int64_t i, float x[PIXELS])
{
    static const int slope[CLASSES][2] = {{1, 0}, {0, 1}, {1, 1}, {1, 3}};
    uint32_t h = (uint32_t)i * 2654435761u;
    int32_t label = (int32_t)(h >> 16) % CLASSES;
    for (int k = 0; k < PIXELS; k++) {
        h = h * 1664525u + 1013904223u;
        int at = slope[label][0] * (k % SIDE) + slope[label][1] * (k / SIDE);
        float stripe = (at + (int)i) % 4 < 2 ? 0.5f : -0.5f;
        x[k] = stripe + (float)(h >> 8) * 0x1p-23f - 1.0f;
    }
    return label;
}

// The net's parameters become the model's, in the same order.
static cadre_status make_model(job *j)
{
    const cadre_shape image = {.channels = 1, .height = SIDE, .width = SIDE};
    TRY(cadre_net_create(layers, N_LAYERS, image, CLASSES, &j->net));
    TRY(cadre_model_create(j->group, &j->model));
    const int n = cadre_net_param_count(j->net);
    for (int i = 0; i < n; i++) {
        const cadre_net_param *p = cadre_net_param_at(j->net, i);
        const cadre_param_options options = {.buffer = p->buffer};
        int index = 0;
        TRY(cadre_model_add(
            j->model, p->name, p->shape, p->n_dims, &options, &index));
    }
    TRY(cadre_model_seal(j->model));
    j->params = calloc((size_t)n, sizeof(*j->params));
    if (j->params == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        float *values = cadre_model_param(j->model, i);
        cadre_net_initialize(j->net, 1, i, values);
        j->params[i] = values;
    }
    return CADRE_OK;
}

// What backward asks, and tells: the engine knows.
static float *leaf_grad(void *ctx, int index)
{
    const job *j = ctx;
    return cadre_leaf_grad(j->engine, j->leaf, index);
}

static cadre_status leaf_ready(void *ctx, int index)
{
    const job *j = ctx;
    return cadre_grad_ready(j->engine, j->leaf, index);
}

static cadre_status compute_leaf(job *j)
{
    float x[LEAF_SAMPLES * PIXELS];
    int32_t labels[LEAF_SAMPLES];
    int64_t first = (j->step * LEAVES + j->leaf) * LEAF_SAMPLES;
    for (int64_t s = 0; s < LEAF_SAMPLES; s++) {
        labels[s] = sample(first + s, x + s * PIXELS);
    }
    const cadre_pass pass = {.x = x,
        .labels = labels,
        .n_samples = LEAF_SAMPLES,
        .first = true,
        .last = true};
    const cadre_grad_listener engine = {j, leaf_grad, leaf_ready};
    double loss = 0.0;
    TRY(cadre_net_pass(j->worker, j->params, &pass, &engine, &loss));
    return cadre_leaf_end(j->engine, j->leaf, loss, LEAF_SAMPLES);
}

static cadre_status train(job *j)
{
    TRY(cadre_init(NULL, &j->group));
    TRY(make_model(j));
    const int64_t size = LEAF_SAMPLES;
    TRY(cadre_net_worker_create(j->net, &size, 1, &j->worker));
    const cadre_engine_options options = {
        .leaves = LEAVES, .optimizer = CADRE_ADAMW, .lr = 1e-2};
    TRY(cadre_engine_create(j->model, &options, &j->engine));

    cadre_step_report report = {0};
    for (j->step = 0; j->step < STEPS; j->step++) {
        TRY(cadre_step_begin(j->engine));
        while (cadre_leaf_next(j->engine, &j->leaf)) {
            TRY(compute_leaf(j));
        }
        TRY(cadre_step_end(j->engine, &report));
    }
    if (cadre_rank(j->group) == 0) {
        printf("loss %.4f, parameters %016" PRIx64 "\n", report.loss,
            cadre_model_hash(j->model));
    }
    return CADRE_OK;
}

int main(void)
{
    job j = {0};
    cadre_status status = train(&j);
    if (status != CADRE_OK) {
        fprintf(stderr, "own_net: %s\n", cadre_error_text());
    }
    cadre_engine_destroy(j.engine);
    cadre_net_worker_destroy(j.worker);
    cadre_model_destroy(j.model);
    cadre_net_destroy(j.net);
    free(j.params);
    cadre_finalize(j.group);
    return status == CADRE_OK ? 0 : 1;
}
