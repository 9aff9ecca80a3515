// SPDX-License-Identifier: Apache-2.0
//
// Whole nets of texts: a GPT's gradients and first steps against what PyTorch
// computes (text_references.txt, made by tools/make_nn_references.py); and what
// passes share and add up.

#include "nn/formula.h"
#include "nn/reference.h"
#include "nn/training.h"
#include "train/gpt.h"

enum { MOST_TOKENS = 512 };

static bool is_gain(const char *name)
{
    return strstr(name, "ln") != NULL && strstr(name, "weight") != NULL;
}

static void start(const cadre_gpt *size, int batch, training *t)
{
    cadre_net *net;
    CHECK_OK(cadre_gpt_net(size, &net));
    training_start(t, net, batch, batch * (int)size->context);
    for (int p = 0; p < t->n_params; p++) {
        size_t count = t->counts[p];
        formula_fill(FORMULA_PARAM + (uint32_t)p, count, 0.1f, t->params[p]);
        bool gain = is_gain(cadre_net_param_at(net, p)->name);
        for (size_t k = 0; gain && k < count; k++) {
            t->params[p][k] += 1.0f;
        }
    }
}

// The mean loss of a step; n passes make the gradient.
static double step_in(training *t, int step, int n_passes)
{
    static float x[MOST_TOKENS];
    static int32_t labels[MOST_TOKENS];
    int context = t->n_labels / t->batch;
    for (int n = 0; n < t->batch; n++) {
        for (int k = 0; k <= context; k++) {
            size_t at = (size_t)n * ((size_t)context + 1) + (size_t)k;
            uint32_t tag = FORMULA_X + 256 * (uint32_t)step;
            int32_t token = (int32_t)(formula_word(tag, at) % 64);
            if (k < context) {
                x[n * context + k] = (float)token;
            }
            if (k > 0) {
                labels[n * context + k - 1] = token;
            }
        }
    }
    double sum = 0.0;
    int n_samples = t->batch / n_passes;
    for (int i = 0; i < n_passes; i++) {
        const cadre_pass part = {x + i * n_samples * context,
            labels + i * n_samples * context, n_samples, .first = i == 0,
            .last = i == n_passes - 1};
        sum += training_pass(t, &part);
    }
    return sum / t->n_labels;
}

static double step_of_texts(void *ctx, training *t, int step)
{
    (void)ctx;
    return step_in(t, step, 1);
}

static void check_net(
    const char *name, const cadre_gpt *size, int batch, bool has_gradients)
{
    training t;
    start(size, batch, &t);
    int n_grads = training_check(&t, name, step_of_texts, NULL);
    assert_int_equal(n_grads, has_gradients ? t.n_params : 0);
    training_finish(&t);
}

static const cadre_gpt tiny = {2, 24, 3, 70, 256};

static void a_tiny_gpt_agrees(void **state)
{
    (void)state;
    check_net("tiny-gpt", &tiny, 3, true);
}

static void gpt_kjv_small_agrees(void **state)
{
    (void)state;
    const cadre_gpt size = {4, 128, 4, 128, 256};
    check_net("gpt-kjv-small", &size, 4, false);
}

// The weight that two layers use gets both gradients, in each pass.
static void passes_add_up(void **state)
{
    (void)state;
    training whole;
    training parts;
    start(&tiny, 3, &whole);
    start(&tiny, 3, &parts);
    double loss = step_in(&whole, 0, 1);
    assert_true(fabs(step_in(&parts, 0, 3) - loss) <= 1e-6 * loss);
    for (int p = 0; p < whole.n_params; p++) {
        double difference = 0.0;
        double norm = 0.0;
        for (size_t k = 0; k < whole.counts[p]; k++) {
            double theirs = (double)whole.grads[p][k];
            double d = (double)parts.grads[p][k] - theirs;
            difference += d * d;
            norm += theirs * theirs;
        }
        assert_true(sqrt(difference) <= 1e-5 * sqrt(norm));
    }
    training_finish(&whole);
    training_finish(&parts);
}

// Any layer may stand in any place: a residual with nothing to go past, a ReLU
// before one, a dropout that would like to write over what attention still needs.
static const cadre_layer odd_layers[] = {
    {.kind = "embedding", .name = "tok", .width = 12, .vocabulary = 64},
    {.kind = "residual"},
    {.kind = "add"},
    {.kind = "relu"},
    {.kind = "residual"},
    {.kind = "linear", .name = "qkv", .width = 36},
    {.kind = "causal_attention", .heads = 2},
    {.kind = "dropout", .rate = 0.25f},
    {.kind = "add"},
    {.kind = "unembedding", .tied = "tok"},
};

enum { ODD_LAYERS = sizeof(odd_layers) / sizeof(odd_layers[0]) };
enum { ODD_TOKENS = 5, ODD_TEXTS = 2 };

static double loss_of(training *t)
{
    const float x[ODD_TEXTS * ODD_TOKENS] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const int32_t labels[ODD_TEXTS * ODD_TOKENS] = {
        2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    const cadre_pass pass = {x, labels, ODD_TEXTS, .first = true, .last = true};
    return training_pass(t, &pass);
}

// Twelve elements of parameter p, by their gradients and by trial.
static void check_slopes(training *t, const float *grad, int p)
{
    const float step = 0x1p-8f;
    for (size_t k = 0; k < 12; k++) {
        float *value = &t->params[p][12 + k * 7];
        const float before = *value;
        *value = before + step;
        double up = loss_of(t);
        *value = before - step;
        double down = loss_of(t);
        *value = before;
        double found = (up - down) / (2.0 * (double)step);
        double wanted = (double)grad[12 + k * 7];
        assert_true(fabs(found - wanted) < 0.005 + 0.01 * fabs(wanted));
    }
}

static void memory_is_shared_only_where_it_may_be(void **state)
{
    (void)state;
    enum { WEIGHTS = 2 }; // of the embedding and of qkv
    const cadre_shape text = {1, 1, 1, 1, ODD_TOKENS};
    cadre_net *net;
    training t;
    CHECK_OK(cadre_net_create(odd_layers, ODD_LAYERS, text, 64, &net));
    training_start(&t, net, ODD_TEXTS, ODD_TEXTS * ODD_TOKENS);
    for (int p = 0; p < t.n_params; p++) {
        formula_fill(
            FORMULA_PARAM + (uint32_t)p, t.counts[p], 0.5f, t.params[p]);
    }
    (void)loss_of(&t);
    for (int p = 0; p < WEIGHTS; p++) {
        size_t count = t.counts[p];
        float *grad = floats(count);
        memcpy(grad, t.grads[p], count * sizeof(*grad));
        check_slopes(&t, grad, p);
        cadre_free(grad);
        (void)loss_of(&t);
    }
    training_finish(&t);
}

static void allocates_nothing_in_a_pass(void **state)
{
    (void)state;
    training t;
    start(&tiny, 3, &t);
    (void)step_in(&t, 0, 1);
    uint64_t before = cadre_alloc_calls();
    (void)step_in(&t, 1, 1);
    assert_true(cadre_alloc_calls() == before);
    training_finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tiny_gpt_agrees),
        cmocka_unit_test(gpt_kjv_small_agrees),
        cmocka_unit_test(passes_add_up),
        cmocka_unit_test(memory_is_shared_only_where_it_may_be),
        cmocka_unit_test(allocates_nothing_in_a_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
