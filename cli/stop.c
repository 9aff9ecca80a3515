// SPDX-License-Identifier: Apache-2.0

#include "stop.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

// Lock-free, as a handler must have it.
static atomic_int caught;
static _Atomic(const char *) answer;

static void on_signal(int signal_number)
{
    int error = errno;
    int first = 0;
    if (!atomic_compare_exchange_strong(&caught, &first, signal_number)) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    const char *text = first == 0 ? atomic_load(&answer) : NULL;
    if (text != NULL) {
        ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
        (void)ignored;
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
