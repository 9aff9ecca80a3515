// SPDX-License-Identifier: Apache-2.0
//
// Files of tokens, and text as tokens.

#include "data/tokens.h"

#include "base/alloc.h"
#include "cadre/log.h"
#include "data/dataset.h"
#include "data/tokenizer.h"
#include "support/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONTEXT = 9, HEAD = 64 };

static char folder[] = "/tmp/cadre-tokens-XXXXXX";
static char text_path[64];
static char token_path[64];

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL) {
        return -1;
    }
    snprintf(text_path, sizeof(text_path), "%s/text", folder);
    snprintf(token_path, sizeof(token_path), "%s/tokens", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(text_path);
    unlink(token_path);
    return rmdir(folder);
}

static void packed(int32_t vocabulary, cadre_tokens *out)
{
    const int32_t tokens[] = {0, 1, vocabulary - 1, 7, 300};
    const cadre_tokens_facts facts = {
        .vocabulary = vocabulary, .text_bytes = 12, .source = 99};
    CHECK_OK(cadre_tokens_pack(tokens, 5, &facts, out));
}

static void check_tokens(const cadre_tokens *t, int32_t vocabulary)
{
    assert_int_equal(t->count, 5);
    assert_int_equal(t->vocabulary, vocabulary);
    assert_int_equal(t->text_bytes, 12);
    assert_int_equal(t->source, 99);
    assert_int_equal(t->width, vocabulary > 65536 ? 4 : 2);
    assert_int_equal(cadre_token_at(t, 1), 1);
    assert_int_equal(cadre_token_at(t, 2), vocabulary - 1);
    assert_int_equal(cadre_token_at(t, 4), 300);
}

static void a_file_holds_what_was_packed(void **state)
{
    (void)state;
    const int32_t vocabularies[] = {301, 65536, 65537, 1 << 24};
    for (int i = 0; i < 4; i++) {
        cadre_tokens t;
        packed(vocabularies[i], &t);
        check_tokens(&t, vocabularies[i]);
        CHECK_OK(cadre_tokens_save(&t, token_path));
        uint64_t hash = t.hash;
        cadre_tokens_fini(&t);
        assert_true(cadre_tokens_are_in(token_path));
        CHECK_OK(cadre_tokens_map(token_path, &t));
        check_tokens(&t, vocabularies[i]);
        assert_true(t.hash == hash);
        cadre_tokens_fini(&t);
    }
}

static void write_bytes(const char *path, const void *data, size_t nbytes)
{
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(data, 1, nbytes, stream), nbytes);
    assert_int_equal(fclose(stream), 0);
}

static void refuses_what_is_no_file_of_tokens(void **state)
{
    (void)state;
    cadre_tokens whole;
    cadre_tokens t;
    packed(500, &whole);
    for (size_t n = 0; n < whole.block_bytes; n++) {
        write_bytes(token_path, whole.block, n);
        CHECK_FAILS(cadre_tokens_map(token_path, &t), CADRE_ERR_CORRUPT,
            n < HEAD ? "shorter than a header" : "it is cut");
    }
    for (size_t at = 0; at < HEAD; at++) {
        whole.block[at] ^= 1;
        write_bytes(token_path, whole.block, whole.block_bytes);
        CHECK_FAILS(cadre_tokens_map(token_path, &t), CADRE_ERR_CORRUPT,
            at < 8 ? "begins as something else" : "its header is damaged");
        whole.block[at] ^= 1;
    }
    unlink(token_path);
    CHECK_FAILS(cadre_tokens_map(token_path, &t), CADRE_ERR_NOT_FOUND, "");
    assert_false(cadre_tokens_are_in(token_path));
    assert_false(cadre_tokens_are_in(folder));
    cadre_tokens_fini(&whole);
}

// --- as a data set ---

static const char line[] = "In the beginning God created the heaven and the "
                           "earth. And the earth was without form, and void;\n";

enum { LINES = 40, TEXT_BYTES = LINES * (sizeof(line) - 1) };

static uint8_t *write_text(void)
{
    static uint8_t text[TEXT_BYTES];
    for (int i = 0; i < LINES; i++) {
        memcpy(text + (size_t)i * (sizeof(line) - 1), line, sizeof(line) - 1);
    }
    write_bytes(text_path, text, TEXT_BYTES);
    return text;
}

