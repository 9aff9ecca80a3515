// SPDX-License-Identifier: Apache-2.0

#include "support/check.h"

#include "cadre/log.h"
#include "launch/output.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

// A stream from a pipe to an outlet that is another pipe.
typedef struct line {
    cadre_outlet outlet;
    cadre_tail tail;
    cadre_stream stream;
    int in;  // written by the test
    int out; // read by the test
} line;

static line x; // too large for a stack

static void lay(void)
{
    int ends[2];
    memset(&x, 0, sizeof(x));
    CHECK_OK(cadre_output_pipe(&x.stream.fd, &x.in));
    assert_int_equal(pipe(ends), 0);
    x.out = ends[0];
    assert_int_equal(fcntl(x.out, F_SETFL, O_NONBLOCK), 0);
    cadre_outlet_init(&x.outlet, ends[1]);
    x.stream.outlet = &x.outlet;
    x.stream.tail = &x.tail;
}

static void clear(void)
{
    cadre_stream_end(&x.stream);
    if (x.in >= 0) {
        close(x.in);
    }
    if (x.out >= 0) {
        close(x.out);
    }
    close(x.outlet.fd);
}

static void say(const char *text)
{
    assert_int_equal(write(x.in, text, strlen(text)), (ssize_t)strlen(text));
    while (cadre_stream_pump(&x.stream)) {
        cadre_outlet_flush(&x.outlet);
    }
}

static void expect_heard(const char *text)
{
    char heard[4096];
    ssize_t n = read(x.out, heard, sizeof(heard) - 1);
    heard[n < 0 ? 0 : n] = '\0';
    assert_string_equal(heard, text);
}

static void hang_up(void)
{
    close(x.in);
    x.in = -1;
    while (!cadre_stream_is_over(&x.stream)) {
        (void)cadre_stream_pump(&x.stream);
        cadre_outlet_flush(&x.outlet);
    }
}

static void passes_whole_lines_on(void **state)
{
    (void)state;
    lay();
    snprintf(x.stream.tag, sizeof(x.stream.tag), "[a:1] ");
    say("one\ntw");
    expect_heard("[a:1] one\n");
    say("o\n\nthree");
    expect_heard("[a:1] two\n[a:1] \n");
    hang_up();
    expect_heard("[a:1] three\n"); // its end is added
    clear();
}

static void passes_raw_bytes_on_at_once(void **state)
{
    (void)state;
    lay();
    x.stream.raw = true;
    say("50 %\r");
    expect_heard("50 %\r");
    say("51");
    expect_heard("51");
    hang_up();
    expect_heard("");
    clear();
}

static void cuts_lines_that_are_too_long(void **state)
{
    (void)state;
    static char text[CADRE_LINE_BYTES + 10];
    lay();
    memset(text, 'x', sizeof(text) - 1);
    say(text);
    hang_up();
    static char heard[2 * CADRE_LINE_BYTES];
    ssize_t n = read(x.out, heard, sizeof(heard));
    assert_int_equal(n, CADRE_LINE_BYTES + 9 + 2);
    assert_int_equal(heard[CADRE_LINE_BYTES], '\n');
    assert_int_equal(heard[n - 1], '\n');
    clear();
}

// A pager that waits for a key stops the rank's output, not the launcher.
static void waits_for_a_slow_reader(void **state)
{
    (void)state;
    lay();
    assert_int_equal(fcntl(x.in, F_SETFL, O_NONBLOCK), 0);
    size_t written = 0;
    char text[1000];
    memset(text, 'y', sizeof(text));
    text[999] = '\n';
    for (int i = 0; i < 2000; i++) {
        ssize_t n = write(x.in, text + written % 1000, 1000 - written % 1000);
        written += n > 0 ? (size_t)n : 0;
        (void)cadre_stream_pump(&x.stream);
        cadre_outlet_flush(&x.outlet);
    }
    assert_false(cadre_stream_wants_bytes(&x.stream));
    close(x.in);
    x.in = -1;
    size_t heard = 0;
    while (
        !cadre_stream_is_over(&x.stream) || x.outlet.used > 0 || heard == 0) {
        char some[8192];
        ssize_t n = read(x.out, some, sizeof(some));
        heard += n > 0 ? (size_t)n : 0;
        (void)cadre_stream_pump(&x.stream);
        cadre_outlet_flush(&x.outlet);
    }
    char rest[65536];
    ssize_t n;
    while ((n = read(x.out, rest, sizeof(rest))) > 0) {
        heard += (size_t)n;
    }
    // All of it, and an end for the last line if it had none.
    assert_int_equal(heard, written + (written % 1000 != 0));
    clear();
}

static void goes_on_when_nobody_reads(void **state)
{
    (void)state;
    lay();
    close(x.out);
    x.out = -1;
    for (int i = 0; i < 1000; i++) {
        say("hello\n");
    }
    hang_up();
    assert_int_equal(x.outlet.error, EPIPE);
    char text[100];
    cadre_tail_lines(&x.tail, 2, text, sizeof(text));
    assert_string_equal(text, "hello\nhello\n");
    clear();
}

