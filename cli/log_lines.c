// SPDX-License-Identifier: Apache-2.0

#include "log_lines.h"

#include "launched.h"
#include "screen.h"

#include <stdio.h>

enum { LINE_BYTES = 2048 };

static void show(
    cadre_log_level level, const char *component, const char *line, void *ctx)
{
    (void)level;
    (void)ctx;
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
