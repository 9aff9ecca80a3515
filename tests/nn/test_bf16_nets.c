// SPDX-License-Identifier: Apache-2.0
//
// Whole nets with bf16: what activations take, and what forward and backward
// make of them.

#include "nn/bf16.h"
#include "nn/formula.h"
#include "nn/net.h"
#include "nn/training.h"
#include <stdio.h>

enum {
    BATCH = 6,
    SIDE = 12,
    TOKENS = 16,
    WIDTH = 32,
    VOCABULARY = 30,
    MOST_LAYERS = 100
};

// A net, and samples and labels for it.
typedef struct task {
    cadre_layer layers[MOST_LAYERS];
    char names[MOST_LAYERS][16];
    int n_layers;
    cadre_shape input;
    int64_t n_classes;
    int n_labels; // of a sample
    float x[BATCH * SIDE * SIDE * 3];
    int32_t labels[BATCH * TOKENS];
} task;

static void add(task *t, cadre_layer layer)
{
    assert_in_range(t->n_layers, 0, MOST_LAYERS - 1);
    char *name = t->names[t->n_layers];
    snprintf(name, sizeof(t->names[0]), "layer%d", t->n_layers);
    layer.name = name;
    t->layers[t->n_layers++] = layer;
}

static void add_text_layers(task *t)
{
    add(t, (cadre_layer){
               .kind = "embedding", .width = WIDTH, .vocabulary = VOCABULARY});
    add(t, (cadre_layer){.kind = "positions"});
    for (int i = 0; i < 5; i++) {
        add(t, (cadre_layer){.kind = "residual"});
        add(t, (cadre_layer){.kind = "layer_norm"});
        add(t, (cadre_layer){.kind = "linear", .width = 3 * WIDTH});
        add(t, (cadre_layer){.kind = "causal_attention", .heads = 2});
        add(t, (cadre_layer){.kind = "linear", .width = WIDTH});
        add(t, (cadre_layer){.kind = "add"});
        add(t, (cadre_layer){.kind = "residual"});
        add(t, (cadre_layer){.kind = "layer_norm"});
        add(t, (cadre_layer){.kind = "linear", .width = 4 * WIDTH});
        add(t, (cadre_layer){.kind = "gelu"});
        add(t, (cadre_layer){.kind = "linear", .width = WIDTH});
        add(t, (cadre_layer){.kind = "add"});
    }
    add(t, (cadre_layer){.kind = "unembedding", .tied = "layer0"});
}

static void start_text(task *t)
{
    *t = (task){.input = {1, 1, 1, 1, TOKENS},
        .n_classes = VOCABULARY,
        .n_labels = TOKENS};
    formula_labels(BATCH * TOKENS, VOCABULARY, t->labels);
    for (int i = 0; i < BATCH * TOKENS; i++) {
        t->x[i] = (float)((7 * i + i * i) % VOCABULARY);
    }
    add_text_layers(t);
}

static void start_images(task *t)
{
    *t = (task){.input = {3, SIDE, SIDE, 1, 0}, .n_classes = 5, .n_labels = 1};
    formula_labels(BATCH, 5, t->labels);
    formula_fill(FORMULA_X, sizeof(t->x) / sizeof(t->x[0]), 1.0f, t->x);
}

// Initial weights let numbers stay as large as they are.
static void add_conv(task *t, int64_t width, int64_t stride, bool bias)
{
    add(t, (cadre_layer){.kind = "conv2d",
               .width = width,
               .kernel = 3,
               .stride = stride,
               .padding = 1,
               .no_bias = !bias,
               .deviation = width > 3 ? 0.12f : 0.3f});
}

// The weights' gradient of the first convolution, and of the one behind three
// channels, is of f32.
static void start_cnn(task *t)
{
    start_images(t);
    for (int i = 0; i < 8; i++) {
        add_conv(t, i == 3 ? 3 : 16, 1, true);
        add(t, (cadre_layer){.kind = i % 4 == 3 ? "relu" : "silu"});
    }
    add(t, (cadre_layer){.kind = "maxpool2d", .kernel = 2});
    add(t, (cadre_layer){.kind = "linear", .width = 5});
}

