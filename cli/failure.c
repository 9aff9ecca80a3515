// SPDX-License-Identifier: Apache-2.0

#include "failure.h"

#include "command.h"
#include "launched.h"

#include <stdio.h>
#include <string.h>

static int exit_status(cadre_status status, bool started)
{
    switch (status) {
    case CADRE_OK:
        return EXIT_DONE;
    case CADRE_ERR_INVALID_ARG:
    case CADRE_ERR_UNSUPPORTED:
    case CADRE_ERR_NO_MEMORY:
    case CADRE_ERR_NOT_FOUND:
    case CADRE_ERR_IO:
        return started ? EXIT_RANK_FAILED : EXIT_REFUSED;
    case CADRE_ERR_NOT_FINITE:
    case CADRE_ERR_TIMEOUT:
    case CADRE_ERR_PEER_LOST:
    case CADRE_ERR_DESYNC:
    case CADRE_ERR_ABORTED:
        return EXIT_RANK_FAILED;
    case CADRE_ERR_CORRUPT:
        return EXIT_DAMAGED;
    case CADRE_ERR_STATE:
    case CADRE_ERR_INTERNAL:
        break;
    }
    return EXIT_FAULT;
}

int report_failure(const char *command_name, cadre_status status, bool started)
{
    const char *text = cadre_error_text();
    char rank[64] = "";
    if (is_launched()) {
        snprintf(rank, sizeof(rank), "rank %s: ", launched_rank());
    }
    // A sentence that says already whose it is needs no rank in front.
    bool named = strncmp(text, rank, strlen(rank)) == 0;
    fprintf(stderr, "cadre %s: %s%s\n", command_name, named ? "" : rank, text);
    return exit_status(status, started);
}
