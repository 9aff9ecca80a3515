// SPDX-License-Identifier: Apache-2.0
//
// Linux: a futex that is not private to the process.
//
// The one who rings counts, then looks whether somebody sleeps; the one who
// sleeps says so, then looks at the count.  All four in one order (seq_cst), so
// at least one of them sees the other.

#define _GNU_SOURCE // syscall

#include "transport/bell.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const int64_t ns_per_s = 1000000000;

void cadre_bell_ring(cadre_bell *bell)
{
    atomic_fetch_add(&bell->rings, 1);
    if (atomic_load(&bell->sleeps) != 0) {
        (void)syscall(
            SYS_futex, &bell->rings, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}

void cadre_bell_sleep(cadre_bell *bell, unsigned seen, cadre_deadline deadline)
{
    struct timespec until = {
        .tv_sec = (time_t)(deadline / ns_per_s),
        .tv_nsec = (long)(deadline % ns_per_s),
    };
    atomic_store(&bell->sleeps, 1);
    if (atomic_load(&bell->rings) == seen) {
        // Of the monotonic clock, as deadlines are.
        (void)syscall(SYS_futex, &bell->rings, FUTEX_WAIT_BITSET, seen, &until,
            NULL, FUTEX_BITSET_MATCH_ANY);
    }
    atomic_store(&bell->sleeps, 0);
}
