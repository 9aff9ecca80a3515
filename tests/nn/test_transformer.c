// SPDX-License-Identifier: Apache-2.0
//
// Whole nets of texts: the gradients and first steps of transformers against
// what PyTorch computes (text_references.txt, made by
// tools/make_nn_references.py); what passes share and add up; and texts that go
// on token by token.

#include "nn/formula.h"
#include "nn/reader.h"
#include "nn/reference.h"
#include "nn/softmax_cross_entropy.h"
#include "nn/training.h"
#include "train/transformer.h"

enum { MOST_TOKENS = 512 };

static bool is_gain(const char *name)
{
    return strstr(name, "ln") != NULL && strstr(name, "weight") != NULL;
}

// Each seventh token is a gap, of the kind that has some.
static int labels_of(const cadre_transformer *size, int batch)
{
    int n_tokens = batch * size->context;
    return size->family == CADRE_BERT ? (n_tokens + 6) / 7 : n_tokens;
}

static void start(const cadre_transformer *size, int batch, training *t)
{
    cadre_net *net;
    CHECK_OK(cadre_transformer_net(size, &net));
    training_start(t, net, batch, labels_of(size, batch));
    for (int p = 0; p < t->n_params; p++) {
        size_t count = t->counts[p];
        formula_fill(FORMULA_PARAM + (uint32_t)p, count, 0.1f, t->params[p]);
        bool gain = is_gain(cadre_net_param_at(net, p)->name);
        for (size_t k = 0; gain && k < count; k++) {
            t->params[p][k] += 1.0f;
        }
    }
}

