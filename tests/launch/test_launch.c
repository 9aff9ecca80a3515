// SPDX-License-Identifier: Apache-2.0
//
// Jobs that end well, and jobs in which something goes wrong: the others end
// soon, all name the one rank that failed, and nothing is left behind.

#include "job.h"

#include "base/clock.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N = 4, FAILED = 3 };

static const char *const some_steps[] = {NULL};
static const char *const for_ever[] = {"steps=-1", NULL};

static void expect_success(const job *j)
{
    if (j->status != CADRE_OK) {
        fail_msg("%s", j->text);
    }
    if (j->result.text[0] != '\0') {
        fail_msg("%s\n%s", j->result.text, j->result.last_lines);
    }
    assert_int_equal(j->result.exit_status, 0);
    assert_int_equal(j->result.rank, -1);
}

static void expect_failure(const job *j, int rank, int status, const char *how)
{
    char name[16];
    snprintf(name, sizeof(name), "rank %d ", rank);
    assert_int_equal(j->status, CADRE_OK);
    assert_int_equal(j->result.rank, rank);
    assert_int_equal(j->result.exit_status, status);
    if (strstr(j->result.text, name) == NULL ||
        strstr(j->result.text, how) == NULL) {
        fail_msg(
            "'%s' and '%s' are not both in '%s'", name, how, j->result.text);
    }
}

// Every rank but one says the same sentence, the launcher's.
static void expect_told(const job *j, int n_told)
{
    char said[1200];
    snprintf(said, sizeof(said), "says: %s", j->result.text);
    if (count_lines(j->errors, said) != n_told) {
        fail_msg("not %d times '%s' in:\n%s", n_told, said, j->errors);
    }
}

static void runs_ranks_to_their_end(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n += 2) {
        job j;
        char line[64];
        job_init(&j, n, some_steps);
        job_run(&j);
        expect_success(&j);
        for (int r = 0; r < n; r++) {
            snprintf(line, sizeof(line), "rank %d of %d is done", r, n);
            assert_int_equal(count_lines(j.output, line), 1);
        }
        assert_string_equal(j.errors, "");
    }
}

static void sets_the_variables_of_each_rank(void **state)
{
    (void)state;
    const char *script =
        "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE "
        "$CADRE_RANK/$CADRE_WORLD_SIZE $CADRE_LOCAL_RANK/"
        "$CADRE_LOCAL_WORLD_SIZE $MASTER_ADDR $OMP_NUM_THREADS $KEPT; "
        "test $MASTER_PORT -gt 0 && test -e /proc/self/fd/${CADRE_STORE#fd:}";
    job j;
    setenv("RANK", "77", 1); // of another launcher
    setenv("KEPT", "kept", 1);
    job_init(&j, 3, some_steps);
    j.words[0] = "sh";
    j.words[1] = "-c";
    j.words[2] = script;
    j.words[3] = NULL;
    j.options.threads = 5;
    job_run(&j);
    unsetenv("RANK");
    expect_success(&j);
    for (int r = 0; r < 3; r++) {
        char line[80];
        snprintf(line, sizeof(line), "%d/3 %d/3 %d/3 %d/3 127.0.0.1 5 kept", r,
            r, r, r);
        assert_int_equal(count_lines(j.output, line), 1);
    }
}

// The first cores of those that this process may use, as "0-3,8" lists them.
static int first_cores(int *cores, int most)
{
    char text[256] = "";
    FILE *file = popen(
        "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/$PPID/status",
        "r");
    assert_non_null(file);
    assert_non_null(fgets(text, sizeof(text), file));
    pclose(file);
    int n = 0;
    char *at = text;
    while (n < most && *at != '\0' && *at != '\n') {
        long first = strtol(at, &at, 10);
        long last = *at == '-' ? strtol(at + 1, &at, 10) : first;
        for (long core = first; core <= last && n < most; core++) {
            cores[n++] = (int)core;
        }
        at += *at == ',' ? 1 : 0;
    }
    return n;
}

// Numbers of the cores that a rank may use, in a line of its status.
static const char *const cores_of_rank =
    "echo rank $RANK: $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' "
    "/proc/$$/status)";

static void run_bound(job *j, int n_ranks, int threads, cadre_bind bind)
{
    job_init(j, n_ranks, some_steps);
    j->words[0] = "sh";
    j->words[1] = "-c";
    j->words[2] = cores_of_rank;
    j->words[3] = NULL;
    j->options.threads = threads;
    j->options.bind = bind;
    job_run(j);
    expect_success(j);
}

