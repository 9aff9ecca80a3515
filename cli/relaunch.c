// SPDX-License-Identifier: Apache-2.0

#include "relaunch.h"

#include "command.h"
#include "failure.h"

#include <cadre/train.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

// Nobody reads what it prints: its own end, or the ranks' by their launcher.
static bool is_unheard(const cadre_launch_result *result)
{
    return result->exit_status == EXIT_SIGNALLED + SIGPIPE;
}

static int outcome(const char *command_name, const cadre_launch_result *result)
{
    if (result->rank < 0 && result->text[0] == '\0') {
        return result->stopped_by == 0 ? EXIT_DONE
                                       : EXIT_SIGNALLED + result->stopped_by;
    }
    bool said = result->rank >= 0 && (result->exit_status == EXIT_FAULT ||
                                         result->exit_status == EXIT_REFUSED ||
                                         result->exit_status == EXIT_DAMAGED);
    if (!said) {
        fprintf(stderr, "cadre %s: %s\n", command_name, result->text);
    }
    return said || result->rank < 0 || is_unheard(result) ? result->exit_status
                                                          : EXIT_RANK_FAILED;
}

int relaunch(const char **argv, cadre_launch_options options)
{
    char program[CADRE_PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (n < 0) {
        fprintf(stderr,
            "cadre %s: cannot find this program's file in /proc/self/exe\n",
            argv[1]);
        return EXIT_REFUSED;
    }
    program[n] = '\0';
    argv[0] = program;
    options.argv = argv;
    cadre_launch_result result;
    cadre_status status = cadre_launch(&options, &result);
    return status == CADRE_OK ? outcome(argv[1], &result)
                              : report_failure(argv[1], status, false);
}
