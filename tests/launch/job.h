// SPDX-License-Identifier: Apache-2.0
//
// A launch in a thread, so that the test can look at its ranks meanwhile and do
// them harm; what it leaves behind is checked at its end.

#ifndef CADRE_TESTS_LAUNCH_JOB_H
#define CADRE_TESTS_LAUNCH_JOB_H

#include "support/check.h"

#include "base/thread.h"
#include "cadre/launch.h"
#include <sys/types.h>

enum { JOB_MOST_WORDS = 8 };

// From a rank's death to the launcher's return.  Sanitizers make all slower.
#if defined(CADRE_SANITIZED)
enum { JOB_LAUNCHER_MS = 10000 };
#else
enum { JOB_LAUNCHER_MS = 2000 };
#endif

typedef struct job {
    cadre_launch_options options;
    const char *words[JOB_MOST_WORDS]; // the program and its arguments
    char folder[64];                   // of this job
    char pids[96];                     // the argument "pids=..."
    char output[4096];                 // what ranks printed, once it has ended
    char errors[16384];
    cadre_launch_result result;
    cadre_status status;
    char text[1024];
    int64_t ended_ns;

    cadre_thread thread;
    int descriptors; // open before it began
    int kept[2];     // standard output and error of the test
} job;

/** Prepares rank_program with up to five arguments; NULL ends them. */
void job_init(job *j, int n_ranks, const char *const *arguments);

/** Starts it, with standard output and error going to files. */
void job_start(job *j);

/** Waits until rank is under way; its process number. */
pid_t job_pid(const job *j, int rank);

/** Waits for the end, and checks that nothing is left. */
void job_wait(job *j);

/** Starts and waits. */
void job_run(job *j);

/** Counts the lines of text that have words in them. */
int count_lines(const char *text, const char *words);

#endif // CADRE_TESTS_LAUNCH_JOB_H
