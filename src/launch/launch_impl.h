// SPDX-License-Identifier: Apache-2.0
//
// The inside of cadre_launch(): how ranks are started (launch.c), watched to the
// end of the last one (watch.c), and what came of them (outcome.c).
//
// Threads: the calling one alone.

#ifndef CADRE_LAUNCH_LAUNCH_IMPL_H
#define CADRE_LAUNCH_LAUNCH_IMPL_H

#include "cadre/launch.h"

#include "base/clock.h"
#include "base/socket.h"
#include "launch/output.h"
#include "rendezvous/hub_loop.h"
#include <poll.h>
#include <stdbool.h>
#include <sys/types.h>

enum {
    CADRE_LAUNCH_KILL_MS = 700, // from SIGKILL until a process is given up
};

typedef enum stage {
    RUNNING,
    REPORTING,  // a rank has failed; the others may say so
    TERMINATED, // they have got SIGTERM
    KILLED,     // and SIGKILL
    GIVEN_UP,   // and are still there
} stage;

typedef struct process {
    pid_t pid; // 0: not started
    bool running;
    cadre_ending ending; // once it is not
    cadre_log_file log;  // of zeros: none
    cadre_stream output;
    cadre_stream error;
    cadre_tail tail; // of its standard error
} process;

typedef struct launch {
    const cadre_launch_options *options;
    int n;
    char host[CADRE_HOST_BYTES];
    cadre_hub_loop *hub;
    int secret;   // the job's, which all ranks inherit
    int reserved; // the socket that holds MASTER_PORT
    int port;
    struct pollfd *fds;
    cadre_outlet output;
    cadre_outlet error;

    int n_running;
    int first_bad; // the first rank that ended badly, or -1
    int stopped_by;
    bool hurried; // a second signal came
    bool unheard; // nobody reads what the ranks print, so they were ended
    stage stage;
    cadre_deadline next_stage;
    cadre_deadline drained; // when output that is left open is given up
    cadre_deadline late;    // when output that nobody takes is
    process processes[];    // n of them
} launch;

/** Sends a signal to the groups of all ranks that run. */
void cadre_launch_signal(launch *l, int number);

/** Takes the signals that came: passes them on, or takes note of ends. */
void cadre_launch_take_signals(launch *l);

/** Whether any rank has ended badly. */
bool cadre_launch_has_failed(const launch *l);

/**
 * Serves the ranks until all have ended and their output is written: the hub,
 * output, signals, and the stages in which a job that failed is ended.
 */
void cadre_launch_watch(launch *l);

/** Says who failed first, and how; all have ended. */
void cadre_launch_describe(launch *l, cadre_launch_result *result);

#endif // CADRE_LAUNCH_LAUNCH_IMPL_H
