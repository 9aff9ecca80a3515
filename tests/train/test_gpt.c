// SPDX-License-Identifier: Apache-2.0
//
// Transformers as a library call, with ranks that are threads, on a text made
// here.

#include "cadre/train.h"

#include "base/folder.h"
#include "cadre/launch.h"
#include "nn/net.h"
#include "support/check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_BYTES = 4000, PERIOD = 26 };

static char folder[] = "/tmp/cadre-gpt-XXXXXX";

static void path_of(const char *name, char path[CADRE_PATH_BYTES])
{
    snprintf(path, CADRE_PATH_BYTES, "%s/%s", folder, name);
}

// The alphabet, again and again.
static int make_text(void **state)
{
    (void)state;
    char path[CADRE_PATH_BYTES];
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    path_of("text", path);
    FILE *stream = fopen(path, "wb");
    if (stream == NULL) {
        return -1;
    }
    for (int i = 0; i < N_BYTES; i++) {
        fputc('a' + i % PERIOD, stream);
    }
    return fclose(stream);
}

static int remove_all(void **state)
{
    (void)state;
    static const char *const names[] = {
        "run/checkpoints/step-60", "run/checkpoints", "run"};
    char path[CADRE_PATH_BYTES];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        path_of(names[i], path);
        if (cadre_folder_remove(path) != CADRE_OK) {
            return -1;
        }
    }
    path_of("text", path);
    unlink(path);
    return rmdir(folder);
}

static cadre_train_config tiny(const char *recipe)
{
    cadre_train_config c;
    CHECK_OK(cadre_recipe_config(recipe, &c));
    path_of("text", c.data_path);
    c.model_layers = 2;
    c.model_width = 24;
    c.model_heads = 4;
    c.model_context = 20;
    c.steps = 3;
    c.global_batch = 13;
    c.leaves = 6;
    return c;
}

static cadre_train_config tiny_config(void)
{
    return tiny("gpt-kjv-small");
}

typedef struct job {
    cadre_train_config config;
    cadre_train_summary summary; // of rank 0, which has no text to release
} job;

static cadre_status train_rank(cadre_group *world, void *ctx)
{
    job *j = ctx;
    cadre_train_summary summary;
    cadre_status status = cadre_train(world, &j->config, NULL, &summary);
    if (status != CADRE_OK) {
        return status;
    }
    if (cadre_rank(world) == 0) {
        j->summary = summary;
        j->summary.json = NULL;
    }
    cadre_train_summary_release(&summary);
    return CADRE_OK;
}

static cadre_train_summary train_on(int n_ranks, job *j)
{
    CHECK_OK(cadre_launch_threads(n_ranks, NULL, train_rank, j, NULL));
    return j->summary;
}

// Uneven leaves, and passes that are smaller than leaves.
static double check_bits(cadre_precision precision)
{
    double loss = 0;
    static const struct {
        int ranks;
        int threads;
        int fold;
        cadre_mode mode;
    } cases[] = {{1, 1, 0, CADRE_DDP}, {1, 3, 0, CADRE_DDP},
        {2, 2, 1, CADRE_ZERO1}, {3, 1, 2, CADRE_DDP}, {5, 1, 0, CADRE_ZERO1}};
    for (int micro_batch = 0; micro_batch <= 2; micro_batch += 2) {
        cadre_train_summary wanted = {0};
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            job j = {.config = tiny_config()};
            j.config.precision = precision;
            j.config.micro_batch = micro_batch;
            j.config.threads = cases[i].threads;
            j.config.fold = cases[i].fold;
            j.config.mode = cases[i].mode;
            j.config.bucket_mb = i % 2 == 0 ? 25 : 0.02;
            j.config.recompute = i % 3 == 1;
            cadre_train_summary found = train_on(cases[i].ranks, &j);
            wanted = i == 0 ? found : wanted;
            assert_true(found.params_hash == wanted.params_hash);
            assert_true(found.loss == wanted.loss);
            assert_true(found.eval_loss == wanted.eval_loss);
            assert_true(found.replicas_equal);
        }
        loss = wanted.eval_loss;
    }
    return loss;
}

// bf16 has other bits, and nearly the same loss.
static void the_bits_are_those_of_one_rank(void **state)
{
    (void)state;
    double f32 = check_bits(CADRE_PRECISION_F32);
    cadre_compute_assume_bf16(true);
    double bf16 = check_bits(CADRE_PRECISION_BF16);
    cadre_compute_assume_bf16(false);
    assert_true(bf16 != f32 && fabs(bf16 - f32) < 1e-3 * f32);
}

