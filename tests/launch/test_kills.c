// SPDX-License-Identifier: Apache-2.0
//
// Ranks killed at random moments: of work, of their meeting, of their start.
//
//     test_launch_kills [COUNT [SEED]]

#include "job.h"

#include "base/clock.h"
#include "base/random.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 4, MOST_DELAY_US = 30000 };

static long n_kills = 20;
static uint64_t seed;

static void kill_one(uint64_t round)
{
    static const char *const arguments[] = {"steps=-1", NULL};
    uint32_t words[4];
    job j;
    cadre_random_words(seed, CADRE_STREAM_ORDER, 0, round, words);
    int victim = (int)(words[0] % N);
    job_init(&j, N, arguments);
    job_start(&j);
    pid_t pid = job_pid(&j, victim);
    // Half of the time at once, when others may not be under way yet.
    cadre_sleep_ns(
        words[1] % 2 == 0 ? 0 : (int64_t)(words[2] % MOST_DELAY_US) * 1000);
    int64_t began = cadre_now_ns();
    assert_int_equal(kill(pid, SIGKILL), 0);
    job_wait(&j);

    char said[1200];
    snprintf(said, sizeof(said), "rank %d ", victim);
    if (j.result.rank != victim || j.result.exit_status != 128 + SIGKILL ||
        strncmp(j.result.text, said, strlen(said)) != 0) {
        fail_msg("kill %llu of seed %llu: rank %d was killed: %s",
            (unsigned long long)round, (unsigned long long)seed, victim,
            j.result.text);
    }
    snprintf(said, sizeof(said), "says: %s", j.result.text);
    if (count_lines(j.errors, said) != N - 1) {
        fail_msg("kill %llu of seed %llu: not all say '%s':\n%s",
            (unsigned long long)round, (unsigned long long)seed, said,
            j.errors);
    }
    assert_true((j.ended_ns - began) / 1000000 < JOB_LAUNCHER_MS);
}

static void survives_random_kills(void **state)
{
    (void)state;
    for (long i = 0; i < n_kills; i++) {
        kill_one((uint64_t)i);
    }
}

int main(int argc, char **argv)
{
    n_kills = argc > 1 ? strtol(argv[1], NULL, 10) : n_kills;
    if (cadre_random_secret(&seed, sizeof(seed)) != CADRE_OK) {
        return EXIT_FAILURE;
    }
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survives_random_kills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
