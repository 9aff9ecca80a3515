// SPDX-License-Identifier: Apache-2.0
//
// Texts shorter than the net's, filled up with CADRE_NO_TOKEN: losses and
// gradients are those of the text alone, in a net as short as it is.

#include "cadre/net.h"
#include "nn/formula.h"
#include "nn/reader.h"
#include "nn/training.h"
#include "support/check.h"
#include <math.h>
#include <string.h>

enum {
    ALONE = 9,     // tokens of the text
    PADDED = 70,   // of the net that it is filled up for: more than a block
    TEXTS = 2,     // the second is nothing but padding
    WORDS = 50,    // numbers that a token can have
    WIDTH = 24,    // channels
    POSITIONS = 1, // the parameter that has a row for each place
    PARAMS = 16,   // at most
};

// What a net is made of, and how.
typedef struct recipe {
    const char *attention;
    bool rotary;
    bool bf16;
    bool recompute;
} recipe;

static cadre_net *make_net(const recipe *r, int tokens)
{
    const cadre_layer turn = {.kind = "rotary", .heads = 4, .kv_heads = 1};
    const cadre_layer bend = {.kind = "gelu"};
    const cadre_layer layers[] = {
        {.kind = "embedding",
            .name = "tok",
            .width = WIDTH,
            .vocabulary = WORDS},
        {.kind = "positions", .name = "pos"},
        {.kind = "residual"},
        {.kind = "linear", .name = "qkv", .width = 3 * WIDTH},
        {.kind = r->attention, .heads = 3},
        {.kind = "linear", .name = "proj", .width = WIDTH},
        {.kind = "add"},
        {.kind = "layer_norm", .name = "ln"},
        {.kind = "residual"},
        {.kind = "linear", .name = "qkv2", .width = 36, .no_bias = true},
        r->rotary ? turn : bend,
        {.kind = r->attention, .heads = 4, .kv_heads = 1},
        {.kind = "add"},
        {.kind = "unembedding", .tied = "tok"},
    };
    cadre_net *net = NULL;
    CHECK_OK(cadre_net_create(layers, sizeof(layers) / sizeof(layers[0]),
        (cadre_shape){.tokens = tokens}, WORDS, &net));
    if (r->recompute) {
        cadre_net_recompute(net);
    }
    if (r->bf16) {
        cadre_net_use_bf16(net);
    }
    return net;
}

typedef struct trial {
    training net;
    double loss;
} trial;

static void start(trial *t, const recipe *r, int tokens)
{
    training *n = &t->net;
    training_start(n, make_net(r, tokens), 1, 1);
    assert_in_range(n->n_params, POSITIONS + 1, PARAMS);
    for (int p = 0; p < n->n_params; p++) {
        formula_fill(
            FORMULA_PARAM + (uint32_t)p, n->counts[p], 0.3f, n->params[p]);
    }
    t->loss = 0.0;
}

static void finish(trial *t)
{
    training_finish(&t->net);
}

static cadre_status try_pass(
    trial *t, const float *x, const int32_t *labels, int64_t n_texts)
{
    const cadre_pass pass = {.x = x,
        .labels = labels,
        .n_samples = n_texts,
        .first = true,
        .last = true};
    return training_try_pass(&t->net, &pass, &t->loss);
}

// A text alone, and filled up with another one that has no token at all.
typedef struct texts {
    float alone[ALONE];
    int32_t alone_labels[ALONE];
    float padded[TEXTS * PADDED];
    int32_t padded_labels[TEXTS * PADDED];
    int place[ALONE]; // of its tokens
} texts;

// The text's tokens lie at first, first + step, ...
static void fill(texts *t, int first, int step)
{
    int32_t words[2 * ALONE];
    formula_labels(2 * ALONE, WORDS, words);
    for (int k = 0; k < TEXTS * PADDED; k++) {
        t->padded[k] = (float)CADRE_NO_TOKEN;
        t->padded_labels[k] = CADRE_NO_LABEL;
    }
    for (int k = 0; k < ALONE; k++) {
        t->place[k] = first + k * step;
        assert_in_range(t->place[k], 0, PADDED - 1);
        t->alone[k] = (float)words[k];
        t->alone_labels[k] = words[ALONE + k];
        t->padded[t->place[k]] = t->alone[k];
        t->padded_labels[t->place[k]] = t->alone_labels[k];
    }
}

