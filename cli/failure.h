// SPDX-License-Identifier: Apache-2.0
//
// How a command that is a rank fails: one sentence, and the right status.

#ifndef CADRE_CLI_FAILURE_H
#define CADRE_CLI_FAILURE_H

#include <cadre/status.h>
#include <stdbool.h>

/**
 * Says on standard error what the calling thread's last failure was, and which
 * rank this is, and returns the exit status for it.
 *
 * started: steps were made, so it is no longer a request that is refused.
 */
int report_failure(const char *command_name, cadre_status status, bool started);

#endif // CADRE_CLI_FAILURE_H