static void start_resnet(task *t)
{
    start_images(t);
    add_conv(t, 16, 1, false);
    add(t, (cadre_layer){.kind = "batch_norm2d"});
    add(t, (cadre_layer){.kind = "relu"});
    for (int i = 0; i < 5; i++) {
        const bool narrows = i == 3;
        const int64_t width = i < 3 ? 16 : 32;
        add(t, (cadre_layer){.kind = "residual"});
        add_conv(t, width, narrows ? 2 : 1, false);
        add(t, (cadre_layer){.kind = "batch_norm2d"});
        add(t, (cadre_layer){.kind = "relu"});
        add_conv(t, width, 1, false);
        add(t, (cadre_layer){.kind = "batch_norm2d"});
        if (narrows) {
            add(t, (cadre_layer){.kind = "shortcut"});
            add_conv(t, width, 2, false);
            add(t, (cadre_layer){.kind = "batch_norm2d"});
        }
        add(t, (cadre_layer){.kind = "add"});
        add(t, (cadre_layer){.kind = "relu"});
    }
    add(t, (cadre_layer){.kind = "global_avgpool2d"});
    add(t, (cadre_layer){.kind = "linear", .width = 5});
}

static bool has_params(const cadre_layer *layer)
{
    static const char *const kinds[] = {"embedding", "positions", "layer_norm",
        "linear", "conv2d", "batch_norm2d"};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(layer->kind, kinds[i]) == 0) {
            return true;
        }
    }
    return false;
}

// One pass over the batch from the net's initial values; its loss.
static double pass_over(const task *t, bool bf16, training *out)
{
    cadre_layer layers[MOST_LAYERS];
    memcpy(layers, t->layers, sizeof(layers));
    for (int l = 0; l < t->n_layers; l++) {
        layers[l].name = has_params(&layers[l]) ? layers[l].name : NULL;
    }
    cadre_net *net = NULL;
    CHECK_OK(
        cadre_net_create(layers, t->n_layers, t->input, t->n_classes, &net));
    if (bf16) {
        cadre_net_use_bf16(net);
    }
    training_start(out, net, BATCH, BATCH * t->n_labels);
    for (int p = 0; p < out->n_params; p++) {
        cadre_net_initialize(net, 3, p, out->params[p]);
    }
    const cadre_pass pass = {.x = t->x,
        .labels = t->labels,
        .n_samples = BATCH,
        .first = true,
        .last = true};
    return training_pass(out, &pass);
}

static void check_gradients(
    const training *bf16, const training *f32, double most)
{
    for (int p = 0; p < f32->n_params; p++) {
        double *wanted = cadre_alloc_array(f32->counts[p], sizeof(*wanted));
        assert_non_null(wanted);
        for (size_t i = 0; i < f32->counts[p]; i++) {
            wanted[i] = (double)f32->grads[p][i];
        }
        double error = distance(bf16->grads[p], wanted, f32->counts[p]);
        if (!(error <= most)) {
            fail_msg("the gradient of %s is off by %g",
                cadre_net_param_at(f32->net, p)->name, error);
        }
        cadre_free(wanted);
    }
}

// How much activations take of what they take in f32, in percent; gradients are
// off by that part of them at most.
static size_t compare(const task *t, double most)
{
    training f32;
    training bf16;
    double wanted = pass_over(t, false, &f32);
    double found = pass_over(t, true, &bf16);
    assert_true(found != wanted && fabs(found - wanted) < 1e-2 * wanted);
    check_gradients(&bf16, &f32, most);
    size_t percent = cadre_net_worker_bytes(bf16.worker) * 100 /
                     cadre_net_worker_bytes(f32.worker);
    training_finish(&f32);
    training_finish(&bf16);
    return percent;
}

