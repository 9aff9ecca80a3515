// SPDX-License-Identifier: Apache-2.0
//
// A tokenizer against what the library tokenizers makes of the same files
// (tokenizer/references.txt, made by tools/make_tokenizer_references.py), and
// files that are none.

#include "data/tokenizer.h"

#include "base/alloc.h"
#include "data/words.h"
#include "support/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_TEXT = 8192, MOST_LINE = 65536 };

static cadre_tokenizer *open_stored(void)
{
    cadre_tokenizer *t = NULL;
    CHECK_OK(cadre_tokenizer_open(CADRE_TEST_TOKENIZER, &t));
    return t;
}

// A line's text; returns where its tokens begin.
static const char *read_text(const char *line, uint8_t *text, size_t *nbytes)
{
    for (*nbytes = 0; *line != ' ' && *line != '\n'; line += 2) {
        unsigned byte;
        // NOLINTNEXTLINE(cert-err34-c): the file is our own
        assert_int_equal(sscanf(line, "%2x", &byte), 1);
        assert_in_range(*nbytes, 0, MOST_TEXT - 1);
        text[(*nbytes)++] = (uint8_t)byte;
    }
    return line;
}

static void check_line(const cadre_tokenizer *t, const char *line)
{
    static uint8_t text[MOST_TEXT];
    size_t nbytes;
    const char *at = read_text(line, text, &nbytes);
    int32_t *tokens = NULL;
    size_t n = 0;
    CHECK_OK(cadre_tokenizer_encode(t, text, nbytes, &tokens, &n));
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char *end;
        long wanted = strtol(at, &end, 10);
        if (end == at || tokens[i] != wanted) {
            fail_msg("token %zu is %d instead of %ld of '%.*s'", i, tokens[i],
                end == at ? -1 : wanted, (int)nbytes, (const char *)text);
        }
        at = end;
        // And back again.
        size_t n_token;
        const uint8_t *bytes = cadre_tokenizer_decode(t, tokens[i], &n_token);
        assert_memory_equal(bytes, text + used, n_token);
        used += n_token;
    }
    assert_int_equal(*at, '\n');
    assert_int_equal(used, nbytes);
    cadre_free(tokens);
}

static void tokens_are_those_of_the_reference(void **state)
{
    (void)state;
    static char line[MOST_LINE];
    cadre_tokenizer *t = open_stored();
    FILE *stream = fopen(CADRE_TEST_TOKENIZER "/references.txt", "r");
    assert_non_null(stream);
    int n = 0;
    for (; fgets(line, sizeof(line), stream) != NULL; n++) {
        check_line(t, line);
    }
    assert_in_range(n, 60, 1000);
    fclose(stream);
    cadre_tokenizer_close(t);
}

// Whatever bytes there are, they come back.
static void any_bytes_come_back(void **state)
{
    (void)state;
    enum { N = 3000 };
    uint8_t text[N];
    uint32_t mixed = 1;
    for (int i = 0; i < N; i++) {
        mixed = mixed * 1664525 + 1013904223;
        text[i] = (uint8_t)(mixed >> 24);
    }
    cadre_tokenizer *t = open_stored();
    int32_t *tokens = NULL;
    size_t n = 0;
    CHECK_OK(cadre_tokenizer_encode(t, text, N, &tokens, &n));
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        size_t n_token;
        const uint8_t *bytes = cadre_tokenizer_decode(t, tokens[i], &n_token);
        assert_memory_equal(bytes, text + used, n_token);
        used += n_token;
    }
    assert_int_equal(used, N);
    cadre_free(tokens);
    cadre_tokenizer_close(t);
}

// Words by the rule, sequences that are cut or too long being signs.
static void words_end_where_they_should(void **state)
{
    (void)state;
    const struct {
        const char *text;
        size_t nbytes;
        size_t wanted;
    } cases[] = {{"ab cd", 5, 2}, {" ab cd", 6, 3}, {"12ab", 4, 2},
        {"'ll ", 4, 3}, {"'l", 2, 1}, {"  ab", 4, 1}, {"\n\n", 2, 2},
        {"\nab", 3, 1}, {" ", 1, 1}, {"\xc3\xa9t", 3, 3}, {"\xc3", 1, 1},
        {"\xc3z", 2, 1}, {"\xc0\x80z", 3, 2}, {"\xed\xa0\x80z", 4, 3},
        {"\xf4\x90\x80\x80z", 5, 4}, {"\xc2\xa0\xc2\xa0z", 5, 2},
        {" \xe6\xbc\xa2.", 5, 4}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t found =
            cadre_word_bytes((const uint8_t *)cases[i].text, cases[i].nbytes);
        if (found != cases[i].wanted) {
            fail_msg("case %zu: %zu bytes", i, found);
        }
    }
}