static cadre_dataset_options options_of(cadre_split split)
{
    return (cadre_dataset_options){.path = text_path,
        .split = split,
        .context = CONTEXT,
        .tokenizer = CADRE_TEST_TOKENIZER};
}

// The samples of a split are the tokens from first on.
static void check_split(const cadre_dataset_options *options,
    const int32_t *tokens, int64_t first, int64_t n)
{
    cadre_dataset *dataset = NULL;
    CHECK_OK(cadre_dataset_open("text", options, &dataset));
    assert_int_equal(dataset->n_samples, (n - 1) / CONTEXT);
    assert_int_equal(dataset->tokens, CONTEXT);
    assert_true(dataset->bytes_per_token > 1.5);
    for (int64_t i = 0; i < dataset->n_samples; i++) {
        float x[CONTEXT];
        int32_t labels[CONTEXT];
        const cadre_place place = {.sample = i};
        CHECK_OK(cadre_dataset_read(dataset, place, x, labels));
        for (int k = 0; k < CONTEXT; k++) {
            int64_t at = first + i * CONTEXT + k;
            assert_true(x[k] == (float)tokens[at]);
            assert_int_equal(labels[k], tokens[at + 1]);
        }
    }
    cadre_dataset_close(dataset);
}

static void check_both(cadre_dataset_options options)
{
    cadre_tokenizer *t = NULL;
    int32_t *tokens = NULL;
    size_t count = 0;
    CHECK_OK(cadre_tokenizer_open(CADRE_TEST_TOKENIZER, &t));
    CHECK_OK(
        cadre_tokenizer_encode(t, write_text(), TEXT_BYTES, &tokens, &count));
    int64_t n_train = (int64_t)count * 95 / 100;
    options.split = CADRE_SPLIT_TRAIN;
    check_split(&options, tokens, 0, n_train);
    options.split = CADRE_SPLIT_TEST;
    check_split(&options, tokens, n_train, (int64_t)count - n_train);
    cadre_free(tokens);
    cadre_tokenizer_close(t);
}

static void text_becomes_tokens(void **state)
{
    (void)state;
    unlink(token_path);
    check_both(options_of(CADRE_SPLIT_TRAIN));
    assert_int_equal(access(token_path, F_OK), -1); // nobody asked for it
}

static void a_cache_is_made_once_and_used(void **state)
{
    (void)state;
    unlink(token_path);
    cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    options.cache = token_path;
    check_both(options);
    struct stat first;
    struct stat second;
    assert_int_equal(stat(token_path, &first), 0);
    check_both(options);
    assert_int_equal(stat(token_path, &second), 0);
    assert_int_equal(first.st_ino, second.st_ino);

    // And it is a file of tokens like others.
    options.path = token_path;
    options.tokenizer = options.cache = NULL;
    check_both(options);
}

static void refused(const cadre_dataset_options *options, cadre_status status,
    const char *words)
{
    cadre_dataset *dataset = NULL;
    CHECK_FAILS(cadre_dataset_open("text", options, &dataset), status, words);
    assert_null(dataset);
}

static void refuses_what_does_not_fit_together(void **state)
{
    (void)state;
    cadre_tokens t;
    packed(500, &t);
    CHECK_OK(cadre_tokens_save(&t, token_path));
    cadre_tokens_fini(&t);
    write_text();
    cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    options.cache = token_path;
    refused(&options, CADRE_ERR_INVALID_ARG, "of another text or tokenizer");
    options.path = token_path;
    refused(&options, CADRE_ERR_INVALID_ARG, "of a file of tokens there are");
    options.cache = NULL;
    refused(&options, CADRE_ERR_INVALID_ARG,
        "tokens of a vocabulary of 500, but that of data.tokenizer has 700");
    options = options_of(CADRE_SPLIT_TRAIN);
    options.tokenizer = NULL;
    options.cache = token_path;
    refused(&options, CADRE_ERR_INVALID_ARG, "without data.tokenizer");
    options.cache = NULL;
    options.path = token_path;
    refused(&options, CADRE_ERR_INVALID_ARG, "has 4 tokens, too few");
    options = options_of(CADRE_SPLIT_TRAIN);
    options.tokenizer = folder;
    refused(&options, CADRE_ERR_NOT_FOUND, "vocab.json");
}

