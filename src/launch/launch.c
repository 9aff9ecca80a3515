// SPDX-License-Identifier: Apache-2.0
//
// cadre_launch: the processes of a job, from their start to the last one's end.
//
// Everything happens in one loop in the calling thread: the hub, the ranks'
// output, signals, and the stages in which a job that failed is ended.

#include "cadre/launch.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/socket.h"
#include "base/thread.h"
#include "launch/environment.h"
#include "launch/output.h"
#include "launch/signals.h"
#include "launch/spawn.h"
#include "rendezvous/hub_loop.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    REPORT_MS = 500, // that the others of a failed job get to say so
    TERM_MS = 200,   // from SIGTERM to SIGKILL
    KILL_MS = 700,   // from SIGKILL until a process is given up
    DRAIN_MS = 200,  // of silence, after which output left open is given up
    LATE_MS = 500,   // that the output of a job that failed, or was stopped,
                     // may take to be written
    LOST_OUTPUT_STATUS = 1, // where it could not be written
    SILENT_RANK_STATUS = 3, // for a rank that failed but exited with 0
    LAST_LINES = 20,
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

static cadre_status check_options(const cadre_launch_options *o)
{
    if (o == NULL || o->argv == NULL || o->argv[0] == NULL) {
        return cadre_fail(
            CADRE_ERR_INVALID_ARG, "cadre_launch: there is no program to run");
    }
    if (o->n_ranks < 1 || o->n_ranks > CADRE_MAX_RANKS) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "cadre_launch: n_ranks is %d, but it goes from 1 to %d", o->n_ranks,
            CADRE_MAX_RANKS);
    }
    if (o->log_dir != NULL && o->log_dir[0] == '\0') {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "cadre_launch: log_dir is empty: it needs the name of a folder");
    }
    if (o->threads < 0 || o->timeout_ms < 0) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "cadre_launch: threads and timeout_ms must not be negative");
    }
    if (o->bind != CADRE_BIND_NONE && o->bind != CADRE_BIND_CORE) {
        return cadre_fail(CADRE_ERR_INVALID_ARG,
            "cadre_launch: bind is %d, which is no cadre_bind", (int)o->bind);
    }
    return CADRE_OK;
}

