// SPDX-License-Identifier: Apache-2.0
//
// Linux: POSIX does not bind threads to cores.

#define _GNU_SOURCE // sched_setaffinity

#include "launch/bind.h"

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

// The n-th core of the set, counted round and round.
static size_t find_core(const cpu_set_t *allowed, int64_t n)
{
    int64_t left = n % CPU_COUNT(allowed);
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, allowed) && left-- == 0) {
            return core;
        }
    }
    return 0; // not reached: the set is not empty
}

bool cadre_bind_to_cores(int local_rank, int n_cores)
{
    cpu_set_t allowed;
    cpu_set_t chosen;
    CPU_ZERO(&allowed);
    CPU_ZERO(&chosen);
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
        return false;
    }
    for (int i = 0; i < n_cores && i < CPU_SETSIZE; i++) {
        size_t core = find_core(&allowed, (int64_t)local_rank * n_cores + i);
        CPU_SET(core, &chosen);
    }
    return sched_setaffinity(0, sizeof(chosen), &chosen) == 0;
}