static void binds_ranks_to_cores_of_their_own(void **state)
{
    (void)state;
    int cores[2] = {0};
    int n = first_cores(cores, 2);
    if (n < 2) {
        skip();
    }
    job j;
    char line[64];
    // A third rank shares the first core, where there are no more than two.
    run_bound(&j, 2, 1, CADRE_BIND_CORE);
    for (int r = 0; r < 2; r++) {
        snprintf(line, sizeof(line), "rank %d: %d\n", r, cores[r]);
        assert_non_null(strstr(j.output, line));
    }
    snprintf(line, sizeof(line), "rank 0: %d\n", cores[0]);
    run_bound(&j, 2, 2, CADRE_BIND_CORE);
    assert_null(strstr(j.output, line)); // two threads, two cores
    run_bound(&j, 2, 1, CADRE_BIND_NONE);
    assert_null(strstr(j.output, line));
}

static void hands_all_ranks_one_secret(void **state)
{
    (void)state;
    job j;
    setenv("CADRE_SECRET_FD", "77", 1); // of another launcher
    job_init(&j, 3, some_steps);
    j.words[0] = "sh";
    j.words[1] = "-c";
    j.words[2] = "cksum < /proc/self/fd/$CADRE_SECRET_FD";
    j.words[3] = NULL;
    job_run(&j);
    unsetenv("CADRE_SECRET_FD");
    expect_success(&j);
    char *end = strchr(j.output, '\n');
    assert_non_null(end);
    char line[64] = "";
    memcpy(line, j.output,
        (size_t)(end - j.output) < sizeof(line) ? (size_t)(end - j.output) : 0);
    assert_string_equal(strchr(line, ' '), " 32"); // bytes
    assert_int_equal(count_lines(j.output, line), 3);
}

static void tags_lines_and_keeps_logs(void **state)
{
    (void)state;
    job j;
    char host[64] = "";
    char logs[128];
    assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
    job_init(&j, 2, some_steps);
    snprintf(logs, sizeof(logs), "%s/a/b", j.folder);
    // Rank 0 shows the log of rank 1 at its end: then its lines come twice.
    char script[512];
    snprintf(script, sizeof(script),
        "printf 'one\\nhalf of'; sleep 0.01; printf ' two'; echo oops >&2; "
        "echo; sleep 0.2; test $RANK = 1 || cat %s/rank-1.log",
        logs);
    j.words[0] = "sh";
    j.words[1] = "-c";
    j.words[2] = script;
    j.words[3] = NULL;
    j.options.tag = true;
    j.options.log_dir = logs;
    job_run(&j);
    expect_success(&j);
    for (int r = 0; r < 2; r++) {
        char line[128];
        snprintf(line, sizeof(line), "[%s:%d] one", host, r);
        assert_int_equal(count_lines(j.output, line), 2 - r);
        snprintf(line, sizeof(line), "[%s:%d] half of two", host, r);
        assert_int_equal(count_lines(j.output, line), 2 - r);
        snprintf(line, sizeof(line), "[%s:%d] oops", host, r);
        assert_int_equal(count_lines(j.errors, line), 1);
    }
    char line[128]; // from the log, in which there are no tags
    snprintf(line, sizeof(line), "[%s:0] oops", host);
    assert_int_equal(count_lines(j.output, line), 1);
}

static void names_a_rank_that_is_killed(void **state)
{
    (void)state;
    for (int victim = 0; victim < N; victim += 3) {
        job j;
        job_init(&j, N, for_ever);
        job_start(&j);
        pid_t pid = job_pid(&j, victim);
        for (int r = 0; r < N; r++) {
            (void)job_pid(&j, r);
        }
        int64_t began = cadre_now_ns();
        assert_int_equal(kill(pid, SIGKILL), 0);
        job_wait(&j);
        expect_failure(&j, victim, 128 + SIGKILL, "died: killed by SIGKILL");
        expect_told(&j, N - 1);
        assert_true((j.ended_ns - began) / 1000000 < JOB_LAUNCHER_MS);
    }
}

