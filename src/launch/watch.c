// SPDX-License-Identifier: Apache-2.0
//
// One loop serves a job: the hub, the ranks' output, signals, and the stages in
// which a job that failed is ended.

#include "launch/launch_impl.h"

#include "base/log.h"
#include "launch/signals.h"
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

enum {
    REPORT_MS = 500, // that the others of a failed job get to say so
    TERM_MS = 200,   // from SIGTERM to SIGKILL
    DRAIN_MS = 200,  // of silence, after which output left open is given up
    LATE_MS = 500,   // that the output of a job that failed, or was stopped,
                     // may take to be written
};

void cadre_launch_signal(launch *l, int number)
{
    for (int r = 0; r < l->n; r++) {
        if (l->processes[r].running) {
            kill(-l->processes[r].pid, number);
        }
    }
}

// It ended as it was asked to: by the signal that was passed on, with the
// status that says so, or because we ended it.
static bool was_asked(const launch *l, const cadre_ending *e)
{
    if (l->stopped_by == 0) {
        return false;
    }
    return e->signal == l->stopped_by ||
           (e->signal == 0 && e->exit_status == 128 + l->stopped_by) ||
           (l->hurried && e->signal == SIGKILL);
}

// Takes note of an end, and ends what the process may have left running.
static void reap(launch *l, int rank)
{
    process *p = &l->processes[rank];
    int how = 0;
    // Until it is waited for, its number is nobody else's.
    kill(-p->pid, SIGKILL);
    (void)waitpid(p->pid, &how, 0);
    p->running = false;
    l->n_running--;
    p->ending.signal = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
    p->ending.exit_status = WIFEXITED(how) ? WEXITSTATUS(how) : 0;
    p->ending.asked = was_asked(l, &p->ending);
    if (!cadre_hub_loop_ended(l->hub, rank, &p->ending) && l->first_bad < 0) {
        l->first_bad = rank;
    }
}

static void reap_all(launch *l)
{
    // Those that a signal killed come first: an exit may be the answer to them.
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0; r < l->n; r++) {
            const process *p = &l->processes[r];
            siginfo_t info = {.si_pid = 0};
            if (p->running &&
                waitid(P_PID, (id_t)p->pid, &info,
                    WEXITED | WNOHANG | WNOWAIT) == 0 &&
                info.si_pid != 0 && (pass == 1 || info.si_code != CLD_EXITED)) {
                reap(l, r);
            }
        }
    }
}

static void pass_signal_on(launch *l, int number)
{
    // Saying so may take a while where nobody reads.
    const char *name = number == SIGINT ? "SIGINT" : "SIGTERM";
    if (l->stopped_by != 0) {
        l->hurried = true;
        cadre_launch_signal(l, SIGKILL);
        l->stage = KILLED;
        l->next_stage = cadre_deadline_in_ms(CADRE_LAUNCH_KILL_MS);
        cadre_log(
            CADRE_LOG_WARN, "launcher", "%s again: the ranks are killed", name);
        return;
    }
    l->stopped_by = number;
    cadre_launch_signal(l, number);
    cadre_log(CADRE_LOG_WARN, "launcher",
        "%s passed on to the ranks, which may finish; a second one kills them",
        name);
}

void cadre_launch_take_signals(launch *l)
{
    int number;
    while ((number = cadre_signals_next()) != 0) {
        if (number != SIGCHLD) {
            pass_signal_on(l, number);
        }
    }
    reap_all(l);
}

bool cadre_launch_has_failed(const launch *l)
{
    return l->first_bad >= 0 || cadre_hub_loop_verdict(l->hub)->rank >= 0;
}

// What a program of one process is told by SIGPIPE.  Who stops a job at a
// terminal also ends what its output goes through, and is not to lose more.
static bool is_unheard(const launch *l)
{
    return l->stopped_by == 0 &&
           (l->output.error == EPIPE || l->error.error == EPIPE);
}

