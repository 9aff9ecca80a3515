// SPDX-License-Identifier: Apache-2.0
//
// cadre_launch: what a job needs, and how its ranks are started.

#include "launch/launch_impl.h"

#include "base/alloc.h"
#include "base/fail.h"
#include "base/file.h"
#include "base/secret.h"
#include "base/socket.h"
#include "base/thread.h"
#include "launch/environment.h"
#include "launch/signals.h"
#include "launch/spawn.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

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

// Ends what was started before something could not be.
static void abandon(launch *l)
{
    cadre_launch_signal(l, SIGKILL);
    cadre_deadline deadline = cadre_deadline_in_ms(CADRE_LAUNCH_KILL_MS);
    while (l->n_running > 0 && cadre_now_ns() < deadline) {
        struct pollfd p = {.fd = cadre_signals_fd(), .events = POLLIN};
        (void)poll(&p, 1, cadre_deadline_left_ms(deadline, CADRE_HUB_TICK_MS));
        cadre_launch_take_signals(l);
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
        cadre_launch_watch(l);
        cadre_launch_describe(l, out);
    }
    cadre_signals_release();
    destroy(l);
    return status;
}