static void names_a_rank_that_is_stopped(void **state)
{
    (void)state;
    static const char *const arguments[] = {
        "steps=-1", "timeout=2000", "pause=1", NULL};
    job j;
    job_init(&j, N, arguments);
    job_start(&j);
    for (int r = 0; r < N; r++) {
        (void)job_pid(&j, r);
    }
    assert_int_equal(kill(job_pid(&j, 1), SIGSTOP), 0);
    job_wait(&j);
    expect_failure(&j, 1, 128 + SIGKILL, "gave no sign of life for 2000 ms");
    expect_told(&j, N - 1);
}

static void takes_the_limit_of_the_launcher(void **state)
{
    (void)state;
    job j;
    job_init(&j, 2, for_ever);
    j.options.timeout_ms = 500;
    job_start(&j);
    (void)job_pid(&j, 0);
    assert_int_equal(kill(job_pid(&j, 1), SIGSTOP), 0);
    job_wait(&j);
    expect_failure(&j, 1, 128 + SIGKILL, "gave no sign of life for 500 ms");
}

static void names_a_rank_that_exits(void **state)
{
    (void)state;
    static const char *const arguments[] = {"status=2:41", NULL};
    job j;
    job_init(&j, N, arguments);
    job_run(&j);
    expect_failure(&j, 2, 41, "exited with status 41");
    expect_told(&j, N - 1);
}

static void names_a_rank_that_finishes_early(void **state)
{
    (void)state;
    static const char *const arguments[][2] = {
        {"early=3", NULL}, {"status=3:0", NULL}}; // with a goodbye, and without
    for (int i = 0; i < 2; i++) {
        job j;
        job_init(&j, N, arguments[i]);
        job_run(&j);
        expect_failure(&j, 3, FAILED,
            "finished (exit status 0) while others still communicate with it");
        expect_told(&j, N - 1);
    }
}

static void names_what_ranks_disagree_about(void **state)
{
    (void)state;
    static const char *const arguments[] = {"desync=1", NULL};
    job j;
    job_init(&j, N, arguments);
    job_run(&j);
    assert_int_equal(j.result.exit_status, FAILED);
    assert_non_null(strstr(j.result.text, "ranks disagree: "));
    assert_int_equal(count_lines(j.errors, "called allreduce #6"), N);
    assert_int_equal(count_lines(j.errors, "called barrier #6"), N);
}

static void names_a_rank_that_ends_without_joining(void **state)
{
    (void)state;
    job j;
    char script[512];
    job_init(&j, 3, some_steps);
    snprintf(script, sizeof(script), "test $RANK = 1 || exec %s", RANK_PROGRAM);
    j.words[0] = "sh";
    j.words[1] = "-c";
    j.words[2] = script;
    j.words[3] = NULL;
    job_run(&j);
    expect_failure(
        &j, 1, FAILED, "finished (exit status 0) without joining the others");
}

static void names_a_rank_that_is_stopped_before_it_joins(void **state)
{
    (void)state;
    job j;
    char script[512];
    job_init(&j, 2, some_steps);
    snprintf(script, sizeof(script),
        "test $RANK = 0 || kill -STOP $$; exec %s timeout=%d", RANK_PROGRAM,
        JOB_LAUNCHER_MS / 10);
    j.words[0] = "sh";
    j.words[1] = "-c";
    j.words[2] = script;
    j.words[3] = NULL;
    job_run(&j);
    expect_failure(&j, 1, 128 + SIGKILL, "did not join in time");
}

static void shows_the_last_lines_of_the_first_failure(void **state)
{
    (void)state;
    job j;
    job_init(&j, 2, some_steps);
    j.words[0] = "sh";
    j.words[1] = "-c";
    j.words[2] = "test $RANK = 1 || sleep 30; i=0; "
                 "while test $i -lt 30; do i=$((i+1)); echo line $i >&2; done; "
                 "exit 9";
    j.words[3] = NULL;
    job_run(&j);
    expect_failure(&j, 1, 9, "exited with status 9");
    assert_int_equal(count_lines(j.result.last_lines, "line "), 20);
    assert_int_equal(strncmp(j.result.last_lines, "line 11\n", 8), 0);
    assert_int_equal(count_lines(j.errors, "line "), 30);
}

