// SPDX-License-Identifier: Apache-2.0

#include "stop.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

// Lock-free, as a handler must have it.
static atomic_int caught;
static atomic_bool answers;

static void on_signal(int signal_number)
{
    int error = errno;
    int first = 0;
    if (!atomic_compare_exchange_strong(&caught, &first, signal_number)) {
        if (atomic_load(&answers)) { // the prompt begins on a line of its own
            ssize_t ignored = write(STDERR_FILENO, "\n", 1);
            (void)ignored;
        }
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    } else if (atomic_load(&answers)) {
        static const char text[] =
            "\ncadre: finishing the step, then saving; again: stop now\n";
        ssize_t ignored = write(STDERR_FILENO, text, sizeof(text) - 1);
        (void)ignored;
    }
    errno = error;
}

void stop_install(bool loud)
{
    atomic_store(&answers, loud);
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
