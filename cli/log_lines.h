// SPDX-License-Identifier: Apache-2.0
//
// The library's log lines, on standard error.

#ifndef CADRE_CLI_LOG_LINES_H
#define CADRE_CLI_LOG_LINES_H

#include <cadre/log.h>

/** Shows lines of this level and below.  Before any group exists. */
void log_lines_show(cadre_log_level level);

#endif // CADRE_CLI_LOG_LINES_H