// What a rank has started ends with it, also what does not want to.
static void leaves_no_process_of_a_rank_behind(void **state)
{
    (void)state;
    job j;
    job_init(&j, 2, some_steps);
    char script[512];
    snprintf(script, sizeof(script),
        "trap '' TERM INT; (trap '' TERM INT; sleep 600) & "
        "echo $! > %s/pid.$RANK; test $RANK = 1 && exit 1; "
        "while :; do sleep 1; done",
        j.folder);
    j.words[0] = "sh";
    j.words[1] = "-c";
    j.words[2] = script;
    j.words[3] = NULL;
    job_start(&j);
    pid_t sleepers[2] = {job_pid(&j, 0), job_pid(&j, 1)};
    job_wait(&j);
    expect_failure(&j, 1, 1, "exited with status 1");
    for (int r = 0; r < 2; r++) {
        // It is gone, or waits for init to take note.
        cadre_deadline deadline = cadre_deadline_in_ms(10000);
        while (kill(sleepers[r], 0) == 0 && cadre_now_ns() < deadline) {
            cadre_sleep_ns(1000000);
        }
        assert_int_equal(kill(sleepers[r], 0), -1);
    }
}

static void passes_signals_on(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        job j;
        job_init(&j, 2, for_ever);
        job_start(&j);
        (void)job_pid(&j, 0);
        (void)job_pid(&j, 1);
        assert_int_equal(kill(getpid(), numbers[i]), 0);
        job_wait(&j);
        assert_int_equal(j.result.stopped_by, numbers[i]);
        assert_int_equal(j.status, CADRE_OK);
    }
}

static void lets_ranks_finish_after_a_signal(void **state)
{
    (void)state;
    job j;
    job_init(&j, 2, some_steps);
    char script[512];
    // Longer than a failed job would get.
    snprintf(script, sizeof(script),
        "trap 'sleep 1; echo saved; exit 130' INT; echo $$ > %s/pid.$RANK; "
        "while :; do sleep 0.01; done",
        j.folder);
    j.words[0] = "sh";
    j.words[1] = "-c";
    j.words[2] = script;
    j.words[3] = NULL;
    job_start(&j);
    (void)job_pid(&j, 0);
    (void)job_pid(&j, 1);
    assert_int_equal(kill(getpid(), SIGINT), 0);
    job_wait(&j);
    assert_int_equal(j.result.stopped_by, SIGINT);
    assert_string_equal(j.result.text, "");
    assert_int_equal(count_lines(j.output, "saved"), 2);
}

// A signal to one of them, on which all agree: they end on their own.
static void takes_a_stop_that_ranks_agree_on(void **state)
{
    (void)state;
    job j;
    job_init(&j, 2, some_steps);
    char script[512];
    // Longer than a failed job would get.
    snprintf(script, sizeof(script),
        "%s || exit 1; test $RANK = 1 || { sleep 1; echo saved; }; exit 143",
        RANK_PROGRAM);
    j.words[0] = "sh";
    j.words[1] = "-c";
    j.words[2] = script;
    j.words[3] = NULL;
    job_run(&j);
    expect_success(&j);
    assert_int_equal(j.result.stopped_by, SIGTERM);
    assert_int_equal(count_lines(j.output, "saved"), 1);
}

static void names_a_rank_that_is_stopped_alone(void **state)
{
    (void)state;
    job j;
    job_init(&j, 2, some_steps);
    char script[512];
    snprintf(script, sizeof(script), "%s || exit 1; test $RANK = 0 || exit 143",
        RANK_PROGRAM);
    j.words[0] = "sh";
    j.words[1] = "-c";
    j.words[2] = script;
    j.words[3] = NULL;
    job_run(&j);
    expect_failure(&j, 1, 143, ") ended with status 143");
    assert_int_equal(j.result.stopped_by, 0);
}

static void kills_at_a_second_signal(void **state)
{
    (void)state;
    job j;
    job_init(&j, 2, some_steps);
    char script[512];
    snprintf(script, sizeof(script),
        "trap 'echo > %s/pid.1$RANK' INT; echo $$ > %s/pid.$RANK; "
        "while :; do sleep 0.01; done",
        j.folder, j.folder);
    j.words[0] = "sh";
    j.words[1] = "-c";
    j.words[2] = script;
    j.words[3] = NULL;
    job_start(&j);
    (void)job_pid(&j, 0);
    (void)job_pid(&j, 1);
    assert_int_equal(kill(getpid(), SIGINT), 0);
    (void)job_pid(&j, 10); // they got it
    (void)job_pid(&j, 11);
    assert_int_equal(kill(getpid(), SIGINT), 0);
    job_wait(&j);
    assert_int_equal(j.result.stopped_by, SIGINT);
    assert_string_equal(j.result.text, "");
}

