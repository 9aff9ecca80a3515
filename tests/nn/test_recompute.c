// SPDX-License-Identifier: Apache-2.0
//
// What is not kept but computed again: less memory, the same bits.

#include "base/alloc.h"
#include "nn/formula.h"
#include "nn/net.h"
#include "nn/training.h"
#include "support/check.h"
#include <string.h>

enum {
    BATCH = 6,
    MOST_INPUTS = 8 * 8 * 3,
    TOKENS = 32,
    WIDTH = 24,
    VOCABULARY = 30
};

#define COUNT(list) ((int)(sizeof(list) / sizeof((list)[0])))

// A net, and samples and labels for it.
typedef struct task {
    const cadre_layer *layers;
    int n_layers;
    cadre_shape input;
    int64_t n_classes;
    int n_labels; // of a sample
    bool bf16;
    float x[BATCH * MOST_INPUTS];
    int32_t labels[BATCH * TOKENS];
} task;

#define MLP(n)                                                    \
    {.kind = "residual"}, {.kind = "layer_norm", .name = "ln" n}, \
        {.kind = "linear", .name = "up" n, .width = 4 * WIDTH},   \
        {.kind = "gelu"},                                         \
        {.kind = "linear", .name = "down" n, .width = WIDTH},     \
    {                                                             \
        .kind = "add"                                             \
    }

static const cadre_layer text_layers[] = {
    {.kind = "embedding",
        .name = "tok",
        .width = WIDTH,
        .vocabulary = VOCABULARY},
    {.kind = "positions", .name = "pos"},
    {.kind = "residual"},
    {.kind = "layer_norm", .name = "ln1"},
    {.kind = "linear", .name = "qkv", .width = 3 * WIDTH},
    {.kind = "causal_attention", .heads = 2},
    {.kind = "linear", .name = "proj", .width = WIDTH},
    {.kind = "dropout", .rate = 0.3f},
    {.kind = "add"},
    {.kind = "residual"},
    {.kind = "dropout", .rate = 0.2f},
    {.kind = "layer_norm", .name = "ln2"},
    {.kind = "linear", .name = "up", .width = 4 * WIDTH},
    {.kind = "gelu"},
    {.kind = "linear", .name = "down", .width = WIDTH},
    {.kind = "add"},
    MLP("3"),
    MLP("4"),
    {.kind = "unembedding", .tied = "tok"},
};

static const cadre_layer image_layers[] = {
    {.kind = "conv2d", .name = "conv1", .width = 12, .kernel = 3, .padding = 1},
    {.kind = "relu"},
    {.kind = "residual"},
    {.kind = "conv2d", .name = "conv2", .width = 12, .kernel = 3, .padding = 1},
    {.kind = "batch_norm2d", .name = "bn2"},
    {.kind = "relu"},
    {.kind = "conv2d", .name = "conv3", .width = 12, .kernel = 3, .padding = 1},
    {.kind = "batch_norm2d", .name = "bn3"},
    {.kind = "add"},
    {.kind = "relu"},
    {.kind = "residual"},
    {.kind = "conv2d",
        .name = "conv4",
        .width = 20,
        .kernel = 3,
        .stride = 2,
        .padding = 1},
    {.kind = "batch_norm2d", .name = "bn4"},
    {.kind = "relu"},
    {.kind = "maxpool2d", .kernel = 3, .stride = 1, .padding = 1},
    {.kind = "shortcut"},
    {.kind = "conv2d", .name = "conv5", .width = 20, .kernel = 1, .stride = 2},
    {.kind = "batch_norm2d", .name = "bn5"},
    {.kind = "add"},
    {.kind = "relu"},
    {.kind = "linear", .name = "fc", .width = 5},
};

static const cadre_layer plain_layers[] = {
    {.kind = "linear", .name = "fc1", .width = 40},
    {.kind = "relu"},
    {.kind = "linear", .name = "fc2", .width = 5},
};

// The first "add" writes over the memory that the pass begins with.
static const cadre_layer residual_first[] = {
    {.kind = "residual"},
    {.kind = "relu"},
    {.kind = "add"},
    {.kind = "linear", .name = "fc", .width = 5},
};

