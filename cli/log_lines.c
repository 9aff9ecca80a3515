// SPDX-License-Identifier: Apache-2.0

#include "log_lines.h"

#include "launched.h"
#include "screen.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

enum { LINE_BYTES = 2048, PATIENCE_MS = 500 };

// A launcher that waited for who does not read could not watch over its ranks,
// nor hear a signal: what is not taken in time is left out.
static bool is_taken(void)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    int n;
    do {
        n = poll(&p, 1, PATIENCE_MS);
    } while (n < 0 && errno == EINTR);
    return n == 1;
}

static void show(
    cadre_log_level level, const char *component, const char *line, void *ctx)
{
    (void)level;
    (void)ctx;
    if (!is_taken()) {
        return;
    }
    const char *rank = launched_rank();
    char text[LINE_BYTES];
    if (rank != NULL) {
        snprintf(text, sizeof(text), "cadre: rank %s: %s: %s", rank, component,
            line);
    } else {
        snprintf(text, sizeof(text), "cadre: %s: %s", component, line);
    }
    screen_print(text);
}

void log_lines_show(cadre_log_level level)
{
    cadre_log_set_sink(level, show, NULL);
}
