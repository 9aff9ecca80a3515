// SPDX-License-Identifier: Apache-2.0
//
// One line for people, to the sink that <cadre/log.h> sets.  Return or log,
// never both: library code logs an error only where it cannot be returned.

#ifndef CADRE_BASE_LOG_H
#define CADRE_BASE_LOG_H

#include "base/fail.h"
#include "cadre/log.h"

/** Any thread.  A disabled level costs one load. */
void cadre_log(cadre_log_level level, const char *component, const char *format,
    ...) CADRE_PRINTF(3, 4);

#endif // CADRE_BASE_LOG_H