static cadre_status create(const cadre_launch_options *options, launch **out)
{
    size_t n = (size_t)options->n_ranks;
    launch *l = cadre_alloc_flex(sizeof(*l), n, sizeof(l->processes[0]));
    if (l == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    l->options = options;
    l->n = options->n_ranks;
    l->first_bad = -1;
    l->secret = -1;
    l->reserved = -1;
    l->next_stage = CADRE_NO_DEADLINE;
    l->late = CADRE_NO_DEADLINE;
    cadre_outlet_init(&l->output, STDOUT_FILENO);
    cadre_outlet_init(&l->error, STDERR_FILENO);
    for (int r = 0; r < l->n; r++) {
        l->processes[r].output.fd = -1;
        l->processes[r].error.fd = -1;
    }
    if (gethostname(l->host, sizeof(l->host) - 1) != 0) {
        snprintf(l->host, sizeof(l->host), "unknown");
    }
    *out = l;
    return CADRE_OK;
}

// What a launch needs beside its processes.
static cadre_status prepare(launch *l)
{
    // The signals, the hub, two outlets, and two streams of each rank.
    l->fds = cadre_alloc_array(4 + 2 * (size_t)l->n, sizeof(l->fds[0]));
    if (l->fds == NULL) {
        return CADRE_ERR_NO_MEMORY;
    }
    if (l->options->log_dir != NULL) {
        CADRE_TRY(cadre_make_folders(l->options->log_dir));
    }
    CADRE_TRY(cadre_secret_make(&l->secret));
    CADRE_TRY(cadre_socket_reserve_port(&l->reserved, &l->port));
    return cadre_hub_loop_launch(l->n, l->options->timeout_ms, &l->hub);
}

// Makes one stream of a rank.  *theirs is -1 where the rank writes to what the
// launcher itself has.
static cadre_status open_stream(launch *l, int rank, bool is_error, int *theirs)
{
    process *p = &l->processes[rank];
    cadre_stream *s = is_error ? &p->error : &p->output;
    bool raw = rank == 0 && !l->options->tag;
    *theirs = -1;
    if (raw && !is_error && p->log.path == NULL) {
        return CADRE_OK;
    }
    s->outlet = is_error ? &l->error : &l->output;
    s->log = p->log.path == NULL ? NULL : &p->log;
    s->tail = is_error ? &p->tail : NULL;
    s->raw = raw;
    if (l->options->tag) {
        snprintf(s->tag, sizeof(s->tag), "[%s:%d] ", l->host, rank);
    }
    return raw && is_error && isatty(STDERR_FILENO)
               ? cadre_output_terminal(STDERR_FILENO, &s->fd, theirs)
               : cadre_output_pipe(&s->fd, theirs);
}

static cadre_status spawn(
    launch *l, int rank, cadre_spawn_options *o, int *exec_status)
{
    process *p = &l->processes[rank];
    int share = cadre_cpu_count() / l->n;
    cadre_rank_variables variables = {.rank = rank,
        .world_size = l->n,
        .threads = l->options->threads > 0 ? l->options->threads
                   : share > 0             ? share
                                           : 1,
        .port = l->port,
        .store = o->store,
        .secret = o->secret};
    o->local_rank = rank;
    o->n_cores = l->options->bind == CADRE_BIND_CORE ? variables.threads : 0;
    CADRE_TRY(cadre_environment_make(&variables, &o->environment));
    cadre_status status = cadre_spawn(o, &p->pid, exec_status);
    cadre_environment_free(o->environment);
    CADRE_TRY(status);
    p->running = true;
    l->n_running++;
    cadre_hub_loop_started(l->hub, rank, l->host, (int)p->pid);
    return CADRE_OK;
}

static void close_if_open(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

static cadre_status start_rank(launch *l, int rank, int *exec_status)
{
    cadre_spawn_options o = {.argv = l->options->argv,
        .output = -1,
        .error = -1,
        .store = -1,
        .secret = l->secret};
    cadre_status status = CADRE_OK;
    if (l->options->log_dir != NULL) {
        status = cadre_log_file_open(
            l->options->log_dir, rank, &l->processes[rank].log);
    }
    if (status == CADRE_OK) {
        status = open_stream(l, rank, false, &o.output);
    }
    if (status == CADRE_OK) {
        status = open_stream(l, rank, true, &o.error);
    }
    if (status == CADRE_OK) {
        status = cadre_hub_loop_connect(l->hub, rank, &o.store);
    }
    if (status == CADRE_OK) {
        status = spawn(l, rank, &o, exec_status);
    }
    close_if_open(o.output);
    close_if_open(o.error);
    close_if_open(o.store);
    return status;
}

static void signal_groups(launch *l, int number)
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
        signal_groups(l, SIGKILL);
        l->stage = KILLED;
        l->next_stage = cadre_deadline_in_ms(KILL_MS);
        cadre_log(
            CADRE_LOG_WARN, "launcher", "%s again: the ranks are killed", name);
        return;
    }
    l->stopped_by = number;
    signal_groups(l, number);
    cadre_log(CADRE_LOG_WARN, "launcher",
        "%s passed on to the ranks, which may finish; a second one kills them",
        name);
}

static void take_signals(launch *l)
{
    int number;
    while ((number = cadre_signals_next()) != 0) {
        if (number != SIGCHLD) {
            pass_signal_on(l, number);
        }
    }
    reap_all(l);
}

static bool has_failed(const launch *l)
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
    signal_groups(l, SIGTERM);
}

