// SPDX-License-Identifier: Apache-2.0
//
// The failure text of a thread.  Where a failure is decided, it is described:
//
//     return cadre_fail(CADRE_ERR_INVALID_ARG, "n is %d, at least 1 is needed", n);
//
// whoever only forwards a status returns it as it is.

#ifndef CADRE_BASE_FAIL_H
#define CADRE_BASE_FAIL_H

#include "cadre/status.h"
#include <stdarg.h>

enum { CADRE_FAIL_TEXT_BYTES = 1024 };

#if defined(__GNUC__)
#define CADRE_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define CADRE_PRINTF(text, first)
#endif

/**
 * Keeps the sentence for this thread's cadre_error_text() and returns status.
 *
 * Longer texts are cut at CADRE_FAIL_TEXT_BYTES, and control characters become
 * question marks.  Arguments may come from the present text, so a caller can
 * put words in front of it.
 */
cadre_status cadre_fail(cadre_status status, const char *format, ...)
    CADRE_PRINTF(2, 3);

/** As cadre_fail(), then ": " and the text of errno_value. */
cadre_status cadre_fail_errno(cadre_status status, int errno_value,
    const char *format, ...) CADRE_PRINTF(3, 4);

#if defined(__clang_analyzer__)
// The analyzer does not look into another file, and would follow paths on which
// a failure is no failure.
// NOLINTBEGIN(readability-identifier-naming): they stand for the functions
#define cadre_fail(status, ...) \
    ((void)(cadre_fail)((status), __VA_ARGS__), (status))
#define cadre_fail_errno(status, ...) \
    ((void)(cadre_fail_errno)((status), __VA_ARGS__), (status))
// NOLINTEND(readability-identifier-naming)
#endif

/** Leaves the calling function with the status of a call that failed. */
#define CADRE_TRY(call)                    \
    do {                                   \
        cadre_status try_status_ = (call); \
        if (try_status_ != CADRE_OK) {     \
            return try_status_;            \
        }                                  \
    } while (0)

#endif // CADRE_BASE_FAIL_H
