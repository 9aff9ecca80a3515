// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/number.h"
#include "base/random.h"
#include "base/thread.h"
#include "base/unnamed_file.h"
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void a_failure_keeps_its_sentence(void **state)
{
    (void)state;
    assert_int_equal(cadre_fail(CADRE_ERR_IO, "file %d", 7), CADRE_ERR_IO);
    assert_string_equal(cadre_error_text(), "file 7");
    // Words in front of the present text.
    (void)cadre_fail(CADRE_ERR_IO, "step 3: %s", cadre_error_text());
    assert_string_equal(cadre_error_text(), "step 3: file 7");
    (void)cadre_fail_errno(CADRE_ERR_IO, ENOENT, "cannot read 'x'");
    assert_string_equal(
        cadre_error_text(), "cannot read 'x': No such file or directory");
    (void)cadre_fail(CADRE_ERR_IO, "no '%s'", "a\n\033[2J\x7f\u00e9");
    assert_string_equal(cadre_error_text(), "no 'a??[2J?\u00e9'");

    char long_text[3000];
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    (void)cadre_fail_errno(CADRE_ERR_IO, ENOENT, "%s", long_text);
    assert_int_equal(strlen(cadre_error_text()), CADRE_FAIL_TEXT_BYTES - 1);
    assert_string_equal(
        cadre_status_name(CADRE_ERR_DESYNC), "CADRE_ERR_DESYNC");
}

static void memory_is_zeroed_aligned_and_checked(void **state)
{
    (void)state;
    unsigned char *p = cadre_alloc(1000);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % CADRE_CACHE_LINE, 0);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(p[i], 0);
    }
    cadre_free(p);
    void *nothing = cadre_alloc(0);
    assert_non_null(nothing);
    cadre_free(nothing);
    assert_null(cadre_alloc_array(SIZE_MAX / 2, 3));
    assert_null(cadre_alloc(SIZE_MAX));
    assert_non_null(strstr(cadre_error_text(), "out of memory"));

    cadre_alloc_fail_after(1);
    void *first = cadre_alloc(8);
    void *second = cadre_alloc(8);
    void *third = cadre_alloc(8);
    cadre_alloc_fail_after(-1);
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    cadre_free(first);
    cadre_free(third);
}

static void hashes_are_sixteen_digits(void **state)
{
    (void)state;
    uint64_t h = 0;
    assert_true(cadre_parse_hash("fedcba9876543210", &h));
    assert_true(h == 0xfedcba9876543210u);
    static const char *const bad[] = {"", "0", "fedcba987654321",
        "fedcba98765432100", "FEDCBA9876543210", "+edcba9876543210",
        "0xdcba9876543210", "fedcba987654321 "};
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        assert_false(cadre_parse_hash(bad[k], &h));
    }
}

static void numbers_are_all_or_nothing(void **state)
{
    (void)state;
    int64_t i = 42;
    assert_true(cadre_parse_int("-7", -10, 10, &i));
    assert_int_equal(i, -7);
    const char *const bad[] = {
        "", "-", "+", " 1", "1 ", "1x", "0x1", "11", "99999999999999999999"};
    for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
        assert_false(cadre_parse_int(bad[k], -10, 10, &i));
    }
    assert_int_equal(i, -7);
}

static void doubles_read_back_to_the_same_bits(void **state)
{
    (void)state;
    const double values[] = {0.1, 1.0 / 3, 1e300, 5e-324, -2.5, 123456789.0};
    for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
        char text[CADRE_NUMBER_BYTES];
        cadre_format_double(values[k], text);
        char *end;
        assert_true(strtod(text, &end) == values[k]);
        assert_string_equal(end, "");
    }
    char text[CADRE_NUMBER_BYTES];
    cadre_format_double(0.1, text);
    assert_string_equal(text, "0.1");
}

// The vectors of the paper's reference code (kat_vectors, philox4x32 10).
static void philox_has_the_published_values(void **state)
{
    (void)state;
    uint32_t w[4];
    // Counter (0, 0, 0, stream), key 0 differs from the published counter only
    // by the stream, so the vectors are those of stream 0.
    cadre_random_words(0, (cadre_stream)0, 0, 0, w);
    assert_int_equal(w[0], 0x6627e8d5u);
    assert_int_equal(w[1], 0xe169c58du);
    assert_int_equal(w[2], 0xbc57ac4cu);
    assert_int_equal(w[3], 0x9b00dbd8u);
    cadre_random_words(
        UINT64_MAX, (cadre_stream)0xffffffffu, 0xffffffffu, UINT64_MAX, w);
    assert_int_equal(w[0], 0x408f276du);
    assert_int_equal(w[1], 0x41c83b0eu);
    assert_int_equal(w[2], 0xa20bc7c6u);
    assert_int_equal(w[3], 0x6d5451fdu);
}

static void xxh64_has_the_published_values(void **state)
{
    (void)state;
    assert_true(cadre_hash("", 0, 0) == 0xef46db3751d8e999u);
    assert_true(cadre_hash("abc", 3, 0) == 0x44bc2cf5ad770999u);
}

static void readers_and_writers_stop_at_the_end(void **state)
{
    (void)state;
    uint8_t data[12];
    cadre_writer w = {.data = data, .capacity = sizeof(data), .ok = true};
    cadre_write_u32(&w, 0x01020304u);
    cadre_write_u64(&w, 0x1122334455667788u);
    assert_true(w.ok);
    assert_int_equal(data[0], 4);
    cadre_write_u32(&w, 1);
    assert_false(w.ok);

    cadre_reader r = {.data = data, .nbytes = sizeof(data), .ok = true};
    assert_int_equal(cadre_read_u32(&r), 0x01020304u);
    assert_true(cadre_read_u64(&r) == 0x1122334455667788u);
    assert_true(r.ok);
    assert_int_equal(cadre_read_u32(&r), 0);
    assert_false(r.ok);
}