// A word of a million bytes is no trap.
static void long_words_take_no_longer(void **state)
{
    (void)state;
    enum { N = 1 << 20 };
    uint8_t *text = cadre_alloc(N);
    assert_non_null(text);
    memset(text, 'a', N);
    cadre_tokenizer *t = open_stored();
    int32_t *tokens = NULL;
    size_t n = 0;
    CHECK_OK(cadre_tokenizer_encode(t, text, N, &tokens, &n));
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        size_t n_token;
        (void)cadre_tokenizer_decode(t, tokens[i], &n_token);
        used += n_token;
    }
    assert_int_equal(used, N);
    cadre_free(tokens);
    cadre_free(text);
    cadre_tokenizer_close(t);
}

// --- files that are none ---

static char folder[] = "/tmp/cadre-tokenizer-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof(command), "rm -r '%s'", folder);
    return system(command);
}

static void write_text(const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

static void copy_vocabulary(void)
{
    static char text[MOST_LINE];
    FILE *stream = fopen(CADRE_TEST_TOKENIZER "/vocab.json", "rb");
    assert_non_null(stream);
    text[fread(text, 1, sizeof(text) - 1, stream)] = '\0';
    assert_int_equal(fclose(stream), 0);
    write_text("vocab.json", text);
}

static void refused(cadre_status status, const char *words)
{
    cadre_tokenizer *t = NULL;
    CHECK_FAILS(cadre_tokenizer_open(folder, &t), status, words);
    assert_null(t);
}

// 300 tokens that begin with a word; number -1: each has its own.
static void write_many(const char *word, int number)
{
    static char text[MOST_LINE];
    size_t used = 1;
    text[0] = '{';
    for (int i = 0; i < 300; i++) {
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, "%s\"%s%d\": %d",
                i == 0 ? "" : ",", word, i, number < 0 ? i : number);
    }
    snprintf(text + used, sizeof(text) - used, "}");
    write_text("vocab.json", text);
}

static void refuses_what_is_no_tokenizer(void **state)
{
    (void)state;
    refused(CADRE_ERR_NOT_FOUND, "data.tokenizer has to name a folder");
    write_text("vocab.json", "[1]");
    refused(CADRE_ERR_CORRUPT, "is no JSON object");
    write_text("vocab.json", "{\"a\": 0, \"a\": 1}");
    refused(CADRE_ERR_CORRUPT, "is no JSON object");
    write_text("vocab.json", "{\"a\": 0}");
    refused(CADRE_ERR_CORRUPT, "fewer than 256");
    write_many("a", 7);
    refused(CADRE_ERR_CORRUPT, "does not number its tokens");
    write_many("a", 300);
    refused(CADRE_ERR_CORRUPT, "does not number its tokens");
    write_many("a ", -1);
    refused(CADRE_ERR_CORRUPT, "stands for no byte");
    write_many("\xe6\xbc\xa2", -1);
    refused(CADRE_ERR_CORRUPT, "stands for no byte");
    write_many("a", -1);
    refused(CADRE_ERR_CORRUPT, "lacks tokens for single bytes");
}

static void refuses_merges_of_nothing(void **state)
{
    (void)state;
    copy_vocabulary();
    refused(CADRE_ERR_NOT_FOUND, "merges.txt");
    write_text("merges.txt", "#version: 0.2\nt h\n\nz q\n");
    refused(CADRE_ERR_CORRUPT, "merges.txt', merge 2: it is not two tokens");
    write_text("merges.txt", "th\n");
    refused(CADRE_ERR_CORRUPT, "merge 1");
    write_text("merges.txt", " th\n");
    refused(CADRE_ERR_CORRUPT, "merge 1");
    write_text("merges.txt", "t h\r\n");
    cadre_tokenizer *t = NULL;
    CHECK_OK(cadre_tokenizer_open(folder, &t));
    cadre_tokenizer_close(t);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    cadre_status status = CADRE_ERR_NO_MEMORY;
    int failures = 0;
    for (; status != CADRE_OK; failures++) {
        cadre_tokenizer *t = NULL;
        int32_t *tokens = NULL;
        size_t n;
        cadre_alloc_fail_after(failures);
        status = cadre_tokenizer_open(CADRE_TEST_TOKENIZER, &t);
        if (status == CADRE_OK) {
            status = cadre_tokenizer_encode(
                t, (const uint8_t *)"some words", 10, &tokens, &n);
        }
        cadre_alloc_fail_after(-1);
        cadre_free(status == CADRE_OK ? tokens : NULL);
        cadre_tokenizer_close(t);
        assert_true(status == CADRE_OK || status == CADRE_ERR_NO_MEMORY);
        assert_in_range(failures, 0, 100);
    }
    assert_true(failures > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_those_of_the_reference),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(words_end_where_they_should),
        cmocka_unit_test(long_words_take_no_longer),
        cmocka_unit_test(refuses_what_is_no_tokenizer),
        cmocka_unit_test(refuses_merges_of_nothing),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