// Every kind of transformer, with labels that are smoothed, and the one that
// has few labels.
static void other_recipes_have_one_rank_s_bits(void **state)
{
    (void)state;
    static const char *const recipes[] = {
        "llama-kjv-small", "bert-kjv", "gpt2"};
    static const struct {
        int ranks;
        int threads;
        cadre_mode mode;
        const char *transport;
    } cases[] = {{1, 1, CADRE_DDP, "auto"}, {3, 1, CADRE_ZERO1, "tcp"},
        {5, 2, CADRE_DDP, "shm"}};
    for (size_t r = 0; r < sizeof(recipes) / sizeof(recipes[0]); r++) {
        cadre_train_summary wanted = {0};
        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
            job j = {.config = tiny(recipes[r])};
            j.config.label_smoothing = 0.1;
            j.config.threads = cases[i].threads;
            j.config.mode = cases[i].mode;
            snprintf(j.config.transport, sizeof(j.config.transport), "%s",
                cases[i].transport);
            cadre_train_summary found = train_on(cases[i].ranks, &j);
            wanted = i == 0 ? found : wanted;
            assert_true(found.params_hash == wanted.params_hash);
            assert_true(found.loss == wanted.loss);
            assert_true(found.eval_loss == wanted.eval_loss);
            assert_true(found.replicas_equal);
        }
    }
}

// A smoothed label costs something even where it is foreseen; an evaluation
// does not know of it.
static void labels_are_smoothed(void **state)
{
    (void)state;
    job plain = {.config = tiny_config()};
    plain.config.steps = 1;
    plain.config.lr = 0;
    job smooth = plain;
    smooth.config.label_smoothing = 0.5;
    cadre_train_summary a = train_on(1, &plain);
    cadre_train_summary b = train_on(1, &smooth);
    assert_true(a.loss != b.loss);
    assert_true(a.eval_loss == b.eval_loss);
    smooth.config.label_smoothing = 1;
    CHECK_FAILS(cadre_train_check(&smooth.config, 1), CADRE_ERR_INVALID_ARG,
        "train.label_smoothing is 1");
}

// Who only knew how often a letter comes would need log2(26), 4.7 bits for each.
static void gaps_are_filled(void **state)
{
    (void)state;
    job j = {.config = tiny("bert-kjv")};
    j.config.steps = 150;
    j.config.lr = 0.01;
    cadre_train_summary summary = train_on(1, &j);
    assert_true(summary.eval_bits_per_byte < 4.2);
}

static void losses_are_of_bytes(void **state)
{
    (void)state;
    job j = {.config = tiny_config()};
    j.config.steps = 1;
    j.config.lr = 0;
    cadre_train_summary summary = train_on(1, &j);
    // Nothing is learned yet: 8 bits, nearly.
    assert_true(fabs(summary.eval_bits_per_byte - 8) < 0.1);
    double bits = summary.eval_loss / log(2);
    assert_true(fabs(bits - summary.eval_bits_per_byte) < 1e-12 * bits);
    assert_true(isnan(summary.eval_accuracy));
}

typedef struct page {
    char text[64];
    int n;
    int wanted; // 0: all
} page;

static bool take_byte(uint8_t byte, void *ctx)
{
    page *p = ctx;
    p->text[p->n++] = (char)byte;
    return p->n != p->wanted;
}

static const char *writing; // the recipe of the model that writes
static int top_k;

static cadre_status write_text(cadre_group *world, void *ctx)
{
    const cadre_train_config config = tiny(writing);
    char model[CADRE_PATH_BYTES];
    path_of("run/model.safetensors", model);
    return cadre_generate(world, &config, model, ctx);
}

static cadre_status generate(
    const char *prompt, double temperature, uint64_t seed, page *p)
{
    *p = (page){.wanted = p->wanted};
    cadre_generate_options options = {
        .prompt = prompt,
        .length = 40,
        .temperature = temperature,
        .top_k = top_k,
        .seed = seed,
        .write = take_byte,
        .ctx = p,
    };
    return cadre_launch_threads(1, NULL, write_text, &options, NULL);
}

static void learn_alphabet(const char *recipe)
{
    writing = recipe;
    top_k = 0;
    job j = {.config = tiny(recipe)};
    j.config.steps = 60;
    j.config.lr = 0.01;
    path_of("run", j.config.out);
    char path[CADRE_PATH_BYTES];
    path_of("run/checkpoints/step-60", path);
    CHECK_OK(cadre_folder_remove(path));
    cadre_train_summary summary = train_on(1, &j);
    assert_true(summary.eval_bits_per_byte < 0.5);
}

