// SPDX-License-Identifier: Apache-2.0

#include "failure.h"

#include "command.h"
#include "launched.h"

#include <stdio.h>

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
    if (is_launched()) {
        fprintf(stderr, "cadre %s: rank %s: %s\n", command_name,
            launched_rank(), cadre_error_text());
    } else {
        fprintf(stderr, "cadre %s: %s\n", command_name, cadre_error_text());
    }
    return exit_status(status, started);
}
