// SPDX-License-Identifier: Apache-2.0
//
// Linux: a process can ask to be killed when its parent ends.

#define _GNU_SOURCE // execvpe, pipe2

#include "launch/spawn.h"

#include "base/fail.h"
#include "launch/bind.h"
#include "launch/signals.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_RUNNABLE = 126, NOT_THERE = 127 };

// execvpe() wants pointers that it does not write through.
static char *const *as_vector(const char *const *argv)
{
    union {
        const char *const *from;
        char *const *to;
    } view = {.from = argv};
    return view.to;
}

// In the new process: only what is safe between fork() and exec().
static _Noreturn void become(const cadre_spawn_options *o, pid_t parent,
    const sigset_t *mask, int trouble)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(NOT_THERE); // the parent ended before the line above
    }
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
        (o->output < 0 || dup2(o->output, STDOUT_FILENO) >= 0) &&
        (o->error < 0 || dup2(o->error, STDERR_FILENO) >= 0) &&
        (o->n_cores == 0 || cadre_bind_to_cores(o->local_rank, o->n_cores)) &&
        fcntl(o->store, F_SETFD, 0) == 0 && fcntl(o->secret, F_SETFD, 0) == 0) {
        if (nothing > STDERR_FILENO) {
            close(nothing);
        }
        cadre_signals_restore_in_child(mask);
        execvpe(o->argv[0], as_vector(o->argv), o->environment);
    }
    int error = errno;
    (void)!write(trouble, &error, sizeof(error));
    _exit(NOT_THERE);
}

// Waits until the program runs.  0, or why it does not.
static int exec_error(int trouble)
{
    int error = 0;
    ssize_t n;
    do {
        n = read(trouble, &error, sizeof(error));
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof(error) ? error : 0;
}

static pid_t fork_and_become(const cadre_spawn_options *options, int trouble)
{
    sigset_t all;
    sigset_t mask;
    pid_t parent = getpid();
    // No handler of ours must run in the new process.
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    pid_t child = fork();
    if (child == 0) {
        become(options, parent, &mask, trouble);
    }
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    errno = error;
    return child;
}

cadre_status cadre_spawn(
    const cadre_spawn_options *options, pid_t *pid, int *exec_status)
{
    int trouble[2];
    if (pipe2(trouble, O_CLOEXEC) != 0) {
        return cadre_fail_errno(CADRE_ERR_IO, errno, "cannot start a process");
    }
    pid_t child = fork_and_become(options, trouble[1]);
    int error = errno;
    close(trouble[1]);
    if (child < 0) {
        close(trouble[0]);
        return cadre_fail_errno(CADRE_ERR_IO, error, "cannot start a process");
    }
    setpgid(child, child); // here too: whoever comes first
    error = exec_error(trouble[0]);
    close(trouble[0]);
    if (error != 0) {
        (void)waitpid(child, NULL, 0);
        *exec_status = error == ENOENT ? NOT_THERE : NOT_RUNNABLE;
        return cadre_fail_errno(CADRE_ERR_NOT_FOUND, error,
            "the program '%s' cannot be run", options->argv[0]);
    }
    *pid = child;
    return CADRE_OK;
}
