// SPDX-License-Identifier: Apache-2.0

#include "stop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

// Lock-free, as a handler must have it.
static atomic_int caught;
static _Atomic(const char *) answer;

// A handler that waited for who does not read could not be stopped any more:
// what is writable takes a short text at once.
static void say(const char *text)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&p, 1, 0) == 1) {
        ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
        (void)ignored;
    }
}

static void on_signal(int signal_number)
{
    int error = errno;
    int first = 0;
    const char *text = atomic_load(&answer);
    if (!atomic_compare_exchange_strong(&caught, &first, signal_number)) {
        if (text != NULL) {
            say("\n"); // the prompt begins on a line of its own
        }
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    } else if (text != NULL) {
        say(text);
    }
    errno = error;
}

void stop_install(const char *text)
{
    atomic_store(&answer, text);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

int stop_signal(void *ctx)
{
    (void)ctx;
    return atomic_load(&caught);
}
