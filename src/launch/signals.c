// SPDX-License-Identifier: Apache-2.0
//
// Linux: pipe2() makes both ends of the pipe private in one call.

#define _GNU_SOURCE // pipe2

#include "launch/signals.h"

#include "base/fail.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

// The last two are ignored: what is written, be it a log, says that it failed.
static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGPIPE, SIGXFSZ};
enum { N_SIGNALS = sizeof(numbers) / sizeof(numbers[0]) };

static atomic_flag busy = ATOMIC_FLAG_INIT;
static struct sigaction before[N_SIGNALS];

// The pipe that handlers write to and the launch reads.  A handler may run in
// any thread, so the end it writes to is closed only when no handler, having
// counted itself, can still hold it.
static int read_end;
static atomic_int write_end = -1;
static atomic_int n_writing;

static void note(int number)
{
    int kept = errno;
    unsigned char byte = (unsigned char)number;
    atomic_fetch_add(&n_writing, 1);
    int fd = atomic_load(&write_end);
    if (fd >= 0) {
        // A pipe that is full holds enough of them already.
        (void)!write(fd, &byte, 1);
    }
    atomic_fetch_sub(&n_writing, 1);
    errno = kept;
}

cadre_status cadre_signals_catch(void)
{
    if (atomic_flag_test_and_set(&busy)) {
        return cadre_fail(CADRE_ERR_STATE,
            "cadre_launch: another launch of this process is not over");
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        int error = errno;
        atomic_flag_clear(&busy);
        return cadre_fail_errno(
            CADRE_ERR_IO, error, "no pipe for signals is to be had");
    }
    read_end = ends[0];
    atomic_store(&write_end, ends[1]);
    for (int i = 0; i < N_SIGNALS; i++) {
        struct sigaction action;
        memset(&action, 0, sizeof(action));
        sigemptyset(&action.sa_mask);
        bool ignored = numbers[i] == SIGPIPE || numbers[i] == SIGXFSZ;
        action.sa_handler = ignored ? SIG_IGN : note;
        action.sa_flags = SA_RESTART;
        sigaction(numbers[i], &action, &before[i]);
    }
    return CADRE_OK;
}

int cadre_signals_fd(void)
{
    return read_end;
}

int cadre_signals_next(void)
{
    unsigned char byte;
    return read(read_end, &byte, 1) == 1 ? byte : 0;
}

static void restore(void)
{
    for (int i = 0; i < N_SIGNALS; i++) {
        sigaction(numbers[i], &before[i], NULL);
    }
}

void cadre_signals_restore_in_child(const sigset_t *mask)
{
    // A shell makes what it starts in the background deaf to SIGINT, meaning
    // that of the terminal, and a thread may have blocked what others take.  A
    // rank gets only what the launcher passes on, and is to hear that.
    sigset_t hearing = *mask;
    restore();
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigdelset(&hearing, SIGINT);
    sigdelset(&hearing, SIGTERM);
    pthread_sigmask(SIG_SETMASK, &hearing, NULL);
}

void cadre_signals_release(void)
{
    restore();
    int fd = atomic_exchange(&write_end, -1);
    while (atomic_load(&n_writing) > 0) {
        sched_yield();
    }
    close(fd);
    close(read_end);
    atomic_flag_clear(&busy);
}