static void fill_texts(
    int batch, int context, int step, float *x, int32_t *labels)
{
    for (int n = 0; n < batch; n++) {
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
}

static void make_gaps(int n_tokens, float *x, int32_t *labels)
{
    for (int k = 0; k < n_tokens; k++) {
        bool gap = k % 7 == 0;
        labels[k] = gap ? (int32_t)x[k] : CADRE_NO_LABEL;
        x[k] = gap ? 256.0f : x[k];
    }
}

// The mean loss of a step; n passes make the gradient.
static double step_in(
    training *t, const cadre_transformer *size, int step, int n_passes)
{
    static float x[MOST_TOKENS];
    static int32_t labels[MOST_TOKENS];
    int context = size->context;
    fill_texts(t->batch, context, step, x, labels);
    if (size->family == CADRE_BERT) {
        make_gaps(t->batch * context, x, labels);
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
    return step_in(t, ctx, step, 1);
}

static void check_net(
    const char *name, cadre_transformer size, int batch, bool has_gradients)
{
    training t;
    start(&size, batch, &t);
    int n_grads = training_check(&t, name, step_of_texts, &size);
    assert_int_equal(n_grads, has_gradients ? t.n_params : 0);
    training_finish(&t);
}

static const cadre_transformer tiny = {CADRE_GPT, 2, 24, 3, 0, 70, 256};

static void a_gpt_agrees(void **state)
{
    (void)state;
    const cadre_transformer small = {CADRE_GPT, 4, 128, 4, 0, 128, 256};
    const cadre_transformer larger = {CADRE_GPT, 6, 384, 6, 0, 32, 256};
    check_net("tiny-gpt", tiny, 3, true);
    check_net("gpt-kjv-small", small, 4, false);
    check_net("gpt-kjv", larger, 4, false);
}

// But for the numbers that it begins with.
static void a_gpt2_is_a_gpt(void **state)
{
    (void)state;
    cadre_transformer size = tiny;
    size.family = CADRE_GPT2;
    check_net("tiny-gpt", size, 3, true);
    const cadre_transformer deep = {CADRE_GPT2, 12, 48, 12, 0, 64, 256};
    check_net("gpt2-small", deep, 4, false);
    cadre_net *net = NULL;
    CHECK_OK(cadre_transformer_net(&size, &net));
    for (int p = 0; p < cadre_net_param_count(net); p++) {
        const cadre_net_param *param = cadre_net_param_at(net, p);
        bool ends_block = strstr(param->name, "proj.weight") != NULL ||
                          strstr(param->name, "down.weight") != NULL;
        if (param->n_dims == 2) {
            // Of two blocks.
            assert_true(param->init_deviation == (ends_block ? 0.01f : 0.02f));
        }
    }
    cadre_net_destroy(net);
}

static void a_llama_agrees(void **state)
{
    (void)state;
    const cadre_transformer few = {CADRE_LLAMA, 2, 24, 6, 2, 70, 256};
    const cadre_transformer small = {CADRE_LLAMA, 4, 128, 4, 2, 128, 256};
    check_net("tiny-llama", few, 3, true);
    check_net("llama-kjv-small", small, 4, false);
}

static void a_bert_agrees(void **state)
{
    (void)state;
    const cadre_transformer few = {CADRE_BERT, 2, 24, 3, 0, 70, 257};
    const cadre_transformer small = {CADRE_BERT, 4, 128, 4, 0, 128, 257};
    check_net("tiny-bert", few, 3, true);
    check_net("bert-kjv", small, 4, false);
}

// Token by token, in parts of any size, and again from the beginning.
static void check_reader(const cadre_transformer *size)
{
    enum { TOKENS = 70, PARTS = 5 };
    static const int64_t parts[PARTS] = {1, 1, 66, 1, 1};
    training t;
    start(size, 1, &t);
    float x[TOKENS];
    formula_fill(FORMULA_X, TOKENS, 1.0f, x);
    for (int k = 0; k < TOKENS; k++) {
        x[k] = (float)(int)(fabsf(x[k]) * 255.0f);
    }
    const float *const *params = (const float *const *)t.params;
    cadre_matrix_view whole;
    CHECK_OK(cadre_net_scores(t.worker, params, x, 1, &whole));
    cadre_net_reader *reader = NULL;
    CHECK_OK(cadre_net_reader_create(t.net, &reader));
    for (int round = 0; round < 2; round++) {
        cadre_net_reader_restart(reader);
        for (int p = 0; p < PARTS; p++) {
            const float *scores = NULL;
            int64_t place = cadre_net_reader_place(reader);
            CHECK_OK(cadre_net_reader_read(
                reader, params, x + place, parts[p], &scores));
            const float *wanted =
                cadre_matrix_view_row(whole, place + parts[p] - 1);
            int32_t chosen[2];
            const int64_t n = size->vocabulary;
            for (int c = 0; c < n; c++) {
                assert_true(fabsf(scores[c] - wanted[c]) < 1e-5f);
            }
            cadre_highest_class(
                (cadre_matrix_view){scores, 1, n, n}, &chosen[0]);
            cadre_highest_class(
                (cadre_matrix_view){wanted, 1, n, n}, &chosen[1]);
            assert_int_equal(chosen[0], chosen[1]);
        }
    }
    const float *none = NULL;
    CHECK_FAILS(cadre_net_reader_read(reader, params, x, 1, &none),
        CADRE_ERR_INVALID_ARG, "1 tokens after 70, in a text of 70");
    cadre_net_reader_destroy(reader);
    training_finish(&t);
}

static void a_reader_finds_the_same_scores(void **state)
{
    (void)state;
    const cadre_transformer few = {CADRE_LLAMA, 2, 24, 6, 2, 70, 256};
    check_reader(&tiny);
    check_reader(&few);
}

// An add does the ReLU behind it, and a shortcut goes back.
static const cadre_layer other_ways[] = {
    {.kind = "embedding", .name = "tok", .width = 12, .vocabulary = 64},
    {.kind = "residual"},
    {.kind = "linear", .name = "qkv", .width = 36, .no_bias = true},
    {.kind = "causal_attention", .heads = 2},
    {.kind = "shortcut"},
    {.kind = "linear", .name = "past", .width = 12},
    {.kind = "add"},
    {.kind = "relu"},
    {.kind = "linear", .name = "qkv2", .width = 36},
    {.kind = "causal_attention", .heads = 1},
    {.kind = "linear", .name = "out", .width = 64},
};

static void a_reader_finds_other_ways(void **state)
{
    (void)state;
    enum { TOKENS = 9, LAYERS = sizeof(other_ways) / sizeof(other_ways[0]) };
    const cadre_shape text = {1, 1, 1, 1, TOKENS};
    const float x[TOKENS] = {3, 1, 4, 1, 5, 9, 2, 6, 5};
    cadre_net *net;
    training t;
    CHECK_OK(cadre_net_create(other_ways, LAYERS, text, 64, &net));
    training_start(&t, net, 1, TOKENS);
    for (int p = 0; p < t.n_params; p++) {
        formula_fill(
            FORMULA_PARAM + (uint32_t)p, t.counts[p], 0.5f, t.params[p]);
    }
    const float *const *params = (const float *const *)t.params;
    cadre_matrix_view whole;
    CHECK_OK(cadre_net_scores(t.worker, params, x, 1, &whole));
    cadre_net_reader *reader = NULL;
    CHECK_OK(cadre_net_reader_create(net, &reader));
    for (int place = 0; place < TOKENS; place++) {
        const float *scores = NULL;
        CHECK_OK(cadre_net_reader_read(reader, params, x + place, 1, &scores));
        const float *wanted = cadre_matrix_view_row(whole, place);
        for (int c = 0; c < 64; c++) {
            assert_true(fabsf(scores[c] - wanted[c]) < 1e-5f);
        }
    }
    cadre_net_reader_destroy(reader);
    training_finish(&t);
}

static void a_reader_refuses_what_does_not_go_on(void **state)
{
    (void)state;
    const cadre_transformer bert = {CADRE_BERT, 1, 24, 3, 0, 7, 257};
    cadre_net *net = NULL;
    cadre_net_reader *reader = NULL;
    CHECK_OK(cadre_transformer_net(&bert, &net));
    CHECK_FAILS(cadre_net_reader_create(net, &reader), CADRE_ERR_INVALID_ARG,
        "no text goes on");
    cadre_net_destroy(net);
    const cadre_layer layer = {.kind = "linear", .name = "fc", .width = 2};
    const cadre_shape row = {2, 1, 1, 1, 0};
    CHECK_OK(cadre_net_create(&layer, 1, row, 2, &net));
    CHECK_FAILS(cadre_net_reader_create(net, &reader), CADRE_ERR_INVALID_ARG,
        "no text");
    cadre_net_destroy(net);
}

// The weight that two layers use gets both gradients, in each pass.
static void passes_add_up(void **state)
{
    (void)state;
    training whole;
    training parts;
    start(&tiny, 3, &whole);
    start(&tiny, 3, &parts);
    double loss = step_in(&whole, &tiny, 0, 1);
    assert_true(fabs(step_in(&parts, &tiny, 0, 3) - loss) <= 1e-6 * loss);
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
    (void)step_in(&t, &tiny, 0, 1);
    uint64_t before = cadre_alloc_calls();
    (void)step_in(&t, &tiny, 1, 1);
    assert_true(cadre_alloc_calls() == before);
    training_finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpt_agrees),
        cmocka_unit_test(a_gpt2_is_a_gpt),
        cmocka_unit_test(a_llama_agrees),
        cmocka_unit_test(a_bert_agrees),
        cmocka_unit_test(a_reader_finds_the_same_scores),
        cmocka_unit_test(a_reader_finds_other_ways),
        cmocka_unit_test(a_reader_refuses_what_does_not_go_on),
        cmocka_unit_test(passes_add_up),
        cmocka_unit_test(memory_is_shared_only_where_it_may_be),
        cmocka_unit_test(allocates_nothing_in_a_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