// The places of the short net are those that the text's tokens have in the
// long one.
static void share_params(const texts *w, const trial *padded, trial *alone)
{
    for (int p = 0; p < alone->net.n_params; p++) {
        for (size_t k = 0; k < alone->net.counts[p]; k++) {
            size_t from = p == POSITIONS
                              ? (size_t)w->place[k / WIDTH] * WIDTH + k % WIDTH
                              : k;
            alone->net.params[p][k] = padded->net.params[p][from];
        }
    }
}

// ||ours - theirs|| / ||theirs||
static double distance(const float *ours, const float *theirs, size_t count)
{
    double difference = 0.0;
    double norm = 0.0;
    for (size_t k = 0; k < count; k++) {
        double d = (double)ours[k] - (double)theirs[k];
        difference += d * d;
        norm += (double)theirs[k] * (double)theirs[k];
    }
    return sqrt(difference) / sqrt(norm);
}

// Takes the rows of the text's places together; those of others must be 0.
static void gather_places(const texts *w, float *grad)
{
    float rows[ALONE * WIDTH];
    for (int k = 0; k < ALONE; k++) {
        float *row = grad + w->place[k] * WIDTH;
        memcpy(rows + k * WIDTH, row, WIDTH * sizeof(*row));
        memset(row, 0, WIDTH * sizeof(*row));
    }
    for (int k = 0; k < PADDED * WIDTH; k++) {
        assert_true(grad[k] == 0.0f);
    }
    memcpy(grad, rows, sizeof(rows));
}

static void check_padded(const recipe *r, int first, int step, double tolerance)
{
    trial alone;
    trial padded;
    static texts w;
    fill(&w, first, step);
    start(&alone, r, ALONE);
    start(&padded, r, PADDED);
    share_params(&w, &padded, &alone);
    CHECK_OK(try_pass(&alone, w.alone, w.alone_labels, 1));
    CHECK_OK(try_pass(&padded, w.padded, w.padded_labels, TEXTS));
    assert_true(fabs(padded.loss - alone.loss) <= tolerance * alone.loss);
    gather_places(&w, padded.net.grads[POSITIONS]);
    for (int p = 0; p < alone.net.n_params; p++) {
        double found = distance(
            padded.net.grads[p], alone.net.grads[p], alone.net.counts[p]);
        if (!(found <= tolerance)) {
            fail_msg("%s, tokens at %d and on by %d: gradient %d is off by %g",
                r->attention, first, step, p, found);
        }
    }
    finish(&alone);
    finish(&padded);
}

static void a_padded_text_counts_as_if_alone(void **state)
{
    (void)state;
    const recipe causal = {.attention = "causal_attention"};
    const recipe full = {.attention = "attention"};
    static const int ways[][2] = {{0, 1}, {PADDED - ALONE, 1}, {1, 8}};
    for (int i = 0; i < 3; i++) {
        check_padded(&causal, ways[i][0], ways[i][1], 1e-6);
        check_padded(&full, ways[i][0], ways[i][1], 1e-6);
    }
}

// How far apart tokens are is what counts there, not where they are.
static void so_it_does_where_places_turn(void **state)
{
    (void)state;
    const recipe causal = {.attention = "causal_attention", .rotary = true};
    const recipe full = {.attention = "attention", .rotary = true};
    check_padded(&causal, 0, 1, 1e-6);
    check_padded(&full, 0, 1, 1e-6);
    check_padded(&causal, PADDED - ALONE, 1, 1e-6);
    check_padded(&full, PADDED - ALONE, 1, 1e-6);
}

static void so_it_does_with_bf16(void **state)
{
    (void)state;
    const recipe causal = {.attention = "causal_attention", .bf16 = true};
    const recipe full = {.attention = "attention", .bf16 = true};
    check_padded(&causal, 3, 2, 1e-2);
    check_padded(&full, 3, 2, 1e-2);
}

// All gradients but those of the places.
static void assert_same_bits(const trial *a, const trial *b)
{
    assert_true(a->loss == b->loss);
    for (int p = 0; p < a->net.n_params; p++) {
        if (p != POSITIONS) {
            assert_memory_equal(a->net.grads[p], b->net.grads[p],
                a->net.counts[p] * sizeof(float));
        }
    }
}