// From a rank's failure to the end of the last one: a moment to report, then a
// request, then force.
static void end_by_stages(launch *l)
{
    if (l->stage == RUNNING && has_failed(l)) {
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
        l->next_stage = cadre_deadline_in_ms(KILL_MS);
        signal_groups(l, SIGKILL);
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
    if (l->late == CADRE_NO_DEADLINE && (has_failed(l) || l->stopped_by != 0)) {
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

static void watch_over(launch *l)
{
    while (l->stage != GIVEN_UP && (l->n_running > 0 || !is_drained(l))) {
        sleep_until_something(l);
        cadre_hub_loop_run(l->hub);
        pump_all(l);
        take_signals(l);
        end_by_stages(l);
    }
}

static int status_of(const cadre_ending *e)
{
    if (e->signal != 0) {
        return 128 + e->signal;
    }
    return e->exit_status != 0 ? e->exit_status : SILENT_RANK_STATUS;
}

// The signal that all ranks say they were stopped by, if nobody here asked them
// to end; or 0.
static int agreed_signal(const launch *l)
{
    int agreed = l->processes[0].ending.exit_status - 128;
    if (l->stage > REPORTING || (agreed != SIGINT && agreed != SIGTERM)) {
        return 0;
    }
    for (int r = 0; r < l->n; r++) {
        if (l->processes[r].ending.exit_status != 128 + agreed) {
            return 0;
        }
    }
    return agreed;
}

// A rank that was stopped, while others finished as if nothing had happened.
static int stopped_alone(const launch *l)
{
    for (int r = 0; r < l->n; r++) {
        const cadre_ending *e = &l->processes[r].ending;
        if (!e->asked && e->exit_status != 0) {
            return r;
        }
    }
    return -1;
}

// Says which output was lost, and why, if any was.
static void describe_output(const launch *l, cadre_launch_result *result)
{
    bool is_error =
        l->unheard ? l->output.error != EPIPE : l->output.error == 0;
    int error = is_error ? l->error.error : l->output.error;
    const char *stream = is_error ? "standard error" : "standard output";
    if (l->unheard) {
        result->exit_status = 128 + SIGPIPE;
        snprintf(result->text, sizeof(result->text),
            "nobody reads the ranks' %s any more: the job is ended", stream);
    } else if (error != 0 && result->stopped_by == 0) {
        (void)cadre_fail_errno(CADRE_ERR_IO, error,
            "some of the ranks' %s could not be written", stream);
        result->exit_status = LOST_OUTPUT_STATUS;
        snprintf(result->text, sizeof(result->text), "%s", cadre_error_text());
    }
}

// Says who failed first, and how.
static void describe(launch *l, cadre_launch_result *result)
{
    const cadre_verdict *verdict = cadre_hub_loop_verdict(l->hub);
    if (l->unheard) {
        describe_output(l, result);
        return;
    }
    result->stopped_by = l->stopped_by;
    if (l->stopped_by == 0) {
        result->stopped_by = agreed_signal(l);
        if (result->stopped_by != 0) {
            return;
        }
    }
    if (l->first_bad < 0) {
        l->first_bad = stopped_alone(l);
    }
    result->rank = verdict->rank >= 0 ? verdict->rank : l->first_bad;
    if (result->rank < 0) {
        describe_output(l, result);
        return;
    }
    process *p = &l->processes[result->rank];
    result->exit_status = p->running ? 128 + SIGKILL : status_of(&p->ending);
    if (verdict->rank >= 0) {
        snprintf(result->text, sizeof(result->text), "%s", verdict->text);
    } else {
        // The ranks broke off together; this one ended first.
        snprintf(result->text, sizeof(result->text),
            "rank %d (host %s, pid %d) ended with status %d%s%.800s",
            result->rank, l->host, (int)p->pid, result->exit_status,
            verdict->text[0] == '\0' ? "" : ": ", verdict->text);
    }
    cadre_tail_lines(
        &p->tail, LAST_LINES, result->last_lines, sizeof(result->last_lines));
}

// Ends what was started before something could not be.
static void abandon(launch *l)
{
    signal_groups(l, SIGKILL);
    cadre_deadline deadline = cadre_deadline_in_ms(KILL_MS);
    while (l->n_running > 0 && cadre_now_ns() < deadline) {
        struct pollfd p = {.fd = cadre_signals_fd(), .events = POLLIN};
        (void)poll(&p, 1, cadre_deadline_left_ms(deadline, CADRE_HUB_TICK_MS));
        take_signals(l);
    }
}

static void destroy(launch *l)
{
    for (int r = 0; r < l->n; r++) {
        cadre_stream_end(&l->processes[r].output);
        cadre_stream_end(&l->processes[r].error);
        cadre_log_file_close(&l->processes[r].log);
    }
    cadre_hub_loop_close(l->hub);
    close_if_open(l->secret);
    close_if_open(l->reserved);
    cadre_free(l->fds);
    cadre_free(l);
}

static cadre_status start_all(launch *l, int *exec_status)
{
    for (int r = 0; r < l->n; r++) {
        cadre_status status = start_rank(l, r, exec_status);
        if (status != CADRE_OK) {
            abandon(l);
            return status;
        }
    }
    return CADRE_OK;
}

cadre_status cadre_launch(
    const cadre_launch_options *options, cadre_launch_result *out)
{
    launch *l;
    CADRE_TRY(check_options(options));
    if (out == NULL) {
        return cadre_fail(CADRE_ERR_INVALID_ARG, "cadre_launch: out is NULL");
    }
    CADRE_TRY(create(options, &l));
    *out = (cadre_launch_result){.rank = -1};
    cadre_status status = cadre_signals_catch();
    if (status != CADRE_OK) {
        destroy(l);
        return status;
    }
    status = prepare(l);
    if (status == CADRE_OK) {
        status = start_all(l, &out->exit_status);
    }
    if (status == CADRE_OK) {
        watch_over(l);
        describe(l, out);
    }
    cadre_signals_release();
    destroy(l);
    return status;
}