static void a_new_file_appears_whole_or_not_at_all(void **state)
{
    (void)state;
    char folder[] = "cadre-file-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char path[64];
    char deep[64];
    snprintf(path, sizeof(path), "%s/out", folder);
    snprintf(deep, sizeof(deep), "%s/a/b/c", folder);

    cadre_new_file f;
    CHECK_OK(cadre_new_file_open(path, &f));
    fputs("half", f.stream);
    cadre_new_file_discard(&f);
    assert_int_equal(access(path, F_OK), -1);
    CHECK_OK(cadre_new_file_open(path, &f));
    fputs("whole", f.stream);
    assert_int_equal(access(path, F_OK), -1);
    CHECK_OK(cadre_new_file_commit(&f));
    assert_int_equal(access(path, F_OK), 0);

    CHECK_OK(cadre_make_folders(deep));
    CHECK_OK(cadre_make_folders(deep));
    char below_file[80];
    snprintf(below_file, sizeof(below_file), "%s/x", path);
    assert_int_equal(cadre_make_folders(below_file), CADRE_ERR_IO);
    assert_int_equal(cadre_make_folders(path), CADRE_ERR_IO);

    char command[96];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void an_unnamed_file_is_in_no_folder(void **state)
{
    (void)state;
    char folder[] = "/tmp/cadre-base-XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("TMPDIR", folder, 1), 0);
    int fd = -1;
    CHECK_OK(cadre_unnamed_file_open(5000, &fd));
    struct stat about;
    assert_int_equal(fstat(fd, &about), 0);
    assert_int_equal(about.st_size, 5000);
    assert_int_equal(about.st_nlink, 0);
    assert_int_equal(about.st_mode & 0777, 0600);
    assert_true((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    char byte = 7;
    assert_int_equal(pwrite(fd, &byte, 1, 4999), 1);
    assert_int_equal(pread(fd, &byte, 1, 0), 1);
    assert_int_equal(byte, 0);
    close(fd);

    CHECK_FAILS(cadre_unnamed_file_open(INT64_MAX, &fd), CADRE_ERR_IO,
        "no file of 9223372036854775807 bytes can be made in '/tmp/cadre-base");
    assert_int_equal(rmdir(folder), 0);
    CHECK_FAILS(cadre_unnamed_file_open(1, &fd), CADRE_ERR_IO, folder);
    assert_non_null(strstr(cadre_error_text(), "set TMPDIR"));
    assert_int_equal(setenv("TMPDIR", "", 1), 0);
    CHECK_OK(cadre_unnamed_file_open(1, &fd));
    close(fd);
    assert_int_equal(unsetenv("TMPDIR"), 0);
}

static void an_unnamed_file_keeps_to_the_limit(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit low = {.rlim_cur = 100, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    int fd = -1;
    CHECK_FAILS(cadre_unnamed_file_open(101, &fd), CADRE_ERR_IO, "ulimit -f");
    CHECK_OK(cadre_unnamed_file_open(100, &fd));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    close(fd);
}

static void rounding_mode(void *ctx)
{
    // Volatile: computed at run time.
    volatile float tiny = 1e-38f;
    volatile float half = tiny * 0.25f;
    *(int *)ctx = fegetround() == FE_TONEAREST && half != 0.0f;
}

static void threads_have_plain_floats(void **state)
{
    (void)state;
    int plain = 0;
    cadre_thread thread = {0};
    fesetround(FE_UPWARD);
    cadre_status status =
        cadre_thread_start(&thread, "cadre/test", rounding_mode, &plain);
    fesetround(FE_TONEAREST);
    CHECK_OK(status);
    cadre_thread_join(&thread);
    assert_true(plain);
    cadre_thread_join(&thread); // again: nothing
}

static void deadlines_round_up_and_saturate(void **state)
{
    (void)state;
    assert_true(cadre_deadline_in_ms(-1) == CADRE_NO_DEADLINE);
    assert_true(cadre_deadline_in_ms(INT64_MAX) == CADRE_NO_DEADLINE);
    assert_int_equal(cadre_deadline_left_ms(CADRE_NO_DEADLINE, 50), 50);
    assert_int_equal(cadre_deadline_left_ms(cadre_now_ns() - 1, 50), 0);
    assert_in_range(cadre_deadline_left_ms(cadre_now_ns() + 1000, 50), 0, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashes_are_sixteen_digits),
        cmocka_unit_test(a_failure_keeps_its_sentence),
        cmocka_unit_test(memory_is_zeroed_aligned_and_checked),
        cmocka_unit_test(numbers_are_all_or_nothing),
        cmocka_unit_test(doubles_read_back_to_the_same_bits),
        cmocka_unit_test(philox_has_the_published_values),
        cmocka_unit_test(xxh64_has_the_published_values),
        cmocka_unit_test(readers_and_writers_stop_at_the_end),
        cmocka_unit_test(a_new_file_appears_whole_or_not_at_all),
        cmocka_unit_test(an_unnamed_file_is_in_no_folder),
        cmocka_unit_test(an_unnamed_file_keeps_to_the_limit),
        cmocka_unit_test(threads_have_plain_floats),
        cmocka_unit_test(deadlines_round_up_and_saturate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
