// SPDX-License-Identifier: Apache-2.0

#include "base/clock.h"

#include <time.h>

enum { NS_PER_MS = 1000000 };

int64_t cadre_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

cadre_deadline cadre_deadline_in_ms(int64_t timeout_ms)
{
    int64_t now = cadre_now_ns();
    if (timeout_ms < 0 || timeout_ms > (INT64_MAX - now) / NS_PER_MS) {
        return CADRE_NO_DEADLINE;
    }
    return now + timeout_ms * NS_PER_MS;
}

int cadre_deadline_left_ms(cadre_deadline deadline, int cap_ms)
{
    int64_t now = cadre_now_ns();
    if (deadline <= now) {
        return 0;
    }
    int64_t left = (deadline - now - 1) / NS_PER_MS + 1;
    return left < cap_ms ? (int)left : cap_ms;
}

void cadre_sleep_ns(int64_t ns)
{
    struct timespec t = {
        .tv_sec = ns / 1000000000,
        .tv_nsec = (long)(ns % 1000000000),
    };
    while (nanosleep(&t, &t) != 0) {
        // Interrupted by a signal: t holds what is left.
    }
}