static void request_end(launch *l)
{
    l->stage = TERMINATED;
    l->next_stage = cadre_deadline_in_ms(TERM_MS);
    cadre_launch_signal(l, SIGTERM);
}

// From a rank's failure to the end of the last one: a moment to report, then a
// request, then force.
static void end_by_stages(launch *l)
{
    if (l->stage == RUNNING && cadre_launch_has_failed(l)) {
        l->stage = REPORTING;
        l->next_stage = cadre_deadline_in_ms(REPORT_MS);
    } else if (l->stage == RUNNING && is_unheard(l)) {
        l->unheard = true;
        request_end(l);
    }
    if (cadre_now_ns() < l->next_stage) {
        return;
    }
    switch (l->stage) {
    case REPORTING:
        request_end(l);
        break;
    case TERMINATED:
        l->stage = KILLED;
        l->next_stage = cadre_deadline_in_ms(CADRE_LAUNCH_KILL_MS);
        cadre_launch_signal(l, SIGKILL);
        break;
    case KILLED:
        l->stage = GIVEN_UP;
        break;
    case RUNNING:
    case GIVEN_UP:
        break;
    }
}

static int add_stream(launch *l, int n, const cadre_stream *s)
{
    // An outlet that is full is waited for instead.
    if (cadre_stream_wants_bytes(s)) {
        l->fds[n++] = (struct pollfd){.fd = s->fd, .events = POLLIN};
    }
    return n;
}

static void sleep_until_something(launch *l)
{
    int n = 0;
    l->fds[n++] = (struct pollfd){.fd = cadre_signals_fd(), .events = POLLIN};
    l->fds[n++] =
        (struct pollfd){.fd = cadre_hub_loop_fd(l->hub), .events = POLLIN};
    cadre_outlet *outlets[] = {&l->output, &l->error};
    for (int i = 0; i < 2; i++) {
        if (outlets[i]->used > 0) {
            l->fds[n++] =
                (struct pollfd){.fd = outlets[i]->fd, .events = POLLOUT};
        }
    }
    for (int r = 0; r < l->n; r++) {
        n = add_stream(l, n, &l->processes[r].output);
        n = add_stream(l, n, &l->processes[r].error);
    }
    int most = cadre_deadline_left_ms(l->next_stage, CADRE_HUB_TICK_MS);
    (void)poll(l->fds, (nfds_t)n, most);
}

static void pump_all(launch *l)
{
    bool moved = false;
    for (int r = 0; r < l->n; r++) {
        // Errors first: a display ends there before a result is printed.
        moved = cadre_stream_pump(&l->processes[r].error) || moved;
        moved = cadre_stream_pump(&l->processes[r].output) || moved;
    }
    cadre_outlet_flush(&l->error);
    cadre_outlet_flush(&l->output);
    if (moved || l->n_running > 0) {
        l->drained = cadre_deadline_in_ms(DRAIN_MS);
    }
}

// All ranks have ended: is there output that is still to be shown?
static bool is_drained(launch *l)
{
    int64_t now = cadre_now_ns();
    if (l->late == CADRE_NO_DEADLINE &&
        (cadre_launch_has_failed(l) || l->stopped_by != 0)) {
        l->late = cadre_deadline_in_ms(LATE_MS);
    }
    if (now >= l->late) {
        return true;
    }
    bool over = true;
    for (int r = 0; r < l->n; r++) {
        over = over && cadre_stream_is_over(&l->processes[r].output) &&
               cadre_stream_is_over(&l->processes[r].error);
    }
    // Something that left its process group may hold a pipe open for ever.
    return (over || now >= l->drained) && l->output.used == 0 &&
           l->error.used == 0;
}

void cadre_launch_watch(launch *l)
{
    while (l->stage != GIVEN_UP && (l->n_running > 0 || !is_drained(l))) {
        sleep_until_something(l);
        cadre_hub_loop_run(l->hub);
        pump_all(l);
        cadre_launch_take_signals(l);
        end_by_stages(l);
    }
}
