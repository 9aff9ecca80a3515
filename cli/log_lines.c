// SPDX-License-Identifier: Apache-2.0

#include "log_lines.h"

#include "launched.h"

#include <stdio.h>
#include <unistd.h>

static void show(
    cadre_log_level level, const char *component, const char *line, void *ctx)
{
    (void)level;
    (void)ctx;
    // Over the progress line, which is drawn again.
    const char *before = isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "";
    const char *rank = launched_rank();
    if (rank != NULL) {
        fprintf(stderr, "%scadre: rank %s: %s: %s\n", before, rank, component,
            line);
    } else {
        fprintf(stderr, "%scadre: %s: %s\n", before, component, line);
    }
}

void log_lines_show(cadre_log_level level)
{
    cadre_log_set_sink(level, show, NULL);
}