static void says_that_a_program_cannot_be_run(void **state)
{
    (void)state;
    static const struct {
        const char *program;
        const char *words;
        int exit_status;
    } cases[] = {
        {"cadre-no-such-program", "No such file or directory", 127},
        {"/etc/passwd", "Permission denied", 126},
        {"/", "Permission denied", 126},
    };
    for (int i = 0; i < 3; i++) {
        job j;
        job_init(&j, 2, some_steps);
        j.words[0] = cases[i].program;
        job_run(&j);
        assert_int_equal(j.status, CADRE_ERR_NOT_FOUND);
        assert_int_equal(j.result.exit_status, cases[i].exit_status);
        assert_non_null(strstr(j.text, cases[i].program));
        assert_non_null(strstr(j.text, cases[i].words));
    }
}

static void refuses_options_that_make_no_sense(void **state)
{
    (void)state;
    cadre_launch_result result;
    const char *const words[] = {"true", NULL};
    const char *const none[] = {NULL};
    CHECK_FAILS(cadre_launch(NULL, &result), CADRE_ERR_INVALID_ARG, "program");
    CHECK_FAILS(
        cadre_launch(
            &(cadre_launch_options){.n_ranks = 1, .argv = none}, &result),
        CADRE_ERR_INVALID_ARG, "program");
    CHECK_FAILS(cadre_launch(&(cadre_launch_options){.argv = words}, &result),
        CADRE_ERR_INVALID_ARG, "n_ranks is 0");
    CHECK_FAILS(cadre_launch(
                    &(cadre_launch_options){.n_ranks = 1, .argv = words}, NULL),
        CADRE_ERR_INVALID_ARG, "out is NULL");
    CHECK_FAILS(
        cadre_launch(
            &(cadre_launch_options){.n_ranks = 1, .argv = words, .threads = -1},
            &result),
        CADRE_ERR_INVALID_ARG, "negative");
    CHECK_FAILS(cadre_launch(
                    &(cadre_launch_options){
                        .n_ranks = 1, .argv = words, .bind = (cadre_bind)7},
                    &result),
        CADRE_ERR_INVALID_ARG, "bind is 7");
    CHECK_FAILS(cadre_launch(&(cadre_launch_options){.n_ranks = 1,
                                 .argv = words,
                                 .log_dir = "/dev/null/logs"},
                    &result),
        CADRE_ERR_IO, "/dev/null");
    CHECK_FAILS(
        cadre_launch(
            &(cadre_launch_options){.n_ranks = 1, .argv = words, .log_dir = ""},
            &result),
        CADRE_ERR_INVALID_ARG, "log_dir is empty");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_ranks_to_their_end),
        cmocka_unit_test(sets_the_variables_of_each_rank),
        cmocka_unit_test(binds_ranks_to_cores_of_their_own),
        cmocka_unit_test(hands_all_ranks_one_secret),
        cmocka_unit_test(tags_lines_and_keeps_logs),
        cmocka_unit_test(names_a_rank_that_is_killed),
        cmocka_unit_test(names_a_rank_that_is_stopped),
        cmocka_unit_test(takes_the_limit_of_the_launcher),
        cmocka_unit_test(names_a_rank_that_exits),
        cmocka_unit_test(names_a_rank_that_finishes_early),
        cmocka_unit_test(names_what_ranks_disagree_about),
        cmocka_unit_test(names_a_rank_that_ends_without_joining),
        cmocka_unit_test(names_a_rank_that_is_stopped_before_it_joins),
        cmocka_unit_test(shows_the_last_lines_of_the_first_failure),
        cmocka_unit_test(leaves_no_process_of_a_rank_behind),
        cmocka_unit_test(passes_signals_on),
        cmocka_unit_test(lets_ranks_finish_after_a_signal),
        cmocka_unit_test(takes_a_stop_that_ranks_agree_on),
        cmocka_unit_test(names_a_rank_that_is_stopped_alone),
        cmocka_unit_test(kills_at_a_second_signal),
        cmocka_unit_test(says_that_a_program_cannot_be_run),
        cmocka_unit_test(refuses_options_that_make_no_sense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
