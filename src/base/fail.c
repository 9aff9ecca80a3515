// SPDX-License-Identifier: Apache-2.0

#include "base/fail.h"

#include <stdio.h>
#include <string.h>

static _Thread_local char text[CADRE_FAIL_TEXT_BYTES];

// Formats into a second buffer, since an argument may be the old text.
CADRE_PRINTF(1, 0)
static void keep(const char *format, va_list arguments, const char *suffix)
{
    char fresh[CADRE_FAIL_TEXT_BYTES];
    int n = vsnprintf(fresh, sizeof(fresh), format, arguments);
    size_t used = n < 0 ? 0 : (size_t)n;
    if (used < sizeof(fresh)) {
        snprintf(fresh + used, sizeof(fresh) - used, "%s", suffix);
    }
    // Names of files and words from elsewhere stand in it: it stays one line,
    // and gives a terminal no commands.
    for (char *at = fresh; *at != '\0'; at++) {
        if ((*at > 0 && *at < ' ') || *at == 0x7f) {
            *at = '?';
        }
    }
    memcpy(text, fresh, sizeof(text));
}

cadre_status(cadre_fail)(cadre_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    keep(format, arguments, "");
    va_end(arguments);
    return status;
}

cadre_status(cadre_fail_errno)(
    cadre_status status, int errno_value, const char *format, ...)
{
    // The POSIX strerror_r; the names of errno values are short.
    char reason[128] = "unknown error";
    char suffix[160];
    (void)strerror_r(errno_value, reason, sizeof(reason));
    snprintf(suffix, sizeof(suffix), ": %s", reason);

    va_list arguments;
    va_start(arguments, format);
    keep(format, arguments, suffix);
    va_end(arguments);
    return status;
}

const char *cadre_error_text(void)
{
    return text;
}

const char *cadre_status_name(cadre_status status)
{
    switch (status) {
#define STATUS_CASE(name, value, meaning) \
    case CADRE_##name:                    \
        return "CADRE_" #name;
        CADRE_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}
