// SPDX-License-Identifier: Apache-2.0
//
// Where the library's log lines go.  It writes none by itself: without a sink
// nothing is printed.

#ifndef CADRE_LOG_H
#define CADRE_LOG_H

#include "cadre/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cadre_log_level {
    CADRE_LOG_OFF = 0,
    CADRE_LOG_ERROR = 1, // could not go on
    CADRE_LOG_WARN = 2,  // odd, goes on
    CADRE_LOG_INFO = 3,  // once per run or epoch
    CADRE_LOG_DEBUG = 4, // once per object
} cadre_log_level;

/** Takes one line without its end.  Called from any thread, one at a time. */
typedef void (*cadre_log_sink)(
    cadre_log_level level, const char *component, const char *line, void *ctx);

/**
 * Sends lines of this level and below to sink; NULL sends none.
 *
 * ctx is handed to sink as it is and borrowed for as long as the sink is set.
 * The environment's CADRE_LOG (off, error, warn, info, debug) wins over level.
 * Threads: call it before any group exists.
 */
CADRE_API void cadre_log_set_sink(
    cadre_log_level level, cadre_log_sink sink, void *ctx);

#ifdef __cplusplus
}
#endif

#endif // CADRE_LOG_H