// Longer than what the model looks back at, and further.
static void check_alphabet(void)
{
    page p = {0};
    CHECK_OK(generate("abcdefghijklmnopqrstuvwxyzabc", 0, 1, &p));
    assert_string_equal(p.text, "defghijklmnopqrstuvwxyzabcdefghijklmnopq");
    CHECK_OK(generate("xyzabc", 0, 1, &p));
    assert_memory_equal(p.text, "defghijk", 8);
}

static void writes_what_it_has_learned(void **state)
{
    (void)state;
    learn_alphabet("gpt-kjv-small");
    check_alphabet();

    // The seed decides what is drawn, and nothing else does.
    page p = {0};
    page again = {0};
    page other = {0};
    CHECK_OK(generate("abc", 50, 1, &p));
    CHECK_OK(generate("abc", 50, 1, &again));
    CHECK_OK(generate("abc", 50, 2, &other));
    assert_memory_equal(p.text, again.text, 40);
    assert_memory_not_equal(p.text, other.text, 40);

    // A reader may have enough.
    other.wanted = 3;
    CHECK_OK(generate("abc", 50, 1, &other));
    assert_int_equal(other.n, 3);
    assert_memory_equal(p.text, other.text, 3);

    // From one byte there is nothing to draw; from 256 all may be.
    top_k = 256;
    CHECK_OK(generate("abc", 50, 1, &again));
    assert_memory_equal(p.text, again.text, 40);
    top_k = 1;
    CHECK_OK(generate("abcdefghijklmnopqrstuvwxyzabc", 50, 1, &p));
    assert_string_equal(p.text, "defghijklmnopqrstuvwxyzabcdefghijklmnopq");

    CHECK_FAILS(
        generate("", 1, 1, &p), CADRE_ERR_INVALID_ARG, "the prompt is empty");
    CHECK_FAILS(generate("a", -1, 1, &p), CADRE_ERR_INVALID_ARG,
        "neither may be below 0");
    top_k = -1;
    CHECK_FAILS(generate("a", 1, 1, &p), CADRE_ERR_INVALID_ARG,
        "the likeliest -1 bytes");
    top_k = 0;
    writing = "bert-kjv";
    CHECK_FAILS(
        generate("a", 1, 1, &p), CADRE_ERR_INVALID_ARG, "learns to fill gaps");
    assert_int_equal(p.n, 0);
}

static void a_llama_writes_too(void **state)
{
    (void)state;
    learn_alphabet("llama-kjv-small");
    check_alphabet();
}

static void sizes_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        int layers;
        int width;
        int heads;
        int context;
        const char *words;
    } cases[] = {
        {0, 24, 3, 20, "model.layers is 0"},
        {101, 24, 3, 20, "model.layers is 101"},
        {2, 25, 3, 20, "model.width is 25 and model.heads 3"},
        {2, 24, 0, 20, "model.width is 24 and model.heads 0"},
        {2, 24, 3, 0, "model.context is 0"},
        {2, 24, 3, 300, "the test part of the text has 200 bytes"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cadre_train_config c = tiny_config();
        c.model_layers = cases[i].layers;
        c.model_width = cases[i].width;
        c.model_heads = cases[i].heads;
        c.model_context = cases[i].context;
        CHECK_FAILS(
            cadre_train_check(&c, 1), CADRE_ERR_INVALID_ARG, cases[i].words);
    }
    cadre_train_config c = tiny("llama-kjv-small");
    c.model_kv_heads = 3;
    CHECK_FAILS(cadre_train_check(&c, 1), CADRE_ERR_INVALID_ARG,
        "model.heads is 4 and model.kv_heads 3");
    c.model_heads = 8;
    c.model_kv_heads = 8;
    CHECK_FAILS(cadre_train_check(&c, 1), CADRE_ERR_INVALID_ARG,
        "a head of 3 channels has no pairs");
    c = tiny_config();
    c.model_kv_heads = 2;
    CHECK_FAILS(cadre_train_check(&c, 1), CADRE_ERR_INVALID_ARG,
        "only the llama recipes share");
    cadre_train_config mlp;
    CHECK_OK(cadre_recipe_config("mlp-fashion", &mlp));
    mlp.model_heads = 2;
    CHECK_FAILS(cadre_train_check(&mlp, 1), CADRE_ERR_INVALID_ARG,
        "model.heads is given, but recipe 'mlp-fashion' has no attention");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_one_rank),
        cmocka_unit_test(other_recipes_have_one_rank_s_bits),
        cmocka_unit_test(labels_are_smoothed),
        cmocka_unit_test(gaps_are_filled),
        cmocka_unit_test(losses_are_of_bytes),
        cmocka_unit_test(writes_what_it_has_learned),
        cmocka_unit_test(a_llama_writes_too),
        cmocka_unit_test(sizes_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, make_text, remove_all);
}
