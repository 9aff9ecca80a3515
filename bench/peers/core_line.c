// SPDX-License-Identifier: Apache-2.0
//
// How long a cache line takes from one core to another and back, in ns: where
// the first two cores that may be used lie to each other.  On a virtual machine
// that changes within seconds, and times in shared memory change with it.
//
// Prints the shortest of some tries; ends with 2 where there is one core only.

#define _GNU_SOURCE // pthread_setaffinity_np

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N_TRIES = 20, N_ROUNDS = 1000 };

typedef struct player {
    int core;
    int number; // 0 or 1
    double ns;  // of a round
} player;

// Lines of their own; prefetchers fetch pairs.
static _Alignas(128) atomic_uint to_first;
static _Alignas(128) atomic_uint to_second;

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

// Never for long: both players are there.
static void wait_for(atomic_uint *line, unsigned round)
{
    while (atomic_load_explicit(line, memory_order_acquire) != round) {
    }
}

static void *play(void *ctx)
{
    player *p = ctx;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)p->core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    double start = now_ns();
    for (unsigned round = 1; round <= N_ROUNDS; round++) {
        if (p->number == 0) {
            atomic_store_explicit(&to_second, round, memory_order_release);
            wait_for(&to_first, round);
        } else {
            wait_for(&to_second, round);
            atomic_store_explicit(&to_first, round, memory_order_release);
        }
    }
    p->ns = (now_ns() - start) / N_ROUNDS;
    return NULL;
}

static double try_once(const int cores[2])
{
    player players[2] = {{.core = cores[0]}, {.core = cores[1], .number = 1}};
    pthread_t second;
    atomic_store(&to_first, 0);
    atomic_store(&to_second, 0);
    if (pthread_create(&second, NULL, play, &players[1]) != 0) {
        exit(1);
    }
    play(&players[0]);
    pthread_join(second, NULL);
    return players[1].ns;
}

int main(void)
{
    cpu_set_t set;
    int cores[2];
    int n = 0;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (int core = 0; core < CPU_SETSIZE && n < 2; core++) {
        if (CPU_ISSET((size_t)core, &set)) {
            cores[n++] = core;
        }
    }
    if (n < 2) {
        fprintf(stderr, "core_line: there is one core only\n");
        return 2;
    }
    // The shortest: a core may have been with somebody else meanwhile.
    double shortest = try_once(cores);
    for (int i = 1; i < N_TRIES; i++) {
        double ns = try_once(cores);
        shortest = ns < shortest ? ns : shortest;
    }
    printf("%.0f\n", shortest);
    return 0;
}