static void fill_text(task *t)
{
    *t = (task){.layers = text_layers,
        .n_layers = COUNT(text_layers),
        .input = {1, 1, 1, 1, TOKENS},
        .n_classes = VOCABULARY,
        .n_labels = TOKENS};
    formula_labels(BATCH * TOKENS, VOCABULARY, t->labels);
    for (int i = 0; i < BATCH * TOKENS; i++) {
        t->x[i] = (float)((7 * i + i * i) % VOCABULARY);
    }
}

static void fill_images(task *t, const cadre_layer *layers, int n_layers)
{
    *t = (task){.layers = layers,
        .n_layers = n_layers,
        .input = {3, 8, 8, 1, 0},
        .n_classes = 5,
        .n_labels = 1};
    formula_labels(BATCH, 5, t->labels);
    formula_fill(FORMULA_X, (size_t)BATCH * MOST_INPUTS, 1.0f, t->x);
}

// Trains some steps of two passes each; *bytes: what activations took.
static void train(const task *t, bool recompute, training *out, size_t *bytes)
{
    cadre_net *net = NULL;
    CHECK_OK(
        cadre_net_create(t->layers, t->n_layers, t->input, t->n_classes, &net));
    if (recompute) {
        cadre_net_recompute(net);
    }
    if (t->bf16) {
        cadre_net_use_bf16(net);
    }
    training_start(out, net, BATCH, BATCH * t->n_labels);
    for (int p = 0; p < out->n_params; p++) {
        cadre_net_initialize(net, 3, p, out->params[p]);
    }
    const int64_t elements =
        t->input.tokens > 0 ? t->input.tokens : MOST_INPUTS;
    const int parts[] = {0, 4, BATCH};
    uint64_t before = 0;
    for (int step = 1; step <= 3; step++) {
        for (int i = 0; i < 2; i++) {
            const cadre_pass pass = {
                .x = t->x + parts[i] * elements,
                .labels = t->labels + parts[i] * t->n_labels,
                .n_samples = parts[i + 1] - parts[i],
                .first = i == 0,
                .last = i == 1,
                .seed = 5,
                .step = step,
                .first_sample = parts[i],
            };
            (void)training_pass(out, &pass);
        }
        training_update(out, step);
        before = step == 1 ? cadre_alloc_calls() : before;
    }
    assert_int_equal(cadre_alloc_calls(), before);
    *bytes = cadre_net_worker_bytes(out->worker);
}

// How much memory is left of what keeping takes, in percent.
static size_t compare(const task *t)
{
    training keeps;
    training again;
    size_t kept_bytes;
    size_t again_bytes;
    train(t, false, &keeps, &kept_bytes);
    train(t, true, &again, &again_bytes);
    for (int p = 0; p < keeps.n_params; p++) {
        size_t nbytes = keeps.counts[p] * sizeof(float);
        assert_memory_equal(keeps.grads[p], again.grads[p], nbytes);
        assert_memory_equal(keeps.params[p], again.params[p], nbytes);
    }
    training_finish(&keeps);
    training_finish(&again);
    return again_bytes * 100 / kept_bytes;
}

static void a_text_net_has_the_same_bits_in_less_memory(void **state)
{
    task *t = *state;
    fill_text(t);
    assert_in_range(compare(t), 20, 90);
    t->bf16 = true;
    assert_in_range(compare(t), 20, 90);
}

static void an_image_net_has_the_same_bits_in_less_memory(void **state)
{
    task *t = *state;
    fill_images(t, image_layers, COUNT(image_layers));
    assert_in_range(compare(t), 20, 95);
    t->bf16 = true;
    assert_in_range(compare(t), 20, 95);
}

static void without_residuals_all_is_kept(void **state)
{
    task *t = *state;
    fill_images(t, plain_layers, COUNT(plain_layers));
    assert_int_equal(compare(t), 100);
}

static void a_residual_may_come_first(void **state)
{
    task *t = *state;
    fill_images(t, residual_first, COUNT(residual_first));
    assert_in_range(compare(t), 20, 100);
    t->bf16 = true;
    assert_in_range(compare(t), 20, 100);
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
        CASE(a_text_net_has_the_same_bits_in_less_memory),
        CASE(an_image_net_has_the_same_bits_in_less_memory),
        CASE(without_residuals_all_is_kept),
        CASE(a_residual_may_come_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
