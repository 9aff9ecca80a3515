// SPDX-License-Identifier: Apache-2.0
//
// Text as samples, and what is refused; and the output of programs.

#include "data/text.h"

#include "base/alloc.h"
#include "data/masked.h"
#include "data/program.h"
#include "support/check.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_BYTES = 1000, N_TRAIN = 950, CONTEXT = 7 };

static char path[] = "/tmp/cadre-text-XXXXXX";

static uint8_t byte_at(int64_t place)
{
    return (uint8_t)(place * 37 % 251);
}

static void write_text(size_t nbytes)
{
    FILE *stream = fopen(path, "wb");
    assert_non_null(stream);
    for (size_t i = 0; i < nbytes; i++) {
        fputc(byte_at((int64_t)i), stream);
    }
    assert_int_equal(fclose(stream), 0);
}

static int make_file(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

static cadre_status open_text(
    const char *where, cadre_split split, int64_t context, cadre_dataset **out)
{
    const cadre_dataset_options options = {
        .path = where, .split = split, .context = context};
    return cadre_dataset_open("text", &options, out);
}

static cadre_dataset *open_split(cadre_split split)
{
    cadre_dataset *dataset = NULL;
    CHECK_OK(open_text(path, split, CONTEXT, &dataset));
    return dataset;
}

// Every byte of a split is predicted once, but for a rest.
static void check_samples(cadre_split split, int64_t first, int64_t nbytes)
{
    cadre_dataset *dataset = open_split(split);
    assert_int_equal(dataset->n_samples, (nbytes - 1) / CONTEXT);
    assert_int_equal(dataset->sample_elements, CONTEXT);
    assert_int_equal(dataset->tokens, CONTEXT);
    assert_int_equal(cadre_dataset_labels(dataset), CONTEXT);
    assert_int_equal(dataset->n_classes, 256);
    for (int64_t i = 0; i < dataset->n_samples; i++) {
        float x[CONTEXT];
        int32_t labels[CONTEXT];
        const cadre_place sample = {.sample = i};
        CHECK_OK(cadre_dataset_read(dataset, sample, x, labels));
        for (int64_t t = 0; t < CONTEXT; t++) {
            int64_t place = first + i * CONTEXT + t;
            assert_true(x[t] == (float)byte_at(place));
            assert_int_equal(labels[t], byte_at(place + 1));
        }
    }
    cadre_dataset_close(dataset);
}

static void samples_follow_one_another(void **state)
{
    (void)state;
    write_text(N_BYTES);
    check_samples(CADRE_SPLIT_TRAIN, 0, N_TRAIN);
    check_samples(CADRE_SPLIT_TEST, N_TRAIN, N_BYTES - N_TRAIN);
}

static void the_hash_is_of_the_split(void **state)
{
    (void)state;
    write_text(N_BYTES);
    cadre_dataset *train = open_split(CADRE_SPLIT_TRAIN);
    cadre_dataset *test = open_split(CADRE_SPLIT_TEST);
    cadre_dataset *again = open_split(CADRE_SPLIT_TEST);
    assert_true(train->content_hash != test->content_hash);
    assert_true(again->content_hash == test->content_hash);
    cadre_dataset_close(train);
    cadre_dataset_close(test);
    cadre_dataset_close(again);
}

static void refused(
    const char *where, int64_t context, cadre_status status, const char *words)
{
    cadre_dataset *dataset = NULL;
    CHECK_FAILS(
        open_text(where, CADRE_SPLIT_TEST, context, &dataset), status, words);
    assert_null(dataset);
}

static void refuses_what_is_no_text(void **state)
{
    (void)state;
    write_text(0);
    refused(path, CONTEXT, CADRE_ERR_INVALID_ARG, "has 0 bytes");
    write_text(N_BYTES);
    refused(path, 50, CADRE_ERR_INVALID_ARG,
        "the test part of the text has 50 bytes, too few");
    refused(path, 0, CADRE_ERR_INVALID_ARG, "too few");
    refused("/nonexistent/text", CONTEXT, CADRE_ERR_NOT_FOUND,
        "data.path has to name a file of text");
    refused("/tmp", CONTEXT, CADRE_ERR_IO, "/tmp");
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    write_text(N_BYTES);
    cadre_dataset *dataset = NULL;
    cadre_status status = CADRE_ERR_NO_MEMORY;
    int failures = 0;
    for (; status != CADRE_OK; failures++) {
        cadre_alloc_fail_after(failures);
        status = open_text(path, CADRE_SPLIT_TRAIN, CONTEXT, &dataset);
        cadre_alloc_fail_after(-1);
        assert_true(status == CADRE_OK || status == CADRE_ERR_NO_MEMORY);
        assert_in_range(failures, 0, 10);
    }
    assert_true(failures > 2);
    cadre_dataset_close(dataset);
}

static cadre_status run_shell(
    const char *words, size_t most, int timeout_ms, uint8_t **data, size_t *n)
{
    const char *const argv[] = {"/bin/sh", "-c", words, NULL};
    return cadre_program_output(argv, most, timeout_ms, data, n);
}

static void a_program_s_output_is_read(void **state)
{
    (void)state;
    uint8_t *data = NULL;
    size_t nbytes = 0;
    CHECK_OK(run_shell(
        "printf abc; printf no >&2; printf de", 100, 60000, &data, &nbytes));
    assert_int_equal(nbytes, 5);
    assert_memory_equal(data, "abcde", 5);
    cadre_free(data);

    // More than a pipe holds, and more than the first room for it.
    CHECK_OK(
        run_shell("head -c 300000 /dev/zero", 300001, 60000, &data, &nbytes));
    assert_int_equal(nbytes, 300000);
    cadre_free(data);
}

static void a_program_that_fails_is_named(void **state)
{
    (void)state;
    uint8_t *data = NULL;
    size_t nbytes = 0;
    CHECK_FAILS(run_shell("printf abc; exit 3", 100, 60000, &data, &nbytes),
        CADRE_ERR_CORRUPT, "'/bin/sh' failed");
    CHECK_FAILS(run_shell("kill -9 $$", 100, 60000, &data, &nbytes),
        CADRE_ERR_CORRUPT, "'/bin/sh' failed");
    CHECK_FAILS(run_shell("head -c 101 /dev/zero", 100, 60000, &data, &nbytes),
        CADRE_ERR_CORRUPT, "more than 100 bytes");
    CHECK_FAILS(run_shell("exec sleep 600", 100, 20, &data, &nbytes),
        CADRE_ERR_TIMEOUT, "not ended in time");
    const char *const missing[] = {"/nonexistent/program", NULL};
    CHECK_FAILS(cadre_program_output(missing, 100, 60000, &data, &nbytes),
        CADRE_ERR_NOT_FOUND, "cannot run '/nonexistent/program'");
    assert_null(data);
}

static cadre_dataset *open_masked(cadre_split split, uint64_t seed)
{
    const cadre_dataset_options options = {
        .path = path, .split = split, .context = CONTEXT, .seed = seed};
    cadre_dataset *dataset = NULL;
    CHECK_OK(cadre_dataset_open("masked_text", &options, &dataset));
    return dataset;
}

// Whether two data sets have the same gaps in their n-th samples.
static bool alike(const cadre_dataset *a, cadre_place at_a,
    const cadre_dataset *b, cadre_place at_b)
{
    float x[2][CONTEXT];
    int32_t labels[2][CONTEXT];
    CHECK_OK(cadre_dataset_read(a, at_a, x[0], labels[0]));
    CHECK_OK(cadre_dataset_read(b, at_b, x[1], labels[1]));
    return memcmp(x[0], x[1], sizeof(x[0])) == 0 &&
           memcmp(labels[0], labels[1], sizeof(labels[0])) == 0;
}

static void gaps_follow_from_seed_and_place(void **state)
{
    (void)state;
    write_text(N_BYTES);
    cadre_dataset *d = open_masked(CADRE_SPLIT_TRAIN, 1);
    cadre_dataset *other = open_masked(CADRE_SPLIT_TRAIN, 2);
    assert_int_equal(d->n_classes, 257);
    assert_int_equal(cadre_dataset_labels(d), CONTEXT);
    assert_int_equal(cadre_dataset_weight(d), 1); // 15 of 100 of 7 tokens
    int n_other_epoch = 0;
    int n_other_seed = 0;
    for (int64_t i = 0; i < d->n_samples; i++) {
        const cadre_place place = {.epoch = 3, .sample = i};
        const cadre_place later = {.epoch = 4, .sample = i};
        assert_true(alike(d, place, d, place));
        n_other_epoch += !alike(d, place, d, later);
        n_other_seed += !alike(d, place, other, place);
    }
    assert_true(n_other_epoch > d->n_samples / 2);
    assert_true(n_other_seed > d->n_samples / 2);
    cadre_dataset_close(d);
    cadre_dataset_close(other);

    // A test is the same for all.
    d = open_masked(CADRE_SPLIT_TEST, 1);
    other = open_masked(CADRE_SPLIT_TEST, 2);
    for (int64_t i = 0; i < d->n_samples; i++) {
        const cadre_place place = {.sample = i};
        assert_true(alike(d, place, other, place));
    }
    cadre_dataset_close(d);
    cadre_dataset_close(other);
}

// Of 100 tokens 15, in any place; most are masked, some are others, some stay.
static void gaps_are_as_many_as_said(void **state)
{
    (void)state;
    enum { TOKENS = 100, SAMPLES = 400, GAPS = 15, NUMBERS = 50 };
    int at[TOKENS] = {0};
    int n_masked = 0;
    int n_other = 0;
    for (int64_t i = 0; i < SAMPLES; i++) {
        float x[TOKENS];
        int32_t labels[TOKENS];
        for (int t = 0; t < TOKENS; t++) {
            x[t] = (float)(t % NUMBERS);
        }
        const cadre_place place = {.sample = i};
        cadre_mask(7, place, NUMBERS, TOKENS, x, labels);
        int n_gaps = 0;
        for (int t = 0; t < TOKENS; t++) {
            bool same = x[t] == (float)(t % NUMBERS);
            if (labels[t] == CADRE_DATA_NO_LABEL) {
                assert_true(same);
                continue;
            }
            assert_int_equal(labels[t], t % NUMBERS);
            assert_true(x[t] >= 0 && x[t] <= (float)NUMBERS);
            n_masked += x[t] == (float)NUMBERS;
            n_other += !same && x[t] < (float)NUMBERS;
            n_gaps++;
            at[t]++;
        }
        assert_int_equal(n_gaps, GAPS);
    }
    // Five deviations of what is drawn: 6000 times, and 400 times for each place.
    assert_in_range(n_masked, 4800 - 155, 4800 + 155);
    assert_in_range(n_other, 588 - 115, 588 + 115);
    for (int t = 0; t < TOKENS; t++) {
        assert_in_range(at[t], 60 - 36, 60 + 36);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_follow_from_seed_and_place),
        cmocka_unit_test(gaps_are_as_many_as_said),
        cmocka_unit_test(samples_follow_one_another),
        cmocka_unit_test(the_hash_is_of_the_split),
        cmocka_unit_test(refuses_what_is_no_text),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_program_s_output_is_read),
        cmocka_unit_test(a_program_that_fails_is_named),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