// Half of it, and what is needed in f32 for a moment; more of that where the
// library does not take bf16.  An element near 0 whose ReLU decides otherwise
// changes gradients by much; of a buffer that another had they would be off by
// more than 1.
static void activations_are_kept_in_16_bits(void **state)
{
    task *t = *state;
    start_text(t);
    assert_in_range(compare(t, 0.02), 40, 70);
    start_cnn(t);
    assert_in_range(compare(t, 0.2), 40, 80);
    start_resnet(t);
    assert_in_range(compare(t, 0.5), 40, 70);
}

static void an_evaluation_computes_as_training_does(void **state)
{
    task *t = *state;
    void (*const starts[])(task * t) = {start_text, start_cnn};
    for (int i = 0; i < 2; i++) {
        starts[i](t);
        training trained;
        double loss = pass_over(t, true, &trained);
        float losses[BATCH * TOKENS];
        int32_t classes[BATCH * TOKENS];
        CHECK_OK(cadre_net_predict(trained.worker,
            (const float *const *)trained.params, t->x, t->labels, BATCH,
            losses, classes));
        double sum = 0.0;
        for (int n = 0; n < BATCH * t->n_labels; n++) {
            sum += (double)losses[n];
        }
        assert_true(sum == loss);
        training_finish(&trained);
    }
}

// Numbers that bf16 has.
static void fill_exact(uint32_t tag, size_t count, float *values)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = floorf(formula_value(tag, i, 64.0f)) / 64.0f;
    }
}

// All sums are exact, so the one rounding shows: that of what backward reads.
static void forward_goes_on_with_what_backward_reads(void **state)
{
    (void)state;
    enum { ROWS = 5, IN = 40, HIDDEN = 24, OUT = 7 };
    static const cadre_layer layers[] = {
        {.kind = "linear", .name = "up", .width = HIDDEN, .no_bias = true},
        {.kind = "relu"},
        {.kind = "linear", .name = "down", .width = OUT, .no_bias = true},
    };
    static float x[ROWS * IN];
    static float up[HIDDEN * IN];
    static float down[OUT * HIDDEN];
    fill_exact(FORMULA_X, ROWS * IN, x);
    fill_exact(FORMULA_WEIGHT, HIDDEN * IN, up);
    fill_exact(FORMULA_DY, OUT * HIDDEN, down);
    cadre_net *net = NULL;
    cadre_net_worker *worker = NULL;
    CHECK_OK(
        cadre_net_create(layers, 3, (cadre_shape){.channels = IN}, OUT, &net));
    cadre_net_use_bf16(net);
    CHECK_OK(cadre_net_worker_create(net, NULL, 0, &worker));
    cadre_matrix_view scores;
    CHECK_OK(cadre_net_scores(
        worker, (const float *const[]){up, down}, x, ROWS, &scores));
    int n_rounded = 0;
    for (int64_t n = 0; n < ROWS; n++) {
        double wanted[OUT] = {0};
        for (int64_t h = 0; h < HIDDEN; h++) {
            double sum = 0.0;
            for (int64_t i = 0; i < IN; i++) {
                sum += (double)x[n * IN + i] * (double)up[h * IN + i];
            }
            double hidden = sum < 0 ? 0.0 : rounded((float)sum);
            n_rounded += sum > 0 && hidden != sum;
            for (int64_t o = 0; o < OUT; o++) {
                wanted[o] += hidden * (double)down[o * HIDDEN + h];
            }
        }
        for (int64_t o = 0; o < OUT; o++) {
            double found = (double)cadre_matrix_view_row(scores, n)[o];
            assert_true(found == wanted[o]);
        }
    }
    assert_true(n_rounded > 10);
    cadre_net_worker_destroy(worker);
    cadre_net_destroy(net);
}

static int set_up(void **state)
{
    *state = cadre_alloc(sizeof(task));
    return *state == NULL;
}

static int tear_down(void **state)
{
    cadre_free(*state);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(activations_are_kept_in_16_bits),
        CASE(an_evaluation_computes_as_training_does),
        CASE(forward_goes_on_with_what_backward_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