// Its share is exactly nothing: other numbers there change no bit.
static void what_is_hidden_does_not_matter(void **state)
{
    (void)state;
    static texts w;
    fill(&w, 1, 8);
    const recipe both[] = {
        {.attention = "causal_attention", .rotary = true},
        {.attention = "attention", .rotary = true},
    };
    for (int i = 0; i < 2; i++) {
        trial before;
        trial after;
        start(&before, &both[i], PADDED);
        start(&after, &both[i], PADDED);
        for (int k = 0; k < PADDED * WIDTH; k++) {
            if (w.padded[k / WIDTH] < 0.0f) {
                after.net.params[POSITIONS][k] *= -100.0f;
            }
        }
        CHECK_OK(try_pass(&before, w.padded, w.padded_labels, TEXTS));
        CHECK_OK(try_pass(&after, w.padded, w.padded_labels, TEXTS));
        assert_same_bits(&before, &after);
        finish(&before);
        finish(&after);
    }
}

static void recomputing_changes_no_bit(void **state)
{
    (void)state;
    static texts w;
    fill(&w, 1, 8);
    const recipe keeps = {.attention = "attention"};
    const recipe recomputes = {.attention = "attention", .recompute = true};
    trial one;
    trial other;
    start(&one, &keeps, PADDED);
    start(&other, &recomputes, PADDED);
    CHECK_OK(try_pass(&one, w.padded, w.padded_labels, TEXTS));
    CHECK_OK(try_pass(&other, w.padded, w.padded_labels, TEXTS));
    assert_same_bits(&one, &other);
    finish(&one);
    finish(&other);
}

static void a_reader_hides_the_same_keys(void **state)
{
    (void)state;
    static texts w;
    fill(&w, 1, 8);
    const recipe r = {.attention = "causal_attention", .rotary = true};
    trial t;
    cadre_matrix_view wanted;
    cadre_net_reader *reader = NULL;
    start(&t, &r, PADDED);
    const float *const *params = (const float *const *)t.net.params;
    CHECK_OK(cadre_net_scores(t.net.worker, params, w.padded, 1, &wanted));
    CHECK_OK(cadre_net_reader_create(t.net.net, &reader));
    for (int k = 0, at = 0; k < ALONE; at = w.place[k++] + 1) {
        const float *scores = NULL;
        CHECK_OK(cadre_net_reader_read(
            reader, params, w.padded + at, w.place[k] + 1 - at, &scores));
        assert_true(distance(scores, cadre_matrix_view_row(wanted, w.place[k]),
                        WORDS) <= 1e-6);
    }
    cadre_net_reader_destroy(reader);
    finish(&t);
}

static void no_token_has_no_label(void **state)
{
    (void)state;
    static texts w;
    fill(&w, 0, 1);
    w.padded_labels[ALONE] = 3;
    const recipe r = {.attention = "causal_attention"};
    trial t;
    float losses[PADDED];
    int32_t classes[PADDED];
    start(&t, &r, PADDED);
    t.loss = 7.0;
    CHECK_FAILS(try_pass(&t, w.padded, w.padded_labels, TEXTS),
        CADRE_ERR_INVALID_ARG, "label 9 of a pass is 3, but there is no token");
    assert_true(t.loss == 7.0);
    CHECK_FAILS(
        cadre_net_predict(t.net.worker, (const float *const *)t.net.params,
            w.padded, w.padded_labels, 1, losses, classes),
        CADRE_ERR_INVALID_ARG, "CADRE_NO_LABEL");
    w.padded_labels[ALONE] = CADRE_NO_LABEL;
    CHECK_OK(cadre_net_predict(t.net.worker, (const float *const *)t.net.params,
        w.padded, w.padded_labels, 1, losses, classes));
    for (int k = 0; k < PADDED; k++) {
        assert_true(k < ALONE ? losses[k] > 0.0f : losses[k] == 0.0f);
    }
    finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_padded_text_counts_as_if_alone),
        cmocka_unit_test(so_it_does_where_places_turn),
        cmocka_unit_test(so_it_does_with_bf16),
        cmocka_unit_test(what_is_hidden_does_not_matter),
        cmocka_unit_test(recomputing_changes_no_bit),
        cmocka_unit_test(a_reader_hides_the_same_keys),
        cmocka_unit_test(no_token_has_no_label),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
