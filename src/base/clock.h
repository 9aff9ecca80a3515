// SPDX-License-Identifier: Apache-2.0
//
// Monotonic time and deadlines.  Wall clocks decide nothing in Cadre.
//
// Threads: any.

#ifndef CADRE_BASE_CLOCK_H
#define CADRE_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/** Nanoseconds of the monotonic clock; only differences mean something. */
int64_t cadre_now_ns(void);

/** A point of the monotonic clock, in ns.  Taken once, at a public entry. */
typedef int64_t cadre_deadline;

/** The far future. */
#define CADRE_NO_DEADLINE INT64_MAX

/** The point timeout_ms from now; a negative timeout is CADRE_NO_DEADLINE. */
cadre_deadline cadre_deadline_in_ms(int64_t timeout_ms);

/**
 * Milliseconds until the deadline, at least 0 and rounded up, at most cap_ms:
 * the time that poll() may sleep.
 */
int cadre_deadline_left_ms(cadre_deadline deadline, int cap_ms);

/** Sleeps for some nanoseconds. */
void cadre_sleep_ns(int64_t ns);

#endif // CADRE_BASE_CLOCK_H