static void keeps_a_log(void **state)
{
    (void)state;
    char folder[] = "/tmp/cadre-output-XXXXXX";
    char path[64];
    char text[64];
    assert_non_null(mkdtemp(folder));
    lay();
    cadre_log_file log;
    CHECK_OK(cadre_log_file_open(folder, 12, &log));
    x.stream.log = &log;
    snprintf(x.stream.tag, sizeof(x.stream.tag), "[a:1] ");
    say("one\ntwo");
    hang_up();
    cadre_log_file_close(&log);
    snprintf(path, sizeof(path), "%s/rank-12.log", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, "one\ntwo\n");
    unlink(path);
    rmdir(folder);
    CHECK_FAILS(cadre_log_file_open(folder, 0, &log), CADRE_ERR_IO, folder);
    clear();
}

static int n_warnings;
static char warning[256];

static void keep_warning(
    cadre_log_level level, const char *component, const char *text, void *ctx)
{
    (void)component;
    (void)ctx;
    assert_int_equal(level, CADRE_LOG_WARN);
    n_warnings++;
    snprintf(warning, sizeof(warning), "%s", text);
}

// A write is cut short, as on a disk that is full.
static void says_once_that_a_log_is_cut(void **state)
{
    (void)state;
    char folder[] = "/tmp/cadre-output-XXXXXX";
    char path[64];
    char text[64];
    struct rlimit before;
    cadre_log_file log;
    assert_non_null(mkdtemp(folder));
    lay();
    CHECK_OK(cadre_log_file_open(folder, 1, &log));
    x.stream.log = &log;
    n_warnings = 0;
    cadre_log_set_sink(CADRE_LOG_WARN, keep_warning, NULL);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){.rlim_cur = 5,
                                                 .rlim_max = before.rlim_max}),
        0);
    say("one\n");
    int n_early = n_warnings;
    say("two\n"); // only its first byte fits
    int n_cut = n_warnings;
    say("three\n");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    say("four\n"); // there would be room again, but not for what is missing
    cadre_log_set_sink(CADRE_LOG_OFF, NULL, NULL);
    assert_int_equal(n_early, 0);
    assert_int_equal(n_cut, 1);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, "/rank-1.log' is written no more: File"));
    expect_heard("one\ntwo\nthree\nfour\n");

    cadre_log_file_close(&log);
    snprintf(path, sizeof(path), "%s/rank-1.log", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    assert_string_equal(text, "one\nt");
    unlink(path);
    rmdir(folder);
    clear();
}

static void remember(cadre_tail *tail, const char *text)
{
    for (; *text != '\0'; text++) {
        tail->bytes[tail->written++ % sizeof(tail->bytes)] = *text;
    }
}

static void shows_the_last_lines(void **state)
{
    (void)state;
    static const struct {
        const char *said;
        int n;
        const char *shown;
    } cases[] = {
        {"", 3, ""},
        {"a", 3, "a\n"},
        {"a\nb\nc\n", 2, "b\nc\n"},
        {"a\nb\nc", 2, "b\nc\n"},
        {"a\nb\nc\n", 3, "a\nb\nc\n"},
        {"a\n\n\n", 2, "\n\n"},
        {"10 %\r20 %\r30 %\nend\n", 2, "30 %\nend\n"},
        {"10 %\r20 %\r", 1, "20 %\n"},
        {"dos\r\n", 1, "dos\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cadre_tail tail = {.written = 0};
        char shown[64];
        remember(&tail, cases[i].said);
        cadre_tail_lines(&tail, cases[i].n, shown, sizeof(shown));
        assert_string_equal(shown, cases[i].shown);
    }
}

static void shows_whole_lines_after_much_output(void **state)
{
    (void)state;
    static cadre_tail tail;
    char shown[CADRE_TAIL_BYTES];
    memset(&tail, 0, sizeof(tail));
    for (int i = 0; i < 5000; i++) {
        char text[32];
        snprintf(text, sizeof(text), "line %d\n", i);
        remember(&tail, text);
    }
    cadre_tail_lines(&tail, 20, shown, sizeof(shown));
    assert_int_equal(strncmp(shown, "line 4980\nline 4981\n", 20), 0);
    assert_int_equal(strlen(shown), 20 * 10);

    char small[25]; // what does not fit is left out, line by line
    cadre_tail_lines(&tail, 20, small, sizeof(small));
    assert_string_equal(small, "line 4980\nline 4981\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_whole_lines_on),
        cmocka_unit_test(passes_raw_bytes_on_at_once),
        cmocka_unit_test(cuts_lines_that_are_too_long),
        cmocka_unit_test(waits_for_a_slow_reader),
        cmocka_unit_test(goes_on_when_nobody_reads),
        cmocka_unit_test(keeps_a_log),
        cmocka_unit_test(says_once_that_a_log_is_cut),
        cmocka_unit_test(shows_the_last_lines),
        cmocka_unit_test(shows_whole_lines_after_much_output),
    };
    // A broken outlet must not end the test, nor a file's limit.
    return signal(SIGPIPE, SIG_IGN) == SIG_ERR ||
                   signal(SIGXFSZ, SIG_IGN) == SIG_ERR
               ? 1
               : cmocka_run_group_tests(tests, NULL, NULL);
}