static void count_encodings(
    cadre_log_level level, const char *component, const char *text, void *ctx)
{
    (void)level;
    (void)component;
    int *n = ctx;
    *n += strstr(text, "are made tokens") != NULL;
}

// To cut a long text takes minutes, which would be lost.
static void a_cache_that_cannot_be_written_is_refused_before_work(void **state)
{
    (void)state;
    write_text();
    char missing[128];
    char below[128];
    char long_name[4 + 64 + 250];
    snprintf(missing, sizeof(missing), "%s/none/tokens", folder);
    snprintf(below, sizeof(below), "%s/tokens", text_path);
    snprintf(long_name, sizeof(long_name), "%s/%0250d", folder, 0);
    const char *const caches[] = {missing, below, long_name};
    cadre_dataset_options options = options_of(CADRE_SPLIT_TRAIN);
    int n = 0;
    cadre_log_set_sink(CADRE_LOG_INFO, count_encodings, &n);
    for (int i = 0; i < 3; i++) {
        options.cache = caches[i];
        refused(&options, CADRE_ERR_IO, "data.cache is to be a file in a");
        assert_non_null(strstr(cadre_error_text(), caches[i]));
    }
    assert_int_equal(n, 0);
    // Nothing is left of the trial, and where one is needed it is made.
    unlink(token_path);
    options.cache = token_path;
    cadre_dataset *dataset = NULL;
    CHECK_OK(cadre_dataset_open("text", &options, &dataset));
    cadre_dataset_close(dataset);
    cadre_log_set_sink(CADRE_LOG_WARN, NULL, NULL);
    assert_int_equal(n, 1);
}

// What a header promises is not believed of the tokens.
static void a_token_too_large_is_refused(void **state)
{
    (void)state;
    enum { N = 400 };
    int32_t tokens[N] = {0};
    tokens[200] = 500;
    const cadre_tokens_facts facts = {.vocabulary = 500, .text_bytes = N};
    cadre_tokens t;
    CHECK_OK(cadre_tokens_pack(tokens, N, &facts, &t));
    CHECK_OK(cadre_tokens_save(&t, token_path));
    cadre_tokens_fini(&t);
    const cadre_dataset_options options = {
        .path = token_path, .context = CONTEXT};
    cadre_dataset *dataset = NULL;
    CHECK_OK(cadre_dataset_open("text", &options, &dataset));
    float x[CONTEXT];
    int32_t labels[CONTEXT];
    cadre_place place = {.sample = 0};
    CHECK_OK(cadre_dataset_read(dataset, place, x, labels));
    place.sample = 200 / CONTEXT;
    CHECK_FAILS(cadre_dataset_read(dataset, place, x, labels),
        CADRE_ERR_CORRUPT, token_path);
    assert_non_null(strstr(cadre_error_text(), "it has token 500, of 500"));
    cadre_dataset_close(dataset);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    write_text();
    cadre_dataset_options options = options_of(CADRE_SPLIT_TEST);
    options.cache = token_path;
    cadre_status status = CADRE_ERR_NO_MEMORY;
    int failures = 0;
    for (; status != CADRE_OK; failures++) {
        cadre_dataset *dataset = NULL;
        unlink(token_path);
        cadre_alloc_fail_after(failures);
        status = cadre_dataset_open("text", &options, &dataset);
        cadre_alloc_fail_after(-1);
        cadre_dataset_close(dataset);
        assert_true(status == CADRE_OK || status == CADRE_ERR_NO_MEMORY);
        assert_in_range(failures, 0, 200);
    }
    assert_true(failures > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_holds_what_was_packed),
        cmocka_unit_test(refuses_what_is_no_file_of_tokens),
        cmocka_unit_test(text_becomes_tokens),
        cmocka_unit_test(a_cache_is_made_once_and_used),
        cmocka_unit_test(refuses_what_does_not_fit_together),
        cmocka_unit_test(a_cache_that_cannot_be_written_is_refused_before_work),
        cmocka_unit_test(a_token_too_large_is_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
