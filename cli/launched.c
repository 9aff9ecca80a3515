// SPDX-License-Identifier: Apache-2.0

#define _GNU_SOURCE // sched_getaffinity

#include "launched.h"

#include "number.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>

enum { MOST_THREADS = 1024 };

// The first of two variables that is set.
static const char *either(const char *ours, const char *theirs)
{
    const char *value = getenv(ours);
    return value != NULL ? value : getenv(theirs);
}

const char *launched_rank(void)
{
    return either("CADRE_RANK", "RANK");
}

bool is_launched(void)
{
    return launched_rank() != NULL;
}

// 0 unless it is a whole number of a sensible size.
static int small_number(const char *text)
{
    int64_t number;
    bool sensible = text != NULL && number_from_text(text, &number) &&
                    number >= 1 && number <= MOST_THREADS;
    return sensible ? (int)number : 0;
}

int launched_local_ranks(void)
{
    return small_number(either("CADRE_LOCAL_WORLD_SIZE", "LOCAL_WORLD_SIZE"));
}

int launched_threads(void)
{
    int threads = small_number(getenv("OMP_NUM_THREADS"));
    if (threads > 0) {
        return threads;
    }
    int n_ranks = launched_local_ranks();
    threads = n_ranks > 0 ? core_count() / n_ranks : 1;
    return threads > 0 ? threads : 1;
}

int core_count(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? n : 1;
}
